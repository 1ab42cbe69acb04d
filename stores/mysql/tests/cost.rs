//! The cost of elections, by the server's own log of the batches that it received.

mod common;

use std::time::Duration;

use common::{LEASE, MODES, acted_above, runtime, stand, within};
use tenure_core::{Elections, Token};
use tenure_mysql::MysqlStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::{Mysql, MysqlSetup};
use tenure_testkit::wrap::Counting;

#[test]
fn a_renewal_is_one_batch_and_a_follower_reads_every_third_of_a_lease() {
    for mode in MODES {
        check_cost(mode);
    }
}

fn check_cost(mode: &str) {
    let server = logging_server();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let url = format!("{}{mode}", server.url());
        let leader = stand(&url, "jobs", &detector);
        acted_above(&detector, Token::ZERO).await;
        let followers = [(); 3].map(|()| stand(&url, "jobs", &detector));
        // All finish their start-up meanwhile.
        tokio::time::sleep(LEASE * 2).await;
        let looks = || followers.iter().map(|follower| follower.counter.counts().reads).sum::<u64>();
        let counts = || [SEATS, WAITS, NOTES].map(|like| received(&server, like));
        let before = (leader.counter.counts().renewals, looks(), counts());
        let leases = 6;
        tokio::time::sleep(LEASE * leases).await;
        let (renewals, reads, after) = (leader.counter.counts().renewals - before.0, looks() - before.1, counts());
        let [seats, waits, notes] = [0, 1, 2].map(|kind| after[kind] - before.2[kind]);
        println!(
            "{mode}: in {leases} leases, {renewals} renewals and {reads} looks of three followers took {seats} batches; {waits} \
             waits, and {notes} announcements and looks at requests"
        );
        let leases = u64::from(leases);
        assert!(renewals >= 2 * leases, "{renewals}");
        assert!(reads <= 3 * (3 * leases + 3), "three followers have read {reads} times in {leases} leases");
        // Some batches may run between the two counts.
        assert!(seats <= renewals + reads + 3, "{seats} batches for {renewals} renewals and {reads} reads");
        // A wait lasts for five seconds.
        let slices = LEASE.as_secs_f64() * leases as f64 / 5.0;
        let most = if mode.contains("session") { 3 * (slices as u64 + 2) } else { 0 };
        assert!(waits <= most, "three followers waited {waits} times");
        // Each process announces itself once a lease, and the leader looks at its requests with each renewal.
        assert!(notes >= leases, "only {notes} batches about notes in {leases} leases: are they counted?");
        assert!(notes <= 4 * (leases + 2) + renewals + 3, "{notes} batches about notes for {renewals} renewals");
        // A follower that waits holds no transaction, and so no snapshot.
        assert_eq!(server.sql("SELECT COUNT(*) FROM information_schema.INNODB_TRX"), "0", "{mode}");
    });
}

#[test]
fn one_heartbeat_serves_all_seats_of_a_session() {
    let server = logging_server();
    runtime().block_on(async {
        let (store, counter) = Counting::new(MysqlStore::from_url(&format!("{}?mode=session", server.url())).unwrap());
        let elections = Elections::new(store);
        let lease = Duration::from_secs(3);
        let seats: Vec<_> =
            (0..50).map(|number| elections.election(format!("seat-{number}")).lease(lease).start().unwrap()).collect();
        for seat in &seats {
            within("the candidate leads", seat.elected()).await.unwrap();
        }
        let beats = || received(&server, "SELECT version FROM%");
        let before = (counter.counts().renewals, beats());
        tokio::time::sleep(lease * 2).await;
        let (renewals, beats) = (counter.counts().renewals - before.0, beats() - before.1);
        println!("{renewals} renewals of 50 seats in two leases took {beats} statements");
        assert!(renewals >= 200, "{renewals}");
        assert!(beats <= 12, "{renewals} renewals took {beats} statements");
        assert!(seats.iter().all(|seat| seat.is_leader()));
    });
}

/// Batches about seats.
const SEATS: &str = "%`tenure_seats`%";

/// Batches by which a follower waits for the leader.
const WAITS: &str = "SELECT CASE WHEN IS_USED_LOCK%";

/// Batches about notes.
const NOTES: &str = "%`tenure_notes`%";

fn logging_server() -> Mysql {
    MysqlSetup::new().with("log-output=TABLE").with("general-log=ON").start()
}

/// Returns how many batches like this the server has received so far.
fn received(server: &Mysql, like: &str) -> u64 {
    let sql = format!(
        "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE '{like}' \
         AND argument NOT LIKE '%general_log%' AND argument NOT LIKE '%CREATE TABLE%'"
    );
    server.sql(&sql).parse().unwrap()
}
