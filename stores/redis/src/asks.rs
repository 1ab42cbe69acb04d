//! Runs scripts: those of a call that go to the same server in one round trip, each answered by itself.
//!
//! ```text
//!  ask ─┐                   ┌▶ its answer
//!  ask ─┼─▶ server ─────────┼▶ its answer
//!  ask ─┤                   └▶ MOVED, ASK, NOSCRIPT: has run nothing, and is sent on
//!  ask ─┴─▶ another server ──▶ its answer
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tenure_core::{Call, Identity, StoreError};
use tenure_kit::lock;

use crate::connection::RedisConnection;
use crate::errors;
use crate::scripts::Source;
use crate::servers::{Node, nobody_has, redirect};
use crate::store::RedisStore;

/// A script to run for one seat.
pub(crate) struct Ask {
    /// The place of the seat in the call.
    place: usize,
    slot: u16,
    script: &'static Source,
    keys: Vec<String>,
    arguments: Vec<String>,
    /// The process of a server that it must run on, if not on any.
    only: Option<Identity>,
    /// Whether replicas must have what it writes.
    waits: bool,
    /// How often it was sent on.
    hops: u32,
    /// The server that it is sent on to has the slot just for this once.
    asking: bool,
    /// The server does not know the script.
    by_text: bool,
}

impl Ask {
    pub(crate) fn new(
        place: usize,
        slot: u16,
        script: &'static Source,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Self {
        let (only, waits, hops, asking, by_text) = (None, false, 0, false, false);
        Self { place, slot, script, keys, arguments, only, waits, hops, asking, by_text }
    }

    /// Only on this process of a server, and not done before replicas have it.
    pub(crate) fn on(self, only: Option<Identity>, waits: bool) -> Self {
        Self { only, waits, ..self }
    }
}

/// What a script has answered, and where. `Nil` if it was not run, as the server is another one.
pub(crate) type Answered = (Arc<RedisConnection>, Value);

/// Takes the answer for the seat at a place in the call.
type Put<'a> = dyn Fn(usize, Result<Answered, StoreError>) + Sync + 'a;

impl RedisStore {
    /// Runs scripts, each on the server that has its seat.
    ///
    /// # Errors
    /// If nothing was sent.
    pub(crate) async fn run(&self, asks: Vec<Ask>, call: Option<&Call>, put: &Put<'_>) -> Result<(), StoreError> {
        if asks.iter().any(|ask| self.servers.node(ask.slot).is_none()) {
            self.servers.learn_slots().await?;
        }
        let mut next = Vec::new();
        for ask in asks {
            match self.servers.node(ask.slot) {
                Some(node) => next.push((node, ask)),
                None => put(ask.place, Err(nobody_has(ask.slot))),
            }
        }
        let mut underway = FuturesUnordered::new();
        loop {
            // Writes that wait for replicas go after those that do not, so that nothing else waits for them.
            let mut groups = BTreeMap::<(bool, Node), Vec<Ask>>::new();
            for (node, ask) in next {
                groups.entry((ask.waits, node)).or_default().push(ask);
            }
            underway.extend(groups.into_iter().map(|((waits, node), asks)| self.send(node, asks, waits, call, put)));
            let Some(onwards) = underway.next().await else { return Ok(()) };
            next = onwards;
        }
    }

