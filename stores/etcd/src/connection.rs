//! One connection to one member, logged in and verified by a first read. A closed connection never opens again.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use futures_util::{FutureExt, StreamExt, stream};
use http::uri::PathAndQuery;
use prost::Message;
use tenure_core::StoreError;
use tenure_kit::{Connection, Liveness, Patience};
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

/// An open connection to a member.
pub(crate) struct EtcdConnection {
    pub(crate) address: String,
    /// The ID of the cluster whose data the member serves.
    pub(crate) cluster: u64,
    grpc: Grpc<Channel>,
    login: Option<Login>,
    /// The first read on the connection, and the probe for liveness. A member can answer it only with a majority.
    probe: RangeRequest,
    /// The highest revision of the data that an answer has reported.
    revision: AtomicI64,
    /// Whether the other end is a gRPC proxy of etcd instead of a member.
    is_proxy: AtomicBool,
    liveness: Liveness,
}

impl Connection for EtcdConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// A stream that stays open in both directions until this is dropped.
struct OpenStream<A> {
    answers: tonic::Streaming<A>,
    _open: oneshot::Sender<()>,
}

/// A watch that the member has confirmed. It reports every change from then on, or an error.
pub(crate) struct Watch<'a> {
    connection: &'a EtcdConnection,
    open: OpenStream<WatchResponse>,
}

