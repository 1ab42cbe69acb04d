//! The answers to wrong command lines: each says what is wrong and what to type instead.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tenure_kit::did_you_mean;

use super::line::{Line, option, typed};
use crate::mask::mask;

/// Words that users of other tools type for a command, and the commands.
const COMMANDS_ELSEWHERE: &[(&str, &str)] = &[
    ("break", "break-lease"),
    ("campaign", "run"),
    ("cron", "once"),
    ("delete", "forget"),
    ("diagnose", "explain"),
    ("elections", "status"),
    ("events", "watch"),
    ("exec", "run"),
    ("flock", "run"),
    ("follow", "watch"),
    ("get", "status"),
    ("handover", "step-down"),
    ("info", "status"),
    ("leader", "status"),
    ("list", "candidates"),
    ("list", "status"),
    ("lock", "run"),
    ("ls", "candidates"),
    ("ls", "status"),
    ("members", "candidates"),
    ("migrate", "schema"),
    ("monitor", "watch"),
    ("nodes", "candidates"),
    ("release", "step-down"),
    ("remove", "forget"),
    ("resign", "step-down"),
    ("rm", "forget"),
    ("show", "status"),
    ("start", "run"),
    ("tail", "watch"),
    ("transfer", "step-down"),
    ("unlock", "step-down"),
    ("who", "status"),
    ("why", "explain"),
];

/// Words that users of other tools type for an option, and the options.
const OPTIONS_ELSEWHERE: &[(&str, &str)] = &[
    ("db", "store"),
    ("debug", "verbose"),
    ("duration", "lease"),
    ("every", "slot"),
    ("force", "yes"),
    ("id", "candidate"),
    ("interval", "slot"),
    ("name", "candidate"),
    ("nb", "no-wait"),
    ("node", "candidate"),
    ("nonblock", "no-wait"),
    ("schedule", "slot"),
    ("silent", "quiet"),
    ("target", "to"),
    ("timeout", "wait"),
    ("url", "store"),
];

/// Returns one line about what is wrong with a command line, and what to type instead. `words` are the words after the
/// name of the program.
pub(crate) fn answer(error: &clap::Error, words: &[OsString]) -> String {
    let line = Line::new(words);
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let argument = named(ContextKind::InvalidArg).unwrap_or_default();
    if let Some(answer) = one_dash(&line) {
        return answer;
    }
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            unknown_command(&line, &named(ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => unknown_option(&line, &argument),
        ErrorKind::UnknownArgument => unexpected(&line, &argument),
        ErrorKind::MissingRequiredArgument => missing(&line, &texts(error.get(ContextKind::InvalidArg))),
        ErrorKind::MissingSubcommand => no_command(&line),
        ErrorKind::ArgumentConflict => conflict(&argument, &named(ContextKind::PriorArg).unwrap_or_default()),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let possible = texts(error.get(ContextKind::ValidValue));
            let value = named(ContextKind::InvalidValue).unwrap_or_default();
            invalid_value(&line, &argument, &value, &possible, error.source().map(ToString::to_string))
        }
        ErrorKind::TooManyValues => {
            let value = named(ContextKind::InvalidValue).unwrap_or_default();
            no_value(&line, &plain(&argument), &value)
        }
        ErrorKind::InvalidUtf8 => {
            format!(
                "an argument is not valid UTF-8; write it with other characters, see {} --help",
                line.command_words()
            )
        }
        _ => other(&error.to_string()),
    }
}

