//! Errors of servers, log-ins and tables: each is one clear line, and none shows a password.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tenure_core::{
    Board, Candidate, Elections, EventKind, Fault, Incarnation, Record, SeatName, SeatStore, SingleSeat, StoreError,
    Swap, Token, record,
};
use tenure_postgres::{PostgresOptions, PostgresStore, grants_sql, schema_sql};
use tenure_testkit::Lines;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Certificates, Folder, PgBouncer, Postgres, PostgresSetup, free_port};

#[test]
fn a_wrong_password_is_reported_and_not_shown() {
    let server = server();
    let url = |password: &str| format!("postgres://keyed{password}@{}/postgres", server.address());
    let error = read_error(&url(":hunter2"), Fault::Denied);
    assert!(error.contains("password authentication failed for user \"keyed\""), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = read_error(&url(""), Fault::Denied);
    assert!(error.contains("a password is required; give one: postgres://USER:PASSWORD@HOST"), "{error}");
    works(&url(":right"));
    let options = PostgresOptions { url: url(":hunter2"), password: Some("right".into()), ..Default::default() };
    run(single_seat(PostgresStore::new(options)).read(&seat("x"))).unwrap();
}

#[test]
fn an_unknown_database_is_reported() {
    let server = server();
    let error = read_error(&format!("postgres://postgres@{}/nowhere", server.address()), Fault::Denied);
    assert!(error.contains("database \"nowhere\" does not exist"), "{error}");
}

#[test]
fn an_unreachable_host_is_reported_once_and_within_the_time_out() {
    let port = free_port();
    let error = read_error(&format!("postgres://postgres@127.0.0.1:{port}/postgres"), Fault::Refused);
    let refused = format!("cannot connect to 127.0.0.1:{port}: connection refused; check host and port");
    assert!(error.starts_with(&refused), "{error}");
    let error = read_error("postgres://postgres@no-such-host.invalid/postgres", Fault::Refused);
    assert!(error.contains("cannot connect to no-such-host.invalid:5432; check the host"), "{error}");
    let error = read_error("postgres:///postgres?host=/no/such/folder", Fault::Refused);
    let missing = "cannot connect to /no/such/folder/.s.PGSQL.5432: the socket does not exist";
    assert!(error.starts_with(missing), "{error}");

    let server = server();
    let proxy = Proxy::start(server.address());
    proxy.black_hole(Way::Down);
    let url = format!("postgres://postgres@{}/postgres?connect_timeout=1", proxy.address());
    let error = read_error(&url, Fault::Unknown);
    assert!(error.contains("does not answer"), "{error}");

    // An election reports the error within the time of one attempt, and once, not at every attempt.
    let elections = Elections::new(PostgresStore::from_url(&url).unwrap());
    let began = Instant::now();
    let election = elections.election("x").lease(Duration::from_secs(3)).start().unwrap();
    run(async {
        let mut events = election.events();
        let mut errors = 0;
        let watched = tokio::time::timeout(Duration::from_secs(2), async {
            while let Some(event) = events.next().await {
                if let EventKind::Error { error } = event.kind {
                    errors += 1;
                    assert!(began.elapsed() < Duration::from_secs(1), "{error}");
                }
            }
        });
        assert!(watched.await.is_err(), "the election stopped");
        assert_eq!(errors, 1, "a server that does not answer was reported {errors} times");
    });
}

#[test]
fn a_server_of_another_protocol_is_reported() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR unknown command\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(answer.as_bytes());
                // Waits until the client closes the connection.
                let _ = stream.read(&mut [0; 64]);
            }
        });
        for sslmode in ["disable", "require"] {
            let error = read_error(&format!("postgres://a@{address}/b?sslmode={sslmode}"), Fault::Denied);
            assert!(error.contains("does not speak the PostgreSQL protocol"), "{error}");
        }
    }
}

