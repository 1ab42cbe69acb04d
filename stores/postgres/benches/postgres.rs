//! Figures of elections over a PostgreSQL server on this machine, in both modes: how soon a leader is
//! followed, and what a thousand elections in one process cost while another keeps the server busy.
//!
//!   scripts/bench postgres        TENURE_BENCH_SECONDS=60 is how long the thousand run

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure_core::{Election, Elections, Event};
use tenure_postgres::PostgresStore;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Postgres, PostgresSetup};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = PostgresSetup::new().with("shared_preload_libraries=pg_stat_statements").start();
        server.sql("CREATE EXTENSION pg_stat_statements");
        for mode in ["lease", "session"] {
            println!("mode={mode}");
            graceful(&server, mode).await;
            if mode == "lease" {
                past_the_lapse(&server).await;
            } else {
                after_the_end_of_a_connection(&server).await;
            }
            a_thousand(&server, mode).await;
        }
    });
}

fn stand(url: &str, name: &str, lease: Duration) -> (Elections, Election) {
    let elections = Elections::new(PostgresStore::at(url).unwrap());
    let election = elections.election(name).lease(lease).start().unwrap();
    (elections, election)
}

/// From `stop()` of a leader without work to the next one's term.
async fn graceful(server: &Postgres, mode: &str) {
    let (url, name) = (format!("{}?mode={mode}", server.url()), format!("graceful-{mode}"));
    let mut spans = Vec::new();
    let mut leader = stand(&url, &name, Duration::from_secs(15));
    leader.1.elected().await.unwrap();
    for _ in 0..100 {
        let next = stand(&url, &name, Duration::from_secs(15));
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // It has settled down, and waits.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.unwrap();
        spans.push(began.elapsed());
        leader = next;
    }
    show("a leader that stops is followed after", &mut spans);
}

/// From the lapse of the lease, by the server's clock, to the next one's term.
async fn past_the_lapse(server: &Postgres) {
    let lease = Duration::from_secs(1);
    let mut spans = Vec::new();
    for round in 0..20 {
        let name = format!("crash-{round}");
        let proxy = Proxy::start(server.address());
        let leader = stand(&format!("postgres://postgres@{}/postgres", proxy.address()), &name, lease);
        leader.1.elected().await.unwrap();
        let next = stand(&server.url(), &name, lease);
        // At any point between two renewals.
        tokio::time::sleep(Duration::from_millis(700 + 37 * round)).await;
        proxy.black_hole(Way::Up);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let sql =
            format!("SELECT (extract(epoch FROM written) * 1000000)::int8 FROM tenure.seats WHERE name = '{name}'");
        let renewed = Duration::from_micros(server.sql(&sql).parse().unwrap());
        next.1.elected().await.unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        spans.push(now.checked_sub(renewed + lease).expect("it was followed before its lease had lapsed"));
    }
    show("a leader that is gone is followed, past the lapse, after", &mut spans);
}

/// From the end of the leader's connections, as by the end of its process, to the next one's term.
async fn after_the_end_of_a_connection(server: &Postgres) {
    let lease = Duration::from_secs(5);
    let mut spans = Vec::new();
    for round in 0..30 {
        let name = format!("ended-{round}");
        let proxy = Proxy::start(server.address());
        let leader = stand(&format!("postgres://postgres@{}/postgres?mode=session", proxy.address()), &name, lease);
        leader.1.elected().await.unwrap();
        let next = stand(&format!("{}?mode=session", server.url()), &name, lease);
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.refuse();
        let began = Instant::now();
        proxy.reset();
        next.1.elected().await.unwrap();
        spans.push(began.elapsed());
    }
    show("a leader whose connection ends is followed after", &mut spans);
}

async fn a_thousand(server: &Postgres, mode: &str) {
    let seconds: u64 = std::env::var("TENURE_BENCH_SECONDS").map_or(60, |text| text.parse().unwrap());
    let elections = Elections::new(PostgresStore::at(&format!("{}?mode={mode}", server.url())).unwrap());
    let memory = resident();
    let mut all = Vec::new();
    for number in 0..1000 {
        let name = format!("many-{mode}-{number}");
        let election = elections.election(name).lease(Duration::from_secs(3)).start().unwrap();
        all.push((election.events(), election));
    }
    for (_, election) in &all {
        election.elected().await.unwrap();
    }
    let load = Load::start(server);
    let (calls, cpu) = (statements(server), processor());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (calls, cpu) = (statements(server) - calls, processor() - cpu);
    drop(load);
    let mut lost = 0;
    for (events, _) in &mut all {
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            lost += u64::from(matches!(event, Event::LostLeadership { .. }));
        }
    }
    let leading = all.iter().filter(|(_, election)| election.is_leader()).count();
    println!("1000 elections, lease 3 s, {seconds} s beside pgbench: {leading} lead, {lost} terms lost");
    println!(
        "   {:.1} statements/s, {:.2} CPU-s per 30 s, {:.1} MB more than before",
        calls as f64 / seconds as f64,
        cpu / seconds as f64 * 30.0,
        resident().saturating_sub(memory) as f64 / 1e6
    );
}

/// How many statements on our tables the server has run.
fn statements(server: &Postgres) -> u64 {
    let sql = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%\"tenure\".%'";
    server.sql(sql).parse().unwrap()
}

/// Another process that asks as much of the server as it can.
struct Load(Child);

impl Load {
    fn start(server: &Postgres) -> Self {
        let port = server.port().to_string();
        let pgbench = |arguments: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--", "/usr/lib/postgresql/15/bin/pgbench"]).args(arguments);
            command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port, "postgres"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        assert!(pgbench(&["-i", "-q"]).status().expect("pgbench").success());
        Self(pgbench(&["-c", "10", "-T", "100000"]).spawn().expect("pgbench"))
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
