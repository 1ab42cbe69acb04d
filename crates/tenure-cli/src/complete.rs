//! `tenure __complete`: what can follow on a command line, for the completion scripts of shells.
//!
//! A script passes the line up to the cursor in the variable `COMP_LINE`, which other users cannot read: a line can
//! contain a password. The reply is a line with its kind, and a line for each word that fits: the whole word, a tab and
//! a description. If the store fails or takes longer than [`LIMIT`], there is no reply. Nothing is created.
//!
//! Why not the generators of `clap_complete`? Their scripts know only words that are fixed when they are generated, and
//! their dynamic engine is an unstable feature, in which a completer sees only the word that it completes: neither the
//! `--store` before it, nor the election whose candidates it lists. Here each script has a few lines, all shells get the
//! same words, and the program is smaller.

mod line;

use std::io::Write;
use std::time::Duration;

use clap::builder::{PossibleValue, StyledStr};
use clap::{Arg, Command, CommandFactory, Parser, ValueHint};
use tenure::{Elections, Error, ListedElection};

use crate::args::{Cli, Global};
use crate::setup::Setup;

/// The first argument of a process that completes a line.
pub(crate) const COMPLETE: &str = "__complete";

/// How long a shell waits for a reply at most.
const LIMIT: Duration = Duration::from_secs(1);

/// Replies to a shell, with exit code 0 in any case.
pub(crate) fn main() -> ! {
    let line = std::env::var("COMP_LINE").unwrap_or_default();
    if let Some(reply) = within(LIMIT, move || reply_to(&line)) {
        let mut out = std::io::stdout().lock();
        let _ = write!(out, "{reply}").and_then(|()| out.flush());
    }
    std::process::exit(0);
}

/// Returns the result of a function, or `None` if it panics or takes longer than this. Then its thread is left behind.
fn within<T: Send + 'static>(limit: Duration, function: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(function()));
    result.recv_timeout(limit).ok()
}

/// The completions of the word at the cursor.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Nothing,
    /// These words, each followed by a space.
    Words(Vec<Word>),
    /// These beginnings of a word.
    Parts(Vec<Word>),
    Files,
    /// A command to run, which is the word with this number.
    Command(usize),
    /// An argument of the command to run, which is the word with this number.
    Arguments(usize),
}

/// A word, and its description.
type Word = (String, String);

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, words) = match self {
            Self::Nothing => return Ok(()),
            Self::Words(words) => ("words", words),
            Self::Parts(words) => ("parts", words),
            Self::Files => return writeln!(f, "files"),
            Self::Command(at) => return writeln!(f, "command {at}"),
            Self::Arguments(at) => return writeln!(f, "arguments {at}"),
        };
        writeln!(f, "{kind}")?;
        // Ids of candidates can have control characters, which would end the line or move the cursor.
        let is_plain = |text: &str| !text.contains(char::is_control);
        for (word, description) in words.iter().filter(|(word, _)| is_plain(word)) {
            writeln!(f, "{word}\t{}", if is_plain(description) { description } else { "" })?;
        }
        Ok(())
    }
}

fn reply_to(line: &str) -> Reply {
    let mut words = line::split(line);
    let current = words.pop().unwrap_or_default();
    let mut cli = Cli::command();
    cli.build();
    let mut before = Before::new(&cli);
    for (at, word) in words.iter().enumerate().skip(1) {
        if !before.read(word) {
            return Reply::Arguments(at);
        }
    }
    before.complete(&current, words.len())
}

/// The meaning of the words before the cursor: the subcommand, its election and the store.
struct Before<'a> {
    command: &'a Command,
    /// The option whose value is next.
    wants: Option<&'a Arg>,
    /// Whether there was a `--`: what follows is not an option.
    dashes: bool,
    positionals: usize,
    store: Option<String>,
    config: Option<String>,
    election: Option<String>,
}

impl<'a> Before<'a> {
    fn new(command: &'a Command) -> Self {
        let (store, config, election) = (None, None, None);
        Self { command, wants: None, dashes: false, positionals: 0, store, config, election }
    }

    /// Reads the next word. Returns false if the word begins the command to run.
    fn read(&mut self, word: &str) -> bool {
        if let Some(option) = self.wants.take() {
            self.note(option, word);
        } else if !self.dashes && word == "--" {
            self.dashes = true;
        } else if !self.dashes && word.starts_with('-') {
            match option(self.command, word) {
                Some((option, Some(value))) => self.note(option, value),
                Some((option, None)) if takes_value(option) => self.wants = Some(option),
                _ => {}
            }
        } else if let Some(subcommand) = self.command.find_subcommand(word) {
            self.command = subcommand;
        } else {
            let argument = self.positional();
            if argument.is_some_and(Arg::is_trailing_var_arg_set) {
                return false;
            }
            if let Some(argument) = argument {
                self.note(argument, word);
            }
            self.positionals += 1;
        }
        true
    }

