//! What each batch of the store does to the tables, as SQL Server would: the model that the laws run against. A batch is
//! known by the name in its first comment.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::locks::Spid;
use super::tokens::{Answer, Failure, Row, row};
use super::wire::Request;
use super::{Shared, State};

/// The tables of a schema.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) seats: BTreeMap<Vec<u8>, Seat>,
    floors: BTreeMap<Vec<u8>, u64>,
    /// The value of each note, and when it expires.
    notes: BTreeMap<NoteKey, (String, i64)>,
}

/// The seat, the kind and the key of a note.
type NoteKey = (Vec<u8>, String, Vec<u8>);

#[derive(Clone, Debug)]
pub(crate) struct Seat {
    record: String,
    version: String,
    token: u64,
    holder: Option<String>,
    written: i64,
    pub(crate) session: Option<i64>,
}

const COLUMNS: [&str; 7] = ["name", "record", "version", "token", "holder", "written", "session"];

/// Executes a batch.
pub(crate) fn execute(peer: &Shared, spid: Spid, request: &Request) -> Answer {
    match request.name() {
        "open session" => open(peer, spid, request),
        "wait" => wait(peer, spid, request),
        name => {
            let mut state = peer.state();
            let answer = with_tables(&mut state, name, spid, request).unwrap_or_else(Answer::failed);
            drop(state);
            // A release rings the bell: the followers that wait for it go first.
            if request.sql.contains("SELECT @granted") {
                ring(peer, spid, request.session);
            }
            answer
        }
    }
}

fn open(peer: &Shared, spid: Spid, request: &Request) -> Answer {
    let session = request.session;
    let mut granted = peer.take_lock(spid, &format!("tenure:{session}"), true, 0);
    if granted >= 0 {
        granted = peer.take_lock(spid, &format!("tenure:{session}:bell"), true, 0);
    }
    Answer::row(row![granted])
}

fn wait(peer: &Shared, spid: Spid, request: &Request) -> Answer {
    let (lock, bell) = (format!("tenure:{}", request.session), format!("tenure:{}:bell", request.session));
    let rung = peer.take_lock(spid, &bell, false, request.number);
    if rung >= 0 {
        peer.release_lock(spid, &bell);
    }
    let mut ended = None;
    if rung == 0 {
        ended = Some(peer.take_lock(spid, &lock, false, request.number));
        if ended >= Some(0) {
            peer.release_lock(spid, &lock);
        }
    }
    let is_free = !peer.state().locks.excludes(&lock, spid);
    Answer::row(row![rung, ended, 0, i64::from(is_free)])
}

fn ring(peer: &Shared, spid: Spid, session: i64) {
    let bell = format!("tenure:{session}:bell");
    peer.release_lock(spid, &bell);
    peer.take_lock(spid, &bell, true, 250);
}

