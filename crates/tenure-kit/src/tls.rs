//! Certificates and keys, read from PEM files. Errors are in one line and name the file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// The text of a file with certificates, and the certificates in it.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The file as it is, in PEM.
    pub pem: Vec<u8>,
    /// What is in it: at least one.
    pub found: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or has no certificate in it.
    pub fn read(file: &Path) -> Result<Self, String> {
        let pem = read(file)?;
        let found: Vec<_> =
            CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|error| unreadable(file, &error))?;
        if found.is_empty() {
            return Err(format!("{} has no certificate in it", file.display()));
        }
        Ok(Self { pem, found })
    }
}

/// Our own certificate and its key. The key is never printed.
pub struct Identity {
    /// The certificate, and those that lead to a trusted one.
    pub certificates: Certificates,
    /// The key.
    pub key: PrivateKeyDer<'static>,
    /// The file with the key as it is, in PEM.
    pub key_pem: Vec<u8>,
}

impl Identity {
    /// Reads two files, or none.
    ///
    /// # Errors
    /// If one of them cannot be read, or is not what it should be; [`NEEDS_KEY`] if only one is named.
    pub fn read(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Self>, String> {
        let (certificate, key) = match (certificate, key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => return Ok(None),
            _ => return Err(NEEDS_KEY.to_owned()),
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

/// For options where only one of the two is named.
pub const NEEDS_KEY: &str = "a client certificate needs its key, and a key its certificate (?cert=FILE&key=FILE)";

/// The certificates to trust: those in a file, or those of this system. `option` is how a file is named, for an error.
///
/// # Errors
/// If the file cannot be read or has no certificate in it, or the system trusts none.
pub fn roots(file: Option<&Path>, option: &str) -> Result<RootCertStore, String> {
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
        return Err(format!("this system has no certificates to trust: name a file with some ({option})"));
    }
    Ok(roots)
}

/// Begins a configuration. The provider of cryptography is ours, so an application need not install one.
///
/// # Errors
/// If the provider knows no protocol that is safe, which would be a bug of it.
pub fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| cannot(&error))
}

/// Ends a configuration, with or without a certificate of our own.
///
/// # Errors
/// If the key is not that of the certificate.
pub fn finish(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<Identity>,
) -> Result<ClientConfig, String> {
    match identity {
        Some(own) => builder.with_client_auth_cert(own.certificates.found, own.key).map_err(|error| cannot(&error)),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// The provider of cryptography that all stores use.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Says that TLS cannot be set up.
pub fn cannot(error: &dyn std::error::Error) -> String {
    format!("TLS cannot be set up: {error}")
}

/// Reads a file of any kind.
///
/// # Errors
/// If it cannot be read.
pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
}

fn unreadable(file: &Path, error: &dyn std::error::Error) -> String {
    format!("{} cannot be read as PEM: {error}", file.display())
}
