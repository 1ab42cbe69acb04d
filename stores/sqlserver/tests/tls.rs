//! Encrypted connections, as `encrypt` says: TLS before everything (`strict`), or within the first messages (`mandatory`).

mod common;
mod peer;

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{bid, read_error, runtime, seat, seats_at};
use peer::Peer;
use peer::wire::{ANSWER, PRELOGIN, REQUIRED, prelogin, read_message, write_message};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tenure_core::{Fault, Swap};

#[test]
fn connections_are_encrypted_and_certificates_verified() {
    let (peer, folder) = (Peer::start(), Folder::new());
    for (encrypt, is_strict) in [("mandatory", false), ("strict", true)] {
        let port = terminator(&folder, peer.address(), is_strict);
        let url = |host: &str, more: &str| format!("sqlserver://app:right@{host}:{port}/app?encrypt={encrypt}{more}");
        let ca = format!("&ca={}", folder.file("server.crt").display());
        for right in [
            url("localhost", &ca),
            url("127.0.0.1", &format!("{ca}&host_name_in_certificate=localhost")),
            url("127.0.0.1", "&trust_server_certificate=true"),
        ] {
            let won = runtime().block_on(async {
                let name = format!("{:016x}", rand::random::<u64>());
                bid(&seats_at(&right), &seat(&name)).await
            });
            assert!(matches!(won, Ok(Swap::Done { .. })), "{right}: {won:?}");
        }
        for wrong in [url("127.0.0.1", &ca), url("localhost", "")] {
            let error = read_error(&wrong, Fault::Denied);
            assert!(
                error.contains("cannot establish TLS with") && error.contains(&format!("(encrypt={encrypt})")),
                "{error}"
            );
            assert!(error.contains("or set trust_server_certificate=true"), "{error}");
        }
        let error = read_error(&url("localhost", "&ca=/nowhere.pem"), Fault::Denied);
        assert!(error.contains("ca"), "{error}");
    }
}

/// Starts a server that decrypts, and passes the messages on to the peer. It ends with the test.
fn terminator(folder: &Folder, peer: String, is_strict: bool) -> u16 {
    let certificate = CertificateDer::from_pem_file(folder.file("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.file("server.key")).unwrap();
    // Before TDS 8.0, the handshake is that of TLS 1.2.
    let version = if is_strict { &rustls::version::TLS13 } else { &rustls::version::TLS12 };
    let config = ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    let mut config = config.unwrap();
    config.alpn_protocols = vec![b"tds/8.0".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (config, peer) = (config.clone(), peer.clone());
            std::thread::spawn(move || decrypt(client.unwrap(), &peer, config, is_strict));
        }
    });
    port
}

fn decrypt(mut client: TcpStream, peer: &str, config: Arc<ServerConfig>, is_strict: bool) -> io::Result<()> {
    let mut server = TcpStream::connect(peer)?;
    let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
    if !is_strict {
        read_message(&mut client)?;
        write_message(&mut client, ANSWER, 0, &prelogin(REQUIRED))?;
        while tls.is_handshaking() || tls.wants_write() {
            if tls.wants_write() {
                let mut bytes = Vec::new();
                tls.write_tls(&mut bytes)?;
                write_message(&mut client, PRELOGIN, 0, &bytes)?;
            } else {
                let (_, content) = read_message(&mut client)?;
                let mut content = &content[..];
                while !content.is_empty() {
                    tls.read_tls(&mut content)?;
                    tls.process_new_packets().map_err(io::Error::other)?;
                }
            }
        }
    }
    let mut decrypted = rustls::Stream::new(&mut tls, &mut client);
    loop {
        let (kind, content) = read_message(&mut decrypted)?;
        write_message(&mut server, kind, 0, &content)?;
        let (kind, content) = read_message(&mut server)?;
        write_message(&mut decrypted, kind, 0, &content)?;
        decrypted.flush()?;
    }
}

/// A folder with a certificate for `localhost` that no authority has issued.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sqlserver-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "server.key", "-out", "server.crt"])
            .current_dir(&folder)
            .output();
        assert!(made.unwrap().status.success(), "openssl cannot create a certificate");
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
