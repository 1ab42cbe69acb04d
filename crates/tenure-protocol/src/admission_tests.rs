use super::*;

const ONE: BatchLimits = BatchLimits { seats: 1, calls: 4 };
const MANY: BatchLimits = BatchLimits { seats: 10, calls: 1 };

fn group(lane: Lane) -> Group {
    Group { lane, reads: true, shard: 0, lease: Duration::from_secs(15), within: Duration::from_secs(1) }
}

fn next(admission: &mut Admission<u32>) -> Option<Batch<u32>> {
    admission.next(|_| true)
}

fn all(admission: &mut Admission<u32>) -> Vec<Vec<u32>> {
    std::iter::from_fn(|| next(admission)).map(|batch| batch.asks).collect()
}

fn flood(admission: &mut Admission<u32>, group: Group, asks: std::ops::Range<u32>) {
    asks.for_each(|ask| admission.ask(group, ask, 100));
}

#[test]
fn a_single_ask_leaves_at_once_and_asks_that_arrive_meanwhile_share_a_call() {
    let mut admission = Admission::new(MANY, MANY);
    admission.ask(group(Lane::Background), 0, 100);
    let first = next(&mut admission).unwrap();
    assert_eq!(first.asks, [0]);
    flood(&mut admission, group(Lane::Background), 1..13);
    assert_eq!(next(&mut admission), None);
    admission.ended(first.call);
    let second = next(&mut admission).unwrap();
    assert_eq!(second.asks, Vec::from_iter(1..11));
    admission.ended(second.call);
    assert_eq!(next(&mut admission).unwrap().asks, [11, 12]);
}

#[test]
fn asks_that_keep_a_term_go_first_and_have_places_of_their_own() {
    let mut admission = Admission::new(ONE, ONE);
    flood(&mut admission, group(Lane::Background), 0..9);
    assert_eq!(all(&mut admission).len(), ONE.calls);
    // However many other calls hang, these asks leave.
    flood(&mut admission, group(Lane::Settle), 10..12);
    flood(&mut admission, group(Lane::Keep), 20..22);
    assert_eq!(all(&mut admission), [[20], [21], [10], [11]]);
}

#[test]
fn asks_of_different_groups_share_no_call() {
    let mut admission = Admission::new(MANY, MANY);
    let base = group(Lane::Keep);
    let groups = [
        base,
        Group { lane: Lane::Background, ..base },
        Group { reads: false, ..base },
        Group { shard: 1, ..base },
        Group { lease: Duration::from_secs(3), ..base },
        Group { within: Duration::from_secs(3), ..base },
    ];
    for (ask, group) in (0..).zip(groups) {
        admission.ask(group, ask, 100);
    }
    let calls = all(&mut admission);
    assert_eq!((calls.len(), calls.iter().map(Vec::len).sum::<usize>()), (6, 6));
}

#[test]
fn cancelled_asks_are_not_sent() {
    let mut admission = Admission::new(MANY, MANY);
    flood(&mut admission, group(Lane::Background), 0..25);
    let first = admission.next(|ask| ask % 2 == 0).unwrap();
    assert_eq!(first.asks, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
    admission.ended(first.call);
    assert_eq!(admission.next(|_| false), None);
    assert!(admission.queues.is_empty(), "an idle queue is kept");
}

#[test]
fn a_call_is_within_the_byte_limit_unless_a_single_ask_exceeds_it() {
    let mut admission = Admission::new(BatchLimits { calls: 9, ..MANY }, MANY);
    let most = MAX_BYTES;
    for (ask, bytes) in [(0, most / 2), (1, most / 2), (2, 1), (3, 2 * most), (4, 1)] {
        admission.ask(group(Lane::Keep), ask, bytes);
    }
    assert_eq!(all(&mut admission), [vec![0, 1], vec![2], vec![3], vec![4]]);
}

#[test]
fn a_call_that_fails_because_of_one_ask_is_split_until_that_ask_is_alone() {
    let mut admission = Admission::new(BatchLimits { seats: 100, calls: 1 }, MANY);
    flood(&mut admission, group(Lane::Keep), 0..100);
    let (mut blamed, mut answered, mut calls) = (Vec::new(), Vec::new(), 0);
    while let Some(batch) = next(&mut admission) {
        calls += 1;
        if batch.asks.contains(&42) {
            blamed.extend(admission.take_apart(batch.call, batch.asks));
        } else {
            answered.extend(batch.asks);
            admission.ended(batch.call);
        }
    }
    answered.sort_unstable();
    assert_eq!((blamed, calls), (vec![42], 1 + 8 + 7 + 2));
    assert_eq!(answered, Vec::from_iter((0..100).filter(|ask| *ask != 42)));
}

#[test]
fn parts_of_a_split_call_leave_before_later_asks() {
    let mut admission = Admission::new(MANY, MANY);
    flood(&mut admission, group(Lane::Keep), 0..2);
    let batch = next(&mut admission).unwrap();
    flood(&mut admission, group(Lane::Keep), 2..4);
    assert!(admission.take_apart(batch.call, batch.asks).is_empty());
    let mut order = Vec::new();
    while let Some(batch) = next(&mut admission) {
        order.push(batch.asks);
        admission.ended(batch.call);
    }
    assert_eq!(order, [vec![0], vec![1], vec![2, 3]]);
}
