//! Consul servers: one, or three.

use std::io;
use std::path::{Path, PathBuf};

use super::consul_api::{ask, field};
use super::{Folder, Launch, Process, free_port};

/// A Consul server on this machine, which is an agent, too.
#[derive(Debug)]
pub struct Consul {
    /// Its process.
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

/// How a Consul server is set up.
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
    /// Consul as `CONSUL_BIN` names it, as installed, or from where `scripts/servers` keeps it. It keeps
    /// nothing over a restart, and sessions for as short as a second.
    pub fn new() -> Self {
        let cache = std::env::var_os("TENURE_CACHE").map(PathBuf::from).or_else(|| {
            let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            caches.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache"))).map(|c| c.join("tenure"))
        });
        let kept = cache.map(|cache| cache.join("consul/usr/bin/consul")).filter(|path| path.exists());
        let named = std::env::var_os("CONSUL_BIN").map(PathBuf::from);
        Self {
            program: named.or(kept).unwrap_or_else(|| "consul".into()),
            name: "n1".to_owned(),
            durable: false,
            settings: vec![r#""session_ttl_min": "1s""#.to_owned()],
            token: None,
        }
    }

    /// With what it is told on disk, so that a restart loses nothing.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// With one more setting of its configuration, in JSON: `"name": value`. A later one counts.
    #[must_use]
    pub fn with(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Where nobody may do anything without a token. This one may do everything.
    #[must_use]
    pub fn with_acl(mut self, master: &str) -> Self {
        self.token = Some(master.to_owned());
        self.with(format!(
            r#""acl": {{"enabled": true, "default_policy": "deny", "tokens": {{"master": "{master}"}}}}, "primary_datacenter": "dc1""#
        ))
    }

    /// Starts it, and waits until it makes sessions.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn start(&self) -> Consul {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut server = self.spawn(Ports::free(), &[]);
            match server.await_ready() {
                Ok(()) => return server,
                // Somebody else may have been quicker to take a port.
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
        // A file each: they are put together, and what is said twice counts as it was said last.
        for (number, setting) in [settings.join(",\n")].iter().chain(&self.settings).enumerate() {
            let file = folder.path().join(format!("{number}.json"));
            std::fs::write(&file, format!("{{{setting}}}")).expect("our own folder");
            launch = launch.arg("-config-file").arg(&file);
        }
        let process = Process::spawn(launch, &folder.path().join("log"));
        Consul { process, folder, ports, token: self.token.clone(), program: self.program.clone() }
    }
}

impl Consul {
    /// A server that keeps nothing over a restart.
    pub fn start() -> Self {
        ConsulSetup::new().start()
    }

    /// Where its HTTP interface listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.http
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.http)
    }

    /// Its URL, for leases as short as a second.
    pub fn url(&self) -> String {
        format!("consul://{}/tenure?min_lease=1s", self.address())
    }

    /// Its temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Asks it something, with the token that may do everything: the status, and what it says.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path} was not answered: {error}"))
    }

    /// Asks it something.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn try_ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        ask(self.ports.http, self.token.as_deref(), method, path, body)
    }

    /// One field of a key's entry, empty if there is none.
    pub fn entry(&self, key: &str, name: &str) -> String {
        field(&self.ask("GET", &format!("/v1/kv/{key}"), "").1, name)
    }

    /// Ends the session that has locked a key, as an operator does.
    pub fn destroy_session_of(&self, key: &str) {
        let session = self.entry(key, "Session");
        self.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    }

    /// How many connections of clients it has open.
    pub fn connections(&self) -> usize {
        super::connections(self.ports.http)
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.ask("GET", "/v1/session/list", "").1.matches("\"ID\"").count()
    }

    /// How often something was asked of it so far, by its own count, such as `PUT` of `/v1/session/renew/_`.
    pub fn count(&self, method: &str, path: &str) -> u64 {
        let metrics = self.ask("GET", "/v1/agent/metrics?format=prometheus", "").1;
        let path = path.trim_start_matches('/').replace('/', "_");
        // Before and since Consul 1.9.
        let old = format!("consul_http_{method}_{path}_count ");
        let new = format!("consul_api_http_count{{method=\"{method}\",path=\"{path}\"}} ");
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(&old).or_else(|| line.strip_prefix(&new)));
        lines.filter_map(|count| count.trim().parse::<f64>().ok()).sum::<f64>() as u64
    }

    /// How often anything was asked of it so far, by its own count.
    pub fn asked(&self) -> u64 {
        let metrics = self.ask("GET", "/v1/agent/metrics?format=prometheus", "").1;
        let is_count = |line: &&str| {
            (line.starts_with("consul_http_") && line.contains("_count ")) || line.starts_with("consul_api_http_count{")
        };
        let counts = metrics.lines().filter(is_count).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        counts.sum::<f64>() as u64
    }

    /// Runs Consul's own command against it, such as `snapshot save FILE`.
    ///
    /// # Panics
    /// With what it says, if it fails.
    pub fn command(&self, arguments: &[&str]) {
        let address = format!("-http-addr={}", self.address());
        let (verbs, rest) = arguments.split_at(2.min(arguments.len()));
        Launch::new(&self.program, "consul").args(verbs).arg(address).args(rest).run();
    }

    /// Stops it (SIGSTOP): its connections stay open, and nothing is answered.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same ports, with what its folder holds.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process.restart();
        if let Err(why) = self.await_ready() {
            panic!("consul {why}\n{}", self.process.output());
        }
    }

    /// Kills it, and starts it again on the same ports without what it has written down.
    ///
    /// # Panics
    /// If that cannot be removed, or it does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        let data = self.folder.path().join("data");
        if data.exists() {
            std::fs::remove_dir_all(data).expect("our own folder");
        }
        self.restart();
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let (port, token) = (self.ports.http, self.token.clone());
        self.process.try_wait_until(&mut || is_ready(port, token.as_deref()))
    }
}

/// Whether it makes sessions, which it does once its servers have a leader and it is one of their nodes.
fn is_ready(port: u16, token: Option<&str>) -> bool {
    let made = ask(port, token, "PUT", "/v1/session/create", r#"{"NodeChecks": [], "TTL": "1000s"}"#);
    let Ok((200, said)) = made else { return false };
    ask(port, token, "PUT", &format!("/v1/session/destroy/{}", field(&said, "ID")), "").is_ok()
}

/// Three Consul servers that make one cluster.
#[derive(Debug)]
pub struct ConsulCluster {
    /// The servers.
    pub servers: Vec<Consul>,
}

impl ConsulCluster {
    /// Starts them, and waits until each makes sessions.
    ///
    /// # Panics
    /// If they are not installed, or do not start.
    pub fn start() -> Self {
        Self::start_with(&ConsulSetup::new())
    }

    /// The same, with servers that are set up like this.
    ///
    /// # Panics
    /// If they are not installed, or do not start.
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

    /// Which server leads the others.
    ///
    /// # Panics
    /// If none does for long.
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
            assert!(began.elapsed() < super::PATIENCE, "no server leads the others");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// A URL that names all of them.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(Consul::address).collect();
        format!("consul://{}/tenure?min_lease=1s", hosts.join(","))
    }
}
