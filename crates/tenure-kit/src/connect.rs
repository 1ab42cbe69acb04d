//! Opening a connection: which of several hosts is tried when, and the words for a connection that fails.

use std::error::Error;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{Fault, StoreError};
use tokio::time::sleep;

/// A host that failed is tried again after this time, as long as another one has neither answered nor failed: the
/// first one may have had no leader for a moment, for instance because the silent host was the leader.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Connects to several hosts, and returns the first connection that is open.
///
/// Each host has a head start before the next one: a host that is silent does not use up the time of the others, and
/// one that fails does not delay them. `connect` must have its own time-out.
///
/// # Errors
/// If every host has failed: the first error that may go away, or else a permanent one. A permanent error makes the
/// engine retry less often, so it must not hide that another host may recover.
pub async fn first_of<H, T, F>(
    hosts: impl ExactSizeIterator<Item = H>,
    head_start: Duration,
    connect: impl Fn(H) -> F,
) -> Result<T, StoreError>
where
    H: Clone,
    F: Future<Output = Result<T, StoreError>>,
{
    let attempt = async |host: H, after: Duration| {
        sleep(after).await;
        (connect(host.clone()).await, host, after)
    };
    let (mut next, mut attempts) = (hosts.fuse(), FuturesUnordered::new());
    let mut problem = StoreError::denied("no host is given; name at least one in the URL");
    // The number of hosts that have neither answered nor failed.
    let mut silent = next.len();
    while silent > 0 {
        if let Some(host) = next.next() {
            attempts.push(attempt(host, Duration::ZERO));
        }
        tokio::select! {
            Some((opened, host, after)) = attempts.next() => match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    silent -= usize::from(after.is_zero());
                    if error.fault() != Fault::Denied {
                        attempts.push(attempt(host, RETRY_AFTER));
                    }
                    if problem.fault() == Fault::Denied {
                        problem = error;
                    }
                }
            },
            () = sleep(head_start), if next.len() > 0 => {}
        }
    }
    Err(problem)
}

/// Describes a connection that could not be opened. Nothing was sent, so a call had no effect.
///
/// `server` is what should run there, such as `the Consul agent`. `tls_advice` is what to check if TLS failed.
pub fn cannot_connect(host: impl Display, server: &str, tls_advice: &str, error: &(dyn Error + 'static)) -> StoreError {
    if is_about_tls(error) {
        return no_tls(host, tls_advice, error);
    }
    let causes = causes(error);
    let is_refused = causes.to_lowercase().contains("refused");
    StoreError::refused(match is_refused {
        true => {
            format!("cannot connect to {host}: connection refused; check host and port, and that {server} is running")
        }
        false => format!("cannot connect to {host}; check the host and the network"),
    })
    .because(causes)
}

/// Describes a TLS handshake that failed. `advice` is what to check.
pub fn no_tls(host: impl Display, advice: &str, error: &(dyn Error + 'static)) -> StoreError {
    StoreError::denied(format!("cannot establish TLS with {host}; {advice}")).because(causes(error))
}

/// Returns whether TLS caused an error of connecting. Clients wrap errors of TLS in their own, so the text decides. A
/// connection that is closed during the handshake is not about TLS: the server, or what is in between, may be restarting.
pub fn is_about_tls(error: &(dyn Error + 'static)) -> bool {
    let causes = causes(error).to_lowercase();
    if causes.contains("handshake eof") {
        return false;
    }
    ["certificate", "tls", "handshake", "invalidcontenttype", "corruptmessage", "corrupt message"]
        .iter()
        .any(|word| causes.contains(word))
}

/// Returns the text of an error and of its causes, in one line. An error whose text repeats that of its cause is left
/// out.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source())
        .map(|error| error.to_string().replace('\n', " "))
        .collect();
    let repeats = |place: usize| texts.get(place + 1).is_some_and(|next| texts[place].contains(next.as_str()));
    let told = (0..texts.len()).filter(|place| !repeats(*place)).map(|place| texts[place].as_str());
    told.collect::<Vec<_>>().join(": ")
}
