//! The reasons why `tenure run` exits, and their exit codes.

use std::ffi::OsStr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use super::program;
use crate::failure::Failure;
use crate::process::wire::Exit;

/// The exit code when the term has ended and `--on-loss exit` is set.
const LOST: u8 = 75;

/// The reason why `tenure run` exits.
pub(crate) enum ExitReason {
    /// The command has ended without being asked to.
    Exited(Exit),
    /// A signal asked `tenure` to leave. Also contains the command's exit status, if it ran.
    Asked(Option<i32>, Option<Exit>),
    /// The term ended (`--on-loss exit`).
    Lost,
    /// Another candidate leads, or has claimed the occasion.
    Conflict { code: u8 },
    /// The command could not be executed.
    NotExecuted(Failure),
    /// The store failed for too long (`--give-up-after`).
    GaveUp { after: Duration },
    /// The engine's thread has ended, which is a bug.
    EngineGone,
}

impl ExitReason {
    pub(crate) fn into_code(self) -> Result<u8, Failure> {
        match self {
            Self::Exited(exit) => Ok(exit.code()),
            Self::Asked(signal, exit) => Ok(code_when_asked(signal.unwrap_or(Signal::TERM.as_raw()), exit)),
            Self::Lost => Ok(LOST),
            Self::Conflict { code } => Ok(code),
            Self::NotExecuted(failure) => Err(failure),
            Self::GaveUp { after } => {
                Err(Failure::new(format!("gave up because the store failed for {after:.1?}; check the store")))
            }
            Self::EngineGone => Err(Failure::new("the engine has stopped unexpectedly; please report this bug")),
        }
    }
}

/// Returns the exit code after a signal has asked `tenure` to leave. An exit code that the command chose is kept. If
/// SIGTERM or SIGKILL from the guard ended the command, the code is that of the signal that asked, so that a shell
/// recognises its own Ctrl-C.
fn code_when_asked(signal: i32, exit: Option<Exit>) -> u8 {
    match exit {
        Some(exit @ Exit::Code(_)) => exit.code(),
        Some(Exit::Signal(own)) if own != Signal::TERM.as_raw() && own != Signal::KILL.as_raw() => {
            Exit::Signal(own).code()
        }
        _ => Exit::Signal(signal).code(),
    }
}

/// Returns the exit code and message for a command that cannot be executed, with the exit codes that shells use.
pub(crate) fn exec_failure(errno: i32, program: &OsStr) -> ExitReason {
    let errno = Errno::from_raw_os_error(errno);
    let (code, problem) = match errno {
        Errno::NOENT if program::find(program).is_ok() => {
            (127, "cannot execute the command: its interpreter was not found; check its first line (#!)".to_owned())
        }
        Errno::NOENT => (127, format!("command not found; {}", advice(program))),
        Errno::ACCESS => {
            (126, "cannot execute the command: permission denied; make it executable (chmod +x)".to_owned())
        }
        Errno::ISDIR => (126, "cannot execute the command: it is a folder; name a program in it".to_owned()),
        Errno::NOEXEC => {
            (126, "cannot execute the command: not a program; a script must begin with #!/bin/sh".to_owned())
        }
        Errno::MFILE | Errno::NFILE => {
            (126, format!("cannot execute the command: {errno}; raise the limit of open files (ulimit -n)"))
        }
        errno => (126, format!("cannot execute the command: {errno}")),
    };
    let program = if program.is_empty() { "\"\"".into() } else { program.to_string_lossy() };
    ExitReason::NotExecuted(Failure::new(format!("{program}: {problem}")).with_code(code))
}

/// Says what to do about a program that was not found, if it looks like something else that a shell would accept.
fn advice(program: &OsStr) -> &'static str {
    let program = program.to_string_lossy();
    match program.as_bytes() {
        [] => "write CMD without the empty word, perhaps an unset variable",
        b"--" => "write -- only once, before CMD",
        _ if program.starts_with(['–', '—']) => "write the dashes of options as - and --",
        _ if !program.contains('/') && program.contains('=') => "to set a variable for CMD, write: env NAME=VALUE CMD…",
        _ if program.contains(char::is_whitespace) => "for a line of shell, write: -c 'LINE'",
        _ => "check its name and PATH",
    }
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
    fn a_command_that_tenure_ended_yields_the_code_of_the_signal_that_asked() {
        assert_eq!(code_when_asked(2, Some(Exit::Signal(15))), 130);
        assert_eq!(code_when_asked(2, Some(Exit::Signal(9))), 130);
        assert_eq!(code_when_asked(15, None), 143);
    }

    #[test]
    fn a_command_that_cannot_be_executed_yields_the_exit_codes_of_shells() {
        for (errno, code) in [(Errno::NOENT, 127), (Errno::ACCESS, 126), (Errno::NOEXEC, 126), (Errno::ISDIR, 126)] {
            let failure = exec_failure(errno.raw_os_error(), OsStr::new("no-such-program")).into_code().unwrap_err();
            assert_eq!(failure.code(), code);
        }
        let failure = exec_failure(Errno::NOENT.raw_os_error(), OsStr::new("sh")).into_code().unwrap_err();
        assert!(failure.code() == 127 && failure.to_string().contains("#!"), "{failure}");
    }
}
