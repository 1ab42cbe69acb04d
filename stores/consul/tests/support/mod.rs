//! Candidates at one desk, whose work tells whether two ever led at once.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

use std::time::Duration;

use tenure_consul::ConsulStore;
use tenure_core::Builder;
use tenure_testkit::Desk;
pub(crate) use tenure_testkit::contender::{Contender, acted_above, leading, told, until, within};

/// Short, but with room for a busy machine. Consul ends a session after twice as long.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// The key of the one seat of a test.
pub(crate) const SEAT: &str = "tenure/seats/jobs/seat";

/// A candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, desk: &Desk) -> Contender {
    stand_with(url, id, desk, |election| election)
}

pub(crate) fn stand_with(url: &str, id: &str, desk: &Desk, configure: impl FnOnce(Builder) -> Builder) -> Contender {
    Contender::stand(ConsulStore::from_url(url).unwrap(), id, desk, |election| configure(election.lease(LEASE)))
}
