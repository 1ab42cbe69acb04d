//! PgBouncer, a connection pooler.

use std::net::TcpStream;

use super::{Folder, Launch, Postgres, Process, free_port};

/// A PgBouncer in front of a PostgreSQL server, in transaction mode: each transaction runs on any free session.
#[derive(Debug)]
pub struct PgBouncer {
    /// The process of the pooler, which a test can signal.
    pub process: Process,
    _folder: Folder,
    port: u16,
}

impl PgBouncer {
    /// Starts a pooler in front of this server.
    ///
    /// # Panics
    /// If PgBouncer is not installed, or does not start.
    pub fn before(server: &Postgres) -> Self {
        let folder = Folder::new("pgbouncer");
        let (config, users, log) =
            (folder.path().join("pgbouncer.ini"), folder.path().join("users"), folder.path().join("log"));
        std::fs::write(&users, "\"postgres\" \"\"\n").expect("a file of this process");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
                 max_client_conn = 1000\ndefault_pool_size = 8\n",
                server.port(),
                users.display()
            );
            std::fs::write(&config, text).expect("a file of this process");
            let launch = Launch::new("pgbouncer", "pgbouncer").as_user("postgres").arg(&config);
            let mut process = Process::spawn(launch, &log);
            let ready = process.try_wait_until(&mut || TcpStream::connect(("127.0.0.1", port)).is_ok());
            match ready {
                Ok(()) => return Self { process, _folder: folder, port },
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("pgbouncer {why}\n{}", process.output()),
            }
        }
    }

    /// Kills the pooler and starts it again on the same port.
    pub fn restart(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("the pooler accepts connections", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Returns the port of the pooler on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a store behind the pooler.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}
