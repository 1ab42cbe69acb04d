//! What can be wrong with a server, a log-in or a table: each is one clear error, and no password shows.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tenure_core::{
    Board, Candidate, Elections, Event, Fault, Incarnation, Record, SeatName, SeatStore, SingleSeat, StoreError, Swap,
    Token, record,
};
use tenure_postgres::{PostgresOptions, PostgresStore, grants_sql, schema_sql};
use tenure_testkit::Lines;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Certificates, Folder, PgBouncer, Postgres, PostgresSetup, free_port};

#[test]
fn a_wrong_password_is_told_without_showing_it() {
    let server = server();
    let url = |password: &str| format!("postgres://keyed{password}@{}/postgres", server.address());
    let error = fails(&url(":hunter2"), Fault::Denied);
    assert!(error.contains("password authentication failed for user \"keyed\""), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = fails(&url(""), Fault::Denied);
    assert!(error.contains("wants a password, and none was given"), "{error}");
    works(&url(":right"));
    let options = PostgresOptions { url: url(":hunter2"), password: Some("right".into()), ..Default::default() };
    run(one_by_one(PostgresStore::new(options)).read(&seat("x"))).unwrap();
}

#[test]
fn an_unknown_database_is_told() {
    let server = server();
    let error = fails(&format!("postgres://postgres@{}/nowhere", server.address()), Fault::Denied);
    assert!(error.contains("database \"nowhere\" does not exist"), "{error}");
}

#[test]
fn a_host_that_cannot_be_reached_is_told_and_given_up_in_time() {
    let port = free_port();
    let error = fails(&format!("postgres://postgres@127.0.0.1:{port}/postgres"), Fault::Refused);
    assert_eq!(error, format!("no server listens at 127.0.0.1:{port}"));
    let error = fails("postgres://postgres@no-such-host.invalid/postgres", Fault::Refused);
    assert!(error.contains("no-such-host.invalid:5432 cannot be reached"), "{error}");
    let error = fails("postgres:///postgres?host=/no/such/folder", Fault::Refused);
    assert!(error.contains("no server listens at /no/such/folder/.s.PGSQL.5432"), "{error}");

    let server = server();
    let proxy = Proxy::start(server.address());
    proxy.black_hole(Way::Down);
    let url = format!("postgres://postgres@{}/postgres?connect_timeout=1", proxy.address());
    let error = fails(&url, Fault::Unknown);
    assert!(error.contains("does not answer"), "{error}");

    // Through an election: told within the time of one attempt, and once, not at every attempt.
    let elections = Elections::new(PostgresStore::at(&url).unwrap());
    let began = Instant::now();
    let election = elections.election("x").lease(Duration::from_secs(3)).start().unwrap();
    run(async {
        let mut events = election.events();
        let mut errors = 0;
        let watched = tokio::time::timeout(Duration::from_secs(2), async {
            while let Some(event) = events.next().await {
                if let Event::Error { error } = event {
                    errors += 1;
                    assert!(began.elapsed() < Duration::from_secs(1), "{error}");
                }
            }
        });
        assert!(watched.await.is_err(), "the election goes on");
        assert_eq!(errors, 1, "a server that does not answer was told of again and again");
    });
}

#[test]
fn a_server_of_another_protocol_is_told() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR unknown command\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(answer.as_bytes());
                // Until the other end hangs up.
                let _ = stream.read(&mut [0; 64]);
            }
        });
        for sslmode in ["disable", "require"] {
            let error = fails(&format!("postgres://a@{address}/b?sslmode={sslmode}"), Fault::Denied);
            assert!(error.contains("does not speak PostgreSQL's protocol"), "{error}");
        }
    }
}

