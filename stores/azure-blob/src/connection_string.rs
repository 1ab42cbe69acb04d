//! Connection strings of a storage account: `AccountName=…;AccountKey=…`, as the Azure portal shows them.

use tenure_core::ConfigError;
use tenure_kit::did_you_mean;

use crate::options::{AzureBlobOptions, Secret};

/// Parses a connection string into options. Does not change options that are given.
pub(crate) fn parse(text: &str, into: &mut AzureBlobOptions) -> Result<(), ConfigError> {
    let (mut account, mut key, mut sas, mut endpoint) = (None, None, None, None);
    let (mut protocol, mut suffix) = ("https", "core.windows.net");
    for pair in text.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
        let wrong = "connection_string must be name=value pairs, separated by semicolons; copy it again";
        let (name, value) = pair.split_once('=').ok_or(wrong)?;
        match name.to_ascii_lowercase().as_str() {
            "usedevelopmentstorage" if value.eq_ignore_ascii_case("true") => {
                (account, key) = (Some(EMULATOR_ACCOUNT), Some(EMULATOR_KEY));
                endpoint = Some(format!("http://127.0.0.1:10000/{EMULATOR_ACCOUNT}"));
            }
            "accountname" => account = Some(value),
            "accountkey" => key = Some(value),
            "sharedaccesssignature" => sas = Some(value),
            "blobendpoint" => endpoint = Some(value.trim_end_matches('/').to_owned()),
            "defaultendpointsprotocol" => protocol = value,
            "endpointsuffix" => suffix = value,
            // Of other services, and of the emulator on another machine, which BlobEndpoint also names.
            "queueendpoint" | "tableendpoint" | "fileendpoint" | "developmentstorageproxyuri" => {}
            _ if name.to_ascii_lowercase().ends_with("secondaryendpoint") => {}
            _ => {
                let advice = match did_you_mean(name, NAMES).as_slice() {
                    [] => format!("the names are {}", NAMES.join(", ")),
                    near => format!("did you mean {}?", near.join(" or ")),
                };
                return Err(format!("unknown name {name:?} in connection_string; {advice}").into());
            }
        }
    }
    let host = endpoint.as_deref().and_then(|url| url.split("//").nth(1)?.split_once(".blob.")).map(|(name, _)| name);
    if !into.account.is_empty() && account.or(host).is_some_and(|account| account != into.account) {
        let advice = "write azblob:///CONTAINER to use its account";
        return Err(format!("connection_string is for another storage account than the URL; {advice}").into());
    }
    if into.account.is_empty() {
        let host = endpoint.as_deref().and_then(|url| url.split("//").nth(1)?.split('.').next());
        into.account = account.or(host).unwrap_or_default().to_owned();
    }
    if into.endpoint.is_none() {
        into.endpoint = Some(endpoint.unwrap_or_else(|| format!("{protocol}://{}.blob.{suffix}", into.account)));
    }
    if into.account_key.is_none() && into.sas_token.is_none() {
        // A connection string with a signature can also name the account.
        into.sas_token = sas.map(Secret::from);
        into.account_key = key.filter(|_| sas.is_none()).map(Secret::from);
    }
    Ok(())
}

const NAMES: &[&str] = &["AccountName", "AccountKey", "SharedAccessSignature", "BlobEndpoint", "EndpointSuffix"];

/// The account of every emulator. Its key is public, and protects nothing.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> AzureBlobOptions {
        let mut options = AzureBlobOptions::default();
        parse(text, &mut options).unwrap();
        options
    }

    #[test]
    fn the_strings_of_the_portal_are_parsed() {
        let key = parsed(
            "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5PQ==;EndpointSuffix=core.windows.net",
        );
        assert_eq!(key.endpoint.as_deref(), Some("https://acc.blob.core.windows.net"));
        assert_eq!((key.account.as_str(), key.account_key), ("acc", Some("a2V5PQ==".into())));
        let sas = parsed(
            "BlobEndpoint=https://acc.blob.core.windows.net/;QueueEndpoint=https://acc.queue.core.windows.net/;\
             SharedAccessSignature=sv=2022-11-02&ss=b&sig=x%3D",
        );
        assert_eq!(sas.endpoint.as_deref(), Some("https://acc.blob.core.windows.net"));
        assert_eq!((sas.account.as_str(), sas.account_key), ("acc", None));
        assert_eq!(sas.sas_token, Some("sv=2022-11-02&ss=b&sig=x%3D".into()));
        let custom = parsed("BlobEndpoint=https://blobs.example/;AccountName=acc;SharedAccessSignature=sig=x");
        assert_eq!(custom.endpoint.as_deref(), Some("https://blobs.example"));
        let emulator = parsed("UseDevelopmentStorage=true");
        assert_eq!((emulator.account.as_str(), emulator.account_key), (EMULATOR_ACCOUNT, Some(EMULATOR_KEY.into())));
    }

    #[test]
    fn a_string_for_another_account_than_the_url_is_refused() {
        for text in [
            "AccountName=other;AccountKey=a2V5PQ==",
            "BlobEndpoint=https://other.blob.core.windows.net/;SharedAccessSignature=sig=x",
            "UseDevelopmentStorage=true",
        ] {
            let mut options = AzureBlobOptions { account: "acc".to_owned(), ..AzureBlobOptions::default() };
            let error = parse(text, &mut options).unwrap_err().to_string();
            assert!(error.contains("is for another storage account"), "{text}: {error}");
        }
        let mut options = AzureBlobOptions { account: "acc".to_owned(), ..AzureBlobOptions::default() };
        parse("BlobEndpoint=https://blobs.example;SharedAccessSignature=sig=x", &mut options).unwrap();
        assert_eq!((options.account.as_str(), options.endpoint.as_deref()), ("acc", Some("https://blobs.example")));
    }
}
