//! Exports the metrics of elections to Prometheus: run it, then `curl http://127.0.0.1:9100/metrics`.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tenure::layers::Measured;
use tenure::{Elections, MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before all elections, so that no update is missed.
    let metrics = install()?;
    let endpoint = TcpListener::bind("127.0.0.1:9100")?;
    println!("curl http://{}/metrics", endpoint.local_addr()?);
    std::thread::spawn(move || serve(&endpoint, &metrics));

    // `Measured` adds the metrics of calls to the store. The engine updates the metrics of elections.
    let elections = Elections::new(Measured::new(MemoryStore::new()));
    let _election = elections.election("nightly-jobs").candidate("a").start()?;
    elections.run_until_signal().await?;
    Ok(())
}

/// Installs the recorder with the recommended buckets.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let mut prometheus = PrometheusBuilder::new();
    for (metric, buckets) in tenure::telemetry::buckets() {
        prometheus = prometheus.set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)?;
    }
    prometheus.install_recorder()
}

/// Answers every request with the metrics, one at a time. A program with an HTTP server adds a route to it instead.
pub(crate) fn serve(endpoint: &TcpListener, metrics: &PrometheusHandle) {
    for client in endpoint.incoming() {
        if let Err(error) = client.and_then(|client| answer(client, &metrics.render())) {
            eprintln!("a scrape failed: {error}");
        }
    }
}

fn answer(mut client: TcpStream, metrics: &str) -> std::io::Result<()> {
    for line in BufReader::new(client.try_clone()?).lines() {
        if line?.is_empty() {
            break;
        }
    }
    let length = metrics.len();
    write!(client, "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n\r\n")?;
    client.write_all(metrics.as_bytes())
}
