//! What the world needs of a machine: the real one and each mutant are driven alike.

use tenure_protocol::{
    Action, Candidate, Input, Machine, Moment, Presence, PresenceAction, PresenceInput, Rules, Standing, Token,
};

/// A machine that can be driven.
pub(crate) trait Driven {
    fn step(&mut self, now: Moment, input: Input, out: &mut Vec<Action>);
    fn term(&self, now: Moment) -> Option<Token>;
    fn is_over(&self) -> bool;
}

/// What a process tells of itself, that can be driven.
pub(crate) trait Tells {
    fn step(&mut self, now: Moment, input: PresenceInput<(), Standing>, out: &mut Vec<PresenceAction<(), Standing>>);
}

/// Makes the machines of a process.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) machine: Make,
    pub(crate) presence: fn() -> Box<dyn Tells>,
}

/// Makes a machine.
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

/// The same for [`Tells`].
macro_rules! drive_presence {
    ($presence:ty) => {
        impl $crate::driven::Tells for $presence {
            fn step(
                &mut self,
                now: Moment,
                input: PresenceInput<(), Standing>,
                out: &mut Vec<PresenceAction<(), Standing>>,
            ) {
                <$presence>::step(self, now, input, out);
            }
        }
    };
}
pub(crate) use drive_presence;

drive_presence!(Presence<(), Standing>);

/// The machines as they are.
pub(crate) const REAL: Parts = Parts {
    machine: |me, rules, seed| Box::new(Machine::new(me, rules, seed)),
    presence: || Box::new(Presence::new(false)),
};
