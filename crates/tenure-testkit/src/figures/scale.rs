//! Processes with growing numbers of elections on one store, and two that share their elections while one is killed.

use std::time::{Duration, Instant};

use tenure_core::{SeatName, SeatStore, SingleSeat};

use super::{BenchTarget, ManyElections, Open, Work};
use crate::servers::PATIENCE;

/// The lease of the checks.
const LEASE: Duration = Duration::from_secs(3);

/// Measures the cost of each number of elections in one process, and prints a line for each. The last one is held for
/// `held_for`, the others for a third of that.
///
/// # Panics
/// If a term is lost.
pub fn table(target: &dyn BenchTarget, sizes: &[u64], lease: Duration, held_for: Duration) {
    println!("{}, lease {lease:?}", target.name());
    println!(
        "  elections  held   elected  released    memory      peak  of a core  calls/s  renewals/s  round trips/s  \
         commands/s  terms lost"
    );
    for (at, &count) in sizes.iter().enumerate() {
        let held_for = if at + 1 == sizes.len() { held_for } else { held_for / 3 };
        let mut process = ManyElections::start(&target.url(), count, lease);
        let elected = process.elected();
        let (before, work) = (process.state(), target.work());
        let held = Instant::now();
        std::thread::sleep(held_for);
        let (after, done) = (process.state(), target.work());
        let held = held.elapsed().as_secs_f64();
        let done = done.zip(work).map(|(done, work)| done.since(work));
        let rate = |of: fn(Work) -> u64| done.map_or("-".to_owned(), |done| format!("{:.0}", of(done) as f64 / held));
        let (round_trips, commands) = (rate(Work::round_trips), rate(|done| done.commands));
        let released = process.stop();
        let each_second = |count: u64| count as f64 / held;
        println!(
            "  {count:>9}  {held:>3.0}s  {:>7.2}s  {:>7.2}s  {:>5.1} MB  {:>5.1} MB  {:>7.1} %  {:>7.1}  {:>10.0}  \
             {round_trips:>13}  {commands:>10}  {:>10}",
            elected.as_secs_f64(),
            released.as_secs_f64(),
            after.memory as f64 / 1e6,
            after.peak as f64 / 1e6,
            (after.processor - before.processor).as_secs_f64() / held * 100.0,
            each_second(after.calls - before.calls),
            each_second(after.renewals - before.renewals),
            after.lost,
        );
        assert_eq!((after.leading, after.lost), (count, 0), "terms were lost without a fault");
    }
}

/// Measures how long it takes until all seats of a killed process have moved to another process, and the peak load of
/// the server meanwhile. Prints both.
///
/// # Panics
/// If a seat does not move in time.
pub fn takeover(target: &dyn BenchTarget, count: u64, lease: Duration) {
    let mut leads = ManyElections::start(&target.url(), count, lease);
    leads.elected();
    let mut follows = ManyElections::start(&target.url(), count, lease);
    follows.follows();
    std::thread::sleep(lease);
    leads.kill();
    let killed = Instant::now();
    let peak = busiest(target, || follows.state().leading == count);
    let moved = killed.elapsed();
    let peak = peak.map_or(String::new(), |work| {
        format!("; at most {} round trips/s and {} commands/s", work.round_trips(), work.commands)
    });
    println!("  {count} shared elections, their leader killed: all moved after {moved:.2?}{peak}");
    follows.stop();
}

/// Reads the statistics of a server ten times a second until `over` returns true, and returns the peak of any second.
fn busiest(target: &dyn BenchTarget, mut over: impl FnMut() -> bool) -> Option<Work> {
    let began = Instant::now();
    let mut samples = vec![(began, target.work())];
    while !over() {
        assert!(began.elapsed() < PATIENCE, "timed out waiting for the seats to move");
        std::thread::sleep(Duration::from_millis(100));
        samples.push((Instant::now(), target.work()));
    }
    let second = |at: usize| {
        let (from, before) = samples[at];
        let (to, after) = samples[at..].iter().find(|(to, _)| *to - from >= Duration::from_secs(1))?;
        let work = after.zip(before).map(|(after, before)| after.since(before))?;
        let rate = |count: u64| (count as f64 / (*to - from).as_secs_f64()) as u64;
        Some(Work { commands: rate(work.commands), reads: work.reads.map(rate) })
    };
    (0..samples.len())
        .filter_map(second)
        .reduce(|most, work| Work { commands: most.commands.max(work.commands), reads: most.reads.max(work.reads) })
}

/// Checks a store with many elections: all are won and none is lost, the server gets far fewer round trips than there
/// are elections, the seats of a killed process move to another, and a process that stops leaves no seat taken. The
/// program must have a test with the name `many_elections` that calls
/// [`many_elections_child`](super::many_elections_child).
///
/// # Panics
/// If a check fails.
pub fn check(target: &dyn BenchTarget, open: Open, count: u64) {
    check_with(target, open, count, LEASE);
}

/// Checks a store with many elections like [`check`], with another lease: for stores that are slow on a busy machine.
///
/// # Panics
/// If a check fails.
pub fn check_with(target: &dyn BenchTarget, open: Open, count: u64, lease: Duration) {
    let mut one = ManyElections::start(&target.url(), count, lease);
    one.elected();
    // Long enough for all elections to be idle.
    std::thread::sleep(lease);
    let (began, work) = (Instant::now(), target.work());
    std::thread::sleep(lease * 2);
    let (state, done) = (one.state(), target.work());
    let held = began.elapsed().as_secs_f64();
    assert_eq!((state.leading, state.lost), (count, 0), "an election is not led, or a term was lost");
    if let Some(done) = done.zip(work).map(|(done, work)| done.since(work)) {
        let (each, asks) = (count as f64 * held, done.round_trips() as f64);
        assert!(asks < each / 3.0, "{asks} round trips for {count} elections in {held:.1} s");
        // One renewal every third of a lease, and some more for other calls.
        assert!(
            (done.commands as f64) < each * 3.0 / lease.as_secs_f64() * 1.2,
            "{} commands for {count} elections in {held:.1} s",
            done.commands
        );
    }
    if !target.is_shared() {
        one.stop();
        return;
    }
    let mut other = ManyElections::start(&target.url(), count, lease);
    other.follows();
    assert_eq!(other.state().leading, 0, "a follower leads although the other process leads");
    assert_eq!(one.state().lost, 0, "a term was lost to a follower");
    one.kill();
    other.elected();
    assert_eq!(other.state().leading, count, "not all seats have moved");
    other.stop();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = SingleSeat::new(open(&target.url()));
        for number in 0..count {
            let seat = SeatName::new(format!("election-{number}")).expect("a name");
            let seat = SeatStore::read(&store, &seat).await.expect("a reading").seat.expect("a seat");
            assert!(seat.record.is_vacant(), "a seat stays taken: {seat:?}");
        }
    });
}
