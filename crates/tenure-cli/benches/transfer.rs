//! How long it takes to hand over to a named candidate, from the call to the heir's work, among three that
//! stand: asked by the leader's own program, by another one, and by `tenure step-down --to` between three
//! `tenure run`, from the start of that command to the start of the heir's. A third that gets the seat
//! instead is an error.
//!
//!   scripts/bench transfer [sqlite|redis|postgres]…
//!     TENURE_BENCH_ROUNDS=40    how often

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod scene;

#[cfg(target_os = "linux")]
mod linux {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use tenure_testkit::figures::{BenchTarget, FileTarget, Open, PostgresTarget, RedisTarget, hand_over, show};

    use super::scene::{Scene, TENURE, rounds};

    const OPEN: Open = |url| tenure::connect(url).expect("a URL that can be read");

    pub(crate) fn main() {
        let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        type Start = fn() -> Box<dyn BenchTarget>;
        let targets: [(&str, Start); 4] = [
            ("sqlite", || Box::new(FileTarget::new())),
            ("redis", || Box::new(RedisTarget::start())),
            ("postgres", || Box::new(PostgresTarget::start("lease"))),
            ("postgres", || Box::new(PostgresTarget::start("session"))),
        ];
        println!("from the call to the work of the candidate that was named");
        for (name, start) in targets {
            if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
                continue;
            }
            let target = start();
            println!("{}", target.name());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(hand_over::named(&*target, OPEN, rounds()));
            command(&*target);
        }
    }

    /// Between three `tenure run`.
    fn command(target: &dyn BenchTarget) {
        let mut scene = Scene::new("tenure", &target.url(), "15s");
        let (leader, _) = scene.next();
        scene.candidates.swap(0, leader);
        let mut spans = Vec::new();
        for _ in 0..rounds() {
            // Everybody has long settled, and is listed.
            std::thread::sleep(Duration::from_millis(200));
            let heir = scene.candidates[1].0.clone();
            let began = Instant::now();
            let mut asked = Command::new(TENURE)
                .args(["step-down", "--quiet", "--store", &target.url(), "bench", "--to", &heir])
                .spawn()
                .expect("tenure starts");
            let (next, at) = scene.next();
            spans.push(at - began);
            assert_eq!(scene.candidates[next].0, heir, "a third got the seat");
            assert!(asked.wait().expect("it is a child").success(), "it was handed over, and told otherwise");
            // The third is the next heir.
            scene.candidates.rotate_left(1);
        }
        show("  tenure step-down --to, between three tenure run", &mut spans);
        scene.nobody_overlapped();
    }
}
