//! Consul: one server, or a cluster of three.

use std::io;
use std::path::{Path, PathBuf};

use super::consul_api::{ask, field};
use super::launch::in_cache;
use super::{Folder, Launch, Process, free_port};

/// A Consul server on this machine. Dropping it ends the server.
#[derive(Debug)]
pub struct Consul {
    /// The process of the server, which a test can signal.
    pub process: Process,
    folder: Folder,
    ports: Ports,
    token: Option<String>,
    program: PathBuf,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    http: u16,
    server: u16,
    lan: u16,
    wan: u16,
}

impl Ports {
    fn free() -> Self {
        Self { http: free_port(), server: free_port(), lan: free_port(), wan: free_port() }
    }
}

/// The configuration of a Consul server, to start it with.
#[derive(Clone, Debug)]
pub struct ConsulSetup {
    program: PathBuf,
    name: String,
    durable: bool,
    settings: Vec<String>,
    token: Option<String>,
}

impl Default for ConsulSetup {
    fn default() -> Self {
        Self::new()
    }
}

impl ConsulSetup {
    /// Creates the default configuration. The program is the one that `CONSUL_BIN` names, the installed one, or the one
    /// from `scripts/servers`. The server loses its data at a restart, and allows sessions as short as a second.
    pub fn new() -> Self {
        let kept = in_cache("consul/usr/bin/consul").filter(|path| path.exists());
        let named = std::env::var_os("CONSUL_BIN").map(PathBuf::from);
        Self {
            program: named.or(kept).unwrap_or_else(|| "consul".into()),
            name: "n1".to_owned(),
            durable: false,
            settings: vec![r#""session_ttl_min": "1s""#.to_owned()],
            token: None,
        }
    }

    /// Returns the path of the program, which is also the client `consul lock`.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Keeps the data on disk, so that a restart loses nothing.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Adds a setting in JSON: `"name": value`. It overrides earlier settings.
    #[must_use]
    pub fn with(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Denies all access without a token. This token allows everything.
    #[must_use]
    pub fn with_acl(mut self, master: &str) -> Self {
        self.token = Some(master.to_owned());
        self.with(format!(
            r#""acl": {{"enabled": true, "default_policy": "deny", "tokens": {{"master": "{master}"}}}}, "primary_datacenter": "dc1""#
        ))
    }

    /// Starts the server, and waits until it can create sessions.
    ///
    /// # Panics
    /// If Consul is not installed, or does not start.
    pub fn start(&self) -> Consul {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut server = self.spawn(Ports::free(), &[]);
            match server.await_ready() {
                Ok(()) => return server,
                // Another process may have taken a port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("consul {why}\n{}", server.process.output()),
            }
        }
    }

    fn spawn(&self, ports: Ports, all: &[Ports]) -> Consul {
        let folder = Folder::in_memory("consul");
        let Ports { http, server, lan, wan } = ports;
        let mut settings = vec![
            r#""bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "disable_update_check": true"#.to_owned(),
            format!(
                r#""ports": {{"http": {http}, "server": {server}, "serf_lan": {lan}, "serf_wan": {wan}, "dns": -1, "grpc": -1}}"#
            ),
            r#""telemetry": {"prometheus_retention_time": "1h", "disable_hostname": true}"#.to_owned(),
            r#""performance": {"raft_multiplier": 1}, "limits": {"http_max_conns_per_client": 4000}"#.to_owned(),
        ];
        if self.durable || !all.is_empty() {
            let data = folder.path().join("data");
            settings.push(format!(r#""server": true, "data_dir": "{}""#, data.display()));
            settings.push(format!(r#""bootstrap_expect": {}"#, all.len().max(1)));
            let others =
                all.iter().filter(|other| other.lan != lan).map(|other| format!("\"127.0.0.1:{}\"", other.lan));
            settings
                .push(format!(r#""retry_join": [{}], "retry_interval": "1s""#, others.collect::<Vec<_>>().join(", ")));
            settings.push(r#""leave_on_terminate": false, "skip_leave_on_interrupt": true"#.to_owned());
        }
        let mut launch = Launch::new(&self.program, "consul").args(["agent", "-node", &self.name]);
        if !self.durable && all.is_empty() {
            launch = launch.arg("-dev");
        }
        // One file per setting: Consul merges the files, and later ones override earlier ones.
        for (number, setting) in [settings.join(",\n")].iter().chain(&self.settings).enumerate() {
            let file = folder.path().join(format!("{number}.json"));
            std::fs::write(&file, format!("{{{setting}}}")).expect("a folder of this process");
            launch = launch.arg("-config-file").arg(&file);
        }
        let process = Process::spawn(launch, &folder.path().join("log"));
        Consul { process, folder, ports, token: self.token.clone(), program: self.program.clone() }
    }
}

impl Consul {
    /// Starts a server with the default configuration, which loses its data at a restart.
    pub fn start() -> Self {
        ConsulSetup::new().start()
    }

    /// Returns the port of its HTTP interface on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.http
    }

    /// Returns the address of its HTTP interface, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.http)
    }

    /// Returns the URL of a store on this server, which allows leases as short as a second.
    pub fn url(&self) -> String {
        format!("consul://{}/tenure?min_lease=1s", self.address())
    }

    /// Returns its temporary folder, which holds its data, configuration and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a request with the management token, and returns the status and the body of the response.
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("no response to {method} {path}: {error}"))
    }

    /// Sends a request with the management token, and returns the status and the body of the response.
    ///
    /// # Errors
    /// If the server does not respond.
    pub fn try_ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        ask(self.ports.http, self.token.as_deref(), method, path, body)
    }

    /// Returns one field of a key's entry; empty if there is none.
    pub fn entry(&self, key: &str, name: &str) -> String {
        field(&self.ask("GET", &format!("/v1/kv/{key}"), "").1, name)
    }

    /// Ends the session that holds the lock of a key, as an operator can.
    pub fn destroy_session_of(&self, key: &str) {
        let session = self.entry(key, "Session");
        self.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    }

    /// Returns the number of open connections of its clients.
    pub fn connections(&self) -> usize {
        super::connections(self.ports.http)
    }

    /// Returns the number of sessions on the server.
    pub fn sessions(&self) -> usize {
        self.ask("GET", "/v1/session/list", "").1.matches("\"ID\"").count()
    }

    /// Returns how many requests of one kind the server has counted, such as `PUT` of `/v1/session/renew/_`.
    pub fn count(&self, method: &str, path: &str) -> u64 {
        let metrics = self.ask("GET", "/v1/agent/metrics?format=prometheus", "").1;
        let path = path.trim_start_matches('/').replace('/', "_");
        // The first name is that of Consul before 1.9.
        let old = format!("consul_http_{method}_{path}_count ");
        let new = format!("consul_api_http_count{{method=\"{method}\",path=\"{path}\"}} ");
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(&old).or_else(|| line.strip_prefix(&new)));
        lines.filter_map(|count| count.trim().parse::<f64>().ok()).sum::<f64>() as u64
    }

    /// Returns how many requests the server has counted in total.
    pub fn asked(&self) -> u64 {
        let metrics = self.ask("GET", "/v1/agent/metrics?format=prometheus", "").1;
        let is_count = |line: &&str| {
            (line.starts_with("consul_http_") && line.contains("_count ")) || line.starts_with("consul_api_http_count{")
        };
        let counts = metrics.lines().filter(is_count).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>() as u64
    }

    /// Runs the `consul` command against this server, such as `snapshot save FILE`.
    ///
    /// # Panics
    /// If the command fails, with its output.
    pub fn command(&self, arguments: &[&str]) {
        let address = format!("-http-addr={}", self.address());
        let (verbs, rest) = arguments.split_at(2.min(arguments.len()));
        Launch::new(&self.program, "consul").args(verbs).arg(address).args(rest).run();
    }

    /// Pauses the server (SIGSTOP): its connections stay open, but it does not answer.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes the server (SIGCONT) after [`Consul::pause`].
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again on the same ports, with the data in its folder.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process.restart();
        if let Err(why) = self.await_ready() {
            panic!("consul {why}\n{}", self.process.output());
        }
    }

    /// Kills the server and starts it again on the same ports without its data.
    ///
    /// # Panics
    /// If its data cannot be removed, or it does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        let data = self.folder.path().join("data");
        if data.exists() {
            std::fs::remove_dir_all(data).expect("a folder of this process");
        }
        self.restart();
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let (port, token) = (self.ports.http, self.token.clone());
        self.process.try_wait_until(&mut || is_ready(port, token.as_deref()))
    }
}

