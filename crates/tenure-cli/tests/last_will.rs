//! The last will: when `tenure run` is killed, its guard frees the seat, and the next command starts long before the
//! lease has expired. The lease of these tests is longer than they wait.

#![cfg(all(target_os = "linux", feature = "redis", feature = "postgres", feature = "etcd"))]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use common::{PROBE, Running, World, is_alive, is_stopped, json_of, send};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Etcd, Postgres, Redis, RedisSetup};

const LEASE: [&str; 2] = ["--lease", "10m"];

fn stand(world: &World, id: &str) -> Running {
    common::stand(world, id, &LEASE)
}

/// Starts a leader, and a follower that has seen it.
fn leader_and_follower(world: &World) -> (Running, Running) {
    let leader = stand(world, "one");
    world.start_number(1);
    let follower = stand(world, "other");
    waits(world, "one");
    (leader, follower)
}

fn waits(world: &World, leader: &str) {
    let waiting = format!("tenure: waiting for jobs, led by {leader} (term ");
    world.eventually("the follower to wait", || world.lines("errors").iter().any(|line| line.starts_with(&waiting)));
}

/// Kills leaders, one after the other. Each time, the next one must start without waiting for the lease.
fn the_next_takes_over_from_each_killed_leader(url: &str) {
    let world = World::on(url);
    let (mut leader, mut follower) = leader_and_follower(&world);
    let ids = ["one", "other", "third", "fourth"];
    for round in 1..ids.len() {
        let command = world.start_number(round).pid;
        leader.signal(Signal::KILL);
        assert_eq!(world.start_number(round + 1).candidate, ids[round]);
        assert!(!is_alive(command));
        let died = format!("{} (term ", ids[round - 1]);
        world.eventually("the follower to report the crash", || {
            let says = |line: &String| line.contains(&died) && line.contains(" died; guard ");
            world.lines("errors").iter().any(says)
        });
        leader = follower;
        follower = stand(&world, ids.get(round + 1).copied().unwrap_or("last"));
        waits(&world, ids[round]);
    }
    leader.signal(Signal::TERM);
    leader.wait(&world);
    follower.signal(Signal::TERM);
    follower.wait(&world);
    world.eventually_empty();
}

#[test]
fn on_redis_the_next_leader_takes_over_from_a_killed_one_at_once() {
    the_next_takes_over_from_each_killed_leader(&Redis::start().url());
}

#[test]
fn on_postgres_the_next_leader_takes_over_from_a_killed_one_at_once() {
    the_next_takes_over_from_each_killed_leader(&Postgres::start().url());
}

#[test]
fn on_etcd_the_next_leader_takes_over_from_a_killed_one_at_once() {
    the_next_takes_over_from_each_killed_leader(&Etcd::start().url());
}

#[cfg(feature = "consul")]
#[test]
fn on_consul_the_next_leader_takes_over_from_a_killed_one_at_once() {
    the_next_takes_over_from_each_killed_leader(&tenure_testkit::servers::Consul::start().url());
}

#[cfg(feature = "kubernetes")]
#[test]
fn on_kubernetes_the_next_leader_takes_over_from_a_killed_one_at_once() {
    let server = tenure_testkit::servers::Kubernetes::start();
    let kubeconfig = server.kubeconfig(&server.namespace());
    the_next_takes_over_from_each_killed_leader(&format!("kubernetes:?kubeconfig={}", kubeconfig.display()));
}

#[test]
fn a_guard_that_was_stopped_executes_the_will_when_it_is_resumed_by_the_death_of_tenure() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let (leader, follower) = leader_and_follower(&world);
    let guard = leader.guard(&world);
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    leader.signal(Signal::KILL);
    assert_eq!(world.start_number(2).candidate, "other");
    drop((leader, follower));
}

