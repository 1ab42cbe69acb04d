//! Leaders that are killed while their guard, the network or the server fails as well: no two commands overlap, tokens
//! rise, and no guard frees a seat that was not its own leader's.
//!
//! `TENURE_TEST_KILLS=500` makes more rounds (default: 11, each kind at least once).

#![cfg(all(target_os = "linux", feature = "redis", feature = "postgres", feature = "etcd"))]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{World, is_alive, send};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Etcd, Postgres, RedisSetup};

/// A fault of a server, which keeps its data.
enum Act {
    /// Its connections stay open, but it does not answer.
    Pause,
    Resume,
    Kill,
    /// It is started again after it was killed.
    Start,
}

/// How a leader is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alone,
    GuardStopped,
    /// The guard gets only a small part of the time that it needs.
    GuardSlow,
    GuardKilled,
    SlowNetwork,
    SilentNetwork,
    ResetNetwork,
    /// The server does not answer for a while, from before the kill.
    ServerPaused,
    /// The server is down before the kill, and is started again after it.
    ServerDown,
    /// The server is killed and started again while the guard frees the seat.
    ServerRestarted,
}

const KINDS: [Kind; 11] = [
    Kind::Alone,
    Kind::GuardStopped,
    Kind::GuardSlow,
    Kind::GuardKilled,
    Kind::SlowNetwork,
    Kind::SilentNetwork,
    Kind::ResetNetwork,
    Kind::Alone,
    Kind::ServerPaused,
    Kind::ServerDown,
    Kind::ServerRestarted,
];

fn no_two_commands_overlap_however_leaders_are_killed(proxy: Option<&Proxy>, url: &str, server: &mut dyn FnMut(Act)) {
    let rounds = std::env::var("TENURE_TEST_KILLS").map_or(KINDS.len(), |rounds| rounds.parse().unwrap());
    let world = World::on(url);
    let stand = |id: usize| common::stand(&world, &id.to_string(), &["--lease", "3s"]);
    let mut running = vec![(1, stand(1)), (2, stand(2)), (3, stand(3))];
    let mut killed = BTreeSet::new();
    for round in 0..rounds {
        let mut at = None;
        world.eventually("the next leader", || {
            let leader = world.starts().last().map(|start| start.candidate.parse::<usize>().unwrap());
            at = running.iter().position(|(id, _)| Some(*id) == leader);
            at.is_some()
        });
        let (id, mut tenure) = running.remove(at.unwrap());
        killed.insert(id.to_string());
        let command = world.starts().last().unwrap().pid;
        let guard = tenure.guard(&world);
        let kind = KINDS[round % KINDS.len()];
        match (kind, proxy) {
            (Kind::GuardStopped, _) => send(guard, Signal::STOP),
            (Kind::GuardSlow, _) => slow_down(guard),
            (Kind::SlowNetwork, Some(proxy)) => proxy.delay(Way::Down, Duration::from_millis(50)),
            (Kind::SilentNetwork, Some(proxy)) => proxy.black_hole(Way::Up),
            (Kind::ResetNetwork, Some(proxy)) => {
                proxy.refuse();
                proxy.reset();
            }
            (Kind::ServerPaused, _) => server(Act::Pause),
            (Kind::ServerDown, _) => server(Act::Kill),
            _ => {}
        }
        tenure.signal(Signal::KILL);
        if kind == Kind::GuardKilled {
            let _ = rustix::process::kill_process(guard, Signal::KILL);
        }
        tenure.wait(&world);
        if kind != Kind::GuardKilled {
            world.eventually("the guard to act", || !is_alive(command));
        }
        // The guard tries for as long as the lease, 3 s. So some faults last for longer than that.
        let lasts = || std::thread::sleep(Duration::from_millis(900) * (round / KINDS.len() % 5) as u32);
        match (kind, proxy) {
            (Kind::SlowNetwork | Kind::SilentNetwork | Kind::ResetNetwork, Some(proxy)) => proxy.pass(),
            (Kind::ServerPaused, _) => {
                lasts();
                server(Act::Resume);
            }
            (Kind::ServerDown, _) => {
                lasts();
                server(Act::Start);
            }
            (Kind::ServerRestarted, _) => {
                server(Act::Kill);
                server(Act::Start);
            }
            _ => {}
        }
        let next = round + 4;
        running.push((next, stand(next)));
    }
    for (_, tenure) in &mut running {
        tenure.signal(Signal::TERM);
        tenure.wait(&world);
    }
    let terms: BTreeSet<_> = world.starts().into_iter().map(|start| (start.candidate, start.token)).collect();
    world.eventually_empty();
    let errors = world.lines("errors");
    let freed: Vec<_> = errors.iter().filter_map(|line| freed(line)).collect();
    for (candidate, token) in &freed {
        assert!(killed.contains(candidate), "{candidate} was not killed, but its seat was freed");
        // A leader that was killed before it had started its command has no start.
        let mut others = terms.iter().filter(|(other, of)| of == token && other != candidate);
        assert_eq!(others.next(), None, "{candidate} has not led the term {token}");
    }
    println!("{url}: {rounds} leaders killed, {} seats freed by guards", freed.len());
}

