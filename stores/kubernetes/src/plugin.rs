//! Credential plugins: the program that a kubeconfig names under `exec`, run for a token or a certificate.
//!
//! kube would run it without a time-out and leave it behind when this process ends, so it runs here:
//!
//! ```text
//!   this process ── lifeline ──▶ sh ──▶ plugin      sh and plugin are one process group
//! ```
//!
//! The lifeline is a pipe. It closes when the plugin has taken too long, when the store is dropped and when this
//! process ends, even by SIGKILL. Then the shell kills the process group. Where there is no shell, the plugin
//! runs without it and is killed in the first two cases only.
//!
//! The standard error of a plugin is that of this process, as with kubectl. Errors never repeat what a plugin was
//! given or prints: arguments, variables and output may hold secrets.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use base64::Engine;
use jiff::Timestamp;
use kube::Config;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tenure_core::StoreError;
use tokio::process::Command;

/// A plugin that takes longer is killed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the plugin (`"$@"`) until it ends, or kills the process group when the lifeline (standard input) closes.
const SCRIPT: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
plugin=$!
{ read -r _; kill -KILL 0; } <&3 3<&- >/dev/null 2>&1 &
wait "$plugin"
status=$?
kill -KILL "$!"
exit "$status"
"#;

/// Replaces the plugin of a configuration by the credential that it prints. Returns how long that is good for, if
/// it says so. Dropping the future kills the plugin.
///
/// # Errors
/// In words that name the program and nothing else of it.
pub(crate) async fn resolve(config: &mut Config) -> Result<Option<Duration>, StoreError> {
    let user = &mut config.auth_info;
    if user.auth_provider.as_ref().is_some_and(|provider| provider.config.contains_key("cmd-path")) {
        return Err(StoreError::denied(
            "the kubeconfig names an auth-provider that runs a command (cmd-path), which Kubernetes has removed: \
             use an exec plugin instead",
        ));
    }
    // kube goes by this order, too.
    let has_other = user.auth_provider.is_some()
        || (user.username.is_some() && user.password.is_some())
        || user.token.is_some()
        || user.token_file.is_some();
    let Some(plugin) = user.exec.take().filter(|_| !has_other) else { return Ok(None) };
    let Some(program) = plugin.command.clone() else {
        return Err(StoreError::denied("the kubeconfig has an exec plugin without a command"));
    };
    // Its file name only: a path may tell more than the reader of a log should know.
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(StoreError::denied(format!(
            "the credential plugin {name:?} needs a terminal (interactiveMode: Always), and elections have none"
        )));
    }
    let output = match tokio::time::timeout(TIMEOUT, run(&program, &plugin)).await {
        Ok(output) => output.map_err(|error| of_start(&name, &error))?,
        Err(_) => {
            return Err(StoreError::refused(format!(
                "the credential plugin {name:?} did not finish within {} s and was killed",
                TIMEOUT.as_secs()
            )));
        }
    };
    match output.status.code() {
        Some(0) => take(user, &name, &output.stdout),
        Some(126 | 127) => Err(of_start(&name, &ErrorKind::NotFound.into())),
        _ => Err(StoreError::denied(format!(
            "the credential plugin {name:?} failed ({}); what it says is on standard error",
            output.status
        ))),
    }
}

/// The plugin's exit status and standard output.
async fn run(program: &str, plugin: &ExecConfig) -> std::io::Result<Output> {
    // Never killed itself: it could be gone before it has anybody wait for the end of the lifeline.
    let mut guarded = Command::new("sh");
    guarded.args(["-c", SCRIPT, "sh", program]).stdin(Stdio::piped());
    #[cfg(unix)]
    guarded.process_group(0);
    let mut child = match adapt(&mut guarded, plugin).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut bare = Command::new(program);
            adapt(bare.stdin(Stdio::null()).kill_on_drop(true), plugin).spawn()?
        }
        child => child?,
    };
    // Kept until the plugin has ended: closing it earlier kills the plugin.
    let _lifeline = child.stdin.take();
    child.wait_with_output().await
}

fn adapt<'a>(command: &'a mut Command, plugin: &ExecConfig) -> &'a mut Command {
    let mut spec = json!({ "interactive": false });
    if let Some(cluster) = plugin.cluster.as_ref().filter(|_| plugin.provide_cluster_info) {
        spec["cluster"] = json!(cluster);
    }
    let info = json!({ "apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec });
    let variables = plugin.env.iter().flatten().filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
    command.args(plugin.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", info.to_string());
    for name in plugin.drop_env.iter().flatten() {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped())
}

fn of_start(name: &str, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::NotFound => StoreError::denied(format!(
            "the credential plugin {name:?} was not found or cannot be executed: install it, or correct the \
             `command` of the kubeconfig's user"
        )),
        kind => StoreError::refused(format!("the credential plugin {name:?} could not be started: {kind}")),
    }
}

/// Takes in what a plugin has printed.
fn take(user: &mut AuthInfo, name: &str, output: &[u8]) -> Result<Option<Duration>, StoreError> {
    let none = || StoreError::denied(format!("the credential plugin {name:?} printed no credential"));
    let printed: Printed = serde_saphyr::from_slice(output).map_err(|_| none())?;
    let status = printed.status.ok_or_else(none)?;
    match status {
        Status { client_certificate_data: Some(certificate), client_key_data: Some(key), .. } => {
            let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
            user.client_certificate_data = Some(encoded(&certificate));
            user.client_key_data = Some(encoded(&key).into());
            user.token = status.token.map(Into::into);
        }
        Status { token: Some(token), .. } => user.token = Some(token.into()),
        _ => return Err(none()),
    }
    let Some(expires) = status.expiration_timestamp else { return Ok(None) };
    let expires: Timestamp = expires.parse().map_err(|_| {
        StoreError::denied(format!(
            "the credential plugin {name:?} printed a time that is none: when its credential expires"
        ))
    })?;
    Ok(Some(Timestamp::now().duration_until(expires).try_into().unwrap_or(Duration::ZERO)))
}

#[derive(Deserialize)]
struct Printed {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}
