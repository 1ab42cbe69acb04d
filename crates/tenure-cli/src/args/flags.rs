//! The options of an election as flags, generated from the table of options.

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tenure::{ElectionOptions, OptionInfo};

/// The group of options that only `--help` shows, and `-h` does not.
const FINE_TUNING: &str = "Fine tuning";

/// The options that the command line sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags(pub(crate) ElectionOptions);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(ElectionOptions::TABLE.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for option in ElectionOptions::TABLE {
            let text = match switch(option) {
                Some(value) if matches.get_flag(option.name) => Some(value.to_string()),
                Some(_) => None,
                None => matches.get_one::<String>(option.name).cloned(),
            };
            if let Some(text) = text {
                self.0
                    .set(option.name, &text)
                    .map_err(|error| Error::raw(clap::error::ErrorKind::ValueValidation, error))?;
            }
        }
        Ok(())
    }
}

/// Returns the value that a flag without a value sets: the opposite of the default. `None` if the flag takes a value.
fn switch(option: &OptionInfo) -> Option<bool> {
    (option.kind == "BOOL").then_some(option.default != "true")
}

/// Returns the description of an option for help texts: other options are flags, the work is CMD, and there is nothing
/// about code.
fn doc(option: &OptionInfo) -> String {
    let sentences =
        option.doc.trim().trim_end_matches('.').split(". ").filter(|sentence| !sentence.contains("Builder"));
    let mut doc = sentences.collect::<Vec<_>>().join(". ").replace("work is ", "CMD is ");
    for other in ElectionOptions::TABLE {
        doc = doc.replace(&format!("`{}`", other.name), &format!("--{}", other.name.replace('_', "-")));
    }
    doc.replace('`', "")
}

fn argument(option: &OptionInfo) -> Arg {
    let flag = option.name.replace('_', "-");
    let doc = doc(option);
    let argument = Arg::new(option.name).help_heading(option.group).hide_short_help(option.group == FINE_TUNING);
    match switch(option) {
        Some(true) => argument.long(flag).action(ArgAction::SetTrue).help(doc),
        Some(false) => {
            // Further sentences are about the option and not about its opposite.
            let doc = doc.split(". ").next().unwrap_or_default();
            let (first, rest) = doc.split_at(doc.chars().next().map_or(0, char::len_utf8));
            let help = format!("Do not {}{rest}", first.to_lowercase());
            argument.long(format!("no-{flag}")).action(ArgAction::SetTrue).help(help)
        }
        None => {
            let name = option.name;
            let check = move |text: &str| {
                let set = ElectionOptions::default().set(name, text);
                set.map(|()| text.to_owned()).map_err(|error| error.to_string().replacen(&format!("{name}: "), "", 1))
            };
            argument
                .long(flag)
                .allow_negative_numbers(true)
                .value_name(option.kind)
                .value_parser(check)
                .help(format!("{doc} [default: {}]", option.default))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str]) -> Result<ElectionOptions, String> {
        let command = Flags::augment_args(Command::new("test"));
        let arguments = [&["test"], arguments].concat();
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        Ok(Flags::from_arg_matches(&matches).map_err(|error| error.to_string())?.0)
    }

    #[test]
    fn every_option_is_a_flag() {
        for option in ElectionOptions::TABLE {
            let flag = option.name.replace('_', "-");
            let (flag, value) = match (option.kind, option.default) {
                ("BOOL", "true") => (format!("--no-{flag}"), None),
                ("BOOL", _) => (format!("--{flag}"), None),
                ("TIME", _) => (format!("--{flag}"), Some("3s")),
                ("NUMBER", _) => (format!("--{flag}"), Some("0.5")),
                ("N", _) => (format!("--{flag}"), Some("1")),
                ("TEXT", _) => (format!("--{flag}"), Some("text")),
                _ => (format!("--{flag}"), Some(option.doc.split(['(', ',', ':']).nth(1).unwrap().trim())),
            };
            let arguments: Vec<&str> = std::iter::once(flag.as_str()).chain(value).collect();
            let options = given(&arguments).unwrap();
            assert_ne!(options, ElectionOptions::default(), "{arguments:?}");
        }
        assert_eq!(given(&[]).unwrap(), ElectionOptions::default());
    }

    #[test]
    fn help_speaks_of_flags_and_of_the_command() {
        let help = Flags::augment_args(Command::new("test")).render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "How long CMD is given to wrap up before its term ends",
            "Do not hand over when this candidate leads and its score falls below --min-health",
            "Do not release the seat when the election stops --",
        ] {
            assert!(help.contains(words), "{words:?} is not in {help}");
        }
        for words in ["Builder", "min_health", "`"] {
            assert!(!help.contains(words), "{words:?} is in {help}");
        }
    }

    #[test]
    fn a_flag_without_a_value_is_the_opposite_of_the_default() {
        assert_eq!(given(&["--preempt"]).unwrap().preempt, Some(true));
        assert_eq!(given(&["--no-step-down-when-unhealthy"]).unwrap().step_down_when_unhealthy, Some(false));
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_flag() {
        let error = given(&["--lease", "soon"]).unwrap_err();
        assert!(error.contains("invalid value 'soon' for '--lease <TIME>': \"soon\" is not a duration"), "{error}");
        let error = given(&["--min-health", "80"]).unwrap_err();
        assert!(error.contains("must be a number from 0 (off) to 1, such as 0.8, got 80"), "{error}");
        assert_eq!(given(&["--priority", "-7"]).unwrap().priority, Some(-7));
    }
}
