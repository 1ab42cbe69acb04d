//! An etcd cluster of one or several members.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Certificates, Folder, Launch, Process, free_port};

/// An etcd cluster on this machine. Dropping it ends its members.
#[derive(Debug)]
pub struct Etcd {
    /// The members of the cluster, in the order of their start.
    pub members: Vec<EtcdMember>,
    certificates: Option<Certificates>,
    /// Declared last, so that the folder is removed after the processes have ended.
    folder: Folder,
}

/// One member of an [`Etcd`] cluster, with a process of its own.
#[derive(Debug)]
pub struct EtcdMember {
    /// The process of this server, which a test can signal.
    pub process: Process,
    port: u16,
    /// The port of its health and metrics, always without TLS.
    metrics: u16,
}

/// A gRPC proxy in front of an etcd cluster, with one connection to the cluster for all its clients.
#[derive(Debug)]
pub struct EtcdProxy {
    /// The process of this server, which a test can signal.
    pub process: Process,
    port: u16,
    /// Declared last, so that the folder is removed after the processes have ended.
    _folder: Folder,
}

/// The configuration of an etcd cluster, to start it with.
#[derive(Clone, Debug)]
pub struct EtcdSetup {
    members: usize,
    tls: Option<bool>,
    arguments: Vec<String>,
}

impl Default for EtcdSetup {
    fn default() -> Self {
        Self::new()
    }
}

impl EtcdSetup {
    /// Creates the default configuration: one member, without TLS.
    pub fn new() -> Self {
        Self { members: 1, tls: None, arguments: Vec::new() }
    }

    /// Sets the number of members of the cluster (default: 1).
    #[must_use]
    pub fn members(self, members: usize) -> Self {
        Self { members, ..self }
    }

    /// Turns TLS on, with a certificate for `localhost` and 127.0.0.1.
    #[must_use]
    pub fn tls(self) -> Self {
        Self { tls: Some(false), ..self }
    }

    /// Turns TLS on, and requires a client certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(self) -> Self {
        Self { tls: Some(true), ..self }
    }

    /// Adds arguments of the `etcd` command line.
    #[must_use]
    pub fn with<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts the cluster, and waits until all members are healthy.
    ///
    /// # Panics
    /// If etcd is not installed, or a member does not start.
    pub fn start(&self) -> Etcd {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_start() {
                Ok(etcd) => return etcd,
                // Another process may have taken a port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("etcd {why}"),
            }
        }
    }

    fn try_start(&self) -> Result<Etcd, String> {
        let folder = Folder::new("etcd");
        let certificates = self.tls.map(|_| Certificates::make(folder.path()));
        let ports: Vec<_> = (0..self.members).map(|_| [free_port(), free_port(), free_port()]).collect();
        let all = ports.iter().enumerate().map(|(number, [_, peer, _])| format!("n{number}=http://127.0.0.1:{peer}"));
        let all = all.collect::<Vec<_>>().join(",");
        let mut members = Vec::new();
        for (number, [port, peer, metrics]) in ports.into_iter().enumerate() {
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            let (client, peer) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
            let mut launch = Launch::new("etcd", "etcd")
                .args(["--name", &format!("n{number}"), "--data-dir"])
                .arg(folder.path().join(format!("n{number}")))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--listen-metrics-urls", &format!("http://127.0.0.1:{metrics}")])
                // The cheapest hash: etcd answers no call while it hashes a password, which takes seconds on a busy
                // machine.
                .args(["--bcrypt-cost", "4"])
                .args(["--initial-cluster", &all, "--initial-cluster-token"])
                // A different one for every cluster, so that members do not join another test's cluster.
                .arg(folder.path())
                .args(&self.arguments);
            if let Some(certificates) = &certificates {
                launch = launch.arg("--cert-file").arg(&certificates.cert).arg("--key-file").arg(&certificates.key);
                if self.tls == Some(true) {
                    launch = launch.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&certificates.ca);
                }
            }
            let process = Process::spawn(launch, &folder.path().join(format!("n{number}.log")));
            members.push(EtcdMember { process, port, metrics });
        }
        for member in &mut members {
            let metrics = member.metrics;
            let ready = member.process.try_wait_until(&mut || is_healthy(metrics));
            ready.map_err(|why| format!("{why}\n{}", member.process.output()))?;
        }
        Ok(Etcd { members, certificates, folder })
    }
}

impl Etcd {
    /// Starts a cluster of one member with the default configuration.
    pub fn start() -> Self {
        EtcdSetup::new().start()
    }