    fn note(&mut self, argument: &Arg, value: &str) {
        let place = match argument.get_id().as_str() {
            "store" => &mut self.store,
            "config" => &mut self.config,
            "election" => &mut self.election,
            _ => return,
        };
        *place = Some(value.to_owned());
    }

    fn positional(&self) -> Option<&'a Arg> {
        self.command.get_positionals().nth(self.positionals)
    }

    /// Completes the word under the cursor, which has this number.
    fn complete(&self, current: &str, at: usize) -> Reply {
        if let Some(option) = self.wants {
            return self.values(option, "", current);
        }
        if !self.dashes && current.starts_with('-') {
            return match (current.split_once('='), option(self.command, current)) {
                (Some((name, value)), Some((option, _))) => self.values(option, &format!("{name}="), value),
                (Some(_), None) => Reply::Nothing,
                (None, _) => fitting(current, options(self.command)),
            };
        }
        if self.command.has_subcommands() && self.positionals == 0 {
            let subcommands = self.command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
            return fitting(
                current,
                subcommands.map(|subcommand| (subcommand.get_name().to_owned(), first_line(subcommand.get_about()))),
            );
        }
        match self.positional() {
            Some(argument) if argument.is_trailing_var_arg_set() => Reply::Command(at),
            Some(argument) => self.values(argument, "", current),
            None => Reply::Nothing,
        }
    }

    /// Completes the value of an argument. `front` is the part of the word before the value.
    fn values(&self, argument: &Arg, front: &str, current: &str) -> Reply {
        let named = |names: Vec<Word>| {
            let names = names.into_iter().map(|(name, description)| (format!("{front}{name}"), description));
            fitting(&format!("{front}{current}"), names)
        };
        match argument.get_id().as_str() {
            "store" if current.starts_with("sqlite:") => return Reply::Files,
            "store" => {
                let Reply::Words(schemes) = named(schemes()) else { return Reply::Nothing };
                return Reply::Parts(schemes);
            }
            "election" => return named(self.elections()),
            "to" => return named(self.heirs()),
            // Of `tenure explain`: the leader needs no explanation. `tenure run` sets a new id.
            "candidate" if self.command.get_name() == "explain" => return named(self.heirs()),
            _ => {}
        }
        let values = argument.get_possible_values();
        if !values.is_empty() {
            // In a list, the last item is completed.
            let list = argument.get_value_delimiter().and_then(|delimiter| current.rfind(delimiter));
            let items = &current[..list.map_or(0, |at| at + 1)];
            let shown = values.iter().filter(|value| !value.is_hide_set());
            return named(shown.map(|value| (format!("{items}{}", value.get_name()), about(value))).collect());
        }
        match argument.get_value_hint() {
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath => Reply::Files,
            _ => Reply::Nothing,
        }
    }

    /// Returns the elections of the store.
    fn elections(&self) -> Vec<Word> {
        let listed = self.ask(async |elections| elections.list().await).unwrap_or_default();
        let leader = |election: &ListedElection| election.status.as_ref().ok().and_then(|status| status.leader.clone());
        let state =
            |election| leader(election).map_or("vacant".to_owned(), |leader| format!("led by {}", leader.candidate.id));
        listed.iter().map(|election| (election.name.to_string(), state(election))).collect()
    }

    /// Returns the candidates that the leader of the election can hand over to.
    fn heirs(&self) -> Vec<Word> {
        let Some(election) = &self.election else { return Vec::new() };
        let listed = self.ask(async |elections| elections.candidates(election).await).unwrap_or_default();
        let heirs = listed.into_iter().filter(|status| !status.is_leader);
        let mut heirs: Vec<Word> =
            heirs.map(|status| (status.candidate.id.to_string(), word_if(!status.healthy, "unhealthy"))).collect();
        heirs.sort();
        heirs
    }

    /// Asks the store that the line, a variable or a file names. Returns `None` for any error.
    fn ask<T>(&self, question: impl AsyncFnOnce(Elections) -> Result<T, Error>) -> Option<T> {
        let elections = Setup::new(&self.global()?).ok()?.elections_read_only().ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(question(elections)).ok()
    }

    /// Returns the options of every command, with those of the line: the parser adds the variables.
    fn global(&self) -> Option<Global> {
        let option = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("--{name}={value}"));
        let words = [Some("tenure".to_owned()), option("store", &self.store), option("config", &self.config)];
        let words = words.into_iter().flatten().chain(["stores".to_owned()]);
        Some(Cli::try_parse_from(words).ok()?.global)
    }
}

