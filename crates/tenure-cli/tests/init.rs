//! `tenure run` as process 1 of a container.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{Running, World, children, is_alive, send, stat};
use rustix::process::{Pid, Signal};

/// A shell that executes `tenure run` as process 1 of a namespace. Before that, the shell starts a process that later
/// leaves two orphans: one that stays, in a session of its own, and one that ends at once.
const SCRIPT: &str = "sh -c 'until [ -s log ]; do sleep 0.01; done; (setsid sleep 4711 & true &); exec sleep 4712' &
    exec $TENURE run --lease 10s jobs -- sh -c 'echo start $TENURE_TERM >> log; exec sleep 4713'";

fn first_process(world: &World) -> Running {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let script = SCRIPT.replace("$TENURE run", &format!("{} run", env!("CARGO_BIN_EXE_tenure")));
    unshare.args(["--pid", "--mount-proc", "--fork", "sh", "-c", &script]).current_dir(world.path(""));
    unshare.envs(world.tenure(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let errors = fs::File::create(world.path("errors")).unwrap();
    Running { child: unshare.stdin(Stdio::null()).stderr(errors).spawn().unwrap() }
}

/// Returns the processes of a world with these arguments or this name.
fn find(world: &World, what: &str) -> Vec<Pid> {
    let is_it = |pid: &Pid| {
        let read = |file| fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
        let (arguments, name) = (read("cmdline"), read("comm"));
        arguments.strip_suffix(b"\0") == Some(what.replace(' ', "\0").as_bytes())
            || name.strip_suffix(b"\n") == Some(what.as_bytes())
    };
    world.living().into_iter().filter(is_it).collect()
}

fn zombies(parent: Pid) -> usize {
    let parent = parent.as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| stat(&entry.path())).filter(|stat| stat[0] == "Z" && stat[1] == parent).count()
}

#[test]
fn process_1_reaps_all_orphans_and_kills_only_those_of_the_command() {
    let world = World::alone();
    let mut unshare = first_process(&world);
    world.eventually("the orphan", || find(&world, "sleep 4711").len() == 1);
    let (orphan, first) = (find(&world, "sleep 4711")[0], children(unshare.pid())[0]);
    world.eventually("the orphan to belong to process 1", || children(first).contains(&orphan));
    world.eventually("process 1 to reap", || zombies(first) == 0);
    // When the guard is killed, tenure kills the processes that it guarded, and no others.
    let guard = find(&world, "tenure-guard")[0];
    send(guard, Signal::KILL);
    world.log_of(2);
    assert!(!is_alive(guard) && is_alive(orphan) && find(&world, "sleep 4712").len() == 1);
    // The shell logs its start before it executes the sleep.
    world.eventually("the next command", || find(&world, "sleep 4713").len() == 1);
    send(first, Signal::TERM);
    assert_eq!(unshare.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn process_1_ends_with_tenure_but_not_before_the_command() {
    let world = World::alone();
    let mut unshare = first_process(&world);
    world.log_of(1);
    world.eventually("the command", || find(&world, "sleep 4713").len() == 1);
    let (first, command) = (children(unshare.pid())[0], find(&world, "sleep 4713")[0]);
    let guard = find(&world, "tenure-guard")[0];
    let tenure = *children(first).iter().find(|child| children(**child).contains(&guard)).unwrap();
    send(tenure, Signal::KILL);
    assert_eq!(unshare.code(&world), 137);
    assert!(!is_alive(command));
    world.eventually_empty();
}

#[cfg(feature = "redis")]
#[test]
fn process_1_waits_for_the_last_will_of_tenure() {
    let redis = tenure_testkit::servers::Redis::start();
    let world = World::on(&redis.url());
    let mut unshare = first_process(&world);
    world.log_of(1);
    let (first, guard) = (children(unshare.pid())[0], find(&world, "tenure-guard")[0]);
    let tenure = *children(first).iter().find(|child| children(**child).contains(&guard)).unwrap();
    send(tenure, Signal::KILL);
    assert_eq!(unshare.code(&world), 137);
    // Process 1 has ended, and so has everything else: the seat was freed before.
    let status = common::json_of(&world.output(&["status", "--json", "jobs"]));
    assert!(status["leader"].is_null() && status["crash"].is_object(), "{status}");
}

#[test]
fn process_1_with_a_terminal_handles_an_interrupt_from_another_process() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give a process of another session this terminal");
    }
    let world = World::alone();
    let run = "run --lease 10s jobs -- sh -c 'echo start $TENURE_TERM >> log; exec sleep 4713'";
    let line = format!(
        "exec unshare --pid --mount-proc --fork setsid --ctty {} {run} 2> errors",
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(world.path(""));
    script.envs(world.tenure(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut script = Running { child: script.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap() };
    world.log_of(1);
    let first = find(&world, "tenure");
    assert_eq!(first.len(), 1, "the child of process 1 has another name");
    send(first[0], Signal::INT);
    assert_eq!(script.code(&world), 130);
    world.eventually_empty();
}
