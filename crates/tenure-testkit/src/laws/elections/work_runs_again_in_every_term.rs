//! `run_once_per_term` runs the work once in every term of its candidate, again in the same term after a pause if
//! the work failed, and returns when the election ends in this process.
//!
//! Protects from: a task that runs in the first term and never again, and a failing task that is restarted without
//! a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::{Ended, Term, Token};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("again");
    let one = bench.stand(&seat, "one")?;
    let (ran, mut runs) = tokio::sync::mpsc::unbounded_channel::<Token>();
    let failures = Arc::new(AtomicUsize::new(2));
    let (election, to_fail) = (one.election.clone(), failures.clone());
    let work = tokio::spawn(async move {
        election
            .run_once_per_term(async move |term: Term| {
                let _ = ran.send(term.token());
                let left = to_fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if left.is_ok() { Err("an intended error of the work") } else { Ok(()) }
            })
            .await
    });
    // The work fails twice, then it succeeds.
    let mut last = Token::ZERO;
    for _ in 0..3 {
        let token = bench.within("the work runs, and runs again after it failed", runs.recv()).await?;
        ensure!(token.is_some_and(|token| token >= last), "the work ran with {token:?} after {last}");
        last = token.unwrap_or(last);
    }
    // It runs once more in the next term.
    let other = bench.stand(&seat, "other")?;
    other.knows_a_leader().await;
    one.election.step_down();
    other.term().await;
    other.election.stop();
    let next = bench.within("the work runs in the next term", runs.recv()).await?;
    ensure!(next.is_some_and(|next| next > last), "after term {last} the work ran again in {next:?}");
    one.election.stop();
    let ended = bench.within("run_once_per_term returns when the election ends", work).await?;
    ensure!(
        matches!(ended, Ok(Ended::Stopped)),
        "run_once_per_term returned {ended:?}, not that the election was stopped"
    );
    Ok(())
}
