//! The roster: processes announce themselves and their candidates by the real [`Presence`](tenure_protocol::Presence).
//!
//! A notice is listed until it expires, and while its process is there: both for as long as was said when they were put.
//! Now and then the store loses all of it.

use std::collections::BTreeMap;

use tenure_protocol::{Fault, Incarnation, NoteState, PresenceAction, PresenceInput, Standing};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr};

/// What the store has of it.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    notices: Vec<Listing>,
    /// Until when each process is there.
    there: BTreeMap<Incarnation, Time>,
}

/// A candidate on the roster.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) standing: Standing,
    /// Since when it says this.
    pub(crate) since: Time,
    until: Time,
}

/// Something that a process tells of itself, on its way to the store.
#[derive(Debug)]
pub(crate) struct TellCall {
    node: NodeNr,
    life: u32,
    number: u64,
    who: Incarnation,
    what: What,
    fate: Fate,
}

#[derive(Debug)]
enum What {
    Present { lasts: Time },
    Put(Standing, Time),
    Remove,
}

impl World {
    /// Who is on the roster now.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Listing> {
        let is_there = |who: &Incarnation| self.roster.there.get(who).is_some_and(|until| self.now < *until);
        let lasts = move |listing: &&Listing| self.now < listing.until;
        self.roster
            .notices
            .iter()
            .filter(lasts)
            .filter(move |listing| is_there(&listing.standing.candidate.incarnation))
    }

    /// A candidate announces itself. Those who stand only when asked do not.
    pub(super) fn announce(&mut self, nr: NodeNr) {
        let lease = self.plan.parts[nr].lease;
        let notice = self.standing(nr, true);
        self.tell_of(nr, PresenceInput::Announce { seat: (), lease, fit: true, notice });
    }

    /// What is to be told of a candidate has changed.
    pub(super) fn announce_fitness(&mut self, nr: NodeNr, fit: bool) {
        let notice = self.standing(nr, fit);
        self.tell_of(nr, PresenceInput::Change { seat: (), fit, notice });
    }

    /// A candidate stands no more.
    pub(super) fn leave_roster(&mut self, nr: NodeNr) {
        self.tell_of(nr, PresenceInput::Withdraw(()));
    }

    /// Until when somebody is said to be there at the latest.
    pub(crate) fn latest_presence(&self) -> Option<Time> {
        self.roster.there.values().max().copied()
    }

    fn standing(&self, nr: NodeNr, fit: bool) -> Standing {
        Standing { candidate: self.nodes[nr].me.clone(), priority: self.plan.parts[nr].priority, fit }
    }

    /// Whether a candidate tells of itself at all.
    pub(crate) fn announces(&self, nr: NodeNr) -> bool {
        self.plan.has_board && self.nodes[nr].rules.stands
    }

    pub(super) fn tell_of(&mut self, nr: NodeNr, input: PresenceInput<(), Standing>) {
        if !self.announces(nr) {
            return;
        }
        self.say(Some(nr), || format!("<- of what it tells of itself: {input:?}"));
        let node = &mut self.nodes[nr];
        let told = &mut node.told;
        match &input {
            PresenceInput::Announce { fit, .. } | PresenceInput::Change { fit, .. } => {
                (told.says, told.reasons) = ((Some(*fit), self.now), told.reasons + 1);
            }
            PresenceInput::Withdraw(()) => told.says = (None, self.now),
            PresenceInput::Present(Ok(NoteState::Absent)) => (told.reasons, told.lost) = (told.reasons + 1, false),
            PresenceInput::Notification((), Err(_)) => told.reasons += 1,
            PresenceInput::Present(Err(_)) => told.failures += 1,
            PresenceInput::Present(Ok(NoteState::Present))
            | PresenceInput::Notification((), Ok(()))
            | PresenceInput::Wake => {}
        }
        let mut actions = Vec::new();
        node.told.presence.step(node.clock.read(self.now), input, &mut actions);
        for action in actions {
            self.say(Some(nr), || format!("-> of what it tells of itself: {action:?}"));
            match action {
                PresenceAction::SayPresent { lifetime, within } => {
                    let told = &mut self.nodes[nr].told;
                    // One that was not answered has failed.
                    told.failures += u32::from(told.calls.values().any(|attends| *attends));
                    told.calls.retain(|_, attends| !*attends);
                    told.attends += 1;
                    told.began.get_or_insert(self.now);
                    self.send_word(nr, What::Present { lasts: nanos(lifetime) }, within);
                }
                PresenceAction::Put { notice, lifetime, within, .. } => {
                    self.nodes[nr].told.puts += 1;
                    self.send_word(nr, What::Put(notice, nanos(lifetime)), within);
                }
                PresenceAction::Remove { within, .. } => self.send_word(nr, What::Remove, within),
                PresenceAction::WakeAt(moment) => {
                    let node = &mut self.nodes[nr];
                    node.told.wake = Some(moment);
                    let (at, life) = (node.clock.when(moment).max(self.now), node.life);
                    self.at(at, Event::Arrive(nr, life, Arrival::TellAgain(moment)));
                }
            }
        }
    }

    fn send_word(&mut self, nr: NodeNr, what: What, within: std::time::Duration) {
        let fate = fate::of_call(self, nr, Sort::Side);
        self.next += 1;
        let number = self.next;
        let node = &mut self.nodes[nr];
        node.told.calls.insert(number, matches!(what, What::Present { .. }));
        let (life, who, gives_up) =
            (node.life, node.me.incarnation, node.clock.when(node.clock.read(self.now) + within));
        let unanswered = Arrival::HasTold { call: number, input: answer(&what, Err(Fault::Unknown)) };
        self.at(gives_up, Event::Arrive(nr, life, unanswered));
        if !fate.request_lost {
            self.after(fate.there, Event::Tell(TellCall { node: nr, life, number, who, what, fate }));
        }
    }

    pub(super) fn told(&mut self, call: TellCall) {
        let TellCall { node, life, number, who, what, fate } = call;
        let done = match fate.refused {
            Some(fault) => Err(fault),
            None => Ok(self.write_roster(who, &what)),
        };
        if !fate.reply_lost {
            let input = answer(&what, done);
            self.after(fate.back, Event::Arrive(node, life, Arrival::HasTold { call: number, input }));
        }
    }

    /// The store loses what processes have announced.
    pub(crate) fn lose_roster(&mut self) {
        self.roster = Roster::default();
        self.nodes.iter_mut().for_each(|node| node.told.lost = true);
    }

    fn write_roster(&mut self, who: Incarnation, what: &What) -> NoteState {
        let (now, roster) = (self.now, &mut self.roster);
        match what {
            What::Present { lasts } => match roster.there.insert(who, now + lasts) {
                Some(until) if now < until => NoteState::Present,
                _ => NoteState::Absent,
            },
            What::Put(standing, lasts) => {
                let before = roster.notices.iter().find(|listing| listing.standing == *standing);
                let since = before.map_or(now, |listing| listing.since);
                roster.notices.retain(|listing| listing.standing.candidate.incarnation != who);
                roster.notices.push(Listing { standing: standing.clone(), since, until: now + lasts });
                NoteState::Present
            }
            What::Remove => {
                roster.notices.retain(|listing| listing.standing.candidate.incarnation != who);
                NoteState::Present
            }
        }
    }
}

fn answer(what: &What, done: Result<NoteState, Fault>) -> PresenceInput<(), Standing> {
    match what {
        What::Present { .. } => PresenceInput::Present(done),
        What::Put(..) | What::Remove => PresenceInput::Notification((), done.map(drop)),
    }
}
