//! A process announces itself with far fewer calls than it renews a seat with, and with no call for each further
//! election.
//!
//! Protects from: rosters that cost more than the elections that they are about.

use crate::law::Need;
use crate::{Bench, Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

/// So many elections of one process.
const ELECTIONS: u64 = 20;

pub(super) async fn check(bench: Bench) -> Verdict {
    let first = bench.stand(&bench.seat("first"), "one")?;
    first.term().await;
    bench.until("that it is announced", || async { Ok(!first.election.candidates().await?.is_empty()) }).await?;
    // Four leases.
    costs_little(&bench, &first, 1, 12).await?;

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
    costs_little(&bench, &first, ELECTIONS, 3 * ELECTIONS).await
}

/// Counts calls until the seats of this many elections were renewed so often.
async fn costs_little(bench: &Bench, one: &TestCandidate, elections: u64, renewals: u64) -> Verdict {
    // A process that was not there for a lease, on a machine that had no time for it, announces all anew: then the
    // next stretch tells.
    let mut costs = Vec::new();
    for _ in 0..3 {
        let before = one.counter.counts();
        let enough = before.renewals + renewals;
        bench.within("that the seats are renewed", one.counter.wait_for(|counts| counts.renewals >= enough)).await?;
        let after = one.counter.counts();
        let renewals = after.renewals - before.renewals;
        let announcing = after.announcing - before.announcing;
        let reading = after.notes - before.notes - announcing;
        // A seat is renewed three times a lease, and a process announced once; the ends of the stretch cut through.
        let few = renewals / (3 * elections) + 2;
        // The board is also read for requests, where nothing tells that there are any: once a renewal.
        let is_told = bench.promises().push == tenure_core::Push::Proven && bench.subject.is_told();
        if announcing <= few && reading <= if is_told { few } else { renewals + elections } {
            return Ok(());
        }
        costs.push(format!(
            "{announcing} calls to announce, and {reading} to read the board, while the seats of {elections} elections \
             were renewed {renewals} times{}",
            if is_told { "; boards are read at every renewal until the store says `news.listening`: does its watch?" } else { "" }
        ));
    }
    Err(Failure::new(costs.join("; ")))
}
