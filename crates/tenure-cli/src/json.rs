//! The JSON forms of what commands print: docs/json.md describes them, and docs/json.schema.json defines them.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{CandidateStatus, Crash, Leader};

use crate::failure::Failure;
use crate::screen::timestamp;
use crate::stderr;

/// The version of the forms. It rises when a field is renamed or removed, or changes its meaning.
const VERSION: u32 = 1;

/// Adds the version to an object that is one line of output.
pub(crate) fn versioned(mut line: Value) -> Value {
    line["version"] = VERSION.into();
    line
}

/// Returns whether the command line asks for JSON. Words after `--` belong to a command of the user.
///
/// For errors of the command line itself, which are found before its options are known.
pub(crate) fn is_asked_for(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    arguments.by_ref().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Writes the failure of a command to standard error.
pub(crate) fn print_failure(failure: &Failure) {
    stderr::line(error(&failure.to_string(), Some(failure.code())));
}

/// Formats an error. A command that goes on after it has no exit code yet.
pub(crate) fn error(message: &str, exit_code: Option<u8>) -> Value {
    versioned(json!({ "error": { "message": message, "exit_code": exit_code } }))
}

/// Formats news that are not an error, such as the end of one.
pub(crate) fn notice(message: &str) -> Value {
    versioned(json!({ "notice": { "message": message } }))
}

pub(crate) fn leader(leader: &Leader) -> Value {
    json!({
        "candidate": &*leader.candidate.id,
        "incarnation": leader.candidate.incarnation.to_string(),
        "token": leader.token.get(),
        "since": leader.since.map(timestamp),
        "metadata": &*leader.metadata,
    })
}

pub(crate) fn crash(Crash { of, token, by }: &Crash) -> Value {
    json!({ "candidate": &*of.id, "incarnation": of.incarnation.to_string(), "token": token.get(), "by": &**by })
}

pub(crate) fn candidate(status: &CandidateStatus) -> Value {
    json!({
        "candidate": &*status.candidate.id,
        "incarnation": status.candidate.incarnation.to_string(),
        "leader": status.is_leader,
        "score": status.score,
        "healthy": status.healthy,
        "priority": status.priority,
        "lease_ms": status.lease.map(ms),
        "since": status.since.map(timestamp),
        "updated": status.updated.map(timestamp),
        "held_back_until": status.held_back_until.map(timestamp),
        "metadata": status.metadata,
    })
}

/// Formats a duration: whole milliseconds.
pub(crate) fn ms(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_only_before_the_words_of_the_command() {
        let asks = |line: &str| is_asked_for(line.split(' ').map(Into::into));
        assert!(asks("status --json jobs") && asks("--json status jobs") && asks("run --json jobs -- x"));
        assert!(!asks("run jobs -- jq --json") && !asks("status json"));
    }
}
