//! One connection to one server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisError, Value,
};
use tenure_core::{Identity, StoreError};
use tenure_kit::{Connection, Liveness, Patience};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::errors;
use crate::scripts;
use crate::watch::Subscriptions;

/// A connection that all calls share, pipelined. Once anything is wrong with it, it is closed for good.
pub(crate) struct RedisConnection {
    /// For people to read.
    pub(crate) address: String,
    /// Which process of a server it was made to: it cannot outlive that.
    pub(crate) identity: Identity,
    /// When it was made.
    pub(crate) since: Instant,
    connection: MultiplexedConnection,
    /// Shared with the task that reads from the connection.
    liveness: Arc<Liveness>,
    /// How often to make sure that the server is still there.
    probe_every: watch::Sender<Duration>,
}

impl Connection for RedisConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

impl RedisConnection {
    /// Connects, and asks who is there.
    pub(crate) async fn connect(
        info: ConnectionInfo,
        in_cluster: bool,
        subscriptions: Arc<Subscriptions>,
    ) -> Result<Self, StoreError> {
        let (address, liveness) = (info.addr().to_string(), Arc::new(Liveness::new()));
        let mut connection = connect(info, Some((liveness.clone(), subscriptions.clone()))).await?;
        let mut who = redis::pipe();
        who.cmd("INFO").arg("server").cmd("INFO").arg("replication");
        // Loaded in advance, if that is permitted: a first write is then as quick as any other.
        who.add_command(scripts::READ.load()).add_command(scripts::SWAP.load());
        let answers = connection
            .send_packed_commands(&who, 0, who.len())
            .await
            .and_then(|answers| answers.into_iter().take(2).map(Value::extract_error).collect::<Result<Vec<_>, _>>())
            .map_err(|error| errors::of_connecting(&address, error))?;
        let text = |answer: &Value| redis::from_redis_value_ref::<String>(answer).unwrap_or_default();
        let field = |info: &str, name: &str| {
            info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
        };
        let (server, replication) = (text(&answers[0]), text(&answers[1]));
        let Some(identity) = field(&server, "run_id") else {
            return Err(StoreError::denied(format!(
                "{address} does not tell which process it is (INFO server has no run_id): connect to the server itself"
            )));
        };
        match field(&server, "redis_mode").as_deref() {
            Some("sentinel") => {
                return Err(StoreError::denied(format!("{address} is a Sentinel: name it as redis+sentinel://")));
            }
            Some("cluster") if !in_cluster => return Err(errors::in_cluster(&address)),
            _ => {}
        }
        if field(&replication, "role").as_deref() == Some("slave") {
            return Err(errors::replica(&address));
        }
        let (probe_every, every) = watch::channel(Duration::MAX);
        let (probe, over) = (probe(connection.clone(), liveness.clone(), every), liveness.closed());
        tokio::spawn(async move {
            tokio::select! {
                () = probe => {}
                () = over => {}
            }
            subscriptions.connections_changed();
        });
        let (identity, since) = (Identity::new(identity), Instant::now());
        Ok(Self { address, identity, since, connection, liveness, probe_every })
    }

    /// Sends commands in one round trip, and returns the answer to each. If it is dropped before they are sent, they
    /// never are. `within` is how long the caller waits.
    pub(crate) async fn send(&self, commands: &Pipeline, within: Option<Duration>) -> Result<Vec<Value>, RedisError> {
        let waiting = self.liveness.waiting(self.patience(within));
        let sent = async |mut on: MultiplexedConnection| on.send_packed_commands(commands, 0, commands.len()).await;
        let answers = self.while_open(sent).await;
        if answers.is_ok() {
            waiting.answered();
        } else {
            // It is unknown how far the server got.
            waiting.failed();
            self.close();
        }
        answers
    }

    /// Has the connection doubted if a call is given up after most of its time, and nothing at all has come in for three
    /// such times. A call that is given up sooner tells nothing about it, nor does one whose time is not known.
    fn patience(&self, within: Option<Duration>) -> Patience {
        let at_least = within.map_or(Duration::MAX, |within| {
            (within * 3 / 4).max((within * 3).saturating_sub(self.liveness.quiet_for()))
        });
        Patience { at_least, times: 1 }
    }

