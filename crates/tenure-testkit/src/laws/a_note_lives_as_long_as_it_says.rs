//! A request is listed for at least its lifetime, and not for ever.
//!
//! Protects from: requests that are gone before the leader could read them, and requests to a leader
//! that left long ago.

use tenure_core::{Note, NoteKind};

use crate::bench::now;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("lifetimes");
    let store = bench.connect();
    let board = crate::laws::board_of(&store)?;
    let lifetime = bench.lease();
    let note = |key: &str, lifetime| Note { kind: NoteKind::Request, key: key.into(), value: "{}".into(), lifetime };
    board.put(&seat, &note("long", lifetime * 60)).await?;
    let put = now();
    board.put(&seat, &note("short", lifetime)).await?;
    bench
        .until("that a note is gone after its lifetime", || async {
            let listed = board.list(&seat, NoteKind::Request).await?;
            let age = now().since(put);
            let has = |key: &str| listed.iter().any(|note| note.key == key);
            ensure!(has("long"), "a note for {:?} is gone after {age:?}", lifetime * 60);
            ensure!(has("short") || age >= lifetime * 98 / 100, "a note for {lifetime:?} is gone after {age:?}");
            Ok(!has("short"))
        })
        .await?;
    // Put again, it lives again.
    board.put(&seat, &note("short", lifetime * 60)).await?;
    let listed = board.list(&seat, NoteKind::Request).await?;
    ensure!(listed.len() == 2, "a note that was put again after its lifetime is not listed: {listed:?}");
    Ok(())
}
