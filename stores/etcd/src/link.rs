//! One connection to one member that works: logged in and greeted. Once it is broken it stays so.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use http::uri::PathAndQuery;
use prost::Message;
use tenure_core::StoreError;
use tokio::sync::{OnceCell, oneshot, watch};
use tokio::task::AbortHandle;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::bells::Bells;
use crate::faults;
use crate::login::Login;
use crate::reads::Reads;
use crate::wire::{
    Answer, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, RangeResponse, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::writes::Writes;

/// One connection that works.
pub(crate) struct Link {
    pub(crate) address: String,
    /// Whose data this is.
    pub(crate) cluster: u64,
    wire: Arc<Wire>,
    /// What it was greeted with: something that it can answer only together with a majority.
    greeting: RangeRequest,
    /// How far the data is known to have come.
    revision: AtomicI64,
    /// A call was given up, nothing was heard since it was made, and nothing has been since.
    doubted: AtomicBool,
    /// How often anything came in.
    sounds: Arc<AtomicU64>,
    over: Arc<watch::Sender<bool>>,
    watching: OnceCell<(u64, Ending)>,
    pub(crate) reads: Reads,
    pub(crate) writes: Writes,
    pulse: Mutex<Option<(Duration, Ending)>>,
}

/// What calls are made with.
pub(crate) struct Wire {
    grpc: Grpc<Channel>,
    login: Option<Login>,
    /// Whether a gRPC proxy of etcd's answers, and not a member.
    is_proxy: AtomicBool,
}

/// A stream that stays open in both directions until this is dropped.
struct Open<A> {
    answers: tonic::Streaming<A>,
    _open: oneshot::Sender<()>,
}

impl<A> Open<A> {
    /// The next answer. A method, so that a task that waits for answers owns all of this.
    async fn next(&mut self) -> Result<Option<A>, Status> {
        self.answers.message().await
    }
}

/// A task that ends with this.
struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

impl Link {
    /// Greets a member: that tells whose data it has, and that it may be asked.
    pub(crate) async fn greet(address: String, wire: Wire, greeting: RangeRequest) -> Result<Self, Status> {
        let wire = Arc::new(wire);
        let answer: RangeResponse = wire.ask(RANGE, greeting.clone()).await?;
        let header = answer.header.ok_or_else(|| Status::unimplemented("an answer without a header"))?;
        Ok(Self {
            address,
            cluster: header.cluster_id,
            wire,
            greeting,
            revision: AtomicI64::new(header.revision),
            doubted: AtomicBool::new(false),
            sounds: Arc::default(),
            over: Arc::new(watch::Sender::new(false)),
            watching: OnceCell::new(),
            reads: Reads::default(),
            writes: Writes::default(),
            pulse: Mutex::default(),
        })
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.ask(RANGE, request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        self.ask(TXN, request).await
    }

    /// The same for those who may stop waiting at any time and for any reason: that tells nothing about the
    /// connection.
    pub(crate) async fn txn_idly(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        self.heard(self.wire.ask(TXN, request).await)
    }

    pub(crate) async fn grant(&self, ttl: i64) -> Result<LeaseGrantResponse, StoreError> {
        self.ask(GRANT, LeaseGrantRequest { ttl }).await
    }

    pub(crate) async fn revoke(&self, id: i64) -> Result<LeaseRevokeResponse, StoreError> {
        self.ask(REVOKE, LeaseRevokeRequest { id }).await
    }

    /// Keeps a lease alive, once. The member is asked on a stream of its own, so none can be left hanging.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<LeaseKeepAliveResponse, StoreError> {
        let doubt = self.doubt_if_dropped();
        let answer = self.wire.keep_alive(id).await;
        std::mem::forget(doubt);
        self.heard(answer)
    }

    /// Whether the answer to a keep-alive may be to one that was sent earlier, as a proxy gives it.
    pub(crate) fn is_proxy(&self) -> bool {
        self.wire.is_proxy.load(Ordering::Relaxed)
    }

    /// Asks how many seconds a lease has left, rounded down; -1 if it is over.
    pub(crate) async fn time_to_live(&self, id: i64) -> Result<i64, StoreError> {
        let answer: LeaseTimeToLiveResponse = self.ask(TIME_TO_LIVE, LeaseTimeToLiveRequest { id }).await?;
        Ok(answer.ttl)
    }

    /// Makes a call and waits for its answer. If this is dropped before that, the connection may be doubted.
    async fn ask<Q: Message + Clone + 'static, A: Message + Answer + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
    ) -> Result<A, StoreError> {
        let doubt = self.doubt_if_dropped();
        let answer = self.wire.ask(path, question).await;
        std::mem::forget(doubt);
        self.heard(answer)
    }

    fn heard<A: Answer>(&self, answer: Result<A, Status>) -> Result<A, StoreError> {
        match answer {
            Ok(answer) => {
                self.sound();
                let header = answer.header();
                self.revision.fetch_max(header.map_or(0, |header| header.revision), Ordering::Relaxed);
                Ok(answer)
            }
            Err(status) => {
                if faults::is_broken(&status) {
                    self.retire();
                } else {
                    self.sound();
                    if status.code() == Code::Unavailable {
                        // It has no leader, or cannot reach it; another member may.
                        self.retire();
                    }
                }
                Err(faults::of_call(&self.address, status))
            }
        }
    }

    fn sound(&self) {
        self.sounds.fetch_add(1, Ordering::Relaxed);
        self.doubted.store(false, Ordering::Relaxed);
    }

    /// How far the data has come at the least.
    pub(crate) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Whether another call may be made on it.
    pub(crate) fn is_good(&self) -> bool {
        !self.doubted.load(Ordering::Relaxed) && !self.is_over()
    }

    /// Whether it is broken, or was replaced.
    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Has it replaced by the next call. What is under way on it may still come to its end.
    pub(crate) fn retire(&self) {
        self.over.send_replace(true);
    }

    /// Has the connection doubted if this is dropped before anything was heard on it: a member that answers
    /// others is busy, and a new connection would only make it busier.
    pub(crate) fn doubt_if_dropped(&self) -> Doubt<'_> {
        Doubt { link: self, sounds: self.sounds.load(Ordering::Relaxed) }
    }

    /// Has everything between two keys watched from now on, on one stream for all. Once this has returned the
    /// number of who listens to it, whatever happens after it rings the bells, or the connection is over. That is
    /// told to whoever listens by that number, however it comes to be over.
    pub(crate) async fn watch(&self, from: &str, to: &str, bells: &Arc<Bells>) -> Result<u64, StoreError> {
        let opened = self.watching.get_or_try_init(|| async {
            let create = WatchCreateRequest { key: from.into(), range_end: to.into() };
            let request = WatchRequest { create: Some(create) };
            let mut watch: Open<WatchResponse> = self.wire.open(WATCH, request).await?;
            loop {
                let answer = watch.next().await?.ok_or_else(|| Status::unavailable("the watch has ended"))?;
                if answer.canceled {
                    return Err(Status::permission_denied(answer.cancel_reason));
                }
                if answer.created {
                    break;
                }
            }
            let (bells, sounds, address) = (bells.clone(), self.sounds.clone(), self.address.clone());
            let mut retired = self.over.subscribe();
            let ear = bells.ear(self.over.clone());
            let number = ear.number;
            let task = tokio::spawn(async move {
                let _ear = ear;
                let why = loop {
                    let answer = tokio::select! {
                        answer = watch.next() => answer,
                        // It is broken or no longer used: what is pushed over it is not heard any more.
                        _ = retired.wait_for(|over| *over) => return,
                    };
                    match answer {
                        Ok(Some(answer)) if answer.canceled => {
                            break format!("{} (compacted at {})", answer.cancel_reason, answer.compact_revision);
                        }
                        Ok(Some(answer)) => {
                            sounds.fetch_add(1, Ordering::Relaxed);
                            answer.events.iter().for_each(|event| bells.ring(event));
                        }
                        Ok(None) => break "it has ended".to_owned(),
                        Err(status) => break status.message().to_owned(),
                    }
                };
                tracing::debug!(%address, %why, "the watch is over");
            });
            Ok((number, Ending(task.abort_handle())))
        });
        match opened.await {
            Ok((number, _)) => Ok(*number),
            Err(status) => {
                if faults::is_broken(&status) {
                    self.retire();
                }
                Err(faults::of_call(&self.address, status))
            }
        }
    }

    /// Asks the member for a sign of life whenever it was silent for so long, and retires the connection if
    /// it gives none: whoever waits for news then knows that there will be none.
    pub(crate) fn pulse(self: &Arc<Self>, every: Duration) {
        let mut pulse = self.pulse.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if pulse.as_ref().is_some_and(|(already, _)| *already <= every) {
            return;
        }
        let link = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut heard = None;
            loop {
                tokio::time::sleep(every).await;
                let Some(link) = link.upgrade().filter(|link| !*link.over.borrow()) else { return };
                let sounds = link.sounds.load(Ordering::Relaxed);
                if heard.replace(sounds) != Some(sounds) {
                    continue;
                }
                let asked = link.wire.ask::<_, RangeResponse>(RANGE, link.greeting.clone());
                match tokio::time::timeout(every, asked).await {
                    Ok(answer) => drop(link.heard(answer)),
                    Err(_) if link.sounds.load(Ordering::Relaxed) == sounds => {
                        tracing::debug!(address = %link.address, "no sign of life");
                        link.retire();
                    }
                    Err(_) => {}
                }
            }
        });
        *pulse = Some((every, Ending(task.abort_handle())));
    }
}