/// Finds the option that a word names, and the value in the same word: `--to=x`, `-vE5`.
fn option<'a, 'w>(command: &'a Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let option = command.get_arguments().find(|argument| argument.get_long() == Some(name))?;
        return Some((option, value));
    }
    let mut found = None;
    for (at, short) in word.char_indices().skip(1) {
        let option = command.get_arguments().find(|argument| argument.get_short() == Some(short))?;
        let value = word[at + short.len_utf8()..].trim_start_matches('=');
        if takes_value(option) {
            return Some((option, Some(value).filter(|value| !value.is_empty())));
        }
        found = Some((option, None));
    }
    found
}

fn takes_value(option: &Arg) -> bool {
    option.get_num_args().is_some_and(|number| number.takes_values())
}

fn options(command: &Command) -> impl Iterator<Item = Word> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    shown.filter_map(|option| {
        let name = option.get_long().map(|long| format!("--{long}"));
        let name = name.or_else(|| option.get_short().map(|short| format!("-{short}")))?;
        Some((name, first_line(option.get_help())))
    })
}

/// Returns the beginnings of the URLs of all stores, up to the host or the path.
fn schemes() -> Vec<Word> {
    // The command does not accept the memory store: see `Setup`.
    let stores = tenure::schemes().iter().filter(|scheme| **scheme != "memory");
    stores.map(|scheme| (format!("{scheme}:{}", if *scheme == "sqlite" { "" } else { "//" }), String::new())).collect()
}

fn fitting(current: &str, words: impl IntoIterator<Item = Word>) -> Reply {
    let mut words: Vec<Word> = words.into_iter().filter(|(word, _)| word.starts_with(current)).collect();
    words.dedup_by(|one, other| one.0 == other.0);
    Reply::Words(words)
}

fn about(value: &PossibleValue) -> String {
    first_line(value.get_help())
}

fn first_line(text: Option<&StyledStr>) -> String {
    text.map(|text| text.to_string().lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn word_if(condition: bool, word: &str) -> String {
    if condition { word.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        match reply_to(line) {
            Reply::Words(words) | Reply::Parts(words) => words.into_iter().map(|(word, _)| word).collect(),
            reply => panic!("{line}: {reply:?}"),
        }
    }

    #[test]
    fn subcommands_and_options_are_completed() {
        assert_eq!(words("tenure st"), ["status", "step-down", "stores"]);
        assert_eq!(words("tenure help st"), ["status", "step-down", "stores"]);
        assert_eq!(words("tenure --json st"), ["status", "step-down", "stores"]);
        assert_eq!(words("tenure step-down jobs --t"), ["--to"]);
        assert_eq!(words("tenure run --health-c"), ["--health-cmd"]);
        assert!(words("tenure status -").contains(&"--store".to_owned()));
        assert_eq!(words("tenure nosuch"), [""; 0]);
    }

    #[test]
    fn values_are_completed_in_each_form_of_an_option() {
        assert_eq!(words("tenure run --on-loss "), ["stand", "exit"]);
        assert_eq!(words("tenure run --on-loss=e"), ["--on-loss=exit"]);
        assert_eq!(words("tenure run --forward USR1,H"), ["USR1,HUP"]);
        assert_eq!(words("tenure status --store re"), ["redis://"]);
        assert_eq!(words("tenure status --store=re"), ["--store=redis://"]);
        assert_eq!(words("tenure schema p"), ["postgres"]);
        assert_eq!(words("tenure completions "), ["bash", "zsh", "fish"]);
        assert_eq!(reply_to("tenure status --config te"), Reply::Files);
        assert_eq!(reply_to("tenure status --store sqlite:/va"), Reply::Files);
        assert_eq!(reply_to("tenure run --lease 1"), Reply::Nothing);
        assert_eq!(reply_to("tenure run -vw 1"), Reply::Nothing);
        assert_eq!(reply_to("tenure status jobs more"), Reply::Nothing);
    }

    #[test]
    fn the_command_to_run_and_its_arguments_are_left_to_the_shell() {
        assert_eq!(reply_to("tenure run jobs -- ca"), Reply::Command(4));
        assert_eq!(reply_to("tenure run jobs ca"), Reply::Command(3));
        assert_eq!(reply_to("tenure run jobs -- cat --sto"), Reply::Arguments(4));
        assert_eq!(reply_to("tenure run -E5 --lease 5s jobs cat run --to "), Reply::Arguments(6));
        assert_eq!(reply_to("tenure once --for 1h jobs -- cat -"), Reply::Arguments(6));
    }

    #[test]
    fn a_shell_does_not_wait_for_a_store_that_hangs() {
        let (_kept, never) = std::sync::mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || never.recv()), None);
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
    }

    #[test]
    fn control_characters_are_not_printed() {
        let reply = Reply::Words(vec![("a\nb".into(), String::new()), ("c".into(), "d\u{1b}[2J".into())]);
        assert_eq!(reply.to_string(), "words\nc\t\n");
    }
}
