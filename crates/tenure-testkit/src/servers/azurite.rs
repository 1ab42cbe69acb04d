//! A stand-in for Azure Blob Storage with its leases: `azurite`, a program from npm.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::launch::in_cache;
use super::{Folder, Launch, Process, free_port};

/// A server with the interface of Azure Blob Storage on this machine, with the account of all emulators. Dropping it ends
/// the server.
#[derive(Debug)]
pub struct Azurite {
    /// The process of the server, which a test can signal.
    pub process: Process,
    folder: Folder,
    port: u16,
}

impl Azurite {
    /// The container of the URLs. A store creates it.
    pub const CONTAINER: &str = "jobs";

    /// Starts a server, and waits until it answers.
    ///
    /// # Panics
    /// If the server is not installed, or does not start.
    pub fn start() -> Self {
        let folder = Folder::in_memory("azurite");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let mut process = Process::spawn(launch(folder.path(), port), &folder.path().join("log"));
            match process.try_wait_until(&mut || is_ready(port)) {
                Ok(()) => return Self { process, folder, port },
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("azurite {why}\n{}", process.output()),
            }
        }
    }

    /// Returns the address of the server, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the connection string of the account, through this address.
    pub fn connection_string(address: &str) -> String {
        format!("AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint=http://{address}/{ACCOUNT};")
    }

    /// Returns the URL of a store in the container, through this address, with the key of the account.
    pub fn url_at(address: &str) -> String {
        let key = KEY.replace('+', "%2B").replace('=', "%3D");
        format!("azblob://{ACCOUNT}/{}?endpoint=http://{address}/{ACCOUNT}&account_key={key}", Self::CONTAINER)
    }

    /// Returns the URL of a store in the container, with the key of the account.
    pub fn url(&self) -> String {
        Self::url_at(&self.address())
    }

    /// Makes a request about a path of the account, such as `/jobs/blob?comp=lease`, as the owner of the account. Returns
    /// the status, and the whole response.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        ask(self.port, method, path, headers, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Changes the lease of a blob of the container, as an operator or another program would. Returns the status.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn lease(&self, blob: &str, action: &str, headers: &[(&str, &str)]) -> u16 {
        let headers = [&[("x-ms-lease-action", action)], headers].concat();
        self.ask("PUT", &format!("/{}/{blob}?comp=lease", Self::CONTAINER), &headers, "").0
    }

    /// Pauses the server (SIGSTOP): its connections stay open, but it does not answer.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes the server (SIGCONT) after [`Azurite::pause`].
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the server (SIGKILL) and starts it again on the same port, with its blobs and leases.
    ///
    /// Unlike the service, the server confirms a write before it is on the disk, and saves every five seconds. So this
    /// waits until everything that was confirmed before the call is saved. It also reads the ends of leases back as text,
    /// and takes all leases for expired. So this turns them into numbers, which it reads as times.
    pub fn restart(&mut self) {
        let (mark, before) = (format!("saved-{:016x}", rand::random::<u64>()), SystemTime::now());
        self.ask("PUT", &format!("/{mark}?restype=container"), &[], "");
        self.ask("PUT", &format!("/{mark}/blob"), &[("x-ms-blob-type", "BlockBlob")], &mark);
        // It saves the blobs and the places of their contents separately.
        let file = |name: &str| self.folder.path().join(name);
        let (blobs, contents) = (file("__azurite_db_blob__.json"), file("__azurite_db_blob_extent__.json"));
        let written = || std::fs::metadata(&contents)?.modified();
        let is_saved = || {
            let has_blob = std::fs::read_to_string(&blobs).is_ok_and(|text| text.matches(&mark).count() > 1);
            has_blob && written().is_ok_and(|written| written > before)
        };
        self.process.wait_until("it has saved its data", is_saved);
        self.process.kill();
        Launch::new("node", "azurite").args(["-e", LEASE_ENDS_AS_NUMBERS]).arg(&blobs).run();
        self.restart_as_it_is();
    }

    /// Kills the server and starts it again on the same port without any data.
    ///
    /// # Panics
    /// If its data cannot be removed, or it does not start.
    pub fn restart_empty(&mut self) {
        self.process.kill();
        for entry in std::fs::read_dir(self.folder.path()).expect("a folder of this process").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("__") {
                let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
                removed.expect("data of this process");
            }
        }
        self.restart_as_it_is();
    }

    fn restart_as_it_is(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("it answers", || is_ready(port));
    }
}

fn launch(folder: &Path, port: u16) -> Launch {
    let program = in_cache("azurite/node_modules/azurite/dist/src/blob/main.js").unwrap_or_default();
    assert!(program.exists(), "azurite is not installed; run scripts/servers azurite");
    Launch::new("node", "azurite")
        .arg(program)
        .args(["--blobHost", "127.0.0.1", "--blobPort"])
        .arg(port.to_string())
        .arg("--location")
        .arg(folder)
        .args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"])
}

fn is_ready(port: u16) -> bool {
    ask(port, "GET", "/?comp=list&maxresults=1", &[], "").is_ok_and(|(status, _)| status == 200)
}

fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (length, mark) = (body.len(), if path.contains('?') { '&' } else { '?' });
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(
        stream,
        "{method} /{ACCOUNT}{path}{mark}{SIGNATURE} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Length: {length}\r\nx-ms-version: 2022-11-02\r\n{headers}\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, answer))
}

const LEASE_ENDS_AS_NUMBERS: &str = r#"
    const fs = require("fs"), file = process.argv[1];
    const ends = /"(lease(?:Expire|Break)Time)":"([^"]+)"/g;
    const numbers = (_, name, time) => `"${name}":${Date.parse(time)}`;
    fs.writeFileSync(file, fs.readFileSync(file, "utf8").replace(ends, numbers));
"#;

/// The account of every emulator, its public key, and a signature with that key which permits everything until 2099.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const SIGNATURE: &str = "sv=2022-11-02&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00:00:00Z\
                         &sig=7UONs%2FYaET%2FoSyuKlfGYYrSHwkJMD5C6lbWQsyp6QTU%3D";
