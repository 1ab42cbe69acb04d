//! What one process tells of itself: that it is there, and what its candidates say.
//!
//! Each election has a notice: what is to stand on its board, and whether it does. A notice is put when it begins and
//! when it changes, not to keep it. One call for the whole process says that the process is there, and keeps all of its
//! notices: once in the shortest lease, for two such leases, so that one call may fail; then it is made again after a
//! third of a lease. Where that call rests on the heartbeat of the seats it costs nothing, and is made as often as that.
//!
//! Nothing is put before the store has answered that the process is there, and everything is put again when the store
//! says that the process was not: its notices may have been cleared away meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{Attended, Fault, Moment, PresenceAction, PresenceInput};

/// What one process tells of itself.
#[derive(Debug)]
pub struct Presence<S, N> {
    /// Whether saying that it is there rests on the heartbeat of its seats.
    by_session: bool,
    notices: BTreeMap<S, Box<Notice<N>>>,
    /// Seats whose notice may not be as it should.
    queue: VecDeque<S>,
    underway: usize,
    state: State,
    /// The lease for which it was last said that this process is there, and when.
    lease: Duration,
    said_at: Moment,
    /// The process is there until this moment at the least, by what was answered.
    there_until: Moment,
    /// It was said since then, and not answered.
    unanswered: bool,
    /// It was said, and not answered yet.
    asked: bool,
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

/// What is to stand on the board of one seat.
#[derive(Debug)]
struct Notice<N> {
    lease: Duration,
    fit: bool,
    /// `None`: nothing.
    says: Option<N>,
    /// What it says may differ from what stands there.
    stale: bool,
    /// Something may stand there.
    there: bool,
    underway: bool,
}

type Actions<S, N> = Vec<PresenceAction<S, N>>;

impl<S: Ord + Clone, N: Clone> Presence<S, N> {
    /// Of a process that has nothing to tell yet. `by_session`: saying that it is there rests on the heartbeat of its
    /// seats.
    pub fn new(by_session: bool) -> Self {
        Self {
            by_session,
            notices: BTreeMap::new(),
            queue: VecDeque::new(),
            underway: 0,
            state: State::Away,
            lease: Duration::MAX,
            said_at: Moment::ORIGIN,
            there_until: Moment::ORIGIN,
            unanswered: false,
            asked: false,
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
            PresenceInput::Attended(answer) => self.on_attended(now, answer, out),
            PresenceInput::Told(seat, answer) => self.on_told(now, seat, answer, out),
            PresenceInput::Wake => {
                if self.wake.take_if(|wake| now >= *wake).is_some() {
                    self.attend(now, out);
                }
            }
        }
        self.tell(out);
    }

    fn announce(&mut self, now: Moment, seat: S, lease: Duration, fit: bool, notice: N, out: &mut Actions<S, N>) {
        let entry = self
            .notices
            .entry(seat.clone())
            .or_insert_with(|| Box::new(Notice { lease, fit, says: None, stale: true, there: false, underway: false }));
        (entry.lease, entry.fit, entry.says, entry.stale) = (lease, fit, Some(notice), true);
        self.queue.push_back(seat);
        if self.state == State::Away {
            self.state = State::Asking;
            self.attend(now, out);
        } else if lease < self.lease {
            // Otherwise its candidate would be listed for too long, should this process die.
            self.attend(now, out);
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
    fn tell(&mut self, out: &mut Actions<S, N>) {
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
                Some(notice) => out.push(PresenceAction::Put { seat, notice: notice.clone(), within }),
            }
            (entry.there, entry.underway) = (true, true);
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
    fn attend(&mut self, now: Moment, out: &mut Actions<S, N>) {
        let standing = self.notices.values().filter(|entry| entry.says.is_some());
        let Some(lease) = standing.map(|entry| entry.lease).min() else {
            self.state = State::Away;
            return;
        };
        let every = if self.by_session { lease / 3 } else { lease };
        let within = lease / 3;
        (self.lease, self.after) = (lease, now + every);
        // Taken back when it is answered.
        (self.said_at, self.unanswered) = (now, self.unanswered || self.asked);
        self.asked = true;
        // Unless this succeeds.
        self.wake_at(now + within, out);
        out.push(PresenceAction::Attend { lifetime: self.lifetime(), within });
    }

    fn wake_at(&mut self, moment: Moment, out: &mut Actions<S, N>) {
        self.wake = Some(moment);
        out.push(PresenceAction::WakeAt(moment));
    }

    fn on_attended(&mut self, now: Moment, answer: Result<Attended, Fault>, out: &mut Actions<S, N>) {
        self.asked = false;
        let attended = match answer {
            Ok(attended) => attended,
            Err(fault) => {
                self.unanswered |= fault == Fault::Unknown;
                return;
            }
        };
        // That the process was not there is answered once. If that answer may have been lost, it counts as given.
        let anew = attended == Attended::Anew || (self.unanswered && now >= self.there_until);
        let lifetime = self.lifetime();
        // A tenth less, as clocks differ.
        (self.there_until, self.unanswered) = (self.said_at + (lifetime - lifetime / 10), false);
        self.wake_at(self.after, out);
        self.state = State::There;
        for (seat, entry) in &mut self.notices {
            if anew {
                (entry.stale, entry.there) = (true, entry.underway);
            }
            if entry.stale {
                self.queue.push_back(seat.clone());
            }
        }
    }

    /// For how long it is said that this process is there.
    fn lifetime(&self) -> Duration {
        if self.by_session { self.lease } else { self.lease.saturating_mul(2) }
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
