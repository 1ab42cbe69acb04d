//! The options of the store: which bucket, where it is, and the credentials.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
use tenure_kit::options::refuse;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded};

/// Options of a [`BucketStore`](crate::BucketStore): which bucket, where it is, and the credentials.
///
/// Parse them from a URL, read them from a configuration file (serde), or fill in the fields. `Debug` shows no secret.
///
/// ```
/// # use tenure_object_store::BucketOptions;
/// let options = BucketOptions::from_url("s3://my-bucket/leaders?region=eu-west-1")?;
/// assert_eq!((options.bucket.as_str(), options.prefix.as_str()), ("my-bucket", "leaders"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BucketOptions {
    /// The interface of the server, `s3` by default.
    pub provider: Provider,
    /// The name of the bucket, which must exist.
    pub bucket: String,
    /// The beginning of the names of all objects. Default, also if it is empty: `tenure`.
    pub prefix: String,
    /// The region of the bucket. Default: `AWS_REGION` or `AWS_DEFAULT_REGION`, or else `us-east-1`. Only for S3.
    pub region: Option<String>,
    /// The URL of the server, for MinIO, R2 and others. Default: that of the provider. `http://` sends everything, but
    /// not the secret key itself, without encryption.
    pub endpoint: Option<String>,
    /// The access key. Default: the usual variables, files and services of the provider; see the README. Only for S3.
    pub access_key_id: Option<String>,
    /// The secret of the access key. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub secret_access_key: Option<Secret>,
    /// The token of a temporary access key. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub session_token: Option<Secret>,
    /// A JSON file with the key of a service account. Default: as for the access key. Only for Google Cloud Storage.
    pub credentials: Option<PathBuf>,
    /// Whether the store keeps notes: the list of candidates, and requests to the leader. They cost requests, so the
    /// default is no.
    pub notes: bool,
}

/// The interface of an object store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// S3 and the stores that speak its protocol: R2, MinIO, Ceph and others.
    #[default]
    S3,
    /// Google Cloud Storage.
    Gs,
}

impl Provider {
    /// Returns the scheme of its URLs.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gs => "gs",
        }
    }
}

/// The URL schemes that [`BucketOptions::from_url`] accepts.
pub const SCHEMES: &[&str] = &["s3", "gs"];

impl BucketOptions {
    /// Parses a URL of one of the [`SCHEMES`]: `s3://bucket/prefix?region=…&endpoint=…`, or `gs://bucket/prefix`. The
    /// query has the other options by their names.
    ///
    /// # Errors
    /// Returns one line if the URL is invalid. It never shows more of the URL than the name of an option.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse_without_login(url, SCHEMES)?;
        let provider = if url.scheme == "gs" { Provider::Gs } else { Provider::S3 };
        let (bucket, path) = url.place.split_once('/').unwrap_or((url.place, ""));
        // An access key before an @ would be part of the name of the bucket.
        refuse(&[(url.place.contains('@'), "the URL has no user; give the credentials as options or variables")])?;
        let prefix = decoded(path.trim_matches('/'))?;
        let mut options = Self { provider, bucket: decoded(bucket)?, prefix, ..Self::default() };
        let mut given = url.options()?;
        given.take("region", &mut options.region)?.take("endpoint", &mut options.endpoint)?;
        given.take("access_key_id", &mut options.access_key_id)?;
        given.take("secret_access_key", &mut options.secret_access_key)?;
        given.take("session_token", &mut options.session_token)?;
        given.take("credentials", &mut options.credentials)?.take("notes", &mut options.notes)?;
        given.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Rejects options that contradict each other, and options that would have no effect.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_s3 = self.provider == Provider::S3;
        let has = [self.access_key_id.is_some(), self.secret_access_key.is_some(), self.session_token.is_some()];
        let is_half = has[0] != has[1] || has[2] && !has[0];
        let is_letter = |c: char| c.is_ascii_alphanumeric();
        let is_name = |c: char| is_letter(c) || "-_./".contains(c);
        let texts = [&self.access_key_id, &self.region, &self.session_token.clone().map(|token| token.0)];
        let is_odd = |part: &str| ["", ".", ".."].contains(&part);
        // The objects of such a prefix could be taken for seats or notes of a shorter one.
        let is_taken = |part: &str| ["seats", "notes"].contains(&part);
        refuse(&[
            (self.bucket.is_empty(), "the name of the bucket is missing; write s3://BUCKET or gs://BUCKET"),
            (!self.bucket.chars().all(|c| c != '/' && is_name(c)), "a bucket's name has letters, digits, dots, -, _"),
            // In a URL, the name `..` would stand for another bucket.
            (!self.bucket.starts_with(is_letter), "a bucket's name begins with a letter or a digit"),
            (!self.prefix.chars().all(is_name), "prefix must have only ASCII letters, digits, and -_./"),
            (self.prefix.len() > 128, "prefix must have at most 128 characters"),
            (!self.prefix.is_empty() && self.prefix.split('/').any(is_odd), "prefix must have no empty part or dots"),
            (self.prefix.split('/').any(is_taken), "prefix must have no part that is \"seats\" or \"notes\""),
            (
                !self.endpoint.as_deref().is_none_or(is_endpoint),
                "endpoint must be a URL; write endpoint=https://host:port",
            ),
            (
                !texts.into_iter().flatten().all(|text| is_visible(text)),
                "access_key_id, session_token and region must have no spaces and no line breaks; remove them",
            ),
            (is_half, "access_key_id and secret_access_key need each other, and session_token needs both; give them"),
            (!is_s3 && (has[0] || self.region.is_some()), "gs:// takes no region and no access key; use credentials"),
            (is_s3 && self.credentials.is_some(), "credentials are for gs://; use access_key_id and secret_access_key"),
        ])
    }
}

