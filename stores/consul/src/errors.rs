//! What went wrong, in words that say what to do, and whether it happened.

use std::error::Error as _;

use tenure_core::StoreError;

/// Classifies what kept a call from being answered.
pub(crate) fn of_transport(agent: &str, error: reqwest::Error) -> StoreError {
    let error = error.without_url();
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    let tls = ["certificate", "InvalidContentType", "corrupt message", "HandshakeFailure", "tls", "TLS"];
    if error.is_builder() {
        StoreError::denied(format!("{agent} is not an address that can be asked: write it as host:port"))
    } else if error.is_connect() && tls.iter().any(|word| said.contains(word)) {
        StoreError::denied(format!(
            "no TLS with {agent}: see that it serves HTTPS (if not, consul://), and that its certificate is trusted (?ca=FILE) and names this host (?tls_server_name=NAME)"
        ))
    } else if error.is_connect() && said.contains("refused") {
        StoreError::refused(format!("nothing listens at {agent}"))
    } else if error.is_connect() {
        StoreError::refused(format!("{agent} cannot be reached"))
    } else if error.is_timeout() {
        StoreError::unknown(format!("{agent} has not answered in time"))
    } else {
        StoreError::unknown(format!("the connection to {agent} was lost before it answered"))
    }
    .because(error)
}

/// Classifies an answer that says no.
pub(crate) fn of_status(agent: &str, prefix: &str, status: u16, body: &str) -> StoreError {
    let said: String = body.trim().lines().next().unwrap_or_default().chars().take(200).collect();
    let says = |words: &str| body.contains(words);
    if says("ACL not found") || says("ACL token not found") {
        StoreError::denied(format!("Consul at {agent} knows no such token (ACL not found)"))
    } else if status == 403 || says("Permission denied") {
        StoreError::denied(format!(
            "Consul at {agent} does not permit this: the token needs write on key_prefix \"{prefix}/\" and session_prefix \"\" ({said})"
        ))
    } else if says("HTTP request to an HTTPS server") {
        StoreError::denied(format!("{agent} serves HTTPS: name it as consuls://"))
    } else if says("Enterprise feature") {
        StoreError::denied(format!(
            "Consul at {agent} has no namespaces or partitions: they are a feature of Consul Enterprise"
        ))
    } else if says("Namespace") || says("Partition") {
        StoreError::denied(format!("Consul at {agent} knows no such namespace or partition ({said})"))
    } else if says("No path to datacenter") {
        StoreError::denied(format!("Consul at {agent} knows no such datacenter"))
    } else if says("Invalid Session T") || says("invalid Session T") {
        StoreError::denied(format!(
            "Consul at {agent} keeps no session of that length ({said}): use a longer lease, or set session_ttl_min on its servers"
        ))
    } else if says("No cluster leader") {
        StoreError::refused(format!("Consul at {agent} has no leader among its servers"))
    } else if says("Missing node registration") || says("Missing check") || says("is in critical state") {
        StoreError::refused(format!("Consul at {agent} makes no session: {said}"))
    } else if status == 413 {
        StoreError::denied(format!("Consul at {agent} takes nothing as large as this: write less metadata ({said})"))
    } else if status == 429 {
        StoreError::refused(format!("Consul at {agent} limits how much is asked of it ({said})"))
    } else if status == 404 && !says("Session id") {
        not_consul(agent)
    } else if status < 500 {
        StoreError::denied(format!("Consul at {agent} refuses this ({status}): {said}"))
    } else {
        StoreError::unknown(format!("Consul at {agent} failed ({status}): {said}"))
    }
}

/// What answers is something else.
pub(crate) fn not_consul(agent: &str) -> StoreError {
    StoreError::denied(format!("{agent} does not speak Consul's HTTP interface: see that the port is right"))
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    #[test]
    fn what_servers_say_is_told_apart() {
        for (status, body, fault, told) in [
            (403, "Permission denied", Fault::Denied, "key_prefix \"tenure/\""),
            (500, "rpc error making call: Permission denied", Fault::Denied, "does not permit"),
            (403, "ACL not found", Fault::Denied, "no such token"),
            (400, "Client sent an HTTP request to an HTTPS server.\n", Fault::Denied, "consuls://"),
            (
                400,
                "Bad request: Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature",
                Fault::Denied,
                "Enterprise",
            ),
            (500, "No path to datacenter", Fault::Denied, "no such datacenter"),
            (500, "Invalid Session TTL '500000000', must be between [10s=24h0m0s]", Fault::Denied, "longer lease"),
            (500, "No cluster leader", Fault::Refused, "no leader"),
            (413, "Request body(900048 bytes) too large", Fault::Denied, "as large"),
            (429, "Your IP is issuing too many concurrent connections", Fault::Refused, "limits"),
            (404, "404 page not found", Fault::Denied, "does not speak"),
            (405, "method PUT not allowed", Fault::Denied, "refuses this (405)"),
            (500, "leadership lost while committing log", Fault::Unknown, "failed (500)"),
            (502, "Bad Gateway", Fault::Unknown, "failed (502)"),
        ] {
            let error = of_status("host:8500", "tenure", status, body);
            assert_eq!(error.fault(), fault, "{body}");
            assert!(error.to_string().contains(told), "{body}: {error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
