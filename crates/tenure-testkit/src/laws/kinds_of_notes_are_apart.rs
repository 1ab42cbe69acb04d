//! Requests and announcements are listed, replaced and removed apart, also with the same key.
//!
//! Protects from: a leader that takes who stands for who asks it to step down.

use std::time::Duration;

use tenure_core::{Note, NoteKind};

use super::attend;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("kinds");
    let store = bench.connect();
    let board = crate::laws::board_of(&store)?;
    let key = attend(board).await?.to_string();
    for kind in [NoteKind::Request, NoteKind::Announcement] {
        let value = format!("{:?}", kind.as_str());
        board.put(&seat, &Note { kind, key: key.clone(), value, lifetime: Duration::from_secs(60) }).await?;
    }
    for kind in [NoteKind::Request, NoteKind::Announcement] {
        let listed = board.list(&seat, kind).await?;
        ensure!(
            listed.len() == 1 && listed[0].kind == kind && listed[0].value.contains(kind.as_str()),
            "as {} are listed: {listed:?}",
            kind.as_str()
        );
    }
    board.remove(&seat, NoteKind::Request, &key).await?;
    let left = board.list(&seat, NoteKind::Announcement).await?;
    ensure!(left.len() == 1, "removing a request has removed an announcement with the same key");
    Ok(())
}
