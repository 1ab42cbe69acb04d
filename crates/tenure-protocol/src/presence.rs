//! Announces one process and the candidates that stand in it.
//!
//! Each election has a notice: the note for its board, and whether that note is there. A notice is put when it begins and
//! when it changes, and again before its lifetime of ten minutes is over. One more note, for the whole process, says
//! that the process is there: it is put once in the shortest lease, for two such leases, so that one call may fail; then
//! it is put again after a third of a lease. A candidate is listed while both notes are there. So a process that dies is
//! listed for two leases at most, and announcing costs next to nothing however many elections there are.
//!
//! Nothing is put before the store has answered that it has the note of the process. Everything is put again when the
//! store says that this note was not there any more: the store may have lost the others, too.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{Fault, Moment, NoteState, PresenceAction, PresenceInput};

/// Decides when one process announces itself and its candidates.
#[derive(Debug)]
pub struct Presence<S, N> {
    notices: BTreeMap<S, Box<Notice<N>>>,
    /// Seats whose notice may not be as it should.
    queue: VecDeque<S>,
    underway: usize,
    state: State,
    /// The lease for which it was last said that this process is there.
    lease: Duration,
    /// When it is to be said after the call under way, if that succeeds.
    after: Moment,
    wake: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is nothing to tell.
    Away,
    /// Nothing was answered yet.
    Asking,
    There,
}

/// The note for the board of one seat.
#[derive(Debug)]
struct Notice<N> {
    lease: Duration,
    fit: bool,
    /// `None`: nothing.
    says: Option<N>,
    /// The note in the store may differ from this.
    stale: bool,
    /// The store may have a note.
    there: bool,
    /// When it was last put.
    put_at: Moment,
    underway: bool,
}

impl<N> Notice<N> {
    /// How long the note lasts: at least four leases, so that it is put less often than the process says it is there.
    fn lifetime(&self) -> Duration {
        LASTS.max(self.lease.saturating_mul(4))
    }
}

/// How long a notice lasts.
const LASTS: Duration = Duration::from_secs(600);

type Actions<S, N> = Vec<PresenceAction<S, N>>;

impl<S: Ord + Clone, N: Clone> Presence<S, N> {
    /// Creates the presence of a process that has nothing to announce yet.
    pub fn new() -> Self {
        Self {
            notices: BTreeMap::new(),
            queue: VecDeque::new(),
            underway: 0,
            state: State::Away,
            lease: Duration::MAX,
            after: Moment::ORIGIN,
            wake: None,
        }
    }

    /// Whether nothing is left to be done at once.
    pub fn is_settled(&self) -> bool {
        self.underway == 0 && (self.queue.is_empty() || self.state != State::There)
    }

    /// What the candidate of a seat says, if one stands for it.
    pub fn says(&self, seat: &S) -> Option<&N> {
        self.notices.get(seat)?.says.as_ref()
    }

    /// Takes in what happened, as of `now`, and appends what is to be done to `out`.
    pub fn step(&mut self, now: Moment, input: PresenceInput<S, N>, out: &mut Actions<S, N>) {
        match input {
            PresenceInput::Announce { seat, lease, fit, notice } => self.announce(now, seat, lease, fit, notice, out),
            PresenceInput::Change { seat, fit, notice } => self.change(seat, fit, notice),
            PresenceInput::Withdraw(seat) => self.withdraw(seat),
            PresenceInput::Present(answer) => self.on_present(now, answer, out),
            PresenceInput::Notification(seat, answer) => self.on_told(now, seat, answer, out),
            PresenceInput::Wake => {
                if self.wake.take_if(|wake| now >= *wake).is_some() {
                    self.say_present(now, out);
                }
            }
        }
        self.tell(now, out);
    }

    fn announce(&mut self, now: Moment, seat: S, lease: Duration, fit: bool, notice: N, out: &mut Actions<S, N>) {
        let entry = self.notices.entry(seat.clone()).or_insert_with(|| {
            Box::new(Notice { lease, fit, says: None, stale: true, there: false, put_at: now, underway: false })
        });
        (entry.lease, entry.fit, entry.says, entry.stale) = (lease, fit, Some(notice), true);
        self.queue.push_back(seat);
        if self.state == State::Away {
            self.state = State::Asking;
            self.say_present(now, out);
        } else if lease < self.lease {
            // Otherwise its candidate would be listed for too long, should this process die.
            self.say_present(now, out);
        }
    }

    fn change(&mut self, seat: S, fit: bool, notice: N) {
        let Some(entry) = self.notices.get_mut(&seat).filter(|entry| entry.says.is_some()) else { return };
        (entry.says, entry.stale) = (Some(notice), true);
        if std::mem::replace(&mut entry.fit, fit) != fit {
            self.queue.push_back(seat);
        }
    }

    fn withdraw(&mut self, seat: S) {
        let Some(entry) = self.notices.get_mut(&seat).filter(|entry| entry.says.is_some()) else { return };
        (entry.says, entry.stale) = (None, true);
        self.queue.push_back(seat);
    }

    /// Puts and removes what is due.
    fn tell(&mut self, now: Moment, out: &mut Actions<S, N>) {
        while self.state == State::There
            && let Some(seat) = self.queue.pop_front()
        {
            let Some(entry) = self.notices.get_mut(&seat) else { continue };
            if entry.underway || !entry.stale {
                continue;
            }
            entry.stale = false;
            let within = entry.lease / 3;
            match &entry.says {
                None if !entry.there => {
                    self.notices.remove(&seat);
                    continue;
                }
                None => out.push(PresenceAction::Remove { seat, within }),
                Some(notice) => {
                    let lifetime = entry.lifetime();
                    out.push(PresenceAction::Put { seat, notice: notice.clone(), lifetime, within });
                }
            }
            (entry.there, entry.put_at, entry.underway) = (true, now, true);
            self.underway += 1;
        }
    }

    fn on_told(&mut self, now: Moment, seat: S, answer: Result<(), Fault>, out: &mut Actions<S, N>) {
        self.underway = self.underway.saturating_sub(1);
        let Some(entry) = self.notices.get_mut(&seat) else { return };
        entry.underway = false;
        match answer {
            Ok(()) if entry.stale => self.queue.push_back(seat),
            Ok(()) if entry.says.is_none() => drop(self.notices.remove(&seat)),
            Ok(()) => {}
            Err(fault) => {
                // Tried again when this process says the next time that it is there; and if nobody answers, so are
                // all the others.
                entry.stale = true;
                let again = now + entry.lease / 3;
                if self.state == State::There {
                    if fault == Fault::Unknown {
                        self.state = State::Asking;
                    }
                    if self.wake.is_none_or(|wake| again < wake) {
                        self.wake_at(again, out);
                    }
                }
            }
        }
    }

    /// Says that this process is there.
    fn say_present(&mut self, now: Moment, out: &mut Actions<S, N>) {
        let standing = self.notices.values().filter(|entry| entry.says.is_some());
        let Some(lease) = standing.map(|entry| entry.lease).min() else {
            self.state = State::Away;
            return;
        };
        let within = lease / 3;
        (self.lease, self.after) = (lease, now + lease);
        // Unless this succeeds.
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
        self.state = State::There;
        for (seat, entry) in &mut self.notices {
            if was == NoteState::Absent {
                (entry.stale, entry.there) = (true, entry.underway);
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
