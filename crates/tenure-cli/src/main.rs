//! The command `tenure`: runs a command while leading, tells who leads, hands over.

mod args;
mod commands;
mod failure;
mod mask;
#[cfg(target_os = "linux")]
mod process;
mod screen;
mod setup;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;

fn main() -> ExitCode {
    // Guard and shim come first: they are small, and nothing else of this program runs in them.
    #[cfg(target_os = "linux")]
    {
        let mut args = std::env::args_os().skip(1);
        match args.next() {
            Some(role) if role == process::GUARD => process::guard::main(args),
            Some(role) if role == process::SHIM => process::shim::main(args),
            _ => {}
        }
    }
    let cli = Cli::parse();
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("tenure: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
