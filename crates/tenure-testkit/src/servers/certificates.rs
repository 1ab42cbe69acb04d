//! Certificates for servers on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A new certificate authority, and a certificate by it for `localhost` and 127.0.0.1 that is valid for two days.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The path of the authority's certificate.
    pub ca: PathBuf,
    /// The path of the certificate that the server presents.
    pub cert: PathBuf,
    /// The path of the server's private key, which only its owner can read.
    pub key: PathBuf,
}

impl Certificates {
    /// Creates the certificates in this folder, with `openssl`.
    ///
    /// # Panics
    /// If `openssl` is not installed.
    pub fn make(folder: &Path) -> Self {
        let [ca, ca_key, cert, key, request, names] =
            ["ca.pem", "ca.key", "server.pem", "server.key", "server.csr", "names"].map(|name| folder.join(name));
        std::fs::write(&names, "subjectAltName=DNS:localhost,IP:127.0.0.1\n").expect("a writable folder");
        let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        openssl(
            Command::new("openssl")
                .args(new)
                .args(["-x509", "-days", "2", "-subj", "/CN=an authority"])
                .arg("-keyout")
                .arg(&ca_key)
                .arg("-out")
                .arg(&ca),
        );
        openssl(
            Command::new("openssl")
                .args(new)
                .args(["-subj", "/CN=localhost"])
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&request),
        );
        openssl(
            Command::new("openssl")
                .args(["x509", "-req", "-days", "2", "-CAcreateserial"])
                .arg("-CA")
                .arg(&ca)
                .arg("-CAkey")
                .arg(&ca_key)
                .arg("-extfile")
                .arg(&names)
                .arg("-in")
                .arg(&request)
                .arg("-out")
                .arg(&cert),
        );
        #[cfg(unix)]
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("a file of this process");
        Self { ca, cert, key }
    }
}

fn openssl(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run openssl: {error}; run scripts/servers"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
