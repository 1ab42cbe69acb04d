//! `on_overrun = "abort"`: the process ends, even if standard error blocks or fails.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tenure_core::memory::Memory;
use tenure_core::{Elections, LifeKind, ManualClock, OnOverrun};

const ROLE: &str = "TENURE_TEST_OVERRUNS";

/// Starts its own program again, which overruns in that process.
#[test]
fn the_process_is_aborted_even_if_standard_error_blocks_or_fails() {
    if std::env::var_os(ROLE).is_some() {
        return overrun();
    }
    let (_reader, mut full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while full.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let no_space = File::options().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(full), no_space.into(), std::io::pipe().unwrap().1.into(), Stdio::null()] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_is_aborted_even_if_standard_error_blocks_or_fails", "--nocapture"])
            .env(ROLE, "1")
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.signal(), Some(6), "not aborted: {status}");
    }
}

/// Leads, and works beyond the end of its lease.
fn overrun() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let election = elections.election("jobs").on_overrun(OnOverrun::Abort).start().unwrap();
    clock.settle();
    let _work = election.term().unwrap().begin_work().unwrap();
    clock.jump(Duration::from_secs(60));
    clock.advance(Duration::from_secs(60));
    std::thread::sleep(Duration::from_secs(600));
}
