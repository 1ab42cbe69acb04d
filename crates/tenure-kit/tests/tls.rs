//! Certificates and keys are read from PEM files, and errors name the file.

use std::path::Path;

use tenure_kit::tls::{self, Certificates, Identity, NEEDS_KEY};
use tenure_testkit::servers;

#[test]
fn files_are_read_and_errors_name_them() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tls");
    std::fs::create_dir_all(&folder).unwrap();
    let servers::Certificates { ca, cert, key } = servers::Certificates::make(&folder);
    let (missing, empty) = (Path::new("/no/such/file"), folder.join("empty.pem"));
    std::fs::write(&empty, "").unwrap();

    assert_eq!(tls::roots(Some(&ca), "?ca=FILE").unwrap().len(), 1);
    let identity = Identity::read(Some(&cert), Some(&key)).unwrap();
    assert!(!format!("{identity:?}").contains("key"), "the key is shown");
    let builder = tls::builder().unwrap().with_root_certificates(tls::roots(Some(&ca), "?ca=FILE").unwrap());
    assert!(tls::finish(builder.clone(), None).is_ok());
    assert!(tls::finish(builder.clone(), identity).unwrap().client_auth_cert_resolver.has_certs());
    assert!(Identity::read(None, None).unwrap().is_none());
    let other = Identity::read(Some(&ca), Some(&key)).unwrap();
    assert!(tls::finish(builder, other).unwrap_err().to_string().starts_with("cannot configure TLS: "));

    let of = |file: &Path, what: &str| format!("{} {what}", file.display());
    for (error, message) in [
        (Certificates::read(missing).unwrap_err(), of(missing, "cannot be read: No such file")),
        (Certificates::read(&key).unwrap_err(), of(&key, "has no certificate in it")),
        (tls::roots(Some(&empty), "?ca=FILE").unwrap_err(), of(&empty, "has no certificate in it")),
        (Identity::read(Some(&cert), Some(missing)).unwrap_err(), of(missing, "cannot be read: No such file")),
        (Identity::read(Some(&cert), Some(&ca)).unwrap_err(), of(&ca, "has no private key in it")),
        (Identity::read(Some(&cert), None).unwrap_err(), NEEDS_KEY.to_owned()),
        (Identity::read(None, Some(&key)).unwrap_err(), NEEDS_KEY.to_owned()),
    ] {
        let error = error.to_string();
        assert!(error.starts_with(&message) && !error.contains('\n'), "{error}");
    }
}
