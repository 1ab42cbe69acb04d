//! The options that `tenure run` and `tenure once` share: the election, the command and the candidate.

use std::ffi::OsString;

use clap::Args;
use tenure::ElectionOptions;

use super::flags::Flags;
use crate::failure::Failure;

/// A command to run in an election, and the options of the candidate.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The election to stand in
    pub(crate) election: String,

    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// A key and a value to show with this candidate; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "The candidate")]
    pub(crate) metadata: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) options: Flags,
}

impl Job {
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

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    if key.is_empty() { Err("the key must not be empty".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_split_at_the_first_equals_sign() {
        assert_eq!(pair("zone=a=b"), Ok(("zone".to_owned(), "a=b".to_owned())));
        assert!(pair("zone").is_err() && pair("=a").is_err());
    }
}
