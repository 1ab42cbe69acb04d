//! Readings of many seats in one transaction.
//!
//! A reading that comes alone is sent at once. Those that come while several are under way wait for one of them
//! to be answered, and then go together: a thousand elections that look at the same time make a few dozen calls.
//! What nobody waits for any more is not sent.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::oneshot;

use crate::link::Link;
use crate::wire::{KeyValue, RangeRequest, TxnRequest, get, get_key, range, under};

/// What to read of one seat.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) seat: String,
    pub(crate) floor: String,
    pub(crate) requests: String,
    /// The key of the session that is thought to hold it.
    pub(crate) live: Option<String>,
}

/// What was found, at one moment.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) seat: Option<KeyValue>,
    pub(crate) floor: Option<KeyValue>,
    pub(crate) requests: i64,
    pub(crate) lives: bool,
    pub(crate) cluster: u64,
    pub(crate) revision: i64,
}

/// The readings of one connection.
#[derive(Default)]
pub(crate) struct Reads(Mutex<State>);

#[derive(Default)]
struct State {
    underway: usize,
    waiting: Vec<Waiting>,
}

struct Waiting {
    question: Question,
    tell: oneshot::Sender<Result<Found, StoreError>>,
}

/// How many transactions are under way at the most.
const UNDERWAY: usize = 8;

/// How many seats one of them reads: four operations each, and members take 128.
const AT_ONCE: usize = 30;

/// Nobody waits as long.
const GIVEN_UP: Duration = Duration::from_secs(10);

impl Link {
    /// Reads a seat. Nothing happens to others that are read with it if this is dropped.
    pub(crate) async fn read(self: &Arc<Self>, question: Question) -> Result<Found, StoreError> {
        let (tell, told) = oneshot::channel();
        lock(&self.reads).waiting.push(Waiting { question, tell });
        self.send_readings();
        told.await.unwrap_or_else(|_| Err(StoreError::unknown("the reading was cut off")))
    }

    fn send_readings(self: &Arc<Self>) {
        let mut state = lock(&self.reads);
        while state.underway < UNDERWAY {
            state.waiting.retain(|waiting| !waiting.tell.is_closed());
            let count = state.waiting.len().min(AT_ONCE);
            if count == 0 {
                return;
            }
            let batch: Vec<_> = state.waiting.drain(..count).collect();
            state.underway += 1;
            let link = self.clone();
            tokio::spawn(async move {
                link.read_together(batch).await;
                lock(&link.reads).underway -= 1;
                link.send_readings();
            });
        }
    }

    async fn read_together(self: &Arc<Self>, batch: Vec<Waiting>) {
        let mut ask = Vec::with_capacity(batch.len() * 4);
        for Waiting { question, .. } in &batch {
            let requests = RangeRequest { count_only: true, ..under(&question.requests) };
            ask.extend([get(&question.seat), get(&question.floor), range(requests)]);
            ask.extend(question.live.as_ref().map(|live| get_key(live)));
        }
        let asked = self.txn_idly(TxnRequest { success: ask, ..Default::default() });
        let late = || Err(StoreError::unknown(format!("{} does not answer", self.address)));
        match tokio::time::timeout(GIVEN_UP, asked).await.unwrap_or_else(|_| late()) {
            Ok(mut answer) => {
                let mut place = 0;
                for Waiting { question, tell } in batch {
                    let found = Found {
                        seat: answer.found(place).pop(),
                        floor: answer.found(place + 1).pop(),
                        requests: answer.count(place + 2),
                        lives: question.live.is_some() && !answer.found(place + 3).is_empty(),
                        cluster: answer.cluster(),
                        revision: answer.revision(),
                    };
                    place += 3 + usize::from(question.live.is_some());
                    let _ = tell.send(Ok(found));
                }
            }
            Err(error) => {
                for Waiting { tell, .. } in batch {
                    let _ = tell.send(Err(error.clone()));
                }
            }
        }
    }
}

fn lock(reads: &Reads) -> MutexGuard<'_, State> {
    reads.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
