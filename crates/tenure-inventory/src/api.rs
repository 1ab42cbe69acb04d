//! Lists the public items of the library crates, from the JSON output of rustdoc.
//!
//! JSON output is an unstable option of rustdoc. A stable toolchain accepts unstable options if `RUSTC_BOOTSTRAP` is set.
//! Build scripts read that variable, too: setting it for cargo would compile many dependencies again. So cargo runs this
//! program in place of rustdoc, and this program sets the variable and runs rustdoc.

mod items;
mod signature;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::process::{Command, ExitCode};

use serde_json::Value;

use self::items::{Item, items};
use crate::page::{self, Mode};
use crate::workspace::{Workspace, cargo};

/// The environment variable with the path of rustdoc. It is set while cargo runs this program in place of rustdoc.
pub(crate) const RUSTDOC: &str = "TENURE_INVENTORY_RUSTDOC";

/// The supported versions of the JSON format. Rust 1.89 writes the first one. In all of them, the fields that this crate
/// reads have the same meaning. To support a later version, compare its `rustdoc-types` with the last one here.
const FORMATS: RangeInclusive<u64> = 53..=61;

/// The shortest documentation that `--undocumented` accepts, in characters.
const TOO_SHORT: usize = 40;

const FOLDER: &str = "docs/public-api";

/// Runs rustdoc with unstable options enabled, and returns its exit code.
pub(crate) fn be_rustdoc(rustdoc: &OsStr) -> ExitCode {
    let status = Command::new(rustdoc).args(std::env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").status();
    match status {
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
        Err(error) => {
            eprintln!("error: cannot run rustdoc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes or checks the lists of public items, one file for each crate.
pub(crate) fn list(mode: Mode) -> Result<(), String> {
    let workspace = Workspace::load()?;
    let Some(crates) = crates(&workspace)? else { return Ok(()) };
    let mut up_to_date = true;
    for (name, items) in &crates {
        let mut text = format!("# The public items of {name}, listed by scripts/api.\n");
        items.iter().for_each(|item| text.extend([&item.line, "\n"]));
        up_to_date &= page::put(mode, &workspace.root, &format!("{FOLDER}/{name}.txt"), &text)?;
    }
    up_to_date &= no_others(mode, &workspace, &crates)?;
    if up_to_date { Ok(()) } else { Err(format!("{FOLDER} is out of date: run scripts/api and commit the result")) }
}

/// Removes or reports the lists of crates that no longer exist. Returns whether there were none to report.
fn no_others(mode: Mode, workspace: &Workspace, crates: &BTreeMap<String, Vec<Item>>) -> Result<bool, String> {
    let mut none = true;
    let folder = fs::read_dir(workspace.root.join(FOLDER)).into_iter().flatten().flatten();
    for path in folder.map(|entry| entry.path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if crates.contains_key(&name) {
            continue;
        }
        match mode {
            Mode::Write => {
                fs::remove_file(&path).map_err(|error| format!("cannot remove the list of {name}: {error}"))?
            }
            Mode::Check => {
                println!("{FOLDER}/{name}.txt lists a crate that does not exist");
                none = false;
            }
        }
    }
    Ok(none)
}

/// Prints the public items whose documentation is too short, and counts them for each crate.
pub(crate) fn undocumented() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let Some(crates) = crates(&workspace)? else { return Ok(()) };
    let mut counts = Vec::new();
    let (mut short, mut all) = (0, 0);
    for (name, items) in &crates {
        let documented: Vec<(&Item, usize)> =
            items.iter().filter_map(|item| Some((item, item.documentation?))).collect();
        let too_short: Vec<_> = documented.iter().filter(|(_, length)| *length < TOO_SHORT).collect();
        too_short.iter().for_each(|(item, length)| println!("{length:>3}  {}", item.path));
        counts.push(format!("{:>5} of {:>5}  {name}", too_short.len(), documented.len()));
        short += too_short.len();
        all += documented.len();
    }
    println!("\nitems with fewer than {TOO_SHORT} characters of documentation:");
    counts.iter().for_each(|count| println!("{count}"));
    println!("{short:>5} of {all:>5}  in all");
    Ok(())
}

/// Returns the items of each published library. Returns `None`, and prints the reason, if the JSON format is unknown.
fn crates(workspace: &Workspace) -> Result<Option<BTreeMap<String, Vec<Item>>>, String> {
    document()?;
    let mut crates = BTreeMap::new();
    for package in workspace.packages.iter().filter(|package| package.published) {
        let Some(library) = &package.library else { continue };
        let file = workspace.target.join("doc").join(library).with_extension("json");
        let json = fs::read(&file).map_err(|error| format!("cannot read the rustdoc JSON of {library}: {error}"))?;
        let json: Value = serde_json::from_slice(&json).map_err(|error| format!("{library}: {error}"))?;
        let format = json["format_version"].as_u64().unwrap_or(0);
        if !FORMATS.contains(&format) {
            println!("skipped: the public API is not checked: this toolchain writes rustdoc JSON of version {format},");
            println!(
                "and scripts/api reads versions {} to {} (crates/tenure-inventory/src/api.rs)",
                FORMATS.start(),
                FORMATS.end()
            );
            return Ok(None);
        }
        crates.insert(package.name.clone(), items(&json));
    }
    Ok(Some(crates))
}

/// Makes rustdoc write its JSON. The packages and features are the same as in the stage "documentation" of
/// `scripts/test`, so the two share all compiled dependencies.
fn document() -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let status = cargo()
        .args(["doc", "--quiet", "--workspace", "--lib", "--no-deps", "--all-features"])
        .env(RUSTDOC, std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()))
        .env("RUSTDOC", this)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow")
        .status()
        .map_err(|error| format!("cannot run cargo doc: {error}"))?;
    if status.success() { Ok(()) } else { Err("cargo doc failed".to_owned()) }
}
