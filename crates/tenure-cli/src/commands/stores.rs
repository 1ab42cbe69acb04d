//! `tenure stores`: what is compiled in, what it promises, and what breaks that.

use serde_json::json;
use tenure::{LifeKind, Promises, Push, Takeover};

use super::print;
use crate::args::Global;
use crate::failure::Failure;
use crate::screen::Paint;

pub(crate) fn run(global: &Global) -> Result<u8, Failure> {
    let mut all = Vec::new();
    // A memory is of no use to a command: see `Setup`.
    for url in tenure::examples().iter().filter(|url| **url != "memory:") {
        all.push((*url, tenure::connect(url)?.promises()));
    }
    if global.json {
        let stores: Vec<_> = all.iter().map(|(url, promises)| as_json(url, promises)).collect();
        print(json!({ "stores": stores }))?;
        return Ok(0);
    }
    for (at, (url, promises)) in all.iter().enumerate() {
        if at > 0 {
            print("")?;
        }
        describe(url, promises)?;
    }
    Ok(0)
}

fn describe(url: &str, promises: &Promises) -> Result<(), Failure> {
    let paint = Paint::for_stream(&std::io::stdout());
    print(paint.bold(url))?;
    let takeover = match (promises.life, promises.takeover) {
        (LifeKind::Lock, _) => "at once when its process is gone, else when its lease is over",
        (LifeKind::Session, Takeover::Instant) => "at once when its session is over",
        (LifeKind::Session, Takeover::Safe) => "a lease after its session is over",
        (LifeKind::Observe | LifeKind::Clock, _) => "when its lease is over",
    };
    let push = match promises.push {
        Push::None => "none: candidates look every so often",
        Push::Hint => "yes; a lost one costs no more than a look",
        Push::Proven => "yes, and proves itself alive",
    };
    let rows = [
        ("a leader's end is told by", promises.life.to_string()),
        ("a dead leader is followed", takeover.to_owned()),
        ("push", push.to_owned()),
        ("kept", promises.durability.to_owned()),
        ("shortest lease", tenure::span::show(promises.min_lease)),
    ];
    for (what, said) in rows {
        print(format!("  {} {said}", paint.dim(format!("{what:<26}"))))?;
    }
    for (at, breach) in promises.broken_by.iter().enumerate() {
        let what = if at == 0 { "what breaks this" } else { "" };
        print(format!("  {} {}", paint.dim(format!("{what:<26}")), paint.yellow(breach)))?;
    }
    Ok(())
}

fn as_json(url: &str, promises: &Promises) -> serde_json::Value {
    json!({
        "url": url,
        "life": promises.life.to_string(),
        "takeover": match promises.takeover { Takeover::Instant => "instant", Takeover::Safe => "safe" },
        "over_is_proof": promises.over_is_proof,
        "push": match promises.push { Push::None => "none", Push::Hint => "hint", Push::Proven => "proven" },
        "shared_heartbeat": promises.shared_heartbeat,
        "durability": promises.durability,
        "min_lease_ms": promises.min_lease.as_millis() as u64,
        "broken_by": promises.broken_by,
    })
}
