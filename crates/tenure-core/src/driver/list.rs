//! The list of all elections of the store, read in as few calls as the store allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, stream};
use tenure_protocol::Reading;
use tokio::sync::oneshot;

use super::Driver;
use super::calls::{ONE_OFF, read_one};
use crate::store::answers::UNANSWERED;
use crate::{Answers, Call, DynStore, Error, SeatName, StoreError};

/// A seat, and what the store answered about it.
pub(crate) type Listed = (SeatName, Result<Reading, StoreError>);

impl Driver {
    pub(super) fn list(&self, reply: oneshot::Sender<Result<Vec<Listed>, Error>>) {
        let store = self.store.clone();
        self.one_off(reply, async move { read_all(&*store).await });
    }
}

/// Reads all seats, sorted by name, with as many seats in a call and as many calls at once as the store promises.
async fn read_all(store: &dyn DynStore) -> Result<Vec<Listed>, StoreError> {
    let mut shards: BTreeMap<u64, Vec<SeatName>> = BTreeMap::new();
    for seat in store.list_seats().await? {
        shards.entry(store.shard(&seat)).or_default().push(seat);
    }
    let limits = store.promises().reads;
    let batches = shards.values().flat_map(|seats| seats.chunks(limits.seats.max(1)));
    let calls: Vec<_> = batches.map(|seats| read_some(store, seats)).collect();
    let calls = stream::iter(calls).buffer_unordered(limits.calls.max(1));
    // The map sorts the names, and removes those that a store lists twice.
    let listed: BTreeMap<_, _> = calls.flat_map(stream::iter).collect().await;
    Ok(listed.into_iter().collect())
}

/// Reads seats in one call. The error of a call that one seat has made fail is found by a call for each seat.
async fn read_some(store: &dyn DynStore, seats: &[SeatName]) -> Vec<Listed> {
    let call = Call { lease: ONE_OFF, within: ONE_OFF };
    let answers = Arc::new(Mutex::new(vec![None; seats.len()]));
    let slots = answers.clone();
    let to = Answers::new(move |place, answer| {
        if let Some(slot) = slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_mut(place) {
            slot.get_or_insert(answer);
        }
    });
    let ended = store.read(&call, seats, &to).await;
    let answers = std::mem::take(&mut *answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    let is_caused_by_one = seats.len() > 1 && ended.as_ref().is_err_and(StoreError::is_caused_by_one);
    let error = ended.err().unwrap_or_else(|| StoreError::unknown(UNANSWERED));
    let mut listed = Vec::with_capacity(seats.len());
    for (seat, answer) in seats.iter().zip(answers) {
        let answer = match answer {
            Some(answer) => answer,
            None if is_caused_by_one => read_one(store, seat.clone()).await,
            None => Err(error.clone()),
        };
        listed.push((seat.clone(), answer));
    }
    listed
}
