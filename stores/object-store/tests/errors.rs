//! Wrong keys, wrong clocks, wrong buckets and servers that do not answer: one line that says what to do, and no hang.

mod support;

use std::time::Duration;

use support::{acted_above, error_of, open, record, seat, stand, told, within};
use tenure_core::{EventKind, Fault, SeatStore, Swap};
use tenure_object_store::BucketStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::{S3, S3Setup, free_port};

/// Returns the URL of a store with this key.
fn url(server: &S3, key: &str, secret: &str) -> String {
    let keys = format!("access_key_id={key}&secret_access_key={secret}");
    format!("s3://jobs?endpoint=http://{}&region=us-east-1&{keys}", server.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_are_reported_and_never_shown_and_the_right_one_works() {
    let server = S3Setup::new().with_users().start();
    let (key, secret) = server.add_user("jobs");
    let wrong_secret = error_of(&url(&server, &key, "hunter2")).await;
    assert_eq!(wrong_secret.fault(), Fault::Denied);
    let text = told(&wrong_secret);
    assert!(text.contains("rejected the key; check it: 403 SignatureDoesNotMatch"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains(&secret) && !text.contains('\n'), "{text}");
    let wrong_key = error_of(&url(&server, "AKIAIOSFODNN7EXAMPLE", &secret)).await;
    assert_eq!(wrong_key.fault(), Fault::Denied);
    assert!(told(&wrong_key).contains("rejected the key; check it: 403 InvalidAccessKeyId"), "{}", told(&wrong_key));
    let store = open(&url(&server, &key, &secret));
    let swap = within("the write is answered", store.swap(&seat(), None, &record(1))).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_in_mid_term_ends_the_term_and_another_candidate_takes_over() {
    let (server, detector, lease) =
        (S3Setup::new().with_users().start(), OverlapDetector::new(), Duration::from_secs(3));
    let (key, secret) = server.add_user("one");
    let (other_key, other_secret) = server.add_user("other");
    let mut one = stand(&url(&server, &key, &secret), "one", lease, &detector);
    let first = one.leads().await;
    let _other = stand(&url(&server, &other_key, &other_secret), "other", lease, &detector);
    server.turn_key("one", &key, false);
    let (error, lost) = one.is_denied_and_loses().await;
    assert!(error.contains("rejected the key") && !error.contains(&secret), "{error}");
    assert_eq!(lost, first);
    acted_above(&detector, first).await;
    server.turn_key("one", &key, true);
    one.event("the recovery is reported", |event| matches!(event, EventKind::Recovered).then_some(())).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test]
async fn a_request_from_a_host_with_a_wrong_clock_is_reported_as_such() {
    let server = S3Setup::new().with_users().clock("-1h").start();
    let (key, secret) = server.add_user("jobs");
    let error = error_of(&url(&server, &key, &secret)).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(
        error.to_string().contains("rejected the time of the request; set the clock of this host"),
        "{}",
        told(&error)
    );
}

#[tokio::test]
async fn a_missing_bucket_is_reported_by_its_name_for_reads_and_writes() {
    let server = S3::start();
    let url = server.url().replace("s3://jobs?", "s3://missing?");
    let error = error_of(&url).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("s3://missing does not exist"), "{}", told(&error));
    let error = open(&url).swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("s3://missing does not exist"), "{}", told(&error));
    let error = SeatStore::list_seats(&open(&url)).await.unwrap_err();
    assert!(error.to_string().contains("s3://missing does not exist"), "{}", told(&error));
}

#[tokio::test]
async fn a_server_that_does_not_run_is_reported_and_nothing_was_sent() {
    let url = S3::url_at(&format!("127.0.0.1:{}", free_port()));
    let error = error_of(&url).await;
    assert_eq!(error.fault(), Fault::Refused);
    assert!(error.to_string().contains("cannot connect to s3://jobs: connection refused"), "{}", told(&error));
    let error = open(&url).swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Refused);
}

/// Reads the seat in a process with these variables, and returns what it prints.
fn read_with(url: &str, variables: &[(&str, &str)]) -> String {
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "child", "--nocapture"]).env("TENURE_TEST_URL", url).envs(variables.iter().copied());
    String::from_utf8(process.output().unwrap().stdout).unwrap()
}

/// Reads the seat, if this process was started for that.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var("TENURE_TEST_URL") else { return };
    match BucketStore::from_url(&url) {
        Ok(store) => match within("the read is answered", SeatStore::read(&store, &seat())).await {
            Ok(reading) => println!("read: {:?}", reading.seat),
            Err(error) => println!("error: {}", told(&error)),
        },
        Err(error) => println!("error: {error}"),
    }
}

#[test]
fn variables_give_the_endpoint_and_the_key_and_options_go_before_them() {
    let server = S3::start();
    let (there, nowhere) = (format!("http://{}", server.address()), format!("http://127.0.0.1:{}", free_port()));
    let key = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
    let from_variables = |variable| read_with("s3://jobs", &[key[0], key[1], (variable, &there)]);
    assert!(from_variables("AWS_ENDPOINT_URL").contains("read: None"), "{}", from_variables("AWS_ENDPOINT_URL"));
    assert!(from_variables("AWS_ENDPOINT_URL_S3").contains("read: None"), "{}", from_variables("AWS_ENDPOINT_URL_S3"));
    let elsewhere = [("AWS_ENDPOINT_URL", nowhere.as_str()), ("AWS_ENDPOINT_URL_S3", &nowhere)];
    let told = read_with(&server.url(), &elsewhere);
    assert!(told.contains("read: None"), "the option endpoint has no effect: {told}");
}

#[test]
fn variables_that_the_driver_cannot_use_are_reported_and_do_not_panic() {
    let url = format!("s3://jobs?endpoint=http://127.0.0.1:{}", free_port());
    let key = [("AWS_ACCESS_KEY_ID", "hunter2\n"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
    let told = read_with(&url, &key);
    assert!(told.contains("error: an AWS_ variable has a space, a line break"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    let told = read_with("s3://jobs", &[("AWS_ENDPOINT_URL", "localhost:9000")]);
    assert!(told.contains("error: an AWS_ variable has a space, a line break or an invalid URL"), "{told}");
    let file = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent"), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/jobs")];
    let told = read_with(&url, &file);
    assert!(told.contains("error: cannot get credentials for s3://jobs; give them"), "{told}");
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_an_error_and_not_an_empty_seat() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"-ERR unknown command\r\n").await;
        }
    });
    let error = error_of(&S3::url_at(&address)).await;
    assert_eq!(error.fault(), Fault::Unknown);
    assert!(error.to_string().contains("did not answer before the connection was lost"), "{}", told(&error));
}
