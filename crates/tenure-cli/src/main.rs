//! The command `tenure`: runs a command while this candidate leads, shows the leader, hands over.

mod args;
mod commands;
mod complete;
mod failure;
mod json;
mod man;
mod mask;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod profile;
mod schedule;
mod screen;
mod setup;
mod stderr;
#[cfg(target_os = "linux")]
mod supervisor;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::Cli;
use crate::failure::Failure;

/// How long to wait at exit for the engine's last log lines.
const LAST_LINES: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    stderr::catch_panics();
    // Guard, shim and probe come first: nothing else of this program runs in those processes.
    #[cfg(target_os = "linux")]
    {
        let mut args = std::env::args_os().skip(1);
        match args.next() {
            Some(role) if role == process::GUARD => process::guard::main(args),
            Some(role) if role == process::SHIM => process::shim::main(args),
            Some(role) if role == commands::PROBE => commands::probe(args),
            _ => {}
        }
        if rustix::process::getpid().is_init() {
            return match process::init::run() {
                Ok(code) => ExitCode::from(code),
                Err(error) => {
                    stderr::line(format!("tenure: cannot start a child process: {error}"));
                    stderr::flush();
                    ExitCode::from(2)
                }
            };
        }
    }
    let mut json = json::is_asked_for(std::env::args_os());
    if std::env::args_os().nth(1).is_some_and(|word| word == complete::COMPLETE) {
        complete::main();
    }
    let outcome = match Cli::try_parse() {
        Ok(cli) => {
            json = cli.global.json;
            commands::run(cli)
        }
        // A request for help is not an error.
        Err(help) if !help.use_stderr() => help.exit(),
        Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => help.exit(),
        Err(error) => Err(Failure::usage(&error)),
    };
    tenure::log::flush(LAST_LINES);
    let code = outcome.unwrap_or_else(|failure| {
        if failure.has_message() {
            if json {
                json::print_failure(&failure);
            } else {
                stderr::failure(&failure);
            }
        }
        failure.code()
    });
    stderr::flush();
    ExitCode::from(code)
}
