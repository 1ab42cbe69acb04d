//! The options that `tenure run` and `tenure once` share: the election, the command and the candidate.

use std::ffi::{OsStr, OsString};

use clap::{Args, CommandFactory, ValueEnum};
use tenure::ElectionOptions;

use super::Cli;
use super::flags::Flags;
use crate::failure::Failure;
use crate::mask::mask;

/// A command to run in an election, and the options of the candidate.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The election to stand in
    pub(crate) election: String,

    /// The command, and its arguments; `--` can be left out if none of them could be an option of tenure
    #[arg(trailing_var_arg = true, required_unless_present = "line", value_name = "CMD")]
    command: Vec<OsString>,

    /// Run this line of shell instead of CMD: sh -c LINE
    #[arg(short = 'c', id = "line", value_name = "LINE", conflicts_with = "command")]
    line: Option<OsString>,

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
    /// Returns the command to run, with its arguments.
    pub(crate) fn command(&self) -> Vec<OsString> {
        match &self.line {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }

    /// Rejects a command line without dashes in which an argument of the command could be an option of tenure.
    ///
    /// # Errors
    /// The corrected line, for a user who meant the option for the command.
    pub(crate) fn reject_doubtful(&self, subcommand: &str, raw: &[OsString]) -> Result<(), Failure> {
        let before = raw.len().checked_sub(self.command.len() + 1).map(|at| &raw[at]);
        if before.is_none_or(|word| word == "--") {
            return Ok(());
        }
        let Some(word) = self.command.iter().skip(1).find_map(|word| own_option(subcommand, word)) else {
            return Ok(());
        };
        let (first, rest) = raw.split_at(raw.len() - self.command.len());
        let line = first.iter().map(OsString::as_os_str).chain(["--".as_ref()]).chain(rest.iter().map(|word| &**word));
        let line: Vec<String> = line.map(quoted).collect();
        Err(Failure::new(format!(
            "{word} could be an option of tenure or of the command; for the command, write: tenure {}; for tenure, put it \
             before the name of the election",
            line.join(" ")
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
    let word = word.to_str().filter(|word| word.starts_with('-'))?;
    let name = word.split('=').next().unwrap_or(word);
    let cli = Cli::command();
    let command = cli.find_subcommand(subcommand)?;
    let is_named = |argument: &clap::Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => argument.get_short().is_some_and(|short| name[1..].starts_with(short)),
    };
    command.get_arguments().chain(cli.get_arguments()).any(is_named).then(|| name.to_owned())
}

/// Quotes a word for a shell, if it needs that. A URL is shown without its password.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let word = if word.contains("://") { mask(&word) } else { word.into_owned() };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Parses an exit code.
pub(super) fn exit_code(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "must be a number from 0 to 255".to_owned())
}

fn descriptor(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be the number of an open file descriptor, such as 3".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    if key.is_empty() { Err("the key must not be empty".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
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
