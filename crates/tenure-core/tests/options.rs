//! Where options come from, and what is said of those that make no sense.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{ElectionOptions, OnOverrun, Settings, TakeoverOption};

const NO_VARS: [(&str, &str); 0] = [];

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn code_goes_over_variables_over_the_file_over_defaults() {
    let file = r#"
        store = "memory:"
        lease = "30s"
        drain = "1s"
        give_up_after = 7
        metadata = { team = "billing" }

        [elections.nightly]
        lease = "60s"
        metadata = { zone = "a" }
    "#;
    let settings = Settings::from_toml(file)
        .unwrap()
        .with_vars([("TENURE_DRAIN", "3s"), ("TENURE_STORE", "redis://x"), ("PATH", "/bin")])
        .unwrap();
    assert_eq!(settings.store.as_deref(), Some("redis://x"));

    let nightly =
        settings.election("nightly").overlaid(ElectionOptions { give_up_after: Some(9), ..Default::default() });
    assert_eq!(nightly.lease, seconds(60));
    assert_eq!(nightly.drain, seconds(3));
    assert_eq!(nightly.give_up_after, Some(9));
    assert_eq!(nightly.metadata, BTreeMap::from([("team".into(), "billing".into()), ("zone".into(), "a".into())]));
    assert_eq!(settings.election("other").lease, seconds(30));
}

#[test]
fn every_option_can_be_given_in_a_file_and_in_a_variable() {
    let file: ElectionOptions = toml::from_str(
        r#"
        lease = "15s"
        renew_every = "5s"
        attempt = "1s"
        retry_every = "1s"
        retry_max = "5s"
        drain = "2s"
        stop_grace = "1m"
        drift = 0.01
        judge = "observe"
        takeover = "safe"
        candidate = "web-1"
        metadata = { zone = "a", rack = "7" }
        release_on_stop = false
        give_up_after = 3
        on_overrun = "abort"
        "#,
    )
    .unwrap();
    let vars = ElectionOptions::from_vars([
        ("TENURE_LEASE", "15s"),
        ("TENURE_RENEW_EVERY", "5s"),
        ("TENURE_ATTEMPT", "1s"),
        ("TENURE_RETRY_EVERY", "1s"),
        ("TENURE_RETRY_MAX", "5s"),
        ("TENURE_DRAIN", "2s"),
        ("TENURE_STOP_GRACE", "60s"),
        ("TENURE_DRIFT", "0.01"),
        ("TENURE_JUDGE", "observe"),
        ("TENURE_TAKEOVER", "safe"),
        ("TENURE_CANDIDATE", "web-1"),
        ("TENURE_METADATA", "zone=a, rack=7"),
        ("TENURE_RELEASE_ON_STOP", "false"),
        ("TENURE_GIVE_UP_AFTER", "3"),
        ("TENURE_ON_OVERRUN", "abort"),
    ])
    .unwrap();
    assert_eq!(file, vars);
    assert_eq!(file.takeover, Some(TakeoverOption::Safe));
    assert_eq!(file.on_overrun, Some(OnOverrun::Abort));
    // Nothing was left out above: what is written down again is all there is.
    let shown = serde_json::to_value(&file).unwrap();
    assert_eq!(shown.as_object().unwrap().len(), 15, "{shown}");
    assert_eq!(serde_json::from_value::<ElectionOptions>(shown).unwrap(), file);
    assert_eq!(serde_json::to_value(ElectionOptions::default()).unwrap(), serde_json::json!({}));
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest_name() {
    let file = |text: &str| Settings::from_toml(text).unwrap_err().to_string();
    assert!(file("leese = \"15s\"").contains("did you mean `lease`?"));
    assert!(file("[elections.x]\nrenew-every = \"5s\"").contains("did you mean `renew_every`?"));
    assert!(file("store = \"memory:\"\nretries = 3").contains("unknown option `retries`"));
    assert!(file("bananas = 1").contains("the options are lease, "));

    let vars = |name: &str| ElectionOptions::from_vars([(name, "1")]).unwrap_err().to_string();
    assert!(vars("TENURE_LEESE").contains("did you mean TENURE_LEASE?"));
    assert!(vars("TENURE_BANANAS").contains("TENURE_BANANAS"));
    let others = [("TENURE_TERM", "7"), ("TENURE_ELECTION", "x"), ("TENURE_TEST_ETCD", "x"), ("HOME", "/root")];
    assert_eq!(ElectionOptions::from_vars(others).unwrap(), ElectionOptions::default());
}

#[test]
fn a_bad_value_is_refused_with_what_to_write() {
    let file = |text: &str| {
        let error = Settings::from_toml(text).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(file("drift = 0.01\nlease = \"-5s\"").contains("line 2: "));
    assert!(file("lease = \"-5s\"").contains("negative"));
    assert!(file("lease = \"soon\"").contains("write it like \"15s\""));
    assert!(file("lease = 15").contains("string"));
    assert!(file("takeover = \"quick\"").contains("instant"));
    assert!(file("lease = \"15s").contains("line 1"), "{}", file("lease = \"15s"));
    assert!(file("elections = 3").contains("invalid type"), "{}", file("elections = 3"));
    let vars = |name: &str, value: &str| ElectionOptions::from_vars([(name, value)]).unwrap_err().to_string();
    assert!(vars("TENURE_DRIFT", "much").contains("TENURE_DRIFT: \"much\" is not a number"));
    assert!(vars("TENURE_RELEASE_ON_STOP", "perhaps").contains("neither true nor false"));
    assert!(vars("TENURE_METADATA", "zone").contains("key=value"));
    assert!(vars("TENURE_LEASE", "15").contains("write it like \"15s\""));
}

#[test]
fn a_missing_file_is_named() {
    let error = Settings::from_file("no/such/tenure.toml").unwrap_err().to_string();
    assert!(error.contains("cannot read no/such/tenure.toml"), "{error}");
    assert_eq!(Settings::default().with_vars(NO_VARS).unwrap(), Settings::default());
}
