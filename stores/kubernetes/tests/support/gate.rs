//! A gate before an API server that speaks TLS for those who do not, so that what goes through can be
//! seen: what was asked can be counted, and a fault proxy before it can tell one message from another.

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

/// A gate. Ends with this, and what goes through it.
pub(crate) struct Gate {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    /// Whether answers to watches are held back.
    mute: watch::Sender<bool>,
    /// What watches are told that the server has not said.
    says: Arc<watch::Sender<String>>,
    /// What every watch is told as soon as it begins.
    greets: Arc<watch::Sender<String>>,
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
        let (asked, mute) = (Arc::<Mutex<Vec<String>>>::default(), watch::Sender::new(false));
        let (server, log, muted) = (server.address(), asked.clone(), mute.subscribe());
        let says = Arc::new(watch::Sender::new(String::new()));
        let said = says.clone();
        let greets = Arc::new(watch::Sender::new(String::new()));
        let greeted = greets.subscribe();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(pass(
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
        Self { address, asked, mute, says, greets, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was asked so far: method and path.
    pub(crate) fn asked(&self) -> MutexGuard<'_, Vec<String>> {
        self.asked.lock().unwrap()
    }

    /// How often something like this was asked.
    pub(crate) fn count(&self, method: &str, part: &str) -> usize {
        self.asked().iter().filter(|line| line.starts_with(method) && line.contains(part)).count()
    }

    /// Holds back what is said to watches from now on, without a word.
    pub(crate) fn mute(&self, mute: bool) {
        self.mute.send_replace(mute);
    }

    /// Says something to all watches as if the server had: one line, in a piece of its own.
    pub(crate) fn say_to_watches(&self, line: &str) {
        self.says.send_replace(piece(line));
    }

    /// Says something to every watch that begins from now on; nothing if it is empty.
    pub(crate) fn greet_watches(&self, line: &str) {
        self.greets.send_replace(if line.is_empty() { String::new() } else { piece(line) });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A line in a piece of its own.
fn piece(line: &str) -> String {
    format!("{:x}\r\n{line}\n\r\n", line.len() + 1)
}

async fn pass(
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
            let mut piece = tokio::select! {
                read = from_server.read(&mut buffer) => match read {
                    Ok(count @ 1..) => buffer[..count].to_vec(),
                    _ => return,
                },
                Ok(()) = said.changed() => match *watches.borrow() {
                    true => said.borrow().clone().into_bytes(),
                    false => continue,
                },
            };
            if *watches.borrow() && piece.starts_with(b"HTTP/1.1 200") {
                piece.extend_from_slice(greeted.borrow().as_bytes());
            }
            if *watches.borrow() {
                let _ = muted.wait_for(|muted| !muted).await;
            }
            if to_client.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