fn with_tables(state: &mut State, name: &str, spid: Spid, request: &Request) -> Result<Answer, Failure> {
    let schema = request.schema();
    let (now, identity) = (state.now(), state.identity());
    match name {
        "settings" => {
            let server = &state.server;
            return Ok(Answer::row(row![server.version.clone(), server.level, server.updateability.clone()]));
        }
        "facts" => {
            let (count, mark) =
                if state.schemas.contains_key(&schema) { (3, Some("Tenure, version 1")) } else { (0, None) };
            let columns = COLUMNS.iter().filter(|_| count > 0).map(|column| row![*column]).collect();
            let facts = vec![row!["app", count, mark, state.server.durability]];
            return Ok(Answer { results: vec![facts, columns], failure: None });
        }
        "create" if !state.server.may_create => {
            return Err(Failure::new(262, "CREATE TABLE permission denied in database 'app'."));
        }
        "create" => {
            state.schemas.entry(schema).or_default();
            return Ok(Answer::default());
        }
        _ => {}
    }
    let is_read = ["read", "list", "list notes"].contains(&name);
    if !is_read && !state.server.may_write {
        return Err(Failure::new(229, "The INSERT permission was denied on the object 'seats', schema 'tenure'."));
    }
    let State { schemas, locks, server, .. } = state;
    let tables = schemas.get_mut(&schema).ok_or(Failure::new(208, "Invalid object name 'tenure.seats'."))?;
    let is_alive = |session: i64| {
        let lock = format!("tenure:{session}");
        locks.has_exclusive(&lock, spid) || locks.excludes(&lock, spid)
    };
    let has_own_lock = || match locks.has_exclusive(&format!("tenure:{}", request.session), spid) {
        true => Ok(()),
        false => Err(Failure::new(50_117, "the session has lost its lock")),
    };
    match name {
        "read" => Ok(tables.read(&request.want, now, &identity, is_alive)),
        "list" => {
            Ok(Answer { results: vec![tables.seats.keys().map(|name| row![name.clone()]).collect()], failure: None })
        }
        "write new" | "write next" | "renew" => Ok(tables.write(name, request, now, &identity, is_alive)),
        "write new on session" | "write next on session" => {
            has_own_lock()?;
            tables.beat(spid, request, now);
            Ok(tables.write(name, request, now, &identity, is_alive))
        }
        "heartbeat" => {
            has_own_lock()?;
            tables.beat(spid, request, now);
            let held =
                tables.seats.values().filter(|seat| seat.session == Some(request.session) && !identity.is_empty());
            Ok(Answer { results: vec![held.map(|seat| row![seat.version.clone()]).collect()], failure: None })
        }
        "kill" => {
            let key = (Vec::new(), "heartbeat".to_owned(), request.session.to_string().into_bytes());
            let beat = tables.notes.get(&key).filter(|(_, expires)| *expires == request.number);
            let is_named = tables.seats.values().any(|seat| seat.session == Some(request.session));
            let Some((value, _)) = beat.filter(|_| is_named && is_alive(request.session)) else {
                return Ok(Answer::default());
            };
            if !server.may_kill {
                return Err(Failure::new(6102, "User does not have permission to use the KILL statement."));
            }
            let value: Json = serde_json::from_str(value).unwrap();
            state.kill(value["spid"].as_u64().unwrap() as Spid);
            Ok(Answer::default())
        }
        "forget" => {
            tables.forget(&bytes(&request.want));
            Ok(Answer::default())
        }
        "put notes" => Ok(tables.put_notes(&request.want, now)),
        "list notes" => Ok(tables.list_notes(&request.want, now)),
        "delete expired" => {
            tables.notes.retain(|_, (_, expires)| *expires > now);
            Ok(Answer::default())
        }
        other => Err(Failure::new(102, &format!("the peer does not know the batch {other:?}"))),
    }
}

impl Tables {
    fn read(&self, want: &str, now: i64, identity: &str, is_alive: impl Fn(i64) -> bool) -> Answer {
        let read = |want: &Json| -> Row {
            let name = bytes(want["name"].as_str().unwrap());
            let seat = self.seats.get(&name);
            let session = seat.and_then(|seat| seat.session);
            let key = |session: i64| (Vec::new(), "heartbeat".to_owned(), session.to_string().into_bytes());
            let beat = session.and_then(|session| self.notes.get(&key(session)));
            let lease = beat.and_then(|(value, _)| serde_json::from_str::<Json>(value).ok()?["lease"].as_i64());
            row![
                want["place"].as_i64(),
                seat.map(|seat| seat.record.clone()),
                seat.map(|seat| seat.version.clone()),
                session,
                self.floors.get(&name).copied().unwrap_or(0).to_string(),
                seat.map(|seat| seat.written),
                now,
                identity,
                session.map(|session| i64::from(is_alive(session))),
                beat.map(|(_, expires)| *expires),
                lease,
            ]
        };
        Answer { results: vec![array(want).iter().map(read).collect()], failure: None }
    }