#[test]
fn connections_are_encrypted_as_sslmode_says() {
    let server = server();
    let at =
        |host: &str, sslmode: &str| format!("postgres://encrypted@{host}:{}/postgres?sslmode={sslmode}", server.port());
    let error = read_error(&at("127.0.0.1", "disable"), Fault::Denied);
    assert!(error.contains("remove sslmode=disable"), "{error}");
    for sslmode in ["allow", "prefer", "require"] {
        works(&at("127.0.0.1", sslmode));
    }
    // A user that must connect without encryption can log in with the modes that do not require it.
    let unencrypted = |sslmode: &str| at("127.0.0.1", sslmode).replace("encrypted@", "plain@");
    for sslmode in ["disable", "allow", "prefer"] {
        works(&unencrypted(sslmode));
    }
    let error = read_error(&unencrypted("require"), Fault::Denied);
    assert!(error.contains("cannot log in to") && error.contains("pg_hba.conf"), "{error}");

    let root = server.folder().join("data/server.crt");
    let trusted = |host, sslmode| format!("{}&sslrootcert={}", at(host, sslmode), root.display());
    works(&trusted("localhost", "verify-full"));
    works(&trusted("127.0.0.1", "verify-ca"));
    let error = read_error(&trusted("127.0.0.1", "verify-full"), Fault::Denied);
    assert!(error.contains("cannot establish TLS") && error.contains("(sslmode=verify-full)"), "{error}");
    assert!(error.contains("certificate"), "{error}");
    let error = read_error(&format!("{}&sslrootcert=/no/such/file", at("127.0.0.1", "verify-ca")), Fault::Denied);
    assert!(error.contains("/no/such/file cannot be read: "), "{error}");
    // A file with a key where a certificate is expected.
    let key = server.folder().join("data/server.key");
    for (sslmode, parameter) in [("verify-full", "sslrootcert"), ("verify-ca", "sslrootcert"), ("require", "sslcert")] {
        let also = if parameter == "sslcert" { format!("&sslkey={}", key.display()) } else { String::new() };
        let url = format!("{}&{parameter}={}{also}", at("127.0.0.1", sslmode), key.display());
        let error = read_error(&url, Fault::Denied);
        assert!(error.contains(&format!("{} has no certificate in it", key.display())), "{parameter}: {error}");
    }

    let plain = Postgres::start();
    let error = read_error(&format!("{}?sslmode=require", plain.url()), Fault::Denied);
    assert!(error.contains("does not support TLS, but sslmode=require requires it"), "{error}");
    works(&format!("{}?sslmode=prefer", plain.url()));
    works(&format!("postgres://postgres@/postgres?host={}&port={}", plain.folder().display(), plain.port()));
}

#[test]
fn a_client_certificate_is_accepted() {
    let folder = Folder::new("certificates");
    let ours = Certificates::make(folder.path());
    let access = "hostssl all localhost 127.0.0.1/32 cert\nhost all all 127.0.0.1/32 trust";
    let setup = PostgresSetup::new().access(access).encrypts();
    let server = setup.with(format!("ssl_ca_file={}", ours.ca.display())).start();
    server.sql("CREATE ROLE localhost LOGIN SUPERUSER");
    let url = format!("postgres://localhost@{}/postgres?sslmode=require", server.address());
    let error = read_error(&url, Fault::Denied);
    assert!(error.contains("requires a valid client certificate"), "{error}");
    let error = read_error(&format!("{url}&sslcert={}", ours.cert.display()), Fault::Denied);
    assert!(error.contains("sslcert and sslkey must be given together"), "{error}");
    works(&format!("{url}&sslcert={}&sslkey={}", ours.cert.display(), ours.key.display()));
}

