//! Who we are to the members.

use std::sync::{Mutex, MutexGuard};

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::options::Secret;
use crate::wire::{AuthenticateRequest, AuthenticateResponse};

/// A user and a password, and what a member has given for them: a token that lasts for some minutes.
pub(crate) struct Login {
    user: String,
    password: Secret,
    token: Mutex<Option<String>>,
    /// Held while a new token is asked for, so that one asks for all.
    asking: tokio::sync::Mutex<()>,
}

impl Login {
    pub(crate) fn new(user: String, password: Secret) -> Self {
        Self { user, password, token: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    pub(crate) fn token(&self) -> Option<String> {
        self.lock().clone()
    }

    pub(crate) async fn first(&self, grpc: &Grpc<Channel>) -> Result<(), Status> {
        let mut grpc = grpc.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let request = AuthenticateRequest { name: self.user.clone(), password: self.password.0.clone() };
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::default();
        let answer = grpc.unary(Request::new(request), path, codec).await?;
        *self.lock() = Some(answer.into_inner().token);
        Ok(())
    }

    /// Gets another token in place of one that has run out, unless somebody has done so already.
    pub(crate) async fn again(&self, stale: &str, grpc: &Grpc<Channel>) -> Result<(), Status> {
        let _asking = self.asking.lock().await;
        if self.token().as_deref() == Some(stale) { self.first(grpc).await } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
