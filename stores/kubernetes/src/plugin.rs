//! Credential plugins: the program that a kubeconfig names under `exec`, which prints a token or a certificate.
//!
//! kube would run it without a timeout, and leave it running when this process ends. So the store runs it itself:
//!
//! ```text
//!   this process ── lifeline ──▶ sh ──▶ plugin      sh and plugin are one process group
//! ```
//!
//! The lifeline is a pipe. It closes when the plugin times out, when the store is dropped, and when this process
//! ends, even by SIGKILL. Then the shell kills the process group. If there is no shell, the plugin runs without
//! it, and is killed in the first two cases only.
//!
//! A plugin shares the standard error of this process, as with kubectl. Errors never repeat the arguments,
//! variables or output of a plugin, because they may contain secrets.

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

/// A plugin that runs for longer is killed.
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

/// Replaces the plugin of a configuration by the credential that it prints. Returns how long the credential is
/// valid, if the plugin says so. Dropping the future kills the plugin.
///
/// # Errors
/// Returns an error that names the program, and shows nothing else of it.
pub(crate) async fn resolve(config: &mut Config) -> Result<Option<Duration>, StoreError> {
    let user = &mut config.auth_info;
    if user.auth_provider.as_ref().is_some_and(|provider| provider.config.contains_key("cmd-path")) {
        return Err(StoreError::denied(
            "the kubeconfig has an auth-provider with a command (cmd-path), which Kubernetes has removed; use an exec \
             plugin instead",
        ));
    }
    // The same order of precedence as in kube.
    let has_other = user.auth_provider.is_some()
        || (user.username.is_some() && user.password.is_some())
        || user.token.is_some()
        || user.token_file.is_some();
    let Some(plugin) = user.exec.take().filter(|_| !has_other) else { return Ok(None) };
    let Some(program) = plugin.command.clone() else {
        return Err(StoreError::denied("the kubeconfig has an exec plugin without a command"));
    };
    // Only the file name: the path may reveal more than a log should.
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(StoreError::denied(format!(
            "the credential plugin {name:?} needs a terminal (interactiveMode: Always), which elections do not have"
        )));
    }
    let output = match tokio::time::timeout(TIMEOUT, run(&program, &plugin)).await {
        Ok(output) => output.map_err(|error| start_error(&name, &error))?,
        Err(_) => {
            return Err(StoreError::refused(format!(
                "the credential plugin {name:?} did not finish within {} s and was killed",
                TIMEOUT.as_secs()
            )));
        }
    };
    match output.status.code() {
        Some(0) => take(user, &name, &output.stdout),
        Some(126 | 127) => Err(start_error(&name, &ErrorKind::NotFound.into())),
        _ => Err(StoreError::denied(format!(
            "the credential plugin {name:?} failed ({}); see its messages on standard error",
            output.status
        ))),
    }
}

/// Runs the plugin. Returns its exit status and standard output.
async fn run(program: &str, plugin: &ExecConfig) -> std::io::Result<Output> {
    // The shell itself is not killed on drop: it could die before it has started the process that watches the
    // lifeline.
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
    // Held until the plugin has ended: closing it earlier kills the plugin.
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

fn start_error(name: &str, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::NotFound => StoreError::denied(format!(
            "the credential plugin {name:?} was not found or is not executable; install it, or correct the `command` \
             of the kubeconfig's user"
        )),
        kind => StoreError::refused(format!("cannot start the credential plugin {name:?}: {kind}")),
    }
}

/// Parses the output of a plugin and stores its credential.
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
        StoreError::denied(format!("the credential plugin {name:?} printed an invalid expirationTimestamp"))
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
