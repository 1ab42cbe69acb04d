//! An etcd cluster, of one member or several.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Certificates, Folder, Launch, Process, free_port};

/// An etcd cluster on this machine.
#[derive(Debug)]
pub struct Etcd {
    /// Its members.
    pub members: Vec<EtcdMember>,
    certificates: Option<Certificates>,
    /// Removed last.
    folder: Folder,
}

/// One member of a cluster.
#[derive(Debug)]
pub struct EtcdMember {
    /// Its process.
    pub process: Process,
    port: u16,
    /// Where it tells how it is, always in plain.
    metrics: u16,
}

/// A gRPC proxy in front of a cluster: one connection to the cluster for all its clients.
#[derive(Debug)]
pub struct EtcdProxy {
    /// Its process.
    pub process: Process,
    port: u16,
    /// Removed last.
    _folder: Folder,
}

/// How a cluster is set up.
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
    /// One member.
    pub fn new() -> Self {
        Self { members: 1, tls: None, arguments: Vec::new() }
    }

    /// So many members.
    #[must_use]
    pub fn members(self, members: usize) -> Self {
        Self { members, ..self }
    }

    /// With TLS, for `localhost` and 127.0.0.1.
    #[must_use]
    pub fn tls(self) -> Self {
        Self { tls: Some(false), ..self }
    }

    /// With TLS, and only for those who show a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(self) -> Self {
        Self { tls: Some(true), ..self }
    }

    /// With more settings, as on the command line.
    #[must_use]
    pub fn with<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts it, and waits until all members are healthy.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn start(&self) -> Etcd {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_start() {
                Ok(etcd) => return etcd,
                // Somebody else may have been quicker to take a port.
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
                // The cheapest hash: etcd answers no call while it hashes a password, which takes seconds on a busy machine.
                .args(["--bcrypt-cost", "4"])
                .args(["--initial-cluster", &all, "--initial-cluster-token"])
                // Another one for every cluster, so that no two are taken for the same.
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
    /// A cluster of one.
    pub fn start() -> Self {
        EtcdSetup::new().start()
    }

    /// Hosts and ports of all members, with commas.
    pub fn addresses(&self) -> String {
        self.members.iter().map(EtcdMember::address).collect::<Vec<_>>().join(",")
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.addresses())
    }

    /// Its certificates, if it has TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Where it keeps its data.
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

    /// Runs `etcdctl`, and returns what it said.
    ///
    /// # Panics
    /// If it fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.addresses()]);
        if let Some(certificates) = &self.certificates {
            command.arg("--cacert").arg(&certificates.ca);
            command.arg("--cert").arg(&certificates.cert).arg("--key").arg(&certificates.key);
        }
        let output = command.args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("etcdctl: {error}: run scripts/servers etcd"));
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {said}\n{complained}");
        said
    }

    /// How many connections its members have open for clients: each member has one to itself, too.
    pub fn connections(&self) -> usize {
        self.members.iter().map(|member| super::connections(member.port)).sum()
    }

    /// Kills all members, and starts them again on the same ports as a cluster that knows nothing.
    ///
    /// # Panics
    /// If their data cannot be removed, or they do not start.
    pub fn restart_empty(&mut self) {
        for (number, member) in self.members.iter_mut().enumerate() {
            member.process.kill();
            std::fs::remove_dir_all(self.folder.path().join(format!("n{number}"))).expect("our own folder");
        }
        self.members.iter_mut().for_each(|member| member.process.restart());
        for member in &mut self.members {
            let metrics = member.metrics;
            member.process.wait_until("it is healthy", || is_healthy(metrics));
        }
    }

    /// Which member leads, if one does.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.metric("etcd_server_is_leader") == 1.0)
    }

    /// A figure that the members tell of themselves, all of them together: its name, with what is in braces
    /// behind it up to where it differs, as `grpc_server_started_total{grpc_method="Txn"`.
    ///
    /// # Panics
    /// If a member has no such figure.
    pub fn metric(&self, name: &str) -> f64 {
        self.members.iter().map(|member| member.metric(name)).sum()
    }
}

impl EtcdProxy {
    /// Its URL, as that of a cluster of one.
    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

impl EtcdMember {
    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL, as that of a cluster of one.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// Starts it again on the same ports, with what its folder holds, and waits until it is healthy.
    pub fn restart(&mut self) {
        self.process.restart();
        let metrics = self.metrics;
        self.process.wait_until("it is healthy", || is_healthy(metrics));
    }

    /// Lets a member go on that was paused, and waits until it takes part again.
    pub fn resume(&mut self) {
        self.process.resume();
        let metrics = self.metrics;
        self.process.wait_until("it is healthy", || is_healthy(metrics));
    }

    /// Zero if the member does not answer.
    fn metric(&self, name: &str) -> f64 {
        let Some(all) = http(self.metrics, "/metrics") else { return 0.0 };
        let lines = all.lines().filter(|line| line.starts_with(name));
        let figures: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!figures.is_empty(), "this version of etcd has no metric {name}: count by another one");
        figures.iter().sum()
    }
}

fn is_healthy(metrics: u16) -> bool {
    http(metrics, "/health").is_some_and(|health| health.contains(r#""health":"true""#))
}

/// Asks for a page. `None`: it was not given.
fn http(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}
