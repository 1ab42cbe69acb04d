//! PgBouncer, a connection pooler.

use std::net::TcpStream;

use super::{Folder, Launch, Postgres, Process, free_port};

/// A PgBouncer before a PostgreSQL server, which hands each transaction to whichever session is free.
#[derive(Debug)]
pub struct PgBouncer {
    /// Its process.
    pub process: Process,
    _folder: Folder,
    port: u16,
}

impl PgBouncer {
    /// Starts one before this server.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn before(server: &Postgres) -> Self {
        let folder = Folder::new("pgbouncer");
        let (config, users, log) =
            (folder.path().join("pgbouncer.ini"), folder.path().join("users"), folder.path().join("log"));
        std::fs::write(&users, "\"postgres\" \"\"\n").expect("our own file");
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
            std::fs::write(&config, text).expect("our own file");
            let launch = Launch::new("pgbouncer", "pgbouncer").as_user("postgres").arg(&config);
            let mut process = Process::spawn(launch, &log);
            let ready = process.try_wait_until(&mut || TcpStream::connect(("127.0.0.1", port)).is_ok());
            match ready {
                Ok(()) => return Self { process, _folder: folder, port },
                // Somebody else may have been quicker to take the port.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("pgbouncer {why}\n{}", process.output()),
            }
        }
    }

    /// Kills it, and starts it again on the same port.
    pub fn restart(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("it answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}
