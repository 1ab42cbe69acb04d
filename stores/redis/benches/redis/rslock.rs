//! For comparison: as many locks of rslock in one process, each extended every third of its time.

use std::process::{Command, Stdio};
use std::time::Duration;

use rslock::{Lock, LockManager};
use tenure_testkit::figures::{BenchTarget, Usage, number};

const CHILD: &str = "TENURE_BENCH_RSLOCK";
const LOCKS: usize = 1000;
const TIME: Duration = Duration::from_secs(3);

/// Prints what the locks cost while another process keeps the server busy.
pub(crate) fn beside_a_load(target: &dyn BenchTarget) {
    let load = target.saturate();
    let child = Command::new(std::env::current_exe().expect("this program"))
        .env(CHILD, target.url())
        .stdout(Stdio::inherit())
        .status();
    drop(load);
    assert!(child.expect("this program starts").success());
}

/// Holds the locks if this process was started for that. Returns whether it was.
pub(crate) fn child() -> bool {
    let Ok(url) = std::env::var(CHILD) else { return false };
    let seconds = number("TENURE_BENCH_SECONDS", 60);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let empty = Usage::of_this_process().memory;
        let manager = LockManager::new(vec![url]);
        let lost = std::rc::Rc::new(std::cell::Cell::new(0));
        for number in 0..LOCKS {
            let lock = manager.lock(format!("rslock-{number}").as_bytes(), TIME).await.expect("a lock");
            let (manager, lost) = (manager.clone(), lost.clone());
            tokio::task::spawn_local(async move {
                let mut lock: Lock = lock;
                loop {
                    tokio::time::sleep(TIME / 3).await;
                    match manager.extend(&lock, TIME).await {
                        Ok(extended) => lock = extended,
                        Err(_) => return lost.set(lost.get() + 1),
                    }
                }
            });
        }
        let before = Usage::of_this_process();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let after = Usage::of_this_process();
        println!("{LOCKS} locks of rslock under the same load: {} lost", lost.get());
        println!(
            "   {:.2} CPU-s per 30 s, {:.1} MB for the whole process, {:.1} MB more than before they started",
            (after.processor - before.processor).as_secs_f64() / seconds as f64 * 30.0,
            after.memory as f64 / 1e6,
            after.memory.saturating_sub(empty) as f64 / 1e6,
        );
    });
    true
}
