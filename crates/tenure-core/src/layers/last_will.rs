//! The last will of a program: a companion process that frees its seats when the program dies.

use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Answers, Call, Clock, ConfigError, DynNotes, Expect, Interest, Lifeline, News, Promises, Reading, Record, SeatName,
    SessionId, Store, StoreError, Swap, Version, Write,
};

/// A store whose seats are freed at once when this process dies: after a crash, `abort`, `kill -9`, an exit without a
/// stop, or when the kernel is out of memory.
///
/// It starts a companion, the command `tenure will`, which holds a socket and a list of the seats that this process
/// holds. When the kernel confirms that this process is dead, with all of its threads, the companion connects to the
/// store, frees those seats, and exits. While this process lives, the companion does nothing, whatever happens to the
/// socket. So followers take over within milliseconds, where they would otherwise wait for the lease to expire.
///
/// It promises no more than that: processes that this one has started may still run. If the machine fails, the
/// companion is killed as well, or it cannot reach the store, then the lease decides, as it does without a last will.
///
/// Stores with a lifeline (SQLite, PostgreSQL and MySQL with `mode=session`) free the seats of a dead process by themselves.
#[derive(Debug)]
pub struct LastWills<S> {
    store: S,
    companion: Arc<Mutex<Companion>>,
}

/// How long the companion has to start.
const START: Duration = Duration::from_secs(10);

impl<S: Store> LastWills<S> {
    /// Starts the companion. `program` is the command `tenure`: a name that is found on the path, or a path. `url` is
    /// the URL of the store, which the companion connects to; it gets it through a socket, because a URL can contain a
    /// password.
    ///
    /// # Errors
    /// If the program cannot be started, or is not a `tenure` that knows how to execute wills.
    pub fn start(store: S, url: &str, program: &str) -> Result<Self, ConfigError> {
        let companion = Companion::start(url, program).map_err(|why| {
            let get = "install the command tenure, or name its path";
            ConfigError::new(format!("last_will: cannot start {program:?} as companion: {why}; {get}"))
        })?;
        Ok(Self { store, companion: Arc::new(Mutex::new(companion)) })
    }

    /// Tells the companion which seat this process is about to win.
    fn arm(&self, seat: &SeatName, record: &Record) {
        let Some(holder) = record.holder.as_ref().filter(|_| !self.store.promises().lifeline) else { return };
        lock(&self.companion).tell(&json!({ "arm": {
            "election": seat.as_str(),
            "candidate": &*holder.id,
            "incarnation": holder.incarnation.to_string(),
            "token": record.token.get(),
            "lease_ms": u64::try_from(record.lease.as_millis()).unwrap_or(u64::MAX),
        } }));
    }
}

/// A companion, and the socket to it.
#[derive(Debug)]
struct Companion {
    process: Option<Child>,
    socket: UnixStream,
    /// Text that did not fit into the socket.
    pending: Vec<u8>,
}

impl Companion {
    fn start(url: &str, program: &str) -> Result<Self, String> {
        let why = |error: std::io::Error| error.to_string();
        let (mut socket, its_end) = UnixStream::pair().map_err(why)?;
        let mut process = Command::new(program)
            .arg("will")
            // It gets the URL through the socket.
            .env_remove("TENURE_STORE")
            .stdin(OwnedFd::from(its_end))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(why)?;
        let told = writeln!(socket, "{}", json!({ "store": url, "parent": std::process::id() }));
        let output = process.stdout.take();
        let (sender, ready) = channel();
        let wait = move || {
            let mut line = String::new();
            let _ = output.map(|output| BufReader::new(output).read_line(&mut line));
            let _ = sender.send(line);
        };
        let waits = std::thread::Builder::new().name("tenure-will".to_owned()).spawn(wait);
        let is_ready = told.is_ok() && waits.is_ok() && ready.recv_timeout(START).is_ok_and(|line| line == "ready\n");
        if !is_ready || socket.set_nonblocking(true).is_err() {
            let _ = process.kill();
            let _ = process.wait();
            return Err("it does not answer; it must be the command tenure of this version".to_owned());
        }
        Ok(Self { process: Some(process), socket, pending: Vec::new() })
    }

    /// Writes a line without blocking.
    fn tell(&mut self, line: &Value) {
        self.pending.extend(format!("{line}\n").into_bytes());
        self.flush();
    }

    /// Writes as much as fits. If the companion is gone, the lease decides.
    fn flush(&mut self) {
        while !self.pending.is_empty() {
            match self.socket.write(&self.pending) {
                Ok(length) if length > 0 => drop(self.pending.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => return self.pending.clear(),
            }
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // It ends when the socket is closed, unless seats are still held. Then it ends with this process, or when they
        // have expired.
        let process = self.process.take();
        let reap = move || process.map(|mut process| process.wait());
        let _ = std::thread::Builder::new().name("tenure-will".to_owned()).spawn(reap);
    }
}

fn lock(companion: &Mutex<Companion>) -> MutexGuard<'_, Companion> {
    companion.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for LastWills<S> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.store.attach(clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        self.store.shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.store.read(call, seats, to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        lock(&self.companion).flush();
        // Before the write: a process that dies right after it has won a seat has told its companion. A will for a seat
        // that was not won, or for a term that is over, changes nothing.
        for write in writes {
            if !matches!(write.expect, Expect::Held(_)) && write.record.holder.is_some() {
                self.arm(&write.seat, &write.record);
            }
        }
        // A seat that was released needs no will. Its token tells it from the next term, which can begin before this
        // call ends.
        let released = |write: &Write| write.record.is_vacant().then(|| (write.seat.clone(), write.record.token));
        let released: Vec<_> = writes.iter().map(released).collect();
        let (companion, to) = (self.companion.clone(), to.clone());
        let to = Answers::new(move |place, answer: Result<Swap, StoreError>| {
            if let (Ok(Swap::Done { .. }), Some(Some((seat, token)))) = (&answer, released.get(place)) {
                lock(&companion).tell(&json!({ "disarm": seat.as_str(), "token": token.get() }));
            }
            to.set(place, answer);
        });
        self.store.write(call, writes, &to).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        self.store.session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.store.watch(interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.store.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.store.list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        self.store.lifeline(seat)
    }
}
