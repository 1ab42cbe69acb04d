//! Fields that this version does not know are kept: they are read back as they were written, and an election that
//! takes the seat and releases it leaves them unchanged.
//!
//! Protects from: rolling upgrades in which the older half erases the fields that the newer half wrote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tenure_core::Record;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("unknown");
    let store = bench.connect();
    let unknown = Arc::new(BTreeMap::from([
        ("colour".to_owned(), r#"{"name":"élan","r":[1,2,3]}"#.to_owned()),
        ("weight".to_owned(), "17".to_owned()),
        ("when".to_owned(), "null".to_owned()),
    ]));
    let record = Record { unknown: unknown.clone(), ..bench.vacant(1) };
    bench.write(&store, &seat, None, &record).await?;
    let seen = bench.read(&store, &seat).await?;
    ensure!(seen.record.unknown == unknown, "unknown fields {unknown:?} were read back as {:?}", seen.record.unknown);

    let standing = bench.stand(&seat, "one")?;
    standing.term().await;
    let seen = bench.read(&store, &seat).await?;
    ensure!(seen.record.unknown == unknown, "winning the seat has changed its unknown fields: {seen:?}");
    let stops = Instant::now();
    standing.election.stop();
    standing.stopped().await;
    ensure!(bench.has_released(&seat, stops).await?, "stop() did not release the seat");
    let seen = bench.read(&store, &seat).await?;
    ensure!(seen.record.unknown == unknown, "releasing the seat has changed its unknown fields: {seen:?}");
    Ok(())
}
