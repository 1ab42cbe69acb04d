//! TLS: implements the modes of libpq's `sslmode`.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use tenure_core::ConfigError;
use tenure_kit::tls::{self, Identity};

use crate::options::{PostgresOptions, SslMode};

/// Returns the TLS configuration for these options. With `sslmode=disable` it is never used.
pub(crate) fn config(options: &PostgresOptions) -> Result<ClientConfig, ConfigError> {
    let mode = options.sslmode.unwrap_or_default();
    let file = options.sslrootcert.as_deref().filter(|file| *file != Path::new("system"));
    let roots = || tls::roots(file, "sslrootcert=FILE");
    let any_host = |web_pki| Arc::new(AnyHost { web_pki, provider: tls::provider() });
    let builder = tls::builder()?;
    let builder = match (mode, options.sslrootcert.is_some()) {
        (SslMode::VerifyFull, _) => builder.with_root_certificates(roots()?),
        // As in libpq, `require` verifies the issuer of a certificate only if `sslrootcert` is given.
        (SslMode::VerifyCa, _) | (SslMode::Require, true) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots()?), tls::provider()).build();
            let verifier = verifier.map_err(|error| tls::cannot_configure(&error))?;
            builder.dangerous().with_custom_certificate_verifier(any_host(Some(verifier)))
        }
        _ => builder.dangerous().with_custom_certificate_verifier(any_host(None)),
    };
    if mode == SslMode::Disable {
        return tls::finish(builder, None);
    }
    if options.sslcert.is_some() != options.sslkey.is_some() {
        return Err("sslcert and sslkey must be given together; add the missing one, or remove the other".into());
    }
    tls::finish(builder, Identity::read(options.sslcert.as_deref(), options.sslkey.as_deref())?)
}

/// Verifies the issuer of a certificate but not its host name. Without `web_pki`, accepts any certificate.
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
