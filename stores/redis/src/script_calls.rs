//! Runs the scripts of a call: one round trip for each server, and a separate answer for each script.
//!
//! ```text
//!  script ─┐                   ┌▶ its answer
//!  script ─┼─▶ server ─────────┼▶ its answer
//!  script ─┤                   └▶ MOVED, ASK, NOSCRIPT: was not run, and is sent again
//!  script ─┴─▶ another server ──▶ its answer
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{RedisError, Value};
use tenure_core::{Call, DataIdentity, StoreError};
use tenure_kit::lock;

use crate::connection::RedisConnection;
use crate::errors;
use crate::scripts::LuaScript;
use crate::servers::{Node, redirect, unserved};
use crate::store::RedisStore;

/// One script to run, for one seat or board.
pub(crate) struct ScriptCall {
    /// The place of its answer in the call.
    place: usize,
    slot: u16,
    script: &'static LuaScript,
    keys: Vec<String>,
    arguments: Vec<String>,
    /// The only process of a server on which it may run. `None` means any.
    only: Option<DataIdentity>,
    /// Whether to wait until replicas have its write.
    waits: bool,
    /// How often it was redirected.
    redirects: u32,
    /// Whether the next node has the slot for this call only, so that `ASKING` must precede it.
    asking: bool,
    /// Whether to send the text of the script, as the server has not loaded it.
    by_text: bool,
}

impl ScriptCall {
    pub(crate) fn new(
        place: usize,
        slot: u16,
        script: &'static LuaScript,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Self {
        let (only, waits, redirects, asking, by_text) = (None, false, 0, false, false);
        Self { place, slot, script, keys, arguments, only, waits, redirects, asking, by_text }
    }

    /// Restricts the script to one process of a server, and sets whether to wait for replicas.
    pub(crate) fn on(self, only: Option<DataIdentity>, waits: bool) -> Self {
        Self { only, waits, ..self }
    }
}

/// The answer of a script, and its connection. The answer is `Nil` if the script was not run because the server
/// is not the process that it requires.
pub(crate) type Answered = (Arc<RedisConnection>, Value);

/// Receives the answer for a place in the call.
type SetAnswer<'a> = dyn Fn(usize, Result<Answered, StoreError>) + Sync + 'a;

impl RedisStore {
    /// Runs scripts, each on the server that has its slot.
    ///
    /// # Errors
    /// Returns an error if no script was sent.
    pub(crate) async fn run(
        &self,
        scripts: Vec<ScriptCall>,
        call: Option<&Call>,
        set: &SetAnswer<'_>,
    ) -> Result<(), StoreError> {
        if scripts.iter().any(|script| self.servers.node(script.slot).is_none()) {
            self.servers.learn_slots().await?;
        }
        let mut next = Vec::new();
        for script in scripts {
            match self.servers.node(script.slot) {
                Some(node) => next.push((node, script)),
                None => set(script.place, Err(unserved(script.slot))),
            }
        }
        let mut in_flight = FuturesUnordered::new();
        loop {
            // Writes that wait for replicas are sent after all others, so that the others do not wait behind them.
            let mut groups = BTreeMap::<(bool, Node), Vec<ScriptCall>>::new();
            for (node, script) in next {
                groups.entry((script.waits, node)).or_default().push(script);
            }
            in_flight
                .extend(groups.into_iter().map(|((waits, node), scripts)| self.send(node, scripts, waits, call, set)));
            let Some(redirected) = in_flight.next().await else { return Ok(()) };
            next = redirected;
        }
    }

