//! Of many candidates that start at once, one leads at a time. Whenever the leader stops, one of the others takes over, and
//! the work of the old leader has returned before that of the next one starts.
//!
//! Protects from: a race between bids that rarely happens with two candidates.

use tenure_core::Token;

use super::{Need, Rig};
use crate::Verdict;
use crate::failure::ensure;

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(rig: Rig) -> Verdict {
    // Long, so that many engines in one process have enough time. The law does not wait for it.
    let lease = rig.server.long_lease() * 2;
    let number = rig.server.many_candidates();
    let stand = |number| rig.stand(&rig.clear, &format!("candidate-{number}"), lease, |election| election);
    let candidates: Vec<_> = (0..number).map(stand).collect();
    let mut token = Token::ZERO;
    for _ in 0..4 {
        let worked = rig.works_above(token).await;
        // A second leader with the same token also keeps the next term from starting.
        rig.detector.acts_do_not_overlap()?;
        token = worked?;
        let leaders = || candidates.iter().filter(|one| one.election.is_leader());
        rig.until("a candidate leads", || leaders().next().is_some()).await?;
        let leaders: Vec<_> = leaders().collect();
        ensure!(leaders.len() == 1, "{} candidates lead at once", leaders.len());
        leaders[0].election.stop();
    }
    candidates.iter().for_each(|one| one.election.stop());
    for one in &candidates {
        one.stopped().await;
    }
    rig.detector.shifts_do_not_overlap()
}
