//! The options that `tenure run` and `tenure once` share: the election, the command and the candidate.

use std::ffi::{OsStr, OsString};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, ValueEnum};
use tenure::ElectionOptions;

use super::Cli;
use super::flags::Flags;
use super::line::{option, typed};
use crate::failure::Failure;
#[cfg(target_os = "linux")]
use crate::process::plan::Plan;

/// A command to run in an election, and the options of the candidate.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The name of the election: any text. Of all candidates with the same name in the same store, one leads
    pub(crate) election: String,

    /// The command, and its arguments; `--` can be left out if none of them could be an option of tenure
    #[arg(trailing_var_arg = true, required_unless_present_any = ["line", "on_start"], value_name = "CMD")]
    command: Vec<OsString>,

    /// Run this line of shell instead of CMD: sh -c LINE
    #[arg(short = 'c', id = "line", value_name = "LINE", conflicts_with = "command", value_parser = shell_line())]
    line: Option<OsString>,

    /// Give CMD a terminal of its own, with job control: for shells, editors and other interactive commands
    #[arg(short, long, conflicts_with_all = ["on_start", "on_stop"])]
    pub(crate) tty: bool,

    /// Run this line of shell at the start of each term, before CMD. With `tenure run`, CMD can be left out: for a
    /// service that is told when to lead
    #[arg(long, value_name = "LINE", value_parser = hook)]
    pub(crate) on_start: Option<OsString>,

    /// Run this line of shell at the end of each term, when CMD is gone and before another candidate can lead
    #[arg(long, value_name = "LINE", value_parser = hook)]
    pub(crate) on_stop: Option<OsString>,

    /// Forward these signals to CMD while it runs, separated by commas; of the others, USR1, USR2 and WINCH are ignored,
    /// and the rest ask tenure to leave
    #[arg(
        long,
        value_enum,
        value_name = "SIGNALS",
        value_delimiter = ',',
        default_value = "USR1,USR2",
        ignore_case = true
    )]
    pub(crate) forward: Vec<Forward>,

    /// Write a newline to this file descriptor once the candidate stands, as s6 expects it
    #[arg(long, value_name = "FD", value_parser = descriptor)]
    pub(crate) ready_fd: Option<u32>,

    /// A key and a value to show with this candidate; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "The candidate")]
    pub(crate) metadata: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) options: Flags,
}

/// A signal that can be forwarded to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Forward {
    #[value(name = "HUP", alias = "SIGHUP")]
    Hup,
    #[value(name = "INT", alias = "SIGINT")]
    Int,
    #[value(name = "QUIT", alias = "SIGQUIT")]
    Quit,
    #[value(name = "USR1", alias = "SIGUSR1")]
    Usr1,
    #[value(name = "USR2", alias = "SIGUSR2")]
    Usr2,
    #[value(name = "WINCH", alias = "SIGWINCH")]
    Winch,
}

impl Job {
    /// Returns the command to run, with its arguments; empty if there are only hooks.
    pub(crate) fn command(&self) -> Vec<OsString> {
        match &self.line {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }

    /// Returns what to run in a term.
    #[cfg(target_os = "linux")]
    pub(crate) fn plan(&self) -> Plan {
        let (on_start, on_stop) = (self.on_start.clone(), self.on_stop.clone());
        Plan { on_start, command: self.command(), on_stop, tty: self.tty }
    }

    /// Rejects a command line in which the place of the dashes leaves a doubt about what belongs to the command.
    ///
    /// # Errors
    /// The corrected line: if the election is missing before the dashes, or if an argument of a command without dashes
    /// could be an option of tenure.
    pub(crate) fn reject_doubtful(&self, subcommand: &str, raw: &[OsString]) -> Result<(), Failure> {
        let raw: Vec<String> = raw.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let corrected = |at: usize, word: &str| {
            let mut words = raw.clone();
            words.insert(at, word.to_owned());
            typed(&words)
        };
        let Some(start) = raw.len().checked_sub(self.command.len()) else { return Ok(()) };
        match raw.iter().position(|word| word == "--") {
            // The first word of the command was taken for the election.
            Some(dashes) if dashes + 1 < start => {
                return Err(Failure::new(format!("no election; write: {}", corrected(dashes, "ELECTION"))));
            }
            Some(dashes) if dashes < start => return Ok(()),
            _ => {}
        }
        let Some(word) = self.command.iter().skip(1).find_map(|word| own_option(subcommand, word)) else {
            return Ok(());
        };
        Err(Failure::new(format!(
            "{word} could be an option of tenure or of the command; for the command, write: {}; for tenure, put it before \
             the name of the election",
            corrected(start, "--")
        )))
    }

    /// Returns the options of the election that the command line sets.
    pub(crate) fn overrides(&self) -> ElectionOptions {
        let mut options = self.options.0.clone();
        options.metadata.extend(self.metadata.iter().cloned());
        options
    }

    /// Rejects the options of a health command, for an election that has no health command.
    pub(crate) fn reject_health_options(&self) -> Result<(), Failure> {
        let options = &self.options.0;
        let rejected = |flag| {
            Failure::new(format!("{flag} has no effect without --health-cmd; add it, or set health_cmd in tenure.toml"))
        };
        match (options.health_every, options.health_timeout) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(rejected("--health-every")),
            (_, Some(_)) => Err(rejected("--health-timeout")),
        }
    }
}