impl Watch<'_> {
    pub(crate) async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        Ok(self.answer().await?.events)
    }

    async fn answer(&mut self) -> Result<WatchResponse, StoreError> {
        let answer = self.open.answers.message().await;
        let answer = answer.and_then(|answer| answer.ok_or_else(|| Status::cancelled("the stream has ended")));
        let answer = answer.map_err(|status| self.connection.classify(status))?;
        self.connection.liveness.heard();
        if answer.canceled {
            let (address, why) = (&self.connection.address, answer.cancel_reason);
            return Err(StoreError::refused(format!("{address} cancelled the watch: {why}")));
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
    /// Logs in and makes the first read. It shows which cluster the member belongs to, and that this user can
    /// read the prefix.
    pub(crate) async fn open(
        address: &str,
        channel: Channel,
        login: Option<(String, Secret)>,
        probe: RangeRequest,
    ) -> Result<Self, StoreError> {
        // One message of a watch can report many changes.
        let grpc = Grpc::new(channel).max_decoding_message_size(64 << 20);
        let login = login.map(|(user, password)| Login::new(address, grpc.clone(), user, password));
        let mut connection = Self {
            address: address.to_owned(),
            cluster: 0,
            grpc,
            login,
            probe,
            revision: AtomicI64::new(0),
            is_proxy: AtomicBool::new(false),
            liveness: Liveness::new(),
        };
        let token = connection.token(None).await?;
        let answer = send(&connection.grpc, RANGE, connection.probe.clone(), token.as_deref()).await;
        let header = answer.and_then(|answer: RangeResponse| {
            answer.header.ok_or_else(|| Status::unimplemented("the answer has no header"))
        });
        let header = header.map_err(|status| errors::from_first_call(address, status))?;
        (connection.cluster, connection.revision) = (header.cluster_id, header.revision.into());
        Ok(connection)
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.call(RANGE, request).await
    }

    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        let answer: TxnResponse = self.call(TXN, request).await?;
        self.revision.fetch_max(answer.revision(), Ordering::Relaxed);
        Ok(answer)
    }

    /// Returns a lower bound for the current revision of the data.
    pub(crate) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Requests a new lease of this many seconds.
    pub(crate) async fn grant(&self, seconds: i64) -> Result<LeaseResponse, StoreError> {
        self.call(GRANT, LeaseRequest { number: seconds }).await
    }

    /// Returns how many seconds a lease has left, rounded down; -1 if it has ended.
    pub(crate) async fn time_to_live(&self, lease: i64) -> Result<i64, StoreError> {
        let answer: LeaseResponse = self.call(TIME_TO_LIVE, LeaseRequest { number: lease }).await?;
        Ok(answer.ttl)
    }

    /// Keeps a lease alive, once, and returns whether it is alive. Each keep-alive has a stream of its own, so
    /// one that gets no answer cannot block another.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<bool, StoreError> {
        let answer = self.answer_to(async {
            let token = self.token(None).await?;
            Ok(self.send_keep_alive(LeaseRequest { number: lease }, token.as_deref()).await)
        });
        Ok(answer.await?.ttl > 0)
    }

    /// Sends a keep-alive. A member answers on a stream that we close after the question. A proxy cancels such a
    /// stream without an answer; then this asks again, on a stream that stays open until the answer.
    async fn send_keep_alive(&self, question: LeaseRequest, token: Option<&str>) -> Result<LeaseResponse, Status> {
        if !self.is_proxy() {
            let asked = self.stream(KEEP_ALIVE, stream::once(std::future::ready(question)), token);
            let answer = async { asked.await?.message().await };
            match answer.await {
                Ok(Some(answer)) => return Ok(answer),
                Err(status) if !errors::is_cancelled_stream(&status) => return Err(status),
                _ => self.is_proxy.store(true, Ordering::Relaxed),
            }
        }
        let mut open = self.stream_open(KEEP_ALIVE, question, token).await?;
        open.answers.message().await?.ok_or_else(|| Status::unknown("the keep-alive got no answer"))
    }

    /// Whether a proxy answers, so that the answer to a keep-alive may belong to one that was sent earlier.
    pub(crate) fn is_proxy(&self) -> bool {
        self.is_proxy.load(Ordering::Relaxed)
    }

    /// Watches all keys between two keys, from now on.
    pub(crate) async fn watch(&self, from: &str, to: &str) -> Result<Watch<'_>, StoreError> {
        let create = Some(KeyRange { key: from.into(), range_end: to.into() });
        let token = self.token(None).await?;
        let opened = self.stream_open(WATCH, WatchRequest { create }, token.as_deref()).await;
        let mut watch = Watch { connection: self, open: opened.map_err(|status| self.classify(status))? };
        while !watch.answer().await?.created {}
        Ok(watch)
    }

    /// Resolves when the member has fallen silent, or when the connection is closed.
    pub(crate) async fn wait_for_silence(&self) -> StoreError {
        let silence = async {
            self.liveness.fell_silent(|| self.range(self.probe.clone())).await;
            Ok(())
        };
        match self.while_open(silence).await {
            Ok(()) => StoreError::unknown(format!("{} stopped answering", self.address)),
            Err(error) => error,
        }
    }

    /// Waits for an answer, but fails once the connection is closed: the next call uses another one.
    pub(crate) async fn while_open<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.liveness.closed() => {
                Err(StoreError::unknown(format!("the connection to {} was closed before it answered", self.address)))
            }
        }
    }

    /// Makes a call. Makes it a second time only if the member no longer accepted the login token, in which case
    /// the call had no effect, and after logging in again.
    async fn call<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
    ) -> Result<A, StoreError> {
        self.answer_to(async {
            let token = self.token(None).await?;
            let answer = send(&self.grpc, path, question.clone(), token.as_deref()).await;
            if token.is_none() || !answer.as_ref().is_err_and(errors::is_stale_login) {
                return Ok(answer);
            }
            let token = self.token(token.as_deref()).await?;
            Ok(send(&self.grpc, path, question, token.as_deref()).await)
        })
        .await
    }

    /// Returns a login token, if there is a user. It differs from `stale`, which the member no longer accepts.
    async fn token(&self, stale: Option<&str>) -> Result<Option<String>, StoreError> {
        match &self.login {
            Some(login) => login.token(stale).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits for the answer to a call, or for the error of its login. If this is dropped, the connection can become
    /// doubtful.
    async fn answer_to<A>(
        &self,
        call: impl Future<Output = Result<Result<A, Status>, StoreError>>,
    ) -> Result<A, StoreError> {
        let waiting = self.liveness.waiting(Patience::default());
        let answer = call.await;
        match answer {
            Ok(Ok(_)) => waiting.answered(),
            _ => waiting.failed(),
        }
        answer?.map_err(|status| self.classify(status))
    }

    fn classify(&self, status: Status) -> StoreError {
        if errors::is_broken(&status) {
            self.liveness.close();
        } else {
            self.liveness.heard();
            if status.code() == Code::Unavailable {
                // The member has no leader or cannot reach it; another member may.
                self.liveness.close();
            }
        }
        errors::from_call(&self.address, status)
    }

    async fn stream_open<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        question: Q,
        token: Option<&str>,
    ) -> Result<OpenStream<A>, Status> {
        // The sending half ends when `open` is dropped. Without this, the stream and its connection would stay
        // open.
        let (open, mut closed) = oneshot::channel::<()>();
        let end = stream::poll_fn(move |context| closed.poll_unpin(context).map(|_| None));
        let answers = self.stream(path, stream::once(std::future::ready(question)).chain(end), token).await?;
        Ok(OpenStream { answers, _open: open })
    }

    async fn stream<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        questions: impl stream::Stream<Item = Q> + Send + 'static,
        token: Option<&str>,
    ) -> Result<tonic::Streaming<A>, Status> {
        let (mut grpc, request) = prepare(&self.grpc, questions, token).await?;
        let answers = grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
        Ok(answers.into_inner())
    }
}

/// Sends a question and waits for its answer.
pub(crate) async fn send<Q: Message + 'static, A: Message + Default + 'static>(
    grpc: &Grpc<Channel>,
    path: &'static str,
    question: Q,
    token: Option<&str>,
) -> Result<A, Status> {
    let (mut grpc, request) = prepare(grpc, question, token).await?;
    let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await?;
    Ok(answer.into_inner())
}

/// Waits until the channel is ready, and adds the headers. `hasleader` makes a member without a leader fail the
/// call at once, and end its streams.
async fn prepare<T>(
    grpc: &Grpc<Channel>,
    message: T,
    token: Option<&str>,
) -> Result<(Grpc<Channel>, Request<T>), Status> {
    let (mut grpc, mut request) = (grpc.clone(), Request::new(message));
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
    if let Some(token) = token {
        let token = token.parse().map_err(|_| Status::internal("the login token is not valid in a header"))?;
        metadata.insert("token", token);
    }
    Ok((grpc, request))
}
