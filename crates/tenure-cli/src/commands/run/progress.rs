//! The state of a term's command: whether it was asked to end, and how it has ended.

use crate::args::Job;
use crate::process::wire::{Exit, GuardEvent, Hook};

/// The result of running the command in one term.
pub(super) enum Outcome {
    /// It ended without being asked to.
    Exited(Exit),
    /// It could not be executed.
    Failed { errno: i32 },
    /// It had to end with its term. Contains its exit status, if known.
    Stopped(Option<Exit>),
}

/// The state of a command so far.
#[derive(Default)]
pub(super) struct Progress {
    /// The number of programs that have started: hooks and the command.
    started: u32,
    /// It was asked to end.
    pub(super) stopping: bool,
    /// The guard has killed it at its deadline.
    pub(super) killed: bool,
    /// It ended before it was asked to.
    pub(super) ended_unasked: bool,
    /// The hook for the end has ended.
    pub(super) on_stop_ended: bool,
    pub(super) exit: Option<Exit>,
    pub(super) failed: Option<i32>,
}

impl Progress {
    /// Processes an event of the guard. Returns whether the command has just ended without being asked to.
    pub(super) fn update(&mut self, event: GuardEvent) -> bool {
        match event {
            GuardEvent::Started { .. } => self.started += 1,
            GuardEvent::TimeUp => self.killed = true,
            GuardEvent::Failed { errno } => self.failed = Some(errno),
            GuardEvent::HookEnded(Hook::OnStop, _) => self.on_stop_ended = true,
            // A hook that ends while the term does says nothing about a command.
            GuardEvent::HookEnded(Hook::OnStart, Exit::Code(0)) => {}
            GuardEvent::HookEnded(Hook::OnStart, _) if self.stopping || self.killed => {}
            GuardEvent::Exited(exit) | GuardEvent::HookEnded(Hook::OnStart, exit) => {
                self.exit = Some(exit);
                self.ended_unasked = !self.stopping && !self.killed;
                return self.ended_unasked;
            }
            _ => {}
        }
        false
    }

    /// Returns whether the command itself runs, and not a hook.
    pub(super) fn runs_command(&self, job: &Job) -> bool {
        let is_last = self.started > u32::from(job.on_start.is_some());
        is_last && self.exit.is_none() && !job.command().is_empty()
    }

    pub(super) fn outcome(&self) -> Outcome {
        match (self.failed, self.exit) {
            (Some(errno), _) => Outcome::Failed { errno },
            (None, Some(exit)) if self.ended_unasked => Outcome::Exited(exit),
            (None, exit) => Outcome::Stopped(exit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_for_the_end_that_has_ended_is_not_owed_any_more() {
        for (event, ended) in [
            (GuardEvent::HookEnded(Hook::OnStart, Exit::Code(0)), false),
            (GuardEvent::Exited(Exit::Code(0)), false),
            (GuardEvent::HookEnded(Hook::OnStop, Exit::Code(1)), true),
        ] {
            let mut progress = Progress::default();
            progress.update(event);
            assert_eq!(progress.on_stop_ended, ended, "{event:?}");
        }
    }
}
