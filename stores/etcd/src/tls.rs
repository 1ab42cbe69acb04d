//! Encryption.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tenure_core::StoreError;
use tokio_rustls::TlsConnector;

use crate::options::EtcdOptions;

/// What to encrypt with; `None`: not at all.
pub(crate) fn connector(options: &EtcdOptions) -> Result<Option<TlsConnector>, StoreError> {
    if !options.tls {
        return Ok(None);
    }
    let bad = |error: rustls::Error| StoreError::denied("TLS cannot be set up").because(error);
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_root_certificates(roots(options.ca.as_deref())?);
    let config = match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
            builder.with_client_auth_cert(certificates(cert)?, key).map_err(bad)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Some(with(config)))
}

/// The same with a configuration of the user's own.
pub(crate) fn with(mut config: ClientConfig) -> TlsConnector {
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| unreadable(file, error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(StoreError::denied("this system has no certificates to trust: name a file with some (?ca=FILE)"));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let found = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(file, error))?;
    if found.is_empty() {
        return Err(StoreError::denied(format!("{} has no certificate in it", file.display())));
    }
    Ok(found)
}

fn unreadable(file: &Path, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::denied(format!("{} cannot be read as PEM: {error}", file.display()))
}