impl Wire {
    pub(crate) fn new(channel: Channel, login: Option<Login>) -> Self {
        // A watch may tell of many things at once.
        Self { grpc: Grpc::new(channel).max_decoding_message_size(64 << 20), login, is_proxy: AtomicBool::new(false) }
    }

    /// Asks once; a second time only if the member has said that it does not know us any more, in which case
    /// it has done nothing, and we have logged in again.
    async fn ask<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        self: &Arc<Self>,
        path: &'static str,
        question: Q,
    ) -> Result<A, Status> {
        let Some(stale) = self.login.as_ref().and_then(Login::token) else {
            return self.send(path, question, None).await;
        };
        match self.send(path, question.clone(), Some(&stale)).await {
            Err(status) if faults::is_stale_login(&status) => {
                self.log_in_again(stale).await?;
                let token = self.login.as_ref().and_then(Login::token);
                self.send(path, question, token.as_deref()).await
            }
            answer => answer,
        }
    }

    async fn send<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
        token: Option<&str>,
    ) -> Result<A, Status> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let request = addressed(Request::new(question), token)?;
        let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    /// Goes on when the caller gives up, as members take their time over passwords.
    async fn log_in_again(self: &Arc<Self>, stale: String) -> Result<(), Status> {
        let wire = self.clone();
        let task = tokio::spawn(async move {
            match &wire.login {
                Some(login) => login.again(&stale, &wire.grpc).await,
                None => Ok(()),
            }
        });
        task.await.unwrap_or_else(|error| Err(Status::from_error(error.into())))
    }

    /// A member answers a stream that ends with its question. A proxy gives up such a stream unanswered: it is
    /// then asked again, on a stream that stays open until the answer.
    async fn keep_alive(self: &Arc<Self>, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
        let question = LeaseKeepAliveRequest { id };
        if !self.is_proxy.load(Ordering::Relaxed) {
            let asked = self.stream(KEEP_ALIVE, stream::once(std::future::ready(question)));
            let answer = async { asked.await?.message().await };
            match answer.await {
                Ok(Some(answer)) => return Ok(answer),
                Err(status) if !faults::is_given_up(&status) => return Err(status),
                _ => self.is_proxy.store(true, Ordering::Relaxed),
            }
        }
        let mut open = self.open(KEEP_ALIVE, question).await?;
        open.next().await?.ok_or_else(|| Status::unknown("no answer to a keep-alive"))
    }

    async fn open<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
    ) -> Result<Open<A>, Status> {
        // Ends when this is dropped: by itself the stream would stay open, and the connection with it.
        let (open, mut closed) = oneshot::channel::<()>();
        let end = stream::poll_fn(move |context| closed.poll_unpin(context).map(|_| None));
        let answers = self.stream(path, stream::once(std::future::ready(question)).chain(end)).await?;
        Ok(Open { answers, _open: open })
    }

    async fn stream<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        questions: impl stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<tonic::Streaming<A>, Status> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let token = self.login.as_ref().and_then(Login::token);
        let request = addressed(Request::new(questions), token.as_deref())?;
        let answers = grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
        Ok(answers.into_inner())
    }

    /// Logs in for the first time.
    pub(crate) async fn log_in(&self) -> Result<(), Status> {
        match &self.login {
            Some(login) => login.first(&self.grpc).await,
            None => Ok(()),
        }
    }
}

/// A member that has no leader is to say so at once, and to end what it streams.
fn addressed<T>(mut request: Request<T>, token: Option<&str>) -> Result<Request<T>, Status> {
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    if let Some(token) = token {
        let token = token.parse().map_err(|_| Status::internal("a log-in that is no text"))?;
        metadata.insert("token", token);
    }
    Ok(request)
}

/// To be forgotten (`std::mem::forget`) once there is an answer.
pub(crate) struct Doubt<'a> {
    link: &'a Link,
    sounds: u64,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.link.sounds.load(Ordering::Relaxed) == self.sounds {
            self.link.doubted.store(true, Ordering::Relaxed);
        }
    }
}
