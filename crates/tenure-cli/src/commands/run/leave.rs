//! Why `tenure run` leaves, and with which exit code.

use std::ffi::OsStr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::failure::Failure;
use crate::process::wire::Exit;

/// The term ended, and standing again was not asked for.
const LOST: u8 = 75;

/// Why it leaves.
pub(crate) enum Leave {
    /// The command has ended by itself.
    Exited(Exit),
    /// It was asked to by a signal; and how the command ended, if one ran.
    Asked(Option<i32>, Option<Exit>),
    /// The term ended (`--on-loss exit`).
    Lost,
    /// The command could not be executed.
    NotExecuted(Failure),
    /// The store failed for too long (`--give-up-after`).
    GaveUp { after: Duration },
    /// A bug.
    EngineGone,
}

impl Leave {
    pub(crate) fn into_code(self) -> Result<u8, Failure> {
        match self {
            Self::Exited(exit) => Ok(exit.code()),
            Self::Asked(signal, exit) => Ok(code_when_asked(signal.unwrap_or(Signal::TERM.as_raw()), exit)),
            Self::Lost => Ok(LOST),
            Self::NotExecuted(failure) => Err(failure),
            Self::GaveUp { after } => {
                Err(Failure::new(format!("gave up after the store had failed for {after:.1?}: check the store")))
            }
            Self::EngineGone => Err(Failure::new("the engine is gone: please report this as a bug")),
        }
    }
}

/// A command that chose its exit code keeps it. One that died of our asking tells of the signal that
/// made us ask, so that a shell sees its own Ctrl-C.
fn code_when_asked(signal: i32, exit: Option<Exit>) -> u8 {
    match exit {
        Some(exit @ Exit::Code(_)) => exit.code(),
        Some(Exit::Signal(own)) if own != Signal::TERM.as_raw() && own != Signal::KILL.as_raw() => {
            Exit::Signal(own).code()
        }
        _ => Exit::Signal(signal).code(),
    }
}

/// What shells make of a command that cannot be executed.
pub(crate) fn exec_failure(errno: i32, program: &OsStr) -> Leave {
    let program = program.to_string_lossy();
    let errno = Errno::from_raw_os_error(errno);
    let (code, problem) = match errno {
        Errno::NOENT => (127, "not found: check its name and PATH".to_owned()),
        Errno::ACCESS => (126, "not executable: check its permissions".to_owned()),
        Errno::NOEXEC => (126, "not a program: does the script begin with #!/bin/sh?".to_owned()),
        Errno::MFILE | Errno::NFILE => (126, format!("{errno}: raise the limit, for the guard that executes it, too")),
        errno => (126, format!("{errno}: it could not be executed")),
    };
    Leave::NotExecuted(Failure::new(format!("{program}: {problem}")).with_code(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_chose_its_exit_code_keeps_it() {
        assert_eq!(code_when_asked(15, Some(Exit::Code(3))), 3);
        assert_eq!(code_when_asked(15, Some(Exit::Signal(11))), 139);
    }

    #[test]
    fn one_that_was_made_to_end_tells_of_the_signal_that_asked() {
        assert_eq!(code_when_asked(2, Some(Exit::Signal(15))), 130);
        assert_eq!(code_when_asked(2, Some(Exit::Signal(9))), 130);
        assert_eq!(code_when_asked(15, None), 143);
    }

    #[test]
    fn what_cannot_be_executed_is_told_as_shells_do() {
        for (errno, code) in [(Errno::NOENT, 127), (Errno::ACCESS, 126), (Errno::NOEXEC, 126), (Errno::ISDIR, 126)] {
            let failure = exec_failure(errno.raw_os_error(), OsStr::new("x")).into_code().unwrap_err();
            assert_eq!(failure.code(), code);
        }
    }
}
