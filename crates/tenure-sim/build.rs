//! Makes a copy of the machines' sources for each file in `src/mutants`, with one replacement in it.
//!
//! The machines themselves stay as they are: what is broken on purpose exists only in the build's output.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The files that a mutant has its own copy of; everything else it shares with the real machine.
const SOURCES: [&str; 9] = [
    "machine.rs",
    "machine/answers.rs",
    "machine/fitness.rs",
    "machine/next.rs",
    "machine/tell.rs",
    "machine/term.rs",
    "machine/turn.rs",
    "presence.rs",
    "sight.rs",
];

struct Mutant {
    name: String,
    about: String,
    file: String,
    caught_by: String,
    find: String,
    replace: String,
}

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let protocol = here.join("../tenure-protocol/src");
    let folder = here.join("src/mutants");
    println!("cargo::rerun-if-changed={}", folder.display());
    let sources = SOURCES.map(|file| {
        let path = protocol.join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        (file, fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    });

    let mut paths: Vec<_> =
        fs::read_dir(&folder).expect("src/mutants").map(|entry| entry.expect("entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "mutant"));
    paths.sort();

    let (mut modules, mut list) = (String::new(), String::new());
    for path in paths {
        println!("cargo::rerun-if-changed={}", path.display());
        let mutant = parse(&path);
        write_copy(&mutant, &sources, &out.join(&mutant.name));
        let Mutant { name, about, caught_by, .. } = &mutant;
        let folder = out.join(name);
        let _ = write!(
            modules,
            r#"
#[allow(warnings, clippy::all, reason = "broken on purpose")]
mod {name} {{
    #[path = {machine:?}]
    pub(super) mod machine;
    #[path = {presence:?}]
    pub(super) mod presence;
    #[path = {sight:?}]
    mod sight;
}}
const _: () = {{
    use tenure_protocol::{{Action, Input, Moment, PresenceAction, PresenceInput, Standing, Token}};
    crate::driven::drive!({name}::machine::Machine);
    crate::driven::drive_presence!({name}::presence::Presence<(), Standing>);
}};
"#,
            machine = folder.join("machine/mod.rs"),
            presence = folder.join("presence.rs"),
            sight = folder.join("sight.rs"),
        );
        let _ = writeln!(
            list,
            "    Mutant {{ name: {name:?}, about: {about:?}, caught_by: {caught_by:?}, \
             make: Parts {{ machine: |me, rules, seed| Box::new({name}::machine::Machine::new(me, rules, seed)), \
             presence: || Box::new({name}::presence::Presence::new(false)) }} }},"
        );
    }
    let text = format!("{modules}\nconst ALL: &[Mutant] = &[\n{list}];\n");
    fs::write(out.join("mutants.rs"), text).expect("OUT_DIR is writable");
}

/// Reads a mutant: what is broken, `file:`, `caught by:`, `--- find`, `--- replace`.
fn parse(path: &Path) -> Mutant {
    let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a readable name").to_owned();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let part = |after: &str, before: &str| -> String {
        let from =
            text.find(after).unwrap_or_else(|| panic!("mutant {name}: there is no `{}`", after.trim())) + after.len();
        let rest = &text[from..];
        let to = if before.is_empty() {
            rest.len()
        } else {
            rest.find(before).unwrap_or_else(|| panic!("mutant {name}: there is no `{}`", before.trim()))
        };
        rest[..to].trim_end_matches('\n').to_owned()
    };
    let about = text[..text.find("\nfile:").unwrap_or(0)].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!about.is_empty(), "mutant {name}: say first what is broken");
    Mutant {
        about,
        file: part("\nfile:", "\n").trim().to_owned(),
        caught_by: part("\ncaught by:", "\n").trim().to_owned(),
        find: part("\n--- find\n", "\n--- replace"),
        replace: part("\n--- replace\n", ""),
        name,
    }
}

fn write_copy(mutant: &Mutant, sources: &[(&str, String)], folder: &Path) {
    let Mutant { name, file, find, replace, .. } = mutant;
    assert!(SOURCES.contains(&file.as_str()), "mutant {name}: there is no file {file}, only {SOURCES:?}");
    fs::create_dir_all(folder.join("machine")).expect("OUT_DIR is writable");
    for (source, text) in sources {
        let mut text = text.clone();
        if source == file {
            let times = text.matches(find.as_str()).count();
            assert!(times == 1, "mutant {name}: its text is found {times} times in {file}, not once:\n{find}");
            text = text.replacen(find.as_str(), replace, 1);
        }
        // The machine's own tests have no business here.
        if let Some(tests) = text.find("#[cfg(test)]") {
            text.truncate(tests);
        }
        let text = text
            .replace("crate::", "tenure_protocol::")
            .replace("tenure_protocol::sight", &format!("crate::mutants::{name}::sight"));
        // A file reached by a path attribute looks for its own modules beside it.
        let to = if *source == "machine.rs" { "machine/mod.rs" } else { source };
        fs::write(folder.join(to), text).expect("OUT_DIR is writable");
    }
}
