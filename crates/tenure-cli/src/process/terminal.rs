//! Where this process stands with its terminal.

use super::family;

/// Whether standard input is this process's terminal, and another process group has it. A command does not see
/// the difference, as it has no controlling terminal, and would take away what is typed for others.
pub(crate) fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(std::io::stdin());
    foreground.is_ok_and(|group| family::own_group() != Some(group.as_raw_nonzero().get()))
}
