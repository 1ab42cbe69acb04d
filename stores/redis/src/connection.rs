//! One connection to one server.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisError, Value,
};
use tenure_core::{DataIdentity, StoreError};
use tenure_kit::{Connection, Liveness, Patience};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::errors;
use crate::scripts;
use crate::watch::Channels;

/// A connection that all calls share, pipelined. After any failure it is closed, and never used again.
pub(crate) struct RedisConnection {
    /// The server's address, for errors.
    pub(crate) address: String,
    /// The process (`run_id`) of the server. The connection cannot outlive it.
    pub(crate) identity: DataIdentity,
    /// When the connection was opened.
    pub(crate) since: Instant,
    connection: MultiplexedConnection,
    /// Shared with the task that reads from the connection.
    liveness: Arc<Liveness>,
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Connection for RedisConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

impl RedisConnection {
    /// Connects, reads which process the server is, and rejects replicas and servers of another kind.
    pub(crate) async fn connect(
        info: ConnectionInfo,
        in_cluster: bool,
        channels: Arc<Channels>,
    ) -> Result<Self, StoreError> {
        let (address, liveness) = (info.addr().to_string(), Arc::new(Liveness::new()));
        let pushes = Pushes { liveness: liveness.clone(), channels: channels.clone(), identity: Arc::default() };
        let known_identity = pushes.identity.clone();
        let mut connection = connect(info, Some(pushes)).await?;
        let mut who = redis::pipe();
        who.cmd("INFO").arg("server").cmd("INFO").arg("replication");
        // Scripts are loaded in advance, if the user is allowed to, so that the first write is as fast as later ones.
        who.add_command(scripts::READ.load()).add_command(scripts::SWAP.load());
        let answers = connection
            .send_packed_commands(&who, 0, who.len())
            .await
            .and_then(|answers| answers.into_iter().take(2).map(Value::extract_error).collect::<Result<Vec<_>, _>>())
            .map_err(|error| errors::connect_failed(&address, error))?;
        let text = |answer: &Value| redis::from_redis_value_ref::<String>(answer).unwrap_or_default();
        let field = |info: &str, name: &str| {
            info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
        };
        let (server, replication) = (text(&answers[0]), text(&answers[1]));
        let Some(identity) = field(&server, "run_id") else {
            return Err(StoreError::denied(format!(
                "{address} does not report its process (INFO server has no run_id); connect to the server directly"
            )));
        };
        match field(&server, "redis_mode").as_deref() {
            Some("sentinel") => {
                return Err(StoreError::denied(format!("{address} is a Sentinel; use redis+sentinel://")));
            }
            Some("cluster") if !in_cluster => return Err(errors::in_cluster(&address)),
            _ => {}
        }
        if field(&replication, "role").as_deref() == Some("slave") {
            return Err(errors::replica(&address));
        }
        tokio::spawn(keep_watch(connection.clone(), liveness.clone(), channels));
        let (identity, since) = (DataIdentity::new(identity), Instant::now());
        // Nothing is subscribed yet, so no message has come.
        let _ = known_identity.set(identity.clone());
        Ok(Self { address, identity, since, connection, liveness })
    }

    /// Sends commands in one round trip, and returns the answer to each. If the future is dropped before the
    /// commands are sent, they are never sent. `within` is how long the caller waits.
    pub(crate) async fn send(&self, commands: &Pipeline, within: Option<Duration>) -> Result<Vec<Value>, RedisError> {
        let waiting = self.liveness.waiting(self.patience(within));
        let sent = async |mut on: MultiplexedConnection| on.send_packed_commands(commands, 0, commands.len()).await;
        let answers = self.while_open(sent).await;
        if answers.is_ok() {
            waiting.answered();
        } else {
            // The server may have run some of the commands.
            waiting.failed();
            self.close();
        }
        answers
    }

