//! Copies the source of the machines for each file in `src/mutants`, with one replacement in it.
//!
//! The machines themselves are not changed: broken rules exist only in the build output.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The files that a mutant can change, those of the machine first. A mutant has its own copy of the part that
/// it changes, and shares all other parts with the real ones.
const SOURCES: [&str; 13] = [
    "machine.rs",
    "machine/answers.rs",
    "machine/claims.rs",
    "machine/fitness.rs",
    "machine/next.rs",
    "machine/outputs.rs",
    "machine/term.rs",
    "machine/precedence.rs",
    "observation.rs",
    "presence.rs",
    "admission.rs",
    "subscriptions.rs",
    "last_will.rs",
];
/// How many of these files belong to the machine.
const OF_MACHINE: usize = 9;

struct Mutant {
    name: String,
    about: String,
    file: String,
    caught_by: String,
    find: String,
    replace: String,
}

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("CARGO_MANIFEST_DIR is not set"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("OUT_DIR is not set"));
    let protocol = here.join("../tenure-protocol/src");
    let folder = here.join("src/mutants");
    println!("cargo::rerun-if-changed={}", folder.display());
    let sources = SOURCES.map(|file| {
        let path = protocol.join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        (file, fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())))
    });

    let mut paths: Vec<_> = fs::read_dir(&folder)
        .expect("cannot list src/mutants")
        .map(|entry| entry.expect("cannot list src/mutants").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "mutant"));
    paths.sort();

    let (mut modules, mut list) = (String::new(), String::new());
    for path in paths {
        println!("cargo::rerun-if-changed={}", path.display());
        let mutant = parse(&path);
        write_copy(&mutant, &sources, &out.join(&mutant.name));
        let Mutant { name, about, caught_by, .. } = &mutant;
        let folder = out.join(name);
        let path = |file: &str| folder.join(file).display().to_string();
        // Its modules, how the world drives them, and how it creates them.
        let (parts, drive, make): (&[&str], _, _) = match mutant.file.as_str() {
            "presence.rs" => (
                &["presence"],
                format!("crate::driven::drive_presence!({name}::presence::Presence<(), RosterEntry>);"),
                format!("presence: || Box::new({name}::presence::Presence::new())"),
            ),
            "admission.rs" => (
                &["admission"],
                format!("crate::driven::drive_admission!({name}::admission);"),
                format!(
                    "admission: |reads, writes| {{ let most = |most: BatchLimits| {name}::admission::BatchLimits {{ seats: most.seats, \
                         calls: most.calls }}; Box::new({name}::admission::Admission::new(most(reads), most(writes))) }}"
                ),
            ),
            "subscriptions.rs" => (
                &["subscriptions"],
                format!("crate::driven::drive_subscriptions!({name}::subscriptions);"),
                format!("subscriptions: || Box::new({name}::subscriptions::Subscriptions::new())"),
            ),
            "last_will.rs" => (
                &["last_will"],
                String::new(),
                format!(
                    "will: |candidate, reading, nonce| {{ let will = {name}::last_will::LastWill {{ candidate, \
                         by: \"test\".into() }}; match will.step(reading, nonce) {{ \
                         {name}::last_will::WillStep::Free {{ expected, record }} => Some((expected, *record)), _ => None }} }}"
                ),
            ),
            _ => (
                &["machine/mod", "observation"],
                format!("crate::driven::drive!({name}::machine::Machine);"),
                format!("machine: |me, rules, seed| Box::new({name}::machine::Machine::new(me, rules, seed))"),
            ),
        };
        let _ = writeln!(modules, "#[allow(warnings, clippy::all, reason = \"broken on purpose\")]\nmod {name} {{");
        for part in parts {
            let (file, module) = (path(&format!("{part}.rs")), part.trim_end_matches("/mod"));
            let _ = writeln!(modules, "    #[path = {file:?}]\n    pub(super) mod {module};");
        }
        let _ = writeln!(modules, "}}\n{drive}");
        let _ = writeln!(
            list,
            "    Mutant {{ name: {name:?}, about: {about:?}, caught_by: {caught_by:?}, make: Parts {{ {make}, ..REAL }} }},"
        );
    }
    let text = format!("{modules}\nconst ALL: &[Mutant] = &[\n{list}];\n");
    fs::write(out.join("mutants.rs"), text).expect("cannot write to OUT_DIR");
}

/// Parses a mutant: the description, `file:`, `caught by:`, `--- find`, `--- replace`.
fn parse(path: &Path) -> Mutant {
    let name = path.file_stem().and_then(|stem| stem.to_str()).expect("the file name is not UTF-8").to_owned();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
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
    let of_machine = |source: &str| SOURCES[..OF_MACHINE].contains(&source);
    for (source, text) in
        sources.iter().filter(|(source, _)| source == file || (of_machine(source) && of_machine(file)))
    {
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
            .replace("tenure_protocol::observation", &format!("crate::mutants::{name}::observation"));
        // A file reached by a path attribute looks for its own modules beside it.
        let to = if *source == "machine.rs" { "machine/mod.rs" } else { source };
        fs::write(folder.join(to), text).expect("OUT_DIR is writable");
    }
}
