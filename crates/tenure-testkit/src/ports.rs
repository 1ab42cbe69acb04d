//! Free ports.

use std::net::TcpListener;

/// A port of 127.0.0.1 that nothing listens on. It is not one of those that the kernel gives to
/// outgoing connections, so a server that is down finds its port free when it comes back.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    (0..1000)
        .map(|_| 10_000 + rand::random::<u16>() % 20_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of a thousand ports is free")
}
