//! Work that cannot be cancelled, and overruns its term, is reported. Until it has returned, the seat is not
//! released, and its candidate neither ends nor stands again. Then it does.
//!
//! Protects from: a successor that starts while the work still runs, and a process that runs the same work twice.

use std::sync::mpsc;
use std::time::Instant;

use tenure_core::{Ended, EventKind, Token};

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (stopped, lost) = tokio::join!(overruns_a_stop(&bench), overruns_a_loss(&bench));
    stopped.and(lost)
}

/// Work that blocks a thread until the law lets it return.
struct Stubborn {
    token: Token,
    release: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Result<(), Ended>>,
}

impl Stubborn {
    async fn begin(bench: &Bench, standing: &TestCandidate) -> Result<Self, Failure> {
        loop {
            standing.term().await;
            let (release, released) = mpsc::channel();
            let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
            let election = standing.election.clone();
            let thread = std::thread::spawn(move || {
                election.run_if_leader_blocking(|term| {
                    let _ = entered.send(term.token());
                    let _ = released.recv();
                })
            });
            // `None` if the term was lost meanwhile.
            if let Some(token) = bench.within("the work begins", has_entered.recv()).await? {
                return Ok(Self { token, release, thread });
            }
        }
    }

    /// Lets the work return. It must then see that its term was over.
    async fn end(self, bench: &Bench) -> Verdict {
        drop(self.release);
        let thread = self.thread;
        let returned = bench.within("the work returns", tokio::task::spawn_blocking(|| thread.join())).await?;
        ensure!(
            matches!(returned, Ok(Ok(Err(Ended::TermEnded { token, .. }))) if token == self.token),
            "work that overran got {returned:?}, not that its term had ended"
        );
        Ok(())
    }
}

async fn overruns_a_stop(bench: &Bench) -> Verdict {
    let seat = bench.seat("overruns-a-stop");
    let one = bench.stand(&seat, "one")?;
    let work = Stubborn::begin(bench, &one).await?;
    let mut events = one.election.events();
    one.election.stop();
    let token = work.token;
    let is_overrun = |event: &EventKind| matches!(event, EventKind::Overran { token: overran } if *overran == token);
    bench.event("an event that the work overran", &mut events, is_overrun).await?;
    let seen = bench.read(&bench.connect(), &seat).await?;
    ensure!(!seen.record.is_vacant(), "the seat was released while work that cannot be cancelled still runs");
    let stopped = futures_util::FutureExt::now_or_never(one.election.stopped());
    ensure!(stopped.is_none(), "the election ended while its work still runs");
    let returns = Instant::now();
    work.end(bench).await?;
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "stop() must end as stopped, not as: {ended}");
    ensure!(bench.has_released(&seat, returns).await?, "the seat was not released after the work had returned");
    Ok(())
}

async fn overruns_a_loss(bench: &Bench) -> Verdict {
    let seat = bench.seat("overruns-a-loss");
    let one = bench.stand(&seat, "one")?;
    let work = Stubborn::begin(bench, &one).await?;
    let token = work.token;
    let mut events = one.election.events();
    one.wire.set(Traffic::Hang);
    let is_overrun = |event: &EventKind| matches!(event, EventKind::Overran { token: overran } if *overran == token);
    bench.event("an event that the work overran", &mut events, is_overrun).await?;
    one.wire.set(Traffic::Pass);
    // Long enough for the seat to expire and to be read again.
    let before = one.counter.counts();
    tokio::time::sleep(bench.lease() * 2).await;
    bench
        .within("the candidate reads the seat", async {
            one.counter.wait_for(|counts| counts.reads > before.reads).await;
        })
        .await?;
    ensure!(
        one.election.term().is_none_or(|term| term.token() == token) && !one.election.is_leader(),
        "the candidate leads again while work of its last term still runs"
    );
    work.end(bench).await?;
    let again = one.term().await.token();
    ensure!(again > token, "the next term has token {again}, which is not above {token}");
    Ok(())
}
