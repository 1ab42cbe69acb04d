//! A gate before an API server: it accepts plain HTTP and forwards it over TLS. So tests can count the requests,
//! and a fault proxy before the gate can tell one message from another.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tenure_testkit::servers::Kubernetes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// A gate. Dropping it ends all connections through it.
pub(crate) struct Gate {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    /// Whether answers to watches are held back.
    mute: watch::Sender<bool>,
    /// A line that is sent to all watches as if the server had sent it.
    injected: Arc<watch::Sender<String>>,
    /// A line that every watch receives as soon as it begins.
    first_line: Arc<watch::Sender<String>>,
    task: JoinHandle<()>,
}

impl Gate {
    pub(crate) async fn before(server: &Kubernetes) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&server.certificates().ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, mute) = (Arc::<Mutex<Vec<String>>>::default(), watch::Sender::new(false));
        let (server, log, muted) = (server.address(), requests.clone(), mute.subscribe());
        let injected = Arc::new(watch::Sender::new(String::new()));
        let said = injected.clone();
        let first_line = Arc::new(watch::Sender::new(String::new()));
        let greeted = first_line.subscribe();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(forward(
                    stream,
                    server.clone(),
                    tls.clone(),
                    log.clone(),
                    muted.clone(),
                    said.subscribe(),
                    greeted.clone(),
                ));
            }
        });
        Self { address, requests, mute, injected, first_line, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far: method and path.
    pub(crate) fn requests(&self) -> MutexGuard<'_, Vec<String>> {
        self.requests.lock().unwrap()
    }

    /// Counts the requests with this method and this text in their path.
    pub(crate) fn count(&self, method: &str, part: &str) -> usize {
        self.requests().iter().filter(|line| line.starts_with(method) && line.contains(part)).count()
    }

    /// Holds back everything that the server sends to watches from now on, or stops doing so.
    pub(crate) fn mute(&self, mute: bool) {
        self.mute.send_replace(mute);
    }

    /// Sends a line to all watches as if the server had sent it, in a chunk of its own.
    pub(crate) fn send_to_watches(&self, line: &str) {
        self.injected.send_replace(chunk(line));
    }

    /// Sends a line to every watch that begins from now on; none if it is empty.
    pub(crate) fn begin_watches_with(&self, line: &str) {
        self.first_line.send_replace(if line.is_empty() { String::new() } else { chunk(line) });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Encodes a line as a chunk of its own.
fn chunk(line: &str) -> String {
    format!("{:x}\r\n{line}\n\r\n", line.len() + 1)
}

async fn forward(
    stream: TcpStream,
    server: String,
    tls: TlsConnector,
    log: Arc<Mutex<Vec<String>>>,
    muted: watch::Receiver<bool>,
    said: watch::Receiver<String>,
    greeted: watch::Receiver<String>,
) {
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    let name = ServerName::try_from("localhost").unwrap();
    let Ok(upstream) = tls.connect(name, upstream).await else { return };
    let (mut from_client, mut to_client) = stream.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(upstream);
    let watches = watch::Sender::new(false);
    let up = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            let head = String::from_utf8_lossy(&buffer[..count.min(2000)]).into_owned();
            if let Some((line, _)) = head.split_once(" HTTP/1.1\r\n") {
                watches.send_replace(line.contains("watch=1"));
                log.lock().unwrap().push(line.to_owned());
            }
            if to_server.write_all(&buffer[..count]).await.is_err() || to_server.flush().await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 1 << 16];
        let (mut muted, mut said) = (muted, said);
        loop {
            let mut chunk = tokio::select! {
                read = from_server.read(&mut buffer) => match read {
                    Ok(count @ 1..) => buffer[..count].to_vec(),
                    _ => return,
                },
                Ok(()) = said.changed() => match *watches.borrow() {
                    true => said.borrow().clone().into_bytes(),
                    false => continue,
                },
            };
            if *watches.borrow() && chunk.starts_with(b"HTTP/1.1 200") {
                chunk.extend_from_slice(greeted.borrow().as_bytes());
            }
            if *watches.borrow() {
                let _ = muted.wait_for(|muted| !muted).await;
            }
            if to_client.write_all(&chunk).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
