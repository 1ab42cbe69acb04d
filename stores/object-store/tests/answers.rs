//! What the answers of a server mean: a write is done, lost, or its outcome is unknown, and a server that ignores
//! conditions is refused. The server is a bucket in memory that answers as wrongly as a test asks for.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{StandIn, Trouble, acted_above, error_of, open, record, seat, stand, told, within};
use tenure_core::{DynStore, Fault, Record, SeatStore, Swap, Token, Version};
use tenure_object_store::BucketStore;
use tenure_testkit::{OverlapDetector, Subject, laws};

/// Creates the seat, and returns its version.
async fn create(store: &BucketStore, record: &Record) -> Version {
    match store.swap(&seat(), None, record).await.unwrap() {
        Swap::Done { version, .. } => version,
        Swap::Lost => panic!("the seat exists"),
    }
}

async fn token(store: &BucketStore) -> Option<Token> {
    SeatStore::read(store, &seat()).await.unwrap().seat.map(|seat| seat.record.token)
}

#[tokio::test]
async fn a_conflict_or_a_failure_makes_the_outcome_unknown_whether_or_not_the_write_took_effect() {
    for (trouble, takes_effect) in [
        (Trouble::Conflict, false),
        (Trouble::ConflictAfterWriting, true),
        (Trouble::Unavailable, false),
        (Trouble::FailedAfterWriting, true),
        (Trouble::NoAnswer, true),
    ] {
        for (url, is_there) in [
            (StandIn::s3 as fn(&StandIn) -> String, false),
            (StandIn::s3, true),
            (StandIn::gs, false),
            (StandIn::gs, true),
        ] {
            let bucket = StandIn::start();
            let store = open(&url(&bucket));
            if is_there {
                create(&store, &record(5)).await;
            }
            let (before, version) = (token(&store).await, current(&store).await);
            bucket.trouble(trouble);
            let written = record(6);
            let error = store.swap(&seat(), version.as_ref(), &written).await.unwrap_err();
            assert_eq!(error.fault(), Fault::Unknown, "{trouble:?}: {error}");
            let expected = if takes_effect { Some(written.token) } else { before };
            assert_eq!(token(&store).await, expected, "{trouble:?}");
        }
    }
}