fn texts(value: Option<&ContextValue>) -> Vec<String> {
    match value {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

/// Answers a long option with one dash, which the parser takes for several short ones.
fn one_dash(line: &Line) -> Option<String> {
    let is_long = |word: &str| word.len() > 2 && !word.starts_with("--") && line.option(&format!("-{word}")).is_some();
    let (at, word) = line.options().find(|(_, word)| word.starts_with('-') && is_long(word))?;
    let name = word.split('=').next().unwrap_or(word);
    let right = line.replaced(at..at + 1, &[&format!("-{word}")]);
    let right = right.map(|line| format!("; write: {line}")).unwrap_or_default();
    Some(format!("{name} needs two dashes: -{name}{right}"))
}

fn unknown_command(line: &Line, word: &str) -> String {
    let at = line.words.iter().position(|given| given == word).unwrap_or_default();
    let names: Vec<&str> = line.subcommands().map(clap::Command::get_name).collect();
    let elsewhere = COMMANDS_ELSEWHERE.iter().filter(|(other, _)| *other == word).map(|(_, ours)| *ours);
    let mut near: Vec<&str> = elsewhere.collect();
    if near.is_empty() {
        near = did_you_mean(word, &names);
    }
    if word == "version" {
        return "unknown command \"version\"; write: tenure --version".to_owned();
    }
    if names.contains(&word) {
        return format!("tenure help takes one command; write: tenure help {word}");
    }
    let advice = if near.is_empty() {
        // An election and a command without `run`.
        line.replaced(at..at, &["run"]).map(|right| format!("write: {right}"))
    } else {
        near.iter().find_map(|near| line.replaced(at..at + 1, &[near])).map(|right| format!("write: {right}"))
    };
    let advice = advice.unwrap_or_else(|| match near.as_slice() {
        [] => format!("the commands are {}", names.join(", ")),
        near => format!("did you mean tenure {}?", near.join(" or tenure ")),
    });
    format!("unknown command {}; {advice}", shown(word))
}

fn no_command(line: &Line) -> String {
    let names: Vec<&str> = line.subcommands().map(clap::Command::get_name).collect();
    format!("no command; write: tenure COMMAND, with one of {}", names.join(", "))
}

fn unknown_option(line: &Line, argument: &str) -> String {
    let is_it = |word: &str| word == argument || word.starts_with(&format!("{argument}="));
    let begins = |word: &str| !argument.starts_with("--") && word.starts_with('-') && !word.starts_with("--");
    let found = line.options().find(|(_, word)| is_it(word) || (begins(word) && word.contains(&argument[1..])));
    let Some((at, word)) = found else { return format!("unknown option {argument}; {}", see_help(line)) };
    let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
    let with = |name: &str| value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
    if name[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return negative(line, at, word);
    }
    let long = name.trim_start_matches('-');
    let write = |right: Option<String>, otherwise: String| match right {
        Some(right) => format!("unknown option {name}; write: {right}"),
        None => format!("unknown option {name}; {otherwise}"),
    };
    if let Some(answer) = of_other_command(line, at, name) {
        return answer;
    }
    if let Some(answer) = habit(line, at, name) {
        return answer;
    }
    let own: Vec<&str> = line.command().get_arguments().filter_map(clap::Arg::get_long).collect();
    let elsewhere = OPTIONS_ELSEWHERE.iter().find(|(other, ours)| *other == long && own.contains(ours));
    let near = match elsewhere {
        Some((_, ours)) => vec![*ours],
        None if name.starts_with("--") => did_you_mean(long, &own),
        // A letter stands for the options that begin with it.
        None => own.iter().copied().filter(|own| own.starts_with(&argument[1..])).collect(),
    };
    // The election is not an option.
    let election = || {
        let value: Vec<&str> = value.into_iter().collect();
        ["election", "lock", "name", "seat"].contains(&long).then(|| line.replaced(at..at + 1, &value))?
    };
    match near.as_slice() {
        [] => write(election(), see_help(line)),
        [near] => {
            let right = line.replaced(at..at + 1, &[&with(&format!("--{near}"))]);
            write(right.or_else(election), format!("did you mean --{near}?"))
        }
        near => write(None, format!("did you mean --{}?", near.join(" or --"))),
    }
}

/// Answers an option that other commands have.
fn of_other_command(line: &Line, at: usize, name: &str) -> Option<String> {
    let has_it = |command: &&clap::Command| name.starts_with("--") && option(command, name).is_some();
    let others: Vec<&clap::Command> = line.subcommands().filter(has_it).collect();
    let other = others.first()?;
    let names: Vec<&str> = others.iter().map(|other| other.get_name()).collect();
    let whose =
        format!("{} has no option {name}, which belongs to tenure {}", line.command_words(), names.join(", tenure "));
    if let [name] = names[..]
        && let Some(right) = line.first.and_then(|at| line.replaced(at..at + 1, &[name]))
    {
        return Some(format!("{whose}; write: {right}"));
    }
    let takes_value = option(other, name).is_some_and(|option| option.get_action().takes_values());
    let words = if takes_value && !line.words[at].contains('=') { 2 } else { 1 };
    Some(match line.replaced(at..at + words, &[]) {
        Some(right) => format!("{whose}; write: {right}"),
        None => format!("{whose}; leave it out"),
    })
}

/// Answers an option that asks for what the command does anyway, or for another command.
fn habit(line: &Line, at: usize, name: &str) -> Option<String> {
    let left_out = |why: &str| {
        let right = line.replaced(at..at + 1, &[])?;
        Some(format!("unknown option {name}; {why}write: {right}"))
    };
    let command = line.command().get_name();
    match (command, name) {
        ("status" | "watch", "--all" | "-a") => left_out("without a name, all elections are shown; "),
        ("watch", "--live" | "--follow" | "--watch" | "-f") => left_out("that is the default on a terminal; "),
        ("status" | "candidates", "--live" | "--follow" | "--watch" | "-f") => {
            let mut words = line.words.clone();
            words.remove(at);
            let words: Vec<&str> = words.iter().map(|word| if *word == command { "watch" } else { word }).collect();
            Some(format!("unknown option {name}; write: {}", typed(&words)))
        }
        _ => {
            // `--no-preempt`, where `--preempt` is off anyway.
            let positive =
                name.strip_prefix("--no-").filter(|positive| line.option(&format!("--{positive}")).is_some());
            positive.and_then(|_| left_out("that is the default; "))
        }
    }
}

fn see_help(line: &Line) -> String {
    format!("{} --help lists the options", line.command_words())
}

/// Answers a negative number, which the parser takes for an option.
fn negative(line: &Line, at: usize, word: &str) -> String {
    let option = at.checked_sub(1).map(|at| &line.words[at]).filter(|word| line.option(word).is_some());
    match option {
        Some(option) => {
            format!("{option} must not be negative, got {word}; write it like {option} {}", example(line, option))
        }
        None => format!("unexpected argument {word}; {}", see_help(line)),
    }
}

/// Answers a word that is neither an option nor expected.
fn unexpected(line: &Line, word: &str) -> String {
    let Some(at) = line.words.iter().rposition(|given| given == word) else { return other(word) };
    if line.first == Some(at) {
        return unknown_command(line, word);
    }
    let command = line.command_words();
    if word.contains("://") || word.starts_with("sqlite:") {
        return match line.replaced(at..at + 1, &["--store", word]) {
            Some(right) => format!("a store is an option; write: {right}"),
            None => "a store is an option; write: --store URL".to_owned(),
        };
    }
    if let Some(right) = line.replaced(at..at + 1, &["--to", word]) {
        return format!("unexpected argument {}; to hand over to it, write: {right}", shown(word));
    }
    if line.command().get_name() == "explain"
        && let Some(right) = line.replaced(at..at + 1, &["--candidate", word])
    {
        return format!("unexpected argument {}; for a candidate, write: {right}", shown(word));
    }
    let takes = line.command().get_positionals().next();
    let Some(takes) = takes else {
        let right = line.replaced(at..at + 1, &[]).map(|right| format!("; write: {right}")).unwrap_or_default();
        return format!("{command} takes no argument, got {}{right}", shown(word));
    };
    let name = takes.get_id().as_str().to_uppercase();
    // A name that was not quoted.
    let joined = at.checked_sub(1).and_then(|before| {
        let both = format!("{} {word}", line.words[before]);
        line.replaced(before..at + 1, &[&both])
    });
    match joined {
        Some(right) => format!("{command} takes one {name}; if it has a space, write: {right}"),
        None => format!("{command} takes one {name}, got also {}", shown(word)),
    }
}

/// Answers a line without a required argument.
fn missing(line: &Line, missing: &[String]) -> String {
    let is_missing = |name: &str| missing.iter().any(|argument| argument.contains(name));
    let dashes = line.words.iter().position(|word| word == "--");
    if is_missing("<CMD>") {
        // After the dashes, the first word of CMD was taken for the election.
        if let Some(at) = dashes.filter(|at| at + 1 < line.words.len()) {
            let mut words = line.words.clone();
            words.insert(at, "ELECTION".to_owned());
            return format!("no election; write: {}", typed(&words));
        }
        let mut words: Vec<String> = line.words.iter().filter(|word| *word != "--").cloned().collect();
        let election = is_missing("<ELECTION>").then_some("ELECTION".to_owned());
        let what = if election.is_some() { "no election and no command" } else { "no command" };
        if let Some(at) = words.iter().position(|word| word == "once").filter(|_| is_missing("--slot")) {
            words.splice(at + 1..=at, ["--slot".to_owned(), "0 3 * * *".to_owned()]);
        }
        words.extend(election);
        words.extend(["--".to_owned(), "CMD…".to_owned()]);
        return format!("{what}; write: {}", typed(&words));
    }
    if is_missing("--slot") {
        let right = line.first.and_then(|at| line.replaced(at + 1..at + 1, &["--slot", "0 3 * * *"]));
        return format!(
            "no occasion; add --slot with the schedule of the crontab, or --for TIME{}",
            right.map(|right| format!("; write: {right}")).unwrap_or_default()
        );
    }
    let names: Vec<&str> = missing.iter().map(|name| name.trim_matches(['<', '>', '[', ']', '.'])).collect();
    let values = line.command().get_positionals().flat_map(clap::Arg::get_possible_values);
    let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
    let mut words = line.words.clone();
    match values.as_slice() {
        [only] => words.push(only.clone()),
        _ => words.extend(names.iter().map(|name| (*name).to_owned())),
    }
    let values = if values.len() < 2 { String::new() } else { format!(", with one of {}", values.join(", ")) };
    format!("no {}; write: {}{values}", names.join(" and ").to_lowercase(), typed(&words))
}

fn conflict(one: &str, other: &str) -> String {
    let (name, prior) = (plain(one), plain(other));
    let is_command = |name: &str| name == "-c" || name == "CMD";
    if name == prior || prior.is_empty() {
        format!("{name} is given twice; give it once")
    } else if is_command(&name) && is_command(&prior) {
        "-c LINE takes the place of CMD; give one of them, and quote a line with spaces: -c 'LINE'".to_owned()
    } else {
        format!("{name} and {prior} exclude each other; give one of them")
    }
}

fn invalid_value(line: &Line, argument: &str, value: &str, possible: &[String], problem: Option<String>) -> String {
    let name = plain(argument);
    if let Some(problem) = problem {
        // The parsers of values either begin with the value or say what it must be.
        let (must, advice) = problem.split_once("; ").map_or((&*problem, None), |(must, advice)| (must, Some(advice)));
        return match must.strip_prefix("must ").filter(|must| !must.contains(", got ")) {
            Some(must) => {
                let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
                format!("{name} must {must}, got {}{advice}", shown(value))
            }
            None if must.starts_with("must ") => format!("{name} {problem}"),
            None => format!("{name}: {problem}"),
        };
    }
    if value.is_empty() && possible.is_empty() {
        return format!("{name} needs a value; write it like {name} {}", example(line, &name));
    }
    let all: Vec<&str> = possible.iter().map(String::as_str).collect();
    let (last, others) = all.split_last().map_or(("", &[][..]), |(last, others)| (*last, others));
    let must = format!("{name} must be {} or {last}", others.join(", "));
    match did_you_mean(value, &all).as_slice() {
        _ if value.is_empty() => {
            format!("{name} needs a value, {} or {last}; write it like {name} {}", others.join(", "), all[0])
        }
        [] => format!("{must}, got {}", shown(value)),
        near => format!("{must}, got {}; did you mean {}?", shown(value), near.join(" or ")),
    }
}

/// Answers a value for an option that takes none.
fn no_value(line: &Line, name: &str, value: &str) -> String {
    let at = line.words.iter().position(|word| word.split('=').next() == Some(name));
    let right = at.and_then(|at| line.replaced(at..at + 1, &[name]));
    let right = right.map(|right| format!("; write: {right}")).unwrap_or_else(|| format!("; write: {name}"));
    format!("{name} takes no value, got {}{right}", shown(value))
}

/// Returns a value that an option accepts, as a user types it.
fn example(line: &Line, name: &str) -> String {
    let Some(option) = line.option(name) else { return "VALUE".to_owned() };
    if let Some(value) = option.get_possible_values().first() {
        return value.get_name().to_owned();
    }
    let kind = option.get_value_names().and_then(|names| names.first()).map_or("VALUE", |name| name.as_str());
    match kind {
        "FD" => "3",
        "FILE" => "tenure.toml",
        "ID" => "alice",
        "KEY=VALUE" => "zone=a",
        "LINE" => "'make && ./jobs'",
        "N" => "10",
        "NUMBER" => "0.8",
        "SCHEDULE" => "'0 3 * * *'",
        "TIME" => "15s",
        "URL" => "redis://localhost",
        other => other,
    }
    .to_owned()
}

/// Returns the name of an argument without its value: `--lease` for `--lease <TIME>`, `CMD` for `[CMD]...`.
fn plain(argument: &str) -> String {
    argument.split(' ').next().unwrap_or_default().trim_matches(['<', '>', '[', ']', '.']).to_owned()
}

/// Returns a word in quotes, without the password of a URL.
fn shown(word: &str) -> String {
    format!("{:?}", if word.contains("://") { mask(word) } else { word.to_owned() })
}

/// Shortens any other text of the parser to one line.
fn other(error: &str) -> String {
    let text = error.split("\n\nUsage:").next().and_then(|text| text.split("\n\nFor more").next()).unwrap_or(error);
    let shown = |word: &str| if word.contains("://") { mask(word) } else { word.to_owned() };
    let words: Vec<String> = text.trim_start_matches("error: ").split_whitespace().map(shown).collect();
    let text = words.join(" ").replace(" tip: ", "; ");
    format!("{}; see `tenure help` or --help", text.trim_end_matches(['.', ':']))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    fn answer_to(words: &[&str]) -> String {
        let error = Cli::try_parse_from(["tenure"].iter().chain(words)).unwrap_err();
        answer(&error, &words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// Returns the name with its first and its middle letter left out, and each of them swapped with the next one.
    fn misspelt(name: &str) -> Vec<String> {
        let letters: Vec<char> = name.chars().collect();
        let all = [0, letters.len() / 2].into_iter().flat_map(|at| {
            let (mut dropped, mut swapped) = (letters.clone(), letters.clone());
            dropped.remove(at);
            swapped.swap(at, (at + 1).min(letters.len() - 1));
            [dropped, swapped]
        });
        all.map(|letters| letters.into_iter().collect()).filter(|wrong| wrong != name).collect()
    }

    #[test]
    fn every_command_option_and_value_with_a_letter_left_out_or_swapped_is_recognised() {
        let mut cli = Cli::command();
        cli.build();
        let (mut tried, mut seen) = (0, std::collections::HashSet::new());
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            for wrong in misspelt(command.get_name()) {
                let answer = answer_to(&[&wrong, "jobs"]);
                assert!(answer.contains(&format!("tenure {}", command.get_name())), "{wrong}: {answer}");
            }
            for option in command.get_arguments() {
                let Some(name) = option.get_long().filter(|name| seen.insert(name.to_string())) else { continue };
                for wrong in misspelt(name).iter().filter(|wrong| wrong.len() > 1 && !wrong.starts_with('-')) {
                    let words = [command.get_name(), &format!("--{wrong}")];
                    if line_option(command, words[1]) {
                        continue;
                    }
                    let answer = answer_to(&words);
                    assert!(answer.contains(&format!("--{name}")), "{words:?}: {answer}");
                    tried += 1;
                }
                for value in option.get_possible_values() {
                    for wrong in misspelt(value.get_name()).iter().filter(|wrong| !wrong.is_empty()) {
                        let answer = answer_to(&[command.get_name(), &format!("--{name}={wrong}")]);
                        assert!(answer.contains(value.get_name()), "{answer}");
                    }
                }
            }
        }
        assert!(tried > 100, "only {tried}");
    }

    fn line_option(command: &clap::Command, word: &str) -> bool {
        option(command, word).is_some()
    }
}
