//! Application locks: granted in the order of the requests, owned by sessions, freed when a session ends.

use std::collections::HashMap;

/// The number of a session.
pub(crate) type Spid = u16;

#[derive(Debug, Default)]
pub(crate) struct Locks {
    locks: HashMap<String, Lock>,
    requests: u64,
}

#[derive(Debug, Default)]
struct Lock {
    holders: Vec<Request>,
    queue: Vec<Request>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    number: u64,
    spid: Spid,
    is_exclusive: bool,
}

impl Locks {
    /// Requests a lock. Returns the number of the request, and whether it is granted already.
    pub(crate) fn request(&mut self, name: &str, spid: Spid, is_exclusive: bool) -> (u64, bool) {
        self.requests += 1;
        let request = Request { number: self.requests, spid, is_exclusive };
        let lock = self.locks.entry(name.to_owned()).or_default();
        lock.queue.push(request);
        lock.grant();
        (request.number, lock.has(request.number))
    }

    pub(crate) fn is_granted(&self, name: &str, request: u64) -> bool {
        self.locks.get(name).is_some_and(|lock| lock.has(request))
    }

    /// Takes back a request that was not granted.
    pub(crate) fn cancel(&mut self, name: &str, request: u64) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.queue.retain(|other| other.number != request);
            lock.grant();
        }
    }

    /// Releases a lock once. Returns whether the session held it.
    pub(crate) fn release(&mut self, name: &str, spid: Spid) -> bool {
        let Some(lock) = self.locks.get_mut(name) else { return false };
        let Some(place) = lock.holders.iter().position(|holder| holder.spid == spid) else { return false };
        lock.holders.remove(place);
        lock.grant();
        true
    }

    /// `APPLOCK_MODE(…) = 'Exclusive'`.
    pub(crate) fn has_exclusive(&self, name: &str, spid: Spid) -> bool {
        let is_own = |holder: &Request| holder.spid == spid && holder.is_exclusive;
        self.locks.get(name).is_some_and(|lock| lock.holders.iter().any(is_own))
    }

    /// `APPLOCK_TEST(…, 'Shared', …) = 0`.
    pub(crate) fn excludes(&self, name: &str, spid: Spid) -> bool {
        let excludes = |holder: &Request| holder.spid != spid && holder.is_exclusive;
        self.locks.get(name).is_some_and(|lock| lock.holders.iter().any(excludes))
    }

    /// Frees everything that a session holds or waits for.
    pub(crate) fn end(&mut self, spid: Spid) {
        for lock in self.locks.values_mut() {
            lock.holders.retain(|holder| holder.spid != spid);
            lock.queue.retain(|request| request.spid != spid);
            lock.grant();
        }
        self.locks.retain(|_, lock| !(lock.holders.is_empty() && lock.queue.is_empty()));
    }

    /// Returns how many locks are held.
    pub(crate) fn held(&self) -> usize {
        self.locks.values().map(|lock| lock.holders.len()).sum()
    }
}

impl Lock {
    fn has(&self, request: u64) -> bool {
        self.holders.iter().any(|holder| holder.number == request)
    }

    fn grant(&mut self) {
        while let Some(next) = self.queue.first().copied() {
            let fits = |holder: &Request| holder.spid == next.spid || !holder.is_exclusive && !next.is_exclusive;
            if !self.holders.iter().all(fits) {
                return;
            }
            self.queue.remove(0);
            self.holders.push(next);
        }
    }
}
