//! Measures a hand-over to a named candidate among three. In programs: from the call, made by the leader's own program
//! or by another one, to the heir's work. With the command: from the start of `tenure step-down --to` to the start of
//! the heir's command. It is an error if the third candidate gets the seat.
//!
//!   scripts/bench transfer [sqlite|redis|postgres]…
//!     TENURE_BENCH_ROUNDS=40    the number of rounds

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

    const OPEN: Open = |url| tenure::connect(url).expect("a valid URL");

    pub(crate) fn main() {
        let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        type Start = fn() -> Box<dyn BenchTarget>;
        let targets: [(&str, Start); 4] = [
            ("sqlite", || Box::new(FileTarget::new())),
            ("redis", || Box::new(RedisTarget::start())),
            ("postgres", || Box::new(PostgresTarget::start("lease"))),
            ("postgres", || Box::new(PostgresTarget::start("session"))),
        ];
        println!("time from the call to the start of the named candidate's work");
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

    /// Measures `tenure step-down --to` between three `tenure run`.
    fn command(target: &dyn BenchTarget) {
        let mut scene = Scene::new("tenure", &target.url(), "15s");
        let (leader, _) = scene.next();
        scene.candidates.swap(0, leader);
        let mut spans = Vec::new();
        for _ in 0..rounds() {
            // Long enough for all candidates to be idle and listed.
            std::thread::sleep(Duration::from_millis(200));
            let heir = scene.candidates[1].0.clone();
            let began = Instant::now();
            let mut asked = Command::new(TENURE)
                .args(["step-down", "--quiet", "--store", &target.url(), "bench", "--to", &heir])
                .spawn()
                .expect("tenure starts");
            let (next, at) = scene.next();
            spans.push(at - began);
            assert_eq!(scene.candidates[next].0, heir, "the third candidate got the seat");
            assert!(asked.wait().expect("a child").success(), "step-down failed although the heir leads");
            // The third candidate is the next heir.
            scene.candidates.rotate_left(1);
        }
        show("  tenure step-down --to, between three tenure run", &mut spans);
        scene.assert_no_overlap();
    }
}