/// Returns the name of the option of this subcommand that a word is or sets.
fn own_option(subcommand: &str, word: &OsStr) -> Option<String> {
    let word = word.to_str()?;
    let cli = Cli::command();
    // Not of the built command, which also has --help: that is for the command.
    option(cli.find_subcommand(subcommand)?, word).or_else(|| option(&cli, word))?;
    Some(word.split('=').next().unwrap_or(word).to_owned())
}

/// Parses a line of shell that is not empty.
fn shell_line() -> impl TypedValueParser<Value = OsString> {
    let is_blank = |line: &OsString| line.to_str().is_some_and(|line| line.trim().is_empty());
    OsStringValueParser::new().try_map(move |line| {
        if is_blank(&line) { Err("must be a line of shell, such as 'make && ./jobs'") } else { Ok(line) }
    })
}

/// Parses an exit code.
pub(super) fn exit_code(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "must be a number from 0 to 255".to_owned())
}

fn hook(text: &str) -> Result<OsString, String> {
    if text.trim().is_empty() {
        Err("must be a line of shell; leave out the option".to_owned())
    } else {
        Ok(text.into())
    }
}

fn descriptor(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be the number of an open file descriptor, such as 3".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE, such as zone=a")?;
    if key.is_empty() {
        Err("must be KEY=VALUE with a key, such as zone=a".to_owned())
    } else {
        Ok((key.to_owned(), value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Command;

    fn parsed(line: &[&str]) -> Result<Vec<OsString>, String> {
        let cli = Cli::try_parse_from(["tenure"].iter().chain(line)).map_err(|error| error.to_string())?;
        let Command::Run(run) = cli.command else { panic!("not run") };
        let raw: Vec<OsString> = line.iter().map(OsString::from).collect();
        run.job.reject_doubtful("run", &raw).map_err(|failure| failure.to_string())?;
        Ok(run.job.command())
    }

    #[test]
    fn the_dashes_can_be_left_out_if_there_is_no_doubt() {
        for line in [
            &["run", "jobs", "--", "./x", "--fast"][..],
            &["run", "jobs", "./x", "--fast"],
            &["run", "--lease", "5s", "jobs", "./x", "--fast"],
            &["run", "jobs", "--lease", "5s", "./x", "--fast"],
        ] {
            assert_eq!(parsed(line).unwrap(), ["./x", "--fast"], "{line:?}");
        }
        assert_eq!(parsed(&["run", "jobs", "--", "./x", "--lease", "5s"]).unwrap(), ["./x", "--lease", "5s"]);
        assert_eq!(parsed(&["run", "jobs", "./x", "--help"]).unwrap(), ["./x", "--help"]);
    }

    #[test]
    fn an_option_that_could_be_meant_for_tenure_or_for_the_command_is_answered_with_the_corrected_line() {
        for option in ["--lease=5s", "--json", "-v", "--preempt"] {
            let error = parsed(&["run", "my jobs", "./x", option]).unwrap_err();
            let line = format!("tenure run 'my jobs' -- ./x {option};");
            assert!(error.contains(&line) && error.starts_with(option.split('=').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_line_of_shell_takes_the_place_of_the_command() {
        assert_eq!(parsed(&["run", "jobs", "-c", "a && b"]).unwrap(), ["sh", "-c", "a && b"]);
        assert!(parsed(&["run", "jobs", "-c", "a", "--", "b"]).is_err());
        assert!(parsed(&["run", "jobs"]).is_err());
    }

    #[test]
    fn metadata_is_split_at_the_first_equals_sign() {
        assert_eq!(pair("zone=a=b"), Ok(("zone".to_owned(), "a=b".to_owned())));
        assert!(pair("zone").is_err() && pair("=a").is_err());
    }
}
