//! The bucket: requests about objects, without retries, and what their answers mean.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, S3ConditionalPut};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, RetryConfig, StaticCredentialProvider, UpdateVersion,
};
use tenure_core::{ConfigError, StoreError};
use tenure_kit::objects::{Condition, Object, Objects};

use crate::clock::ServerClock;
use crate::errors::Answer;
use crate::options::{BucketOptions, Provider, is_endpoint, is_visible};

/// A bucket. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Bucket {
    client: Arc<dyn ObjectStore>,
    pub(crate) provider: Provider,
    /// The bucket as users name it, for messages.
    pub(crate) place: String,
    prefix: String,
    clock: ServerClock,
    /// Texts of which each request to the bucket has one in its URL, with the bucket in the path or in the host.
    marks: [String; 3],
}

impl Bucket {
    /// Creates the client, without connecting.
    pub(crate) fn new(options: &BucketOptions) -> Result<Self, ConfigError> {
        let clock = ServerClock::default();
        // The engine has its own time-outs. These end what no call waits for any more.
        let client = |endpoint: &Option<String>| {
            ClientOptions::new()
                .with_allow_http(endpoint.as_ref().is_some_and(|url| url.starts_with("http://")))
                .with_connect_timeout(Duration::from_secs(5))
                .with_timeout(Duration::from_secs(30))
                .with_pool_max_idle_per_host(CONNECTIONS)
        };
        // A retry would hide when a write was sent, and report an own win as a loss.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let built: Result<Arc<dyn ObjectStore>, Error> = match options.provider {
            Provider::S3 => {
                use AmazonS3ConfigKey::{AccessKeyId, Endpoint, Region, S3Endpoint, Token};
                let mut builder = AmazonS3Builder::from_env();
                // Of its two endpoints, the driver prefers this one. So an option goes before the environment.
                for (key, value) in [(Region, &options.region), (S3Endpoint, &options.endpoint)] {
                    builder = value.iter().fold(builder, |builder, value| builder.with_config(key, value));
                }
                let endpoint = [S3Endpoint, Endpoint].iter().find_map(|key| builder.get_config_value(key));
                // The driver panics on such values, and variables often end with a line break.
                let is_text = |key| builder.get_config_value(&key).is_none_or(|value| is_visible(&value));
                if !endpoint.as_deref().is_none_or(is_endpoint)
                    || ![AccessKeyId, Token, Region].into_iter().all(is_text)
                {
                    return Err("an AWS_ variable has a space, a line break or an invalid URL; correct it".into());
                }
                builder = builder
                    .with_client_options(client(&endpoint))
                    .with_retry(retry)
                    .with_http_connector(clock.clone())
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .with_disable_bulk_delete(true)
                    .with_bucket_name(&options.bucket);
                if let (Some(key), Some(secret)) = (&options.access_key_id, &options.secret_access_key) {
                    // A session token in the environment belongs to the key in the environment: it is not used.
                    let token = options.session_token.as_ref().map(|token| token.0.clone());
                    let key = AwsCredential { key_id: key.clone(), secret_key: secret.0.clone(), token };
                    builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(key)));
                }
                builder.build().map(|client| Arc::new(client) as _)
            }
            Provider::Gs => {
                let mut builder = GoogleCloudStorageBuilder::from_env()
                    .with_client_options(client(&options.endpoint))
                    .with_retry(retry)
                    .with_http_connector(clock.clone())
                    .with_bucket_name(&options.bucket);
                if let Some(endpoint) = &options.endpoint {
                    builder = builder.with_base_url(endpoint);
                }
                if let Some(path) = &options.credentials {
                    builder = builder.with_service_account_path(path.to_string_lossy());
                }
                builder.build().map(|client| Arc::new(client) as _)
            }
        };
        let place = format!("{}://{}", options.provider.scheme(), options.bucket);
        // The text of the driver can contain a key from a file.
        let client = built.map_err(|_| format!("invalid options for {place}; check endpoint and credentials"))?;
        let prefix = if options.prefix.is_empty() { "tenure" } else { &options.prefix }.to_owned();
        let bucket = &options.bucket;
        let marks = [format!("/{bucket}/{prefix}/"), format!("/{bucket}?"), format!("//{bucket}.")];
        Ok(Self { client, provider: options.provider, place, prefix, clock, marks })
    }

    fn path(&self, path: &str) -> Path {
        Path::parse(format!("{}/{path}", self.prefix)).unwrap_or_default()
    }

    /// Returns the result of a request; `None` after an answer that is no error.
    fn unless<T>(&self, is_no_error: fn(&Answer) -> bool, result: Result<T, Error>) -> Result<Option<T>, StoreError> {
        let Err(error) = result else { return Ok(result.ok()) };
        if is_no_error(&Answer::of(&error, &self.marks)) { Ok(None) } else { Err(self.failed(&error)) }
    }

    fn failed(&self, error: &Error) -> StoreError {
        Answer::of(error, &self.marks).into_error(&self.place, error)
    }

    /// Returns the version of an object: its ETag, or its generation on Google Cloud Storage. A content hash as the ETag
    /// is enough, because every body has a nonce.
    fn version(&self, e_tag: Option<String>, generation: Option<String>) -> Result<String, StoreError> {
        let version = if self.provider == Provider::Gs { generation } else { e_tag };
        let missing = || StoreError::unknown(format!("{} reports no version of its objects", self.place));
        version.ok_or_else(missing)
    }

    fn is_valid(&self, version: &str) -> bool {
        let is_gs = self.provider == Provider::Gs;
        if is_gs { version.parse::<u64>().is_ok() } else { !version.is_empty() && is_visible(version) }
    }

    /// Returns a version that no object has.
    pub(crate) fn impossible_version(&self) -> &'static str {
        if self.provider == Provider::Gs { "1" } else { "\"00000000000000000000000000000000\"" }
    }
}

