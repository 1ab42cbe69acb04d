//! Encryption, as libpq's `sslmode` says.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use tenure_core::StoreError;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::options::{PostgresOptions, SslMode};

/// What to encrypt with; `None`: not at all.
pub(crate) fn connector(options: &PostgresOptions) -> Result<Option<MakeRustlsConnect>, StoreError> {
    let mode = options.sslmode.unwrap_or_default();
    if mode == SslMode::Disable {
        return Ok(None);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let bad = |error: TlsError| StoreError::denied("TLS cannot be set up").because(error);
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(bad)?;
    let builder = match checks(mode, options.sslrootcert.is_some()) {
        Checks::Host => builder.with_root_certificates(roots(options.sslrootcert.as_deref())?),
        checks => {
            let web_pki = match checks {
                Checks::Nothing => None,
                _ => {
                    let roots = Arc::new(roots(options.sslrootcert.as_deref())?);
                    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                    Some(verifier.map_err(|error| StoreError::denied("TLS cannot be set up").because(error))?)
                }
            };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyHost { web_pki, provider }))
        }
    };
    let config = match (&options.sslcert, &options.sslkey) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
            builder.with_client_auth_cert(certificates(cert)?, key).map_err(bad)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err(StoreError::denied("sslcert and sslkey go together: give both or neither")),
    };
    Ok(Some(MakeRustlsConnect::new(config)))
}

enum Checks {
    Nothing,
    /// Who has signed the certificate, not whom it is for.
    Signer,
    Host,
}

/// As libpq does: `require` checks only if it was told by what.
fn checks(mode: SslMode, has_roots: bool) -> Checks {
    match mode {
        SslMode::VerifyFull => Checks::Host,
        SslMode::VerifyCa => Checks::Signer,
        SslMode::Require if has_roots => Checks::Signer,
        SslMode::Require | SslMode::Prefer | SslMode::Allow | SslMode::Disable => Checks::Nothing,
    }
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match file.filter(|file| *file != Path::new("system")) {
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
        return Err(StoreError::denied(
            "this system has no certificates to trust: name a file with some (sslrootcert=FILE)",
        ));
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

/// Does not mind whom a certificate is for, nor, without roots, who has signed it.
#[derive(Debug)]
struct AnyHost {
    web_pki: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(web_pki) = &self.web_pki else { return Ok(ServerCertVerified::assertion()) };
        match web_pki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
