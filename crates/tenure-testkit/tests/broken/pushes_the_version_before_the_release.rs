//! Pushes a released seat with the version that it had before the release.

use std::collections::BTreeMap;

use tenure_core::{Release, Scope};

use super::*;

#[derive(Default)]
pub(crate) struct VersionBefore;

impl Defect for VersionBefore {
    fn watch<'a>(
        &'a self,
        parts: &'a Parts,
        interest: &'a Interest,
        news: &'a News,
    ) -> Option<BoxFuture<'a, StoreError>> {
        Some(Box::pin(async move {
            news.listening(Scope::All);
            let mut seats = BTreeMap::<SeatName, Option<Version>>::new();
            loop {
                if let Ok(changes) = tokio::time::timeout(Duration::from_millis(1), interest.next()).await {
                    for change in changes {
                        seats.entry(change.seat).or_default();
                    }
                }
                for (name, before) in &mut seats {
                    let Ok(Reading { seat: Some(seat), identity, .. }) = SeatStore::read(&parts.store, name).await
                    else {
                        continue;
                    };
                    if let Some(version) = before.replace(seat.version.clone()).filter(|before| *before != seat.version)
                        && seat.record.is_vacant()
                    {
                        news.released(name, Release { record: seat.record, version, identity });
                    }
                }
            }
        }))
    }
}
