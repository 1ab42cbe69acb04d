//! The options of the store: which container, where it is, and the credentials.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
use tenure_kit::options::{Variables, refuse};
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded};

use crate::connection_string;

/// Options of an [`AzureBlobStore`](crate::AzureBlobStore): which container, where it is, and the credentials.
///
/// Parse them from a URL, read them from a configuration file (serde), or fill in the fields. `Debug` shows no secret.
///
/// ```
/// # use tenure_azure_blob::AzureBlobOptions;
/// let options = AzureBlobOptions::from_url("azblob://myaccount/leaders/jobs")?;
/// assert_eq!((options.account.as_str(), options.container.as_str()), ("myaccount", "leaders"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AzureBlobOptions {
    /// The name of the storage account. Default: that of the connection string, or else `AZURE_STORAGE_ACCOUNT`.
    pub account: String,
    /// The name of the container. The store creates it before its first write, if the credentials permit that.
    pub container: String,
    /// The beginning of the names of all blobs. Default, also if it is empty: `tenure`.
    pub prefix: String,
    /// The URL of the Blob service with the account, for emulators and private clouds. Default: that of the connection
    /// string, or else `https://ACCOUNT.blob.core.windows.net`. `http://` sends everything but the key unencrypted.
    pub endpoint: Option<String>,
    /// A connection string, as the Azure portal shows it, or `UseDevelopmentStorage=true` for the emulator on this machine.
    /// Left out when the options are serialized, like all secrets.
    #[serde(skip_serializing)]
    pub connection_string: Option<Secret>,
    /// A key of the account.
    #[serde(skip_serializing)]
    pub account_key: Option<Secret>,
    /// A shared access signature (SAS) for the container or the account.
    #[serde(skip_serializing)]
    pub sas_token: Option<Secret>,
    /// The tenant of Microsoft Entra ID in which the application is registered. Default: `AZURE_TENANT_ID`.
    pub tenant_id: Option<String>,
    /// The application, or the managed identity that the machine uses. Default: `AZURE_CLIENT_ID`.
    pub client_id: Option<String>,
    /// A secret of the application. Default: `AZURE_CLIENT_SECRET`.
    #[serde(skip_serializing)]
    pub client_secret: Option<Secret>,
    /// The file with the token of a workload identity. Default: `AZURE_FEDERATED_TOKEN_FILE`.
    pub federated_token_file: Option<PathBuf>,
    /// The URL of the service that issues tokens. Default: `AZURE_AUTHORITY_HOST`, or else that of the public cloud.
    pub authority_host: Option<String>,
    /// The URL of the service on the machine that issues tokens of a managed identity. Default: that of virtual machines.
    pub identity_endpoint: Option<String>,
    /// Whether the store keeps notes: the list of candidates, and requests to the leader. They cost requests, so the
    /// default is no.
    pub notes: bool,
}

/// The URL schemes that [`AzureBlobOptions::from_url`] accepts.
pub const SCHEMES: &[&str] = &["azblob"];

