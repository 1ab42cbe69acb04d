//! Telling of oneself costs no more calls than renewing the seat does, and nothing for each further
//! election of a process.
//!
//! Protects from: rosters that are paid for with every election and every candidate.

use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

/// So many elections of one process.
const ELECTIONS: u64 = 20;

pub(super) async fn check(bench: Bench) -> Verdict {
    let first = bench.stand(&bench.seat("first"), "one")?;
    bench.elected(&first).await?;
    let mut others = Vec::new();
    for number in 1..ELECTIONS {
        let seat = bench.seat(&format!("number {number}"));
        let builder = first.elections.election(seat.as_str()).lease(bench.lease()).candidate("one");
        let election = bench.subject.configure(builder).start()?;
        bench.within("that each election is won", election.elected()).await??;
        others.push(election);
    }
    bench
        .until("that all are announced", || async {
            for election in &others {
                if election.candidates().await?.is_empty() {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await?;
    // A process that was not there for a lease, on a machine that had no time for it, announces all anew: then the
    // next stretch tells.
    let mut costs = Vec::new();
    for _ in 0..3 {
        let before = first.counter.counts();
        let enough = before.renewals + 3 * ELECTIONS;
        bench.within("that the seats are renewed", first.counter.wait_for(|counts| counts.renewals >= enough)).await?;
        let after = first.counter.counts();
        let (renewals, notes) = (after.renewals - before.renewals, after.notes - before.notes);
        // The board is also read for requests, where nothing tells that there are any: once a renewal.
        let is_told = bench.promises().push == tenure_core::Push::Proven;
        if notes <= if is_told { renewals / 2 } else { renewals * 3 / 2 } {
            return Ok(());
        }
        costs.push(format!("{notes} calls to the board while the seats were renewed {renewals} times"));
    }
    Err(Failure::new(costs.join(", ")))
}
