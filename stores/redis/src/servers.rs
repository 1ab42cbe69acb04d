//! Finds the server that has a seat, and keeps one connection to each.
//!
//! ```text
//!  one server   ──────────────────────────────▶ link
//!  Sentinels    ── who is the master? ────────▶ link
//!  cluster      ── who has the slot? ─────────▶ link, link, link
//! ```
//!
//! Nothing is connected before it is needed, nor again before the next call needs it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, ConnectionInfo, Value};
use tenure_core::{BoxFuture, Identity, StoreError};

use crate::faults;
use crate::link::{self, Link};
use crate::place::Place;

/// The servers, and the connections to them.
pub(crate) struct Servers {
    place: Arc<Place>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<Node, Arc<Seatholder>>,
    /// Which process of a server each was, when it was last connected to.
    identities: HashMap<Node, Identity>,
    /// Which node has which slots; later entries count more.
    slots: Vec<(u16, u16, Node)>,
    learned: bool,
    /// How often something may have been lost.
    losses: u64,
}

/// A server by host and port; the only one there is has none.
pub(crate) type Node = Option<(String, u16)>;

/// The connection to a node, made by one call at a time.
#[derive(Default)]
struct Seatholder {
    link: Mutex<Option<Arc<Link>>>,
    /// What one caller has begun, and given up waiting for, the next goes on with.
    connecting: tokio::sync::Mutex<Option<Attempt>>,
}