    /// Returns the addresses of all members, as `host:port` separated by commas.
    pub fn addresses(&self) -> String {
        self.members.iter().map(EtcdMember::address).collect::<Vec<_>>().join(",")
    }

    /// Returns the URL of a store on this cluster.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.addresses())
    }

    /// Returns the certificates of the cluster, if TLS is on.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Returns the folder with the data of the cluster.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Starts `etcd grpc-proxy` in front of the cluster, which must serve plain connections.
    ///
    /// # Panics
    /// If it does not start.
    pub fn proxy(&self) -> EtcdProxy {
        let mut tries = 0;
        loop {
            tries += 1;
            let (port, metrics) = (free_port(), free_port());
            let folder = Folder::new("etcd-proxy");
            let launch = Launch::new("etcd", "etcd")
                .args(["grpc-proxy", "start", "--endpoints", &self.addresses()])
                .args(["--listen-addr", &format!("127.0.0.1:{port}")])
                .args(["--metrics-addr", &format!("http://127.0.0.1:{metrics}")])
                .arg("--data-dir")
                .arg(folder.path().join("data"));
            let mut process = Process::spawn(launch, &folder.path().join("log"));
            match process.try_wait_until(&mut || is_healthy(metrics)) {
                Ok(()) => return EtcdProxy { process, port, _folder: folder },
                // Another process may have taken a port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("etcd grpc-proxy {why}\n{}", process.output()),
            }
        }
    }

    /// Runs `etcdctl` against the cluster, and returns its standard output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.addresses()]);
        if let Some(certificates) = &self.certificates {
            command.arg("--cacert").arg(&certificates.ca);
            command.arg("--cert").arg(&certificates.cert).arg("--key").arg(&certificates.key);
        }
        let output = command.args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run etcdctl: {error}; run scripts/servers etcd"));
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {said}\n{complained}");
        said
    }

    /// Returns the number of open client connections of all members. Each member also has one to itself.
    pub fn connections(&self) -> usize {
        self.members.iter().map(|member| super::connections(member.port)).sum()
    }

    /// Kills all members and starts them again on the same ports, as a new cluster without data.
    ///
    /// # Panics
    /// If their data cannot be removed, or they do not start.
    pub fn restart_empty(&mut self) {
        for (number, member) in self.members.iter_mut().enumerate() {
            member.process.kill();
            std::fs::remove_dir_all(self.folder.path().join(format!("n{number}"))).expect("a folder of this process");
        }
        self.members.iter_mut().for_each(|member| member.process.restart());
        for member in &mut self.members {
            let metrics = member.metrics;
            member.process.wait_until("the member is healthy", || is_healthy(metrics));
        }
    }

    /// Returns the index of the member that leads, if there is one.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.metric("etcd_server_is_leader") == Some(1.0))
    }

    /// Returns the sum of a metric over all members. `name` is a prefix of the metric with its labels, such as
    /// `grpc_server_started_total{grpc_method="Txn"`.
    ///
    /// # Panics
    /// If a member does not have this metric, or does not respond: a sum without it could pass for a low one.
    pub fn metric(&self, name: &str) -> f64 {
        let of = |member: &EtcdMember| {
            member.metric(name).unwrap_or_else(|| panic!("{} does not respond with its metrics", member.address()))
        };
        self.members.iter().map(of).sum()
    }
}

impl EtcdProxy {
    /// Returns the URL of a store that uses only this server.
    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

impl EtcdMember {
    /// Returns the address of this member, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of a store that uses only this server.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// Starts the member again on the same ports, with the data in its folder, and waits until it is healthy.
    pub fn restart(&mut self) {
        self.process.restart();
        let metrics = self.metrics;
        self.process.wait_until("the member is healthy", || is_healthy(metrics));
    }

    /// Resumes a paused member (SIGCONT), and waits until it is healthy.
    pub fn resume(&mut self) {
        self.process.resume();
        let metrics = self.metrics;
        self.process.wait_until("the member is healthy", || is_healthy(metrics));
    }

    /// Returns the metric of this member; `None` if the member does not respond.
    fn metric(&self, name: &str) -> Option<f64> {
        let all = http(self.metrics, "/metrics")?;
        let lines = all.lines().filter(|line| line.starts_with(name));
        let figures: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!figures.is_empty(), "this version of etcd has no metric {name}; use another one");
        Some(figures.iter().sum())
    }
}

fn is_healthy(metrics: u16) -> bool {
    http(metrics, "/health").is_some_and(|health| health.contains(r#""health":"true""#))
}

/// Returns the body of a page; `None` if the response is not 200.
fn http(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}
