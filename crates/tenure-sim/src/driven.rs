//! What the world needs of a machine: the real one and each mutant are driven alike.

use tenure_protocol::{Action, Candidate, Input, Machine, Moment, Rules, Token};

/// A machine that can be driven.
pub(crate) trait Driven {
    fn step(&mut self, now: Moment, input: Input, out: &mut Vec<Action>);
    fn term(&self, now: Moment) -> Option<Token>;
    fn is_over(&self) -> bool;
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

/// The machine as it is.
pub(crate) fn real(me: Candidate, rules: Rules, seed: u64) -> Box<dyn Driven> {
    Box::new(Machine::new(me, rules, seed))
}
