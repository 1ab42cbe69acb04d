//! A Kubernetes API server with an etcd of its own, but without nodes and controllers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use super::launch::in_cache;
use super::{Certificates, Folder, Launch, Process, free_port};

/// A Kubernetes API server on this machine. Dropping it ends the server.
#[derive(Debug)]
pub struct Kubernetes {
    /// The process of the API server, which a test can signal.
    pub api: Process,
    /// The process of the etcd that keeps the API server's data.
    pub etcd: Process,
    folder: Folder,
    certificates: Certificates,
    port: u16,
}

/// The token of the administrator.
const ADMIN: &str = "the-token-of-the-admin";

impl Kubernetes {
    /// Starts an API server, and waits until it is ready.
    ///
    /// # Panics
    /// If the API server is not installed, or does not start.
    pub fn start() -> Self {
        let mut folder = Folder::new("kubernetes");
        let certificates = Certificates::make(folder.path());
        let tokens = format!("{ADMIN},admin,admin,system:masters\n");
        std::fs::write(folder.path().join("tokens.csv"), tokens).expect("a writable folder");
        let mut tries = 0;
        loop {
            tries += 1;
            let (client, peer, port) = (free_port(), free_port(), free_port());
            let etcd = Process::spawn(etcd(folder.path(), client, peer), &folder.path().join("etcd.log"));
            let launch = api(folder.path(), &certificates, client, port);
            let api = Process::spawn(launch, &folder.path().join("api.log"));
            let mut server = Self { api, etcd, folder, certificates: certificates.clone(), port };
            match server.ready() {
                Ok(()) => return server,
                // Another process may have taken a port first.
                Err(_) if tries < 5 => folder = server.end(),
                Err(why) => panic!("the API server {why}\n{}{}", server.etcd.output(), server.api.output()),
            }
        }
    }

    /// Returns a server that all tests of this process share. Use it for tests that do not disturb the server.
    ///
    /// # Panics
    /// If the API server is not installed, or does not start.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Kubernetes>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Returns the address of the server, as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the certificates of the server and its authority.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Creates a namespace, and returns its name.
    pub fn namespace(&self) -> String {
        let name = format!("test-{:08x}", rand::random::<u32>());
        let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        self.must("POST", "/api/v1/namespaces", &body);
        name
    }

    /// Writes a kubeconfig file for the administrator and this namespace, and returns its path.
    pub fn kubeconfig(&self, namespace: &str) -> PathBuf {
        self.kubeconfig_of(ADMIN, namespace, &format!("https://{}", self.address()))
    }

