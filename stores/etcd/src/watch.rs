//! The one watch of a process.
//!
//! One etcd stream reports every change of a seat, every request to a leader and every session that has ended, in
//! the order in which they happened.
//!
//! # Why no change is missed
//! The member confirms the watch. From then on it sends every change that it applies. A read that is sent after
//! the confirmation is answered only when the member has applied everything that a majority had by then. So a
//! change is in the answer, or the member applies it later and sends it. When the stream ends or the member falls
//! silent, `watch_all` returns, and the engine polls until the next watch is confirmed. That watch starts at the
//! member's current revision, so compaction cannot remove any change that it has yet to send.

use std::convert::Infallible;
use std::pin::pin;

use tenure_core::{Interest, InterestChange, News, PushDetail, Scope, SeatName, StoreError};
use tenure_kit::{Connection, ReadySessions};

use crate::connection::EtcdConnection;
use crate::keys::{Keys, WatchedKey};
use crate::store::EtcdStore;
use crate::version::{SeatValue, session_name, session_of};
use crate::wire::Event;

impl EtcdStore {
    /// Reports changes until the watch fails.
    pub(crate) async fn watch_all(&self, interest: &Interest, news: &News) -> Result<Infallible, StoreError> {
        let (first, mut ready) = (interest.next().await, ReadySessions::default());
        let connection = self.connection.get().await?;
        self.update_interest(first, &connection, &mut ready);
        let mut silence = pin!(connection.wait_for_silence());
        let (from, to) = self.keys.watched();
        let mut changes = tokio::select! {
            watch = connection.watch(&from, &to) => watch?,
            error = &mut silence => return Err(error),
        };
        news.listening(Scope::All);
        loop {
            tokio::select! {
                events = changes.next() => {
                    for change in events?.iter().filter_map(|event| change(&self.keys, event)) {
                        match change {
                            Changed::Holder(seat, said) => news.holder(&seat, said),
                            Changed::Released(seat, written) => news.released(&seat, written.release(connection.cluster)),
                            Changed::Requested(seat) => news.request(&seat),
                            Changed::Ended(session) => {
                                self.sessions.ended(&session_name(connection.cluster, session));
                            }
                        }
                    }
                }
                deltas = interest.next() => self.update_interest(deltas, &connection, &mut ready),
                error = &mut silence => return Err(error),
            }
        }
    }

    /// Applies changes of the engine's interest: sets how long the member can be silent, and keeps a session ready
    /// while other processes hold seats.
    fn update_interest(&self, deltas: Vec<InterestChange>, connection: &EtcdConnection, ready: &mut ReadySessions) {
        for delta in deltas {
            delta.wanted.iter().for_each(|wanted| connection.liveness().limit_silence(wanted.lease / 3));
            ready.update(delta, &self.sessions, session_of);
        }
    }
}

/// A change that an event reports.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    Holder(SeatName, PushDetail),
    Released(SeatName, SeatValue),
    Requested(SeatName),
    Ended(i64),
}

fn change(keys: &Keys, event: &Event) -> Option<Changed> {
    let kv = event.kv.as_ref()?;
    match keys.watched_key(std::str::from_utf8(&kv.key).ok()?)? {
        WatchedKey::Seat(seat) if event.is_delete() => Some(Changed::Holder(seat, PushDetail::Names(None))),
        WatchedKey::Seat(seat) => Some(match SeatValue::of(kv) {
            Ok(written) if written.record.is_vacant() => Changed::Released(seat, written),
            Ok(written) => Changed::Holder(seat, PushDetail::Names(Some(written.record.names()))),
            Err(_) => Changed::Holder(seat, PushDetail::Nothing),
        }),
        WatchedKey::Request(seat) => (!event.is_delete()).then_some(Changed::Requested(seat)),
        WatchedKey::Live(session) => event.is_delete().then_some(Changed::Ended(session)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Board, Candidate, Incarnation, Record, Token};

    use super::*;
    use crate::wire::KeyValue;

    fn put(key: &str, value: String) -> Event {
        Event { kind: 0, kv: Some(KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() }) }
    }

    fn delete(key: &str) -> Event {
        Event { kind: 1, ..put(key, String::new()) }
    }

    #[test]
    fn an_event_of_a_seat_reports_its_holder_and_term() {
        let (keys, seat) = (Keys::new("tenure"), SeatName::new("a/b").unwrap());
        let said = |said| Some(Changed::Holder(seat.clone(), said));
        let (me, token) = (Incarnation::from_bits(7), Token::new(3));
        let held = Record::new(Some(Candidate { id: "me".into(), incarnation: me }), token, Duration::from_secs(3));
        let key = keys.seat(&seat);
        let written = put(&key, SeatValue::text(Some(1), &held));
        assert_eq!(change(&keys, &written), said(PushDetail::Names(Some((Some(me), token)))));
        assert_eq!(change(&keys, &put(&key, "something else".to_owned())), said(PushDetail::Nothing));
        assert_eq!(change(&keys, &delete(&key)), said(PushDetail::Names(None)));

        let record = Record { holder: None, ..held };
        let released = put(&key, SeatValue::text(None, &record));
        assert_eq!(
            change(&keys, &released),
            Some(Changed::Released(seat, SeatValue { session: None, record, revision: 0 }))
        );
    }

    #[test]
    fn only_new_requests_and_ended_sessions_are_reported_besides_seats() {
        let (keys, seat) = (Keys::new("tenure"), SeatName::new("a/b").unwrap());
        let request = keys.board(&Board::Requests(seat.clone())) + "key";
        assert_eq!(change(&keys, &put(&request, String::new())), Some(Changed::Requested(seat)));
        assert_eq!(change(&keys, &delete(&request)), None);
        assert_eq!(change(&keys, &delete(&keys.live(7))), Some(Changed::Ended(7)));
        assert_eq!(change(&keys, &put(&keys.live(7), String::new())), None);
        assert_eq!(change(&keys, &put("tenure/other/key", String::new())), None);
        assert_eq!(change(&keys, &Event { kind: 0, kv: None }), None);
    }
}
