//! `mode=lease` behind PgBouncer, which runs each transaction in any session that is free.

mod common;

use common::{LEASE, acted_above, leading, runtime, stand_for, within};
use tenure_core::Token;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::{PgBouncer, Postgres, PostgresSetup};

#[test]
fn a_release_is_found_by_polling_and_nothing_is_set_for_a_session() {
    let server = counting_server();
    let pooler = PgBouncer::before(&server);
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let leader = stand_for(LEASE, &pooler.url(), "jobs", &detector);
        let first = leader.elected().await;
        let other = stand_for(LEASE, &pooler.url(), "jobs", &detector);
        within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
        leader.election.stop();
        let second = acted_above(&detector, first).await;
        assert_eq!(other.elected().await, second);
        assert_eq!(second.get(), first.get() + 1, "the seat expired instead of being released");
        detector.acts_do_not_overlap().unwrap();
        // None of these ran: their effect would stay in a session that another client uses next.
        for like in ["LISTEN%", "SET%timeout%", "%pg_try_advisory_lock%"] {
            assert_eq!(calls(&server, like), "0", "{like}");
        }
    });
}

#[test]
fn a_restart_of_the_pooler_costs_no_term() {
    let server = Postgres::start();
    let mut pooler = PgBouncer::before(&server);
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let leader = stand_for(LEASE * 4, &pooler.url(), "jobs", &detector);
        let token = leader.elected().await;
        let _other = stand_for(LEASE * 4, &pooler.url(), "jobs", &detector);
        for _ in 0..3 {
            pooler.restart();
            let renewals = leader.counter.counts().renewals;
            within("the leader renews again", leader.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
        }
        assert_eq!(leader.elected().await, token);
        assert_eq!(detector.work_spans(), 1, "the term was lost");
    });
}

#[test]
fn a_leader_and_a_follower_on_either_side_of_a_pooler_agree() {
    let server = Postgres::start();
    let pooler = PgBouncer::before(&server);
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let candidates = [pooler.url(), server.url()].map(|url| stand_for(LEASE, &url, "jobs", &detector));
        let mut token = Token::ZERO;
        for _ in 0..4 {
            token = acted_above(&detector, token).await;
            leading(&candidates).await.election.step_down();
        }
        detector.acts_do_not_overlap().unwrap();
    });
}

fn counting_server() -> Postgres {
    let server = PostgresSetup::new().with("shared_preload_libraries=pg_stat_statements").start();
    server.sql("CREATE EXTENSION pg_stat_statements");
    server
}

/// Returns how many statements like this the server has run.
fn calls(server: &Postgres, like: &str) -> String {
    server.sql(&format!("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query ILIKE '{like}'"))
}