async fn current(store: &BucketStore) -> Option<Version> {
    SeatStore::read(store, &seat()).await.unwrap().seat.map(|seat| seat.version)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_whose_winning_bid_got_a_wrong_answer_still_leads_with_one_term() {
    for trouble in [Trouble::ConflictAfterWriting, Trouble::FailedAfterWriting, Trouble::NoAnswer, Trouble::Conflict] {
        let (bucket, detector) = (StandIn::start(), OverlapDetector::new());
        bucket.trouble(trouble);
        let lease = Duration::from_secs(3);
        let one = stand(&bucket.s3(), "one", lease, &detector);
        let other = stand(&bucket.s3(), "other", lease, &detector);
        acted_above(&detector, Token::ZERO).await;
        let leaders = [&one, &other].iter().filter(|candidate| candidate.election.is_leader()).count();
        assert_eq!(leaders, 1, "{trouble:?}");
        detector.acts_do_not_overlap().unwrap();
    }
}

#[tokio::test]
async fn a_server_that_ignores_conditions_is_refused_before_the_first_write() {
    for url in [StandIn::s3, StandIn::gs] {
        let bucket = StandIn::start().ignoring_conditions();
        let store = open(&url(&bucket));
        let error = within("the write is answered", store.swap(&seat(), None, &record(1))).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Denied);
        assert!(error.to_string().contains("ignores the conditions of writes (If-None-Match)"), "{error}");
        assert_eq!(token(&store).await, None, "nothing was written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_candidate_leads_over_a_server_that_ignores_conditions() {
    let (bucket, detector) = (StandIn::start().ignoring_conditions(), OverlapDetector::new());
    let mut one = stand(&bucket.s3(), "one", Duration::from_secs(3), &detector);
    let (fault, error) = one.fails().await;
    assert_eq!(fault, Fault::Denied);
    assert!(error.contains("two candidates could lead at once"), "{error}");
    assert_eq!(detector.work_spans(), 0);
}

/// A bucket whose server obeys the conditions of the probe, and ignores those of seats.
struct Liar(StandIn);

impl Subject for Liar {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(open(&self.0.s3()))
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[test]
fn the_laws_catch_a_server_that_ignores_conditions_after_the_probe() {
    let broken = [
        "one_of_many_racing_bids_wins",
        "a_swap_on_a_stale_version_loses_and_changes_nothing",
        "a_renewal_of_a_lost_seat_is_lost",
        "every_write_has_a_version_of_its_own",
    ];
    for name in broken {
        let law = laws::all().into_iter().find(|law| law.name == name).unwrap();
        let verdict = law.check_on(Arc::new(Liar(StandIn::start().ignoring_conditions_of_seats())));
        assert!(verdict.is_err(), "{name} passes although the server ignores conditions");
        law.check_on(Arc::new(Liar(StandIn::start()))).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[tokio::test]
async fn versions_that_no_object_can_have_are_lost_and_not_errors() {
    for url in [StandIn::s3, StandIn::gs] {
        let store = open(&url(&StandIn::start()));
        create(&store, &record(1)).await;
        for version in ["", "x", "\"x\"", "two words", "line\r\nbreak", "é", "-1"] {
            let swap = store.swap(&seat(), Some(&Version::new(version)), &record(2)).await.unwrap();
            assert_eq!(swap, Swap::Lost, "{version:?}");
        }
    }
}

#[tokio::test]
async fn a_body_that_tenure_did_not_write_is_an_error_and_is_not_overwritten() {
    let server = tenure_testkit::servers::S3::start();
    server.ask("PUT", "/jobs/tenure/seats/jobs", "hello");
    let error = error_of(&server.url()).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(told(&error).contains("Tenure did not write"), "{error}");
    assert_eq!(open(&server.url()).swap(&seat(), None, &record(1)).await.unwrap(), Swap::Lost);
    assert_eq!(server.ask("GET", "/jobs/tenure/seats/jobs", "").1, "hello");
}

#[tokio::test]
async fn a_bid_whose_seat_was_created_and_forgotten_since_it_was_read_cannot_repeat_a_token() {
    let (bucket, seat) = (StandIn::start(), seat());
    let (one, other) = (open(&bucket.s3()), open(&bucket.s3()));
    create(&one, &record(5)).await;
    SeatStore::forget(&one, &seat).await.unwrap();
    assert_eq!(SeatStore::read(&one, &seat).await.unwrap().floor, Token::new(5));
    // Between this read and the bid that follows from it, another candidate has led with the token 6.
    create(&other, &record(6)).await;
    SeatStore::forget(&other, &seat).await.unwrap();
    assert_eq!(one.swap(&seat, None, &record(6)).await.unwrap(), Swap::Lost, "the token 6 was issued twice");
    assert!(matches!(one.swap(&seat, None, &record(7)).await.unwrap(), Swap::Done { .. }));
}

#[tokio::test]
async fn a_write_that_a_redirect_turned_into_a_read_is_not_taken_for_done() {
    for url in [StandIn::s3, StandIn::gs] {
        let bucket = StandIn::start();
        let store = open(&url(&bucket));
        let version = create(&store, &record(5)).await;
        bucket.trouble(Trouble::Redirect);
        let renewed = store.renew(&seat(), &version, &record(5)).await;
        let error = renewed.unwrap_err();
        assert_eq!(error.fault(), Fault::Unknown, "{}", told(&error));
        assert_eq!(current(&store).await, Some(version), "nothing was written");
    }
}

#[tokio::test]
async fn a_check_of_the_bucket_that_is_never_answered_does_not_hold_up_later_writes() {
    let bucket = StandIn::start();
    let store = open(&bucket.s3());
    bucket.silence(1);
    let lease = Duration::from_secs(3);
    let record = Record { lease, ..record(1) };
    let first = tokio::time::timeout(lease / 15, store.swap(&seat(), None, &record)).await;
    assert!(first.is_err(), "the check was answered");
    let later = async { while store.swap(&seat(), None, &record).await.is_err() {} };
    tokio::time::timeout(lease * 2, later).await.expect("a write within two leases");
}
