//! Credential plugins (`exec` in a kubeconfig): programs that can fail, hang or print secrets.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::{seats, told, until, url, within};
use tenure_core::{Elections, Fault, SeatName, SeatStore, SingleSeat, StoreError};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::servers::{Folder, Kubernetes};

#[tokio::test]
async fn a_plugin_provides_the_token() {
    let plugin = Plugin::new("echo \"$CREDENTIAL\"", "");
    assert_eq!(plugin.read().await.unwrap().seat, None);
}

#[tokio::test]
async fn a_plugin_provides_a_client_certificate() {
    // The server does not trust the authority of this certificate. So the certificate is sent, but the request is
    // anonymous.
    let plugin = Plugin::new(
        r#"printf '{"kind": "ExecCredential", "status": {"clientCertificateData": "%s", "clientKeyData": "%s"}}' \
            "$(awk '{printf "%s\\n", $0}' "$CERTIFICATE")" "$(awk '{printf "%s\\n", $0}' "$KEY")""#,
        "",
    );
    let error = told(&plugin.read().await.unwrap_err());
    assert!(error.contains("401") || error.contains("403") || error.contains("certificate"), "{error}");
    assert!(!error.contains("credential plugin"), "{error}");
}

#[tokio::test]
async fn the_error_of_a_failed_plugin_names_it_without_its_arguments_or_output() {
    for (script, fault, words) in [
        ("echo hunter2; echo hunter2 >&2; exit 3", Fault::Denied, "plugin \"plugin\" failed (exit status: 3)"),
        ("kill -9 $$", Fault::Denied, "plugin \"plugin\" failed (exit status: 137)"),
        ("echo '{hunter2: [hunter2'", Fault::Denied, "printed no credential"),
        ("echo '{}'", Fault::Denied, "printed no credential"),
        (
            "echo '{\"status\": {\"token\": \"hunter2\", \"expirationTimestamp\": \"hunter2\"}}'",
            Fault::Denied,
            "expirationTimestamp",
        ),
    ] {
        let plugin = Plugin::new(script, "args: [--secret=hunter2], env: [{name: SECRET, value: hunter2}]");
        let error = plugin.read().await.unwrap_err();
        assert_eq!(error.fault(), fault, "{}", told(&error));
        let error = told(&error);
        assert!(error.contains(words) && !error.contains("hunter2"), "{script}: {error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{script}: {error:?}");
    }
    let plugin = Plugin::new("", "args: [--secret=hunter2]");
    std::fs::remove_file(plugin.folder.path().join("plugin")).unwrap();
    let error = told(&plugin.read().await.unwrap_err());
    assert!(error.contains("plugin \"plugin\"") && error.contains("not found"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn all_calls_that_wait_for_a_plugin_get_the_cause_of_its_failure() {
    let plugin = Plugin::new("echo run >> \"$FOLDER/runs\"; sleep 1; exit 3", "");
    let store = plugin.store();
    let seat = seat();
    let (one, other) = tokio::join!(store.read(&seat), store.read(&seat));
    let (one, other) = (told(&one.unwrap_err()), told(&other.unwrap_err()));
    assert!(one.contains("failed (exit status: 3)"), "{one}");
    assert_eq!(one, other);
    assert_eq!(plugin.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_hangs_once_is_killed_with_its_children_and_run_again() {
    let plugin = Plugin::new(
        "if [ ! -e \"$FOLDER/parent\" ]; then sleep 1000 & echo $! > \"$FOLDER/child\"; echo $$ > \"$FOLDER/parent\"; wait; fi\n\
         echo \"$CREDENTIAL\"",
        "",
    );
    let store = plugin.store();
    let answer = within("the plugin is run again", async {
        loop {
            // Each call times out after a while, as calls of the engine do.
            match tokio::time::timeout(Duration::from_millis(500), store.read(&seat())).await {
                Ok(Err(error)) => {
                    assert_eq!(error.fault(), Fault::Refused, "{}", told(&error));
                    assert!(error.to_string().contains("plugin \"plugin\" did not finish within"), "{error}");
                }
                Ok(Ok(reading)) => return reading,
                Err(_) => {}
            }
        }
    })
    .await;
    assert_eq!(answer.seat, None);
    until("both processes are gone", || !plugin.is_alive("parent") && !plugin.is_alive("child")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_dies_with_its_store_and_with_its_process() {
    let hangs = "sleep 1000 & echo $! > \"$FOLDER/child\"; echo $$ > \"$FOLDER/parent\"; wait";
    let plugin = Plugin::new(hangs, "");
    let elections = Elections::new(KubernetesStore::from_url(&url(&plugin.kubeconfig)).unwrap());
    let election = elections.election("jobs").start().unwrap();
    until("the plugin runs", || plugin.is_alive("parent") && plugin.is_alive("child")).await;
    drop((election, elections));
    until("the plugin is gone", || !plugin.is_alive("parent") && !plugin.is_alive("child")).await;

    let plugin = Plugin::new(hangs, "");
    let mut process = plugin.process();
    until("the plugin runs", || plugin.is_alive("parent") && plugin.is_alive("child")).await;
    process.kill().unwrap();
    process.wait().unwrap();
    until("the plugin is gone", || !plugin.is_alive("parent") && !plugin.is_alive("child")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_token_is_fetched_while_the_expiring_one_stays_in_use() {
    // Each token expires soon. The second run hangs, and no call waits for it.
    let plugin = Plugin::new(
        "echo run >> \"$FOLDER/runs\"\n\
         if [ $(wc -l < \"$FOLDER/runs\") -gt 1 ]; then sleep 1000; fi\n\
         echo \"$CREDENTIAL\" | sed \"s/\\\"status\\\": {/&\\\"expirationTimestamp\\\": \\\"$(date -u -d '+30 seconds' +%FT%TZ)\\\", /\"",
        "",
    );
    let store = plugin.store();
    store.read(&seat()).await.unwrap();
    assert_eq!(plugin.runs(), 1);
    within("the plugin runs again", async {
        while plugin.runs() == 1 {
            store.read(&seat()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    // The next token is not ready yet, and this one is valid for some more seconds.
    store.read(&seat()).await.unwrap();
}

/// Reads through a plugin that hangs, if the test started this process to do so.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var("TENURE_TEST_PLUGIN") else { return };
    let _ = seats(&url).read(&seat()).await;
}

// -------------------------------------------------------------------------------------------------

/// A plugin, and a kubeconfig that names it.
struct Plugin {
    folder: Folder,
    kubeconfig: PathBuf,
    _server: std::sync::Arc<Kubernetes>,
}

impl Plugin {
    /// Creates a plugin from a shell script, which has a valid credential in a variable. `settings` are added to
    /// its `exec`.
    fn new(script: &str, settings: &str) -> Self {
        let server = Kubernetes::shared();
        let namespace = server.namespace();
        let token = server.service_account(&namespace, "jobs", &["create", "update", "list", "watch"]);
        let folder = Folder::new("plugin");
        let program = folder.path().join("plugin");
        let credential = format!(
            r#"{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "{token}"}}}}"#
        );
        let (cert, key) = (server.certificates().cert.display(), server.certificates().key.display());
        let text = format!(
            "#!/bin/sh\nCREDENTIAL='{credential}' FOLDER='{}' CERTIFICATE='{cert}' KEY='{key}'\n{script}\n",
            folder.path().display()
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let exec = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: {}, {settings}}}",
            program.display()
        );
        let kubeconfig = server.kubeconfig_of("nobody", &namespace, &format!("https://{}", server.address()));
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        std::fs::write(&kubeconfig, text.replace("token: nobody", &exec)).unwrap();
        Self { folder, kubeconfig, _server: server }
    }

    fn store(&self) -> SingleSeat {
        seats(&url(&self.kubeconfig))
    }

    async fn read(&self) -> Result<tenure_core::Reading, StoreError> {
        within("an answer", self.store().read(&seat())).await
    }

    /// Starts a process that runs the plugin.
    fn process(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("TENURE_TEST_PLUGIN", url(&self.kubeconfig))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Returns how often the plugin has run, if its script records that.
    fn runs(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("runs")).unwrap_or_default().lines().count()
    }

    /// Whether the process whose ID the plugin recorded is alive.
    fn is_alive(&self, file: &str) -> bool {
        let pid = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
        // A process that was killed but not reaped by its parent counts as gone.
        !pid.trim().is_empty() && stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}
