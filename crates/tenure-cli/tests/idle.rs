//! What a candidate costs while it waits: wake-ups of its processes, connections to the server, and lines.

#![cfg(all(target_os = "linux", feature = "redis", feature = "postgres"))]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use common::{World, children};
use rustix::process::Pid;
use tenure_testkit::servers::{Postgres, Redis};

const LEASE: Duration = Duration::from_secs(15);

/// The most wake-ups in a lease of the three processes of a follower. Over PostgreSQL there are about 24, most of them for
/// the announcement of the process.
const WAKE_UPS: u64 = 48;

#[test]
fn a_waiting_candidate_seldom_wakes_up_keeps_few_connections_and_says_nothing() {
    let (redis, server) = (Redis::start(), Postgres::start());
    // At the same time, as the test mostly waits. The numbers are the connections of the leader and of the follower.
    std::thread::scope(|scope| {
        scope.spawn(|| costs_little(World::shared(), 0, 0));
        scope.spawn(|| costs_little(World::on(&redis.url()), 1, 1));
        scope.spawn(|| costs_little(World::on(&server.url()), 1, 1));
        scope.spawn(|| costs_little(World::on(&format!("{}?mode=session&schema=sessions", server.url())), 2, 3));
    });
}

fn costs_little(world: World, of_leader: usize, of_follower: usize) {
    let leader = world.run(&["--lease", "15s"], "echo start >> log; exec sleep 1000");
    world.log_of(1);
    let follower = world.run(&["--lease", "15s"], "echo start >> log; exec sleep 1000");
    let waits = || world.lines("errors").iter().any(|line| line.contains("waiting for jobs, led by"));
    world.eventually("the follower to wait", waits);
    let guard = follower.guard(&world);
    let mut shim = None;
    world.eventually("the shim to be ready", || {
        shim = children(guard).first().copied();
        shim.is_some()
    });
    let processes = [follower.pid(), guard, shim.unwrap()];
    world.eventually("the connections to be open", || {
        connections(leader.pid()) == of_leader && connections(follower.pid()) == of_follower
    });

    let (before, lines, began) = (processes.map(wake_ups), world.lines("errors"), Instant::now());
    std::thread::sleep(LEASE);
    let after = processes.map(wake_ups);
    let leases = began.elapsed().as_secs_f64() / LEASE.as_secs_f64();
    let each: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    println!("wake-ups of the follower, its guard and its shim in {leases:.2} leases: {each:?}");
    assert!(each.iter().sum::<u64>() <= (WAKE_UPS as f64 * leases) as u64, "{each:?}");
    assert_eq!(world.lines("errors"), lines);
    world.eventually("the connections to be as before", || {
        connections(leader.pid()) == of_leader && connections(follower.pid()) == of_follower
    });
    assert_eq!(world.log().len(), 1, "the follower has led");
}

/// Returns how often the threads of a process have stopped waiting for something.
fn wake_ups(process: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap().flatten();
    let count = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    // A thread that has ended meanwhile has no such file.
    threads.filter_map(|thread| count(&fs::read_to_string(thread.path().join("status")).ok()?)).sum()
}

/// Returns the number of TCP connections of a process.
fn connections(process: Pid) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).unwrap().flatten();
    let socket = |path: std::path::PathBuf| {
        let link = fs::read_link(path).ok()?;
        Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
    };
    let sockets: BTreeSet<String> = open.filter_map(|fd| socket(fd.path())).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let inodes = tables.iter().flat_map(|table| table.lines().filter_map(|line| line.split_ascii_whitespace().nth(9)));
    inodes.filter(|inode| sockets.contains(*inode)).count()
}
