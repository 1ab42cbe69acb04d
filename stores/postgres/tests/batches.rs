//! Calls about many seats: each seat gets its own answer, independent of the other seats.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{runtime, seats_at, within};
use futures_util::future::join_all;
use tenure_core::{
    Answers, Board, Call, Candidate, Elections, Expect, Fault, Incarnation, NoteWrite, Reading, Record, SeatName,
    SeatStore, SingleSeat, StoreError, Swap, Token, Version, Write,
};
use tenure_postgres::PostgresStore;
use tenure_testkit::candidate::{store_error, told};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{PgBouncer, Postgres, PostgresSetup};
use tokio_postgres::{Client, NoTls};

const CALL: Call = Call { lease: Duration::from_secs(30), within: Duration::from_secs(30) };

fn seat(number: usize) -> SeatName {
    SeatName::new(format!("seat-{number:04}")).unwrap()
}

fn record(token: u64) -> Record {
    Record {
        holder: Some(Candidate { id: "web-1".into(), incarnation: Incarnation::from_bits(7) }),
        token: Token::new(token),
        lease: CALL.lease,
        since_ms: None,
        heir: None,
        metadata: BTreeMap::new().into(),
        priority: 0,
        ranked: false,
        nonce: rand::random(),
        claim: None,
        crash: None,
        unknown: BTreeMap::new().into(),
    }
}

/// Makes a call about `count` seats, and returns its answers. A seat without an answer gets the error of the call.
async fn answers<T: Send + 'static>(
    count: usize,
    call: impl AsyncFnOnce(&Answers<T>) -> Result<(), StoreError>,
) -> Vec<Result<T, StoreError>> {
    let answers = Arc::new(Mutex::new((0..count).map(|_| None).collect::<Vec<_>>()));
    let taken = answers.clone();
    let to = Answers::new(move |place, answer| taken.lock().unwrap()[place] = Some(answer));
    let ended = within("the call ends", call(&to)).await;
    let answers = std::mem::take(&mut *answers.lock().unwrap()).into_iter();
    answers.map(|answer| answer.unwrap_or_else(|| Err(ended.clone().expect_err("all seats are answered")))).collect()
}

/// Writes seats in one call.
async fn write(store: &PostgresStore, writes: &[Write]) -> Vec<Result<Swap, StoreError>> {
    answers(writes.len(), async |to| tenure_core::Store::write(store, &CALL, writes, to).await).await
}

/// Reads seats in one call.
async fn read(store: &PostgresStore, seats: &[SeatName]) -> Vec<Result<Reading, StoreError>> {
    answers(seats.len(), async |to| tenure_core::Store::read(store, &CALL, seats, to).await).await
}

/// Takes `count` new seats in one call.
async fn win(store: &PostgresStore, count: usize) -> Vec<Version> {
    let bid = |number| Write { seat: seat(number), expect: Expect::Absent(None), record: record(1) };
    let answers = write(store, &(0..count).map(bid).collect::<Vec<_>>()).await;
    answers.into_iter().map(|answer| version_of(answer.unwrap()).expect("the seat is new")).collect()
}

fn renewal(number: usize, held: &Version) -> Write {
    Write { seat: seat(number), expect: Expect::Held(held.clone()), record: record(1) }
}

fn version_of(swap: Swap) -> Option<Version> {
    match swap {
        Swap::Done { version, .. } => Some(version),
        Swap::Lost => None,
    }
}

/// Opens a connection of another program.
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
fn a_call_is_one_statement_of_each_kind_and_each_seat_has_its_own_answer() {
    for through_a_pooler in [false, true] {
        let server = counting_server();
        let pooler = through_a_pooler.then(|| PgBouncer::before(&server));
        let url = pooler.as_ref().map_or(server.url(), PgBouncer::url);
        runtime().block_on(async {
            let store = PostgresStore::from_url(&url).unwrap();
            read(&store, &[seat(0)]).await.remove(0).unwrap();
            let before = statements(&server);
            let versions = win(&store, 400).await;
            // Of each four seats, one expects a version that never existed, one is updated, and two are renewed.
            // Further seats are new.
            let mut writes: Vec<_> = versions
                .iter()
                .enumerate()
                .map(|(number, version)| match number % 4 {
                    0 => renewal(number, &Version::new("0:0")),
                    1 => Write { expect: Expect::Version(version.clone()), ..renewal(number, version) },
                    _ => renewal(number, version),
                })
                .collect();
            writes.extend((400..450).map(|number| Write {
                seat: seat(number),
                expect: Expect::Absent(None),
                record: record(1),
            }));
            let written: Vec<_> =
                write(&store, &writes).await.into_iter().map(|swap| version_of(swap.unwrap())).collect();
            let reads = read(&store, &(0..450).map(seat).collect::<Vec<_>>()).await;
            for (number, read) in reads.into_iter().enumerate() {
                assert_eq!(written[number].is_none(), number < 400 && number % 4 == 0, "{number}");
                let version = written[number].as_ref().unwrap_or_else(|| &versions[number]);
                assert_eq!(read.unwrap().seat.unwrap().version, *version, "{number}");
            }
            assert_eq!(statements(&server) - before, 1 + 3 + 1);
        });
    }
}

