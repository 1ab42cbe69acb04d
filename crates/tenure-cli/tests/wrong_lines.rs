//! A table of wrong command lines, each with its exit code and its answer: `wrong_lines.txt`.
//!
//! `TENURE_TEST_WRITE=1 cargo test -p tenure-cli --test wrong_lines` writes the answers of this program into the table.
//! Read each of them as a user who does not know the tool: it must say what to type instead.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{PROBE, World, text};

/// A block of the table: lines of comments and settings, the line of shell, and the answer.
struct Case<'a> {
    settings: Vec<&'a str>,
    line: &'a str,
    answer: &'a str,
}

impl<'a> Case<'a> {
    /// Returns `None` for a block of comments.
    fn parse(block: &'a str) -> Option<Self> {
        let lines: Vec<&str> = block.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("$ "))?;
        Some(Self {
            settings: lines[..at].to_vec(),
            line: &lines[at][2..],
            answer: lines.get(at + 1).copied().unwrap_or_default(),
        })
    }

    fn setting(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.settings.iter().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns the answer of this program; `None` if it does not have the store that the case needs.
    fn run(&self) -> Option<String> {
        if self.setting("needs").any(|store| !tenure::schemes().contains(&store)) {
            return None;
        }
        let world = World::shared();
        let file: Vec<&str> = self.setting("tenure.toml").collect();
        if !file.is_empty() {
            fs::write(world.path("tenure.toml"), file.join("\n")).unwrap();
        }
        let _leader = self.setting("leader").next().map(|id| {
            let leader = world.run(&["--candidate", id], PROBE);
            world.start_number(1);
            leader
        });
        Some(answer(&world, &shell(&world, self.line)))
    }
}

/// Runs a line in a shell that finds `tenure`, in the folder and the environment of the world.
fn shell(world: &World, line: &str) -> Output {
    let tenure = world.tenure(&[]);
    let folder = Path::new(tenure.get_program()).parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(folder).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(world.path(".")).env("PATH", path.unwrap());
    for (name, value) in tenure.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    world.output_of(command)
}

/// Returns the exit code and the message, without what differs between machines and builds.
fn answer(world: &World, output: &Output) -> String {
    let error = text(&output.stderr);
    let folder = world.path("").display().to_string();
    let error = error.replace(folder.trim_end_matches('/'), "/folder");
    let error = error.replace(&tenure::schemes().join(", "), "STORES");
    format!("{} {}", output.status.code().unwrap_or(-1), error.trim_end())
}

/// An answer has at least one of these.
const ADVICE: [&str; 20] = [
    "add ",
    "check ",
    "choose",
    "did you mean",
    "give ",
    "is not one of",
    "leave ",
    "lists the options",
    "make it",
    "must ",
    "name a ",
    "pass ",
    "percent-encode",
    "run: ",
    "the candidates are",
    "the commands are",
    "the options are",
    "the units are",
    "use ",
    "write",
];

#[test]
fn every_wrong_line_is_answered_with_what_to_type_instead() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrong_lines.txt");
    let table = fs::read_to_string(path).unwrap();
    let is_writing = std::env::var_os("TENURE_TEST_WRITE").is_some();
    let (mut written, mut wrong, mut cases) = (Vec::new(), Vec::new(), 0);
    for block in table.trim_end().split("\n\n") {
        let Some(case) = Case::parse(block) else {
            written.push(block.to_owned());
            continue;
        };
        cases += 1;
        let answer = case.run().unwrap_or_else(|| case.answer.to_owned());
        let message = answer.split_once(' ').map_or("", |(_, message)| message);
        // With --json, an answer is JSON, too.
        let is_answer = message.starts_with("tenure: ") || message.starts_with("{\"error\":");
        let is_one_line = message.lines().count() == 1 && is_answer;
        let is_refused =
            is_one_line && ADVICE.iter().any(|advice| message.contains(advice)) && !answer.starts_with('0');
        let is_accepted = answer == "0 " && case.setting("accepted").next().is_some();
        if !(is_refused || is_accepted) || (answer != case.answer && !is_writing) {
            wrong.push(format!("$ {}\n  expected: {}\n  answered: {answer}", case.line, case.answer));
        }
        let lines = case.settings.iter().map(|line| (*line).to_owned());
        let lines: Vec<String> = lines.chain([format!("$ {}", case.line), answer]).collect();
        written.push(lines.join("\n"));
    }
    if is_writing {
        fs::write(path, written.join("\n\n") + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases >= 90, "only {cases} lines");
}

#[test]
fn the_sum_of_durations_that_do_not_fit_is_shown_only_with_v() {
    let world = World::shared();
    let error = |line: &str| text(&shell(&world, line).stderr);
    let refused = "renew_every of 10s is too long for a lease of 15s; use at most 7.5s, or a lease of at least 20s";
    assert_eq!(error("tenure run --renew-every 10s jobs -- true"), format!("tenure: {refused}\n"));
    let verbose = error("tenure run -v --renew-every 10s jobs -- true");
    assert!(verbose.contains(&format!("tenure: {refused}\n")), "{verbose}");
    assert!(verbose.contains("renew_every 10s + 2 x retry_every 100ms + 5 x call_timeout 1s = 15.2s"), "{verbose}");
    for advice in ["--renew-every 7.5s", "--renew-every 10s --lease 20s"] {
        assert!(shell(&world, &format!("tenure run {advice} jobs -- true")).status.success(), "{advice}");
    }
}

#[test]
fn a_command_starts_with_the_lease_that_a_refusal_names() {
    let world = World::shared();
    let refused = text(&shell(&world, "tenure run --lease 1ms jobs -- true").stderr);
    let least = refused.strip_prefix("tenure: lease must be at least ").unwrap().split(',').next().unwrap();
    assert!(shell(&world, &format!("tenure run --lease {least} jobs -- true")).status.success(), "{least}");
    let shorter = tenure::span::parse(least).unwrap() - std::time::Duration::from_millis(1);
    let line = format!("tenure run --lease {} jobs -- true", tenure::span::show(shorter));
    assert!(text(&shell(&world, &line).stderr).contains(&format!("at least {least}, got ")), "{least}");
    let help = text(&shell(&world, "COLUMNS=1000 tenure run --help").stdout);
    assert!(
        help.split_whitespace().collect::<Vec<_>>().join(" ").contains(&format!("{least} with tenure run")),
        "{help}"
    );
}
