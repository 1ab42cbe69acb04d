//! Counts the connections of a server, whatever its protocol.

/// Returns the number of open TCP connections of a server on this machine.
///
/// This reads the kernel's table of sockets, so it works for every server, even for a paused one, and opens no
/// connection itself. A connection that only the client has closed still counts, because it occupies the server. If a
/// test connects through a [`Proxy`](crate::proxy::Proxy), pass the server's own port.
///
/// A fault test calls this before and after a fault and expects the number to return to its bound:
///
/// ```
/// use tenure_testkit::servers::connections;
///
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let address = server.local_addr()?;
/// assert_eq!(connections(address.port()), 0);
/// let client = std::net::TcpStream::connect(address)?;
/// let (accepted, _) = server.accept()?;
/// assert_eq!(connections(address.port()), 1);
/// drop(client);
/// assert_eq!(connections(address.port()), 1, "the server has not closed its end");
/// drop(accepted);
/// assert_eq!(connections(address.port()), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn connections(port: u16) -> usize {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter(|line| is_open_at(line, port)).count()
}

/// Returns whether a line of the table is an open connection with this local port. The columns are a number, the local
/// address, the remote address and the state. Addresses and states are hexadecimal.
fn is_open_at(line: &str, port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    const CLOSE_WAIT: &str = "08";
    let columns: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, local, _, state] = columns[..] else { return false };
    local.ends_with(&format!(":{port:04X}")) && [ESTABLISHED, CLOSE_WAIT].contains(&state)
}
