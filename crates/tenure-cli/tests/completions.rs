//! Completion in real shells, with the names of elections and candidates from a store.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use common::{World, candidate, stand, text};

/// Completes a line in bash, and prints the replies and the options of `compopt`. The second argument is the part of the
/// line that bash replaces.
const BASH: &str = r#"
    source <(tenure completions bash)
    compopt() { printf '(%s)\n' "$2"; }
    COMP_LINE=$1 COMP_POINT=${#1}
    read -ra COMP_WORDS <<<"$1"
    [[ $1 != *' ' ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _tenure tenure "$2" ""
    ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}""#;

impl World {
    /// Returns what this shell completes a line to. `tenure` is found by its name, as a user installs it. Empty variables
    /// are removed.
    fn complete(&self, shell: &mut Command, variables: &[(&str, &str)]) -> Vec<String> {
        let programs = self.path("bin");
        fs::create_dir_all(&programs).unwrap();
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tenure"), programs.join("tenure"));
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let tenure = self.tenure(&[]);
        shell.current_dir(self.path("")).env("PATH", path).env("HOME", self.path(""));
        shell.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
        for (name, value) in variables {
            if value.is_empty() {
                shell.env_remove(name)
            } else {
                shell.env(name, value)
            };
        }
        let output = shell.output().unwrap();
        assert_eq!(text(&output.stderr), "");
        text(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// Checks what bash completes a line to.
    fn assert_bash(&self, line: &str, expected: &[&str]) {
        assert_eq!(self.retry(expected, || self.bash_with(line, &[])), expected, "{line}");
    }

    /// Completes again if there was no reply in time, as on a busy machine.
    fn retry(&self, expected: &[&str], mut complete: impl FnMut() -> Vec<String>) -> Vec<String> {
        let mut words = Vec::new();
        self.eventually("a reply", || {
            words = complete();
            !words.is_empty() || expected.is_empty()
        });
        words
    }

    fn bash_with(&self, line: &str, variables: &[(&str, &str)]) -> Vec<String> {
        // Bash splits words at these characters, unless they are quoted.
        let word = match line.split_once('\'') {
            Some((before, quoted)) if !before.ends_with('\\') => quoted,
            _ => line.rsplit([' ', ':', '=']).next().unwrap(),
        };
        self.complete(Command::new("bash").args(["--norc", "-c", BASH, "bash", line, word]), variables)
    }
}

#[test]
fn bash_completes_commands_options_values_and_files() {
    let world = World::shared();
    world.assert_bash("tenure st", &["status", "step-down", "stores"]);
    world.assert_bash("tenure run --health-c", &["--health-cmd"]);
    world.assert_bash("tenure run --on-loss=e", &["exit"]);
    world.assert_bash("tenure status --store sqli", &["(nospace)", "sqlite:"]);
    world.assert_bash("tenure status --config ten", &["(default)"]);
    world.assert_bash("tenure status --store sqlite:/va", &["(default)"]);
    world.assert_bash("tenure run jobs -- ./ru", &["(default)"]);
    world.assert_bash("tenure run jobs -- cat fi", &["(default)"]);
    let commands = world.retry(&["cat"], || world.bash_with("tenure run jobs -- ca", &[]));
    assert!(commands.contains(&"cat".to_owned()), "{commands:?}");
}

#[test]
fn elections_are_those_of_the_store() {
    let world = World::shared();
    world.assert_bash("tenure status ", &[]);
    assert!(!world.path("seats.db").exists(), "completion has created the store");
    for election in ["jobs", "a:b c"] {
        assert!(world.output(&["run", "-q", election, "--", "true"]).status.success());
    }
    for line in ["status", "run", "once --for 1h", "candidates", "watch", "step-down --wait 3s", "forget --yes --"] {
        world.assert_bash(&format!("tenure {line} "), &[r"a:b\ c", "jobs"]);
        world.assert_bash(&format!("tenure {line} j"), &["jobs"]);
    }
    // Bash replaces what follows the colon.
    world.assert_bash("tenure status a:", &[r"b\ c"]);
    world.assert_bash("tenure status 'a:b", &["a:b c"]);
    world.assert_bash("tenure status jobs ", &[]);
}

#[test]
fn candidates_are_those_of_the_election_and_the_store_that_the_line_names() {
    let world = World::shared();
    let _alice = stand(&world, "alice", &[]);
    world.start_number(1);
    let _bob = stand(&world, "bob", &[]);
    let _two = stand(&world, "bob's twin", &[]);
    world.eventually("the others to stand", || candidate(&world, "bob").and(candidate(&world, "bob's twin")).is_some());
    // The leader itself cannot take over.
    let heirs = ["bob", r"bob\'s\ twin"];
    world.assert_bash("tenure step-down jobs --to ", &heirs);
    world.assert_bash(r"tenure step-down jobs --to=bob\'", &[r"bob\'s\ twin"]);
    world.assert_bash("tenure step-down jobs --to 'bob", &["bob", "bob's twin"]);
    world.assert_bash("tenure step-down other --to ", &[]);
    world.assert_bash("tenure step-down --to ", &[]);
    world.assert_bash("tenure explain jobs --candidate ", &heirs);
    world.assert_bash("tenure run jobs --candidate ", &[]);

    // The store of the line is used, then that of the variable, then that of the file.
    let store = format!("sqlite:{}", world.path("seats.db").display());
    let empty = [("TENURE_STORE", "sqlite:empty.db")];
    fs::write(world.path("own.toml"), format!("store = {store:?}")).unwrap();
    for (line, variables, expected) in [
        (format!("tenure --store {store} step-down jobs --to "), &empty[..], &heirs[..]),
        ("tenure step-down jobs --to ".to_owned(), &empty, &[]),
        ("tenure step-down jobs --config own.toml --to ".to_owned(), &empty, &[]),
        ("tenure step-down jobs --config=own.toml --to ".to_owned(), &[("TENURE_STORE", "")], &heirs),
    ] {
        assert_eq!(world.retry(expected, || world.bash_with(&line, variables)), expected, "{line} {variables:?}");
    }
    assert!(!world.path("empty.db").exists());
}

#[test]
fn a_store_that_fails_or_hangs_completes_nothing_and_says_nothing() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for url in [format!("redis://user:secret@127.0.0.1:{port}"), "redis://127.0.0.1:1".to_owned(), "nosuch:".to_owned()]
    {
        let world = World::on(&url);
        world.assert_bash("tenure step-down jobs --to ", &[]);
        world.assert_bash("tenure status ", &[]);
    }
}

#[test]
fn fish_and_zsh_complete_the_same_words_with_descriptions() {
    let world = World::shared();
    assert!(world.output(&["run", "-q", "my jobs", "--", "true"]).status.success());
    let script = "tenure completions fish | source; complete -C $argv[1]";
    let fish = ["--no-config", "-c", script, "tenure status 'my"];
    let expected = ["my jobs\tvacant"];
    assert_eq!(world.retry(&expected, || world.complete(Command::new("fish").args(fish), &[])), expected);
    // Outside of its line editor, zsh has neither these functions nor the variables of a completion.
    let script = "compdef() {}; compadd() { print -l -- $values $shown }; source <(tenure completions zsh)
        words=(tenure status \\'my) CURRENT=3 PREFIX=\\'my; _tenure";
    let zsh = ["-f", "-c", script];
    let expected = ["my jobs", "my jobs  -- vacant"];
    assert_eq!(world.retry(&expected, || world.complete(Command::new("zsh").args(zsh), &[])), expected);
}
