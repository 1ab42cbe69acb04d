//! A command line as words: its subcommand, its options, and lines that would be right.

use std::ffi::OsStr;
use std::ops::Range;

use clap::{Arg, Command, CommandFactory, Parser};

use super::Cli;
use crate::mask::mask;

/// A longer line would hide what was corrected.
const LONGEST: usize = 300;

/// The words of a command line after the name of the program.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) words: Vec<String>,
    /// The definition of all commands.
    cli: Command,
    /// The index of the first word that is neither an option nor the value of one.
    pub(super) first: Option<usize>,
}

impl Line {
    pub(super) fn new<T: AsRef<OsStr>>(words: &[T]) -> Self {
        let words: Vec<String> = words.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect();
        let mut cli = Cli::command();
        cli.build();
        let takes_value = |word: &String| option(&cli, word).is_some_and(|option| option.get_action().takes_values());
        let is_value = |at: usize| at > 0 && !words[at - 1].contains('=') && takes_value(&words[at - 1]);
        let first = (0..words.len()).find(|at| !words[*at].starts_with('-') && !is_value(*at));
        Self { cli, first, words }
    }

    /// Returns the subcommand of this line; the program itself if there is none.
    pub(super) fn command(&self) -> &Command {
        self.first.and_then(|at| self.cli.find_subcommand(&self.words[at])).unwrap_or(&self.cli)
    }

    /// Returns the subcommand as a user types it: `tenure run`.
    pub(super) fn command_words(&self) -> String {
        let name = self.command().get_name();
        if name == self.cli.get_name() { name.to_owned() } else { format!("tenure {name}") }
    }

    pub(super) fn subcommands(&self) -> impl Iterator<Item = &Command> {
        self.cli.get_subcommands()
    }

    /// Returns the option of this line's subcommand that a word is or sets.
    pub(super) fn option(&self, word: &str) -> Option<&Arg> {
        option(self.command(), word)
    }

    /// Returns the words before `--`, which can be options.
    pub(super) fn options(&self) -> impl Iterator<Item = (usize, &String)> {
        self.words.iter().enumerate().take_while(|(_, word)| *word != "--")
    }

    /// Returns the line with some words replaced by others, as a user types it, if that line is right.
    pub(super) fn replaced(&self, at: Range<usize>, by: &[&str]) -> Option<String> {
        let mut words = self.words.clone();
        words.splice(at.start..at.end.min(self.words.len()), by.iter().map(|word| (*word).to_owned()));
        right(&words)
    }
}

/// Returns the option of a command that a word is or sets: `--lease`, `--lease=5s`, `-E`, `-E5`.
pub(super) fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    let is_named = |argument: &&Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long().is_some_and(|own| own == long),
        None => match name.strip_prefix('-') {
            Some(letters) => argument.get_short().is_some_and(|short| letters.starts_with(short)),
            None => false,
        },
    };
    command.get_arguments().find(is_named)
}

/// Returns a line as a user types it, if it is right and short enough to be read.
fn right(words: &[String]) -> Option<String> {
    let parsed = Cli::try_parse_from(std::iter::once("tenure").chain(words.iter().map(String::as_str)));
    // A request for help is right, too.
    let is_right = parsed.map_or_else(|error| !error.use_stderr(), |_| true);
    let line = typed(words);
    (is_right && line.len() <= LONGEST && !line.contains(char::is_control)).then_some(line)
}

/// Returns a line as a user types it in a shell. Secrets are masked.
pub(super) fn typed(words: &[impl AsRef<str>]) -> String {
    let mut line = String::from("tenure");
    let mut is_store = false;
    for word in words {
        let word = word.as_ref();
        // A text that is not a URL can be a misplaced password.
        let is_hidden = is_store && !word.contains("://") && !word.starts_with("sqlite:");
        line += &format!(" {}", if is_hidden { "URL".to_owned() } else { quoted(word) });
        is_store = word == "--store";
    }
    line
}

/// Quotes a word for a shell, if it needs that. A URL is shown without its password.
pub(crate) fn quoted(word: &str) -> String {
    let word = if word.contains("://") { mask(word) } else { word.to_owned() };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%…".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subcommand_is_found_behind_options_and_their_values() {
        for (words, command) in [
            (&["run", "jobs"][..], "tenure run"),
            (&["--store", "run", "status", "jobs"], "tenure status"),
            (&["-v", "--log-format=json", "watch"], "tenure watch"),
            (&["--json"], "tenure"),
            (&["staus", "run"], "tenure"),
        ] {
            assert_eq!(Line::new(words).command_words(), command, "{words:?}");
        }
    }

    #[test]
    fn a_line_is_quoted_as_a_shell_reads_it_and_shows_no_secret() {
        let words = ["run", "my jobs", "--store", "redis://u:hunter2@h", "--", "sh", "-c", "echo 'a'", ""];
        assert_eq!(typed(&words), r"tenure run 'my jobs' --store 'redis://u:***@h' -- sh -c 'echo '\''a'\''' ''");
        assert_eq!(typed(&["status", "--store", "hunter2", "jobs"]), "tenure status --store URL jobs");
    }
}
