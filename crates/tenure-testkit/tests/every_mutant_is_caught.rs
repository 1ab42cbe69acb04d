//! Every mutant, the engine with one defect, is caught by the law that it names.
//!
//! Each mutant is applied to a copy of the sources and built, and its law runs on one kind of memory store. The law
//! must fail with its own message: a build that fails, or a run that hangs, does not count. While one mutant runs,
//! the next one is built.
//!
//! A law that misses its mutant now and then can pass by luck. `TENURE_TEST_MUTANT_RUNS=20` runs each law that often,
//! and every run must fail.

mod mutants;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::mutants::{Mutant, load, root};

fn main() {
    let trial = Trial::test("every_mutant_is_caught_by_the_law_that_it_names", || catch_all().map_err(Failed::from));
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

/// The crates of the workspace that the laws need.
const CRATES: [&str; 3] = ["tenure-protocol", "tenure-core", "tenure-testkit"];

fn catch_all() -> Result<(), String> {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let copy = work.join("workspace");
    make_copy(&copy).map_err(|error| format!("cannot copy the sources: {error}"))?;
    let mut runs = Vec::new();
    for mutant in load()? {
        let source = copy.join(&mutant.file);
        let whole = fs::read_to_string(&source).map_err(|error| error.to_string())?;
        fs::write(&source, whole.replacen(&mutant.find, &mutant.replace, 1)).map_err(|error| error.to_string())?;
        let built = build(&copy, &work.join("target"), &work.join(format!("run-{}", mutant.name)));
        fs::write(&source, whole).map_err(|error| error.to_string())?;
        let program = built.map_err(|problem| format!("{} does not build:\n{problem}", mutant.name))?;
        runs.push(thread::spawn(move || run(&mutant, &program)));
    }
    let outcomes = runs.into_iter().map(|run| run.join().unwrap_or_else(|_| Err("its run panicked".to_owned())));
    let (caught, missed): (Vec<_>, Vec<_>) = outcomes.partition(Result::is_ok);
    caught.iter().flatten().for_each(|said| println!("caught: {said}"));
    let names: String =
        missed.iter().flat_map(|said| said.as_ref().err()?.lines().next()).map(|said| format!("; {said}")).collect();
    println!("mutants: {} caught, {} missed{names}", caught.len(), missed.len());
    if missed.is_empty() {
        Ok(())
    } else {
        Err(missed.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("\n"))
    }
}

/// Copies the sources, and does not touch files that have not changed, so that cargo does not rebuild them.
fn make_copy(copy: &Path) -> io::Result<()> {
    let root = root();
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let members: String = CRATES.iter().map(|name| format!("\"crates/{name}\", ")).collect();
    let manifest = manifest
        .lines()
        .filter(|line| !line.starts_with("default-members = "))
        .map(|line| if line.starts_with("members = ") { format!("members = [{members}]") } else { line.to_owned() })
        .collect::<Vec<_>>()
        .join("\n");
    write_if_new(&copy.join("Cargo.toml"), manifest.as_bytes())?;
    write_if_new(&copy.join("Cargo.lock"), &fs::read(root.join("Cargo.lock"))?)?;
    for name in CRATES {
        copy_folder(&root.join("crates").join(name), &copy.join("crates").join(name))?;
    }
    // The test of the guide reads this folder.
    copy_folder(&root.join("docs"), &copy.join("docs"))
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            write_if_new(&target, &fs::read(entry.path())?)?;
        }
        kept.push(target);
    }
    // Files that were removed from the sources must not be built, either.
    for entry in fs::read_dir(to).into_iter().flatten().flatten().filter(|entry| !kept.contains(&entry.path())) {
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}

fn write_if_new(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|before| before == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, content)
}

/// Builds the laws, and returns a copy of the program, because the next build replaces the original.
fn build(copy: &Path, target: &Path, program: &Path) -> Result<PathBuf, String> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--no-run", "--quiet", "--message-format=json"])
        .args(["--package", "tenure-testkit", "--test", "conformance"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let (mut built, mut errors) = (None, String::new());
    for message in messages {
        if let Some(executable) = message["executable"].as_str() {
            built = Some(PathBuf::from(executable));
        }
        if message["message"]["level"] == "error" {
            errors.push_str(message["message"]["rendered"].as_str().unwrap_or_default());
        }
    }
    let built = built.filter(|_| output.status.success());
    let built = built.ok_or_else(|| format!("{errors}{}", String::from_utf8_lossy(&output.stderr)))?;
    fs::copy(&built, program).map_err(|error| error.to_string())?;
    Ok(program.to_owned())
}

/// Runs the law of a mutant as often as requested. Every run must fail. Returns the message of the last failure.
fn run(mutant: &Mutant, program: &Path) -> Result<String, String> {
    let times = std::env::var("TENURE_TEST_MUTANT_RUNS").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let outcome = (1..times).try_for_each(|_| run_once(mutant, program).map(drop));
    let outcome = outcome.and_then(|()| run_once(mutant, program));
    let _ = fs::remove_file(program);
    outcome
}

fn run_once(mutant: &Mutant, program: &Path) -> Result<String, String> {
    let trial = format!("{}::{}", mutant.on, mutant.caught_by);
    let output = run_in_time(Command::new(program).args(["--exact", &trial]).env("TENURE_TEST_PATIENCE", "4"));
    let output = output.map_err(|error| format!("{}: {error}", mutant.name))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let failure = said.split_once(&format!("---- {trial} ----\n")).and_then(|(_, rest)| rest.lines().next());
    match failure {
        Some(failure) if !output.status.success() => Ok(format!("{} by {trial}: {failure}", mutant.name)),
        _ => Err(format!("{} is not caught by {trial}:\n{said}", mutant.name)),
    }
}

fn run_in_time(command: &mut Command) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other("the run timed out without a failure of the law"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output()
}
