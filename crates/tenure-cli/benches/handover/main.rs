//! Measures the hand-over between two wrapped commands, from the end of one to the first instruction of the next, beside
//! the tools that people use for it today: flock(1), python-redis-lock, pals, `etcdctl lock` and `consul lock`.
//!
//!   scripts/bench handover [STORE…] [--profile]
//!     TENURE_BENCH_ROUNDS=30       the number of rounds
//!     TENURE_BENCH_CANDIDATES=3    the leader, and those that wait
//!     TENURE_BENCH_BEFORE=FILE     another `tenure`, for example of an earlier version, measured in the same run
//!
//! All of them run the same command, which is this executable, and take turns, so that they see the same machine. In a
//! first measurement the command ends by itself, and its last act is to take the time. In a second one the process that
//! holds the lock is killed (-9), and this bench takes the time. A peer that is not installed is named and left out. The
//! lease is 3 s.
//!
//! With `--profile`, one candidate waits, and each step of `tenure` is printed with its median time after the end of the
//! command.
//!
//! - `probe.rs`: the command
//! - `contest.rs`: candidates of one kind, which hand over to each other
//! - `kinds.rs`: `tenure run` and the other tools
//! - `profile.rs`: the steps of a hand-over

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod contest;
#[cfg(target_os = "linux")]
mod kinds;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod profile;

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Duration;

    use tenure_testkit::figures::number;

    use super::contest::{Contest, End};
    use super::kinds::{self, Kind};
    use super::probe;

    pub(crate) fn main() {
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        if words.first().is_some_and(|word| word == probe::PROBE) {
            return probe::main(&words[1..]);
        }
        let profiles = words.iter().any(|word| word == "--profile");
        words.retain(|word| !word.starts_with('-'));
        let known = kinds::STORES.map(|(name, _)| name);
        if let Some(word) = words.iter().find(|word| !known.contains(&word.as_str())) {
            panic!("no store {word:?}; the stores are {known:?}");
        }
        println!("time from the end of a command to the first instruction of the next, {} rounds each", rounds());
        for (name, start) in kinds::STORES {
            if words.is_empty() || words.iter().any(|word| word == name) {
                for (target, kinds) in start(profiles) {
                    println!("\n{}, lease 3s, load of the machine {}", target.name(), load());
                    compare(kinds, profiles);
                }
            }
        }
    }

    fn rounds() -> u64 {
        number("TENURE_BENCH_ROUNDS", 30)
    }

    fn load() -> String {
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
    }

    /// Measures kinds of candidates in turns, and prints their figures. The last kind is the one to compare with.
    fn compare(kinds: Vec<Kind>, profiles: bool) {
        let mut contests: Vec<Contest> = kinds.into_iter().map(Contest::start).collect();
        let count = contests.len();
        for end in [End::ByItself, End::Killed] {
            println!(
                "{}",
                if end == End::Killed { " the holder is killed (-9)" } else { " the command ends by itself" }
            );
            let mut spans = vec![Vec::new(); contests.len()];
            for round in 0..rounds() as usize {
                // Each comes first in turn: who follows another finds its programs and its server in the caches.
                for place in (0..count).map(|place| (place + round) % count) {
                    if contests[place].kind.can(end) {
                        spans[place].push(contests[place].hand_over(end));
                    }
                }
            }
            spans.iter_mut().for_each(|spans| spans.sort());
            let peer = spans.last().filter(|_| contests.len() > 1).and_then(|spans| median(spans));
            for (contest, spans) in contests.iter_mut().zip(&spans) {
                match median(spans) {
                    Some(p50) => show(&contest.kind.name, spans, peer.map(|peer| p50 / peer)),
                    None => println!("  {:<28} frees the lock only when it expires: not measured", contest.kind.name),
                }
                if profiles {
                    contest.profile.print();
                }
            }
        }
        for contest in &contests {
            println!(" overlaps of {}: {}", contest.kind.name, contest.overlaps);
            assert!(contest.overlaps == 0 || contest.kind.is_peer, "two commands of tenure overlap");
        }
    }

    fn at(spans: &[Duration], percent: usize) -> f64 {
        spans[(spans.len() - 1) * percent / 100].as_secs_f64() * 1000.0
    }

    fn median(spans: &[Duration]) -> Option<f64> {
        (!spans.is_empty()).then(|| at(spans, 50))
    }

    fn show(name: &str, spans: &[Duration], ratio: Option<f64>) {
        let [p50, p95, worst] = [50, 95, 100].map(|percent| at(spans, percent));
        let ratio = ratio.map_or(String::new(), |ratio| format!("   {ratio:4.2} times the last"));
        println!("  {name:<28} p50 {p50:6.2} ms   p95 {p95:6.2} ms   worst {worst:6.2} ms{ratio}");
    }
}