    /// Returns when a dropped call makes the connection doubted: if it has waited for most of its time, and
    /// nothing was received for three times as long as `within`. A call that is dropped sooner, or that has no
    /// time-out, says nothing about the server.
    fn patience(&self, within: Option<Duration>) -> Patience {
        let at_least = within.map_or(Duration::MAX, |within| {
            (within * 3 / 4).max((within * 3).saturating_sub(self.liveness.quiet_for()))
        });
        Patience { at_least, times: 1 }
    }

    /// Subscribes to channels. Returns when the server has confirmed all of them.
    pub(crate) async fn subscribe(&self, channels: &[String]) -> Result<(), StoreError> {
        self.while_open(async |mut on| on.subscribe(channels).await)
            .await
            .map_err(|error| errors::call_failed(&self.address, error))
    }

    /// Unsubscribes from channels. Ignores errors, as unneeded messages do no harm.
    pub(crate) async fn unsubscribe(&self, channels: &[String]) {
        let _ = self.while_open(async |mut on| on.unsubscribe(channels).await).await;
    }

    /// Runs `act` on the connection. Fails as soon as the connection is closed.
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

    /// Closes the connection. All calls in flight on it fail.
    pub(crate) fn close(&self) {
        self.liveness.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.liveness.is_closed()
    }
}

/// Pings a silent server. Closes the connection if the server does not answer, and wakes the watch.
async fn keep_watch(connection: MultiplexedConnection, liveness: Arc<Liveness>, channels: Arc<Channels>) {
    let ping = || {
        let mut connection = connection.clone();
        async move { connection.send_packed_command(&redis::cmd("PING")).await }
    };
    tokio::select! {
        () = liveness.fell_silent(ping) => liveness.close(),
        () = liveness.closed() => {}
    }
    channels.connections_changed();
}

/// Handles what a server pushes.
pub(crate) struct Pushes {
    liveness: Arc<Liveness>,
    channels: Arc<Channels>,
    /// The process of the server, once it is known.
    identity: Arc<OnceLock<DataIdentity>>,
}

/// Handles a message that the server pushed. The task that reads from the connection calls it, so it must not block.
fn on_push(Pushes { liveness, channels, identity }: &Pushes, push: &PushInfo) {
    liveness.heard();
    let text = |at: usize| match push.data.get(at) {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(Value::SimpleString(text)) => text.clone(),
        _ => String::new(),
    };
    match push.kind {
        PushKind::Disconnection => liveness.close(),
        PushKind::Message => channels.on_message(identity.get(), &text(0), &text(1)),
        _ => {}
    }
}

/// Opens a connection, without any checks. Messages that the server pushes go to `pushes`.
pub(crate) async fn connect(info: ConnectionInfo, pushes: Option<Pushes>) -> Result<MultiplexedConnection, StoreError> {
    let address = info.addr().to_string();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    // The engine has its own time-outs. One in the driver would hide the outcome of a call.
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    if let Some(pushes) = pushes {
        config = config.set_push_sender(move |push: PushInfo| {
            on_push(&pushes, &push);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    let tls = match info.addr() {
        ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
        _ => None,
    };
    let client = Client::open(info).map_err(|error| errors::connect_failed(&address, error))?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let connected = match tls {
        None => connecting.await,
        Some(at) => {
            tokio::select! {
                biased;
                connected = connecting => connected,
                () = speaks_without_tls(at) => return Err(errors::plain(&address)),
            }
        }
    };
    connected.map_err(|error| errors::connect_failed(&address, error))
}

/// Returns if the server turns out to serve the Redis protocol without TLS. Such a server takes the TLS greeting
/// for the start of a command and waits for the end of its line, so the handshake would never end.
async fn speaks_without_tls(at: (String, u16)) {
    tokio::time::sleep(CHECK_FOR_PLAIN_AFTER).await;
    let ping = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let plain = ping.await.is_ok_and(|answer| [b"+PONG", b"-NOAU", b"-NOPE", b"-DENI"].contains(&&answer));
    if !plain {
        std::future::pending::<()>().await;
    }
}

/// If the TLS handshake takes longer than this, the store checks whether the server speaks without TLS.
const CHECK_FOR_PLAIN_AFTER: Duration = Duration::from_millis(25);