#[test]
fn a_standby_is_rejected_and_the_next_host_is_tried() {
    let primary = Postgres::start();
    works(&primary.url());
    let standby = PostgresSetup::new().standby_of(&primary).start();
    let error = read_error(&standby.url(), Fault::Denied);
    assert!(error.contains("is a standby and does not accept writes; name the primary"), "{error}");
    let both = format!("postgres://postgres@{},{}/postgres", standby.address(), primary.address());
    works(&both);
    for attributes in ["any", "read-write", "primary", "prefer-standby"] {
        works(&format!("{both}?target_session_attrs={attributes}"));
    }
    // If other hosts are named, which may start or be promoted, the error is not permanent.
    let dead = format!("127.0.0.1:{}", free_port());
    for hosts in [format!("{dead},{}", standby.address()), format!("{},{dead}", standby.address())] {
        read_error(&format!("postgres://postgres@{hosts}/postgres"), Fault::Refused);
    }
    let (one, port) = (standby.address(), standby.port());
    let error = read_error(&format!("postgres://postgres@{one},localhost:{port}/postgres"), Fault::Refused);
    assert!(error.contains("check that one of the hosts is the primary"), "{error}");
}

#[test]
fn silent_hosts_do_not_keep_a_later_host_from_being_reached() {
    let primary = Postgres::start();
    // The kernel accepts connections to these, and nothing answers on them.
    let silent = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, two] = silent.each_ref().map(|listener| listener.local_addr().unwrap());
    let began = Instant::now();
    works(&format!("postgres://postgres@{one},{two},{}/postgres?connect_timeout=60", primary.address()));
    assert!(began.elapsed() < Duration::from_secs(60), "the last host waited for the time-out of another one");
}

#[test]
fn a_read_only_role_is_reported() {
    let server = server();
    server.sql("ALTER ROLE reader SET default_transaction_read_only = on");
    let error = read_error(&format!("postgres://reader@{}/postgres", server.address()), Fault::Denied);
    assert!(error.contains("accepts only read-only transactions from this role"), "{error}");
}

#[test]
fn a_table_of_another_program_is_reported_and_not_changed() {
    let server = server();
    server.sql(
        "CREATE SCHEMA theirs; CREATE TABLE theirs.seats (row int, number int); INSERT INTO theirs.seats VALUES (1, 2)",
    );
    let error = read_error(&format!("{}?schema=theirs", server.url()), Fault::Denied);
    assert!(error.contains("\"theirs\".seats was not created by Tenure"), "{error}");
    assert_eq!(server.sql("SELECT * FROM theirs.seats"), "1|2");
}

#[test]
fn tables_of_a_newer_version_are_reported() {
    let server = server();
    let url = format!("{}?schema=newer", server.url());
    works(&url);
    server.sql("COMMENT ON TABLE newer.seats IS 'Tenure, version 99'");
    let error = read_error(&url, Fault::Denied);
    let newer = "newer version of Tenure (version 99, supported up to 1); upgrade this program";
    assert!(error.contains(newer), "{error}");
}

#[test]
fn if_the_role_cannot_create_tables_the_error_has_sql_that_is_sufficient() {
    let server = server();
    let url = format!("postgres://humble@{}/postgres?schema=made%20by%20hand", server.address());
    let error = read_error(&url, Fault::Denied);
    assert!(
        error.contains("permission denied") && error.contains("CREATE SCHEMA IF NOT EXISTS \"made by hand\""),
        "{error}"
    );
    let (_, sql) = error.split_once("`tenure schema postgres`: ").expect("the SQL comes last");
    server.sql(sql);
    server.sql(&schema_sql("made by hand"));
    works(&url);
    works(&format!("{url}&mode=session"));
}

