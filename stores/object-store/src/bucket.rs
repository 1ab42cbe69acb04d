//! The bucket: requests about objects, without retries, and what their answers mean.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AwsCredential, S3ConditionalPut};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
    StaticCredentialProvider, UpdateVersion,
};
use tenure_core::{ConfigError, StoreError, Version};

use crate::clock::ServerClock;
use crate::errors::Answer;
use crate::options::{BucketOptions, Provider, Secret};

/// A bucket. Clones share its connections.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    client: Arc<dyn ObjectStore>,
    provider: Provider,
    /// The bucket as users name it, for messages.
    pub(crate) place: String,
    pub(crate) prefix: String,
    pub(crate) clock: ServerClock,
}

/// An object as it was read.
pub(crate) struct Object {
    pub(crate) text: String,
    pub(crate) version: Version,
    /// When the object was last written, in seconds of the server's clock.
    pub(crate) written: i64,
}

/// The condition of a write, which the server checks and writes in one step.
pub(crate) enum Condition<'a> {
    Absent,
    Version(&'a Version),
    None,
}

impl Bucket {
    /// Creates the client, without connecting.
    pub(crate) fn new(options: &BucketOptions) -> Result<Self, ConfigError> {
        let clock = ServerClock::default();
        let is_plain = match &options.endpoint {
            Some(url) => url.starts_with("http://"),
            None => std::env::var("AWS_ALLOW_HTTP").is_ok_and(|allow| allow == "true"),
        };
        // The engine has its own time-outs. These end what no call waits for any more.
        let client = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_connect_timeout(Duration::from_secs(5))
            .with_timeout(Duration::from_secs(30))
            .with_pool_max_idle_per_host(CONNECTIONS);
        // A retry would hide when a write was sent, and report an own win as a loss.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let built: Result<Arc<dyn ObjectStore>, Error> = match options.provider {
            Provider::S3 => {
                let mut builder = AmazonS3Builder::from_env()
                    .with_client_options(client)
                    .with_retry(retry)
                    .with_http_connector(clock.clone())
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .with_disable_bulk_delete(true)
                    .with_bucket_name(&options.bucket);
                if options.anonymous {
                    builder = builder.with_skip_signature(true).with_credentials(key_of("", "", None));
                }
                if let Some(region) = &options.region {
                    builder = builder.with_region(region);
                }
                if let Some(endpoint) = &options.endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                if let (Some(key), Some(secret)) = (&options.access_key_id, &options.secret_access_key) {
                    // A session token in the environment belongs to the key in the environment: it is not used.
                    builder = builder.with_credentials(key_of(key, &secret.0, options.session_token.as_ref()));
                }
                builder.build().map(|client| Arc::new(client) as _)
            }
            Provider::Gs => {
                let mut builder = GoogleCloudStorageBuilder::from_env()
                    .with_client_options(client)
                    .with_retry(retry)
                    .with_http_connector(clock.clone())
                    .with_bucket_name(&options.bucket);
                if options.anonymous {
                    // Without a credential of its own, the driver asks the metadata service of the machine for one before
                    // each write, although it does not sign.
                    let nobody = Arc::new(StaticCredentialProvider::new(GcpCredential { bearer: String::new() }));
                    builder = builder.with_skip_signature(true).with_credentials(nobody);
                }
                if let Some(endpoint) = &options.endpoint {
                    builder = builder.with_base_url(endpoint);
                }
                if let Some(path) = &options.credentials {
                    builder = builder.with_application_credentials(path.to_string_lossy());
                }
                builder.build().map(|client| Arc::new(client) as _)
            }
        };
        let place = format!("{}://{}", options.provider.scheme(), options.bucket);
        // The text of the driver can contain a key from a file.
        let client =
            built.map_err(|_| format!("invalid options for {place}; check endpoint, region and credentials"))?;
        Ok(Self { client, provider: options.provider, place, prefix: options.prefix.clone(), clock })
    }

    /// Returns the path of an object below the prefix. Each part has only letters, digits, `%`, `-`, `_` and `~`.
    pub(crate) fn path(&self, parts: &[&str]) -> Path {
        Path::parse(format!("{}/{}", self.prefix, parts.join("/"))).unwrap_or_default()
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Object>, StoreError> {
        let found = match self.client.get(path).await {
            Ok(found) => found,
            Err(error) => {
                let answer = Answer::of(&error);
                return if answer.is_absent() { Ok(None) } else { Err(answer.into_error(&self.place, &error)) };
            }
        };
        let (version, written) = (self.version(&found.meta.e_tag, &found.meta.version)?, &found.meta.last_modified);
        let written = written.timestamp();
        let bytes = found.bytes().await.map_err(|error| Answer::of(&error).into_error(&self.place, &error))?;
        Ok(Some(Object { text: String::from_utf8_lossy(&bytes).into_owned(), version, written }))
    }

    /// Writes an object on a condition, and returns its version; `None` if the condition does not hold.
    pub(crate) async fn put(
        &self,
        path: &Path,
        text: String,
        condition: Condition<'_>,
    ) -> Result<Option<Version>, StoreError> {
        let mode = match condition {
            Condition::Absent => PutMode::Create,
            Condition::None => PutMode::Overwrite,
            // A version that no object can have is not sent.
            Condition::Version(version) if !self.is_valid(version) => return Ok(None),
            Condition::Version(version) => PutMode::Update(UpdateVersion {
                e_tag: Some(version.as_str().to_owned()),
                version: Some(version.as_str().to_owned()),
            }),
        };
        match self.client.put_opts(path, PutPayload::from(text), PutOptions::from(mode)).await {
            Ok(put) => self.version(&put.e_tag, &put.version).map(Some),
            Err(error) => {
                let answer = Answer::of(&error);
                if answer.is_lost() { Ok(None) } else { Err(answer.into_error(&self.place, &error)) }
            }
        }
    }

    /// Deletes an object. It is not an error if there is none.
    pub(crate) async fn delete(&self, path: &Path) -> Result<(), StoreError> {
        match self.client.delete(path).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let answer = Answer::of(&error);
                if answer.is_absent() { Ok(()) } else { Err(answer.into_error(&self.place, &error)) }
            }
        }
    }

    /// Lists the objects below a path, a thousand with each request.
    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<ObjectMeta>, StoreError> {
        let listed = self.client.list(Some(path)).try_collect().await;
        listed.map_err(|error| Answer::of(&error).into_error(&self.place, &error))
    }

    /// Returns the version of an object: its ETag, or its generation on Google Cloud Storage. A content hash as the ETag
    /// is enough, because every body has a nonce.
    fn version(&self, e_tag: &Option<String>, generation: &Option<String>) -> Result<Version, StoreError> {
        let version = if self.provider == Provider::Gs { generation } else { e_tag };
        let missing = || StoreError::unknown(format!("{} reports no version of its objects", self.place));
        version.as_ref().map(|version| Version::new(version.as_str())).ok_or_else(missing)
    }

    fn is_valid(&self, version: &Version) -> bool {
        let text = version.as_str();
        match self.provider {
            Provider::S3 => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()),
            Provider::Gs => text.parse::<u64>().is_ok(),
        }
    }

    /// Returns the text of a version that no object has.
    pub(crate) fn impossible_version(&self) -> Version {
        Version::new(match self.provider {
            Provider::S3 => "\"00000000000000000000000000000000\"",
            Provider::Gs => "1",
        })
    }
}

/// Returns a key that the driver uses as it is, without asking any service for another one.
fn key_of(key: &str, secret: &str, token: Option<&Secret>) -> Arc<StaticCredentialProvider<AwsCredential>> {
    let token = token.map(|token| token.0.clone());
    Arc::new(StaticCredentialProvider::new(AwsCredential {
        key_id: key.to_owned(),
        secret_key: secret.to_owned(),
        token,
    }))
}

/// How many idle connections a process keeps.
const CONNECTIONS: usize = 4;