impl Objects for Bucket {
    async fn get(&self, path: &str) -> Result<Option<Object>, StoreError> {
        let found = self.client.get(&self.path(path)).await;
        let Some(mut found) = self.unless(Answer::is_absent, found)? else { return Ok(None) };
        let version = self.version(found.meta.e_tag.take(), found.meta.version.take())?;
        let written = found.meta.last_modified.timestamp();
        let bytes = found.bytes().await.map_err(|error| self.failed(&error))?;
        Ok(Some(Object { text: String::from_utf8_lossy(&bytes).into_owned(), version, written }))
    }

    async fn put(&self, path: &str, text: &str, on: Condition<'_>) -> Result<Option<String>, StoreError> {
        let mode = match on {
            Condition::Absent => PutMode::Create,
            Condition::None => PutMode::Overwrite,
            // A version that no object can have is not sent.
            Condition::Version(version) if !self.is_valid(version) => return Ok(None),
            Condition::Version(version) => {
                let mark = Some(version.to_owned());
                PutMode::Update(UpdateVersion { e_tag: mark.clone(), version: mark })
            }
        };
        let put = self.client.put_opts(&self.path(path), text.to_owned().into(), mode.into()).await;
        let Some(put) = self.unless(Answer::is_lost, put)? else { return Ok(None) };
        let written = self.version(put.e_tag, put.version)?;
        // The driver follows redirects, and some of them turn a write into a read. Only a write of the same body keeps the
        // version.
        let is_unchanged = matches!(on, Condition::Version(before) if before == written);
        if is_unchanged && self.get(path).await.ok().flatten().is_none_or(|object| object.text != text) {
            let message = format!("{} has not written; check the endpoint for redirects", self.place);
            return Err(StoreError::unknown(message));
        }
        Ok(Some(written))
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.unless(Answer::is_absent, self.client.delete(&self.path(path)).await).map(drop)
    }

    /// Lists a thousand objects with each request.
    async fn list(&self, folder: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let folder = self.path(folder);
        let found: Vec<_> = self.client.list(Some(&folder)).try_collect().await.map_err(|error| self.failed(&error))?;
        Ok(found.iter().filter_map(|meta| Some((meta.location.filename()?.to_owned(), meta.size))).collect())
    }

    fn now(&self) -> i64 {
        self.clock.now()
    }
}

/// How many idle connections a process keeps.
const CONNECTIONS: usize = 4;