    /// Subscribes to channels. When this returns, the server has confirmed all of them.
    pub(crate) async fn subscribe(&self, channels: &[String]) -> Result<(), StoreError> {
        self.while_open(async |mut on| on.subscribe(channels).await)
            .await
            .map_err(|error| errors::of_asking(&self.address, error))
    }

    /// Subscribes to these channels no more.
    pub(crate) async fn unsubscribe(&self, channels: &[String]) {
        let _ = self.while_open(async |mut on| on.unsubscribe(channels).await).await;
    }

    /// Uses the connection until it is closed.
    async fn while_open<T>(
        &self,
        act: impl AsyncFnOnce(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let closed = || Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        if self.is_closed() {
            return closed();
        }
        tokio::select! {
            biased;
            answer = act(self.connection.clone()) => answer,
            () = self.liveness.closed() => closed(),
        }
    }

    /// The connection is over. All calls on it are told.
    pub(crate) fn close(&self) {
        self.liveness.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.liveness.is_closed()
    }

    /// There are seats with this lease: from now on, makes sure every so often that the server is there.
    pub(crate) fn serves(&self, lease: Duration) {
        self.probe_every.send_if_modified(|every| {
            let before = std::mem::replace(every, (lease / 2).min(*every));
            *every < before
        });
    }
}

/// Asks a server that has not said anything for a while whether it is there. Returns when it is not, or when the connection was
/// dropped.
async fn probe(mut connection: MultiplexedConnection, liveness: Arc<Liveness>, mut every: watch::Receiver<Duration>) {
    loop {
        let span = *every.borrow_and_update();
        if liveness.quiet_for() >= span {
            let ping = redis::cmd("PING");
            match tokio::time::timeout(span / 2, connection.send_packed_command(&ping)).await {
                Ok(Ok(_)) => liveness.heard(),
                _ => return liveness.close(),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(span.saturating_sub(liveness.quiet_for())) => {}
            changed = every.changed() => if changed.is_err() { return },
        }
    }
}

/// Takes in a message. Called by the connection's own task, so it must not block.
fn hear(liveness: &Liveness, subscriptions: &Subscriptions, push: &PushInfo) {
    liveness.heard();
    let text = |at: usize| match push.data.get(at) {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(Value::SimpleString(text)) => text.clone(),
        _ => String::new(),
    };
    match push.kind {
        PushKind::Disconnection => liveness.close(),
        PushKind::Message => subscriptions.hear(&text(0), &text(1)),
        _ => {}
    }
}

/// A connection, and nothing more. What the server pushes goes to these subscriptions.
pub(crate) async fn connect(
    info: ConnectionInfo,
    pushes: Option<(Arc<Liveness>, Arc<Subscriptions>)>,
) -> Result<MultiplexedConnection, StoreError> {
    let address = info.addr().to_string();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    // The engine has time-outs of its own: one in here would only hide what became of a call.
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    if let Some((liveness, subscriptions)) = pushes {
        config = config.set_push_sender(move |push: PushInfo| {
            hear(&liveness, &subscriptions, &push);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    let tls = match info.addr() {
        ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
        _ => None,
    };
    let client = Client::open(info).map_err(|error| errors::of_connecting(&address, error))?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let connected = match tls {
        None => connecting.await,
        Some(at) => {
            tokio::select! {
                biased;
                connected = connecting => connected,
                () = answers_plainly(at) => return Err(errors::plain(&address)),
            }
        }
    };
    connected.map_err(|error| errors::of_connecting(&address, error))
}

/// Returns if a server turns out to speak without TLS. One that does waits for the end of a line when it
/// is greeted with TLS, and would never be found out.
async fn answers_plainly(at: (String, u16)) {
    tokio::time::sleep(SLOW).await;
    let asked = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let plain = asked.await.is_ok_and(|answer| [b"+PONG", b"-NOAU", b"-NOPE", b"-DENI"].contains(&&answer));
    if !plain {
        std::future::pending::<()>().await;
    }
}

/// A server that takes longer to greet us over TLS is looked at more closely.
const SLOW: Duration = Duration::from_millis(25);