    fn write(
        &mut self,
        name: &str,
        request: &Request,
        now: i64,
        identity: &str,
        is_alive: impl Fn(i64) -> bool,
    ) -> Answer {
        let on_session = name.ends_with("on session");
        let mut outcomes = Vec::new();
        for want in array(&request.want) {
            let text = |member: &str| want[member].as_str().map(str::to_owned);
            let (key, held, held_by) = (bytes(want["name"].as_str().unwrap()), text("held"), want["held_by"].as_i64());
            let token = want["token"].as_u64().unwrap();
            let is_same_data = text("identity").is_none_or(|source| source == identity) && !identity.is_empty();
            let seat = self.seats.get(&key);
            let is_expected = match (name.split(' ').nth(1), seat) {
                (Some("new"), seat) => seat.is_none() && token > self.floors.get(&key).copied().unwrap_or(0),
                (_, None) => false,
                (Some("next"), Some(seat)) if on_session => {
                    let is_other = |session: i64| session != request.session && is_alive(session);
                    held.as_ref() == Some(&seat.version)
                        && seat.session == held_by
                        && !seat.session.is_some_and(is_other)
                }
                (Some("next"), Some(seat)) => {
                    held.as_ref() == Some(&seat.version) && seat.session.is_none() && held_by.is_none()
                }
                (_, Some(seat)) => seat.token == token && seat.holder == held && seat.session.is_none(),
            };
            let version = text("version").unwrap();
            let is_written = is_expected && is_same_data;
            if is_written {
                let (record, holder, session) = (text("record").unwrap(), text("holder"), want["session"].as_i64());
                let seat = Seat { record, version: version.clone(), token, holder, written: now, session };
                self.seats.insert(key, seat);
            }
            outcomes.push(row![version, i64::from(is_written), identity]);
        }
        Answer { results: vec![vec![row![outcomes.len() as i64]], outcomes], failure: None }
    }

    fn beat(&mut self, spid: Spid, request: &Request, now: i64) {
        let key = (Vec::new(), "heartbeat".to_owned(), request.session.to_string().into_bytes());
        let value = format!("{{\"spid\":{spid},\"lease\":{}}}", request.number);
        self.notes.insert(key, (value, now + 86_400_000_000));
    }

    fn forget(&mut self, name: &[u8]) {
        if let Some(seat) = self.seats.remove(name).filter(|seat| seat.token < u64::MAX) {
            let floor = self.floors.entry(name.to_owned()).or_default();
            *floor = seat.token.max(*floor);
        }
        self.notes.retain(|(seat, ..), _| seat != name);
    }

    fn put_notes(&mut self, want: &str, now: i64) -> Answer {
        let mut existed = Vec::new();
        for want in array(want) {
            let text = |member: &str| want[member].as_str().unwrap();
            let key = (bytes(text("seat")), text("kind").to_owned(), bytes(text("key")));
            if self.notes.get(&key).is_some_and(|(_, expires)| *expires > now) {
                existed.push(row![want["place"].as_i64()]);
            }
            match want["value"].as_str() {
                Some(value) => {
                    self.notes.insert(key, (value.to_owned(), now + want["lifetime"].as_i64().unwrap()));
                }
                None => drop(self.notes.remove(&key)),
            }
        }
        Answer { results: vec![existed], failure: None }
    }

    fn list_notes(&self, want: &str, now: i64) -> Answer {
        let mut rows = Vec::new();
        for want in array(want) {
            let (seat, kind) = (bytes(want["seat"].as_str().unwrap()), want["kind"].as_str().unwrap());
            let mut found: Vec<_> = self.notes.iter().filter(|((at, is, _), _)| *at == seat && is == kind).collect();
            found.retain(|(_, (_, expires))| *expires > now);
            found.sort_by_key(|((_, _, key), (_, expires))| (*expires, key.clone()));
            rows.extend(
                found.iter().map(|((.., key), (value, _))| row![want["place"].as_i64(), key.clone(), value.clone()]),
            );
        }
        Answer { results: vec![rows], failure: None }
    }
}

fn array(text: &str) -> Vec<Json> {
    serde_json::from_str(text).expect("the parameter is a JSON array")
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}
