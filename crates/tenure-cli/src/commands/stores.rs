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
fn cost(global: &Global, args: &Stores) -> Result<u8, Failure> {
    if !cfg!(any(feature = "object-store", feature = "azure-blob")) {
        let features = "build it with the feature \"object-store\" or \"azure-blob\"";
        return Err(Failure::new(format!("no store of this program bills by the request; {features}")));
    }
    if args.lease.is_zero() {
        return Err(Failure::new("--lease must not be 0; write it like --lease 15s"));
    }
    let mut answer = json!({
        "lease_ms": ms(args.lease),
        "poll_every_ms": ms(args.lease / 3),
        "candidates": args.candidates,
        "notes": args.notes,
    });
    for cost in costs(args) {
        if global.json {
            cost.add_to(&mut answer);
        } else {
            cost.print(args)?;
        }
    }
    if global.json {
        print(versioned(answer))?;
    }
    Ok(0)
}

/// Returns what an election costs on each kind of store that bills by the request.
#[cfg_attr(
    not(any(feature = "object-store", feature = "azure-blob")),
    expect(unused_mut, unused_variables, reason = "no store bills by the request")
)]
fn costs(args: &Stores) -> Vec<Cost> {
    let Stores { lease, candidates, notes, write_price, read_price, .. } = *args;
    let mut costs = Vec::new();
    #[cfg(feature = "object-store")]
    {
        use tenure::object_store::cost::{Load, PRICES, Prices};
        let (load, writes) = (Load { lease, candidates, notes }, write_price.unwrap_or(PRICES.thousand_writes));
        let reads = read_price.unwrap_or(PRICES.thousand_reads);
        let prices = Prices { thousand_renewals: writes, thousand_writes: writes, thousand_reads: reads };
        let kinds = [("writes", "that write or list"), ("reads", "that read")];
        let counts = |of: tenure::object_store::cost::Requests| vec![of.renewals + of.writes, of.reads];
        costs.push(Cost {
            schemes: "s3://, gs://",
            field: None,
            kinds: kinds.to_vec(),
            hour: counts(load.per_hour()),
            month: counts(load.per_month()),
            price: load.per_month().price(&prices),
            rates: [writes, reads],
        });
    }
    #[cfg(feature = "azure-blob")]
    {
        use tenure::azure_blob::cost::{Load, PRICES, Prices};
        let (load, writes) = (Load { lease, candidates, notes }, write_price.unwrap_or(PRICES.thousand_writes));
        let reads = read_price.unwrap_or(PRICES.thousand_reads);
        let prices = Prices { thousand_renewals: reads, thousand_writes: writes, thousand_reads: reads };
        let kinds = [("renewals", "that renew"), ("reads", "that read"), ("writes", "that write or list")];
        let counts = |of: tenure::azure_blob::cost::Requests| vec![of.renewals, of.reads, of.writes];
        costs.push(Cost {
            schemes: "azblob://",
            field: Some("azblob"),
            kinds: kinds.to_vec(),
            hour: counts(load.per_hour()),
            month: counts(load.per_month()),
            price: load.per_month().price(&prices),
            rates: [writes, reads],
        });
    }
    costs
}

/// The requests and the price of an idle election on one kind of store.
struct Cost {
    schemes: &'static str,
    /// The field of the answer in JSON; `None` for the fields of the answer itself.
    field: Option<&'static str>,
    /// The kinds of requests, in JSON and in words.
    kinds: Vec<(&'static str, &'static str)>,
    /// How many of each kind there are.
    hour: Vec<f64>,
    month: Vec<f64>,
    price: f64,
    /// The prices of 1000 requests that write, and of 1000 that read.
    rates: [f64; 2],
}

impl Cost {
    fn add_to(&self, answer: &mut serde_json::Value) {
        let mut own = json!({ "usd_per_month": (self.price * 100.0).round() / 100.0 });
        for (time, counts) in [("hour", &self.hour), ("month", &self.month)] {
            for ((kind, _), count) in self.kinds.iter().zip(counts) {
                own[format!("{kind}_per_{time}")] = json!(count.round() as u64);
            }
        }
        match (self.field, own) {
            (Some(field), own) => answer[field] = own,
            (None, serde_json::Value::Object(fields)) => {
                fields.into_iter().for_each(|(name, value)| answer[name] = value)
            }
            (None, _) => {}
        }
    }

    fn print(&self, args: &Stores) -> Result<(), Failure> {
        let paint = Paint::for_stream(&std::io::stdout());
        let notes = if args.notes { "with notes" } else { "without notes" };
        let (lease, candidates, schemes) = (tenure::span::show(args.lease), args.candidates, self.schemes);
        print(paint.bold(format!("{schemes}: one idle election, lease {lease}, {candidates} candidates, {notes}")))?;
        for (what, counts) in [("an hour", &self.hour), ("a month", &self.month)] {
            let counts = self.kinds.iter().zip(counts).map(|((_, words), count)| format!("{count:.0} {words}"));
            let counts = counts.collect::<Vec<_>>().join(", ");
            print(format!("  {} {counts}", paint.dim(format!("requests {what:<10}"))))?;
        }
        let poll = tenure::span::show(args.lease / 3);
        let poll = format!("{poll}; so long, at most, until a follower takes a seat that was released");
        print(format!("  {} {poll}", paint.dim(format!("{:<19}", "polls every"))))?;
        let [writes, reads] = self.rates;
        let rates =
            format!("at ${writes} for 1000 that write, and ${reads} for 1000 others; prices change, look them up");
        print(format!("  {} ${:.2} ({rates})", paint.dim(format!("{:<19}", "price a month")), self.price))
    }
}

fn describe(url: &str, promises: &Promises, notes: bool) -> Result<(), Failure> {
    let paint = Paint::for_stream(&std::io::stdout());
    print(paint.bold(url))?;
    let takeover = match (promises.life, promises.takeover) {
        (LifeKind::Session, _) if promises.lifeline => "at once when its process is gone, or its session ends",
        (LifeKind::Lock, _) => "at once when its process is gone, otherwise when its lease expires",
        (LifeKind::Session, _) if promises.push == Push::None => {
            "up to a third of a lease later by its last will, otherwise after its lease"
        }
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
        ("longest lease", tenure::span::show(promises.max_lease)),
    ];
    let is_unlimited = promises.max_lease == std::time::Duration::MAX;
    let rows = rows.into_iter().filter(|(what, _)| !is_unlimited || *what != "longest lease");
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
        "max_lease_ms": (promises.max_lease != std::time::Duration::MAX).then(|| ms(promises.max_lease)),
        "broken_by": promises.broken_by,
    })
}