    /// Writes a kubeconfig file for this token, namespace and URL, and returns its path.
    pub fn kubeconfig_of(&self, token: &str, namespace: &str, server: &str) -> PathBuf {
        let path = self.folder.path().join(format!("kubeconfig-{:08x}", rand::random::<u32>()));
        let ca = self.certificates.ca.display();
        let trust = if server.starts_with("https") { format!(", certificate-authority: {ca}") } else { String::new() };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: \"{server}\"{trust}}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: test, namespace: {namespace}}}}}]\n\
             users: [{{name: test, user: {{token: {token}}}}}]\n"
        );
        std::fs::write(&path, text).expect("a writable folder");
        path
    }

    /// Writes a kubeconfig file for the administrator, this namespace and this URL, and returns its path.
    pub fn kubeconfig_by(&self, namespace: &str, server: &str) -> PathBuf {
        self.kubeconfig_of(ADMIN, namespace, server)
    }

    /// Creates a service account with these verbs on the leases of a namespace, and returns a token of it.
    /// [`Kubernetes::revoke`] removes the account.
    pub fn service_account(&self, namespace: &str, name: &str, verbs: &[&str]) -> String {
        let core = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        self.must("POST", &core, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
        let role = format!(
            r#"{{"metadata":{{"name":"{name}"}},"rules":[{{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":{verbs:?}}}]}}"#
        );
        self.must("POST", &format!("{rbac}/roles"), &role);
        let binding = format!(
            r#"{{"metadata":{{"name":"{name}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{name}"}},"subjects":[{{"kind":"ServiceAccount","name":"{name}","namespace":"{namespace}"}}]}}"#
        );
        self.must("POST", &format!("{rbac}/rolebindings"), &binding);
        let answer = self.must("POST", &format!("{core}/{name}/token"), r#"{"spec":{}}"#);
        let token = answer.split_once(r#""token":"#).and_then(|(_, rest)| rest.split('"').nth(1));
        token.unwrap_or_else(|| panic!("no token in {answer}")).to_owned()
    }

    /// Removes a service account. Its tokens become invalid within some seconds.
    pub fn revoke(&self, namespace: &str, name: &str) {
        self.must("DELETE", &format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}"), "");
    }

    /// Sends a request as the administrator, and returns the body of the response.
    ///
    /// # Panics
    /// If the status is not a success.
    pub fn must(&self, method: &str, path: &str, body: &str) -> String {
        let (status, answer) = self.ask(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Sends a request as the administrator, and returns the status (0 if there is no response) and the body.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--noproxy", "*", "--max-time", "20", "-X", method, "-w", "\n%{http_code}"]);
        curl.arg("--cacert").arg(&self.certificates.ca);
        curl.args(["-H", &format!("Authorization: Bearer {ADMIN}"), "-H", "Content-Type: application/json"]);
        if !body.is_empty() {
            curl.args(["--data-binary", body]);
        }
        curl.arg(format!("https://{}{path}", self.address()));
        let output =
            curl.output().unwrap_or_else(|error| panic!("cannot run curl: {error}; run scripts/servers kubernetes"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (answer, status) = text.rsplit_once('\n').unwrap_or(("", &text));
        (status.trim().parse().unwrap_or(0), answer.to_owned())
    }

    /// Starts the API server again after it was killed. Its data is in the etcd. (Do not stop it with SIGTERM: it would
    /// take a minute, because it waits for its watches.)
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        self.api.restart();
        self.ready().unwrap_or_else(|why| panic!("the API server {why}\n{}", self.api.output()));
    }

    fn ready(&mut self) -> Result<(), String> {
        let (certificates, port) = (self.certificates.clone(), self.port);
        self.api.try_wait_until(&mut || answers(&certificates, port))
    }

    fn end(self) -> Folder {
        self.folder
    }
}

/// Returns whether the API server is ready.
fn answers(certificates: &Certificates, port: u16) -> bool {
    let asked = Command::new("curl")
        .args(["-s", "--noproxy", "*", "--max-time", "5", "-H", &format!("Authorization: Bearer {ADMIN}"), "--cacert"])
        .arg(&certificates.ca)
        .arg(format!("https://127.0.0.1:{port}/readyz"))
        .output();
    std::thread::sleep(std::time::Duration::from_millis(50));
    asked.is_ok_and(|output| output.stdout == b"ok")
}

fn etcd(folder: &Path, client: u16, peer: u16) -> Launch {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let data = folder.join(format!("etcd-{:08x}", rand::random::<u32>()));
    Launch::new("etcd", "kubernetes")
        .args(["--name", "one", "--data-dir"])
        .arg(data)
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}"), "--unsafe-no-fsync"])
}

fn api(folder: &Path, certificates: &Certificates, etcd: u16, port: u16) -> Launch {
    let kept = std::env::var_os("KUBE_APISERVER").map(PathBuf::from);
    let kept = kept.or_else(|| in_cache("kubernetes/kube-apiserver"));
    Launch::new(kept.unwrap_or_else(|| "kube-apiserver".into()), "kubernetes")
        .args(["--etcd-servers", &format!("http://127.0.0.1:{etcd}")])
        .args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"])
        .args(["--secure-port", &port.to_string(), "--insecure-port", "0"])
        .arg("--tls-cert-file")
        .arg(&certificates.cert)
        .arg("--tls-private-key-file")
        .arg(&certificates.key)
        .arg("--token-auth-file")
        .arg(folder.join("tokens.csv"))
        .args(["--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none"])
        .args(["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"])
        .args(["--service-account-issuer", "https://kubernetes.default.svc"])
        .arg("--service-account-signing-key-file")
        .arg(&certificates.key)
        .arg("--service-account-key-file")
        .arg(&certificates.cert)
        .arg("--cert-dir")
        .arg(folder.join("certs"))
}
