//! A program that uses the library with a companion. Its work does the same as the command of the other candidates.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use super::scene::TENURE;

/// Stands with the arguments `STORE LEASE CANDIDATE FILE`, and works in each of its terms until it is killed.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) {
    let [url, lease, name, path] = [(); 4].map(|()| arguments.next().expect("four arguments"));
    let lease: Duration = tenure::span::parse(&lease).expect("a duration");
    let store = tenure::connect_with_last_will(&url, TENURE).expect("a companion");
    let elections = tenure::Elections::new(store);
    let election = elections.election("bench").candidate(name.as_str()).lease(lease).start().expect("a candidate");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    while let Ok(term) = election.elected_blocking() {
        let file = File::options().create(true).append(true).open(&path).expect("a file of the bench");
        let how = if file.try_lock().is_ok() { "alone" } else { "overlap" };
        let _ = std::io::stdout().write_all(format!("{how} {} {name}\n", term.token()).as_bytes());
        runtime.block_on(term.ended());
    }
}
