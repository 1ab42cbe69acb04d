//! A process announces itself with far fewer calls than it needs to renew a seat, and with no additional call for
//! each further election.
//!
//! Protects from: rosters that cost more than their elections.

use crate::law::Need;
use crate::{Bench, Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

/// The number of elections of the process.
const ELECTIONS: u64 = 20;

pub(super) async fn check(bench: Bench) -> Verdict {
    let first = bench.stand(&bench.seat("first"), "one")?;
    first.term().await;
    bench.until("the candidate is announced", || async { Ok(!first.election.candidates().await?.is_empty()) }).await?;
    // Four leases.
    costs_little(&bench, &first, 1, 12).await?;

    let mut others = Vec::new();
    for number in 1..ELECTIONS {
        let seat = bench.seat(&format!("number {number}"));
        let builder = first.elections.election(seat.as_str()).lease(bench.lease()).candidate("one");
        let election = bench.subject.configure(builder).start()?;
        bench.within("each election is won", election.elected()).await??;
        others.push(election);
    }
    bench
        .until("all candidates are announced", || async {
            for election in &others {
                if election.candidates().await?.is_empty() {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await?;
    // Two leases, so that the process announces itself in each interval.
    costs_little(&bench, &first, ELECTIONS, 6 * ELECTIONS).await
}

/// Counts the calls until the seats of these elections were renewed often enough.
async fn costs_little(bench: &Bench, one: &TestCandidate, elections: u64, renewals: u64) -> Verdict {
    // If a busy machine delays a process for a lease, the process announces all candidates again. Then the next
    // interval counts.
    let mut costs = Vec::new();
    for _ in 0..3 {
        let before = one.counter.counts();
        let enough = before.renewals + renewals;
        bench.within("the seats are renewed", one.counter.wait_for(|counts| counts.renewals >= enough)).await?;
        let after = one.counter.counts();
        let renewals = after.renewals - before.renewals;
        let announcing = after.announcing - before.announcing;
        let reading = after.notes - before.notes - announcing;
        // A seat is renewed three times a lease, and a process is announced once. The interval may start or end within
        // a lease.
        let few = renewals / (3 * elections) + 2;
        // Without notifications, the board is also read for requests, once per renewal.
        let is_notified = bench.promises().push == tenure_core::Push::Proven && bench.subject.is_told();
        if announcing <= few && reading <= if is_notified { few } else { renewals + elections } {
            return Ok(());
        }
        costs.push(format!(
            "{announcing} calls to announce, and {reading} to read the board, while the seats of {elections} elections \
             were renewed {renewals} times{}",
            if is_notified {
                "; boards are read at every renewal until the store's watch calls `news.listening`"
            } else {
                ""
            }
        ));
    }
    Err(Failure::new(costs.join("; ")))
}
