//! The interfaces through which the world drives the real machines and the mutants alike.

use std::time::Duration;

use tenure_protocol::{
    Action, BatchLimits, Candidate, Incarnation, Input, Lane, LastWill, Machine, Moment, Presence, PresenceAction,
    PresenceInput, Reading, Record, RosterEntry, Rules, Token, Version, WillStep,
};

use crate::many_seats::Ask;

/// The interface of a machine.
pub(crate) trait Driven {
    fn step(&mut self, now: Moment, input: Input, out: &mut Vec<Action>);
    fn term(&self, now: Moment) -> Option<Token>;
    fn is_over(&self) -> bool;
}

/// The interface of a presence.
pub(crate) trait DrivenPresence {
    fn step(
        &mut self,
        now: Moment,
        input: PresenceInput<(), RosterEntry>,
        out: &mut Vec<PresenceAction<(), RosterEntry>>,
    );
}

/// The interface of an admission queue.
pub(crate) trait DrivenAdmission {
    fn ask(&mut self, lane: Lane, reads: bool, lease: Duration, within: Duration, ask: Ask);
    fn next(&mut self, is_wanted: &mut dyn FnMut(&Ask) -> bool) -> Option<(u64, Vec<Ask>)>;
    fn ended(&mut self, call: u64);
    fn take_apart(&mut self, call: u64, asks: Vec<Ask>) -> Vec<Ask>;
}

/// The interface of subscriptions. Elections are identified by their seats.
pub(crate) trait DrivenSubscriptions {
    fn begin(&mut self, seat: usize) -> Vec<(usize, Input)>;
    fn end(&mut self, seat: usize);
    fn read_sent(&mut self, seat: usize);
    fn write_sent(&mut self, seat: usize, nonce: u64, names: Names);
    fn read_answered(&mut self, seat: usize);
    fn watch(&mut self, seat: usize, names: Option<Names>, nonce: Option<u64>) -> Vec<(usize, Input)>;
    fn set_listening(&mut self, hears: bool) -> Vec<(usize, Input)>;
    fn holder(&mut self, seat: usize, nonce: Option<u64>, names: Option<Option<Names>>) -> Vec<(usize, Input)>;
}

/// The holder and term that a seat names.
pub(crate) type Names = (Option<Incarnation>, Token);

/// Creates the machines of a process.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) machine: Make,
    pub(crate) presence: fn() -> Box<dyn DrivenPresence>,
    pub(crate) admission: fn(BatchLimits, BatchLimits) -> Box<dyn DrivenAdmission>,
    pub(crate) subscriptions: fn() -> Box<dyn DrivenSubscriptions>,
    pub(crate) will: StepWill,
}

/// Returns the write of a last will, if the seat that was read is to be freed.
pub(crate) type StepWill = fn(Candidate, &Reading, u64) -> Option<(Version, Record)>;

/// Creates a machine.
pub(crate) type Make = fn(Candidate, Rules, u64) -> Box<dyn Driven>;

/// Implements [`Driven`] by the type's own methods of the same names.
macro_rules! drive {
    ($machine:ty) => {
        impl $crate::driven::Driven for $machine {
            fn step(&mut self, now: Moment, input: Input, out: &mut Vec<Action>) {
                <$machine>::step(self, now, input, out);
            }

            fn term(&self, now: Moment) -> Option<Token> {
                <$machine>::term(self, now)
            }

            fn is_over(&self) -> bool {
                <$machine>::is_over(self)
            }
        }
    };
}
pub(crate) use drive;

drive!(Machine);

/// The same for [`DrivenPresence`].
macro_rules! drive_presence {
    ($presence:ty) => {
        impl $crate::driven::DrivenPresence for $presence {
            fn step(
                &mut self,
                now: Moment,
                input: PresenceInput<(), RosterEntry>,
                out: &mut Vec<PresenceAction<(), RosterEntry>>,
            ) {
                <$presence>::step(self, now, input, out);
            }
        }
    };
}
pub(crate) use drive_presence;

drive_presence!(Presence<(), RosterEntry>);

