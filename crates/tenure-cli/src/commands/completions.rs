//! `tenure completions`: prints the completion script of a shell.

use clap::CommandFactory;

use super::print;
use crate::args::{Cli, Completions};
use crate::failure::Failure;

pub(crate) fn run(args: &Completions) -> Result<u8, Failure> {
    // Into memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut script);
    print(String::from_utf8_lossy(&script).trim_end()).map(|()| 0)
}