    /// Runs one script.
    pub(crate) async fn ask(
        &self,
        slot: u16,
        script: &'static Source,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Answered, StoreError> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let asks = vec![Ask::new(0, slot, script, owned(keys), owned(arguments))];
        let answer = Mutex::new(Err(StoreError::unknown("a script was left without an answer")));
        self.run(asks, None, &|_, answered| *lock(&answer) = answered).await?;
        answer.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs scripts on one server, and returns those that have to go on to another.
    async fn send(
        &self,
        node: Node,
        asks: Vec<Ask>,
        waits: bool,
        call: Option<&Call>,
        put: &Put<'_>,
    ) -> Vec<(Node, Ask)> {
        let fail = |asks: Vec<Ask>, error: StoreError| {
            asks.iter().for_each(|ask| put(ask.place, Err(error.clone())));
            Vec::new()
        };
        let connection = match self.servers.connection_to(&node).await {
            Ok(connection) => connection,
            Err(error) => return fail(asks, error),
        };
        let (asks, others): (Vec<_>, Vec<_>) =
            asks.into_iter().partition(|ask| ask.only.as_ref().is_none_or(|only| *only == connection.identity));
        others.iter().for_each(|ask| put(ask.place, Ok((connection.clone(), Value::Nil))));
        if asks.is_empty() {
            return Vec::new();
        }
        let mut commands = redis::pipe();
        for ask in &asks {
            if ask.asking {
                commands.cmd("ASKING");
            }
            commands.add_command(ask.script.command(ask.by_text, &ask.keys, &ask.arguments));
        }
        if waits {
            // They are not waited for so long that an attempt is over: half of what it is given.
            let longest = call.map_or(0, |call| (call.lease / 30).as_millis()).max(1);
            commands.cmd("WAIT").arg(self.min_replicas).arg(u64::try_from(longest).unwrap_or(u64::MAX));
        }
        let mut answers = match connection.send(&commands, call.map(|call| call.within)).await {
            Ok(answers) => answers,
            Err(error) => return fail(asks, errors::of_asking(&connection.address, error)),
        };
        let too_few = waits.then(|| self.too_few(&connection, answers.pop())).flatten();
        let (mut answers, mut onwards) = (answers.into_iter(), Vec::new());
        for mut ask in asks {
            if ask.asking {
                answers.next();
            }
            let answer = match (answers.next().unwrap_or(Value::Nil).extract_error(), &too_few) {
                (Ok(Value::Int(1)), Some(error)) => Err(error.clone()),
                (Ok(value), _) => Ok((connection.clone(), value)),
                (Err(error), _) => match self.onwards(&connection, &node, &mut ask, &error) {
                    Some(node) => {
                        onwards.push((node, ask));
                        continue;
                    }
                    None => Err(self.failed(&connection, error)),
                },
            };
            put(ask.place, answer);
        }
        onwards
    }

    /// Where an ask has to go that a server has not run, if that is what the error says.
    fn onwards(&self, connection: &RedisConnection, node: &Node, ask: &mut Ask, error: &RedisError) -> Option<Node> {
        if errors::is_no_script(error) {
            // The text is sent once in the life of a server.
            return (!std::mem::replace(&mut ask.by_text, true)).then(|| node.clone());
        }
        let (node, asking) =
            redirect(connection, error).filter(|_| self.servers.is_cluster() && ask.hops < MOST_HOPS)?;
        ask.hops += 1;
        ask.asking = asking;
        if !asking {
            self.servers.moved(ask.slot, &node);
        }
        Some(node)
    }

    fn failed(&self, connection: &RedisConnection, error: RedisError) -> StoreError {
        if errors::is_demotion(&error) {
            connection.close();
        }
        if self.servers.is_cluster() && error.redirect_node().is_some() {
            return StoreError::refused("the cluster sends us around in circles: it is being rearranged");
        }
        errors::of_asking(&connection.address, error)
    }

    /// The error of writes that too few replicas have, by the answer to `WAIT`.
    fn too_few(&self, connection: &RedisConnection, answer: Option<Value>) -> Option<StoreError> {
        let error = StoreError::unknown(format!(
            "{} has written it, but not {} of its replicas in time",
            connection.address, self.min_replicas
        ));
        match answer.unwrap_or(Value::Nil).extract_error() {
            Ok(Value::Int(count)) if count >= i64::from(self.min_replicas) => None,
            Ok(_) => Some(error),
            Err(cause) => Some(error.because(cause)),
        }
    }
}

/// An ask that is sent on more often goes around in circles.
const MOST_HOPS: u32 = 3;
