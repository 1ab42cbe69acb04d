//! Work that cannot be cut, and overruns its term, is told of; until it has returned, the seat is
//! not given up and its candidate neither ends nor stands again. Then it does.
//!
//! Protects from: a successor that starts beside work which is still running, and from one process
//! that runs the same work twice.

use std::sync::mpsc;
use std::time::Instant;

use tenure_core::{Ended, Event, Token};

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (stopped, lost) = tokio::join!(overruns_a_stop(&bench), overruns_a_loss(&bench));
    stopped.and(lost)
}

/// Work that blocks a thread until it is let go.
struct Stubborn {
    token: Token,
    release: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Option<Result<(), Ended>>>,
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
            // None if the term was lost in between.
            if let Some(token) = bench.within("that the work begins", has_entered.recv()).await? {
                return Ok(Self { token, release, thread });
            }
        }
    }

    /// Lets it return; it must be told that its term was over by then.
    async fn end(self, bench: &Bench) -> Verdict {
        drop(self.release);
        let thread = self.thread;
        let returned = bench.within("that the work returns", tokio::task::spawn_blocking(|| thread.join())).await?;
        ensure!(
            matches!(returned, Ok(Ok(Some(Err(Ended::TermEnded { token, .. })))) if token == self.token),
            "work that overran was told {returned:?}, and not that its term had ended"
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
    let is_overrun = |event: &Event| matches!(event, Event::Overran { token: overran } if *overran == token);
    bench.event("that the overrun is told", &mut events, is_overrun).await?;
    let seen = bench.read(&bench.connect(), &seat).await?;
    ensure!(!seen.record.is_vacant(), "the seat was given up while work that cannot be cut still runs");
    let stopped = futures_util::FutureExt::now_or_never(one.election.stopped());
    ensure!(stopped.is_none(), "the election ended here while its work still runs");
    let returns = Instant::now();
    work.end(bench).await?;
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "stop() must end as stopped, not as: {ended}");
    ensure!(bench.gave_up(&seat, returns).await?, "once the work has returned, the seat is still not given up");
    Ok(())
}

async fn overruns_a_loss(bench: &Bench) -> Verdict {
    let seat = bench.seat("overruns-a-loss");
    let one = bench.stand(&seat, "one")?;
    let work = Stubborn::begin(bench, &one).await?;
    let token = work.token;
    let mut events = one.election.events();
    one.wire.set(Traffic::Hang);
    let is_overrun = |event: &Event| matches!(event, Event::Overran { token: overran } if *overran == token);
    bench.event("that the overrun is told", &mut events, is_overrun).await?;
    one.wire.set(Traffic::Pass);
    // Long enough for the seat to lapse and to be looked at again.
    let before = one.counter.counts();
    tokio::time::sleep(bench.lease() * 2).await;
    bench
        .within("that the candidate looks at the seat", async {
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
