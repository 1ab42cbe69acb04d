//! Every field of a record is read back as it was written: long and unusual ids, an heir, metadata, the highest
//! numbers, and the absence of each.
//!
//! Protects from: ids that are truncated and collide, and numbers that a column or a format cannot hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::{Crash, Record, Token};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("fields");
    let (store, other) = (bench.connect(), bench.connect());
    let long = format!("{}-1", "x".repeat(510));
    let odd = "élan vital/7 'quoted' \"twice\" \\ 100 % 选举 🗳";
    let metadata = BTreeMap::from([
        (String::new(), String::new()),
        (odd.to_owned(), odd.to_owned()),
        ("lines".to_owned(), "one\ntwo\ttab".to_owned()),
        ("long".to_owned(), "y".repeat(2000)),
    ]);
    let plain = bench.held(&candidate("plain"), 1);
    let crash = Crash { of: candidate(odd), token: Token::new(1), by: long.as_str().into() };
    let records = [
        plain.clone(),
        Record {
            holder: Some(candidate(&long)),
            heir: Some(candidate(odd)),
            ranked: true,
            priority: i32::MIN,
            ..plain.clone()
        },
        Record { holder: Some(candidate(odd)), metadata: Arc::new(metadata), ..plain.clone() },
        Record { since_ms: Some(4_102_444_800_000), nonce: u64::MAX, ..plain.clone() },
        Record { since_ms: None, nonce: 0, metadata: Arc::default(), ..plain.clone() },
        Record { lease: bench.lease() * 3, ..plain.clone() },
        Record { crash: Some(Arc::new(crash)), ..bench.vacant(1) },
        Record { token: Token::new(2), ..bench.vacant(2) },
        Record { token: Token::MAX, heir: Some(candidate("heir")), ..bench.vacant(3) },
    ];
    let mut version = None;
    for record in records {
        let written = bench.write(&store, &seat, version.as_ref(), &record).await?;
        for reader in [&store, &other] {
            let seen = bench.read(reader, &seat).await?;
            ensure!(seen.record == record, "{record:?} was written, but {:?} was read", seen.record);
            ensure!(seen.version == written.version, "the version differs from the one that the write returned");
        }
        version = Some(written.version);
    }
    Ok(())
}
