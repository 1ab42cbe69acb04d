//! One connection to one member: logged in and greeted. Once it is closed it stays so.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use http::uri::PathAndQuery;
use prost::Message;
use tenure_core::StoreError;
use tenure_kit::{Connection, Liveness, Patience, Waiting};
use tokio::sync::oneshot;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::errors;
use crate::login::Login;
use crate::options::Secret;
use crate::wire::{
    Event, KeyRange, LeaseRequest, LeaseResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchRequest,
    WatchResponse,
};

/// One connection that works.
pub(crate) struct EtcdConnection {
    pub(crate) address: String,
    /// Whose data this is.
    pub(crate) cluster: u64,
    grpc: Grpc<Channel>,
    login: Option<Login>,
    /// What it was greeted with: something that it can answer only together with a majority.
    greeting: RangeRequest,
    /// How far the data is known to have come.
    revision: AtomicI64,
    /// Whether a gRPC proxy of etcd's answers, and not a member.
    is_proxy: AtomicBool,
    liveness: Liveness,
}

impl Connection for EtcdConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// A stream that stays open in both directions until this is dropped.
struct Open<A> {
    answers: tonic::Streaming<A>,
    _open: oneshot::Sender<()>,
}

/// A watch that the member has confirmed. What happens from then on is told, or there is an error.
pub(crate) struct Watch<'a> {
    connection: &'a EtcdConnection,
    open: Open<WatchResponse>,
}

impl Watch<'_> {
    pub(crate) async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        Ok(self.answer().await?.events)
    }

    async fn answer(&mut self) -> Result<WatchResponse, StoreError> {
        let answer = self.open.answers.message().await;
        let answer = answer.and_then(|answer| answer.ok_or_else(|| Status::cancelled("it has ended")));
        let answer = answer.map_err(|status| self.connection.failed(status))?;
        self.connection.liveness.heard();
        if answer.canceled {
            let (address, why) = (&self.connection.address, answer.cancel_reason);
            return Err(StoreError::refused(format!("{address} has ended the watch: {why}")));
        }
        Ok(answer)
    }
}

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

impl EtcdConnection {
    /// Logs in and greets a member: that tells whose data it has, and that it may be asked.
    pub(crate) async fn open(
        address: &str,
        channel: Channel,
        login: Option<(String, Secret)>,
        greeting: RangeRequest,
    ) -> Result<Self, StoreError> {
        // A watch may tell of many things at once.
        let grpc = Grpc::new(channel).max_decoding_message_size(64 << 20);
        let login = login.map(|(user, password)| Login::new(address, grpc.clone(), user, password));
        let mut connection = Self {
            address: address.to_owned(),
            cluster: 0,
            grpc,
            login,
            greeting,
            revision: AtomicI64::new(0),
            is_proxy: AtomicBool::new(false),
            liveness: Liveness::new(),
        };
        let token = connection.token(None).await?;
        let answer = send(&connection.grpc, RANGE, connection.greeting.clone(), token.as_deref()).await;
        let header = answer.and_then(|answer: RangeResponse| {
            answer.header.ok_or_else(|| Status::unimplemented("an answer without a header"))
        });
        let header = header.map_err(|status| errors::of_greeting(address, status))?;
        (connection.cluster, connection.revision) = (header.cluster_id, header.revision.into());
        Ok(connection)
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.ask(RANGE, request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        let answer: TxnResponse = self.ask(TXN, request).await?;
        self.revision.fetch_max(answer.revision(), Ordering::Relaxed);
        Ok(answer)
    }

    /// How far the data has come at the least.
    pub(crate) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Has a lease of so many seconds granted.
    pub(crate) async fn grant(&self, seconds: i64) -> Result<LeaseResponse, StoreError> {
        self.ask(GRANT, LeaseRequest { number: seconds }).await
    }

    /// Asks how many seconds a lease has left, rounded down; -1 if it is over.
    pub(crate) async fn time_to_live(&self, lease: i64) -> Result<i64, StoreError> {
        let answer: LeaseResponse = self.ask(TIME_TO_LIVE, LeaseRequest { number: lease }).await?;
        Ok(answer.ttl)
    }

    /// Keeps a lease alive, once, and tells whether it lives. The member is asked on a stream of its own, so none can be
    /// left hanging.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<bool, StoreError> {
        let waiting = self.liveness.waiting(Patience::default());
        let answer = self.send_keep_alive(LeaseRequest { number: lease }, self.token(None).await?.as_deref()).await;
        Ok(self.heard(waiting, answer)?.ttl > 0)
    }

    /// A member answers a stream that ends with its question. A proxy gives up such a stream unanswered: it is
    /// then asked again, on a stream that stays open until the answer.
    async fn send_keep_alive(&self, question: LeaseRequest, token: Option<&str>) -> Result<LeaseResponse, Status> {
        if !self.is_proxy() {
            let asked = self.stream(KEEP_ALIVE, stream::once(std::future::ready(question)), token);
            let answer = async { asked.await?.message().await };
            match answer.await {
                Ok(Some(answer)) => return Ok(answer),
                Err(status) if !errors::is_given_up(&status) => return Err(status),
                _ => self.is_proxy.store(true, Ordering::Relaxed),
            }
        }
        let mut open = self.stream_open(KEEP_ALIVE, question, token).await?;
        open.answers.message().await?.ok_or_else(|| Status::unknown("no answer to a keep-alive"))
    }

