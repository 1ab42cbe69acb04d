//! A minimal HTTP client for Consul's API, for tests.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Sends a request to an agent on a new connection, and returns the status and the body of the response.
pub(super) fn ask(port: u16, token: Option<&str>, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let token = token.map(|token| format!("X-Consul-Token: {token}\r\n")).unwrap_or_default();
    // HTTP/1.0, so that the body ends with the connection and is not chunked.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{token}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, said) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, said.to_owned()))
}

/// Returns the first field with this name in a JSON text, at any depth; empty if there is none.
pub(super) fn field(json: &str, name: &str) -> String {
    let rest = json.split_once(&format!("\"{name}\"")).map_or("", |(_, rest)| rest);
    let rest = rest.trim_start().trim_start_matches(':').trim_start();
    match rest.strip_prefix('"') {
        Some(text) => text.split('"').next().unwrap_or_default().to_owned(),
        None => rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let json = r#"[{ "LockIndex": 12, "Session" : "a-b", "Key":"k"}]"#;
        assert_eq!(["LockIndex", "Session", "Key", "None"].map(|name| field(json, name)), ["12", "a-b", "k", ""]);
    }
}