#[test]
fn encryption_is_as_sslmode_says() {
    let server = server();
    let at =
        |host: &str, sslmode: &str| format!("postgres://encrypted@{host}:{}/postgres?sslmode={sslmode}", server.port());
    let error = fails(&at("127.0.0.1", "disable"), Fault::Denied);
    assert!(error.contains("sslmode=disable is in the way"), "{error}");
    for sslmode in ["allow", "prefer", "require"] {
        works(&at("127.0.0.1", sslmode));
    }
    // Who is to come in plain is let in by those that do not insist.
    let plainly = |sslmode: &str| at("127.0.0.1", sslmode).replace("encrypted@", "plain@");
    for sslmode in ["disable", "allow", "prefer"] {
        works(&plainly(sslmode));
    }
    let error = fails(&plainly("require"), Fault::Denied);
    assert!(error.contains("does not let us in") && error.contains("pg_hba.conf"), "{error}");

    let root = server.folder().join("data/server.crt");
    let trusted = |host, sslmode| format!("{}&sslrootcert={}", at(host, sslmode), root.display());
    works(&trusted("localhost", "verify-full"));
    works(&trusted("127.0.0.1", "verify-ca"));
    let error = fails(&trusted("127.0.0.1", "verify-full"), Fault::Denied);
    assert!(error.contains("as sslmode=verify-full wants it") && error.contains("certificate"), "{error}");
    let error = fails(&format!("{}&sslrootcert=/no/such/file", at("127.0.0.1", "verify-ca")), Fault::Denied);
    assert!(error.contains("/no/such/file cannot be read: "), "{error}");
    // A key in place of a certificate.
    let key = server.folder().join("data/server.key");
    for (sslmode, parameter) in [("verify-full", "sslrootcert"), ("verify-ca", "sslrootcert"), ("require", "sslcert")] {
        let also = if parameter == "sslcert" { format!("&sslkey={}", key.display()) } else { String::new() };
        let url = format!("{}&{parameter}={}{also}", at("127.0.0.1", sslmode), key.display());
        let error = fails(&url, Fault::Denied);
        assert!(error.contains(&format!("{} has no certificate in it", key.display())), "{parameter}: {error}");
    }

    let plain = Postgres::start();
    let error = fails(&format!("{}?sslmode=require", plain.url()), Fault::Denied);
    assert!(error.contains("does not encrypt, but sslmode=require wants it"), "{error}");
    works(&format!("{}?sslmode=prefer", plain.url()));
    works(&format!("postgres://postgres@/postgres?host={}&port={}", plain.folder().display(), plain.port()));
}

#[test]
fn a_certificate_of_our_own_lets_us_in() {
    let folder = Folder::new("certificates");
    let ours = Certificates::make(folder.path());
    let access = "hostssl all localhost 127.0.0.1/32 cert\nhost all all 127.0.0.1/32 trust";
    let setup = PostgresSetup::new().access(access).encrypts();
    let server = setup.with(format!("ssl_ca_file={}", ours.ca.display())).start();
    server.sql("CREATE ROLE localhost LOGIN SUPERUSER");
    let url = format!("postgres://localhost@{}/postgres?sslmode=require", server.address());
    let error = fails(&url, Fault::Denied);
    assert!(error.contains("requires a valid client certificate"), "{error}");
    let error = fails(&format!("{url}&sslcert={}", ours.cert.display()), Fault::Denied);
    assert!(error.contains("sslcert and sslkey go together"), "{error}");
    works(&format!("{url}&sslcert={}&sslkey={}", ours.cert.display(), ours.key.display()));
}

#[test]
fn a_standby_is_refused_and_the_next_host_is_tried() {
    let primary = Postgres::start();
    works(&primary.url());
    let standby = PostgresSetup::new().standby_of(&primary).start();
    let error = fails(&standby.url(), Fault::Denied);
    assert!(error.contains("is a standby and cannot be written to: name the primary"), "{error}");
    let both = format!("postgres://postgres@{},{}/postgres", standby.address(), primary.address());
    works(&both);
    for attributes in ["any", "read-write", "primary", "prefer-standby"] {
        works(&format!("{both}?target_session_attrs={attributes}"));
    }
    // Where others are named that may come up, or be promoted, it is not for ever.
    let dead = format!("127.0.0.1:{}", free_port());
    for hosts in [format!("{dead},{}", standby.address()), format!("{},{dead}", standby.address())] {
        fails(&format!("postgres://postgres@{hosts}/postgres"), Fault::Refused);
    }
    let (one, port) = (standby.address(), standby.port());
    let error = fails(&format!("postgres://postgres@{one},localhost:{port}/postgres"), Fault::Refused);
    assert!(error.contains("is there a primary?"), "{error}");
}

#[test]
fn a_role_that_may_only_read_is_told() {
    let server = server();
    server.sql("ALTER ROLE reader SET default_transaction_read_only = on");
    let error = fails(&format!("postgres://reader@{}/postgres", server.address()), Fault::Denied);
    assert!(error.contains("is read-only for us"), "{error}");
}

#[test]
fn a_table_of_another_program_is_told_and_left_alone() {
    let server = server();
    server.sql(
        "CREATE SCHEMA theirs; CREATE TABLE theirs.seats (row int, number int); INSERT INTO theirs.seats VALUES (1, 2)",
    );
    let error = fails(&format!("{}?schema=theirs", server.url()), Fault::Denied);
    assert!(error.contains("\"theirs\".seats is not of Tenure's making"), "{error}");
    assert_eq!(server.sql("SELECT * FROM theirs.seats"), "1|2");
}