#[test]
fn a_call_in_session_mode_answers_each_seat_and_holds_the_locks_of_the_seats_it_won() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::from_url(&format!("{}?mode=session", server.url())).unwrap();
        read(&store, &[seat(0)]).await.remove(0).unwrap();
        let versions = win(&store, 40).await;
        let locks = || server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1");
        assert_eq!(locks(), "40");
        let on = |version: &Version| Expect::Version(version.clone());
        let mut writes: Vec<_> = versions
            .iter()
            .enumerate()
            .map(|(number, version)| match number % 4 {
                0 => renewal(number, &Version::new("0:0")),
                1 => renewal(number, version),
                2 => Write { expect: on(version), ..renewal(number, version) },
                _ => Write {
                    expect: on(version),
                    record: Record { holder: None, ..record(1) },
                    ..renewal(number, version)
                },
            })
            .collect();
        writes.extend((40..50).map(|number| Write {
            seat: seat(number),
            expect: Expect::Absent(None),
            record: record(1),
        }));
        let written: Vec<_> = write(&store, &writes).await.into_iter().map(|swap| version_of(swap.unwrap())).collect();
        for (number, read) in read(&store, &(0..50).map(seat).collect::<Vec<_>>()).await.into_iter().enumerate() {
            let seat = read.unwrap().seat.unwrap();
            assert_eq!(written[number].is_none(), number < 40 && number % 4 == 0, "{number}");
            assert_eq!(seat.version, *written[number].as_ref().unwrap_or_else(|| &versions[number]), "{number}");
            assert_eq!(seat.record.is_vacant(), number < 40 && number % 4 == 3, "{number}");
        }
        assert_eq!(locks(), "40", "ten seats were released, and ten were won");
    });
}

#[test]
fn two_writes_of_one_seat_do_not_share_an_answer() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = seats_at(&server.url());
        let won = join_all((0..50).map(|_| store_swap(&store, None))).await;
        let won: Vec<_> = won.into_iter().filter_map(|swap| version_of(swap.unwrap())).collect();
        assert_eq!(won.len(), 1);
        let next = join_all((0..50).map(|_| store_swap(&store, Some(&won[0])))).await;
        let next: Vec<_> = next.into_iter().filter_map(|swap| version_of(swap.unwrap())).collect();
        assert_eq!(next.len(), 1);
        assert_eq!(store.read(&seat(0)).await.unwrap().seat.unwrap().version, next[0]);
    });
}

async fn store_swap(store: &SingleSeat, expected: Option<&Version>) -> Result<Swap, StoreError> {
    store.swap(&seat(0), expected, &record(2)).await
}

#[test]
fn a_renewal_depends_on_the_holder_and_the_term_and_not_on_the_version() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = seats_at(&server.url());
        let won = version_of(store_swap(&store, None).await.unwrap()).unwrap();
        // As if the answer to the first renewal was lost: the second one expects the same version again.
        for _ in 0..2 {
            assert!(version_of(store.renew(&seat(0), &won, &record(2)).await.unwrap()).is_some());
        }
        let other = Candidate { id: "web-1".into(), incarnation: Incarnation::from_bits(8) };
        let heir = Record { holder: Some(other.clone()), ..record(2) };
        for other in [heir, record(1), record(3), Record { holder: None, ..record(2) }] {
            assert_eq!(store.renew(&seat(0), &won, &other).await.unwrap(), Swap::Lost, "{other:?}");
        }
        let held = store.read(&seat(0)).await.unwrap().seat.unwrap();
        // A released seat has no holder, even if it has an heir.
        let vacant = Record { holder: None, heir: record(2).holder, ..record(2) };
        assert!(version_of(store.swap(&seat(0), Some(&held.version), &vacant).await.unwrap()).is_some());
        assert_eq!(store.renew(&seat(0), &held.version, &record(2)).await.unwrap(), Swap::Lost);
    });
}

