//! Finds the server that has a seat, and keeps one connection to each server.
//!
//! ```text
//!  one server   ──────────────────────────────▶ connection
//!  Sentinels    ── which is the master? ──────▶ connection
//!  cluster      ── which node has the slot? ──▶ connection, connection, connection
//! ```
//!
//! A connection is opened when a call first needs it. A lost connection is opened again when the next call needs it.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tenure_core::{DataIdentity, SeatName, StoreError};
use tenure_kit::{Connection, Reconnect, first_of, lock};

use crate::connection::{self, RedisConnection};
use crate::errors;
use crate::keys::slot_of;
use crate::topology::Topology;
use crate::watch::Channels;

/// The servers, and the connections to them.
pub(crate) struct Servers {
    topology: Arc<Topology>,
    channels: Arc<Channels>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<Node, Arc<Reconnect<RedisConnection>>>,
    /// The process (`run_id`) of each server at the last connection.
    identities: HashMap<Node, DataIdentity>,
    /// Ranges of slots and their nodes. Later entries take precedence.
    slots: Vec<(u16, u16, Node)>,
    /// How often servers may have lost writes.
    losses: u64,
}

/// The host and port of a node of a cluster. Without a cluster there is one server, and its node is `None`.
pub(crate) type Node = Option<(String, u16)>;

/// Connection attempts older than this are abandoned and restarted.
pub(crate) const STALE_ATTEMPT: Duration = Duration::from_secs(1);

impl Servers {
    pub(crate) fn new(topology: Topology, channels: Arc<Channels>) -> Self {
        Self { topology: Arc::new(topology), channels, known: Mutex::default() }
    }

    /// Returns the node that has this slot, if it is known.
    pub(crate) fn node(&self, slot: u16) -> Option<Node> {
        match &*self.topology {
            Topology::Cluster { .. } => {
                let known = lock(&self.known);
                let range = known.slots.iter().rev().find(|(from, to, _)| (*from..=*to).contains(&slot));
                range.map(|(_, _, node)| node.clone())
            }
            _ => Some(None),
        }
    }

    /// Returns all masters of the cluster, or the only server.
    pub(crate) async fn masters(&self) -> Result<BTreeSet<Node>, StoreError> {
        if !self.is_cluster() {
            return Ok(BTreeSet::from([None]));
        }
        if lock(&self.known).slots.is_empty() {
            self.learn_slots().await?;
        }
        Ok(lock(&self.known).slots.iter().map(|(_, _, node)| node.clone()).collect())
    }