/// Lets a process run for a hundredth of the time, for half a second.
fn slow_down(process: Pid) {
    let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
    std::thread::spawn(move || {
        for _ in 0..25 {
            for (signal, pause) in [(Signal::STOP, 19_800), (Signal::CONT, 200)] {
                // It fails once the process has ended.
                let _ = pidfd_send_signal(&process, signal);
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
    });
}

/// Returns the candidate and the term of a line in which a guard says that it has freed a seat.
fn freed(line: &str) -> Option<(String, i64)> {
    let rest =
        line.strip_prefix("tenure: the process of ")?.strip_suffix(") died; its guard has freed the seat of jobs")?;
    let (candidate, token) = rest.split_once(" (term ")?;
    Some((candidate.to_owned(), token.parse().ok()?))
}

#[test]
fn no_two_commands_overlap_over_sqlite_however_leaders_are_killed() {
    let folder = World::alone();
    let url = format!("sqlite:{}", folder.path("seats.db").display());
    // There is no network and no server that could fail.
    no_two_commands_overlap_however_leaders_are_killed(None, &url, &mut |_| {});
}

#[test]
fn no_two_commands_overlap_over_redis_however_leaders_are_killed() {
    // It keeps all that it has confirmed.
    let mut redis = RedisSetup::redis().durable().start();
    let proxy = Proxy::start(redis.address());
    let url = format!("redis://{}", proxy.address());
    no_two_commands_overlap_however_leaders_are_killed(Some(&proxy), &url, &mut |act| match act {
        Act::Pause => redis.pause(),
        Act::Resume => redis.resume(),
        Act::Kill => redis.kill(),
        Act::Start => redis.restart(),
    });
}

fn on_postgres(mode: &str) {
    let mut server = Postgres::start();
    let proxy = Proxy::start(server.address());
    let url = server.url().replace(&server.address(), &proxy.address().to_string());
    let url = format!("{url}?mode={mode}");
    no_two_commands_overlap_however_leaders_are_killed(Some(&proxy), &url, &mut |act| match act {
        Act::Pause => server.pause(),
        Act::Resume => server.resume(),
        Act::Kill => server.kill(),
        Act::Start => server.restart(),
    });
}

#[test]
fn no_two_commands_overlap_over_postgres_however_leaders_are_killed() {
    on_postgres("lease");
}

#[test]
fn no_two_commands_overlap_over_postgres_sessions_however_leaders_are_killed() {
    on_postgres("session");
}

#[test]
fn no_two_commands_overlap_over_etcd_however_leaders_are_killed() {
    let mut etcd = Etcd::start();
    let proxy = Proxy::start(etcd.addresses());
    let url = etcd.url().replace(&etcd.addresses(), &proxy.address().to_string());
    let member = &mut etcd.members[0];
    no_two_commands_overlap_however_leaders_are_killed(Some(&proxy), &url, &mut |act| match act {
        Act::Pause => member.process.pause(),
        Act::Resume => member.resume(),
        Act::Kill => member.process.kill(),
        Act::Start => member.restart(),
    });
}

#[cfg(feature = "consul")]
#[test]
fn no_two_commands_overlap_over_consul_however_leaders_are_killed() {
    let mut consul = tenure_testkit::servers::ConsulSetup::new().durable().start();
    let proxy = Proxy::start(consul.address());
    let url = consul.url().replace(&consul.address(), &proxy.address().to_string());
    no_two_commands_overlap_however_leaders_are_killed(Some(&proxy), &url, &mut |act| match act {
        Act::Pause => consul.pause(),
        Act::Resume => consul.resume(),
        Act::Kill => consul.kill(),
        Act::Start => consul.restart(),
    });
}

#[cfg(feature = "kubernetes")]
#[test]
fn no_two_commands_overlap_over_kubernetes_however_leaders_are_killed() {
    let mut server = tenure_testkit::servers::Kubernetes::start();
    let kubeconfig = server.kubeconfig(&server.namespace());
    let url = format!("kubernetes:?kubeconfig={}", kubeconfig.display());
    no_two_commands_overlap_however_leaders_are_killed(None, &url, &mut |act| match act {
        Act::Pause => server.api.pause(),
        Act::Resume => server.api.resume(),
        Act::Kill => server.api.kill(),
        Act::Start => server.start_again(),
    });
}
