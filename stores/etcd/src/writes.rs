//! Conditional writes of many seats in one transaction.
//!
//! As with readings, one that comes alone is sent as it is, and at once. Those that come while several are under
//! way wait for one of them to be answered, and then go together: ten thousand elections that are won or given up
//! at the same time make a few hundred calls. What nobody waits for any more is not sent.
//!
//! # Why that is right
//! To go together means to be an operation of a transaction that has no conditions: each is still a transaction of its
//! own, with its own conditions, and has its own answer. etcd first decides on all of them, by how everything was
//! before the first is run. So one that is lost changes nothing, and neither fails nor helps another. That none sees
//! what another has done makes no difference: no two of them write the same key, which is what `about` is for, and
//! the keys of sessions, which they compare as well, are written by none. They share one revision, which is still
//! that of one write for each key, and later than any before.
//!
//! An outcome that is not known is not known for all that went together, and each reads back by itself.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use prost::Message;
use tenure_core::StoreError;
use tokio::sync::oneshot;

use crate::link::Link;
use crate::wire::{Op, RequestOp, TxnRequest, TxnResponse};

/// The writes of one connection.
#[derive(Default)]
pub(crate) struct Writes(Mutex<State>);

#[derive(Default)]
struct State {
    underway: usize,
    waiting: Vec<Waiting>,
}

struct Waiting {
    about: String,
    request: TxnRequest,
    tell: oneshot::Sender<Result<TxnResponse, StoreError>>,
}

/// How many transactions are under way at the most.
const UNDERWAY: usize = 8;

/// How many go together: members take 128 operations, less by those of the largest of them.
const AT_ONCE: usize = 100;

/// And how large they are together, in bytes: members take three times as much.
const LARGEST: usize = 500_000;

/// Nobody waits as long.
const GIVEN_UP: Duration = Duration::from_secs(10);

impl Link {
    /// Writes what belongs to this key, and to no other that is written by itself. Nothing happens to others that
    /// are written with it if this is dropped; once it is sent, it may come to its end all the same.
    pub(crate) async fn write(self: &Arc<Self>, about: String, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        let (tell, told) = oneshot::channel();
        lock(&self.writes).waiting.push(Waiting { about, request, tell });
        let doubt = self.doubt_if_dropped();
        self.send_writes();
        let told = told.await;
        std::mem::forget(doubt);
        told.unwrap_or_else(|_| Err(StoreError::unknown("the write was cut off")))
    }

    fn send_writes(self: &Arc<Self>) {
        let mut state = lock(&self.writes);
        while state.underway < UNDERWAY {
            let batch = state.next();
            if batch.is_empty() {
                return;
            }
            state.underway += 1;
            let link = self.clone();
            tokio::spawn(async move {
                link.write_together(batch).await;
                lock(&link.writes).underway -= 1;
                link.send_writes();
            });
        }
    }

    async fn write_together(&self, batch: Vec<Waiting>) {
        let (tells, mut requests): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.tell, waiting.request)).unzip();
        let is_one = requests.len() == 1;
        let request = match requests.pop() {
            Some(request) if is_one => request,
            last => together(requests.into_iter().chain(last)),
        };
        let late = || Err(StoreError::unknown(format!("{} does not answer", self.address)));
        let answer = tokio::time::timeout(GIVEN_UP, self.txn_idly(request)).await.unwrap_or_else(|_| late());
        match answer {
            Ok(answer) if is_one => tells.into_iter().for_each(|tell| drop(tell.send(Ok(answer.clone())))),
            Ok(answer) => {
                let mut each = apart(answer).into_iter();
                for tell in tells {
                    let none = || StoreError::unknown(format!("{} does not say what came of it", self.address));
                    let _ = tell.send(each.next().flatten().ok_or_else(none));
                }
            }
            Err(error) => tells.into_iter().for_each(|tell| drop(tell.send(Err(error.clone())))),
        }
    }
}

impl State {
    /// Those that go next. None of them is about the same as another: the second waits for the first.
    fn next(&mut self) -> Vec<Waiting> {
        self.waiting.retain(|waiting| !waiting.tell.is_closed());
        let (mut keys, mut size, mut count) = (HashSet::new(), 0, 0);
        for Waiting { about, request, .. } in self.waiting.iter().take(AT_ONCE) {
            size += request.encoded_len();
            if !keys.insert(about.as_str()) || (size > LARGEST && count > 0) {
                break;
            }
            count += 1;
        }
        self.waiting.drain(..count).collect()
    }
}

/// One transaction of many.
fn together(requests: impl Iterator<Item = TxnRequest>) -> TxnRequest {
    let success = requests.map(|request| RequestOp { op: Some(Op::Txn(request)) }).collect();
    TxnRequest { success, ..TxnRequest::default() }
}

/// The answer to each of them, as if it had been sent alone.
fn apart(answer: TxnResponse) -> Vec<Option<TxnResponse>> {
    let TxnResponse { header, responses, .. } = answer;
    let own = |answer: TxnResponse| TxnResponse { header: header.clone(), ..answer };
    responses.into_iter().map(|response| response.txn.map(own)).collect()
}

fn lock(writes: &Writes) -> MutexGuard<'_, State> {
    writes.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put;

    fn state(keys: &[&str], value: usize) -> (State, Vec<oneshot::Receiver<Result<TxnResponse, StoreError>>>) {
        let (mut state, mut told) = (State::default(), Vec::new());
        for key in keys {
            let (tell, tells) = oneshot::channel();
            let request = TxnRequest { success: vec![put(key, "x".repeat(value), 0)], ..TxnRequest::default() };
            state.waiting.push(Waiting { about: (*key).to_owned(), request, tell });
            told.push(tells);
        }
        (state, told)
    }

    fn batches(state: &mut State) -> Vec<String> {
        let next = || Some(state.next()).filter(|batch| !batch.is_empty());
        std::iter::from_fn(next).map(|batch| batch.iter().map(|waiting| waiting.about.as_str()).collect()).collect()
    }

    #[test]
    fn no_key_is_written_twice_at_once_and_the_order_is_kept() {
        let (mut state, _told) = state(&["a", "b", "a", "c", "b"], 1);
        assert_eq!(batches(&mut state), ["ab", "acb"]);
    }

    #[test]
    fn so_many_go_at_once_and_not_more_than_members_take() {
        let keys: Vec<_> = (0..250).map(|number| format!("{number:03}")).collect();
        let (mut many, _told) = state(&keys.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        assert_eq!(batches(&mut many).iter().map(|batch| batch.len() / 3).collect::<Vec<_>>(), [100, 100, 50]);
        let (mut large, _told) = state(&["a", "b", "c", "d"], 240_000);
        assert_eq!(batches(&mut large), ["ab", "cd"]);
        let (mut huge, _told) = state(&["a", "b"], 600_000);
        assert_eq!(batches(&mut huge), ["a", "b"]);
    }

    #[test]
    fn what_nobody_waits_for_is_not_sent() {
        let (mut state, mut told) = state(&["a", "b", "c"], 1);
        told.remove(1);
        assert_eq!(batches(&mut state), ["ac"]);
    }
}