#[test]
fn the_seat_of_a_tenure_that_is_killed_before_it_knows_that_it_has_won_is_freed_too() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let (direct, world) = (World::on(&redis.url()), World::on(&format!("redis://{}", proxy.address())));
    // The server answers late, so the bid has won the seat long before its answer arrives.
    proxy.delay(Way::Down, Duration::from_secs(2));
    let winner = stand(&world, "one");
    let mut term = 0;
    direct.eventually("the bid to win", || {
        let leader = &json_of(&direct.output(&["status", "--json", "jobs"]))["leader"];
        term = leader["token"].as_i64().unwrap_or(0);
        leader["candidate"] == "one"
    });
    winner.signal(Signal::KILL);
    proxy.pass();
    world.eventually_empty();
    assert!(world.starts().is_empty(), "the answer came before the kill");
    let freed = format!("tenure: the process of one (term {term}) died; its guard has freed the seat of jobs");
    assert_eq!(world.lines("errors"), [freed]);
    let next = stand(&direct, "next");
    assert!(direct.start_number(1).token > term);
    drop((winner, next));
}

#[test]
fn a_standby_that_is_killed_changes_nothing_and_says_nothing() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let (leader, mut follower) = leader_and_follower(&world);
    follower.signal(Signal::KILL);
    follower.wait(&world);
    let guards = || world.living().len();
    // The leader, its guard and its command are left.
    world.eventually("the guard of the standby to end", || guards() <= 3);
    assert_eq!(world.starts().len(), 1);
    assert!(!world.lines("errors").iter().any(|line| line.contains("died")), "{:?}", world.lines("errors"));
    drop(leader);
}

/// Returns whether a process has the sealed memory of a will.
fn has_will(process: Pid) -> bool {
    let files = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target.to_string_lossy().starts_with("/memfd:tenure-will"))
}

#[test]
fn the_guard_of_a_killed_standby_does_not_stay_because_the_store_does_not_answer() {
    let mut redis = Redis::start();
    let world = World::on(&redis.url());
    let (leader, follower) = leader_and_follower(&world);
    let guard = follower.guard(&world);
    // On a busy machine, a guard can still be starting when its tenure waits already.
    world.eventually("the guard to have the will", || has_will(guard));
    redis.pause();
    follower.signal(Signal::KILL);
    // The lease is far longer than this.
    world.eventually("the guard to end", || !is_alive(guard));
    redis.resume();
    let lines = world.lines("errors");
    let about: Vec<_> = lines.iter().filter(|line| line.contains("cannot free the seat of jobs")).collect();
    assert_eq!(about.len(), 1, "{lines:?}");
    assert!(about[0].ends_with("; if it had just won, the seat becomes free when its lease expires"), "{about:?}");
    drop((leader, follower));
}

#[test]
fn a_will_whose_seat_was_removed_says_that_it_has_left_the_seat_alone() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    // The seat is removed while the hook runs, before the will is executed.
    let on_stop = "echo stop >> stopping; until [ -e removed ]; do sleep 0.05; done";
    let leader = world.run(&["--candidate", "one", "--lease", "60s", "--on-stop", on_stop], PROBE);
    world.start_number(1);
    leader.signal(Signal::KILL);
    world.eventually("the hook to run", || !world.lines("stopping").is_empty());
    assert!(world.output(&["forget", "--yes", "jobs"]).status.success());
    fs::write(world.path("removed"), "").unwrap();
    let says_so = |line: &String| {
        line.starts_with("tenure: the process of one died")
            && line.contains("its guard has left the seat of jobs alone")
    };
    world.eventually("the guard to say so", || world.lines("errors").iter().any(says_so));
    drop(leader);
    world.eventually_empty();
}

