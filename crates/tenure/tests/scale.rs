//! Five hundred elections in one process.

use tenure_testkit::figures::{MemoryTarget, Open, crowd_child, scale};

const OPEN: Open = |url| tenure::connect(url).expect("a URL that can be read");

#[test]
fn five_hundred_elections_share_a_memory() {
    scale::check(&MemoryTarget, OPEN, 500);
}

/// Many elections, if this process was started for them.
#[test]
fn crowd() {
    crowd_child(OPEN);
}
