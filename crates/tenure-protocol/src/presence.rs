//! Announces one process and the candidates that stand in it.
//!
//! Each candidate has a notice: the note for the board of its election. A notice is written when the candidate
//! starts to stand and when it changes, and again before its lifetime of ten minutes is over. One more note,
//! for the whole process, says that the process is alive. It lasts for two leases (the shortest ones of the
//! process) and is written once per lease, so that one call can fail; after a failure it is written again a
//! third of a lease later. A candidate is listed while both notes exist. So a process that dies is listed for
//! at most two leases, and announcing costs almost nothing, however many elections the process has.
//!
//! No notice is written before the store has confirmed the note of the process. All notices are written again
//! when the store answers that the note of the process did not exist any more, because the store may have lost
//! the others, too.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{Fault, Moment, NoteState, PresenceAction, PresenceInput};

/// Decides when one process announces itself and its candidates.
#[derive(Debug)]
pub struct Presence<S, N> {
    notices: BTreeMap<S, Box<Notice<N>>>,
    /// Seats whose notice may differ from the note in the store.
    queue: VecDeque<S>,
    in_flight: usize,
    state: State,
    /// The lease for which the process was last reported alive.
    lease: Duration,
    /// When to report the process next, if the call in flight succeeds.
    after: Moment,
    wake: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No candidate stands, so there is nothing to announce.
    Absent,
    /// The store has not confirmed the note of the process yet.
    Unconfirmed,
    Confirmed,
}

/// The notice of the candidate that stands for one seat.
#[derive(Debug)]
struct Notice<N> {
    lease: Duration,
    fit: bool,
    /// `None`: the candidate has withdrawn, and the note must be removed.
    notice: Option<N>,
    /// The note in the store may differ from this notice.
    stale: bool,
    /// The store may have a note.
    stored: bool,
    /// When the note was last written.
    put_at: Moment,
    in_flight: bool,
}

impl<N> Notice<N> {
    /// Returns how long the note lasts: at least four leases, so that it is written less often than the process
    /// is reported.
    fn lifetime(&self) -> Duration {
        NOTICE_LIFETIME.max(self.lease.saturating_mul(4))
    }
}

/// The shortest lifetime of a notice.
const NOTICE_LIFETIME: Duration = Duration::from_secs(600);

type Actions<S, N> = Vec<PresenceAction<S, N>>;

impl<S: Ord + Clone, N: Clone> Presence<S, N> {
    /// Creates the presence of a process that has nothing to announce yet.
    pub fn new() -> Self {
        Self {
            notices: BTreeMap::new(),
            queue: VecDeque::new(),
            in_flight: 0,
            state: State::Absent,
            lease: Duration::MAX,
            after: Moment::ORIGIN,
            wake: None,
        }
    }

    /// Returns whether no call is in flight and none is due now. A shutdown waits for this.
    pub fn is_settled(&self) -> bool {
        self.in_flight == 0 && (self.queue.is_empty() || self.state != State::Confirmed)
    }

    /// Returns the notice of the candidate that stands for `seat`, if there is one.
    pub fn says(&self, seat: &S) -> Option<&N> {
        self.notices.get(seat)?.notice.as_ref()
    }

    /// Takes in one input at the time `now`, and appends the resulting actions to `out`. `now` must not go
    /// back.
    pub fn step(&mut self, now: Moment, input: PresenceInput<S, N>, out: &mut Actions<S, N>) {
        match input {
            PresenceInput::Announce { seat, lease, fit, notice } => self.announce(now, seat, lease, fit, notice, out),
            PresenceInput::Change { seat, fit, notice } => self.change(seat, fit, notice),
            PresenceInput::Withdraw(seat) => self.withdraw(seat),
            PresenceInput::Present(answer) => self.on_present(now, answer, out),
            PresenceInput::NoticeWritten(seat, answer) => self.on_written(now, seat, answer, out),
            PresenceInput::Wake => {
                if self.wake.take_if(|wake| now >= *wake).is_some() {
                    self.say_present(now, out);
                }
            }
        }
        self.write_due(now, out);
    }

