//! Finds the server that has a seat, and keeps one connection to each.
//!
//! ```text
//!  one server   ──────────────────────────────▶ connection
//!  Sentinels    ── who is the master? ────────▶ connection
//!  cluster      ── who has the slot? ─────────▶ connection, connection, connection
//! ```
//!
//! Nothing is connected before it is needed, nor again before the next call needs it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tenure_core::{Fault, Identity, SeatName, StoreError};
use tenure_kit::{Reconnect, lock};

use crate::connection::{self, RedisConnection};
use crate::errors;
use crate::keys::slot_of;
use crate::place::Place;
use crate::watch::Subscriptions;

/// The servers, and the connections to them.
pub(crate) struct Servers {
    place: Arc<Place>,
    subscriptions: Arc<Subscriptions>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<Node, Arc<Reconnect<RedisConnection>>>,
    /// Which process of a server each was, when it was last connected to.
    identities: HashMap<Node, Identity>,
    /// Which node has which slots; later entries count more.
    slots: Vec<(u16, u16, Node)>,
    /// How often something may have been lost.
    losses: u64,
}

/// A server by host and port; the only one there is has none.
pub(crate) type Node = Option<(String, u16)>;

/// Connecting that takes longer is begun anew.
pub(crate) const LONG: Duration = Duration::from_secs(1);

impl Servers {
    pub(crate) fn new(place: Place, subscriptions: Arc<Subscriptions>) -> Self {
        Self { place: Arc::new(place), subscriptions, known: Mutex::default() }
    }

    /// The server that has this slot, if that is known.
    pub(crate) fn node(&self, slot: u16) -> Option<Node> {
        match &*self.place {
            Place::Cluster { .. } => {
                let known = lock(&self.known);
                let range = known.slots.iter().rev().find(|(from, to, _)| (*from..=*to).contains(&slot));
                range.map(|(_, _, node)| node.clone())
            }
            _ => Some(None),
        }
    }

    /// A number for the server that has this slot: calls to different ones go apart.
    pub(crate) fn shard(&self, seat: &SeatName) -> u64 {
        let Some(Some(node)) = self.is_cluster().then(|| self.node(slot_of(seat))).flatten() else { return 0 };
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        hasher.finish()
    }

    /// The connection to the server that has this slot.
    pub(crate) async fn connection(&self, slot: u16) -> Result<Arc<RedisConnection>, StoreError> {
        if self.node(slot).is_none() {
            self.learn_slots().await?;
        }
        self.connection_to(&self.node(slot).ok_or_else(|| nobody_has(slot))?).await
    }

    /// The same, if it is open already.
    pub(crate) fn existing(&self, slot: u16) -> Option<Arc<RedisConnection>> {
        let node = self.node(slot)?;
        let line = lock(&self.known).nodes.get(&node).cloned();
        line?.open()
    }

    /// The connection to a node of the cluster, or to the only server.
    pub(crate) async fn connection_to(&self, node: &Node) -> Result<Arc<RedisConnection>, StoreError> {
        let line = lock(&self.known).nodes.entry(node.clone()).or_insert_with(|| self.line(node)).clone();
        let before = line.current();
        let connection = line.get().await;
        let mut known = lock(&self.known);
        match &connection {
            Ok(connection) if before.is_some_and(|before| Arc::ptr_eq(&before, connection)) => {}
            Ok(connection) => {
                let before = known.identities.insert(node.clone(), connection.identity.clone());
                known.losses += u64::from(before.is_some_and(|before| before != connection.identity));
                self.subscriptions.connections_changed();
            }
            // Another node may have its slots by now.
            Err(_) => known.slots.clear(),
        }
        drop(known);
        connection
    }

    fn line(&self, node: &Node) -> Arc<Reconnect<RedisConnection>> {
        let (place, node, subscriptions) = (self.place.clone(), node.clone(), self.subscriptions.clone());
        let connect = move || {
            let (place, node, subscriptions) = (place.clone(), node.clone(), subscriptions.clone());
            async move { RedisConnection::connect(place.info(&node).await?, place.is_cluster(), subscriptions).await }
        };
        Arc::new(Reconnect::new(connect).stale_after(LONG))
    }

    /// How often something that was written may have been lost: a server was restarted or replaced, or
    /// slots were shared out anew.
    pub(crate) fn losses(&self) -> u64 {
        lock(&self.known).losses
    }

    /// A node has said that this one has a slot.
    pub(crate) fn moved(&self, slot: u16, to: &Node) {
        let mut known = lock(&self.known);
        if known.slots.len() > 20_000 {
            known.slots.clear();
        }
        known.slots.push((slot, slot, to.clone()));
        drop(known);
        self.subscriptions.connections_changed();
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.place.is_cluster()
    }

