//! The sources of options, and the errors for invalid ones.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{ElectionOptions, OnOverrun, Settings, Takeover};

const NO_VARS: [(&str, &str); 0] = [];

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn code_overrides_variables_which_override_the_file_which_overrides_defaults() {
    let file = r#"
        store = "memory:"
        lease = "30s"
        drain = "1s"
        give_up_after = "7m"
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
        settings.election("nightly").overlaid(ElectionOptions { give_up_after: seconds(90), ..Default::default() });
    assert_eq!(nightly.lease, seconds(60));
    assert_eq!(nightly.drain, seconds(3));
    assert_eq!(nightly.give_up_after, seconds(90));
    assert_eq!(nightly.metadata, BTreeMap::from([("team".into(), "billing".into()), ("zone".into(), "a".into())]));
    assert_eq!(settings.election("other").lease, seconds(30));
}

#[test]
fn every_option_can_be_set_in_a_file_and_by_a_variable() {
    let file: ElectionOptions = toml::from_str(
        r#"
        lease = "15s"
        renew_every = "5s"
        call_timeout = "1s"
        poll_every = "4s"
        retry_every = "1s"
        retry_max = "5s"
        drain = "2s"
        stop_grace = "1m"
        drift = 0.01
        clock_trust = "never"
        takeover = "safe"
        candidate = "web-1"
        metadata = { zone = "a", rack = "7" }
        release_on_stop = false
        give_up_after = "3m"
        priority = -7
        preempt = true
        min_health = 0.5
        step_down_when_unhealthy = false
        health_cmd = "test -e /run/well"
        health_every = "3s"
        health_timeout = "500ms"
        on_overrun = "abort"
        "#,
    )
    .unwrap();
    let vars = ElectionOptions::from_vars([
        ("TENURE_LEASE", "15s"),
        ("TENURE_RENEW_EVERY", "5s"),
        ("TENURE_CALL_TIMEOUT", "1s"),
        ("TENURE_POLL_EVERY", "4s"),
        ("TENURE_RETRY_EVERY", "1s"),
        ("TENURE_RETRY_MAX", "5s"),
        ("TENURE_DRAIN", "2s"),
        ("TENURE_STOP_GRACE", "60s"),
        ("TENURE_DRIFT", "0.01"),
        ("TENURE_CLOCK_TRUST", "never"),
        ("TENURE_TAKEOVER", "safe"),
        ("TENURE_CANDIDATE", "web-1"),
        ("TENURE_METADATA", "zone=a, rack=7"),
        ("TENURE_RELEASE_ON_STOP", "false"),
        ("TENURE_GIVE_UP_AFTER", "180s"),
        ("TENURE_PRIORITY", "-7"),
        ("TENURE_PREEMPT", "yes"),
        ("TENURE_MIN_HEALTH", "0.5"),
        ("TENURE_STEP_DOWN_WHEN_UNHEALTHY", "0"),
        ("TENURE_HEALTH_CMD", "test -e /run/well"),
        ("TENURE_HEALTH_EVERY", "3s"),
        ("TENURE_HEALTH_TIMEOUT", "500ms"),
        ("TENURE_ON_OVERRUN", "abort"),
    ])
    .unwrap();
    assert_eq!(file, vars);
    assert_eq!(file.takeover, Some(Takeover::Safe));
    assert_eq!(file.on_overrun, Some(OnOverrun::Abort));
    // Checks that the lists above are complete.
    let shown = serde_json::to_value(&file).unwrap();
    assert_eq!(shown.as_object().unwrap().len(), ElectionOptions::TABLE.len() + 1, "{shown}");
    assert_eq!(serde_json::from_value::<ElectionOptions>(shown).unwrap(), file);
    assert_eq!(serde_json::to_value(ElectionOptions::default()).unwrap(), serde_json::json!({}));
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest_name() {
    let file = |text: &str| Settings::from_toml(text).unwrap_err().to_string();
    assert!(file("leese = \"15s\"").contains("did you mean `lease`?"));
    assert!(file("[elections.x]\nrenew-every = \"5s\"").contains("did you mean `renew_every`?"));
    assert!(file("store = \"memory:\"\nretries = 3").contains("unknown option `retries`"));
    assert!(file("bananas = 1").contains("the options are store, last_will, elections, candidate, "));
    assert!(file("stor = \"memory:\"").contains("did you mean `store`?"));
    assert!(file("[election.jobs]").contains("did you mean `elections`?"));
    // Names from other leader elections.
    assert!(file("lease_duration = \"15s\"").contains("did you mean `lease`?"));
    assert!(file("MaxRetryAttempts = 3").contains("did you mean `give_up_after`?"));

    let vars = |name: &str| ElectionOptions::from_vars([(name, "1")]).unwrap_err().to_string();
    assert!(vars("TENURE_LEESE").contains("did you mean TENURE_LEASE?"));
    assert!(vars("TENURE_RENEW").contains("did you mean TENURE_RENEW_EVERY?"));
    assert!(vars("TENURE_RETRY_MAX_").contains("did you mean TENURE_RETRY_MAX?"));
    assert!(vars("TENURE_HEALTH_COMMAND").contains("did you mean TENURE_HEALTH_CMD?"));
    assert!(vars("TENURE_STORE_URL").contains("did you mean TENURE_STORE?"));
    assert!(vars("TENURE_LEASES").contains("did you mean TENURE_LEASE?"));
    assert!(vars("TENURE_STOR").contains("did you mean TENURE_STORE?"));
    let others = [("TENURE_TERM", "7"), ("TENURE_ELECTION", "x"), ("TENURE_TEST_ETCD", "x"), ("HOME", "/root")];
    assert_eq!(ElectionOptions::from_vars(others).unwrap(), ElectionOptions::default());
}

/// Returns the name with each letter left out, and with each two neighbours swapped.
fn misspelt(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let dropped = (0..letters.len()).map(|at| {
        let mut dropped = letters.clone();
        dropped.remove(at);
        dropped.iter().collect()
    });
    let swapped = (1..letters.len()).map(|at| {
        let mut swapped = letters.clone();
        swapped.swap(at - 1, at);
        swapped.iter().collect()
    });
    dropped.chain(swapped).filter(|wrong: &String| wrong != name).collect()
}

#[test]
fn every_key_and_variable_with_a_letter_left_out_or_swapped_is_recognised() {
    let options = ElectionOptions::TABLE.iter().map(|option| option.name).chain(["metadata"]);
    for name in options.clone().chain(["store", "elections"]) {
        for wrong in misspelt(name) {
            let error = Settings::from_toml(&format!("{wrong} = 1")).unwrap_err().to_string();
            assert!(error.contains(&format!("`{wrong}`: did you mean `{name}`?")), "{error}");
        }
    }
    for name in options.chain(["store", "config"]) {
        let name = format!("TENURE_{}", name.to_uppercase());
        for wrong in misspelt(&name).iter().filter(|wrong| wrong.starts_with("TENURE_")) {
            let error = ElectionOptions::from_vars([(wrong, "1")]).unwrap_err().to_string();
            assert!(error.contains(&format!("unknown variable {wrong}: did you mean {name}?")), "{error}");
        }
    }
}

#[test]
fn variables_of_other_programs_are_ignored() {
    // Kubernetes sets these in every pod beside services named `tenure`, `tenure-store` and `tenure-lease`.
    let others = [
        "TENURE_SERVICE_HOST",
        "TENURE_SERVICE_PORT",
        "TENURE_SERVICE_PORT_HTTP",
        "TENURE_PORT",
        "TENURE_PORT_80_TCP",
        "TENURE_PORT_80_TCP_PROTO",
        "TENURE_PORT_80_TCP_PORT",
        "TENURE_PORT_80_TCP_ADDR",
        "TENURE_STORE_SERVICE_HOST",
        "TENURE_STORE_PORT",
        "TENURE_LEASE_PORT_443_TCP",
        "TENURE_VERSION",
        "TENURE_IMAGE",
        "TENURE_HOST",
        "TENURE_BANANAS",
    ];
    for name in others {
        assert_eq!(ElectionOptions::from_vars([(name, "tcp://10.0.0.1:80")]).unwrap(), ElectionOptions::default());
    }
}

#[test]
fn a_bad_value_is_refused_with_what_to_write() {
    let file = |text: &str| {
        let error = Settings::from_toml(text).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let is = |text: &str, told: &str| assert!(file(text).contains(told), "{text}: {}", file(text));
    is("lease = \"-5s\"", "lease: \"-5s\" is negative");
    is("store = \"memory:\"\nlease = \"soon\"", "lease: \"soon\" is not a duration: write it like \"15s\"");
    is("lease = 15", "lease: 15 is not a duration: write it with its unit, like \"15s\"");
    is("takeover = \"quick\"", "takeover: \"quick\" is not one of instant, safe");
    is("lease = \"15s\"\ndrain = \"1s", "line 2: ");
    is(
        "priority = -2147483649",
        "priority: -2147483649 is out of range: use a whole number from -2147483648 to 2147483647",
    );
    is("elections = 3", "write [elections.NAME]");
    is("[elections]\njobs = 3", "write [elections.jobs]");
    is("[elections.\"\"]\nlease = \"15s\"", "give the election a name");
    is("[elections.jobs]\ndrain = 15", "elections.jobs.drain: 15 is not a duration");
    is("store = 3", "store must be a text with a URL");
    is("[jobs]\nlease = \"15s\"", "unknown section [jobs]: for an election, write [elections.jobs]");
    is("[elections.jobs]\nstore = \"sqlite:\"", "elections.jobs.store: all elections have one store");
    is("lease = 15s", "line 1: string values must be quoted");
    is("priority = \"high\"", "priority: write it like priority = 10, got \"high\"");
    is("min_health = true", "min_health: write it like min_health = 0.8, got true");
    is("min_health = 80", "min_health: must be a number from 0 (off) to 1, such as 0.8, got 80");
    is("[elections.jobs]\npreempt = \"yes\"", "elections.jobs.preempt: write it like preempt = true, got \"yes\"");
    is("candidate = 7", "candidate: write it like candidate = \"text\", got 7");
    is("metadata = { rack = 7 }", "metadata: write it like metadata = { zone = \"a\" }, got another table");
    let vars = |name: &str, value: &str| ElectionOptions::from_vars([(name, value)]).unwrap_err().to_string();
    assert!(vars("TENURE_DRIFT", "much").contains("TENURE_DRIFT: \"much\" is not a number"));
    assert!(vars("TENURE_RELEASE_ON_STOP", "perhaps").contains("neither true nor false"));
    assert!(vars("TENURE_METADATA", "zone").contains("key=value"));
    assert!(vars("TENURE_MIN_HEALTH", "80").starts_with("TENURE_MIN_HEALTH: must be a number from 0 (off) to 1"));
    assert!(vars("TENURE_TAKEOVER", "instnat").contains("did you mean instant?"));
    assert!(vars("TENURE_LEASE", "15").contains("TENURE_LEASE: \"15\" has no unit: write it like \"15s\""));
}

#[test]
fn a_missing_file_is_named() {
    let error = Settings::from_file("no/such/tenure.toml").unwrap_err().to_string();
    assert!(error.contains("cannot read no/such/tenure.toml"), "{error}");
    assert_eq!(Settings::default().with_vars(NO_VARS).unwrap(), Settings::default());
}

#[test]
fn settings_never_show_the_password_of_the_store() {
    let settings = Settings::from_toml("store = \"redis://app:hunter2@db\"").unwrap();
    let settings = settings.with_vars([("TENURE_LEASE", "20s")]).unwrap();
    let shown = format!("{settings:?}");
    assert!(!shown.contains("hunter2") && shown.contains("20s"), "{shown}");
}

/// Run `TENURE_TEST_WRITE=1 cargo test -p tenure-core --test options` to update the page.
#[test]
fn the_page_of_options_matches_their_table() {
    let mut page = String::from(
        "# Options of an election\n\n\
         Set an option in `tenure.toml`, by a variable, by a flag of `tenure run`, or in code: by a method of the builder \
         or in\n`ElectionOptions`. Later sources override earlier ones. The key in the file and the name in code are the \
         same, such as\n`renew_every`; its variable is `TENURE_RENEW_EVERY`, and its flag `--renew-every`. The flag of an \
         option that is true or false\nhas no value: `--preempt` turns the option on, `--no-release-on-stop` turns off an \
         option that is on by default.\n\n\
         ```toml\nstore = \"sqlite:\"\nlease = \"15s\"              # for every election\n\n\
         [elections.nightly-jobs]   # and for this one\nlease = \"60s\"\nmetadata = { team = \"billing\" }\n```\n\n\
         `metadata` is a set of pairs of text that others see beside the candidate, and beside the leader if it leads:\n\
         `--metadata team=billing`, or `TENURE_METADATA=team=billing,zone=a`.\n\n\
         `store` and `last_will` are for all elections of a process; their variables are `TENURE_STORE` and \
         `TENURE_LAST_WILL`.\n`last_will = \"tenure\"` names the program that frees the seats of a program when it dies, \
         see [last-will.md](last-will.md).\n`tenure run` does not need it.\n",
    );
    let mut group = "";
    for option in ElectionOptions::TABLE {
        if option.group != group {
            group = option.group;
            page += &format!("\n## {group}\n\n| option | value | default | |\n|---|---|---|---|\n");
        }
        page += &format!("| `{}` | {} | {} | {} |\n", option.name, option.kind, option.default, option.doc.trim());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
    if std::env::var_os("TENURE_TEST_WRITE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), page, "{path} differs from the table of options");
}