#[test]
fn tables_of_a_newer_version_are_left_alone() {
    let server = server();
    let url = format!("{}?schema=newer", server.url());
    works(&url);
    server.sql("COMMENT ON TABLE newer.seats IS 'Tenure, version 99'");
    let error = fails(&url, Fault::Denied);
    assert!(error.contains("newer version of Tenure (99, known up to 1): upgrade this program"), "{error}");
}

#[test]
fn where_tables_may_not_be_made_the_error_has_the_sql_and_that_sql_is_enough() {
    let server = server();
    let url = format!("postgres://humble@{}/postgres?schema=made%20by%20hand", server.address());
    let error = fails(&url, Fault::Denied);
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
fn a_role_that_may_not_ask_for_the_timeline_or_the_cluster_can_lead() {
    let server = Postgres::start();
    server.sql("CREATE ROLE humble LOGIN; GRANT CREATE ON DATABASE postgres TO humble");
    let url = format!("postgres://humble@{}/postgres", server.address());
    for (function, warnings) in [("pg_control_system()", 0), ("pg_walfile_name(pg_lsn)", 1)] {
        server.sql(&format!("REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC"));
        for mode in ["lease", "session"] {
            let lines = Lines::default();
            // Once for a store, however many connections it opens.
            tracing::subscriber::with_default(lines.clone(), || works(&format!("{url}?mode={mode}")));
            let told = lines.with("WARN");
            assert_eq!(told.len(), warnings, "{function}: {told:?}");
            assert!(told.iter().all(|line| line.contains("pg_walfile_name") && line.contains("humble")), "{told:?}");
        }
    }
}

/// Without the timeline, tokens could be given out twice after a promotion: only a role that is not allowed to ask
/// for it does without.
#[test]
fn a_timeline_that_cannot_be_read_for_another_reason_is_an_error() {
    let server = Postgres::start();
    server.sql(
        "CREATE SCHEMA before; CREATE FUNCTION before.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE plpgsql
         AS $$ BEGIN RAISE EXCEPTION 'out of patience' USING ERRCODE = 'query_canceled'; END $$;
         CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET search_path = before, pg_catalog",
    );
    let error = fails(&format!("postgres://hasty@{}/postgres", server.address()), Fault::Refused);
    assert!(error.contains("out of patience"), "{error}");
}

#[test]
fn a_table_that_is_missing_is_made_and_where_it_may_not_be_the_error_says_how() {
    let server = server();
    let schema = "incomplete";
    server.sql(&schema_sql(schema));
    server.sql(&grants_sql(schema, "humble"));
    let url = |role: &str| format!("postgres://{role}@{}/postgres?schema={schema}", server.address());
    works(&url("humble"));
    for table in ["seats", "floors", "notes"] {
        run(async {
            let connected = one_by_one(PostgresStore::at(&url("humble")));
            connected.read(&seat("jobs")).await.unwrap();
            connected.notes().unwrap().list_one(&Board::Candidates(seat("jobs"))).await.unwrap();
            server.sql(&format!("DROP TABLE {schema}.{table}"));
            // On the connection that is there, if the call needs the table; then on the next one.
            let (read, listed) = (
                connected.read(&seat("jobs")).await,
                connected.notes().unwrap().list_one(&Board::Candidates(seat("jobs"))).await,
            );
            let error = read.err().or(listed.err()).expect("a table is missing").to_string();
            assert!(error.contains(&format!("relation \"{schema}.{table}\" does not exist")), "{error}");
            assert!(error.contains("tenure schema postgres"), "{error}");
        });
        let error = fails(&url("humble"), Fault::Denied);
        assert!(error.contains("tables are missing in the schema \"incomplete\""), "{table}: {error}");
        assert!(error.contains("tenure schema postgres"), "{table}: {error}");
        works(&url("postgres"));
        server.sql(&grants_sql(schema, "humble"));
        works(&url("humble"));
    }
}

#[test]
fn a_pooler_before_session_mode_is_told() {
    let server = server();
    let pooler = PgBouncer::before(&server);
    let url = format!("{}?mode=session", pooler.url());
    let error = fails(&url, Fault::Denied);
    assert!(error.contains("a connection pooler (PgBouncer?)") && error.contains("use mode=lease"), "{error}");
    let swap = run(async { one_by_one(PostgresStore::at(&url)).swap(&seat("x"), None, &held(1)).await });
    assert_eq!(swap.unwrap_err().fault(), Fault::Denied);
    works(&pooler.url());
}

#[test]
fn two_modes_on_one_seat_are_told() {
    let server = server();
    let schema = format!("{}?schema=modes", server.url());
    run(async {
        let lease = one_by_one(PostgresStore::at(&schema));
        let session = one_by_one(PostgresStore::at(&format!("{schema}&mode=session")));
        let locked = one_by_one(PostgresStore::at(&format!("{schema}&mode=session&lock_id=1337")));
        assert!(matches!(lease.swap(&seat("a"), None, &held(1)).await, Ok(Swap::Done { .. })));
        assert!(matches!(session.swap(&seat("b"), None, &held(1)).await, Ok(Swap::Done { .. })));
        assert!(matches!(locked.swap(&seat("c"), None, &held(1)).await, Ok(Swap::Done { .. })));
        let denied = |read: Result<tenure_core::Reading, StoreError>| read.unwrap_err().to_string();
        assert!(denied(session.read(&seat("a")).await).contains("held in mode=lease, and this is mode=session"));
        assert!(denied(lease.read(&seat("b")).await).contains("held in mode=session, and this is mode=lease"));
        assert!(denied(session.read(&seat("c")).await).contains("give the same lock_id everywhere"));
        let second = locked.swap(&seat("d"), None, &held(1)).await.unwrap_err();
        assert!(second.to_string().contains("lock_id is one lock, for one election"), "{second}");
    });
}

#[test]
fn a_lock_can_be_shared_with_another_program() {
    let server = server();
    let url = format!("{}?schema=shared&mode=session&lock_id=4711", server.url());
    run(async {
        let store = one_by_one(PostgresStore::at(&url));
        let Swap::Done { version, .. } = store.swap(&seat("a"), None, &held(1)).await.unwrap() else { panic!("lost") };
        assert_eq!(server.sql("SELECT pg_try_advisory_lock(4711)"), "f");
        let vacant = Record { holder: None, nonce: rand::random(), ..held(1) };
        assert!(matches!(store.swap(&seat("a"), Some(&version), &vacant).await, Ok(Swap::Done { .. })));
        assert_eq!(server.sql("SELECT pg_try_advisory_lock(4711)"), "t");
    });
}

#[test]
fn a_record_that_is_not_ours_is_told_and_left_alone() {
    let server = server();
    let url = format!("{}?schema=records", server.url());
    works(&url);
    server.sql("UPDATE records.seats SET name = 'jobs', record = '\"mine\"'");
    let error = fails(&url, Fault::Denied);
    assert!(error.contains("something that Tenure did not write"), "{error}");
    assert_eq!(server.sql("SELECT record FROM records.seats"), "\"mine\"");
    let newer = record::to_json(&held(1)).replace("\"v\":1", "\"v\":99");
    server.sql(&format!("UPDATE records.seats SET record = '{newer}'"));
    let error = fails(&url, Fault::Denied);
    assert!(error.contains("newer version of Tenure"), "{error}");
    assert_eq!(server.sql("SELECT record FROM records.seats"), newer);
}

#[test]
fn the_drivers_own_configuration_and_pairs_lead_there_too() {
    let server = server();
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.port()).user("keyed").password("right").dbname("postgres");
    let options = PostgresOptions { schema: Some("driver".into()), ..Default::default() };
    run(one_by_one(PostgresStore::with_config(config.clone(), options.clone())).read(&seat("x"))).unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM driver.seats"), "0", "the options count, too");
    let error =
        run(one_by_one(PostgresStore::with_config(config.password("hunter2").clone(), options)).read(&seat("x")));
    assert!(error.unwrap_err().to_string().contains("password authentication failed"));
    let pairs = format!("host=127.0.0.1 port={} user=keyed password='right' dbname=postgres", server.port());
    run(one_by_one(PostgresStore::new(PostgresOptions { url: pairs, ..Default::default() })).read(&seat("x"))).unwrap();
}

// -------------------------------------------------------------------------------------------------

/// One server for all tests of this file that run at a time.
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

fn one_by_one(store: Result<PostgresStore, String>) -> SingleSeat {
    SingleSeat::new(store.unwrap())
}

/// What a reading says is wrong, in one line.
fn fails(url: &str, fault: Fault) -> String {
    run(async {
        let error = one_by_one(PostgresStore::at(url)).read(&seat("jobs")).await.unwrap_err();
        assert_eq!(error.fault(), fault, "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        error.to_string()
    })
}

/// Takes a seat.
fn works(url: &str) {
    run(async {
        let (store, seat) = (one_by_one(PostgresStore::at(url)), seat(&format!("works-{}", rand::random::<u32>())));
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
