//! Calls that share a statement: each gets its own answer, whatever becomes of the others.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{PATIENCE, runtime, within};
use futures_util::future::join_all;
use tenure_core::{
    Board, Candidate, Fault, Incarnation, Note, NoteKind, Record, SeatName, SeatStore, StoreError, Swap, Token, Version,
};
use tenure_postgres::PostgresStore;
use tenure_testkit::contender::told;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{PgBouncer, Postgres, PostgresSetup};
use tokio_postgres::{Client, NoTls};

fn seat(number: usize) -> SeatName {
    SeatName::new(format!("seat-{number:04}")).unwrap()
}

fn record(token: u64) -> Record {
    Record {
        holder: Some(Candidate { id: "web-1".into(), incarnation: Incarnation::from_bits(7) }),
        token: Token::new(token),
        lease: Duration::from_secs(30),
        since_ms: None,
        heir: None,
        metadata: BTreeMap::new().into(),
        priority: 0,
        ranked: false,
        nonce: rand::random(),
        unknown: BTreeMap::new().into(),
    }
}

/// Wins so many seats at once.
async fn win(store: &PostgresStore, count: usize) -> Vec<Version> {
    let swaps = (0..count).map(|number| async move {
        let swap = store.swap(&seat(number), None, &record(1)).await.unwrap();
        version_of(swap).expect("there was none")
    });
    within("that all are won", join_all(swaps)).await
}

fn version_of(swap: Swap) -> Option<Version> {
    match swap {
        Swap::Done { version, .. } => Some(version),
        Swap::Lost => None,
    }
}

/// A connection of somebody else.
async fn other(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn statements(server: &Postgres) -> u64 {
    let sql = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%\"tenure\".%'";
    server.sql(sql).parse().unwrap()
}

fn counting_server() -> Postgres {
    let server = PostgresSetup::new().with("shared_preload_libraries=pg_stat_statements").start();
    server.sql("CREATE EXTENSION pg_stat_statements");
    server
}

#[test]
fn calls_that_are_due_together_are_few_statements_and_each_has_its_own_answer() {
    for through_a_pooler in [false, true] {
        let server = counting_server();
        let pooler = through_a_pooler.then(|| PgBouncer::before(&server));
        let url = pooler.as_ref().map_or(server.url(), PgBouncer::url);
        runtime().block_on(async {
            let store = PostgresStore::at(&url).unwrap();
            store.read(&seat(0)).await.unwrap();
            let before = statements(&server);
            let versions = win(&store, 400).await;
            let renewals = versions.iter().enumerate().map(|(number, version)| {
                // Every fourth expects what was never there.
                let held = if number % 4 == 0 { Version::new("0:0") } else { version.clone() };
                let store = &store;
                async move { store.renew(&seat(number), &held, &record(1)).await.unwrap() }
            });
            let renewed: Vec<_> = join_all(renewals).await.into_iter().map(version_of).collect();
            let reads = join_all((0..400).map(|number| {
                let store = &store;
                async move { store.read(&seat(number)).await.unwrap().seat.unwrap() }
            }))
            .await;
            for (number, read) in reads.iter().enumerate() {
                assert_eq!(renewed[number].is_none(), number % 4 == 0, "{number}");
                assert_eq!(&read.version, renewed[number].as_ref().unwrap_or(&versions[number]), "{number}");
            }
            let asked = statements(&server) - before;
            println!("1200 calls were {asked} statements");
            assert!(asked <= 120, "1200 calls were {asked} statements");
        });
    }
}

#[test]
fn two_writes_of_one_seat_do_not_share_an_answer() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let won = join_all((0..50).map(|_| store_swap(&store, None))).await;
        let won: Vec<_> = won.into_iter().filter_map(|swap| version_of(swap.unwrap())).collect();
        assert_eq!(won.len(), 1);
        let next = join_all((0..50).map(|_| store_swap(&store, Some(&won[0])))).await;
        let next: Vec<_> = next.into_iter().filter_map(|swap| version_of(swap.unwrap())).collect();
        assert_eq!(next.len(), 1);
        assert_eq!(store.read(&seat(0)).await.unwrap().seat.unwrap().version, next[0]);
    });
}

