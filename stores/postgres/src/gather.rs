//! Calls that are due at about the same time share a statement.
//!
//! ```text
//!  call ─┐                    ┌▶ its answer
//!  call ─┼─▶ waiting ─▶ one statement ─▶ its answer
//!  call ─┘      ▲             └▶ its answer
//!               └ whoever comes while it is under way goes with the next one
//! ```
//!
//! A lone call goes out at once. While a statement is under way, the calls of its kind gather, and the
//! next statement takes them all: the slower the server, the fewer statements it is asked for.
//!
//! # Correctness argument
//!
//! *When a call was sent.* A statement is sent after each call in it was made, and the server acts on it
//! after that. Whoever counts a lease from the moment of its call so counts from before the write, and a
//! call that has waited for its turn has only lost some of the time it counts on. Nothing is ever sent
//! twice: what a statement did not do is told, and the engine decides what comes next.
//!
//! *What an answer means.* A statement has one row for each call, each with a condition of its own, and
//! names those it has written; a call is *done* only if it was named. Names come with the commit or not
//! at all: rows are handed out when the server has said that it is ready for the next statement, which is
//! after the commit. No two writes of one thing are ever in the same statement, so what one call did is
//! never told to another.
//!
//! *When a statement fails*, all of its transaction is undone, and each call is told so with the fault that
//! the server's word means; what was on its way when the connection broke is *unknown* to each. A fault
//! that may be of one call's making (a text that the database cannot hold) must not be told to the others:
//! the statement, which did not happen, is taken apart, until that call stands alone.
//!
//! *When a call is given up* before its statement was sent, it is left out; after that, it is answered to
//! nobody. The statement goes on for the others.
//!
//! *Nobody waits long for another.* Rows that somebody else has locked are passed over, or waited for no
//! longer than [`PATIENT`](crate::seats::PATIENT) where that cannot be (a new row that another is just
//! inserting); a statement that was in vain for that is followed by smaller ones. Those that may wait take
//! rows in the order of their names, so that no two processes wait for each other.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::oneshot;
use tokio_postgres::Error;

use crate::faults;
use crate::link::Link;

/// A kind of call that shares statements with others of its kind.
pub(crate) trait Call: Send + Sync + Sized + 'static {
    type Answer: Send + 'static;

    /// Where calls of this kind gather.
    fn gather(link: &Link) -> &Gather<Self>;

    /// What it writes. No two calls for the same go together; `None` if that does no harm.
    fn target(&self) -> Option<(&str, &str)>;

    /// About how many bytes it takes.
    fn weight(&self) -> usize;

    /// Runs one statement for all of them, and answers each, in their order.
    fn run(link: &Link, calls: &[&Self]) -> impl Future<Output = Result<Vec<Self::Answer>, Error>> + Send;
}

/// The calls of a kind that wait for a connection.
pub(crate) struct Gather<C: Call>(Mutex<State<C>>);

struct State<C: Call> {
    waiting: VecDeque<Waiting<C>>,
    /// Whether somebody is there to send them.
    underway: bool,
    /// How many go together.
    most: usize,
}

struct Waiting<C: Call> {
    call: C,
    tell: oneshot::Sender<Result<C::Answer, StoreError>>,
}

/// So many calls share a statement at the most: no other waits long for it to end.
const MOST: usize = 500;

/// So many bytes, and one call.
const HEAVIEST: usize = 1 << 20;

/// What is not answered after so long is of no use to anybody, and neither is the connection. That of a
/// session ends when the session does.
const GIVEN_UP: Duration = Duration::from_secs(30);

impl<C: Call> Default for Gather<C> {
    fn default() -> Self {
        Self(Mutex::new(State { waiting: VecDeque::new(), underway: false, most: MOST }))
    }
}

/// Makes a call, together with others or alone.
pub(crate) async fn call<C: Call>(link: &Arc<Link>, call: C) -> Result<C::Answer, StoreError> {
    let (tell, told) = oneshot::channel();
    let is_first = {
        let mut state = C::gather(link).lock();
        state.waiting.push_back(Waiting { call, tell });
        !std::mem::replace(&mut state.underway, true)
    };
    if is_first {
        tokio::spawn(send_all(Underway::<C> { link: link.clone(), over: false, kind: PhantomData }));
    }
    told.await.unwrap_or_else(|_| Err(StoreError::unknown("the call to PostgreSQL was cut off")))
}

