//! The end of a session is reported before an answer that the store gave while the session was alive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, Call, Clock, Elections, EventKind, Expect, Life, LifeKind, ManualClock, News, Promises, Reading, SeatName,
    SeatStore, SessionId, Store, StoreError, Swap, Version, Write,
};

const LEASE: Duration = Duration::from_secs(15);

/// A store with sessions. Its first session ends after it has won the first bid, and before the answer to that bid.
struct Sessions {
    store: MemoryStore,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    news: Option<News>,
    sessions: BTreeMap<Version, SessionId>,
    /// Whether the first session has ended.
    ended: bool,
    bids: u64,
}

impl Sessions {
    fn end_the_first(&self) {
        let mut state = self.state.lock().unwrap();
        state.ended = true;
        state.news.as_ref().expect("it is attached").session_over(&SessionId::new("1"));
    }
}

impl Store for Sessions {
    fn promises(&self) -> Promises {
        SeatStore::promises(&self.store)
    }

    fn attach(&self, clock: &Clock, news: &News) {
        SeatStore::attach(&self.store, clock);
        self.state.lock().unwrap().news = Some(news.clone());
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        self.state.lock().unwrap().sessions.get(version).cloned()
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let mut reading = SeatStore::read(&self.store, &seats[0]).await?;
        if let Some(seat) = &mut reading.seat
            && self.session_of(&seat.version) == Some(SessionId::new("1"))
            && self.state.lock().unwrap().ended
        {
            seat.life = Life::Over;
        }
        to.set(0, Ok(reading));
        Ok(())
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let Write { seat, expect, record } = &writes[0];
        let answer = match expect {
            Expect::Absent(_) => self.store.swap(seat, None, record).await,
            Expect::Version(version) => self.store.swap(seat, Some(version), record).await,
            Expect::Held(version) => self.store.renew(seat, version, record).await,
            Expect::HolderDead(version) => self.store.free(seat, version, record).await,
        };
        let first = {
            let mut state = self.state.lock().unwrap();
            if let Ok(Swap::Done { version, .. }) = &answer {
                state.bids += 1;
                let session = SessionId::new(state.bids.min(2).to_string());
                state.sessions.insert(version.clone(), session);
            }
            state.bids == 1
        };
        if first {
            self.end_the_first();
        }
        to.set(0, answer);
        Ok(())
    }
}

#[test]
fn a_bid_does_not_begin_a_term_if_its_session_ended_before_the_answer() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let state = Arc::<Mutex<State>>::default();
    let store = Sessions { store: memory.store(), state: state.clone() };
    let elections = Elections::with_clock(store, clock.clone());
    let (tell, begun) = mpsc::channel();
    let on_event = move |event: tenure_core::Event| {
        if let EventKind::BecameLeader { term } = event.kind {
            let _ = tell.send(term.token());
        }
    };
    let election = elections.election("jobs").lease(LEASE).on_event(on_event).start().unwrap();
    clock.advance(LEASE * 2);
    assert!(state.lock().unwrap().bids > 1);
    let term = election.term().expect("it leads with the next session");
    assert_eq!(begun.recv_timeout(Duration::from_secs(60)), Ok(term.token()), "it had not led before");
}
