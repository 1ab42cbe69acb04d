//! Candidates at one desk, whose work tells whether two ever led at once.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

use std::time::Duration;

use tenure_core::Builder;
use tenure_etcd::EtcdStore;
use tenure_testkit::Desk;
pub(crate) use tenure_testkit::contender::{Contender, acted_above, told, until, within};

/// A candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, desk: &Desk) -> Contender {
    stand_with(url, id, lease, desk, |election| election)
}

pub(crate) fn stand_with(
    url: &str,
    id: &str,
    lease: Duration,
    desk: &Desk,
    configure: impl FnOnce(Builder) -> Builder,
) -> Contender {
    Contender::stand(EtcdStore::from_url(url).unwrap(), id, desk, |election| configure(election.lease(lease)))
}