/// The same for [`DrivenAdmission`]. A mutant has types of its own.
macro_rules! drive_admission {
    ($($from:ident)::+) => {
        impl $crate::driven::DrivenAdmission for $($from)::+::Admission<$crate::many_seats::Ask> {
            fn ask(&mut self, lane: Lane, reads: bool, lease: Duration, within: Duration, ask: $crate::many_seats::Ask) {
                let lane = match lane {
                    Lane::Keep => $($from)::+::Lane::Keep,
                    Lane::Settle => $($from)::+::Lane::Settle,
                    Lane::Background => $($from)::+::Lane::Background,
                };
                let group = $($from)::+::Group { lane, reads, shard: 0, lease, within };
                <$($from)::+::Admission<_>>::ask(self, group, ask, 100);
            }

            fn next(
                &mut self,
                is_wanted: &mut dyn FnMut(&$crate::many_seats::Ask) -> bool,
            ) -> Option<(u64, Vec<$crate::many_seats::Ask>)> {
                <$($from)::+::Admission<_>>::next(self, is_wanted).map(|batch| (batch.call, batch.asks))
            }

            fn ended(&mut self, call: u64) {
                <$($from)::+::Admission<_>>::ended(self, call);
            }

            fn take_apart(&mut self, call: u64, asks: Vec<$crate::many_seats::Ask>) -> Vec<$crate::many_seats::Ask> {
                <$($from)::+::Admission<_>>::take_apart(self, call, asks)
            }
        }
    };
}
pub(crate) use drive_admission;

drive_admission!(tenure_protocol);

/// The same for [`DrivenSubscriptions`].
macro_rules! drive_subscriptions {
    ($($from:ident)::+) => {
        impl $crate::driven::DrivenSubscriptions for $($from)::+::Subscriptions<usize, usize> {
            fn begin(&mut self, seat: usize) -> Vec<(usize, Input)> {
                let mut notified = Vec::new();
                <$($from)::+::Subscriptions<_, _>>::begin(self, seat, seat, &mut notified);
                notified.into_iter().map(|(seat, one)| (seat, $($from)::+::Notification::into_input(one))).collect()
            }

            fn end(&mut self, seat: usize) {
                <$($from)::+::Subscriptions<_, _>>::end(self, seat);
            }

            fn read_sent(&mut self, seat: usize) {
                <$($from)::+::Subscriptions<_, _>>::read_sent(self, seat);
            }

            fn write_sent(&mut self, seat: usize, nonce: u64, names: $crate::driven::Names) {
                <$($from)::+::Subscriptions<_, _>>::write_sent(self, seat, nonce, names);
            }

            fn read_answered(&mut self, seat: usize) {
                <$($from)::+::Subscriptions<_, _>>::read_answered(self, seat);
            }

            fn watch(
                &mut self,
                seat: usize,
                names: Option<$crate::driven::Names>,
                nonce: Option<u64>,
            ) -> Vec<(usize, Input)> {
                let watching = $($from)::+::Watching { names, nonce, ..Default::default() };
                let mut notified = Vec::new();
                <$($from)::+::Subscriptions<_, _>>::watch(self, seat, watching, &mut notified);
                notified.into_iter().map(|(seat, one)| (seat, $($from)::+::Notification::into_input(one))).collect()
            }

            fn set_listening(&mut self, hears: bool) -> Vec<(usize, Input)> {
                let mut notified = Vec::new();
                match hears {
                    true => <$($from)::+::Subscriptions<_, _>>::listening(self, None, &mut notified),
                    false => <$($from)::+::Subscriptions<_, _>>::gap(self, None, &mut notified),
                }
                notified.into_iter().map(|(seat, one)| (seat, $($from)::+::Notification::into_input(one))).collect()
            }

            fn holder(
                &mut self,
                seat: usize,
                nonce: Option<u64>,
                names: Option<Option<$crate::driven::Names>>,
            ) -> Vec<(usize, Input)> {
                let pushed = match (nonce, names) {
                    (Some(nonce), _) => $($from)::+::PushDetail::Nonce(nonce),
                    (None, Some(names)) => $($from)::+::PushDetail::Names(names),
                    (None, None) => $($from)::+::PushDetail::Nothing,
                };
                let mut notified = Vec::new();
                <$($from)::+::Subscriptions<_, _>>::holder(self, &seat, pushed, &mut notified);
                notified.into_iter().map(|(seat, one)| (seat, $($from)::+::Notification::into_input(one))).collect()
            }
        }
    };
}
pub(crate) use drive_subscriptions;

drive_subscriptions!(tenure_protocol);

/// The real machines.
pub(crate) const REAL: Parts = Parts {
    machine: |me, rules, seed| Box::new(Machine::new(me, rules, seed)),
    presence: || Box::new(Presence::new()),
    admission: |reads, writes| Box::new(tenure_protocol::Admission::new(reads, writes)),
    subscriptions: || Box::new(tenure_protocol::Subscriptions::new()),
    will: |candidate, reading, nonce| match (LastWill { candidate, by: "the guard".into() }).step(reading, nonce) {
        WillStep::Free { expected, record } => Some((expected, *record)),
        WillStep::Freed(_) | WillStep::NotHeld => None,
    },
};
