//! A request that was put is listed, as it was put, from every connection, until it is removed.
//! Removing what is not there is no error.
//!
//! Protects from: requests that get lost, and requests that are obeyed again and again.

use std::time::Duration;

use tenure_core::{Note, NoteKind};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("notes");
    let (one, other) = (bench.connect(), bench.connect());
    let (one, other) = (crate::laws::board_of(&one)?, crate::laws::board_of(&other)?);
    let kind = NoteKind::Request;
    let note = |key: &str, value: &str| Note { kind, key: key.into(), value: value.into(), lifetime: Duration::from_secs(60) };
    let notes = [note("a", r#"{"n":1}"#), note("odd/key 'x' % 选", r#"{"text":"it's \"odd\" ✓"}"#), note("A", "{}")];
    for note in &notes {
        one.put(&seat, note).await?;
    }
    for reader in [one, other] {
        let mut listed = reader.list(&seat, kind).await?;
        ensure!(listed.len() == notes.len(), "{} notes were put, but {} are listed: {listed:?}", notes.len(), listed.len());
        listed.retain(|listed| !notes.iter().any(|note| (&note.key, &note.value) == (&listed.key, &listed.value)));
        ensure!(listed.is_empty(), "notes were listed that nobody has put: {listed:?}");
    }
    other.remove(&seat, kind, "a").await?;
    other.remove(&seat, kind, "a").await?;
    other.remove(&seat, kind, "never there").await?;
    let listed = one.list(&seat, kind).await?;
    ensure!(listed.len() == 2 && listed.iter().all(|note| note.key != "a"), "a note was removed, but listed are {listed:?}");
    let empty: Vec<Note> = one.list(&bench.seat("no notes"), NoteKind::Request).await?;
    ensure!(empty.is_empty(), "an empty board lists {empty:?}");
    Ok::<_, Failure>(())
}
