//! A call reads or writes many seats, and each has its own answer: seats that are there beside seats that are not, writes
//! that are done beside writes that are lost, renewals among them.
//!
//! Protects from: an answer that is handed to another seat of the same call, and so a term for a candidate that lost.

use std::sync::Arc;

use tenure_core::{
    Candidate, Clock, DynStore, Expect, News, Reading, Record, Swap, Version, Write,
};

use super::collected;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// So many, unless the store takes fewer in one call.
const MANY: usize = 9;

pub(super) async fn check(bench: Bench) -> Verdict {
    let promises = bench.promises();
    let (writes, reads) = (MANY.min(promises.writes.seats), MANY.min(promises.reads.seats));
    let (store, me) = (open(&bench), candidate("one"));
    let seats: Vec<_> = (0..MANY).map(|number| bench.seat(&format!("number {number}"))).collect();
    let record = |number: usize, who: &Candidate| bench.held(who, 1 + number as u64);
    let call = tenure_core::Call { lease: bench.lease(), within: bench.patience };
    let write = async |all: Vec<(usize, Expect, Record)>| -> Result<Vec<Swap>, Failure> {
        let all: Vec<_> =
            all.into_iter().map(|(number, expect, record)| Write { seat: seats[number].clone(), expect, record }).collect();
        let answers = collected(all.len(), async |to| store.write(&call, &all, to).await);
        let answers = bench.within("an answer to a call about many seats", answers).await??;
        answers.into_iter().map(|answer| Ok(answer.ok_or_else(|| Failure::new("a seat was left out"))??)).collect()
    };

    // Every other seat is there; then all are bid for.
    let absent = |numbers: &[usize], who: &Candidate| {
        numbers.iter().map(|number| (*number, Expect::Absent(None), record(*number, who))).collect::<Vec<_>>()
    };
    let (mut there, mut versions): (Vec<usize>, Vec<Option<Version>>) = (Vec::new(), vec![None; MANY]);
    for number in (0..MANY).step_by(2) {
        there.push(number);
        versions[number] = version(&write(absent(&[number], &me)).await?[0]);
    }
    let all: Vec<usize> = (0..MANY).collect();
    for numbers in all.chunks(writes) {
        for (number, swap) in numbers.iter().zip(write(absent(numbers, &me)).await?) {
            let is_there = there.contains(number);
            ensure!(
                matches!(swap, Swap::Lost) == is_there,
                "seat {number} of a call about {} was{} there, and a bid for it was {swap:?}",
                numbers.len(),
                if is_there { "" } else { " not" }
            );
            versions[*number] = version(&swap).or(versions[*number].take());
        }
    }

    // Every third is given up by itself; then all are renewed.
    for number in (0..MANY).step_by(3) {
        let Some(held) = versions[number].clone() else { continue };
        let released = write(vec![(number, Expect::Version(held), bench.vacant(1 + number as u64))]).await?;
        ensure!(matches!(released[0], Swap::Done { .. }), "seat {number} could not be given up: {:?}", released[0]);
    }
    for numbers in all.chunks(writes) {
        let renewals = numbers.iter().filter_map(|number| {
            Some((*number, Expect::Held(versions[*number].clone()?), record(*number, &me)))
        });
        for (number, swap) in numbers.iter().zip(write(renewals.collect()).await?) {
            let is_held = number % 3 != 0;
            ensure!(
                matches!(swap, Swap::Done { .. }) == is_held,
                "seat {number} of a call about {} is{} held, and its renewal was {swap:?}",
                numbers.len(),
                if is_held { "" } else { " not" }
            );
        }
    }

    // Seats that are there and seats that never were are read together.
    let seats: Vec<_> = all.iter().flat_map(|number| [seats[*number].clone(), bench.seat(&format!("none {number}"))]).collect();
    for (part, names) in seats.chunks(reads).enumerate() {
        let answers = collected(names.len(), async |to| store.read(&call, names, to).await);
        let answers = bench.within("an answer to a call about many seats", answers).await??;
        for (place, answer) in answers.into_iter().enumerate() {
            let at = part * reads + place;
            let reading: Reading = answer.ok_or_else(|| Failure::new("a seat was left out"))??;
            let token = reading.seat.map(|seat| seat.record.token.get());
            let expected = (at % 2 == 0).then_some(1 + (at / 2) as u64);
            ensure!(token == expected, "a seat with the token {expected:?} reads as one with {token:?}");
        }
    }
    Ok(())
}

fn open(bench: &Bench) -> Arc<dyn DynStore> {
    let store: Arc<dyn DynStore> = Arc::from(bench.subject.open());
    store.attach(&Clock::system(), &News::unheard());
    store
}

fn version(swap: &Swap) -> Option<Version> {
    match swap {
        Swap::Done { version, .. } => Some(version.clone()),
        Swap::Lost => None,
    }
}
