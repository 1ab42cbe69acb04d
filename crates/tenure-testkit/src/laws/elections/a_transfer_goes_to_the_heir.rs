//! A leader that hands over to a named candidate is followed by that candidate and by no other, whether the request
//! comes from its own process or from another one.
//!
//! Protects from: a planned hand-over that ends at the wrong candidate.

use futures_util::FutureExt;
use tenure_core::EventKind;

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, OverlapDetector, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    the_seat_names_the_heir(&bench).await?;
    let seat = bench.seat("transfer");
    let detector = OverlapDetector::new();
    // A long lease, so that others leave the seat to the heir for longer than any machine is busy.
    let stand = |id: &str| bench.stand_with(&seat, id, |election| election.lease(bench.long_lease()));
    let all = [stand("one")?, stand("other")?, stand("third")?];
    for standing in &all {
        standing.reports_to(&detector);
        standing.knows_a_leader().await;
    }
    bench.until("three are listed", || async { Ok(all[0].election.candidates().await?.len() == 3) }).await?;
    hand_over(&bench, &all, 0).await?;
    // From another process, through the board.
    hand_over(&bench, &all, 2).await?;
    detector.shifts_do_not_overlap()?;

    let leader = leader(&bench, &all).await?;
    let (one, third) = (&all[leader], &all[(leader + 2) % 3]);
    let refused = async |candidate: &str| match one.election.transfer_to(candidate).await {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    };
    let words = refused("nobody").await;
    ensure!(
        words.contains("does not stand") && words.contains("third"),
        "a transfer to an unknown candidate fails with: {words}"
    );
    let words = refused(&one.election.candidate().id).await;
    ensure!(words.contains("already leads the election"), "a transfer to the leader itself fails with: {words}");
    third.election.report_healthy(false, ())?;
    bench
        .until("an unhealthy candidate shows on the roster", || async {
            Ok(one.election.candidates().await?.iter().any(|status| !status.healthy))
        })
        .await?;
    let words = refused(&third.election.candidate().id).await;
    ensure!(words.contains("not healthy enough"), "a transfer to an unhealthy candidate fails with: {words}");
    Ok(())
}

/// Checks that the vacant seat names the heir, because that holds back the others. The heir cannot bid meanwhile: an
/// heir that is not named could still win by being the fastest.
async fn the_seat_names_the_heir(bench: &Bench) -> Verdict {
    let seat = bench.seat("heir");
    let stand = |id: &str| bench.stand_with(&seat, id, |election| election.lease(bench.long_lease()));
    let one = stand("one")?;
    one.term().await;
    let heir = stand("heir")?;
    bench.until("two are listed", || async { Ok(one.election.candidates().await?.len() == 2) }).await?;
    heir.wire.set_writes(Traffic::Refuse);
    bench.within("an answer to a transfer", one.election.transfer_to("heir")).await??;
    let store = bench.connect();
    bench
        .until("the seat is released", || async { Ok(bench.read(&store, &seat).await?.record.holder.is_none()) })
        .await?;
    let named = bench.read(&store, &seat).await?.record.heir;
    ensure!(named.is_some(), "the seat was released for a named candidate, but names no heir");
    heir.wire.set_writes(Traffic::Pass);
    heir.term().await;
    Ok(())
}

/// Waits until a candidate leads, and returns its index.
async fn leader(bench: &Bench, all: &[TestCandidate; 3]) -> Result<usize, crate::Failure> {
    let leads = || all.iter().position(|standing| standing.election.is_leader());
    bench.until("a candidate leads", || async { Ok(leads().is_some()) }).await?;
    Ok(leads().unwrap_or(0))
}

/// Hands over from the leader to the next candidate, requested by the candidate at an offset from the leader.
async fn hand_over(bench: &Bench, all: &[TestCandidate; 3], asker: usize) -> Verdict {
    loop {
        let leader = leader(bench, all).await?;
        let (from, to, third) = (&all[leader], &all[(leader + 1) % 3], &all[(leader + 2) % 3]);
        let (mut events, mut third_events) = (from.election.events(), third.election.events());
        let Some(token) = from.election.term().map(|term| term.token()) else { continue };
        let ask = &all[(leader + asker) % 3].election;
        let asked = bench.within("an answer to a transfer", ask.transfer_to(&to.election.candidate().id)).await?;
        // If the machine is so busy that the term was lost before the hand-over, repeat.
        if let Err(error) = asked {
            ensure!(from.election.term().is_none_or(|term| term.token() != token), "a transfer was refused: {error}");
            continue;
        }
        let ended = bench
            .event(
                "the end of the term that is handed over",
                &mut events,
                |event| matches!(event, EventKind::LostLeadership { token: ended, .. } if *ended == token),
            )
            .await?;
        if !matches!(ended, EventKind::LostLeadership { why, .. } if why.is_voluntary()) {
            continue;
        }
        let next = to.term().await.token();
        ensure!(next > token, "the next term has token {next}, which is not above {token}");
        while let Some(Some(event)) = third_events.next().now_or_never() {
            if let EventKind::BecameLeader { term } = event.kind {
                let between = term.token();
                ensure!(between < token || between > next, "a third candidate led in between, with token {between}");
            }
        }
        return Ok(());
    }
}
