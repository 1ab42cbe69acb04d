//! `run_then_release` releases the seat each time its work has returned, and other candidates go first: two candidates
//! take turns, and never work at the same time.
//!
//! Protects from: a job that runs only once because its idle leader keeps the seat.

use tenure_core::{Election, Ended, Term};
use tokio::task::JoinHandle;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("turns");
    let detector = OverlapDetector::new();
    let (ran, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let (one, other) = (bench.stand(&seat, "one")?, bench.stand(&seat, "other")?);
    let job = |election: &Election, id: &'static str| -> JoinHandle<Ended> {
        let (election, detector, ran) = (election.clone(), detector.clone(), ran.clone());
        tokio::spawn(async move {
            let work = async |term: Term| {
                detector.begin(&term).act();
                let _ = ran.send(id);
            };
            election.run_then_release(work).await
        })
    };
    let jobs = [job(&one.election, "one"), job(&other.election, "other")];
    let mut turns = [0, 0];
    while turns.iter().any(|turns| *turns < 2) {
        let id = bench.within("each candidate has its turns", runs.recv()).await?;
        turns[usize::from(id == Some("other"))] += 1;
    }
    one.election.stop();
    other.election.stop();
    for job in jobs {
        let ended = bench.within("run_then_release returns when the election ends", job).await?;
        ensure!(
            matches!(ended, Ok(Ended::Stopped)),
            "run_then_release returned {ended:?}, not that the election was stopped"
        );
    }
    detector.acts_do_not_overlap()?;
    detector.shifts_do_not_overlap()
}