impl AzureBlobOptions {
    /// Parses a URL: `azblob://ACCOUNT/CONTAINER/PREFIX`, or `azblob:///CONTAINER/PREFIX` if a connection string names the
    /// account. The query has the other options by their names; percent-encode `&`, `=`, `+` and `;` in their values.
    ///
    /// # Errors
    /// Returns one line if the URL is invalid. It never shows more of the URL than the name of an option.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse_without_login(url, SCHEMES)?;
        refuse(&[(url.place.contains('@'), "the URL has no user; give the credentials as options or variables")])?;
        let (account, path) = url.place.split_once('/').unwrap_or((url.place, ""));
        let (container, prefix) = path.split_once('/').unwrap_or((path, ""));
        let mut options = Self {
            account: decoded(account)?,
            container: decoded(container)?,
            prefix: decoded(prefix.trim_matches('/'))?,
            ..Self::default()
        };
        let mut given = url.options()?;
        given.take("endpoint", &mut options.endpoint)?;
        given.take("connection_string", &mut options.connection_string)?;
        given.take("account_key", &mut options.account_key)?.take("sas_token", &mut options.sas_token)?;
        given.take("tenant_id", &mut options.tenant_id)?.take("client_id", &mut options.client_id)?;
        given.take("client_secret", &mut options.client_secret)?;
        given.take("federated_token_file", &mut options.federated_token_file)?;
        given.take("authority_host", &mut options.authority_host)?;
        given.take("identity_endpoint", &mut options.identity_endpoint)?.take("notes", &mut options.notes)?;
        given.finish()?;
        Ok(options)
    }

    /// Adds what the connection string and the environment say, and checks the result. Options have precedence over the
    /// connection string, and that over the environment.
    pub(crate) fn completed(mut self, variables: &Variables<'_>) -> Result<Self, ConfigError> {
        let secret = |name: &str| variables.get(name).map(Secret);
        if !self.has_credentials() {
            self.connection_string = secret("AZURE_STORAGE_CONNECTION_STRING");
        }
        if let Some(text) = self.connection_string.take() {
            connection_string::parse(&text.0, &mut self)?;
        }
        if !self.has_credentials() {
            (self.account_key, self.sas_token) = (secret("AZURE_STORAGE_KEY"), None);
        }
        if !self.has_credentials() {
            self.sas_token = secret("AZURE_STORAGE_SAS_TOKEN");
        }
        if self.account.is_empty() {
            self.account = variables.get("AZURE_STORAGE_ACCOUNT").unwrap_or_default();
        }
        self.check()?;
        let has_id = |id: &Option<String>, name: &str| id.is_some() || variables.get(name).is_some();
        let has_ids = has_id(&self.tenant_id, "AZURE_TENANT_ID") && has_id(&self.client_id, "AZURE_CLIENT_ID");
        refuse(&[
            (self.client_secret.is_some() && !has_ids, "client_secret needs tenant_id and client_id"),
            (self.federated_token_file.is_some() && !has_ids, "federated_token_file needs tenant_id and client_id"),
        ])?;
        let public = || format!("https://{}.blob.core.windows.net", self.account);
        let endpoint = self.endpoint.take().unwrap_or_else(public);
        self.endpoint = Some(endpoint.trim_end_matches('/').to_owned());
        Ok(self)
    }

    /// Returns whether the options have credentials of their own, so that the environment does not count.
    fn has_credentials(&self) -> bool {
        [&self.connection_string, &self.account_key, &self.sas_token, &self.client_secret].iter().any(|s| s.is_some())
            || self.federated_token_file.is_some()
    }

    /// Rejects options that contradict each other, and names that Azure would reject.
    fn check(&self) -> Result<(), ConfigError> {
        let kinds = [
            self.account_key.is_some(),
            self.sas_token.is_some(),
            self.client_secret.is_some(),
            self.federated_token_file.is_some(),
        ];
        let kinds = kinds.iter().filter(|is_given| **is_given).count();
        let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let (name, is_odd) = (&self.container, |part: &str| ["", ".", ".."].contains(&part));
        let is_container = (3..=63).contains(&name.len())
            && name.chars().all(|c| is_lower(c) || c == '-')
            && !name.starts_with('-')
            && !name.ends_with('-')
            && !name.contains("--");
        let is_prefix = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let is_http = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        let urls = [&self.endpoint, &self.authority_host, &self.identity_endpoint];
        let is_key = |key: &Secret| STANDARD.decode(&key.0).is_ok_and(|key| !key.is_empty());
        let is_sas = |sas: &Secret| sas.0.contains("sig=") && sas.0.bytes().all(|byte| byte.is_ascii_graphic());
        refuse(&[
            (name.is_empty(), "the name of the container is missing; write azblob://ACCOUNT/CONTAINER"),
            (!is_container, "a container's name has 3 to 63 lower-case letters, digits and single hyphens in between"),
            (self.account.is_empty(), "the storage account is missing; write azblob://ACCOUNT/CONTAINER"),
            (!self.account.chars().all(is_lower), "an account's name has only lower-case letters and digits"),
            (!self.prefix.chars().all(is_prefix), "prefix must have only ASCII letters, digits, and -_./"),
            (self.prefix.len() > 128, "prefix must have at most 128 characters"),
            (!self.prefix.is_empty() && self.prefix.split('/').any(is_odd), "prefix must have no empty part or dots"),
            (!urls.into_iter().flatten().all(is_http), "endpoints must be URLs; write endpoint=https://host:port"),
            (kinds > 1, "give only one of account_key, sas_token, client_secret and federated_token_file"),
            (!self.sas_token.iter().all(is_sas), "sas_token must be name=value pairs with sig=; copy it again"),
            (!self.account_key.iter().all(is_key), "account_key must be base64; copy it again, and write + as %2B"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(url: &str, variables: &[(&str, &str)]) -> Result<AzureBlobOptions, ConfigError> {
        let find = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
        AzureBlobOptions::from_url(url)?.completed(&Variables(&find))
    }

    #[test]
    fn urls_name_an_account_a_container_and_a_prefix() {
        let one = completed("azblob://acc/jobs/x/y/?account_key=aGk%3D&notes", &[]).unwrap();
        assert_eq!((one.account.as_str(), one.container.as_str(), one.prefix.as_str()), ("acc", "jobs", "x/y"));
        assert_eq!((one.account_key, one.notes), (Some("aGk=".into()), true));
        assert_eq!(one.endpoint.as_deref(), Some("https://acc.blob.core.windows.net"));
        let emulator = completed("azblob:///jobs?connection_string=UseDevelopmentStorage%3Dtrue", &[]).unwrap();
        assert_eq!(emulator.endpoint.as_deref(), Some("http://127.0.0.1:10000/devstoreaccount1"));
        assert_eq!(emulator.account, "devstoreaccount1");
    }

    #[test]
    fn options_have_precedence_over_the_environment() {
        let variables = [
            ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=other;AccountKey=b3RoZXI=;EndpointSuffix=example"),
            ("AZURE_STORAGE_KEY", "aGV5"),
            ("AZURE_STORAGE_ACCOUNT", "third"),
        ];
        let own = completed("azblob://acc/jobs?sas_token=sig%3Dx", &variables).unwrap();
        assert_eq!((own.account.as_str(), &own.account_key), ("acc", &None));
        let given = completed("azblob:///jobs", &variables).unwrap();
        assert_eq!(given.endpoint.as_deref(), Some("https://other.blob.example"));
        assert_eq!(given.account_key, Some("b3RoZXI=".into()));
        let key = completed("azblob:///jobs", &variables[1..]).unwrap();
        assert_eq!((key.account.as_str(), key.account_key), ("third", Some("aGV5".into())));
    }

    #[test]
    fn errors_about_urls_say_what_is_wrong_and_never_show_a_secret() {
        for (url, expected) in [
            ("azblob://acc", "the name of the container is missing"),
            ("azblob:///jobs", "the storage account is missing"),
            ("azblob://acc/ab", "a container's name has 3 to 63"),
            ("azblob://acc/Jobs", "a container's name has 3 to 63"),
            ("azblob://acc/jobs_1", "a container's name has 3 to 63"),
            ("azblob://acc/-jobs", "a container's name has 3 to 63"),
            ("azblob://acc/jo--bs", "a container's name has 3 to 63"),
            ("azblob://acc/j%2Fobs", "a container's name has 3 to 63"),
            ("azblob://My-Account/jobs", "an account's name has only"),
            ("azblob://acc/jobs/a//b", "no empty part or dots"),
            ("azblob://acc/jobs/a%20b", "prefix must have only"),
            ("azblob://acc:hunter2@h/jobs", "the URL has no user"),
            ("azblob://acc/jobs?colour=hunter2", "unknown option \"colour\""),
            ("azblob://acc/jobs?endpoint=hunter2", "endpoints must be URLs"),
            ("azblob://acc/jobs?account_key=hunter2!", "account_key must be base64"),
            ("azblob://acc/jobs?account_key=aGk%3D&sas_token=hunter2", "give only one of"),
            ("azblob://acc/jobs?account_key=", "account_key must be base64"),
            ("azblob://acc/jobs?sas_token=", "sas_token must be name=value pairs"),
            ("azblob://acc/jobs?sas_token=sig%3Dhunter2%0A", "sas_token must be name=value pairs"),
            ("azblob://acc/jobs?client_secret=hunter2", "client_secret needs tenant_id and client_id"),
            ("azblob://acc/jobs?federated_token_file=hunter2&tenant_id=t", "federated_token_file needs tenant_id"),
            ("azblob:///jobs?connection_string=AccountName%3Dacc;hunter2", "name=value pairs"),
            ("azblob:///jobs?connection_string=AcountKey%3Dhunter2", "unknown name \"AcountKey\""),
        ] {
            let error = completed(url, &[]).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_are_read_from_configuration_and_secrets_are_not_written() {
        let text = "account = 'a'\ncontainer = 'jobs'\naccount_key = 'hunter2'";
        let options: AzureBlobOptions = toml::from_str(text).unwrap();
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("account_key"), None, "the secret was serialized");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(
            toml::from_str::<AzureBlobOptions>("contaner = 'b'").unwrap_err().to_string().contains("unknown field")
        );
    }
}
