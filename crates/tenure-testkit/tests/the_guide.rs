//! The code in the guide for store authors compiles and passes the laws: every code block occurs in the sources, line
//! by line.

use std::fs;
use std::path::Path;

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_code_block_of_the_guide_occurs_in_the_sources() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(here.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let with_sessions = "../tenure-kit/examples/session_store/store.rs";
    let sources = ["examples/folder_store/store.rs", with_sessions, "tests/folder_store.rs", "Cargo.toml"].map(read);
    let sources: Vec<_> = sources.iter().map(|source| lines(source)).collect();
    let guide = read("../../docs/writing-a-store.md");

    let mut blocks = 0;
    for block in guide.split("```").skip(1).step_by(2) {
        let Some(code) = block.strip_prefix("rust\n").or_else(|| block.strip_prefix("toml\n")) else { continue };
        let code = lines(code);
        let found = sources.iter().any(|source| source.windows(code.len()).any(|window| window == code));
        assert!(found, "this code block of the guide does not occur in the sources:\n{}", code.join("\n"));
        blocks += 1;
    }
    assert!(blocks >= 10, "the guide has only {blocks} code blocks");
}