async fn store_swap(store: &PostgresStore, expected: Option<&Version>) -> Result<Swap, StoreError> {
    store.swap(&seat(0), expected, &record(2)).await
}

#[test]
fn a_row_that_somebody_else_has_locked_delays_nobody() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let versions = win(&store, 100).await;
        let blocker = other(&server).await;
        blocker.batch_execute("BEGIN; SELECT 1 FROM tenure.seats WHERE name = 'seat-0042' FOR UPDATE").await.unwrap();
        let renewals = versions.iter().enumerate().map(|(number, version)| {
            let store = &store;
            async move { store.renew(&seat(number), version, &record(1)).await }
        });
        for (number, answer) in within("answers", join_all(renewals)).await.into_iter().enumerate() {
            match answer {
                Ok(Swap::Done { .. }) => assert_ne!(number, 42),
                Err(error) => assert_eq!((number, error.fault()), (42, Fault::Refused), "{error}"),
                Ok(Swap::Lost) => panic!("{number} was lost, but nobody has taken it"),
            }
        }
        blocker.batch_execute("ROLLBACK").await.unwrap();
        let renewed = store.renew(&seat(42), &versions[42], &record(1)).await.unwrap();
        assert!(version_of(renewed).is_some());
    });
}

#[test]
fn a_seat_that_somebody_else_is_inserting_for_long_keeps_the_others_out_for_a_moment_only() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        store.read(&seat(0)).await.unwrap();
        let blocker = other(&server).await;
        let insert = "BEGIN; INSERT INTO tenure.seats (name, record, version, token, written) \
                      VALUES ('seat-0013', '', '', 1, now())";
        blocker.batch_execute(insert).await.unwrap();
        let mut open: Vec<usize> = (0..40).collect();
        let began = Instant::now();
        // As the engine would: whoever was refused comes again.
        while open.len() > 1 {
            assert!(began.elapsed() < PATIENCE, "{} seats cannot be won", open.len());
            let swaps = open.iter().map(|number| {
                let store = &store;
                async move { (*number, store.swap(&seat(*number), None, &record(1)).await) }
            });
            for (number, answer) in join_all(swaps).await {
                match answer {
                    Ok(Swap::Done { .. }) => open.retain(|other| *other != number),
                    Ok(Swap::Lost) => panic!("{number} was lost to nobody"),
                    Err(error) => assert_eq!(error.fault(), Fault::Refused, "{error}"),
                }
            }
        }
        assert_eq!(open, [13]);
        blocker.batch_execute("ROLLBACK").await.unwrap();
        let swap = store.swap(&seat(13), None, &record(1)).await.unwrap();
        assert!(version_of(swap).is_some());
    });
}

#[test]
fn what_the_database_cannot_hold_is_denied_to_who_said_it_and_to_nobody_else() {
    let server = Postgres::start();
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    for mode in common::MODES {
        let url = format!("{}/latin{mode}", server.url().trim_end_matches("/postgres"));
        runtime().block_on(async {
            let store = PostgresStore::at(&url).unwrap();
            store.read(&seat(0)).await.unwrap();
            let swaps = (0..60).map(|number| {
                let (store, mut record) = (&store, record(1));
                let zone = if number == 33 { "\u{2713}" } else { "a" };
                record.metadata = BTreeMap::from([("zone".to_owned(), zone.to_owned())]).into();
                async move { store.swap(&SeatName::new(format!("{number}{mode}")).unwrap(), None, &record).await }
            });
            for (number, answer) in join_all(swaps).await.into_iter().enumerate() {
                match answer {
                    Ok(swap) => assert!(number != 33 && version_of(swap).is_some(), "{number}"),
                    Err(error) => assert_eq!((number, error.fault()), (33, Fault::Denied), "{error}"),
                }
            }
            let notes = (0..30).map(|number| {
                let value = if number == 21 { "a\0b" } else { "{}" };
                let (key, value) = (number.to_string(), value.to_owned());
                let note = Note { kind: NoteKind::Request, key, value, lifetime: Duration::from_secs(60) };
                let store = &store;
                async move { store.put(&seat(0), &note).await }
            });
            for (number, answer) in join_all(notes).await.into_iter().enumerate() {
                assert_eq!(
                    answer.err().map(|error| error.fault()),
                    (number == 21).then_some(Fault::Denied),
                    "{number}"
                );
            }
            assert_eq!(store.list(&seat(0), NoteKind::Request).await.unwrap().len(), 29);
            // One for each seat that is held, and no other, whatever has failed in between.
            let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1";
            assert_eq!(server.sql(locks), if mode.contains("session") { "59" } else { "0" });
        });
    }
}

