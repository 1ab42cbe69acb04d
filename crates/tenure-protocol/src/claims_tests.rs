//! Occasions: which candidate claims one, and when the others leave.

use super::*;

const OTHERS: u64 = 1_000;

fn occasion(ms: u64) -> Occasion {
    Occasion::new(ms, Duration::ZERO)
}

fn claiming(occasion: Occasion) -> Script {
    Script::with(|rules| rules.occasion = Some(occasion))
}

/// A seat with a claim of the other candidate.
fn claimed(holder: Option<Candidate>, at_ms: u64, done: bool) -> Seat {
    let mut seat = seat(holder, 7, "v7");
    seat.record.claim = Some(Claim { at_ms, by: "other".into(), token: Token::new(7), done }.into());
    seat
}

/// The claim in the record that the machine writes.
fn written(actions: &[Action]) -> Option<&Claim> {
    let record = actions.iter().find_map(|action| match action {
        Action::Swap { record, .. } | Action::Renew { record, .. } => Some(record),
        _ => None,
    });
    record.expect("a write").claim.as_deref()
}

#[test]
fn the_bid_carries_the_claim_and_the_release_keeps_it() {
    let mut script = claiming(occasion(OTHERS + 1));
    let bid = script.step(read(Some(claimed(None, OTHERS, true))));
    let mine = Claim { at_ms: OTHERS + 1, by: "me".into(), token: Token::new(8), done: false };
    assert_eq!(written(&bid), Some(&mine));
    script.step(done("v8"));
    script.step(Input::Stop);
    let release = script.step(Input::Drained(Token::new(8)));
    assert_eq!(written(&release), Some(&mine), "the work was not reported as done");
}

#[test]
fn work_that_is_reported_as_done_is_recorded_with_the_release() {
    let mut script = claiming(occasion(1));
    script.step(read(None));
    script.step(done("v1"));
    script.step(Input::Yield);
    script.step(Input::Stop);
    let release = script.step(Input::Drained(Token::new(1)));
    assert!(written(&release).is_some_and(|claim| claim.done));
    assert_eq!(script.step(done("v2")), [Action::Stopped(Stopped::Asked)]);
}

#[test]
fn a_candidate_leaves_an_occasion_that_is_claimed() {
    for (holder, done) in [(Some(other()), false), (None, false), (None, true)] {
        let mut script = claiming(occasion(OTHERS));
        let seen = claimed(holder.clone(), OTHERS, done);
        assert_eq!(script.step(read(Some(seen))), [Action::Stopped(Stopped::Claimed)], "{holder:?} {done}");
    }
    let mut late = claiming(occasion(OTHERS - 1));
    assert_eq!(late.step(read(Some(claimed(None, OTHERS, false)))), [Action::Stopped(Stopped::Claimed)]);
}

#[test]
fn a_candidate_that_leaves_a_claimed_occasion_reports_no_leader() {
    let Script { mut machine, now, .. } = claiming(occasion(OTHERS));
    let mut actions = Vec::new();
    machine.step(now, read(Some(claimed(Some(other()), OTHERS, false))), &mut actions);
    assert_eq!(actions, [Action::Stopped(Stopped::Claimed)]);
}

#[test]
fn a_claim_covers_the_span_that_the_candidate_asks_for() {
    let within = |ms: u64| claiming(Occasion::new(ms, Duration::from_millis(100)));
    for ms in [OTHERS - 50, OTHERS, OTHERS + 99] {
        let leaves = within(ms).step(read(Some(claimed(None, OTHERS, true))));
        assert_eq!(leaves, [Action::Stopped(Stopped::Claimed)], "{ms}");
    }
    assert!(written(&within(OTHERS + 100).step(read(Some(claimed(None, OTHERS, true))))).is_some());
}

#[test]
fn an_occasion_that_is_not_done_can_be_resumed_and_keeps_its_time() {
    let resumed = || claiming(Occasion::new(OTHERS + 5, LEASE).resumable());
    let mut script = resumed();
    let bid = script.step(read(Some(claimed(None, OTHERS, false))));
    assert_eq!(written(&bid).map(|claim| claim.at_ms), Some(OTHERS));
    assert_eq!(resumed().step(read(Some(claimed(None, OTHERS, true)))), [Action::Stopped(Stopped::Claimed)]);
    // While the other candidate holds the seat, this one waits.
    assert_eq!(resumed().step(read(Some(claimed(Some(other()), OTHERS, false)))), []);
}

#[test]
fn a_later_occasion_that_is_not_done_is_not_resumed_for_an_earlier_one() {
    let mut late = claiming(occasion(OTHERS - 1).resumable());
    assert_eq!(late.step(read(Some(claimed(None, OTHERS, false)))), [Action::Stopped(Stopped::Claimed)]);
}

#[test]
fn a_candidate_does_not_take_its_own_bid_for_the_claim_of_another() {
    let mut script = claiming(occasion(1));
    let bid = script.step(read(None));
    let Some(Action::Swap { record, .. }) = bid.first().cloned() else { panic!("{bid:?}") };
    let unknown = script.step(Input::Written(Err(Fault::Unknown)));
    assert!(unknown.contains(&Action::Read), "{unknown:?}");
    let landed = Seat { record, version: Version::new("v1"), life: Life::Observe };
    let renewal = script.step(read(Some(landed)));
    assert!(matches!(&renewal[..], [.., Action::Renew { .. }]), "{renewal:?}");
    script.step(done("v1"));
    assert_eq!(script.term(), Some(1));
}

#[test]
fn a_candidate_whose_term_was_lost_does_not_run_its_occasion_again() {
    let mut script = claiming(occasion(1));
    script.step(read(None));
    script.step(done("v1"));
    script.step(Input::StepDown);
    script.step(Input::Drained(Token::new(1)));
    assert!(script.step(done("v2")).contains(&Action::Stopped(Stopped::Claimed)));
}

#[test]
fn a_candidate_without_an_occasion_keeps_the_claim() {
    let mut script = Script::new();
    let bid = script.step(read(Some(claimed(None, OTHERS, true))));
    assert_eq!(written(&bid), claimed(None, OTHERS, true).record.claim.as_deref());
}

#[test]
fn a_seat_that_an_earlier_election_of_the_process_left_is_bid_for_and_not_renewed() {
    // A renewal does not always write the record, so it could begin a term without a claim.
    let mut script = claiming(occasion(OTHERS + 1));
    let left = script.step(read(Some(claimed(Some(me()), OTHERS, false))));
    assert!(matches!(&left[..], [.., Action::Swap { .. }]), "{left:?}");
    assert_eq!(written(&left).map(|claim| claim.at_ms), Some(OTHERS + 1));
}