#[test]
fn a_role_that_can_only_read_is_enough_to_look() {
    let server = server();
    let grants = include_str!("../README.md").lines().filter(|line| line.ends_with("TO looker;"));
    let grants = grants.collect::<Vec<_>>().join("\n");
    assert_eq!(grants.lines().count(), 2, "{grants}");
    server.sql("CREATE ROLE looker LOGIN; ALTER ROLE looker SET default_transaction_read_only = on");
    for mode in ["lease", "session"] {
        let url =
            |role: &str| format!("postgres://{role}@{}/postgres?mode={mode}&schema=look_{mode}", server.address());
        let looker = SingleSeat::new(PostgresStore::from_url(&url("looker")).unwrap().read_only());
        run(async {
            assert_eq!(looker.list_seats().await.unwrap(), []);
            assert_eq!(looker.read(&seat("jobs")).await.unwrap().seat, None);
            assert_eq!(looker.notes().unwrap().list_one(&Board::Candidates(seat("jobs"))).await.unwrap(), []);
        });
        assert_eq!(server.sql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = 'look_{mode}'")), "0");
        works(&url("postgres"));
        server.sql(&grants.replace("SCHEMA tenure", &format!("SCHEMA look_{mode}")));
        run(async {
            assert_eq!(looker.list_seats().await.unwrap().len(), 1);
            let name = looker.list_seats().await.unwrap().remove(0);
            let held = looker.read(&name).await.unwrap().seat.unwrap();
            assert_eq!(looker.notes().unwrap().list_one(&Board::Candidates(name.clone())).await.unwrap(), []);
            assert!(looker.swap(&name, Some(&held.version), &held.record).await.is_err());
        });
        // A store that was made read only does not write, although its role could.
        let reader = SingleSeat::new(PostgresStore::from_url(&url("postgres")).unwrap().read_only());
        let error = run(reader.swap(&seat("new"), None, &held(1))).unwrap_err().to_string();
        assert!(error.contains("read-only transaction"), "{error}");
    }
}

#[test]
fn a_role_that_cannot_read_the_timeline_or_the_cluster_can_lead() {
    let server = Postgres::start();
    server.sql("CREATE ROLE humble LOGIN; GRANT CREATE ON DATABASE postgres TO humble");
    let url = format!("postgres://humble@{}/postgres", server.address());
    for (function, warnings) in [("pg_control_system()", 0), ("pg_walfile_name(pg_lsn)", 1)] {
        server.sql(&format!("REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC"));
        for mode in ["lease", "session"] {
            let lines = Lines::default();
            // A store warns once, however many connections it opens.
            tracing::subscriber::with_default(lines.clone(), || works(&format!("{url}?mode={mode}")));
            let logged = lines.with("WARN");
            assert_eq!(logged.len(), warnings, "{function}: {logged:?}");
            let is_clear = |line: &String| line.contains("pg_walfile_name") && line.contains("humble");
            assert!(logged.iter().all(is_clear), "{logged:?}");
        }
    }
}

/// Without the timeline, tokens could be issued twice after a promotion. The store works without it only if the
/// role is not allowed to read it.
#[test]
fn a_timeline_that_cannot_be_read_for_another_reason_is_an_error() {
    let server = Postgres::start();
    server.sql(
        "CREATE SCHEMA before; CREATE FUNCTION before.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE plpgsql
         AS $$ BEGIN RAISE EXCEPTION 'out of patience' USING ERRCODE = 'query_canceled'; END $$;
         CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET search_path = before, pg_catalog",
    );
    let error = read_error(&format!("postgres://hasty@{}/postgres", server.address()), Fault::Refused);
    assert!(error.contains("out of patience"), "{error}");
}

#[test]
fn a_missing_table_is_created_or_the_error_says_how_to_create_it() {
    let server = server();
    let schema = "incomplete";
    server.sql(&schema_sql(schema));
    server.sql(&grants_sql(schema, "humble"));
    let url = |role: &str| format!("postgres://{role}@{}/postgres?schema={schema}", server.address());
    works(&url("humble"));
    for table in ["seats", "floors", "notes"] {
        run(async {
            let connected = single_seat(PostgresStore::from_url(&url("humble")));
            connected.read(&seat("jobs")).await.unwrap();
            connected.notes().unwrap().list_one(&Board::Candidates(seat("jobs"))).await.unwrap();
            server.sql(&format!("DROP TABLE {schema}.{table}"));
            // A call that needs the table fails on the existing connection. The next connection fails at its
            // handshake, unless only notes are missing.
            let (read, listed) = (
                connected.read(&seat("jobs")).await,
                connected.notes().unwrap().list_one(&Board::Candidates(seat("jobs"))).await,
            );
            let error = read.err().or(listed.err()).expect("a table is missing").to_string();
            assert!(error.contains(&format!("relation \"{schema}.{table}\" does not exist")), "{error}");
            assert!(error.contains("tenure schema postgres"), "{error}");
        });
        let error = match table {
            // A store with sessions opens two connections.
            "notes" => warning(&format!("{}&mode=session", url("humble"))),
            _ => read_error(&url("humble"), Fault::Denied),
        };
        assert!(error.contains("tables are missing in schema \"incomplete\""), "{table}: {error}");
        assert!(error.contains("tenure schema postgres"), "{table}: {error}");
        works(&url("postgres"));
        server.sql(&grants_sql(schema, "humble"));
        works(&url("humble"));
    }
}

#[test]
fn session_mode_rejects_a_pooler() {
    let server = server();
    let pooler = PgBouncer::before(&server);
    let url = format!("{}?mode=session", pooler.url());
    let error = read_error(&url, Fault::Denied);
    assert!(error.contains("a connection pooler (PgBouncer?)") && error.contains("use mode=lease"), "{error}");
    let swap = run(async { single_seat(PostgresStore::from_url(&url)).swap(&seat("x"), None, &held(1)).await });
    assert_eq!(swap.unwrap_err().fault(), Fault::Denied);
    works(&pooler.url());
}

#[test]
fn two_modes_on_one_seat_are_reported() {
    let server = server();
    let schema = format!("{}?schema=modes", server.url());
    run(async {
        let lease = single_seat(PostgresStore::from_url(&schema));
        let session = single_seat(PostgresStore::from_url(&format!("{schema}&mode=session")));
        let locked = single_seat(PostgresStore::from_url(&format!("{schema}&mode=session&lock_id=1337")));
        assert!(matches!(lease.swap(&seat("a"), None, &held(1)).await, Ok(Swap::Done { .. })));
        assert!(matches!(session.swap(&seat("b"), None, &held(1)).await, Ok(Swap::Done { .. })));
        assert!(matches!(locked.swap(&seat("c"), None, &held(1)).await, Ok(Swap::Done { .. })));
        let denied = |read: Result<tenure_core::Reading, StoreError>| read.unwrap_err().to_string();
        assert!(
            denied(session.read(&seat("a")).await).contains("held in mode=lease, but this program uses mode=session")
        );
        assert!(
            denied(lease.read(&seat("b")).await).contains("held in mode=session, but this program uses mode=lease")
        );
        assert!(denied(session.read(&seat("c")).await).contains("use the same lock_id in all candidates"));
        let second = locked.swap(&seat("d"), None, &held(1)).await.unwrap_err();
        assert!(second.to_string().contains("lock_id is the lock of one election"), "{second}");
    });
}

#[test]
fn a_lock_can_be_shared_with_another_program() {
    let server = server();
    let url = format!("{}?schema=shared&mode=session&lock_id=4711", server.url());
    run(async {
        let store = single_seat(PostgresStore::from_url(&url));
        let Swap::Done { version, .. } = store.swap(&seat("a"), None, &held(1)).await.unwrap() else { panic!("lost") };
        assert_eq!(server.sql("SELECT pg_try_advisory_lock(4711)"), "f");
        let vacant = Record { holder: None, nonce: rand::random(), ..held(1) };
        assert!(matches!(store.swap(&seat("a"), Some(&version), &vacant).await, Ok(Swap::Done { .. })));
        assert_eq!(server.sql("SELECT pg_try_advisory_lock(4711)"), "t");
    });
}

#[test]
fn a_record_that_tenure_did_not_write_is_reported_and_not_changed() {
    let server = server();
    let url = format!("{}?schema=records", server.url());
    works(&url);
    server.sql("UPDATE records.seats SET name = 'jobs', record = '\"mine\"'");
    let error = read_error(&url, Fault::Denied);
    assert!(error.contains("something that Tenure did not write"), "{error}");
    assert_eq!(server.sql("SELECT record FROM records.seats"), "\"mine\"");
    let newer = record::to_json(&held(1)).replace("\"v\":1", "\"v\":99");
    server.sql(&format!("UPDATE records.seats SET record = '{newer}'"));
    let error = read_error(&url, Fault::Denied);
    assert!(error.contains("newer version of Tenure"), "{error}");
    assert_eq!(server.sql("SELECT record FROM records.seats"), newer);
}

#[test]
fn a_store_opens_with_a_driver_configuration_or_with_pairs() {
    let server = server();
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.port()).user("keyed").password("right").dbname("postgres");
    let options = PostgresOptions { schema: Some("driver".into()), ..Default::default() };
    run(single_seat(PostgresStore::with_config(config.clone(), options.clone())).read(&seat("x"))).unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM driver.seats"), "0", "the options were ignored");
    config.password("hunter2");
    let error = run(single_seat(PostgresStore::with_config(config.clone(), options.clone())).read(&seat("x")));
    assert!(error.unwrap_err().to_string().contains("password authentication failed"));
    let options = PostgresOptions { password: Some("right".into()), ..options };
    run(single_seat(PostgresStore::with_config(config, options)).read(&seat("x"))).unwrap();
    let pairs = format!("host=127.0.0.1 port={} user=keyed password='right' dbname=postgres", server.port());
    run(single_seat(PostgresStore::new(PostgresOptions { url: pairs, ..Default::default() })).read(&seat("x")))
        .unwrap();
}

