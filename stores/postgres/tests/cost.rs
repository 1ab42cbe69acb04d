//! The cost of elections, by the server's own count of statements.

mod common;

use std::time::Duration;

use common::{MODES, acted_above, runtime, stand, within};
use tenure_core::{Elections, Token};
use tenure_postgres::PostgresStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::{Postgres, PostgresSetup};
use tenure_testkit::wrap::Counting;

#[test]
fn a_renewal_is_one_statement_and_a_follower_reads_once_a_lease() {
    for mode in MODES {
        check_cost(mode);
    }
}

fn check_cost(mode: &str) {
    let server = counting_server();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let url = format!("{}{mode}", server.url());
        let leader = stand(&url, "jobs", &detector);
        acted_above(&detector, Token::ZERO).await;
        let follower = stand(&url, "jobs", &detector);
        // Both finish their start-up meanwhile.
        tokio::time::sleep(common::LEASE * 2).await;
        let before =
            (leader.counter.counts(), follower.counter.counts(), calls(&server, SEATS), calls(&server, ANNOUNCING));
        let leases = 6;
        tokio::time::sleep(common::LEASE * leases).await;
        let renewed = || leader.counter.counts().renewals - before.0.renewals;
        let (all, announced) = (calls(&server, SEATS) - before.2, calls(&server, ANNOUNCING) - before.3);
        let after = follower.counter.counts();
        let (renewals, reads) = (renewed(), after.reads - before.1.reads);
        println!(
            "{mode}: {renewals} renewals and {reads} looks in {leases} leases took {all} statements, and {announced} announcements"
        );
        assert!(renewals >= 12, "{renewals}");
        let regular = after.regular_reads_since(&before.1);
        assert!(regular <= u64::from(leases) + 3, "a follower has read {regular} times in {leases} leases");
        // Some statements may run between the two counts.
        assert!(all <= renewals + reads + 3, "{all} statements for {renewals} renewals and {reads} reads");
        // Two processes announce themselves once a lease each.
        assert!(announced >= u64::from(leases), "only {announced} announcements in {leases} leases: are they counted?");
        assert!(announced <= renewals * 2 / 3 + 3, "{announced} announcements for {renewals} renewals");
    });
}

#[test]
fn one_heartbeat_serves_all_seats_of_a_session() {
    let server = counting_server();
    runtime().block_on(async {
        let (store, counter) =
            Counting::new(PostgresStore::from_url(&format!("{}?mode=session", server.url())).unwrap());
        let elections = Elections::new(store);
        let lease = Duration::from_secs(3);
        let seats: Vec<_> =
            (0..50).map(|number| elections.election(format!("seat-{number}")).lease(lease).start().unwrap()).collect();
        for seat in &seats {
            within("the candidate leads", seat.elected()).await.unwrap();
        }
        let beats = || calls(&server, "SELECT array_agg(seat.version)%");
        let before = (counter.counts().renewals, beats());
        tokio::time::sleep(lease * 2).await;
        let (renewals, beats) = (counter.counts().renewals - before.0, beats() - before.1);
        println!("{renewals} renewals of 50 seats in two leases took {beats} statements");
        assert!(renewals >= 200, "{renewals}");
        assert!(beats <= 12, "{renewals} renewals took {beats} statements");
        assert!(seats.iter().all(|seat| seat.is_leader()));
    });
}

/// Statements about seats.
const SEATS: &str = "%\"tenure\".seats%";

/// Statements by which a process announces itself.
const ANNOUNCING: &str = "%INSERT INTO \"tenure\".notes%";

fn counting_server() -> Postgres {
    let server = PostgresSetup::new().with("shared_preload_libraries=pg_stat_statements").start();
    server.sql("CREATE EXTENSION pg_stat_statements");
    server
}

/// Returns how many statements like this the server has run so far.
fn calls(server: &Postgres, like: &str) -> u64 {
    let sql = format!("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '{like}'");
    server.sql(&sql).parse().unwrap()
}