/// Sends what waits, one statement after the other, until nothing does.
async fn send_all<C: Call>(mut underway: Underway<C>) {
    loop {
        let batch = C::gather(&underway.link).take();
        if batch.is_empty() {
            underway.over = true;
            return;
        }
        send(&underway.link, batch).await;
    }
}

async fn send<C: Call>(link: &Link, batch: Vec<Waiting<C>>) {
    let calls: Vec<&C> = batch.iter().map(|waiting| &waiting.call).collect();
    let outcome = match link.is_shared {
        true => tokio::time::timeout(GIVEN_UP, C::run(link, &calls)).await,
        false => Ok(C::run(link, &calls).await),
    };
    match outcome {
        Ok(Ok(answers)) => {
            debug_assert_eq!(answers.len(), batch.len());
            C::gather(link).grow();
            for (waiting, answer) in batch.into_iter().zip(answers) {
                let _ = waiting.tell.send(Ok(answer));
            }
        }
        Ok(Err(error)) if batch.len() > 1 && faults::may_be_of_one(&error) => take_apart(link, batch).await,
        Ok(Err(error)) => {
            if faults::is_a_conflict(&error) {
                C::gather(link).shrink(batch.len());
            }
            tell_all(batch, &faults::of_statement(error));
        }
        Err(_) => {
            link.cut();
            tell_all(batch, &StoreError::unknown("PostgreSQL does not answer"));
        }
    }
}

/// Of a statement that did not happen: in parts, of which all but one are likely to.
async fn take_apart<C: Call>(link: &Link, mut batch: Vec<Waiting<C>>) {
    let part = batch.len().div_ceil(8);
    while !batch.is_empty() {
        let rest = batch.split_off(part.min(batch.len()));
        Box::pin(send(link, std::mem::replace(&mut batch, rest))).await;
    }
}

fn tell_all<C: Call>(batch: Vec<Waiting<C>>, error: &StoreError) {
    for waiting in batch {
        let _ = waiting.tell.send(Err(error.clone()));
    }
}

impl<C: Call> Gather<C> {
    /// Those that go next. If there are none, nobody is under way any more.
    fn take(&self) -> Vec<Waiting<C>> {
        let mut state = self.lock();
        let state = &mut *state;
        let mut batch: Vec<Waiting<C>> = Vec::with_capacity(state.waiting.len().min(state.most));
        let mut later = Vec::new();
        let mut targets = HashSet::new();
        let mut weight = 0;
        while batch.len() < state.most && weight < HEAVIEST {
            let Some(waiting) = state.waiting.pop_front() else { break };
            if waiting.tell.is_closed() {
                continue;
            }
            let target = waiting.call.target().map(|(one, two)| (one.to_owned(), two.to_owned()));
            if target.is_some_and(|target| !targets.insert(target)) {
                later.push(waiting);
                continue;
            }
            weight += waiting.call.weight();
            batch.push(waiting);
        }
        for waiting in later.into_iter().rev() {
            state.waiting.push_front(waiting);
        }
        if state.waiting.is_empty() {
            // Ten thousand may have waited at the start.
            state.waiting.shrink_to(MOST);
        }
        state.underway = !batch.is_empty();
        batch
    }

    fn grow(&self) {
        let mut state = self.lock();
        state.most = (2 * state.most).min(MOST);
    }

    fn shrink(&self, from: usize) {
        self.lock().most = (from / 8).max(1);
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Somebody sends what waits, until this is dropped, however that comes about.
struct Underway<C: Call> {
    link: Arc<Link>,
    /// There was nothing left, and whoever comes now is the first.
    over: bool,
    kind: PhantomData<fn() -> C>,
}

impl<C: Call> Drop for Underway<C> {
    fn drop(&mut self) {
        if !self.over {
            // Cut off by the end of the runtime, or by a bug: nobody is left waiting.
            let mut state = C::gather(&self.link).lock();
            state.underway = false;
            state.waiting.clear();
        }
    }
}