    /// Whether the answer to a keep-alive may be to one that was sent earlier, as a proxy gives it.
    pub(crate) fn is_proxy(&self) -> bool {
        self.is_proxy.load(Ordering::Relaxed)
    }

    /// Watches everything between two keys, from now on.
    pub(crate) async fn watch(&self, from: &str, to: &str) -> Result<Watch<'_>, StoreError> {
        let create = Some(KeyRange { key: from.into(), range_end: to.into() });
        let token = self.token(None).await?;
        let opened = self.stream_open(WATCH, WatchRequest { create }, token.as_deref()).await;
        let mut watch = Watch { connection: self, open: opened.map_err(|status| self.failed(status))? };
        while !watch.answer().await?.created {}
        Ok(watch)
    }

    /// Asks the member for a sign of life whenever it was silent for so long. Resolves when it gives none within the
    /// same time, which closes the connection, or when the connection is closed by something else.
    pub(crate) async fn silence(&self, patience: Duration) -> StoreError {
        let listen = async {
            loop {
                tokio::time::sleep(patience).await;
                if self.liveness.quiet_for() >= patience
                    && tokio::time::timeout(patience, self.range(self.greeting.clone())).await.is_err()
                    && self.liveness.quiet_for() >= patience
                {
                    self.liveness.close();
                    return Ok(());
                }
            }
        };
        match self.while_open(listen).await {
            Ok(()) => StoreError::unknown(format!("{} gives no sign of life", self.address)),
            Err(error) => error,
        }
    }

    /// Waits for an answer, but not on a connection that is closed meanwhile: the next call has another one.
    pub(crate) async fn while_open<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.liveness.closed() => {
                Err(StoreError::unknown(format!("the connection to {} is over", self.address)))
            }
        }
    }

    /// Asks once; a second time only if the member has said that it does not know us any more, in which case
    /// it has done nothing, and we have logged in again. If this is dropped, the connection may be doubted.
    async fn ask<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
    ) -> Result<A, StoreError> {
        let waiting = self.liveness.waiting(Patience::default());
        let token = self.token(None).await?;
        let mut answer = send(&self.grpc, path, question.clone(), token.as_deref()).await;
        if token.is_some() && answer.as_ref().is_err_and(errors::is_stale_login) {
            let token = self.token(token.as_deref()).await?;
            answer = send(&self.grpc, path, question, token.as_deref()).await;
        }
        self.heard(waiting, answer)
    }

    /// What to name ourselves by, if we have a user: something else than `stale`, which the member has forgotten.
    async fn token(&self, stale: Option<&str>) -> Result<Option<String>, StoreError> {
        match &self.login {
            Some(login) => login.token(stale).await.map(Some),
            None => Ok(None),
        }
    }

    fn heard<A>(&self, waiting: Waiting<'_>, answer: Result<A, Status>) -> Result<A, StoreError> {
        match answer {
            Ok(answer) => {
                waiting.answered();
                Ok(answer)
            }
            Err(status) => {
                waiting.failed();
                Err(self.failed(status))
            }
        }
    }

    fn failed(&self, status: Status) -> StoreError {
        if errors::is_broken(&status) {
            self.liveness.close();
        } else {
            self.liveness.heard();
            if status.code() == Code::Unavailable {
                // It has no leader, or cannot reach it; another member may.
                self.liveness.close();
            }
        }
        errors::of_call(&self.address, status)
    }

    async fn stream_open<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
        token: Option<&str>,
    ) -> Result<Open<A>, Status> {
        // Ends when this is dropped: by itself the stream would stay open, and the connection with it.
        let (open, mut closed) = oneshot::channel::<()>();
        let end = stream::poll_fn(move |context| closed.poll_unpin(context).map(|_| None));
        let answers = self.stream(path, stream::once(std::future::ready(question)).chain(end), token).await?;
        Ok(Open { answers, _open: open })
    }

    async fn stream<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        questions: impl stream::Stream<Item = Q> + Send + 'static,
        token: Option<&str>,
    ) -> Result<tonic::Streaming<A>, Status> {
        let (mut grpc, request) = addressed(&self.grpc, questions, token).await?;
        let answers = grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
        Ok(answers.into_inner())
    }
}

/// Sends a question, and waits for its answer.
pub(crate) async fn send<Q: Message + 'static, A: Message + Default + 'static>(
    grpc: &Grpc<Channel>,
    path: &'static str,
    question: Q,
    token: Option<&str>,
) -> Result<A, Status> {
    let (mut grpc, request) = addressed(grpc, question, token).await?;
    let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
    Ok(answer.into_inner())
}

/// Waits until something can be sent. A member that has no leader is to say so at once, and to end what it streams.
async fn addressed<T>(
    grpc: &Grpc<Channel>,
    message: T,
    token: Option<&str>,
) -> Result<(Grpc<Channel>, Request<T>), Status> {
    let (mut grpc, mut request) = (grpc.clone(), Request::new(message));
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    if let Some(token) = token {
        let token = token.parse().map_err(|_| Status::internal("a log-in that is no text"))?;
        metadata.insert("token", token);
    }
    Ok((grpc, request))
}
