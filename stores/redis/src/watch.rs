//! The watch: a subscription for each seat, at the server that has it, on the connection that calls use.
//!
//! ```text
//!  interest ──▶ SUBSCRIBE channel ──▶ confirmed: listening ──▶ message: news of the seat
//!                       ▲                    │
//!                       └── the seat has another connection now: gap
//! ```
//!
//! Messages are handed to the engine by the task that reads from the connection. Everything else happens in one loop,
//! one step at a time: a gap is never told before the confirmation of an older subscription. Connections are made by
//! calls, at the pace of the engine; only one that has lasted for a while is replaced at once when it is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Incarnation, Interest, InterestChange, News, PushDetail, Scope, SeatInterest, SeatName, StoreError, Token,
};
use tokio::sync::Notify;

use crate::connection::RedisConnection;
use crate::keys::{Names, slot_of};
use crate::servers::{LONG, Servers};

/// A connection that has lasted for so long is replaced at once when it is lost. A server that hangs up on every
/// connection is asked again by calls.
const LASTED: Duration = Duration::from_secs(1);

/// Where messages go, and where to say that a connection was made or lost, or a slot has moved.
pub(crate) struct Subscriptions {
    pub(crate) names: Names,
    news: OnceLock<News>,
    changed: Notify,
}

impl Subscriptions {
    pub(crate) fn new(names: Names) -> Self {
        Self { names, news: OnceLock::new(), changed: Notify::new() }
    }

    /// Takes in a message on a channel.
    pub(crate) fn hear(&self, channel: &str, message: &str) {
        let (Some(news), Some(seat)) = (self.news.get(), self.names.seat_of(channel)) else { return };
        match message.split_once(' ').unwrap_or((message, "")) {
            ("request", _) => news.request(&seat),
            (_, holder) => news.holder(&seat, said(holder)),
        }
    }

    fn channels(&self, seats: &[SeatName]) -> Vec<String> {
        seats.iter().map(|seat| self.names.keys(seat).channel).collect()
    }

    /// A connection was made or lost, or a slot has moved: seats may have to be subscribed to elsewhere.
    pub(crate) fn connections_changed(&self) {
        self.changed.notify_one();
    }
}

/// What a message says of a seat: see `swap.lua` and `forget.lua`.
fn said(holder: &str) -> PushDetail {
    let names = |(holder, token): (&str, &str)| {
        let holder = match holder {
            "-" => None,
            holder => Some(Incarnation::from_bits(u128::from_str_radix(holder, 16).ok()?)),
        };
        Some((holder, Token::new(token.parse().ok()?)))
    };
    match holder {
        "" => PushDetail::Names(None),
        holder => {
            holder.split_once(' ').and_then(names).map_or(PushDetail::Nothing, |names| PushDetail::Names(Some(names)))
        }
    }
}

/// Watches until a server refuses a subscription.
pub(crate) async fn watch(
    servers: &Servers,
    subscriptions: &Subscriptions,
    interest: &Interest,
    news: &News,
) -> StoreError {
    let _ = subscriptions.news.set(news.clone());
    // Each seat that the engine is interested in, its lease, and where it is subscribed to.
    let mut seats = BTreeMap::<SeatName, (Duration, Option<Arc<RedisConnection>>)>::new();
    loop {
        let mut unsettled = Vec::new();
        let (mut here, mut elsewhere) = (ByLink::default(), ByLink::default());
        tokio::select! {
            biased;
            () = subscriptions.changed.notified() => unsettled.extend(seats.keys().cloned()),
            deltas = interest.next() => for InterestChange { seat, wanted } in deltas {
                if let Some(SeatInterest { lease, .. }) = wanted {
                    seats.entry(seat.clone()).or_default().0 = lease;
                    unsettled.push(seat);
                } else if let Some((_, Some(connection))) = seats.remove(&seat) {
                    elsewhere.add(&connection, seat);
                }
            },
        }
        let mut lost = None;
        for seat in unsettled {
            let Some((lease, at)) = seats.get_mut(&seat) else { continue };
            let connection = servers.existing(slot_of(&seat));
            connection.iter().for_each(|connection| connection.serves(*lease));
            match (at.take(), connection) {
                (Some(before), Some(connection)) if Arc::ptr_eq(&before, &connection) => {
                    // Said again, as another election may be about it than before.
                    news.listening(Scope::Seat(&seat));
                    *at = Some(connection);
                }
                (before, connection) => {
                    if let Some(before) = before {
                        news.gap(Scope::Seat(&seat));
                        if before.is_closed()
                            && connection.is_none()
                            && before.since.elapsed() >= LASTED.min(*lease / 3)
                        {
                            lost = Some((slot_of(&seat), LONG.min(*lease / 3)));
                        }
                        elsewhere.add(&before, seat.clone());
                    }
                    if let Some(connection) = connection {
                        here.add(&connection, seat);
                    }
                }
            }
        }
        for (connection, seats) in elsewhere.0 {
            connection.unsubscribe(&subscriptions.channels(&seats)).await;
        }
        for (connection, new) in here.0 {
            match connection.subscribe(&subscriptions.channels(&new)).await {
                Ok(()) => {
                    for seat in new {
                        news.listening(Scope::Seat(&seat));
                        seats.entry(seat).or_default().1 = Some(connection.clone());
                    }
                }
                // Its loss is heard of next.
                Err(_) if connection.is_closed() => {}
                Err(error) => return error,
            }
        }
        if let Some((slot, within)) = lost {
            // If this fails, calls connect.
            let _ = tokio::time::timeout(within, servers.connection(slot)).await;
        }
    }
}

/// Seats, by the connections that they have to do with.
#[derive(Default)]
struct ByLink(Vec<(Arc<RedisConnection>, Vec<SeatName>)>);

impl ByLink {
    fn add(&mut self, connection: &Arc<RedisConnection>, seat: SeatName) {
        match self.0.iter_mut().find(|(other, _)| Arc::ptr_eq(other, connection)) {
            Some((_, seats)) => seats.push(seat),
            None => self.0.push((connection.clone(), vec![seat])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_who_holds_a_seat() {
        let holder = Incarnation::from_bits(0xaf);
        assert_eq!(said(&format!("{holder} 7")), PushDetail::Names(Some((Some(holder), Token::new(7)))));
        assert_eq!(said("- 7"), PushDetail::Names(Some((None, Token::new(7)))));
        assert_eq!(said(""), PushDetail::Names(None));
        assert_eq!(said("in a later form"), PushDetail::Nothing);
    }
}
