//! Free ports.

use std::net::TcpListener;

/// Returns a port of 127.0.0.1 that no process listens on. The kernel does not use this port for outgoing
/// connections, so a server that was down finds it free when it restarts.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    (0..1000)
        .map(|_| 10_000 + rand::random::<u16>() % 20_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of a thousand ports is free")
}
