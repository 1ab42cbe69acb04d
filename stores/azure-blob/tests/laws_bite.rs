//! The laws catch a server that ignores conditions and leases: a stand-in that obeys those of the probe, and no others.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{LEASE, StandIn, open};
use tenure_core::DynStore;
use tenure_testkit::{Subject, laws};

struct Container(StandIn);

impl Subject for Container {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(open(&self.0.url()))
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[test]
fn the_laws_catch_a_server_that_ignores_conditions_after_the_probe() {
    for name in [
        "one_of_many_racing_bids_wins",
        "a_swap_on_a_stale_version_loses_and_changes_nothing",
        "a_bid_on_a_living_session_is_lost",
        "a_renewal_of_a_lost_seat_is_lost",
    ] {
        let law = laws::all().into_iter().find(|law| law.name == name).unwrap();
        law.check_on(Arc::new(Container(StandIn::start()))).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        let verdict = law.check_on(Arc::new(Container(StandIn::start().ignoring_conditions_of_seats())));
        assert!(verdict.is_err(), "{name} passes although the server ignores conditions");
    }
}
