//! `tenure stores`: lists the stores in this program, their promises, and what breaks them.

use serde_json::json;
use tenure::store::{LifeKind, Push};
use tenure::{Promises, Takeover};

use super::print;
use crate::args::{Global, Stores};
use crate::failure::Failure;
use crate::json::{ms, versioned};
use crate::screen::Paint;

pub(crate) fn run(global: &Global, args: &Stores) -> Result<u8, Failure> {
    if args.cost {
        return cost(global, args);
    }
    let mut all = Vec::new();
    // The command does not accept the memory store: see `Setup`.
    for url in tenure::examples().iter().filter(|url| **url != "memory:") {
        let store = tenure::connect(url)?;
        all.push((*url, store.promises(), store.notes().is_some()));
    }
    if global.json {
        let stores: Vec<_> = all.iter().map(|(url, promises, notes)| as_json(url, promises, *notes)).collect();
        print(versioned(json!({ "stores": stores })))?;
        return Ok(0);
    }
    for (at, (url, promises, notes)) in all.iter().enumerate() {
        if at > 0 {
            print("")?;
        }
        describe(url, promises, *notes)?;
    }
    Ok(0)
}

/// Prints the requests and the price of an election on stores that bill by the request.
#[cfg(feature = "object-store")]
fn cost(global: &Global, args: &Stores) -> Result<u8, Failure> {
    use tenure::object_store::cost::{Load, Prices};
    let Stores { lease, candidates, notes, write_price: thousand_writes, read_price: thousand_reads, .. } = *args;
    if lease.is_zero() {
        return Err(Failure::new("--lease must not be 0; write it like --lease 15s"));
    }
    let load = Load { lease, candidates, notes };
    let (hour, month) = (load.per_hour(), load.per_month());
    let price = month.price(&Prices { thousand_writes, thousand_reads });
    if global.json {
        print(versioned(json!({
            "lease_ms": ms(lease),
            "poll_every_ms": ms(lease / 3),
            "candidates": candidates,
            "notes": notes,
            "writes_per_hour": hour.writes.round() as u64,
            "reads_per_hour": hour.reads.round() as u64,
            "writes_per_month": month.writes.round() as u64,
            "reads_per_month": month.reads.round() as u64,
            "usd_per_month": (price * 100.0).round() / 100.0,
        })))?;
        return Ok(0);
    }
    let paint = Paint::for_stream(&std::io::stdout());
    let notes = if notes { "with notes" } else { "without notes" };
    let (lease, poll) = (tenure::span::show(lease), tenure::span::show(lease / 3));
    print(paint.bold(format!("s3://, gs://: one idle election, lease {lease}, {candidates} candidates, {notes}")))?;
    for (what, requests) in [("an hour", hour), ("a month", month)] {
        print(format!(
            "  {} {:.0} that write or list, {:.0} that read",
            paint.dim(format!("requests {what:<10}")),
            requests.writes,
            requests.reads
        ))?;
    }
    let poll = format!("{poll}; so long, at most, until a follower takes a seat that was released");
    print(format!("  {} {poll}", paint.dim(format!("{:<19}", "polls every"))))?;
    let rates = format!("at ${thousand_writes} and ${thousand_reads} for 1000 of each; prices change, look them up");
    print(format!("  {} ${price:.2} ({rates})", paint.dim(format!("{:<19}", "price a month"))))?;
    Ok(0)
}

#[cfg(not(feature = "object-store"))]
fn cost(_: &Global, _: &Stores) -> Result<u8, Failure> {
    Err(Failure::new("no store of this program bills by the request; build it with the feature \"object-store\""))
}

fn describe(url: &str, promises: &Promises, notes: bool) -> Result<(), Failure> {
    let paint = Paint::for_stream(&std::io::stdout());
    print(paint.bold(url))?;
    let takeover = match (promises.life, promises.takeover) {
        (LifeKind::Session, _) if promises.lifeline => "at once when its process is gone, or its session ends",
        (LifeKind::Lock, _) => "at once when its process is gone, otherwise when its lease expires",
        (LifeKind::Session, Takeover::Instant) => "at once, by its last will or when its session ends",
        (LifeKind::Session, Takeover::Safe) => "at once by its last will, otherwise a lease after its session ends",
        (LifeKind::Observe | LifeKind::Clock, _) if promises.push == Push::None => {
            "up to a third of a lease later by its last will, otherwise when its lease expires"
        }
        (LifeKind::Observe | LifeKind::Clock, _) => "at once by its last will, otherwise when its lease expires",
    };
    let push = match promises.push {
        Push::None => "no: candidates poll",
        Push::Hint => "yes; candidates also poll, in case a notification is lost",
        Push::Proven => "yes; the store detects lost notifications",
    };
    let rows = [
        ("liveness", promises.life.to_string()),
        ("dead leader is replaced", takeover.to_owned()),
        ("notifies candidates", push.to_owned()),
        ("lists candidates", if notes { "yes" } else { "no: it keeps no notes, and takes no requests" }.to_owned()),
        ("durability", promises.durability.to_owned()),
        ("shortest lease", shortest_lease(promises)),
    ];
    for (what, text) in rows {
        print(format!("  {} {text}", paint.dim(format!("{what:<26}"))))?;
    }
    for (at, breach) in promises.broken_by.iter().enumerate() {
        let what = if at == 0 { "broken by" } else { "" };
        print(format!("  {} {}", paint.dim(format!("{what:<26}")), paint.yellow(breach)))?;
    }
    Ok(())
}

/// Returns the shortest lease on this store: that of `tenure run`, and that of a program if it can be shorter.
fn shortest_lease(promises: &Promises) -> String {
    let show = tenure::span::show;
    #[cfg(target_os = "linux")]
    {
        let command = super::run::shortest_lease();
        if command > promises.min_lease {
            return format!("{} with tenure run, {} in a program", show(command), show(promises.min_lease));
        }
    }
    show(promises.min_lease)
}

fn as_json(url: &str, promises: &Promises, notes: bool) -> serde_json::Value {
    json!({
        "url": url,
        "life": promises.life.to_string(),
        "takeover": match promises.takeover { Takeover::Instant => "instant", Takeover::Safe => "safe" },
        "over_is_proof": promises.over_is_proof,
        "push": match promises.push { Push::None => "none", Push::Hint => "hint", Push::Proven => "proven" },
        "notes": notes,
        "shared_heartbeat": promises.shared_heartbeat,
        "durability": promises.durability,
        "min_lease_ms": ms(promises.min_lease),
        "broken_by": promises.broken_by,
    })
}
