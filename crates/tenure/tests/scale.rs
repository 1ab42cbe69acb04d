//! Five hundred elections in one process.

use tenure_testkit::figures::{MemoryTarget, Open, many_elections_child, scale};

const OPEN: Open = |url| tenure::connect(url).expect("a valid URL");

#[test]
fn five_hundred_elections_share_a_memory() {
    scale::check(&MemoryTarget, OPEN, 500);
}

/// Runs many elections if another test has started this process for that.
#[test]
fn many_elections() {
    many_elections_child(OPEN);
}
