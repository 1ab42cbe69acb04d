//! The leader, its followers and its observers all name the same leader, with its token and metadata, and are
//! notified when the leader changes.
//!
//! Protects from: followers that use a leader which is gone.

use tenure_core::{EventKind, Leader};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("known");
    let one = bench.stand_with(&seat, "one", |election| election.metadata("zone", "a"))?;
    let first = one.term().await.token();
    let other = bench.stand_with(&seat, "other", |election| election.metadata("zone", "b"))?;
    let watching = other.elections.observe(seat.as_str())?;
    let (mut told, mut watched) = (other.election.events(), watching.events());
    for events in [&mut told, &mut watched] {
        let leader = next_leader(&bench, events, "one").await?;
        ensure!(leader.token >= first, "the reported leader has token {}, not {first}", leader.token);
        let zone = leader.metadata.get("zone").map(String::as_str);
        ensure!(zone == Some("a"), "the leader's metadata has zone a, but {zone:?} is reported");
    }
    one.election.stop();
    one.stopped().await;
    let second = other.term().await.token();
    for events in [&mut told, &mut watched] {
        let leader = next_leader(&bench, events, "other").await?;
        ensure!(leader.token >= second, "the reported leader has token {}, not {second}", leader.token);
    }
    ensure!(one.election.leader().is_none(), "an election that has ended here still names a leader");
    Ok(())
}

async fn next_leader(bench: &Bench, events: &mut tenure_core::Events, id: &str) -> Result<Leader, Failure> {
    let is_it = |event: &EventKind| matches!(event, EventKind::LeaderChanged { leader: Some(leader), .. } if &*leader.candidate.id == id);
    match bench.event(&format!("{id} leads"), events, is_it).await? {
        EventKind::LeaderChanged { leader: Some(leader), .. } => Ok(leader),
        other => Err(Failure::new(format!("unexpected event: {other:?}"))),
    }
}