#[test]
fn the_will_is_executed_by_the_program_that_was_started_even_if_its_file_was_replaced() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let program = world.path("tenure");
    // This process does not open the copy: another test that starts a process at that moment would pass the open file on, and a
    // file that is open for writing cannot be executed.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_tenure")).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = world.tenure(&["run", "--candidate", "one", "--lease", "10m", "jobs", "--", "sh", "-c", PROBE]);
    let mut replaced = std::process::Command::new(&program);
    replaced.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command = replaced;
    command.current_dir(world.path(".")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let leader = Running { child: command.spawn().unwrap() };
    world.start_number(1);
    fs::remove_file(&program).unwrap();
    fs::write(&program, "not a program").unwrap();
    let follower = stand(&world, "other");
    waits(&world, "one");
    leader.signal(Signal::KILL);
    assert_eq!(world.start_number(2).candidate, "other");
    drop((leader, follower));
}

#[test]
fn a_will_that_the_store_refuses_is_one_line_and_leaves_no_process() {
    let redis = Redis::start();
    redis.ask(&["ACL", "SETUSER", "jobs", "on", ">hunter2", "~*", "&*", "+@all"]);
    let world = World::on(&format!("redis://jobs:hunter2@{}", redis.address()));
    let leader = stand(&world, "one");
    let command = world.start_number(1).pid;
    // New connections are refused; the leader's own stays.
    redis.ask(&["ACL", "SETUSER", "jobs", "off"]);
    leader.signal(Signal::KILL);
    world.eventually("the will to fail", || {
        world.lines("errors").iter().any(|line| line.starts_with("tenure: cannot free the seat of jobs after"))
    });
    let errors = world.lines("errors");
    let line = errors.iter().find(|line| line.contains("cannot free")).unwrap();
    assert!(line.ends_with("; it becomes free when its lease expires") && !line.contains("hunter2"), "{line}");
    assert!(!is_alive(command));
    drop(leader);
    world.eventually_empty();
}

#[test]
fn the_password_of_the_store_is_in_no_argument_and_no_variable_of_the_guard() {
    let redis = RedisSetup::redis().with(["--requirepass", "hunter2"]).start();
    let world = World::on(&format!("redis://:hunter2@{}", redis.address()));
    let leader = stand(&world, "one");
    world.start_number(1);
    for process in world.living().into_iter().filter(|process| *process != leader.pid()) {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{}/{file}", process.as_raw_nonzero());
            let text = fs::read(path).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains("hunter2"), "{file} of {process:?}");
        }
    }
}

#[test]
fn a_leader_that_leaves_in_order_reports_no_crash() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let (mut leader, follower) = leader_and_follower(&world);
    leader.signal(Signal::TERM);
    leader.wait(&world);
    world.start_number(2);
    assert_eq!(json_of(&world.output(&["status", "--json", "jobs"]))["crash"], serde_json::Value::Null);
    assert!(!world.lines("errors").iter().any(|line| line.contains("died")), "{:?}", world.lines("errors"));
    drop(follower);
}

#[test]
fn the_status_says_who_died_and_who_freed_the_seat() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let leader = stand(&world, "one");
    let token = world.start_number(1).token;
    let guard = leader.guard(&world).as_raw_nonzero();
    leader.signal(Signal::KILL);
    let status = || json_of(&world.output(&["status", "--json", "jobs"]));
    world.eventually("the seat to be free", || status()["leader"].is_null());
    let crash = &status()["crash"];
    assert_eq!((crash["candidate"].as_str(), crash["token"].as_i64()), (Some("one"), Some(token)));
    assert!(crash["by"].as_str().unwrap().starts_with(&format!("guard {guard} on ")), "{crash}");
    let text = common::text(&world.output(&["status", "jobs"]).stdout);
    let expected = format!("vacant: no leader (last term: {token}; one died, and guard {guard} on ");
    assert!(text.starts_with(&expected) && text.ends_with(" freed the seat)\n"), "{text}");
}

