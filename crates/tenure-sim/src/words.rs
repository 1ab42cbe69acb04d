//! Descriptions of inputs and actions, for timelines.

use tenure_protocol::{Action, Input, Life, Moment, Reading, Record, RosterEntry, Swap};

pub(crate) fn input(input: &Input) -> String {
    match input {
        Input::Read(Ok(reading)) => format!("the read returns {}", seat(reading)),
        Input::Read(Err(fault)) => format!("the read failed: {fault:?}"),
        Input::Written(Ok(Swap::Done { version, since, .. })) => {
            let since = since.map_or(String::new(), |since| format!(", proved alive at {since}"));
            format!("written as {}{since}", version.as_str())
        }
        Input::Written(Ok(Swap::Lost)) => "not written: the seat has another version".into(),
        Input::Written(Err(fault)) => format!("the write failed: {fault:?}"),
        Input::Roster(roster) => {
            let who = |who: &RosterEntry| {
                format!("{} ({}{})", who.candidate, who.priority, if who.fit { "" } else { ", unhealthy" })
            };
            format!("the roster lists {}", roster.iter().map(who).collect::<Vec<_>>().join(", "))
        }
        Input::Transfer(heir) => format!("hand over to {heir}"),
        other => format!("{other:?}"),
    }
}

pub(crate) fn action(action: &Action, now: Moment) -> String {
    match action {
        Action::Swap { expected, record: next } => {
            let expected = expected.as_ref().map_or("nothing", |version| version.as_str());
            format!("writes {} over {expected}", record(next))
        }
        Action::Renew { record: next, .. } => format!("renews {}", record(next)),
        Action::Read => "reads the seat".into(),
        Action::Watch { requests, .. } => format!("watches{}", if *requests { ", also for requests" } else { "" }),
        Action::WakeAt(moment) => format!("wakes in {:.4} s", moment.since(now).as_secs_f64()),
        Action::Began { token, until } => format!("TERM {token} BEGAN, for {:.4} s", until.since(now).as_secs_f64()),
        Action::Extended { token, until } => {
            format!("term {token} extended, for {:.4} s", until.since(now).as_secs_f64())
        }
        Action::Ending { token, why, by } => {
            format!("TERM {token} IS ENDING within {:.4} s: {}", by.since(now).as_secs_f64(), why.as_str())
        }
        Action::Ended { token, why } => format!("TERM {token} ENDED: {}", why.as_str()),
        Action::Leader(leader) => match leader {
            Some(leader) => format!("sees {} lead, term {}", leader.candidate, leader.token),
            None => "sees no leader".into(),
        },
        other => format!("{other:?}"),
    }
}

fn seat(reading: &Reading) -> String {
    let Some(seat) = &reading.seat else { return "nothing".into() };
    let life = match seat.life {
        Life::Observe => String::new(),
        Life::Received { at } => format!(", received at {at:?}"),
        Life::Clock { now, renewed } => match now.checked_since(renewed) {
            Some(age) => format!(", written {:.4} s ago by the store's clock", age.as_secs_f64()),
            None => ", written in the future by the store's clock".into(),
        },
        Life::Held => ", its session is alive".into(),
        Life::Over => ", its session has ended".into(),
    };
    let identity = reading.identity.as_ref().map_or(String::new(), |identity| format!(", {}", identity.as_str()));
    format!("{} as {}{life}{identity}", record(&seat.record), seat.version.as_str())
}

fn record(record: &Record) -> String {
    let holder = match (&record.holder, &record.heir) {
        (Some(holder), _) => format!("held by {holder}"),
        (None, Some(heir)) => format!("vacant, left to {heir}"),
        (None, None) => "vacant".to_owned(),
    };
    let ranked = if record.ranked { ", ranked" } else { "" };
    let claim = record.claim.as_ref().map_or(String::new(), |claim| {
        format!(", occasion {} {} by {}", claim.at_ms, if claim.done { "done" } else { "claimed" }, claim.by)
    });
    format!("[{holder}, term {}, lease {:?}{ranked}{claim}]", record.token, record.lease)
}
