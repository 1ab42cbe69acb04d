//! The programs of a term, which the guard runs one after the other: hooks and the command.

use std::ffi::OsString;

/// The programs of a term. There is a command or a hook for its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// A line of shell to run before the command.
    pub(crate) on_start: Option<OsString>,
    /// The command and its arguments; empty if the term has only hooks.
    pub(crate) command: Vec<OsString>,
    /// A line of shell to run at the end of the term, when the command is gone.
    pub(crate) on_stop: Option<OsString>,
    /// Whether the command gets a session of its own, whose terminal is its standard input.
    pub(crate) tty: bool,
}

/// The part of a term that a guard is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    OnStart,
    Command,
    /// There is no command: the guard waits for the end of the term.
    Idle,
    OnStop,
}

impl Plan {
    /// Returns the plan of a single command.
    pub(crate) fn command(command: &[OsString]) -> Self {
        Self { command: command.to_vec(), ..Self::default() }
    }

    /// Returns the plan as arguments of a guard.
    pub(super) fn to_args(&self) -> impl Iterator<Item = OsString> {
        let hook = |line: &Option<OsString>| line.clone().unwrap_or_default();
        let tty = OsString::from(if self.tty { "tty" } else { "" });
        [tty, hook(&self.on_start), hook(&self.on_stop)].into_iter().chain(self.command.iter().cloned())
    }

    /// Reads the plan from the arguments of a guard.
    pub(super) fn from_args(mut args: impl Iterator<Item = OsString>) -> Self {
        let mut next = || args.next().filter(|line| !line.is_empty());
        let (tty, on_start, on_stop) = (next().is_some(), next(), next());
        Self { on_start, command: args.collect(), on_stop, tty }
    }

    /// Returns the first stage of a term.
    pub(super) fn first(&self) -> Stage {
        if self.on_start.is_some() { Stage::OnStart } else { self.second() }
    }

    /// Returns the stage after the hook for the start.
    pub(super) fn second(&self) -> Stage {
        if self.command.is_empty() { Stage::Idle } else { Stage::Command }
    }

    /// Returns the program of a stage and its arguments; empty for a stage without a program.
    pub(super) fn words(&self, stage: Stage) -> Vec<OsString> {
        let shell = |line: &Option<OsString>| match line {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => Vec::new(),
        };
        match stage {
            Stage::OnStart => shell(&self.on_start),
            Stage::Command => self.command.clone(),
            Stage::Idle => Vec::new(),
            Stage::OnStop => shell(&self.on_stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_from_its_arguments() {
        let hook = |text: &str| Some(OsString::from(text));
        for plan in [
            Plan::command(&["sh".into(), "".into()]),
            Plan { on_start: hook("a b"), ..Plan::default() },
            Plan { on_stop: hook("c"), tty: true, ..Plan::command(&["cat".into()]) },
        ] {
            assert_eq!(Plan::from_args(plan.to_args()), plan);
        }
    }
}
