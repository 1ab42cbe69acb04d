//! Maps errors of Consul to messages that say what to do, and to faults that say whether the call took effect.

use tenure_core::StoreError;

/// Classifies an error that left a call without an answer.
pub(crate) fn from_transport(agent: &str, error: reqwest::Error) -> StoreError {
    let error = error.without_url();
    if error.is_builder() {
        StoreError::denied(format!("{agent} is not a valid address; use host:port"))
    } else if error.is_connect() {
        return tenure_kit::cannot_connect(agent, "the Consul agent", TLS_ADVICE, &error);
    } else if error.is_timeout() {
        StoreError::unknown(format!("{agent} did not answer in time"))
    } else {
        StoreError::unknown(format!("the connection to {agent} was lost before it answered"))
    }
    .because(error)
}

const TLS_ADVICE: &str = "check that it serves HTTPS (otherwise use consul://), and that its certificate is trusted \
     (?ca=FILE) and names this host (?tls_server_name=NAME)";

/// Classifies an answer with an error status.
pub(crate) fn from_status(agent: &str, prefix: &str, status: u16, body: &str) -> StoreError {
    let said: String = body.trim().lines().next().unwrap_or_default().chars().take(200).collect();
    let says = |words: &str| body.contains(words);
    if says("ACL not found") || says("ACL token not found") {
        StoreError::denied(format!("Consul at {agent} does not know the ACL token (ACL not found); check the token"))
    } else if status == 403 || says("Permission denied") {
        StoreError::denied(format!(
            "Consul at {agent} denied permission; the token needs write on key_prefix \"{prefix}/\" and session_prefix \
             \"\" ({said})"
        ))
    } else if says("HTTP request to an HTTPS server") {
        StoreError::denied(format!("{agent} serves HTTPS; use consuls://"))
    } else if says("Enterprise feature") {
        StoreError::denied(format!(
            "Consul at {agent} has no namespaces or partitions; they are a feature of Consul Enterprise"
        ))
    } else if says("Namespace") || says("Partition") {
        StoreError::denied(format!("Consul at {agent} does not have this namespace or partition ({said})"))
    } else if says("No path to datacenter") {
        StoreError::denied(format!("Consul at {agent} does not know this datacenter; check ?datacenter="))
    } else if says("Invalid Session T") || says("invalid Session T") {
        StoreError::denied(format!(
            "Consul at {agent} rejected the session TTL ({said}); use a longer lease, or set session_ttl_min on its \
             servers"
        ))
    } else if says("No cluster leader") {
        StoreError::refused(format!("Consul at {agent} has no leader; most of its servers are down or unreachable"))
    } else if says("Missing node registration") || says("Missing check") || says("is in critical state") {
        StoreError::refused(format!("Consul at {agent} cannot create a session: {said}"))
    } else if status == 413 {
        StoreError::denied(format!("Consul at {agent} rejected the request as too large ({said}); use less metadata"))
    } else if status == 429 {
        StoreError::refused(format!("Consul at {agent} limits the rate of requests ({said})"))
    } else if status == 404 && !says("Session id") {
        not_consul(agent)
    } else if status < 500 {
        StoreError::denied(format!("Consul at {agent} rejected the call ({status}): {said}"))
    } else {
        StoreError::unknown(format!("the call to Consul at {agent} failed ({status}): {said}"))
    }
}

/// Returns the error for a server that is not Consul.
pub(crate) fn not_consul(agent: &str) -> StoreError {
    StoreError::denied(format!("{agent} did not answer as Consul's HTTP API does; check the port"))
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    #[test]
    fn each_error_of_a_server_has_its_fault_and_its_advice() {
        for (status, body, fault, expected) in [
            (403, "Permission denied", Fault::Denied, "key_prefix \"tenure/\""),
            (500, "rpc error making call: Permission denied", Fault::Denied, "denied permission"),
            (403, "ACL not found", Fault::Denied, "does not know the ACL token"),
            (400, "Client sent an HTTP request to an HTTPS server.\n", Fault::Denied, "consuls://"),
            (
                400,
                "Bad request: Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature",
                Fault::Denied,
                "Enterprise",
            ),
            (500, "No path to datacenter", Fault::Denied, "does not know this datacenter"),
            (500, "Invalid Session TTL '500000000', must be between [10s=24h0m0s]", Fault::Denied, "longer lease"),
            (500, "No cluster leader", Fault::Refused, "no leader"),
            (413, "Request body(900048 bytes) too large", Fault::Denied, "too large"),
            (429, "Your IP is issuing too many concurrent connections", Fault::Refused, "limits the rate"),
            (404, "404 page not found", Fault::Denied, "check the port"),
            (405, "method PUT not allowed", Fault::Denied, "rejected the call (405)"),
            (500, "leadership lost while committing log", Fault::Unknown, "failed (500)"),
            (502, "Bad Gateway", Fault::Unknown, "failed (502)"),
        ] {
            let error = from_status("host:8500", "tenure", status, body);
            assert_eq!(error.fault(), fault, "{body}");
            assert!(error.to_string().contains(expected), "{body}: {error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
