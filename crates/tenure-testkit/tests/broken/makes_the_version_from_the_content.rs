//! Makes the version from the content of the record, without its nonce.

use super::*;

#[derive(Default)]
pub(crate) struct VersionFromContent;

fn version(record: &Record) -> Version {
    let holder = record.holder.as_ref().map(|holder| holder.incarnation.to_string());
    Version::new(format!("{}-{}", record.token, holder.unwrap_or_default()))
}

impl Defect for VersionFromContent {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let mut reading = SeatStore::read(&parts.store, seat).await?;
        if let Some(seat) = &mut reading.seat {
            seat.version = version(&seat.record);
        }
        Ok(reading)
    }

    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let now = SeatStore::read(&parts.store, seat).await?.seat;
        if now.as_ref().map(|seat| version(&seat.record)).as_ref() != expected {
            return Ok(Swap::Lost);
        }
        Ok(match SeatStore::swap(&parts.store, seat, now.as_ref().map(|seat| &seat.version), next).await? {
            Swap::Done { since, granted, .. } => Swap::Done { version: version(next), since, granted },
            Swap::Lost => Swap::Lost,
        })
    }

    async fn renew(&self, parts: &Parts, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.swap(parts, seat, Some(held), record).await
    }
}
