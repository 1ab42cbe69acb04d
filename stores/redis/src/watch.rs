//! The watch: a subscription for each seat, at the server that has the seat, on the connection that calls use.
//!
//! ```text
//!  interest ──▶ SUBSCRIBE channel ──▶ confirmed: listening ──▶ message: the engine is notified
//!                       ▲                    │
//!                       └── the seat has moved to another connection: gap
//! ```
//!
//! The task that reads from a connection passes messages to the engine. All other steps run in one loop, one at a
//! time, so the watch never reports a gap before the confirmation of an older subscription. Calls open
//! connections, at the pace of the engine. The watch itself reopens a lost connection only if it had been open
//! for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    DataIdentity, Interest, InterestChange, News, PushDetail, Release, Scope, SeatInterest, SeatName, StoreError,
    record,
};
use tenure_kit::{Connection, parse_names};
use tokio::sync::Notify;

use crate::connection::RedisConnection;
use crate::keys::{Names, slot_of};
use crate::servers::{STALE_ATTEMPT, Servers};
use crate::store::version;

/// The watch reopens a lost connection at once if it was open for at least this long. If the server closes every
/// connection at once, only calls reconnect.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The channels of seats: passes their messages to the engine, and wakes the watch when connections change.
pub(crate) struct Channels {
    pub(crate) names: Names,
    news: OnceLock<News>,
    changed: Notify,
}

impl Channels {
    pub(crate) fn new(names: Names) -> Self {
        Self { names, news: OnceLock::new(), changed: Notify::new() }
    }

    /// Passes a message on a channel of a server to the engine. `identity` is that of the server's process.
    pub(crate) fn on_message(&self, identity: Option<&DataIdentity>, channel: &str, message: &str) {
        let (Some(news), Some(seat)) = (self.news.get(), self.names.seat_of(channel)) else { return };
        match message.split_once(' ').unwrap_or((message, "")) {
            ("request", _) => news.request(&seat),
            ("released", seat_after) => match identity.and_then(|identity| parse_release(identity, seat_after)) {
                Some(release) => news.released(&seat, release),
                None => news.holder(&seat, PushDetail::Nothing),
            },
            (_, holder) => news.holder(&seat, parse_holder(holder)),
        }
    }

    fn of(&self, seats: &[SeatName]) -> Vec<String> {
        seats.iter().map(|seat| self.names.keys(seat).channel).collect()
    }

    /// Wakes the watch after a connection was opened or lost, or a slot has moved: subscriptions may have to move.
    pub(crate) fn connections_changed(&self) {
        self.changed.notify_one();
    }
}

/// Parses the nonce and the record in a message of `swap.lua` about a release.
fn parse_release(identity: &DataIdentity, message: &str) -> Option<Release> {
    let (nonce, json) = message.split_once(' ')?;
    let record = record::from_json(json).ok()?;
    Some(Release { record, version: version(identity, nonce.to_owned()), identity: Some(identity.clone()) })
}

/// Parses the holder and the token in a message of `swap.lua` or `forget.lua`.
fn parse_holder(holder: &str) -> PushDetail {
    match holder {
        "" => PushDetail::Names(None),
        holder => parse_names(holder).map_or(PushDetail::Nothing, |names| PushDetail::Names(Some(names))),
    }
}

/// Watches until a server refuses a subscription.
pub(crate) async fn watch(servers: &Servers, channels: &Channels, interest: &Interest, news: &News) -> StoreError {
    let _ = channels.news.set(news.clone());
    // The seats that the engine is interested in, each with its lease and the connection of its subscription.
    let mut seats = BTreeMap::<SeatName, (Duration, Option<Arc<RedisConnection>>)>::new();
    loop {
        let mut unsettled = Vec::new();
        let (mut new_seats, mut old_seats) = (ByConnection::default(), ByConnection::default());
        tokio::select! {
            biased;
            () = channels.changed.notified() => unsettled.extend(seats.keys().cloned()),
            deltas = interest.next() => for InterestChange { seat, wanted } in deltas {
                if let Some(SeatInterest { lease, .. }) = wanted {
                    seats.entry(seat.clone()).or_default().0 = lease;
                    unsettled.push(seat);
                } else if let Some((_, Some(connection))) = seats.remove(&seat) {
                    old_seats.add(&connection, seat);
                }
            },
        }
        let mut lost = None;
        for seat in unsettled {
            let Some((lease, at)) = seats.get_mut(&seat) else { continue };
            let connection = servers.existing(slot_of(&seat));
            connection.iter().for_each(|connection| connection.liveness().limit_silence(*lease / 3));
            match (at.take(), connection) {
                (Some(before), Some(connection)) if Arc::ptr_eq(&before, &connection) => {
                    // Reported again, as the interest may come from another election than before.
                    news.listening(Scope::Seat(&seat));
                    *at = Some(connection);
                }
                (before, connection) => {
                    if let Some(before) = before {
                        news.gap(Scope::Seat(&seat));
                        if before.is_closed()
                            && connection.is_none()
                            && before.since.elapsed() >= STABLE_AFTER.min(*lease / 3)
                        {
                            lost = Some((slot_of(&seat), STALE_ATTEMPT.min(*lease / 3)));
                        }
                        old_seats.add(&before, seat.clone());
                    }
                    if let Some(connection) = connection {
                        new_seats.add(&connection, seat);
                    }
                }
            }
        }
        for (connection, seats) in old_seats.0 {
            connection.unsubscribe(&channels.of(&seats)).await;
        }
        for (connection, new) in new_seats.0 {
            match connection.subscribe(&channels.of(&new)).await {
                Ok(()) => {
                    for seat in new {
                        news.listening(Scope::Seat(&seat));
                        seats.entry(seat).or_default().1 = Some(connection.clone());
                    }
                }
                // The next round of the loop handles the lost connection.
                Err(_) if connection.is_closed() => {}
                Err(error) => return error,
            }
        }
        if let Some((slot, within)) = lost {
            // If this fails, the next call reconnects.
            let _ = tokio::time::timeout(within, servers.connection(slot)).await;
        }
    }
}

/// Seats, grouped by connection.
#[derive(Default)]
struct ByConnection(Vec<(Arc<RedisConnection>, Vec<SeatName>)>);

impl ByConnection {
    fn add(&mut self, connection: &Arc<RedisConnection>, seat: SeatName) {
        match self.0.iter_mut().find(|(other, _)| Arc::ptr_eq(other, connection)) {
            Some((_, seats)) => seats.push(seat),
            None => self.0.push((connection.clone(), vec![seat])),
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Incarnation, Token};

    use super::*;

    #[test]
    fn messages_name_the_holder_of_a_seat() {
        let holder = Incarnation::from_bits(0xaf);
        assert_eq!(parse_holder(&format!("{holder} 7")), PushDetail::Names(Some((Some(holder), Token::new(7)))));
        assert_eq!(parse_holder("- 7"), PushDetail::Names(Some((None, Token::new(7)))));
        assert_eq!(parse_holder(""), PushDetail::Names(None));
        assert_eq!(parse_holder("in a later form"), PushDetail::Nothing);
    }
}
