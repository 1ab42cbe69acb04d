//! `tenure completions`.

use clap::CommandFactory;

use crate::args::{Cli, Completions};

pub(crate) fn run(args: &Completions) -> u8 {
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut std::io::stdout());
    0
}