// -------------------------------------------------------------------------------------------------

/// Returns the server that all tests of this file share while they run.
fn server() -> Arc<Postgres> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(server) = server.upgrade() {
        return server;
    }
    let access = "host all keyed 127.0.0.1/32 scram-sha-256
                  hostssl all encrypted 127.0.0.1/32 trust
                  hostnossl all encrypted 127.0.0.1/32 reject
                  hostnossl all plain 127.0.0.1/32 trust
                  hostssl all plain 127.0.0.1/32 reject
                  host all all 127.0.0.1/32 trust";
    let started = Arc::new(PostgresSetup::new().access(access).encrypts().start());
    started.sql(
        "CREATE ROLE keyed LOGIN SUPERUSER PASSWORD 'right'; CREATE ROLE encrypted LOGIN SUPERUSER; CREATE ROLE plain LOGIN SUPERUSER;
         CREATE ROLE reader LOGIN SUPERUSER; CREATE ROLE humble LOGIN",
    );
    *server = Arc::downgrade(&started);
    started
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap()
}

fn single_seat(store: Result<PostgresStore, tenure_core::ConfigError>) -> SingleSeat {
    SingleSeat::new(store.unwrap())
}

/// Reads a seat, which must fail, and returns the message of the error.
fn read_error(url: &str, fault: Fault) -> String {
    run(async {
        let error = single_seat(PostgresStore::from_url(url)).read(&seat("jobs")).await.unwrap_err();
        assert_eq!(error.fault(), fault, "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        error.to_string()
    })
}

/// Takes a seat at this URL, which must log one warning. Returns the warning.
fn warning(url: &str) -> String {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || works(url));
    let logged = lines.with("WARN");
    assert_eq!(logged.len(), 1, "{logged:?}");
    logged[0].clone()
}

/// Takes a seat, to show that the store at this URL works.
fn works(url: &str) {
    run(async {
        let (store, seat) =
            (single_seat(PostgresStore::from_url(url)), seat(&format!("works-{}", rand::random::<u32>())));
        let reading = store.read(&seat).await.unwrap();
        assert!(reading.seat.is_none());
        let next = held(reading.floor.get() + 1);
        assert!(matches!(store.swap(&seat, None, &next).await.unwrap(), Swap::Done { .. }));
        let kept = store.read(&seat).await.unwrap().seat.unwrap().record;
        assert_eq!(kept, record::from_json(&record::to_json(&next)).unwrap());
    });
}

fn held(token: u64) -> Record {
    Record {
        nonce: rand::random(),
        ..Record::new(
            Some(Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) }),
            Token::new(token),
            Duration::from_secs(15),
        )
    }
}