#[test]
fn a_locked_row_is_refused_and_delays_no_other_seat() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::from_url(&server.url()).unwrap();
        let versions = win(&store, 100).await;
        let blocker = other(&server).await;
        blocker.batch_execute("BEGIN; SELECT 1 FROM tenure.seats WHERE name = 'seat-0042' FOR UPDATE").await.unwrap();
        let renewals: Vec<_> = versions.iter().enumerate().map(|(number, version)| renewal(number, version)).collect();
        for (number, answer) in write(&store, &renewals).await.into_iter().enumerate() {
            match answer {
                Ok(Swap::Done { .. }) => assert_ne!(number, 42),
                Err(error) => assert_eq!((number, error.fault()), (42, Fault::Refused), "{error}"),
                Ok(Swap::Lost) => panic!("{number} was lost, but no other candidate has taken it"),
            }
        }
        blocker.batch_execute("ROLLBACK").await.unwrap();
        let renewed = write(&store, &renewals[42..43]).await.remove(0).unwrap();
        assert!(version_of(renewed).is_some());
    });
}

#[test]
fn a_long_insert_of_one_seat_delays_the_others_only_briefly() {
    let server = Postgres::start();
    runtime().block_on(async {
        seats_at(&server.url()).read(&seat(0)).await.unwrap();
        let blocker = other(&server).await;
        let insert = "BEGIN; INSERT INTO tenure.seats (name, record, version, token, written) \
                      VALUES ('seat-0013', '', '', 1, now())";
        blocker.batch_execute(insert).await.unwrap();
        let elections = Elections::new(PostgresStore::from_url(&server.url()).unwrap());
        let start = |number| elections.election(seat(number).as_str()).lease(CALL.lease).start().unwrap();
        let all: Vec<_> = (0..40).map(start).collect();
        for (number, one) in all.iter().enumerate().filter(|(number, _)| *number != 13) {
            within(&format!("seat {number} is won"), one.elected()).await.unwrap();
        }
        assert!(!all[13].is_leader());
        blocker.batch_execute("ROLLBACK").await.unwrap();
        within("seat 13 is won", all[13].elected()).await.unwrap();
    });
}

/// The snapshot of such a bid is older than the term, so it shows neither the seat nor its floor.
#[test]
fn a_bid_whose_seat_is_led_and_removed_while_its_statement_waits_is_lost() {
    for mode in common::MODES {
        let server = Postgres::start();
        let store = Arc::new(PostgresStore::from_url(&format!("{}{mode}", server.url())).unwrap());
        runtime().block_on(async {
            let (leader, watcher) = (other(&server).await, other(&server).await);
            // A statement that waits for too long is refused. Then the next seat is tried.
            for number in 0.. {
                let name = seat(number);
                read(&store, std::slice::from_ref(&name)).await.remove(0).unwrap();
                let lead = format!(
                    "BEGIN; INSERT INTO tenure.floors VALUES ('{name}', 1); \
                     INSERT INTO tenure.seats (name, record, version, token, written) VALUES ('{name}', '', '', 1, now())"
                );
                leader.batch_execute(&lead).await.unwrap();
                let bids = [Write { seat: name.clone(), expect: Expect::Absent(None), record: record(1) }];
                let bidder = store.clone();
                let bid = tokio::spawn(async move { write(&bidder, &bids).await.remove(0) });
                let waiting = "SELECT FROM pg_locks WHERE NOT granted";
                while !bid.is_finished() && watcher.query(waiting, &[]).await.unwrap().is_empty() {}
                leader.batch_execute(&format!("DELETE FROM tenure.seats WHERE name = '{name}'; COMMIT")).await.unwrap();
                match bid.await.unwrap() {
                    Err(error) => assert_eq!(error.fault(), Fault::Refused, "{error}"),
                    Ok(swap) => {
                        assert_eq!(swap, Swap::Lost, "{mode}: a token was issued twice");
                        break;
                    }
                }
            }
        });
    }
}

