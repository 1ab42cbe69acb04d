//! The subcommands, one file each.

mod break_lease;
mod candidates;
mod completions;
#[cfg(target_os = "linux")]
mod demo;
mod explain;
mod forget;
mod man;
#[cfg(target_os = "linux")]
mod once;
#[cfg(target_os = "linux")]
mod run;
mod schema;
mod status;
mod step_down;
mod stores;
mod watch;

#[cfg(target_os = "linux")]
pub(crate) use self::demo::probe::{PROBE, main as probe};

pub(crate) use self::schema::StoreName;

use std::io::Write;

use tenure::Leader;

use crate::args::{Cli, Command, LogFormat};
use crate::failure::Failure;
use crate::json::leader as leader_json;
use crate::setup::{Setup, start_log};

/// Runs a subcommand and returns its exit code.
pub(crate) fn run(cli: Cli) -> Result<u8, Failure> {
    let Cli { mut global, command } = cli;
    let is_candidate = matches!(command, Command::Run(_) | Command::Once(_));
    if is_candidate && global.json {
        // Standard output belongs to the command that it runs.
        global.log_format = LogFormat::Json;
    }
    start_log(&global);
    match command {
        Command::Completions(args) => return completions::run(&args),
        Command::Man(args) => return man::run(&args),
        Command::Stores(args) => return stores::run(&global, &args),
        Command::Schema(args) => return schema::run(&global, &args),
        #[cfg(target_os = "linux")]
        Command::Demo(args) => return demo::run(&global, &args),
        #[cfg(target_os = "linux")]
        Command::Will(_) => return crate::process::companion::run(),
        _ => {}
    }
    let setup = Setup::new(&global)?;
    // A candidate prints it once the store answers. With --json, it is in the answer.
    if !is_candidate && !global.json {
        setup.announce_default(&global);
    }
    // One thread is enough: the election has its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            #[cfg(target_os = "linux")]
            Command::Run(args) => run::run(&global, &setup, *args).await,
            #[cfg(target_os = "linux")]
            Command::Once(args) => once::run(&global, &setup, *args).await,
            #[cfg(not(target_os = "linux"))]
            Command::Run(_) | Command::Once(_) | Command::Demo(_) | Command::Will(_) => {
                Err(Failure::new("this command runs only on Linux; elsewhere, use the library"))
            }
            Command::Status(args) => status::run(&global, &setup, &args).await,
            Command::Candidates(args) => candidates::run(&global, &setup, &args).await,
            Command::Explain(args) => explain::run(&global, &setup, &args).await,
            Command::Watch(args) => watch::run(&global, &setup, &args).await,
            Command::StepDown(args) => step_down::run(&global, &setup, &args).await,
            Command::Forget(args) => forget::run(&global, &setup, &args).await,
            Command::BreakLease(args) => break_lease::run(&global, &setup, &args).await,
            Command::Completions(_) | Command::Man(_) | Command::Stores(_) | Command::Schema(_) => {
                unreachable!("done above")
            }
            #[cfg(target_os = "linux")]
            Command::Demo(_) | Command::Will(_) => unreachable!("done above"),
        }
    })
}

/// Formats a leader for people: `host-123 (term 7, zone=a)`.
pub(crate) fn leader_words(leader: &Leader) -> String {
    let metadata: String = leader.metadata.iter().map(|(key, value)| format!(", {key}={value}")).collect();
    printable(&format!("{} (term {}{metadata})", leader.candidate.id, leader.token))
}

/// Replaces control characters, so that text of other candidates cannot move the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Prints a line to standard output. If its reader has gone, this returns a failure without a message, so that the
/// command cleans up and exits.
fn print(line: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        result => Ok(result?),
    }
}