#[test]
fn a_watch_of_all_elections_and_an_explanation_say_who_died_and_who_freed_the_seat() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut watch = world.tenure(&["watch", "--lines"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut changes = lines.map(|line| line.split_once("  ").unwrap().1.to_owned());
    let leader = stand(&world, "one");
    let token = world.start_number(1).token;
    let guard = leader.guard(&world).as_raw_nonzero();
    assert_eq!(changes.next().unwrap(), format!("jobs: one (term {token}) leads"));
    leader.signal(Signal::KILL);
    let died = changes.next().unwrap();
    assert!(died.starts_with(&format!("jobs: one (term {token}) died; guard {guard} on ")), "{died}");
    assert!(died.ends_with(" has freed the seat"), "{died}");
    assert_eq!(changes.next().unwrap(), "jobs: vacant");
    let explained = common::text(&world.output(&["explain", "jobs"]).stdout);
    let expected = format!("jobs has no leader: one (term {token}) died, and guard {guard} on ");
    assert!(explained.starts_with(&expected), "{explained}");
    // A watch that starts now says it, too.
    let mut second = world.tenure(&["watch", "--lines"]).stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(second.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(first.ends_with(&died), "{first}");
    let follower = stand(&world, "other");
    world.start_number(2);
    let explained = common::text(&world.output(&["explain", "jobs"]).stdout);
    assert!(
        explained.contains(&format!("The last leader that crashed was one (term {token}): it died, and guard ")),
        "{explained}"
    );
    for mut watch in [watch, second] {
        watch.kill().unwrap();
        watch.wait().unwrap();
    }
    drop(follower);
}

#[test]
fn signals_to_the_whole_service_do_not_keep_the_guard_from_executing_the_will() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let (leader, follower) = leader_and_follower(&world);
    let guard = leader.guard(&world);
    leader.signal(Signal::KILL);
    // As systemd does when the main process of a service has died.
    while is_alive(guard) {
        let _ = rustix::process::kill_process(guard, Signal::TERM);
    }
    assert_eq!(world.start_number(2).candidate, "other");
    drop((leader, follower));
}

#[test]
fn a_guard_whose_connection_is_closed_leaves_the_seat_of_a_tenure_that_lives() {
    // This test is tenure: it leads, and gives its guard the will and a command.
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let elections = tenure::Elections::new(tenure::connect(&redis.url()).unwrap());
    let election = elections.election("jobs").candidate("one").lease(Duration::from_secs(600)).start().unwrap();
    let term = runtime.block_on(election.elected()).unwrap();
    let will = memfd_create(c"will", MemfdFlags::CLOEXEC).unwrap();
    let text = serde_json::json!({
        "store": redis.url(),
        "election": "jobs",
        "candidate": "one",
        "incarnation": election.candidate().incarnation.to_string(),
        "lease_ms": 600_000,
        "report": "lines",
    });
    fs::File::from(will.try_clone().unwrap()).write_all(text.to_string().as_bytes()).unwrap();

    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let mut guard = world.tenure(&["__guard", &std::process::id().to_string(), "1", "", "", "", "sh", "-c", PROBE]);
    let mut guard = Running { child: guard.stdin(Stdio::from(there)).spawn().unwrap() };
    let null = fs::File::open("/dev/null").unwrap();
    send_with(&here, "keep-will", &[will.as_fd()]);
    send_with(&here, &format!("start {} {} 0", term.token(), u64::MAX), &[null.as_fd(), null.as_fd(), null.as_fd()]);
    let command = world.start_number(1).pid;
    drop(here);
    guard.wait(&world);
    assert!(!is_alive(command) && term.is_current());
    let status = json_of(&world.output(&["status", "--json", "jobs"]));
    assert_eq!((&status["leader"]["candidate"], &status["crash"]), (&"one".into(), &serde_json::Value::Null));
}

/// Sends an order to a guard.
fn send_with(socket: &OwnedFd, order: &str, descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(socket, &[IoSlice::new(order.as_bytes())], &mut control, SendFlags::empty()).unwrap();
}