    fn announce(&mut self, now: Moment, seat: S, lease: Duration, fit: bool, notice: N, out: &mut Actions<S, N>) {
        let entry = self.notices.entry(seat.clone()).or_insert_with(|| {
            Box::new(Notice { lease, fit, notice: None, stale: true, stored: false, put_at: now, in_flight: false })
        });
        (entry.lease, entry.fit, entry.notice, entry.stale) = (lease, fit, Some(notice), true);
        self.queue.push_back(seat);
        if self.state == State::Absent {
            self.state = State::Unconfirmed;
            self.say_present(now, out);
        } else if lease < self.lease {
            // A longer lifetime would list this candidate for too long if the process died.
            self.say_present(now, out);
        }
    }

    fn change(&mut self, seat: S, fit: bool, notice: N) {
        let Some(entry) = self.notices.get_mut(&seat).filter(|entry| entry.notice.is_some()) else { return };
        (entry.notice, entry.stale) = (Some(notice), true);
        if std::mem::replace(&mut entry.fit, fit) != fit {
            self.queue.push_back(seat);
        }
    }

    fn withdraw(&mut self, seat: S) {
        let Some(entry) = self.notices.get_mut(&seat).filter(|entry| entry.notice.is_some()) else { return };
        (entry.notice, entry.stale) = (None, true);
        self.queue.push_back(seat);
    }

    /// Writes and removes the notes that are due.
    fn write_due(&mut self, now: Moment, out: &mut Actions<S, N>) {
        while self.state == State::Confirmed
            && let Some(seat) = self.queue.pop_front()
        {
            let Some(entry) = self.notices.get_mut(&seat) else { continue };
            if entry.in_flight || !entry.stale {
                continue;
            }
            entry.stale = false;
            let within = entry.lease / 3;
            match &entry.notice {
                None if !entry.stored => {
                    self.notices.remove(&seat);
                    continue;
                }
                None => out.push(PresenceAction::Remove { seat, within }),
                Some(notice) => {
                    let lifetime = entry.lifetime();
                    out.push(PresenceAction::Put { seat, notice: notice.clone(), lifetime, within });
                }
            }
            (entry.stored, entry.put_at, entry.in_flight) = (true, now, true);
            self.in_flight += 1;
        }
    }

    fn on_written(&mut self, now: Moment, seat: S, answer: Result<(), Fault>, out: &mut Actions<S, N>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(entry) = self.notices.get_mut(&seat) else { return };
        entry.in_flight = false;
        match answer {
            Ok(()) if entry.stale => self.queue.push_back(seat),
            Ok(()) if entry.notice.is_none() => drop(self.notices.remove(&seat)),
            Ok(()) => {}
            Err(fault) => {
                // The notice is tried again with the next report of the process. After an unknown outcome, all
                // other notices wait for that report, too.
                entry.stale = true;
                let again = now + entry.lease / 3;
                if self.state == State::Confirmed {
                    if fault == Fault::Unknown {
                        self.state = State::Unconfirmed;
                    }
                    if self.wake.is_none_or(|wake| again < wake) {
                        self.wake_at(again, out);
                    }
                }
            }
        }
    }

    /// Reports this process as alive.
    fn say_present(&mut self, now: Moment, out: &mut Actions<S, N>) {
        let standing = self.notices.values().filter(|entry| entry.notice.is_some());
        let Some(lease) = standing.map(|entry| entry.lease).min() else {
            self.state = State::Absent;
            return;
        };
        let within = lease / 3;
        (self.lease, self.after) = (lease, now + lease);
        // The retry, in case this call fails or is not answered. An answer replaces this wake.
        self.wake_at(now + within, out);
        out.push(PresenceAction::SayPresent { lifetime: lease.saturating_mul(2), within });
    }

    fn wake_at(&mut self, moment: Moment, out: &mut Actions<S, N>) {
        self.wake = Some(moment);
        out.push(PresenceAction::WakeAt(moment));
    }

    fn on_present(&mut self, now: Moment, answer: Result<NoteState, Fault>, out: &mut Actions<S, N>) {
        let Ok(was) = answer else { return };
        self.wake_at(self.after, out);
        self.state = State::Confirmed;
        for (seat, entry) in &mut self.notices {
            if was == NoteState::Absent {
                (entry.stale, entry.stored) = (true, entry.in_flight);
            }
            if now.since(entry.put_at) >= entry.lifetime() / 2 {
                entry.stale = true;
            }
            if entry.stale {
                self.queue.push_back(seat.clone());
            }
        }
    }
}

impl<S: Ord + Clone, N: Clone> Default for Presence<S, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
