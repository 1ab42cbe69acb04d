//! Logging in to a member.

use std::sync::Mutex;

use tenure_core::StoreError;
use tenure_kit::SharedTask;
use tonic::client::Grpc;
use tonic::transport::Channel;

use crate::connection::send;
use crate::options::Secret;
use crate::wire::{AuthenticateRequest, AuthenticateResponse};
use crate::{errors, lock};

/// A user and a password, and the token that a member issued for them. A token lasts for some minutes.
pub(crate) struct Login {
    address: String,
    grpc: Grpc<Channel>,
    user: String,
    password: Secret,
    /// The last login. It continues when its call is dropped, because members take long to verify a password.
    last: Mutex<Option<SharedTask<String>>>,
}

impl Login {
    pub(crate) fn new(address: &str, grpc: Grpc<Channel>, user: String, password: Secret) -> Self {
        Self { address: address.to_owned(), grpc, user, password, last: Mutex::default() }
    }

    /// Returns a token other than `stale`, which has expired. One login serves all callers.
    pub(crate) async fn token(&self, stale: Option<&str>) -> Result<String, StoreError> {
        let login = {
            let mut last = lock(&self.last);
            let is_usable = |login: &&SharedTask<String>| match login.result() {
                None => login.is_running(),
                Some(token) => token.is_ok_and(|token| Some(token.as_str()) != stale),
            };
            let login = last.as_ref().filter(is_usable).cloned().unwrap_or_else(|| self.log_in());
            last.insert(login).clone()
        };
        login.wait(StoreError::refused("the login was interrupted")).await
    }

    fn log_in(&self) -> SharedTask<String> {
        let (address, grpc) = (self.address.clone(), self.grpc.clone());
        let request = AuthenticateRequest { name: self.user.clone(), password: self.password.0.clone() };
        SharedTask::start(async move {
            let answer = send(&grpc, "/etcdserverpb.Auth/Authenticate", request, None).await;
            let answer: AuthenticateResponse = answer.map_err(|status| errors::from_first_call(&address, status))?;
            Ok(answer.token)
        })
    }
}