    /// Returns a number for the node that has this seat: seats of different nodes need separate calls.
    pub(crate) fn shard(&self, seat: &SeatName) -> u64 {
        let Some(Some(node)) = self.is_cluster().then(|| self.node(slot_of(seat))).flatten() else { return 0 };
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the connection to the server that has this slot, opened if necessary.
    pub(crate) async fn connection(&self, slot: u16) -> Result<Arc<RedisConnection>, StoreError> {
        if self.node(slot).is_none() {
            self.learn_slots().await?;
        }
        self.connection_to(&self.node(slot).ok_or_else(|| unserved(slot))?).await
    }

    /// Returns the connection to the server that has this slot, if it is already open.
    pub(crate) fn existing(&self, slot: u16) -> Option<Arc<RedisConnection>> {
        let node = self.node(slot)?;
        let reconnect = lock(&self.known).nodes.get(&node).cloned();
        reconnect?.open()
    }

    /// Returns the connection to a node of the cluster, or to the only server, opened if necessary.
    pub(crate) async fn connection_to(&self, node: &Node) -> Result<Arc<RedisConnection>, StoreError> {
        let reconnect = lock(&self.known).nodes.entry(node.clone()).or_insert_with(|| self.reconnect(node)).clone();
        let before = reconnect.current();
        let connection = reconnect.get().await;
        let mut known = lock(&self.known);
        match &connection {
            // No other connection could be opened, and this one may be dead.
            Ok(connection) if !connection.liveness().is_good() => known.slots.clear(),
            Ok(connection) if before.is_some_and(|before| Arc::ptr_eq(&before, connection)) => {}
            Ok(connection) => {
                let before = known.identities.insert(node.clone(), connection.identity.clone());
                known.losses += u64::from(before.is_some_and(|before| before != connection.identity));
                self.channels.connections_changed();
            }
            // Another node may have taken over its slots.
            Err(_) => known.slots.clear(),
        }
        drop(known);
        connection
    }

    fn reconnect(&self, node: &Node) -> Arc<Reconnect<RedisConnection>> {
        let (topology, node, channels) = (self.topology.clone(), node.clone(), self.channels.clone());
        let connect = move || {
            let (topology, node, channels) = (topology.clone(), node.clone(), channels.clone());
            async move { RedisConnection::connect(topology.info(&node).await?, topology.is_cluster(), channels).await }
        };
        Arc::new(Reconnect::new(connect).stale_after(STALE_ATTEMPT))
    }

    /// Returns how often servers may have lost writes: because one was restarted or replaced, or because slots were
    /// assigned anew.
    pub(crate) fn losses(&self) -> u64 {
        lock(&self.known).losses
    }

    /// Records that a slot has moved to this node.
    pub(crate) fn moved(&self, slot: u16, to: &Node) {
        let mut known = lock(&self.known);
        if known.slots.len() > 20_000 {
            known.slots.clear();
        }
        known.slots.push((slot, slot, to.clone()));
        drop(known);
        self.channels.connections_changed();
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.topology.is_cluster()
    }

    /// Asks all known nodes at once which node has which slots, and takes the first answer.
    pub(crate) async fn learn_slots(&self) -> Result<(), StoreError> {
        let Topology::Cluster { seeds } = &*self.topology else { return Ok(()) };
        let known: Vec<_> = lock(&self.known).nodes.keys().flatten().cloned().collect();
        let infos = known.into_iter().map(|(host, port)| at(&seeds[0], host, port)).chain(seeds.iter().cloned());
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let no_cluster = ("cluster support disabled", "is not part of a cluster; use redis://");
        let infos: Vec<_> = infos.collect();
        let slots = first_of(infos.into_iter(), Duration::ZERO, async |info| {
            let (address, answer) = ask_once(info, &command, no_cluster).await?;
            match read_slots(&answer, &address) {
                slots if slots.is_empty() => Err(StoreError::refused(format!(
                    "{address} knows no node that has slots; check the state of the cluster"
                ))),
                slots => Ok(slots),
            }
        })
        .await?;
        let mut known = lock(&self.known);
        // Before the first connection there was no write to lose.
        known.losses += u64::from(!known.identities.is_empty());
        known.slots = slots;
        drop(known);
        self.channels.connections_changed();
        Ok(())
    }
}

impl Topology {
    fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    /// Returns how to connect to a node.
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

/// Returns the same settings with another address.
fn at(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// Describes a slot that no node of the cluster has.
pub(crate) fn unserved(slot: u16) -> StoreError {
    StoreError::refused(format!("no node of the cluster has slot {slot}; check the state of the cluster"))
}

/// Returns the node to which an error redirects, and whether the redirection is for one call only (`ASK`).
pub(crate) fn redirect(from: &RedisConnection, error: &RedisError) -> Option<(Node, bool)> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((Some((host_or_asked(host, &from.address), port.parse().ok()?)), error.code() == Some("ASK")))
}

/// Returns the host in an answer. A node that does not know its own host leaves it out, and means itself: the
/// node that was asked.
fn host_or_asked(host: &str, asked: &str) -> String {
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
        let node = Some((host_or_asked(&text(master.first()?), asked), number(master.get(1)?)?));
        Some((number(from)?, number(to)?, node))
    };
    ranges.iter().filter_map(range).collect()
}

/// Asks all Sentinels at once for the address of the master, and takes the first answer.
async fn ask_sentinels(sentinels: &[ConnectionInfo], name: &str) -> Result<(String, u16), StoreError> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    first_of(sentinels.iter(), Duration::ZERO, async |info| {
        let (address, answer) =
            ask_once(info.clone(), &command, ("unknown command", "is not a Sentinel; use redis://")).await?;
        match redis::from_redis_value::<Option<(String, u16)>>(answer) {
            Ok(Some(master)) => Ok(master),
            _ => Err(StoreError::denied(format!(
                "the Sentinel at {address} monitors no master named {name:?}; check the name in the URL"
            ))),
        }
    })
    .await
}

/// Sends one command on a connection of its own, and returns the server's address and its answer. `wrong` is the
/// error by which a server of another kind is recognized, and the message for it.
async fn ask_once(info: ConnectionInfo, command: &Cmd, wrong: (&str, &str)) -> Result<(String, Value), StoreError> {
    let address = info.addr().to_string();
    let mut connection = connection::connect(info, None).await?;
    // A server that does not answer this must not keep the attempt going forever.
    let answer = tokio::time::timeout(STALE_ATTEMPT, connection.send_packed_command(command)).await;
    let answer = answer.map_err(|_| StoreError::refused(format!("{address} does not answer; check the server")))?;
    match answer.and_then(Value::extract_error) {
        Ok(answer) => Ok((address, answer)),
        Err(error) if error.to_string().contains(wrong.0) => Err(StoreError::denied(format!("{address} {}", wrong.1))),
        Err(error) => Err(errors::connect_failed(&address, error)),
    }
}
