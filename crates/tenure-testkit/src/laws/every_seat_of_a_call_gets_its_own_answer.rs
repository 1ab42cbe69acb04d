//! A call reads or writes many seats, and each seat gets its own answer: existing seats and absent ones, writes
//! that succeed and writes that are lost, and renewals among them.
//!
//! Protects from: an answer that reaches another seat of the same call, so that a candidate that lost gets a term.

use std::sync::Arc;

use tenure_core::{Candidate, Clock, DynStore, Expect, News, Reading, Record, Swap, Version, Write};

use super::collected;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// The number of seats, unless the store takes fewer in one call.
const MANY: usize = 9;

pub(super) async fn check(bench: Bench) -> Verdict {
    let promises = bench.promises();
    let (writes, reads) = (MANY.min(promises.writes.seats), MANY.min(promises.reads.seats));
    let (store, me) = (open(&bench), candidate("one"));
    let seats: Vec<_> = (0..MANY).map(|number| bench.seat(&format!("number {number}"))).collect();
    let record = |number: usize, who: &Candidate| bench.held(who, 1 + number as u64);
    let call = tenure_core::Call { lease: bench.lease(), within: bench.patience };
    let write = async |all: Vec<(usize, Expect, Record)>| -> Result<Vec<Swap>, Failure> {
        let all: Vec<_> = all
            .into_iter()
            .map(|(number, expect, record)| Write { seat: seats[number].clone(), expect, record })
            .collect();
        let answers = collected(all.len(), async |to| store.write(&call, &all, to).await);
        let answers = bench.within("an answer to a call about many seats", answers).await??;
        answers
            .into_iter()
            .map(|answer| Ok(answer.ok_or_else(|| Failure::new("a seat of the call got no answer"))??))
            .collect()
    };

    // Every other seat exists. Then one call bids for all of them.
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
                "seat {number} of a call about {} did{} exist, but a bid for it was answered with {swap:?}",
                numbers.len(),
                if is_there { "" } else { " not" }
            );
            versions[*number] = version(&swap).or(versions[*number].take());
        }
    }

    // Every third seat is released separately. Then one call renews all of them.
    for number in (0..MANY).step_by(3) {
        let Some(held) = versions[number].clone() else { continue };
        let released = write(vec![(number, Expect::Version(held), bench.vacant(1 + number as u64))]).await?;
        ensure!(
            matches!(released[0], Swap::Done { .. }),
            "the release of seat {number} was answered with {:?}",
            released[0]
        );
    }
    for numbers in all.chunks(writes) {
        let renewals = numbers
            .iter()
            .filter_map(|number| Some((*number, Expect::Held(versions[*number].clone()?), record(*number, &me))));
        for (number, swap) in numbers.iter().zip(write(renewals.collect()).await?) {
            let is_held = number % 3 != 0;
            ensure!(
                matches!(swap, Swap::Done { .. }) == is_held,
                "seat {number} of a call about {} is{} held, but its renewal was answered with {swap:?}",
                numbers.len(),
                if is_held { "" } else { " not" }
            );
        }
    }

    // One call reads existing and absent seats.
    let seats: Vec<_> =
        all.iter().flat_map(|number| [seats[*number].clone(), bench.seat(&format!("none {number}"))]).collect();
    for (part, names) in seats.chunks(reads).enumerate() {
        let answers = collected(names.len(), async |to| store.read(&call, names, to).await);
        let answers = bench.within("an answer to a call about many seats", answers).await??;
        for (place, answer) in answers.into_iter().enumerate() {
            let at = part * reads + place;
            let reading: Reading = answer.ok_or_else(|| Failure::new("a seat of the call got no answer"))??;
            let token = reading.seat.map(|seat| seat.record.token.get());
            let expected = (at % 2 == 0).then_some(1 + (at / 2) as u64);
            ensure!(token == expected, "a seat with token {expected:?} reads as one with token {token:?}");
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
