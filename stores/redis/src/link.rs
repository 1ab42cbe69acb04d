//! One connection to one server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, Value};
use tenure_core::{Identity, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ears::{Ear, Ears};
use crate::faults;
use crate::gather::{Gather, Replicas};
use crate::scripts::{self, Source};

/// A connection that all calls share, pipelined. Once anything is wrong with it, it is over for good.
pub(crate) struct Link {
    /// For people to read.
    pub(crate) address: String,
    /// Which process of a server it was made to: it cannot outlive that.
    pub(crate) identity: Identity,
    pub(crate) ears: Arc<Ears>,
    gather: Gather,
    /// How often to make sure that the server is still there, in milliseconds; zero: never.
    probe_every: AtomicU64,
}

impl Link {
    /// Connects, and asks who is there.
    pub(crate) async fn connect(info: ConnectionInfo, in_cluster: bool) -> Result<Arc<Self>, StoreError> {
        let address = info.addr().to_string();
        let ears = Arc::new(Ears::new());
        let mut connection = connect(info, Some(ears.clone())).await?;
        let mut who = redis::pipe();
        who.cmd("INFO").arg("server").cmd("INFO").arg("replication");
        // Loaded in advance, if that is permitted: a first write is then as quick as any other.
        who.add_command(scripts::READ.load()).add_command(scripts::SWAP.load());
        let answers = connection
            .send_packed_commands(&who, 0, who.len())
            .await
            .and_then(|answers| answers.into_iter().take(2).map(Value::extract_error).collect::<Result<Vec<_>, _>>())
            .map_err(|error| faults::of_connecting(&address, error))?;
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
            Some("cluster") if !in_cluster => return Err(faults::in_cluster(&address)),
            _ => {}
        }
        if field(&replication, "role").as_deref() == Some("slave") {
            return Err(faults::replica(&address));
        }
        let link = Arc::new(Self {
            address,
            identity: Identity::new(identity),
            gather: Gather::start(connection, ears.clone()),
            ears,
            probe_every: AtomicU64::new(0),
        });
        tokio::spawn(probe(Arc::downgrade(&link)));
        Ok(link)
    }

    /// Runs a script, by its hash if the server knows it.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Vec<Value>, RedisError> {
        match self.send(call.with(call.script.by_hash(call.keys, call.arguments)), call.replicas).await {
            // It has run nothing. The text is sent once in the life of a server.
            Err(error) if faults::is_no_script(&error) => {
                self.send(call.with(call.script.by_text(call.keys, call.arguments)), call.replicas).await
            }
            answer => answer,
        }
    }

    /// Sends commands in one go, and waits for the answers.
    async fn send(&self, commands: Vec<Cmd>, replicas: Option<Replicas>) -> Result<Vec<Value>, RedisError> {
        let mut unanswered =
            Unanswered { link: self, sounds: self.ears.sounds(), since: Instant::now(), answered: false };
        let answers = self.gather.call(commands, replicas).await;
        unanswered.answered = true;
        if answers.as_ref().is_err_and(faults::is_demotion) {
            self.ears.close();
        }
        answers
    }

    /// What is heard on a channel that the server has confirmed.
    pub(crate) fn ear(&self, channel: &str) -> Option<Arc<Ear>> {
        self.ears.existing(channel).filter(|ear| ear.open.load(Ordering::Acquire))
    }

    /// Listens to a channel, once the server has confirmed it.
    pub(crate) async fn listen(&self, channel: &str) -> Result<Arc<Ear>, StoreError> {
        let ear = self.ears.ear(channel);
        if !ear.open.load(Ordering::Acquire) {
            let idle = self.ears.idle();
            if !idle.is_empty() {
                self.gather.leave(idle);
            }
            self.gather.listen(channel, ear.clone()).await.map_err(|error| faults::of_asking(&self.address, error))?;
        }
        Ok(ear)
    }

    /// There are seats with this lease: from now on, makes sure every so often that the server is there.
    pub(crate) fn serves(&self, lease: Duration) {
        self.gather.serves(lease);
        let span = u64::try_from((lease / 2).as_millis()).unwrap_or(u64::MAX).max(1);
        let _ = self
            .probe_every
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now == 0 || span < now).then_some(span));
    }
}

/// A script to run.
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Source,
    pub(crate) keys: &'a [&'a str],
    pub(crate) arguments: &'a [&'a str],
    /// A command before it, in the same round trip.
    pub(crate) before: Option<Cmd>,
    /// Who must have what it has written; how many have is its last answer.
    pub(crate) replicas: Option<Replicas>,
}

impl Call<'_> {
    fn with(&self, script: Cmd) -> Vec<Cmd> {
        self.before.iter().cloned().chain([script]).collect()
    }
}

/// A call that has not been answered. If it is given up after a while, and nothing at all has come in for
/// longer, the connection is not worth another call. One that is given up sooner tells nothing about it.
struct Unanswered<'a> {
    link: &'a Link,
    sounds: u64,
    since: Instant,
    answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Self { link, sounds, since, answered } = self;
        let patience = link.gather.patience();
        let silent = link.ears.sounds() == *sounds && link.ears.silence() >= patience * 3;
        if !*answered && silent && since.elapsed() >= patience {
            link.ears.close();
        }
    }
}

/// Asks a server that has not said anything for a while whether it is there.
async fn probe(link: Weak<Link>) {
    let mut last = None;
    loop {
        let open = link.upgrade().filter(|link| !link.ears.is_closed());
        let Some(every) = open.map(|link| link.probe_every.load(Ordering::Relaxed)) else { return };
        let every = Duration::from_millis(if every == 0 { 1000 } else { every });
        tokio::time::sleep(every).await;
        let Some(link) = link.upgrade() else { return };
        let sounds = link.ears.sounds();
        if last == Some(sounds) && link.probe_every.load(Ordering::Relaxed) > 0 {
            let answered = tokio::time::timeout(every / 2, link.send(vec![redis::cmd("PING")], None)).await;
            if answered.is_err() {
                link.ears.close();
            }
        }
        last = Some(link.ears.sounds());
    }
}

/// A connection, and nothing more.
pub(crate) async fn connect(
    info: ConnectionInfo,
    ears: Option<Arc<Ears>>,
) -> Result<MultiplexedConnection, StoreError> {
    let address = info.addr().to_string();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    // The engine has time-outs of its own: one in here would only hide what became of a call.
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    if let Some(ears) = ears {
        config = config.set_push_sender(move |push: redis::PushInfo| {
            ears.hear(&push);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    let tls = match info.addr() {
        ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
        _ => None,
    };
    let client = Client::open(info).map_err(|error| faults::of_connecting(&address, error))?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let connected = match tls {
        None => connecting.await,
        Some(at) => {
            tokio::select! {
                biased;
                connected = connecting => connected,
                () = answers_plainly(at) => return Err(faults::plain(&address)),
            }
        }
    };
    connected.map_err(|error| faults::of_connecting(&address, error))
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