    /// Runs one script.
    pub(crate) async fn run_one(
        &self,
        slot: u16,
        script: &'static LuaScript,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Answered, StoreError> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let scripts = vec![ScriptCall::new(0, slot, script, owned(keys), owned(arguments))];
        let answer = Mutex::new(Err(StoreError::unknown("the server did not answer a script")));
        self.run(scripts, None, &|_, answered| *lock(&answer) = answered).await?;
        answer.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs scripts on one server, and returns those to send again, with their nodes.
    async fn send(
        &self,
        node: Node,
        scripts: Vec<ScriptCall>,
        waits: bool,
        call: Option<&Call>,
        set: &SetAnswer<'_>,
    ) -> Vec<(Node, ScriptCall)> {
        let fail = |scripts: Vec<ScriptCall>, error: StoreError| {
            scripts.iter().for_each(|script| set(script.place, Err(error.clone())));
            Vec::new()
        };
        let connection = match self.servers.connection_to(&node).await {
            Ok(connection) => connection,
            Err(error) => return fail(scripts, error),
        };
        let is_allowed = |script: &ScriptCall| script.only.as_ref().is_none_or(|only| *only == connection.identity);
        let (scripts, others): (Vec<_>, Vec<_>) = scripts.into_iter().partition(is_allowed);
        others.iter().for_each(|script| set(script.place, Ok((connection.clone(), Value::Nil))));
        if scripts.is_empty() {
            return Vec::new();
        }
        let mut commands = redis::pipe();
        for script in &scripts {
            if script.asking {
                commands.cmd("ASKING");
            }
            commands.add_command(script.script.command(script.by_text, &script.keys, &script.arguments));
        }
        if waits {
            // Half of a call's time-out, so that the answer arrives before the call times out.
            let longest = call.map_or(0, |call| (call.within / 2).as_millis()).max(1);
            commands.cmd("WAIT").arg(self.min_replicas).arg(u64::try_from(longest).unwrap_or(u64::MAX));
        }
        let mut answers = match connection.send(&commands, call.map(|call| call.within)).await {
            Ok(answers) => answers,
            Err(error) => return fail(scripts, errors::call_failed(&connection.address, error)),
        };
        let too_few = waits.then(|| self.too_few(&connection, answers.pop())).flatten();
        let (mut answers, mut redirected) = (answers.into_iter(), Vec::new());
        for mut script in scripts {
            if script.asking {
                answers.next();
            }
            let answer = match (answers.next().unwrap_or(Value::Nil).extract_error(), &too_few) {
                (Ok(Value::Int(1)), Some(error)) => Err(error.clone()),
                (Ok(value), _) => Ok((connection.clone(), value)),
                (Err(error), _) => match self.next_node(&connection, &node, &mut script, &error) {
                    Some(node) => {
                        redirected.push((node, script));
                        continue;
                    }
                    None => Err(self.failed(&connection, error)),
                },
            };
            set(script.place, answer);
        }
        redirected
    }

    /// Returns the node to which to send a script again, if the error says that it was not run.
    fn next_node(
        &self,
        connection: &RedisConnection,
        node: &Node,
        script: &mut ScriptCall,
        error: &RedisError,
    ) -> Option<Node> {
        if errors::is_no_script(error) {
            // The server keeps the script from then on, so the text is sent once to each process of a server.
            return (!std::mem::replace(&mut script.by_text, true)).then(|| node.clone());
        }
        let (node, asking) =
            redirect(connection, error).filter(|_| self.servers.is_cluster() && script.redirects < MAX_REDIRECTS)?;
        script.redirects += 1;
        script.asking = asking;
        if !asking {
            self.servers.moved(script.slot, &node);
        }
        Some(node)
    }

    fn failed(&self, connection: &RedisConnection, error: RedisError) -> StoreError {
        if errors::is_demotion(&error) {
            connection.close();
        }
        if self.servers.is_cluster() && error.redirect_node().is_some() {
            return StoreError::refused("the cluster redirected a call too often; wait until it has moved its slots");
        }
        errors::call_failed(&connection.address, error)
    }

    /// Returns the error of writes that too few replicas have confirmed, by the answer to `WAIT`.
    fn too_few(&self, connection: &RedisConnection, answer: Option<Value>) -> Option<StoreError> {
        let error = StoreError::unknown(format!(
            "{} wrote the seat, but fewer than min_replicas={} replicas confirmed it in time; check its replicas",
            connection.address, self.min_replicas
        ));
        match answer.unwrap_or(Value::Nil).extract_error() {
            Ok(Value::Int(count)) if count >= i64::from(self.min_replicas) => None,
            Ok(_) => Some(error),
            Err(cause) => Some(error.because(cause)),
        }
    }
}

/// A script that is redirected more often than this fails: the nodes disagree about its slot.
const MAX_REDIRECTS: u32 = 3;