/// Returns whether the driver can use a text in the header of a request. It panics on others.
pub(crate) fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns whether a text is the URL of a server. The driver panics on others.
pub(crate) fn is_endpoint(text: &str) -> bool {
    let is_plain = |url: &url::Url| url.query().is_none() && url.username().is_empty();
    let is_server = |url: url::Url| ["http", "https"].contains(&url.scheme()) && is_plain(&url);
    is_visible(text) && text.parse::<http::Uri>().is_ok() && text.parse().is_ok_and(is_server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_bucket_and_a_prefix() {
        let options = |url: &str| BucketOptions::from_url(url).unwrap();
        let one = options("s3://b/x/y/?region=r&endpoint=http://h:1&access_key_id=a&secret_access_key=s&notes");
        assert_eq!((one.bucket.as_str(), one.prefix.as_str()), ("b", "x/y"));
        assert_eq!((one.region.as_deref(), one.endpoint.as_deref()), (Some("r"), Some("http://h:1")));
        assert_eq!((one.secret_access_key, one.notes), (Some("s".into()), true));
        let plain = options("gs://b");
        assert_eq!((plain.provider, plain.prefix.as_str(), plain.notes), (Provider::Gs, "", false));
    }

    #[test]
    fn errors_about_urls_say_what_is_wrong_and_never_show_a_secret() {
        for (url, expected) in [
            ("s3://", "the name of the bucket is missing"),
            ("s3://key:hunter2@bucket", "the URL has no user"),
            ("s3://b?secret_access_key=hunter2", "need each other"),
            ("s3://b?session_token=hunter2", "session_token needs both"),
            ("s3://b?colour=hunter2", "unknown option \"colour\""),
            ("s3://b?endpoint=hunter2", "endpoint must be a URL"),
            ("s3://b?endpoint=http://", "endpoint must be a URL"),
            ("s3://b?endpoint=http://[", "endpoint must be a URL"),
            ("s3://b?endpoint=http://[x]", "endpoint must be a URL"),
            ("s3://b?endpoint=http://h:99999", "endpoint must be a URL"),
            ("s3://b?endpoint=http://1.2.3.4.5", "endpoint must be a URL"),
            ("s3://b?endpoint=http://h/a%20b", "endpoint must be a URL"),
            ("s3://b?endpoint=http://h/%22%3C", "endpoint must be a URL"),
            ("s3://b?endpoint=http://h%0A", "endpoint must be a URL"),
            ("s3://b?endpoint=http://h%3Fx", "endpoint must be a URL"),
            ("s3://b?endpoint=http://u:hunter2%40h", "endpoint must be a URL"),
            ("s3://b/a//b", "no empty part or dots"),
            ("s3://b/../x", "no empty part or dots"),
            ("s3://b/tenure/seats", "no part that is \"seats\""),
            ("s3://b/a%20b", "prefix must have only"),
            ("s3://b%2Fc", "a bucket's name has letters"),
            ("s3://..", "begins with a letter or a digit"),
            ("s3://./x", "begins with a letter or a digit"),
            ("s3://b?access_key_id=a%0A&secret_access_key=hunter2", "no spaces and no line breaks"),
            ("s3://b?access_key_id=a&secret_access_key=b&session_token=hunter2%0A", "no spaces and no line breaks"),
            ("s3://b?region=a%0Ab", "no spaces and no line breaks"),
            ("gs://b?region=x", "takes no region"),
            ("gs://b?access_key_id=a&secret_access_key=hunter2", "takes no region and no access key"),
            ("s3://b?credentials=/key.json", "credentials are for gs://"),
        ] {
            let error = BucketOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_are_read_from_configuration_and_secrets_are_not_written() {
        let text = "provider = 's3'\nbucket = 'b'\naccess_key_id = 'a'\nsecret_access_key = 'hunter2'";
        let options: BucketOptions = toml::from_str(text).unwrap();
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("secret_access_key"), None, "the secret was serialized");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(toml::from_str::<BucketOptions>("buckt = 'b'").unwrap_err().to_string().contains("unknown field"));
    }
}
