//! URLs and connection strings: both have the same options, and errors never show a password.

use std::path::PathBuf;

use tenure_sqlserver::{Encrypt, Mode, Secret, SqlServerOptions, is_connection_string};

fn parse(text: &str) -> SqlServerOptions {
    SqlServerOptions::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_url_and_a_connection_string_have_the_same_options() {
    let expected = SqlServerOptions {
        hosts: vec!["db.example:1444".to_owned()],
        user: Some("app".to_owned()),
        password: Some(Secret("p;w'=}".to_owned())),
        database: "jobs".to_owned(),
        mode: Mode::Session,
        schema: "elections".to_owned(),
        encrypt: Encrypt::Strict,
        host_name_in_certificate: Some("sql".to_owned()),
        ca: Some(PathBuf::from("/etc/ca.pem")),
        connect_timeout: 7,
        ..SqlServerOptions::default()
    };
    for text in [
        "sqlserver://app:p%3Bw'=%7D@db.example:1444/jobs?mode=session&schema=elections&encrypt=strict\
         &hostNameInCertificate=sql&ca=/etc/ca.pem&connect_timeout=7",
        "mssql://app:p%3Bw'=%7D@db.example:1444/jobs?MODE=session&schema=elections&Encrypt=Strict\
         &host_name_in_certificate=sql&ca=%2Fetc%2Fca.pem&connection+timeout=7"
            .replace('+', " ")
            .as_str(),
        "Server=tcp:db.example,1444;Database=jobs;User Id=app;Password=\"p;w'=}\";Mode=Session;Schema=elections;\
         Encrypt=Strict;HostNameInCertificate=sql;CA=/etc/ca.pem;Connect Timeout=7",
        "  data source = db.example , 1444 ; initial catalog='jobs'; UID=app; PWD={p;w'=}}};; mode=session; \
         schema=elections; encrypt=strict; host name in certificate=sql; ca=/etc/ca.pem; timeout=7;",
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn the_strings_that_azure_and_drivers_hand_out_are_understood() {
    let azure = parse(
        "Server=tcp:example.database.windows.net,1433;Initial Catalog=app;Persist Security Info=False;User ID=app;\
         Password={secret};MultipleActiveResultSets=False;Encrypt=True;TrustServerCertificate=False;Connection Timeout=30;",
    );
    assert_eq!(azure.hosts, ["example.database.windows.net:1433"]);
    assert_eq!((azure.encrypt, azure.trust_server_certificate, azure.connect_timeout), (Encrypt::Mandatory, false, 30));
    assert_eq!(azure.password, Some(Secret("secret".to_owned())));
    let odbc = parse(
        "Driver={ODBC Driver 18 for SQL Server};Server=TCP:example.database.windows.net,1433;Database=app;Uid=app;\
         Pwd={secret};Encrypt=yes;TrustServerCertificate=no;Connection Timeout=30;",
    );
    assert_eq!(odbc, azure);
    let listener =
        parse("Server=tcp:listener,1433;Database=app;MultiSubnetFailover=True;Command Timeout=30;Enlist=false");
    assert_eq!(listener.hosts, ["listener:1433"]);
    for (text, encrypt) in [
        ("yes", Encrypt::Mandatory),
        ("Mandatory", Encrypt::Mandatory),
        ("no", Encrypt::Optional),
        ("false", Encrypt::Optional),
        ("optional", Encrypt::Optional),
        ("strict", Encrypt::Strict),
        ("disable", Encrypt::Disable),
    ] {
        assert_eq!(parse(&format!("Server=h;Database=d;Encrypt={text}")).encrypt, encrypt, "{text}");
    }
    assert_eq!(parse("Server=(local);Database=d;Trusted_Connection=no").hosts, ["localhost:1433"]);
    assert_eq!(parse("sqlserver://one,two:1444/d").hosts, ["one:1433", "two:1444"]);
    assert!(parse("sqlserver://h/d?TrustServerCertificate=true").trust_server_certificate);
}

#[test]
fn a_connection_string_is_not_taken_for_a_url() {
    for text in ["Server=h;Database=d", "database=d; data source = tcp:h,1", "Addr=h", "Network Address=h;Database=d"] {
        assert!(is_connection_string(text), "{text}");
    }
    for text in ["sqlserver://h/d", "postgres://h/d?server=x", "sqlite:a.db", "redis://u:p=1;Server=x@h", "", "server"]
    {
        assert!(!is_connection_string(text), "{text}");
    }
}

#[test]
fn invalid_options_are_reported_without_the_password() {
    for (text, why) in [
        ("sqlserver://u:hunter2@h", "no database is given"),
        ("sqlserver://u:hunter2@h/db?mode=fast", "mode must be lease or session"),
        ("sqlserver://u:hunter2@h/db?encrypt=maybe", "encrypt must be optional, mandatory, strict or disable"),
        ("sqlserver://u:hunter2@h/db?colour=green", "the options are database, user_id"),
        ("sqlserver://u:hunter2@h/db?encrpt=true", "did you mean encrypt?"),
        ("sqlserver://u:hunter2@h/db?schema=a&Schema=b", "is given twice"),
        ("sqlserver://u:hunter2@h/db?token_file=/t", "token_file replaces user and password"),
        ("sqlserver://u:hunter2@h:port/db", "port"),
        ("Server=h\\SQLEXPRESS;Database=d;Password=hunter2", "a named instance is not supported; write its port"),
        ("Server=h;Database=d;Integrated Security=SSPI;Password=hunter2", "use a SQL login, or token_file"),
        ("Server=h;Database=d;Password='hunter2", "no closing '"),
        ("Server=h;Database=d;Password=hunter2;oops", "a part of the connection string has no ="),
        (
            "Server=h;Database=d;Trust Server Certificate=yes;CA=/x;Password=hunter2",
            "accepts any certificate; remove it",
        ),
        ("postgres://u:hunter2@h/db", "begins with one of sqlserver://"),
    ] {
        let error = SqlServerOptions::parse(text).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("hunter2") && !error.contains('\n'), "{text}: {error}");
    }
}
