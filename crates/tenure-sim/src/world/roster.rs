//! The roster: processes announce themselves and their candidates through the real
//! [`Presence`](tenure_protocol::Presence).
//!
//! A notice is listed until it expires, and only while the note of its process exists. Both have the lifetime
//! that they were written with. Sometimes the store loses all of them.

use std::collections::BTreeMap;

use tenure_protocol::{Fault, Incarnation, NoteState, PresenceAction, PresenceInput, RosterEntry};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr};

/// The notes in the store.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    notices: Vec<Listing>,
    /// Until when the note of each process exists.
    there: BTreeMap<Incarnation, Time>,
}

/// A candidate on the roster.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) standing: RosterEntry,
    /// Since when the notice has this content.
    pub(crate) since: Time,
    until: Time,
}

/// An announcement of a process, on its way to the store.
#[derive(Debug)]
pub(crate) struct AnnounceCall {
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
    Put(RosterEntry, Time),
    Remove,
}

impl World {
    /// Returns the candidates that are on the roster now.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Listing> {
        let is_there = |who: &Incarnation| self.roster.there.get(who).is_some_and(|until| self.now < *until);
        let lasts = move |listing: &&Listing| self.now < listing.until;
        self.roster
            .notices
            .iter()
            .filter(lasts)
            .filter(move |listing| is_there(&listing.standing.candidate.incarnation))
    }

    /// Announces a candidate. Manual candidates are not announced.
    pub(super) fn announce(&mut self, nr: NodeNr) {
        let lease = self.plan.parts[nr].lease;
        let notice = self.standing(nr, true);
        self.step_presence(nr, PresenceInput::Announce { seat: (), lease, fit: true, notice });
    }

    /// Announces a change of a candidate's fitness.
    pub(super) fn announce_fitness(&mut self, nr: NodeNr, fit: bool) {
        let notice = self.standing(nr, fit);
        self.step_presence(nr, PresenceInput::Change { seat: (), fit, notice });
    }

    /// Withdraws a candidate.
    pub(super) fn leave_roster(&mut self, nr: NodeNr) {
        self.step_presence(nr, PresenceInput::Withdraw(()));
    }

    /// Returns the latest expiry of all process notes.
    pub(crate) fn latest_presence(&self) -> Option<Time> {
        self.roster.there.values().max().copied()
    }

    fn standing(&self, nr: NodeNr, fit: bool) -> RosterEntry {
        RosterEntry { candidate: self.nodes[nr].me.clone(), priority: self.plan.parts[nr].priority, fit }
    }

    /// Returns whether a candidate is announced at all.
    pub(crate) fn announces(&self, nr: NodeNr) -> bool {
        self.plan.has_board && self.nodes[nr].rules.stands
    }

    pub(super) fn step_presence(&mut self, nr: NodeNr, input: PresenceInput<(), RosterEntry>) {
        if !self.announces(nr) {
            return;
        }
        self.say(Some(nr), || format!("<- presence: {input:?}"));
        let node = &mut self.nodes[nr];
        let announcer = &mut node.announcer;
        match &input {
            PresenceInput::Announce { fit, .. } | PresenceInput::Change { fit, .. } => {
                (announcer.says, announcer.reasons) = ((Some(*fit), self.now), announcer.reasons + 1);
            }
            PresenceInput::Withdraw(()) => announcer.says = (None, self.now),
            PresenceInput::Present(Ok(NoteState::Absent)) => {
                (announcer.reasons, announcer.lost) = (announcer.reasons + 1, false)
            }
            PresenceInput::NoticeWritten((), Err(_)) => announcer.reasons += 1,
            PresenceInput::Present(Err(_)) => announcer.failures += 1,
            PresenceInput::Present(Ok(NoteState::Present))
            | PresenceInput::NoticeWritten((), Ok(()))
            | PresenceInput::Wake => {}
        }
        let mut actions = Vec::new();
        node.announcer.presence.step(node.clock.read(self.now), input, &mut actions);
        for action in actions {
            self.say(Some(nr), || format!("-> presence: {action:?}"));
            match action {
                PresenceAction::SayPresent { lifetime, within } => {
                    let announcer = &mut self.nodes[nr].announcer;
                    // An earlier report without an answer has failed.
                    announcer.failures += u32::from(announcer.calls.values().any(|reports| *reports));
                    announcer.calls.retain(|_, reports| !*reports);
                    announcer.reports += 1;
                    announcer.began.get_or_insert(self.now);
                    self.send_announcement(nr, What::Present { lasts: nanos(lifetime) }, within);
                }
                PresenceAction::Put { notice, lifetime, within, .. } => {
                    self.nodes[nr].announcer.puts += 1;
                    self.send_announcement(nr, What::Put(notice, nanos(lifetime)), within);
                }
                PresenceAction::Remove { within, .. } => self.send_announcement(nr, What::Remove, within),
                PresenceAction::WakeAt(moment) => {
                    let node = &mut self.nodes[nr];
                    node.announcer.wake = Some(moment);
                    let (at, life) = (node.clock.when(moment).max(self.now), node.life);
                    self.at(at, Event::Arrive(nr, life, Arrival::PresenceWake(moment)));
                }
            }
        }
    }

    fn send_announcement(&mut self, nr: NodeNr, what: What, within: std::time::Duration) {
        let fate = fate::of_call(self, nr, Sort::Side);
        self.next += 1;
        let number = self.next;
        let node = &mut self.nodes[nr];
        node.announcer.calls.insert(number, matches!(what, What::Present { .. }));
        let (life, who, gives_up) =
            (node.life, node.me.incarnation, node.clock.when(node.clock.read(self.now) + within));
        let unanswered = Arrival::PresenceAnswer { call: number, input: answer(&what, Err(Fault::Unknown)) };
        self.at(gives_up, Event::Arrive(nr, life, unanswered));
        if !fate.request_lost {
            self.after(fate.there, Event::Announce(AnnounceCall { node: nr, life, number, who, what, fate }));
        }
    }

    pub(super) fn announcement_arrives(&mut self, call: AnnounceCall) {
        let AnnounceCall { node, life, number, who, what, fate } = call;
        let done = match fate.refused {
            Some(fault) => Err(fault),
            None => Ok(self.write_roster(who, &what)),
        };
        if !fate.reply_lost {
            let input = answer(&what, done);
            self.after(fate.back, Event::Arrive(node, life, Arrival::PresenceAnswer { call: number, input }));
        }
    }

    /// Makes the store lose all announcements.
    pub(crate) fn lose_roster(&mut self) {
        self.roster = Roster::default();
        self.nodes.iter_mut().for_each(|node| node.announcer.lost = true);
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

fn answer(what: &What, done: Result<NoteState, Fault>) -> PresenceInput<(), RosterEntry> {
    match what {
        What::Present { .. } => PresenceInput::Present(done),
        What::Put(..) | What::Remove => PresenceInput::NoticeWritten((), done.map(drop)),
    }
}
