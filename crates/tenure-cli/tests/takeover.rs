//! Several candidates: the next command starts only when no process of the last one is left.
//!
//! The check is independent of tenure: each command locks the same file for as long as it lives.

#![cfg(target_os = "linux")]

mod common;

use common::{PROBE, Running, World, is_alive, is_stopped, send, text};
use rustix::process::{Signal, kill_process};

/// Starts a leader, and a follower that has seen it.
fn leader_and_follower(world: &World, options: &[&str]) -> (Running, Running) {
    let leader = world.run(&[options, &["--candidate", "one"]].concat(), PROBE);
    world.start_number(1);
    let follower = world.run(&[options, &["--candidate", "other"]].concat(), PROBE);
    world.eventually("the follower to wait", || {
        world.lines("errors").iter().any(|line| line.starts_with("tenure: waiting for jobs, led by one (term 1"))
    });
    (leader, follower)
}

fn assert_leaves_cleanly(world: &World, mut tenure: Running) {
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(world), 143);
    let vacant = world.output(&["status", "jobs"]);
    assert_eq!(vacant.status.code(), Some(1), "{}", text(&vacant.stdout));
    world.eventually_empty();
}

#[test]
fn the_steps_of_a_term_can_be_measured_and_the_seat_is_released_after_the_guard_has_found_no_process() {
    let world = World::alone();
    let mut tenure = world.tenure(&["run", "--quiet", "jobs", "--", "true"]);
    tenure.env("TENURE_PROFILE", world.path("profile"));
    assert!(world.output_of(tenure).status.success());
    let lines = world.lines("profile");
    let at = |step: &str| lines.iter().position(|line| line.split_once(' ').is_some_and(|(_, done)| done == step));
    let steps = ["engine sends bid", "sends start", "receives go", "sends exited", "sends gone", "receives gone"];
    let steps = steps.iter().chain(&["engine sends release", "engine has sent release"]);
    let places: Vec<_> = steps.map(|step| at(step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {lines:?}");
}

#[test]
fn when_tenure_is_killed_its_command_is_dead_before_the_next_starts() {
    let world = World::shared();
    let (leader, follower) = leader_and_follower(&world, &[]);
    let first = world.start_number(1);
    leader.signal(Signal::KILL);
    assert_eq!(world.start_number(2).candidate, "other");
    assert!(!is_alive(first.pid));
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn when_tenure_and_its_guard_are_killed_the_command_is_dead_before_the_next_starts() {
    let world = World::shared();
    let (leader, follower) = leader_and_follower(&world, &[]);
    let (first, guard) = (world.start_number(1), leader.guard(&world));
    // The guard is stopped first, so that it cannot react to the death of tenure.
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    leader.signal(Signal::KILL);
    send(guard, Signal::KILL);
    assert_eq!(world.start_number(2).candidate, "other");
    assert!(!is_alive(first.pid));
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn when_a_leader_leaves_the_next_command_starts_after_its_command_has_wrapped_up() {
    let world = World::shared();
    let slow = "exec 9>> probe; flock -n 9 || echo overlap >> log
        trap 'sleep 0.3; echo start 2 1 wrapped-up >> log; exit 7' TERM
        echo start 1 $$ one >> log; while :; do sleep 0.01; done";
    let mut leader = world.run(&["--candidate", "one", "--stop-grace", "1h"], slow);
    world.start_number(1);
    // The leader's script logs terms 1 and 2, so the follower's terms are shifted to stay in order.
    let follower = world.run(&["--candidate", "other"], &PROBE.replace("$TENURE_TERM", "$((TENURE_TERM + 1))"));
    world.eventually("the follower to wait", || world.lines("errors").iter().any(|line| line.contains("waiting for")));
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(&world), 7);
    world.start_number(3);
    assert_eq!(
        world.starts().iter().map(|start| start.candidate.as_str()).collect::<Vec<_>>(),
        ["one", "wrapped-up", "other"]
    );
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn a_stopped_leaders_command_is_dead_before_the_next_starts_and_the_resumed_leader_waits() {
    let world = World::shared();
    let (leader, follower) = leader_and_follower(&world, &["--lease", "3s"]);
    let first = world.start_number(1);
    leader.signal(Signal::STOP);
    let second = world.start_number(2);
    assert_eq!(second.candidate, "other");
    assert!(!is_alive(first.pid) && is_stopped(leader.pid()));
    leader.signal(Signal::CONT);
    world.eventually("the old leader to wait for the new one", || {
        world.lines("errors").iter().any(|line| line.starts_with("tenure: waiting for jobs, led by other (term 2"))
    });
    // It stands again, and leads again once the seat is vacant.
    let mut follower = follower;
    follower.signal(Signal::TERM);
    assert_eq!(follower.code(&world), 143);
    assert_eq!(world.start_number(3).candidate, "one");
    assert_leaves_cleanly(&world, leader);
}

#[test]
fn a_stopped_guard_does_not_keep_the_command_alive_beyond_a_hand_over() {
    let world = World::shared();
    let (mut leader, follower) = leader_and_follower(&world, &["--lease", "3s"]);
    let (first, guard) = (world.start_number(1), leader.guard(&world));
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(&world), 143);
    assert_eq!(world.start_number(2).candidate, "other");
    assert!(!is_alive(first.pid));
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn when_a_guard_is_stopped_and_tenure_killed_the_command_is_dead_before_the_next_starts() {
    let world = World::shared();
    let (mut leader, follower) = leader_and_follower(&world, &["--lease", "3s"]);
    let (first, guard) = (world.start_number(1), leader.guard(&world));
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    leader.signal(Signal::KILL);
    leader.wait(&world);
    assert_eq!(world.start_number(2).candidate, "other");
    assert!(!is_alive(first.pid) && !is_alive(guard));
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn descendants_in_sessions_of_their_own_are_gone_before_the_next_starts() {
    let world = World::shared();
    // The lock is held by an orphan that ignores SIGTERM.
    let holder = "trap \"\" TERM; exec 9>> probe; flock -n 9 || echo overlap >> log; echo start 1 1 >> log; sleep 1000";
    let leader = world.run(&[], &format!("(setsid sh -c '{holder}' &); exec sleep 1000"));
    world.start_number(1);
    let follower = world.run(&[], PROBE);
    world.eventually("the follower to wait", || world.lines("errors").iter().any(|line| line.contains("waiting for")));
    leader.signal(Signal::KILL);
    world.start_number(2);
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn no_two_commands_overlap_while_leaders_are_killed_repeatedly() {
    let world = World::shared();
    let candidates = ["a", "b", "c"];
    let start = |id: &str| world.run(&["--candidate", id], PROBE);
    let mut running: Vec<(String, Running)> = candidates.map(|id| (id.to_owned(), start(id))).into();
    for round in 1..=12 {
        let leader = world.start_number(round).candidate;
        let at = running.iter().position(|(id, _)| *id == leader).unwrap();
        let signal = if round % 3 == 0 { Signal::TERM } else { Signal::KILL };
        running[at].1.signal(signal);
        running[at].1.wait(&world);
        running[at].1 = start(&leader);
    }
    for (_, tenure) in &running {
        let _ = kill_process(tenure.pid(), Signal::TERM);
    }
    world.eventually("all to leave", || {
        running.iter_mut().all(|(_, tenure)| tenure.child.try_wait().unwrap().is_some())
    });
    world.starts();
    world.eventually_empty();
}

#[test]
fn two_candidates_with_the_same_id_never_both_lead() {
    let world = World::shared();
    let mut running: Vec<Running> = (0..3).map(|_| world.run(&["--candidate", "twin"], PROBE)).collect();
    for round in 1..=3 {
        let leader = world.start_number(round);
        // The ids are equal, so only the descent of the command shows which candidate leads.
        let guard = running.iter().position(|tenure| {
            // Some candidates may not have a guard yet.
            let guard = common::children(tenure.pid()).first().copied();
            guard.is_some_and(|guard| common::children(guard).contains(&leader.pid))
        });
        let mut tenure = running.remove(guard.unwrap());
        tenure.signal(Signal::KILL);
        tenure.wait(&world);
    }
    world.starts();
    world.eventually_empty();
}

#[test]
fn a_signal_to_a_follower_ends_it_at_once_and_no_command_starts() {
    let world = World::shared();
    let (leader, mut follower) = leader_and_follower(&world, &[]);
    follower.signal(Signal::INT);
    assert_eq!(follower.code(&world), 130);
    assert_leaves_cleanly(&world, leader);
    assert_eq!(world.starts().len(), 1);
}

#[test]
fn no_command_starts_during_shutdown() {
    for _ in 0..5 {
        let world = World::shared();
        let (mut leader, mut follower) = leader_and_follower(&world, &[]);
        // The seat becomes vacant while the follower is leaving.
        follower.signal(Signal::TERM);
        leader.signal(Signal::TERM);
        assert_eq!((follower.code(&world), leader.code(&world)), (143, 143));
        assert_eq!(world.starts().len(), 1);
        world.eventually_empty();
    }
}

#[test]
fn a_leader_that_is_asked_to_step_down_hands_over_and_stands_again() {
    let world = World::shared();
    let (leader, follower) = leader_and_follower(&world, &[]);
    let asked = world.output(&["step-down", "--wait", "30s", "jobs"]);
    assert_eq!(text(&asked.stdout), "one (term 1) has handed over\n", "{}", text(&asked.stderr));
    assert_eq!(world.start_number(2).candidate, "other");
    drop(follower);
    assert_eq!(world.start_number(3).candidate, "one");
    assert_leaves_cleanly(&world, leader);
}

#[test]
fn with_on_loss_exit_tenure_exits_when_its_term_ends() {
    let world = World::shared();
    let (mut leader, follower) = leader_and_follower(&world, &["--on-loss", "exit"]);
    assert!(world.output(&["step-down", "jobs"]).status.success());
    assert_eq!(leader.code(&world), 75);
    assert_eq!(world.start_number(2).candidate, "other");
    assert_leaves_cleanly(&world, follower);
}

#[test]
fn a_command_that_cannot_be_executed_leaves_the_seat_free() {
    let world = World::shared();
    // Only its execution shows that its interpreter is missing.
    world.script("stray", "");
    std::fs::write(world.path("stray"), "#!/nosuch/interpreter\n").unwrap();
    assert_eq!(world.output(&["run", "jobs", "--", "./stray"]).status.code(), Some(127));
    let status = world.output(&["status", "jobs"]);
    assert_eq!(text(&status.stdout), "vacant: no leader (last term: 1)\n");
    let next = world.output(&["run", "jobs", "--", "true"]);
    assert_eq!(next.status.code(), Some(0));
}