#[test]
fn a_call_that_is_given_up_costs_the_others_nothing() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let mut versions = win(&store, 100).await;
        for wait in [0, 1, 2, 5, 10] {
            let renewals = versions.iter().enumerate().map(|(number, version)| {
                let store = &store;
                async move {
                    let (seat, record) = (seat(number), record(1));
                    let renewal = store.renew(&seat, version, &record);
                    match number % 2 {
                        0 => Some(renewal.await.unwrap()),
                        _ => tokio::time::timeout(Duration::from_micros(100 * wait), renewal)
                            .await
                            .ok()
                            .map(Result::unwrap),
                    }
                }
            });
            let answers = within("answers", join_all(renewals)).await;
            assert!(answers.iter().step_by(2).all(Option::is_some));
            // Whoever has given up reads, and finds that it has happened or that it has not.
            for (number, answer) in answers.into_iter().enumerate() {
                let read = store.read(&seat(number)).await.unwrap().seat.unwrap();
                if let Some(swap) = answer {
                    assert_eq!(Some(&read.version), version_of(swap).as_ref(), "{number}");
                }
                versions[number] = read.version;
            }
        }
    });
}

#[test]
fn those_who_take_many_seats_in_other_orders_do_not_wait_for_each_other() {
    for mode in common::MODES {
        let server = Postgres::start();
        let url = format!("{}{mode}", server.url());
        runtime().block_on(async {
            let stores: Vec<_> = (0..4).map(|_| PostgresStore::at(&url).unwrap()).collect();
            join_all(stores.iter().map(|store| async { store.read(&seat(0)).await.unwrap() })).await;
            let bids = stores.iter().enumerate().flat_map(|(bidder, store)| {
                (0..300).map(move |number| async move {
                    let number = if bidder % 2 == 0 { number } else { 299 - number };
                    let swap = store.swap(&seat(number), None, &record(bidder as u64 + 1)).await;
                    version_of(swap.unwrap_or_else(|error| panic!("{number}: {error}"))).map(|_| number)
                })
            });
            let mut won: Vec<_> = within("all bids", join_all(bids)).await.into_iter().flatten().collect();
            won.sort_unstable();
            assert_eq!(won, (0..300).collect::<Vec<_>>(), "each was won by one, {mode}");
        });
    }
}

#[test]
fn callers_that_share_a_failed_statement_all_see_its_cause() {
    let server = Postgres::start();
    runtime().block_on(async {
        let proxy = Proxy::start(server.address());
        let store = PostgresStore::at(&format!("postgres://postgres@{}/postgres", proxy.address())).unwrap();
        store.read(&seat(0)).await.unwrap();
        proxy.black_hole(Way::Down);
        let seats: Vec<_> = (0..5).map(seat).collect();
        let reads = join_all(seats.iter().map(|seat| store.read(seat)));
        // In this order: what is not answered is cut.
        let (errors, ()) = tokio::join!(biased; within("that all are answered", reads), async { proxy.reset() });
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.fault(), Fault::Unknown, "{error}");
            assert!(std::error::Error::source(&error).is_some(), "{}", told(&error));
        }
    });
}