/// Returns whether the server can create sessions. It can once the servers have a leader and it is one of their nodes.
fn is_ready(port: u16, token: Option<&str>) -> bool {
    let made = ask(port, token, "PUT", "/v1/session/create", r#"{"NodeChecks": [], "TTL": "1000s"}"#);
    let Ok((200, said)) = made else { return false };
    ask(port, token, "PUT", &format!("/v1/session/destroy/{}", field(&said, "ID")), "").is_ok()
}

/// A cluster of three Consul servers. Dropping it ends them.
#[derive(Debug)]
pub struct ConsulCluster {
    /// The three servers of the cluster, in the order of their start.
    pub servers: Vec<Consul>,
}

impl ConsulCluster {
    /// Starts three servers with the default configuration, and waits until each can create sessions.
    ///
    /// # Panics
    /// If Consul is not installed, or a server does not start.
    pub fn start() -> Self {
        Self::start_with(&ConsulSetup::new())
    }

    /// Starts three servers with this configuration, and waits until each can create sessions.
    ///
    /// # Panics
    /// If Consul is not installed, or a server does not start.
    pub fn start_with(setup: &ConsulSetup) -> Self {
        let mut tries = 0;
        loop {
            tries += 1;
            let all = [(); 3].map(|()| Ports::free());
            let spawn = |(number, ports): (usize, &Ports)| {
                ConsulSetup { name: format!("n{}", number + 1), ..setup.clone() }.spawn(*ports, &all)
            };
            let mut servers: Vec<_> = all.iter().enumerate().map(spawn).collect();
            match servers.iter_mut().try_for_each(Consul::await_ready) {
                Ok(()) => return Self { servers },
                Err(_) if tries < 3 => {}
                Err(why) => panic!("consul {why}\n{}", servers[0].process.output()),
            }
        }
    }

    /// Waits until the cluster has a leader, and returns its index.
    ///
    /// # Panics
    /// If the wait times out.
    pub fn leader(&self) -> usize {
        let began = std::time::Instant::now();
        loop {
            for server in &self.servers {
                let Ok((200, said)) = server.try_ask("GET", "/v1/status/leader", "") else { continue };
                let is_it = |one: &Consul| said.trim().trim_matches('"') == format!("127.0.0.1:{}", one.ports.server);
                if let Some(leader) = self.servers.iter().position(is_it) {
                    return leader;
                }
            }
            assert!(began.elapsed() < super::PATIENCE, "timed out waiting for the cluster to elect a leader");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Returns the URL of a store that names all servers.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(Consul::address).collect();
        format!("consul://{}/tenure?min_lease=1s", hosts.join(","))
    }
}
