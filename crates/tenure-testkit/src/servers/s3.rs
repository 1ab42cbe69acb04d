//! A stand-in for S3, whose conditional writes are atomic: `ministack`, a program from PyPI.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::launch::in_cache;
use super::{Folder, Launch, Process, free_port};

/// A server with the interface of S3 on this machine, with the bucket `jobs`. Dropping it ends the server.
#[derive(Debug)]
pub struct S3 {
    /// The process of the server, which a test can signal.
    pub process: Process,
    folder: Folder,
    port: u16,
}

/// The configuration of an S3 server, to start it with.
#[derive(Clone, Debug, Default)]
pub struct S3Setup {
    has_users: bool,
    clock: Option<String>,
}

impl S3Setup {
    /// Creates a configuration without users: every request is permitted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks signatures, and permits only what users may do. See [`S3::add_user`].
    #[must_use]
    pub fn with_users(mut self) -> Self {
        self.has_users = true;
        self
    }

    /// Moves the clock of the server, by an offset such as `-1h`. Needs `scripts/servers faketime`.
    #[must_use]
    pub fn clock(mut self, offset: &str) -> Self {
        self.clock = Some(offset.to_owned());
        self
    }

    /// Starts the server, waits until it answers, and creates the bucket.
    ///
    /// # Panics
    /// If the server is not installed, or does not start.
    pub fn start(&self) -> S3 {
        let folder = Folder::in_memory("s3");
        let log = folder.path().join("log");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let mut process = Process::spawn(self.launch(&folder, port), &log);
            match process.try_wait_until(&mut || is_ready(port)) {
                Ok(()) => {
                    let server = S3 { process, folder, port };
                    server.create_bucket();
                    return server;
                }
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("ministack {why}\n{}", process.output()),
            }
        }
    }

    fn launch(&self, folder: &Folder, port: u16) -> Launch {
        let program = in_cache("ministack/bin/ministack").unwrap_or_else(|| "ministack".into());
        let mut launch = Launch::new(program, "s3")
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("SERVICES", "s3,iam")
            .env("TMPDIR", folder.path())
            .env("S3_PERSIST", "1")
            .env("S3_DATA_DIR", folder.path().join("data"));
        // The root user, whose signature the server does not check.
        launch = launch.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        if self.has_users {
            launch = launch.env("AUTH", "true");
        }
        if let Some(offset) = &self.clock {
            launch = launch
                .env("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
                .env("FAKETIME", offset)
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        launch
    }
}

impl S3 {
    /// Starts a server that permits every request.
    pub fn start() -> Self {
        S3Setup::new().start()
    }

    /// Returns the address of the server, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of a store in the bucket, through this address, with the key of the root user.
    pub fn url_at(address: &str) -> String {
        format!("s3://jobs?endpoint=http://{address}&region=us-east-1&access_key_id=test&secret_access_key=test")
    }

    /// Returns the URL of a store in the bucket, with the key of the root user.
    pub fn url(&self) -> String {
        Self::url_at(&self.address())
    }

    /// Adds a user that may do everything with objects, and returns its access key and the secret of the key.
    ///
    /// # Panics
    /// If the server does not answer as expected.
    pub fn add_user(&self, name: &str) -> (String, String) {
        self.iam(&format!("Action=CreateUser&UserName={name}"));
        let policy = "%7B%22Version%22:%222012-10-17%22,%22Statement%22:%5B%7B%22Effect%22:%22Allow%22,%22Action%22:%22s3:*\
                      %22,%22Resource%22:%22*%22%7D%5D%7D";
        self.iam(&format!("Action=PutUserPolicy&UserName={name}&PolicyName=all&PolicyDocument={policy}"));
        let key = self.iam(&format!("Action=CreateAccessKey&UserName={name}"));
        let element = |name: &str| {
            let content = key.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once('<'));
            content.unwrap_or_else(|| panic!("no {name} in {key}")).0.to_owned()
        };
        (element("AccessKeyId"), element("SecretAccessKey"))
    }

    /// Turns an access key off, or on again.
    pub fn turn_key(&self, name: &str, key: &str, is_on: bool) {
        let status = if is_on { "Active" } else { "Inactive" };
        self.iam(&format!("Action=UpdateAccessKey&UserName={name}&AccessKeyId={key}&Status={status}"));
    }

    /// Makes a request as the root user, and returns the status and the body of the response.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, "s3", body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn iam(&self, action: &str) -> String {
        let (status, body) =
            self.try_ask("POST", "/", "iam", &format!("{action}&Version=2010-05-08")).expect("an answer");
        assert_eq!(status, 200, "{action}: {body}");
        body
    }

    fn try_ask(&self, method: &str, path: &str, service: &str, body: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let (address, length) = (self.address(), body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nx-amz-date: 20260101T000000Z\r\n\
             x-amz-content-sha256: UNSIGNED-PAYLOAD\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=test/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host;x-amz-date, Signature=00\r\n\
             \r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
    }

    fn create_bucket(&self) {
        let (status, body) = self.ask("PUT", "/jobs", "");
        assert!([200, 409].contains(&status), "cannot create the bucket: {body}");
    }

    /// Pauses the server (SIGSTOP): its connections stay open, but it does not answer.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes the server (SIGCONT) after [`S3::pause`].
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the server (SIGKILL) and starts it again on the same port, with its objects. It forgets its users.
    pub fn restart(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("it answers", || is_ready(port));
    }

    /// Kills the server and starts it again on the same port with an empty bucket.
    ///
    /// # Panics
    /// If its objects cannot be removed, or it does not start.
    pub fn restart_empty(&mut self) {
        self.process.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("a folder of this process");
        self.restart();
        self.create_bucket();
    }
}

fn is_ready(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /_ministack/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        io::Result::Ok(answer.ends_with(b"200"))
    };
    ask().unwrap_or(false)
}
