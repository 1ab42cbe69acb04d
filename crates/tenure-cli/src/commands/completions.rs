//! `tenure completions`: prints the completion script of a shell.

use super::print;
use crate::args::{Completions, Shell};
use crate::failure::Failure;

pub(crate) fn run(args: &Completions) -> Result<u8, Failure> {
    let script = match args.shell {
        Shell::Bash => include_str!("completions/tenure.bash"),
        Shell::Zsh => include_str!("completions/tenure.zsh"),
        Shell::Fish => include_str!("completions/tenure.fish"),
    };
    print(script.trim_end()).map(|()| 0)
}
