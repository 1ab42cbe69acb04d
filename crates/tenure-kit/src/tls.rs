//! Certificates and keys from PEM files. Errors are one line and name the file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tenure_core::ConfigError;

/// A PEM file with certificates: its text, and the certificates in it.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The content of the file, in PEM, for drivers that parse it themselves.
    pub pem: Vec<u8>,
    /// The certificates in the file, at least one.
    pub found: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// Reads a PEM file with certificates.
    ///
    /// # Errors
    /// If the file cannot be read, or contains no certificate.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let pem = read(file)?;
        let found: Vec<_> =
            CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|error| unreadable(file, &error))?;
        if found.is_empty() {
            return Err(format!("{} has no certificate in it", file.display()).into());
        }
        Ok(Self { pem, found })
    }
}

/// A client certificate and its key. The key is never printed.
pub struct Identity {
    /// The certificate, followed by the intermediate ones that lead to a trusted one.
    pub certificates: Certificates,
    /// The private key that belongs to the certificate.
    pub key: PrivateKeyDer<'static>,
    /// The content of the key file, in PEM, for drivers that parse it themselves.
    pub key_pem: Vec<u8>,
}

impl Identity {
    /// Reads a certificate file and a key file. Returns `None` if neither is named.
    ///
    /// # Errors
    /// If a file cannot be read or has the wrong content, or [`NEEDS_KEY`] if only one of the two is named.
    pub fn read(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Self>, ConfigError> {
        let (certificate, key) = match (certificate, key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => return Ok(None),
            _ => return Err(NEEDS_KEY.into()),
        };
        let certificates = Certificates::read(certificate)?;
        let key_pem = read(key)?;
        let found = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => format!("{} has no private key in it", key.display()),
            error => unreadable(key, &error),
        })?;
        Ok(Some(Self { certificates, key: found, key_pem }))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// The error for options that name only one of the two files.
pub const NEEDS_KEY: &str = "a client certificate needs its key, and a key its certificate (?cert=FILE&key=FILE)";

/// Returns the certificates to trust: those in `file`, or those of this system. `option` is how a user names a
/// file, for the error.
///
/// # Errors
/// If the file cannot be read or contains no certificate, or if the system trusts none.
pub fn roots(file: Option<&Path>, option: &str) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in Certificates::read(file)?.found {
                roots.add(certificate).map_err(|error| unreadable(file, &error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(
            format!("this system has no trusted certificates; name a file that contains some ({option})").into()
        );
    }
    Ok(roots)
}

/// Starts a TLS configuration with the crypto provider of the stores, so that an application need not install
/// one.
///
/// # Errors
/// If the provider supports no safe protocol version, which would be a bug in it.
pub fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, ConfigError> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| cannot_configure(&error))
}

/// Completes a TLS configuration, with or without a client certificate.
///
/// # Errors
/// If the key does not belong to the certificate.
pub fn finish(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<Identity>,
) -> Result<ClientConfig, ConfigError> {
    match identity {
        Some(own) => {
            builder.with_client_auth_cert(own.certificates.found, own.key).map_err(|error| cannot_configure(&error))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Returns the crypto provider that all stores use (aws-lc-rs).
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Returns the error that TLS cannot be configured, with its cause in the message.
pub fn cannot_configure(error: &dyn std::error::Error) -> ConfigError {
    format!("cannot configure TLS: {error}").into()
}

/// Reads a file with certificates, a key or any other content.
///
/// # Errors
/// If the file cannot be read. The message names it.
pub fn read(file: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()).into())
}

fn unreadable(file: &Path, error: &dyn std::error::Error) -> String {
    format!("{} cannot be read as PEM: {error}", file.display())
}