/// Connecting, since when.
type Attempt = (Instant, BoxFuture<'static, Result<Arc<Link>, StoreError>>);

/// Connecting that takes longer is begun anew.
const LONG: Duration = Duration::from_secs(1);

impl Servers {
    pub(crate) fn new(place: Place) -> Self {
        Self { place: Arc::new(place), known: Mutex::default() }
    }

    /// The connection to the server that has this slot.
    pub(crate) async fn link(&self, slot: u16) -> Result<Arc<Link>, StoreError> {
        let node = match &*self.place {
            Place::Cluster { .. } => match self.known_node(slot) {
                Some(node) => node,
                None => self.learn_slots(slot).await?,
            },
            _ => None,
        };
        let link = self.link_to(&node).await;
        if link.is_err() {
            // Somebody else may have the slot by now.
            self.lock().slots.clear();
        }
        link
    }

    /// The same, if it is there already.
    pub(crate) fn existing(&self, slot: u16) -> Option<Arc<Link>> {
        let known = self.lock();
        let node = match &*self.place {
            Place::Cluster { .. } => find(&known.slots, slot)?,
            _ => None,
        };
        known.nodes.get(&node)?.current()
    }

    /// The connection to a node of the cluster, or to the only server.
    pub(crate) async fn link_to(&self, node: &Node) -> Result<Arc<Link>, StoreError> {
        let holder = self.lock().nodes.entry(node.clone()).or_default().clone();
        if let Some(link) = holder.current() {
            return Ok(link);
        }
        let mut connecting = holder.connecting.lock().await;
        if let Some(link) = holder.current() {
            return Ok(link);
        }
        if connecting.as_ref().is_none_or(|(since, _)| since.elapsed() > LONG) {
            let (place, node) = (self.place.clone(), node.clone());
            let attempt = async move { Link::connect(place.info(&node).await?, place.is_cluster()).await };
            *connecting = Some((Instant::now(), Box::pin(attempt)));
        }
        let Some((_, attempt)) = connecting.as_mut() else { return Err(StoreError::refused("nobody connects")) };
        let link = attempt.await;
        *connecting = None;
        let link = link?;
        *holder.lock() = Some(link.clone());
        let mut known = self.lock();
        let before = known.identities.insert(node.clone(), link.identity.clone());
        known.losses += u64::from(before.is_some_and(|before| before != link.identity));
        drop(known);
        Ok(link)
    }

    /// How often something that was written may have been lost: a server was restarted or replaced, or
    /// slots were shared out anew.
    pub(crate) fn losses(&self) -> u64 {
        self.lock().losses
    }

    /// A node has said that another one has this slot. Returns it.
    pub(crate) fn moved(&self, slot: u16, from: &Link, host: &str, port: u16) -> Node {
        let node = self.node(from, host, port);
        let mut known = self.lock();
        if known.slots.len() > 20_000 {
            known.slots.clear();
        }
        known.slots.push((slot, slot, node.clone()));
        node
    }

    /// The node that another one names.
    pub(crate) fn node(&self, from: &Link, host: &str, port: u16) -> Node {
        Some((named(host, &from.address), port))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.place.is_cluster()
    }

    fn known_node(&self, slot: u16) -> Option<Node> {
        find(&self.lock().slots, slot)
    }

    /// Asks all nodes that are known at once who has which slots, and goes by the first answer.
    async fn learn_slots(&self, slot: u16) -> Result<Node, StoreError> {
        let Place::Cluster { seeds } = &*self.place else { return Ok(None) };
        let known: Vec<_> = self.lock().nodes.keys().flatten().cloned().collect();
        let infos = known.into_iter().map(|(host, port)| at(&seeds[0], host, port)).chain(seeds.iter().cloned());
        let slots = first(infos.map(|info| async move {
            let address = info.addr().to_string();
            let mut connection = link::connect(info, None).await?;
            let answer = connection
                .send_packed_command(redis::cmd("CLUSTER").arg("SLOTS"))
                .await
                .and_then(Value::extract_error)
                .map_err(|error| not_a_cluster(&address, error))?;
            let slots = read_slots(&answer, &address);
            if slots.is_empty() { Err(StoreError::refused(format!("{address} knows of no slots"))) } else { Ok(slots) }
        }))
        .await?;
        let node = find(&slots, slot);
        let mut known = self.lock();
        known.losses += u64::from(known.learned);
        (known.slots, known.learned) = (slots, true);
        drop(known);
        node.ok_or_else(|| StoreError::refused(format!("no node of the cluster has slot {slot}")))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

impl Seatholder {
    fn current(&self) -> Option<Arc<Link>> {
        let mut link = self.lock();
        if link.as_ref().is_some_and(|link| link.ears.is_closed()) {
            *link = None;
        }
        link.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn find(slots: &[(u16, u16, Node)], slot: u16) -> Option<Node> {
    slots.iter().rev().find(|(from, to, _)| (*from..=*to).contains(&slot)).map(|(_, _, node)| node.clone())
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

/// A node that does not know its own name leaves it out: it is the one that was asked.
fn named(host: &str, asked: &str) -> String {
    if host.is_empty() || host == "?" {
        asked.rsplit_once(':').map_or(asked, |(host, _)| host).to_owned()
    } else {
        host.to_owned()
    }
}

fn not_a_cluster(address: &str, error: redis::RedisError) -> StoreError {
    if error.to_string().contains("cluster support disabled") {
        return StoreError::denied(format!("{address} is no part of a cluster: name it as redis://"));
    }
    faults::of_connecting(address, error)
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
    first(sentinels.iter().cloned().map(|info| async move {
        let address = info.addr().to_string();
        let mut connection = link::connect(info, None).await?;
        let answer = connection
            .send_packed_command(redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name))
            .await
            .and_then(Value::extract_error)
            .map_err(|error| match error.detail() {
                Some(said) if said.contains("unknown command") => {
                    StoreError::denied(format!("{address} is no Sentinel: name it as redis://"))
                }
                _ => faults::of_connecting(&address, error),
            })?;
        match redis::from_redis_value::<Option<(String, u16)>>(answer) {
            Ok(Some((host, port))) => Ok((host, port)),
            _ => Err(StoreError::denied(format!("the Sentinel {address} knows no master called {name:?}"))),
        }
    }))
    .await
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
            Err(error) if failed.is_none() || error.fault() == tenure_core::Fault::Denied => failed = Some(error),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(|| StoreError::denied("no host is named")))
}
