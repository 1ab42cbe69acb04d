//! The contents of an installation, and the files in deploy/docker, as far as tests can check them without a container engine.

#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Running, World, text};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the paths of all files below a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn a_package_has_the_program_its_pages_completions_licences_and_units() {
    let world = World::alone();
    let mut package = Command::new(Path::new(ROOT).join("scripts/package"));
    package.arg("installed").current_dir(world.path("")).env("TENURE_TEST_PROGRAM", env!("CARGO_BIN_EXE_tenure"));
    let output = world.output_of(package);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let installed = files(&world.path("installed"));

    let help = text(&world.output(&["help"]).stdout);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().lines();
    let commands: Vec<&str> = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let commands = commands.into_iter().filter(|command| !command.is_empty() && *command != "help");
    let mut expected: BTreeSet<String> = commands.map(|command| format!("share/man/man1/tenure-{command}.1")).collect();
    assert!(expected.len() >= 11, "{expected:?}");
    expected.extend(
        [
            "bin/tenure",
            "share/bash-completion/completions/tenure",
            "share/doc/tenure/LICENSE-APACHE",
            "share/doc/tenure/LICENSE-MIT",
            "share/doc/tenure/examples/systemd/outbox.service",
            "share/doc/tenure/examples/systemd/report.service",
            "share/doc/tenure/examples/systemd/report.timer",
            "share/fish/vendor_completions.d/tenure.fish",
            "share/man/man1/tenure.1",
            "share/man/man5/tenure.toml.5",
            "share/zsh/site-functions/_tenure",
        ]
        .map(str::to_owned),
    );
    assert_eq!(installed, expected);
    assert!(
        fs::read_to_string(world.path("installed/share/zsh/site-functions/_tenure"))
            .unwrap()
            .starts_with("#compdef tenure\n")
    );
}

#[test]
fn the_image_has_only_the_static_program_of_the_package_script_and_certificates() {
    let lines = read("deploy/docker/Dockerfile");
    let lines: Vec<&str> = lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.contains(&"RUN scripts/package --static /package"), "{lines:?}");
    let last = lines.iter().position(|line| *line == "FROM scratch").expect("the last stage is empty");
    assert_eq!(
        lines[last + 1..],
        [
            "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt",
            "COPY --from=build /package/bin/tenure /tenure",
            "USER 65532:65532",
            "ENTRYPOINT [\"/tenure\"]",
        ]
    );
}

#[test]
fn the_worker_of_the_compose_file_runs() {
    let compose: Value = serde_saphyr::from_str(&read("deploy/docker/compose.yaml")).unwrap();
    let worker = &compose["services"]["worker"];
    assert_eq!(worker["deploy"]["replicas"], 3);
    // The host is the name of the other service.
    assert_eq!(worker["environment"]["TENURE_STORE"], "redis://redis");
    assert!(compose["services"]["redis"]["image"].is_string());
    let image = read(&format!("deploy/docker/{}", worker["build"]["dockerfile"].as_str().unwrap()));
    assert!(image.contains("COPY --from=tenure /tenure /usr/local/bin/tenure"), "{image}");

    let command: Vec<String> = serde_json::from_value(worker["command"].clone()).unwrap();
    let command: Vec<String> = command.iter().map(|word| word.replace("$$", "$")).collect();
    assert_eq!(command[0], "tenure");
    let args: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    let world = World::shared();
    let mut tenure = world.tenure(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(tenure.stdout.take().unwrap()).lines();
    let _running = Running { child: tenure };
    assert_eq!(lines.next().unwrap().unwrap(), "working in term 1");
    assert_eq!(world.output(&["status", args[1]]).status.code(), Some(0));
}
