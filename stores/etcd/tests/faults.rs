//! What a network, a cluster and its operator can do to elections. Whatever it is, no two ever work at once:
//! every test ends with that, by the moments at which work was done.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Contender, acted_above, stand, stand_with, until, within};
use tenure_core::{
    Change, Event, NoteKind, Record, SeatName, SeatStore, Seen, Swap, TakeoverOption, Token, Why, record,
};
use tenure_etcd::EtcdStore;
use tenure_testkit::Desk;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Etcd, EtcdSetup};

const LEASE: Duration = Duration::from_secs(3);

/// Long enough for a cluster to find another leader within it.
const LONG: Duration = Duration::from_secs(9);

fn through(proxy: &Proxy) -> String {
    format!("etcd://{}", proxy.address())
}

/// One that takes over only when a leader whose session was ended from outside must have stopped: with
/// `takeover=instant` the two may overlap until the news has arrived, and that is said.
fn stand_safely(url: &str, id: &str, desk: &Desk) -> Contender {
    stand_with(url, id, LEASE, desk, |election| election.takeover(TakeoverOption::Safe))
}

async fn follows(candidate: &Contender) {
    within("it watches", candidate.counter.wait_for(|counts| counts.looks > 0)).await;
}

async fn renews_on(candidate: &Contender) {
    let renewals = candidate.counter.counts().renewals;
    within("it renews again", candidate.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
}

/// Waits until a term was prolonged by a renewal that was asked for from now on: the first may have been under way.
async fn is_kept(candidate: &Contender) {
    for _ in 0..2 {
        let deadline = || candidate.election.term().map(|term| term.deadline());
        let before = deadline();
        until("it is renewed, or over", || deadline() != before).await;
    }
}

/// Waits until each candidate has one connection, so that no fault has left another behind. Each member has one to itself.
async fn has_one_connection_each(etcd: &Etcd, candidates: usize) {
    let expected = etcd.members.len() + candidates;
    until("each candidate has one connection", || etcd.connections() == expected).await;
}

/// Asks the cluster itself, out of the way of the runtime.
async fn ctl(etcd: &Arc<Etcd>, arguments: &[&str]) -> String {
    let (etcd, arguments): (_, Vec<_>) = (etcd.clone(), arguments.iter().map(ToString::to_string).collect());
    let run = move || etcd.ctl(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.expect("it answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_black_holed_stops_before_another_starts() {
    for way in [Way::Up, Way::Down] {
        let etcd = Etcd::start();
        let proxy = Proxy::start(etcd.members[0].address());
        let desk = Desk::new();
        let mut one = stand(&through(&proxy), "one", LEASE, &desk);
        let (first, _other) = (one.leads().await, stand(&etcd.url(), "other", LEASE, &desk));
        acted_above(&desk, Token::ZERO).await;
        proxy.black_hole(way);
        assert_eq!(one.loses().await.0, first);
        let second = acted_above(&desk, first).await;
        proxy.pass();
        one.event("it knows who leads now", |event| match event {
            Event::LeaderChanged { leader: Some(leader) } if leader.token >= second => Some(()),
            _ => None,
        })
        .await;
        has_one_connection_each(&etcd, 2).await;
        desk.acts_do_not_overlap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winning_write_whose_reply_is_lost_is_a_term_all_the_same() {
    let etcd = Etcd::start();
    // The connection is cut by the first thing that the server says after the write, which may be something
    // else than its reply, and then the write may come to nothing. So again, until it was the write that counted.
    for round in 0.. {
        assert!(round < 20, "no write whose reply was lost has ever counted");
        let proxy = Proxy::start(etcd.members[0].address());
        proxy.drop_reply_to("\"incarnation\"");
        let desk = Desk::new();
        let began = Instant::now();
        let mut one = stand(&through(&proxy), "one", LONG, &desk);
        let token = one.leads().await;
        assert!(began.elapsed() < LONG, "it was locked out of its own seat");
        within("the reply was dropped", proxy.caught(1)).await;
        acted_above(&desk, Token::ZERO).await;
        assert_eq!(desk.sittings(), 1);
        desk.acts_do_not_overlap().unwrap();
        let bids = one.counter.counts().swaps;
        let seat = etcd.ctl(&["get", "--print-value-only", "tenure/seats/jobs"]);
        assert!(seat.contains(&format!("\"token\":{token}")), "the seat names another term than {token}: {seat}");
        one.election.stop();
        within("it stops", one.election.stopped()).await;
        if bids == 1 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_reset_during_renewals_cost_no_term() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let desk = Desk::new();
    let mut one = stand(&through(&proxy), "one", LONG, &desk);
    one.leads().await;
    let other = stand(&etcd.url(), "other", LONG, &desk);
    for round in 0..3 {
        proxy.reset();
        renews_on(&one).await;
        assert!(one.election.is_leader() && !other.election.is_leader(), "lost in round {round}");
    }
    assert_eq!(desk.sittings(), 1, "the term was lost");
    has_one_connection_each(&etcd, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_is_told_that_its_connection_has_ended() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let store = EtcdStore::from_url(&through(&proxy)).unwrap();
    let seat = SeatName::new("jobs").unwrap();
    // A look that takes a third of the lease is news by itself, so that is long.
    let vacant = Record::new(None, Token::new(1), Duration::from_secs(600));
    assert!(matches!(store.swap(&seat, None, &vacant).await, Ok(Swap::Done { .. })));
    let seen = Seen { seat: store.read(&seat).await.unwrap().seat, requests: true };
    for _ in 0..2 {
        let looks = || etcd.metric("grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Txn\"") as u64;
        let before = looks();
        let mut changed = std::pin::pin!(store.changed(&seat, &seen));
        tokio::select! {
            change = &mut changed => panic!("{change:?}, though nothing has changed"),
            () = until("it has looked", || looks() > before) => {}
        }
        proxy.reset();
        assert_eq!(within("it is told", changed).await, Change::Look);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_turns_out_not_to_be_needed_is_closed() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let store = Arc::new(EtcdStore::from_url(&through(&proxy)).unwrap());
    let seat = SeatName::new("jobs").unwrap();
    store.read(&seat).await.unwrap();
    proxy.delay(Way::Down, Duration::from_secs(1));
    let (slow, name) = (store.clone(), seat.clone());
    let answered = tokio::spawn(async move { slow.read(&name).await });
    // The first of these makes the connection doubtful, the second begins to open another: both are given up
    // before anything comes back.
    for _ in 0..2 {
        let candidates = store.board().expect("etcd has a board").list(&seat, NoteKind::Announcement);
        assert!(tokio::time::timeout(Duration::from_millis(200), candidates).await.is_err(), "it was not slow");
    }
    answered.await.unwrap().expect("the first connection is alive after all");
    proxy.pass();
    // The second connection may take a moment until it is open, and is closed by whatever is asked next.
    within("only the connection that is used is left", async {
        let mut alone = 0;
        while alone < 20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.read(&seat).await.unwrap();
            alone = if etcd.connections() == 2 { alone + 1 } else { 0 };
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_stopped_under_a_keepalive_briefly_costs_no_term_and_for_long_costs_one() {
    let mut etcd = Etcd::start();
    let desk = Desk::new();
    let mut one = stand(&etcd.url(), "one", LEASE, &desk);
    let first = one.leads().await;
    let other = stand(&etcd.url(), "other", LEASE, &desk);
    follows(&other).await;
    etcd.members[0].process.pause();
    tokio::time::sleep(LEASE / 5).await;
    etcd.members[0].process.resume();
    renews_on(&one).await;
    assert_eq!(desk.sittings(), 1, "a pause cost the term");
    etcd.members[0].process.pause();
    assert_eq!(one.loses().await.0, first);
    etcd.members[0].process.resume();
    acted_above(&desk, first).await;
    has_one_connection_each(&etcd, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_restarted_costs_no_term() {
    let mut etcd = Etcd::start();
    let desk = Desk::new();
    let mut one = stand(&etcd.url(), "one", LONG, &desk);
    one.leads().await;
    let other = stand(&etcd.url(), "other", LONG, &desk);
    follows(&other).await;
    etcd.members[0].process.kill();
    etcd.members[0].restart();
    renews_on(&one).await;
    assert!(one.election.is_leader());
    assert_eq!(desk.sittings(), 1, "the term was lost");
    has_one_connection_each(&etcd, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_clusters_leader_and_a_member_that_hangs_cost_no_term() {
    let mut etcd = EtcdSetup::new().members(3).start();
    let desk = Desk::new();
    let mut one = stand(&etcd.url(), "one", LONG, &desk);
    one.leads().await;
    let other = stand(&etcd.url(), "other", LONG, &desk);
    follows(&other).await;
    let leader = etcd.leader().expect("the cluster has a leader");
    etcd.members[leader].process.kill();
    is_kept(&one).await;
    etcd.members[leader].restart();
    // A member that does not answer, whichever we are connected to. One at a time: of three, two must be there.
    for number in 0..3 {
        etcd.members[number].process.pause();
        is_kept(&one).await;
        etcd.members[number].resume();
    }
    assert!(one.election.is_leader());
    assert_eq!(desk.sittings(), 1, "the term was lost");
    has_one_connection_each(&etcd, 2).await;
    one.election.stop();
    let mut other = other;
    other.leads().await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_quorum_ends_the_term_and_when_it_is_back_somebody_leads() {
    let mut etcd = EtcdSetup::new().members(3).start();
    let desk = Desk::new();
    let mut one = stand(&etcd.url(), "one", LEASE, &desk);
    let first = one.leads().await;
    let other = stand(&etcd.url(), "other", LEASE, &desk);
    follows(&other).await;
    let leader = etcd.leader().expect("the cluster has a leader");
    let gone = [leader, (leader + 1) % 3];
    gone.iter().for_each(|member| etcd.members[*member].process.kill());
    assert_eq!(one.loses().await, (first, Why::NotRenewed));
    assert!(!other.election.is_leader(), "it leads by the word of a minority");
    gone.iter().for_each(|member| etcd.members[*member].process.restart());
    assert!(acted_above(&desk, first).await > first);
    has_one_connection_each(&etcd, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_revoked_by_an_operator_ends_the_term_at_once() {
    let etcd = Arc::new(Etcd::start());
    let desk = Desk::new();
    let mut one = stand_safely(&etcd.url(), "one", &desk);
    let first = one.leads().await;
    let other = stand_safely(&etcd.url(), "other", &desk);
    follows(&other).await;
    let seat = ctl(&etcd, &["get", "--print-value-only", "tenure/seats/jobs"]).await;
    let lease = seat.lines().next().unwrap().trim_start_matches('0').to_owned();
    let renewals = one.counter.counts().renewals;
    ctl(&etcd, &["lease", "revoke", &lease]).await;
    assert_eq!(one.loses().await, (first, Why::SessionOver));
    assert!(one.counter.counts().renewals <= renewals + 1, "it was not told, but found out");
    assert!(acted_above(&desk, first).await > first);
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_deleted_by_an_operator_is_waited_out_and_tokens_go_on_rising() {
    let etcd = Arc::new(Etcd::start());
    let desk = Desk::new();
    let mut one = stand(&etcd.url(), "one", LEASE, &desk);
    let first = one.leads().await;
    let other = stand(&etcd.url(), "other", LEASE, &desk);
    follows(&other).await;
    ctl(&etcd, &["del", "--prefix", "tenure/seats/"]).await;
    assert_eq!(one.loses().await.0, first);
    assert!(acted_above(&desk, first).await > first);
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_above_a_deleted_seat_also_where_bids_have_overtaken_the_revision() {
    let etcd = Arc::new(Etcd::start());
    let seat = SeatName::new("jobs").unwrap();
    let record = |token: u64| {
        let json = format!(r#"{{"v":1,"token":{token},"lease_ms":3000,"nonce":"0000000000000001"}}"#);
        record::from_json(&json).unwrap_or_else(|error| panic!("{error}"))
    };
    let store = EtcdStore::from_url(&etcd.url()).unwrap();
    let swap = store.swap(&seat, None, &record(1_000_000)).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
    ctl(&etcd, &["del", "tenure/seats/jobs"]).await;
    let another = EtcdStore::from_url(&etcd.url()).unwrap();
    let reading = another.read(&seat).await.unwrap();
    assert!(reading.seat.is_none() && reading.floor >= Token::new(1_000_000), "{reading:?}");
    // Where the revision says enough by itself, nothing is left of a seat that was forgotten.
    another.swap(&seat, None, &record(1)).await.unwrap();
    another.forget(&seat).await.unwrap();
    assert!(another.read(&seat).await.unwrap().floor >= Token::new(1_000_000));
    let other = SeatName::new("other").unwrap();
    another.swap(&other, None, &record(1)).await.unwrap();
    another.forget(&other).await.unwrap();
    assert_eq!(ctl(&etcd, &["get", "--prefix", "--keys-only", "tenure/"]).await.trim(), "tenure/floors/jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_does_not_keep_news_from_followers() {
    let etcd = Arc::new(Etcd::start());
    let desk = Desk::new();
    let mut one = stand(&etcd.url(), "one", LONG, &desk);
    one.leads().await;
    let mut other = stand(&etcd.url(), "other", LONG, &desk);
    follows(&other).await;
    for _ in 0..20 {
        ctl(&etcd, &["put", "elsewhere", "x"]).await;
    }
    let status = ctl(&etcd, &["endpoint", "status", "-w", "json"]).await;
    let revision = status.split("\"revision\":").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap();
    ctl(&etcd, &["compact", revision]).await;
    ctl(&etcd, &["defrag"]).await;
    let reads = other.counter.counts().reads;
    one.election.stop();
    other.leads().await;
    assert!(other.counter.counts().reads <= reads + 3, "it was not told, but has looked");
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_runs_out_is_renewed_and_rights_revoked_in_mid_term_are_told() {
    let etcd = Arc::new(Etcd::start());
    for command in [
        "user add root:root",
        "user add jobs:secret",
        "role add jobs",
        "role grant-permission jobs readwrite tenure/ --prefix=true",
        "user grant-role jobs jobs",
        "auth enable",
    ] {
        ctl(&etcd, &command.split(' ').collect::<Vec<_>>()).await;
    }
    let desk = Desk::new();
    let mut one = stand(&format!("etcd://jobs:secret@{}", etcd.addresses()), "one", LONG, &desk);
    let first = one.leads().await;
    let other = stand(&format!("etcd://root:root@{}", etcd.addresses()), "other", LONG, &desk);
    renews_on(&one).await;
    // To set a password, be it the same one, ends all that was given for it.
    let root = "--user=root:root";
    let file = etcd.folder().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let (server, path) = (etcd.clone(), file.clone());
    tokio::task::spawn_blocking(move || set_password(&server, "jobs", &path)).await.unwrap();
    renews_on(&one).await;
    assert!(one.election.is_leader());
    assert_eq!(desk.sittings(), 1, "a log-in that ran out has cost the term");

    ctl(&etcd, &[root, "user", "revoke-role", "jobs", "jobs"]).await;
    let (told, lost) = one.is_denied_and_loses().await;
    assert!(told.contains("does not permit this") && !told.contains("secret"), "{told}");
    assert_eq!(lost, first);
    acted_above(&desk, first).await;
    ctl(&etcd, &[root, "user", "grant-role", "jobs", "jobs"]).await;
    // A write was denied, so it takes a write to know that it works again.
    other.election.stop();
    one.recovers().await;
    one.leads().await;
    desk.acts_do_not_overlap().unwrap();
}

fn set_password(etcd: &Etcd, user: &str, file: &std::path::Path) {
    let command = format!(
        "ETCDCTL_API=3 etcdctl --endpoints {} --user=root:root user passwd {user} --interactive=false < {}",
        etcd.addresses(),
        file.display()
    );
    let done = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
