//! Figures of elections over a Redis server on this machine: how soon a leader is followed, and what a
//! thousand elections in one process cost while another process keeps the server busy.
//!
//!   scripts/bench redis        TENURE_BENCH_SECONDS=60 is how long the thousand run

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure_core::{Election, Elections, Event};
use tenure_redis::RedisStore;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::Redis;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = Redis::start();
        graceful(&redis).await;
        after_a_crash(&redis).await;
        a_thousand(&redis).await;
    });
}

fn stand(url: &str, name: &str, lease: Duration) -> (Elections, Election) {
    let elections = Elections::new(RedisStore::from_url(url).unwrap());
    let election = elections.election(name).lease(lease).start().unwrap();
    (elections, election)
}

/// From `stop()` of a leader without work to the next one's term.
async fn graceful(redis: &Redis) {
    let mut spans = Vec::new();
    let mut leader = stand(&redis.url(), "graceful", Duration::from_secs(15));
    leader.1.elected().await.unwrap();
    for _ in 0..200 {
        let next = stand(&redis.url(), "graceful", Duration::from_secs(15));
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.unwrap();
        spans.push(began.elapsed());
        leader = next;
    }
    show("a leader that stops is followed after", &mut spans);
}

/// From the lapse of the lease, by the server's clock, to the next one's term.
async fn after_a_crash(redis: &Redis) {
    let lease = Duration::from_secs(1);
    let mut spans = Vec::new();
    for round in 0..20 {
        let name = format!("crash-{round}");
        let proxy = Proxy::start(redis.address());
        let leader = stand(&format!("redis://{}", proxy.address()), &name, lease);
        leader.1.elected().await.unwrap();
        let next = stand(&redis.url(), &name, lease);
        // At any point between two renewals.
        tokio::time::sleep(Duration::from_millis(700 + 37 * round)).await;
        proxy.black_hole(Way::Up);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let at = redis.ask(&["HGET", &format!("tenure:{{{name}}}:seat"), "at"]);
        let (seconds, micros) = at.text().split_once(' ').unwrap();
        let renewed = Duration::new(seconds.parse().unwrap(), micros.parse::<u32>().unwrap() * 1000);
        next.1.elected().await.unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        spans.push(now.checked_sub(renewed + lease).expect("it was followed before its lease had lapsed"));
    }
    show("a leader that is gone is followed, past the lapse, after", &mut spans);
}

async fn a_thousand(redis: &Redis) {
    let seconds: u64 = std::env::var("TENURE_BENCH_SECONDS").map_or(60, |text| text.parse().unwrap());
    let elections = Elections::new(RedisStore::from_url(&redis.url()).unwrap());
    let memory = resident();
    let mut all = Vec::new();
    for number in 0..1000 {
        let election = elections.election(format!("many-{number}")).lease(Duration::from_secs(3)).start().unwrap();
        all.push((election.events(), election));
    }
    for (_, election) in &all {
        election.elected().await.unwrap();
    }
    let load = Load::start(redis);
    let (calls, cpu) = (redis.calls("evalsha"), processor());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (calls, cpu) = (redis.calls("evalsha") - calls, processor() - cpu);
    drop(load);
    let mut lost = 0;
    for (events, _) in &mut all {
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            lost += u64::from(matches!(event, Event::LostLeadership { .. }));
        }
    }
    let leading = all.iter().filter(|(_, election)| election.is_leader()).count();
    println!("1000 elections, lease 3 s, {seconds} s beside redis-benchmark: {leading} lead, {lost} terms lost");
    println!(
        "   {:.0} writes/s, {:.2} CPU-s per 30 s, {:.1} MB more than before",
        calls as f64 / seconds as f64,
        cpu / seconds as f64 * 30.0,
        (resident() - memory) as f64 / 1e6
    );
    assert_eq!(lost, 0, "terms were lost though nothing was wrong");
}

/// Another process that asks as much of the server as it can.
struct Load(Child);

impl Load {
    fn start(redis: &Redis) -> Self {
        let port = redis.port().to_string();
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "redis-benchmark",
                "-p",
                &port,
                "-q",
                "-l",
                "-c",
                "20",
                "-t",
                "set,get",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-benchmark");
        Self(child)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn show(what: &str, spans: &mut [Duration]) {
    spans.sort();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}, most {:.2?} ({} times)", at(50), at(99), at(100), spans.len());
}

/// Seconds of processor that this process has used.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
