//! The cost of elections, by the members' own metrics.

mod support;

use std::time::Duration;

use futures_util::future::{join, join_all};
use support::{stand, within, write};
use tenure_core::{
    Candidate, Elections, Expect, Incarnation, Record, SeatName, SeatStore, Store, StoreError, Swap, Token, Version,
    Write,
};
use tenure_etcd::EtcdStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::Etcd;
use tenure_testkit::wrap::Counting;

/// The calls that the members have received so far.
#[derive(Clone, Copy, Debug)]
struct Calls {
    keep_alives: u64,
    transactions: u64,
    ranges: u64,
    writes: u64,
    watches: u64,
}

fn calls(etcd: &Etcd) -> Calls {
    let started = |method: &str| etcd.metric(&format!("grpc_server_started_total{{grpc_method=\"{method}\"")) as u64;
    Calls {
        keep_alives: started("LeaseKeepAlive"),
        transactions: started("Txn"),
        ranges: started("Range"),
        writes: etcd.metric("etcd_mvcc_put_total") as u64,
        watches: etcd.metric("etcd_debugging_mvcc_watcher_total") as u64,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_keep_alive_serves_all_elections_of_a_process_and_writes_nothing() {
    // Long, so that a busy machine answers a thousand elections in time.
    let lease = Duration::from_secs(9);
    let leases = 1;
    for count in [1, 1000] {
        let etcd = Etcd::start();
        let (store, counter) = Counting::new(EtcdStore::from_url(&etcd.url()).unwrap());
        let elections = Elections::new(store);
        let mut all = Vec::new();
        while (all.len() as u64) < count {
            // A few at a time: the start is not measured.
            let some = all.len() as u64..count.min(all.len() as u64 + 20);
            let start = |number| elections.election(format!("seat-{number}")).lease(lease).start().unwrap();
            let some: Vec<_> = some.map(start).collect();
            for election in &some {
                within("it is won", election.elected()).await.unwrap();
            }
            all.extend(some);
        }
        // By then the last elections have read their seats as well.
        tokio::time::sleep(lease / 2).await;
        let (before, renewed) = (calls(&etcd), counter.counts());
        tokio::time::sleep(lease * leases).await;
        let (after, renewals) = (calls(&etcd), counter.counts().renewals - renewed.renewals);
        assert!(all.iter().all(|election| election.is_leader()));
        println!("{count} elections, {renewals} renewals in {leases} leases: {before:?}, then {after:?}");
        // One keep-alive every third of a lease, and as many again for a slow machine.
        let keep_alives = after.keep_alives - before.keep_alives;
        assert!(renewals >= count * u64::from(leases) * 2, "{renewals} renewals of {count} elections");
        assert!(
            (1..=u64::from(leases) * 8).contains(&keep_alives),
            "{keep_alives} keep-alives for {renewals} renewals"
        );
        // Each heartbeat checks the seats, more than a hundred in a transaction. If the connection is replaced
        // meanwhile, as on a slow machine, every election reads its seat once more, thirty in a transaction.
        let transactions = after.transactions - before.transactions;
        let most = (keep_alives + 1) * count.div_ceil(100) + count / 5;
        let most = most + u64::from(leases) + 1;
        assert!((1..=most).contains(&transactions), "{transactions} transactions for {renewals} renewals");
        let writes = after.writes - before.writes;
        assert!(before.writes >= count, "{} writes were counted when {count} seats were won", before.writes);
        assert!(writes <= count / 10, "{renewals} renewals have written {writes} times");
        // Two if a slow machine replaced the connection.
        assert!((1..=2).contains(&after.watches), "one watch for all seats, not {}", after.watches);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_reads_once_a_lease_and_is_notified_of_changes() {
    // Long, so that a busy machine answers in time: calls that time out are repeated, and counted again.
    let lease = Duration::from_secs(9);
    let etcd = Etcd::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&etcd.url(), "one", lease, &detector);
    one.leads().await;
    let mut other = stand(&etcd.url(), "other", lease, &detector);
    within("it watches", other.counter.wait_for(|counts| counts.looks > 0)).await;
    tokio::time::sleep(lease).await;
    let (reads, renewals, before) = (other.counter.counts().reads, one.counter.counts().renewals, calls(&etcd));
    let leases = 2;
    tokio::time::sleep(lease * leases).await;
    let after = calls(&etcd);
    let looks = other.counter.counts().reads - reads;
    let renewed = one.counter.counts().renewals - renewals;
    assert!(looks <= u64::from(leases) + 2, "{looks} looks in {leases} leases");
    let (transactions, ranges) = (after.transactions - before.transactions, after.ranges - before.ranges);
    // Two processes announce themselves once a lease.
    let most = looks + renewed + 2 * u64::from(leases) + 3;
    assert!((1..=most).contains(&transactions), "{transactions} transactions: {looks} looks, {renewed} renewals");
    // After a sixth of a lease of silence, each of the two processes pings.
    assert!(ranges <= u64::from(leases) * 2 * 6, "{ranges} other reads");
    assert!(before.writes > 0, "the bid that won was not counted");
    assert_eq!(after.writes, before.writes, "something was written");

    // A push still notifies the follower of a hand-over at once.
    let reads = other.counter.counts().reads;
    one.election.stop();
    other.leads().await;
    assert!(other.counter.counts().reads <= reads + 3, "the follower was not notified, but polled");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_share_transactions_and_each_has_its_own_answer() {
    let etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| EtcdStore::from_url(&etcd.url()).unwrap());
    let seats: Vec<_> = (0..900).map(|number| SeatName::new(format!("seat-{number}")).unwrap()).collect();
    let version = |answer: &Swap| match answer {
        Swap::Done { version, .. } => Some(version.clone()),
        Swap::Lost => None,
    };
    let bid = |seat: &SeatName, record: &Record| Write {
        seat: seat.clone(),
        expect: Expect::Absent(None),
        record: record.clone(),
    };
    let others =
        Record { holder: Some(Candidate { id: "other".into(), incarnation: Incarnation::from_bits(8) }), ..record(1) };
    let taken = seats.iter().step_by(3).map(|seat| bid(seat, &others)).collect();
    for answer in write_all(&other, taken).await {
        assert!(version(&answer.unwrap()).is_some());
    }

    let before = calls(&etcd);
    let bids = write_all(&one, seats.iter().map(|seat| bid(seat, &record(1))).collect()).await;
    let won: Vec<Option<Version>> = bids.into_iter().map(|answer| version(&answer.unwrap())).collect();
    let after = calls(&etcd);
    for (number, won) in won.iter().enumerate() {
        assert_eq!(won.is_none(), number % 3 == 0, "seat-{number}: exactly the seats of the other store must be lost");
    }
    assert_eq!(after.writes - before.writes, 600 + 1, "the seats, and the key of the session");
    let transactions = after.transactions - before.transactions;
    assert!((7..=100).contains(&transactions), "{transactions} transactions for 900 bids");

    // A read returns the version and holder that the answers gave.
    let reads = support::seats(&etcd.url());
    let readings = join_all(seats.iter().map(|seat| SeatStore::read(&reads, seat))).await;
    let found: Vec<_> = readings.into_iter().map(|reading| reading.unwrap().seat.unwrap()).collect();
    for (seat, won) in found.iter().zip(&won) {
        assert!(won.as_ref().is_none_or(|version| *version == seat.version), "{seat:?}");
        assert_eq!(seat.record.is_held_by(ME), won.is_some());
    }
    // Of two writes of one seat at once, one loses.
    let next = |seat: &SeatName, won: &Option<Version>, record: Record| Write {
        seat: seat.clone(),
        expect: Expect::Version(won.clone().unwrap()),
        record,
    };
    let [first, second] = [record(2), record(3)].map(|record| [next(&seats[1], &won[1], record)]);
    let (first, second) = join(write(&one, &first), write(&one, &second)).await;
    assert_ne!(version(first[0].as_ref().unwrap()).is_some(), version(second[0].as_ref().unwrap()).is_some());
    // Releases all seats at once. The release of the seat that was written since loses.
    let vacant = Record { holder: None, ..record(4) };
    let released = seats.iter().zip(&won).filter(|(_, won)| won.is_some());
    let released = write_all(&one, released.map(|(seat, won)| next(seat, won, vacant.clone())).collect()).await;
    assert_eq!(released.into_iter().filter(|answer| *answer.as_ref().unwrap() == Swap::Lost).count(), 1);
}

/// Writes all of these, with as many seats in a call as the store accepts, and all calls at once.
async fn write_all(store: &EtcdStore, writes: Vec<Write>) -> Vec<Result<Swap, StoreError>> {
    let calls = writes.chunks(store.promises().writes.seats).map(|writes| write(store, writes));
    join_all(calls).await.concat()
}

const ME: Incarnation = Incarnation::from_bits(7);

fn record(nonce: u64) -> Record {
    let me = Candidate { id: "me".into(), incarnation: ME };
    Record { nonce, ..Record::new(Some(me), Token::new(1), Duration::from_secs(30)) }
}