#[test]
fn a_record_that_the_database_cannot_store_is_denied_and_other_seats_are_not() {
    let server = Postgres::start();
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    for mode in common::MODES {
        let url = format!("{}/latin{mode}", server.url().trim_end_matches("/postgres"));
        runtime().block_on(async {
            let store = seats_at(&url);
            store.read(&seat(0)).await.unwrap();
            let elections = Elections::new(PostgresStore::from_url(&url).unwrap());
            let mut all: Vec<_> = (0..60)
                .map(|number| {
                    let zone = if number == 33 { "\u{2713}" } else { "a" };
                    let election = elections.election(format!("{number}{mode}")).lease(CALL.lease);
                    let election = election.metadata("zone", zone).start().unwrap();
                    (election.events(), election)
                })
                .collect();
            for (number, (events, election)) in all.iter_mut().enumerate() {
                let denied = async {
                    loop {
                        let event = events.next().await.expect("the election runs").kind;
                        if let Some(error) = store_error(&event).filter(|error| error.fault() != Fault::Unknown) {
                            return error.fault();
                        }
                    }
                };
                tokio::select! {
                    biased;
                    elected = within("the candidate leads", election.elected()), if number != 33 => drop(elected.unwrap()),
                    fault = denied => assert_eq!((number, fault), (33, Fault::Denied)),
                }
            }
            // A call about notes fails without effect, and reports that one of them may be the cause.
            let (notes, board) = (store.notes().unwrap(), Board::Requests(SeatName::new(format!("jobs{mode}")).unwrap()));
            let value = |number| if number == 21 { "a\0b" } else { "{}" };
            let write = |number: usize| NoteWrite {
                board: board.clone(),
                key: number.to_string(),
                value: Some(value(number).to_owned()),
                lifetime: Duration::from_secs(60),
            };
            let all: Vec<_> = (0..30).map(write).collect();
            let error = notes.write(&all, &Answers::new(|_, _| panic!("a note was answered"))).await.unwrap_err();
            assert!(error.is_caused_by_one() && error.fault() == Fault::Denied, "{error}");
            assert_eq!(notes.list_one(&board).await.unwrap(), []);
            for number in 0..30 {
                let put = notes.put_one(&board, &number.to_string(), value(number), Duration::from_secs(60)).await;
                assert_eq!(put.err().map(|error| error.fault()), (number == 21).then_some(Fault::Denied), "{number}");
            }
            assert_eq!(notes.list_one(&board).await.unwrap().len(), 29);
            // Exactly one lock for each seat that is held, whatever failed in between.
            let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1";
            let held = if mode.contains("session") { "59" } else { "0" };
            tenure_testkit::candidate::until("no other lock is held", || server.sql(locks) == held).await;
        });
    }
}

#[test]
fn a_dropped_call_does_not_affect_other_calls() {
    let server = Postgres::start();
    runtime().block_on(async {
        let mut versions = win(&PostgresStore::from_url(&server.url()).unwrap(), 100).await;
        let store = seats_at(&server.url());
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
            let answers = within("all renewals are answered", join_all(renewals)).await;
            assert!(answers.iter().step_by(2).all(Option::is_some));
            // After a dropped call, a read finds the seat either renewed or unchanged.
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
fn bids_for_the_same_seats_in_different_orders_do_not_deadlock() {
    for mode in common::MODES {
        let server = Postgres::start();
        let url = format!("{}{mode}", server.url());
        runtime().block_on(async {
            let stores: Vec<_> = (0..4).map(|_| PostgresStore::from_url(&url).unwrap()).collect();
            join_all(stores.iter().map(|store| read(store, &[]))).await;
            let bids = stores.iter().enumerate().map(|(bidder, store)| async move {
                let order = |number| if bidder % 2 == 0 { number } else { 299 - number };
                let bid = |number| Write {
                    seat: seat(order(number)),
                    expect: Expect::Absent(None),
                    record: record(bidder as u64 + 1),
                };
                let answers = write(store, &(0..300).map(bid).collect::<Vec<_>>()).await.into_iter().enumerate();
                let won = answers.filter_map(|(number, answer)| {
                    let swap = answer.unwrap_or_else(|error| panic!("{number}: {error}"));
                    version_of(swap).map(|_| order(number))
                });
                won.collect::<Vec<_>>()
            });
            let mut won: Vec<_> = within("all bids are answered", join_all(bids)).await.into_iter().flatten().collect();
            won.sort_unstable();
            assert_eq!(won, (0..300).collect::<Vec<_>>(), "{mode}: not every seat was won exactly once");
        });
    }
}

#[test]
fn seats_that_share_a_failed_statement_all_see_its_cause() {
    let server = Postgres::start();
    runtime().block_on(async {
        let proxy = Proxy::start(server.address());
        let store = PostgresStore::from_url(&format!("postgres://postgres@{}/postgres", proxy.address())).unwrap();
        read(&store, &[seat(0)]).await.remove(0).unwrap();
        proxy.black_hole(Way::Down);
        let seats: Vec<_> = (0..5).map(seat).collect();
        // In this order: the connection is reset while the reads are in flight.
        let (errors, ()) = tokio::join!(biased; read(&store, &seats), async { proxy.reset() });
        for error in errors {
            let error = error.unwrap_err();
            assert_eq!(error.fault(), Fault::Unknown, "{error}");
            assert!(std::error::Error::source(&error).is_some(), "{}", told(&error));
        }
    });
}
