//! Credentials: how requests are signed, and where tokens come from.

use std::collections::HashMap;

use reqsign_azure_storage::{
    ClientSecretCredentialProvider, Credential, ImdsCredentialProvider, RequestSigner, StaticCredentialProvider,
    WorkloadIdentityCredentialProvider,
};
use reqsign_core::{Context, Signer, StaticEnv};
use reqsign_file_read_tokio::TokioFileRead;
use reqsign_http_send_reqwest::ReqwestHttpSend;
use tenure_kit::options::Variables;

use crate::options::AzureBlobOptions;

/// Creates the signer of requests: with a key, a shared access signature, or a token. A token is requested by the first
/// request that needs it, and again before it expires. Nothing is retried.
///
/// There is one source of credentials, and no chain: a wrong secret must not be hidden by the error of another source.
pub(crate) fn signer(
    options: &AzureBlobOptions,
    variables: &Variables<'_>,
    http: reqwest::Client,
) -> Signer<Credential> {
    let file = options.federated_token_file.as_ref().map(|file| file.to_string_lossy().into_owned());
    let given = [
        ("AZURE_TENANT_ID", options.tenant_id.clone()),
        ("AZURE_CLIENT_ID", options.client_id.clone()),
        ("AZURE_CLIENT_SECRET", options.client_secret.as_ref().map(|secret| secret.0.clone())),
        ("AZURE_FEDERATED_TOKEN_FILE", file.clone()),
        ("AZURE_AUTHORITY_HOST", options.authority_host.clone()),
        ("AZURE_IMDS_ENDPOINT", options.identity_endpoint.clone()),
        ("AZURE_OBJECT_ID", None),
        ("AZURE_MSI_RES_ID", None),
        ("AZURE_MSI_SECRET", None),
    ];
    let envs = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.or(variables.get(name))?)));
    let envs: HashMap<_, _> = envs.collect();
    let has = |name: &str| envs.contains_key(name);
    let (has_secret, has_file) = (has("AZURE_CLIENT_SECRET"), has("AZURE_FEDERATED_TOKEN_FILE"));
    let context = Context::new()
        .with_file_read(TokioFileRead)
        .with_http_send(ReqwestHttpSend::new(http))
        .with_env(StaticEnv { home_dir: None, envs });
    let request = RequestSigner::new();
    match (&options.account_key, &options.sas_token) {
        (Some(key), _) => {
            Signer::new(context, StaticCredentialProvider::new_shared_key(&options.account, &key.0), request)
        }
        (None, Some(sas)) => {
            let sas = sas.0.trim_start_matches('?');
            Signer::new(context, StaticCredentialProvider::new_sas_token(sas), request)
        }
        _ if has_secret && file.is_none() => Signer::new(context, ClientSecretCredentialProvider::new(), request),
        _ if has_file => Signer::new(context, WorkloadIdentityCredentialProvider::new(), request),
        _ => Signer::new(context, ImdsCredentialProvider::new(), request),
    }
}