    /// Asks all nodes that are known at once who has which slots, and goes by the first answer.
    pub(crate) async fn learn_slots(&self) -> Result<(), StoreError> {
        let Place::Cluster { seeds } = &*self.place else { return Ok(()) };
        let known: Vec<_> = lock(&self.known).nodes.keys().flatten().cloned().collect();
        let infos = known.into_iter().map(|(host, port)| at(&seeds[0], host, port)).chain(seeds.iter().cloned());
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let no_cluster = ("cluster support disabled", "is no part of a cluster: name it as redis://");
        let slots = first(infos.map(async |info| {
            let (address, answer) = ask(info, &command, no_cluster).await?;
            let slots = read_slots(&answer, &address);
            if slots.is_empty() { Err(StoreError::refused(format!("{address} knows of no slots"))) } else { Ok(slots) }
        }))
        .await?;
        let mut known = lock(&self.known);
        // Nothing can have been lost before there was a connection.
        known.losses += u64::from(!known.identities.is_empty());
        known.slots = slots;
        drop(known);
        self.subscriptions.connections_changed();
        Ok(())
    }
}

impl Place {
    fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    /// How to connect to a node.
    async fn info(&self, node: &Node) -> Result<ConnectionInfo, StoreError> {
        match (self, node) {
            (Self::One(info), _) => Ok(info.clone()),
            (Self::Sentinels { sentinels, name, server }, _) => {
                let (host, port) = ask_sentinels(sentinels, name).await?;
                Ok(at(server, host, port))
            }
            (Self::Cluster { seeds }, Some((host, port))) => Ok(at(&seeds[0], host.clone(), *port)),
            (Self::Cluster { seeds }, None) => Ok(seeds[0].clone()),
        }
    }
}

/// The same, at another address.
fn at(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// No node of the cluster has a slot.
pub(crate) fn nobody_has(slot: u16) -> StoreError {
    StoreError::refused(format!("no node of the cluster has slot {slot}"))
}

/// The node that an error of a cluster sends us to, and whether just this once.
pub(crate) fn redirect(from: &RedisConnection, error: &RedisError) -> Option<(Node, bool)> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((Some((named(host, &from.address), port.parse().ok()?)), error.code() == Some("ASK")))
}

/// A node that does not know its own name leaves it out: it is the one that was asked.
fn named(host: &str, asked: &str) -> String {
    if host.is_empty() || host == "?" {
        asked.rsplit_once(':').map_or(asked, |(host, _)| host).to_owned()
    } else {
        host.to_owned()
    }
}

fn read_slots(answer: &Value, asked: &str) -> Vec<(u16, u16, Node)> {
    let text = |value: &Value| redis::from_redis_value_ref::<String>(value).unwrap_or_default();
    let number = |value: &Value| redis::from_redis_value_ref::<u16>(value).ok();
    let ranges = if let Value::Array(ranges) = answer { ranges.as_slice() } else { &[] };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [from, to, Value::Array(master), ..] = parts.as_slice() else { return None };
        let node = Some((named(&text(master.first()?), asked), number(master.get(1)?)?));
        Some((number(from)?, number(to)?, node))
    };
    ranges.iter().filter_map(range).collect()
}

/// Asks all Sentinels at once, and goes by the first that knows.
async fn ask_sentinels(sentinels: &[ConnectionInfo], name: &str) -> Result<(String, u16), StoreError> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    first(sentinels.iter().map(async |info| {
        let (address, answer) =
            ask(info.clone(), &command, ("unknown command", "is no Sentinel: name it as redis://")).await?;
        match redis::from_redis_value::<Option<(String, u16)>>(answer) {
            Ok(Some(master)) => Ok(master),
            _ => Err(StoreError::denied(format!("the Sentinel {address} knows no master called {name:?}"))),
        }
    }))
    .await
}

/// Asks a server one thing, on a connection of its own, and returns its address and its answer. `wrong` is what a
/// server of another kind says, and the advice for that.
async fn ask(info: ConnectionInfo, command: &Cmd, wrong: (&str, &str)) -> Result<(String, Value), StoreError> {
    let address = info.addr().to_string();
    let mut connection = connection::connect(info, None).await?;
    match connection.send_packed_command(command).await.and_then(Value::extract_error) {
        Ok(answer) => Ok((address, answer)),
        Err(error) if error.to_string().contains(wrong.0) => Err(StoreError::denied(format!("{address} {}", wrong.1))),
        Err(error) => Err(errors::of_connecting(&address, error)),
    }
}

/// The first that succeeds, or else how one of them failed: rather one that will not mend by itself.
async fn first<T, F>(asked: impl Iterator<Item = F>) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut answers: FuturesUnordered<F> = asked.collect();
    let mut failed: Option<StoreError> = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            Err(error) if failed.is_none() || error.fault() == Fault::Denied => failed = Some(error),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(|| StoreError::denied("no host is named")))
}
