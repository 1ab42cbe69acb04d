//! Whether this process runs in the background of its terminal.

use super::family;

/// Returns whether standard input is this process's terminal and another process group is in its foreground.
///
/// The kernel does not keep the command from reading such a terminal, because the command has no controlling terminal.
/// The command would consume input that is typed for other programs.
pub(crate) fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(std::io::stdin());
    foreground.is_ok_and(|group| family::own_group() != Some(group.as_raw_nonzero().get()))
}
