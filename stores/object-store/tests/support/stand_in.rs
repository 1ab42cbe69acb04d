//! A bucket in memory, with as much of the interfaces of S3 and Google Cloud Storage as the store uses. It counts
//! requests, and answers as wrongly as a test asks for.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use chrono::DateTime;
use tenure_kit::url::decoded;

/// What goes wrong with a write of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// 409, and nothing is written.
    Conflict,
    /// 409, although the object is written.
    ConflictAfterWriting,
    /// 503, and nothing is written.
    Unavailable,
    /// 500, although the object is written.
    FailedAfterWriting,
    /// The object is written, and the connection is closed without an answer.
    NoAnswer,
    /// 303 to the same URL, and nothing is written. A client that follows it reads the object.
    Redirect,
}

/// A bucket in memory. Clones are the same bucket.
#[derive(Clone)]
pub(crate) struct StandIn {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Body, generation and time of each object.
    objects: BTreeMap<String, (Vec<u8>, u64, i64)>,
    generation: u64,
    ignores_conditions: bool,
    ignores_conditions_of_seats: bool,
    troubles: VecDeque<Trouble>,
    /// How many of the next writes are never answered, and not processed.
    silences: u64,
    counts: BTreeMap<String, u64>,
}

impl StandIn {
    /// Starts a bucket that obeys conditions.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bucket = Self { address: listener.local_addr().unwrap().to_string(), state: Arc::default() };
        let state = bucket.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        bucket
    }

    /// Ignores all conditions from now on.
    pub(crate) fn ignoring_conditions(self) -> Self {
        self.state.lock().unwrap().ignores_conditions = true;
        self
    }

    /// Ignores the conditions of seats, but not those of the probe.
    pub(crate) fn ignoring_conditions_of_seats(self) -> Self {
        self.state.lock().unwrap().ignores_conditions_of_seats = true;
        self
    }

    /// Makes this happen to the next write of a seat.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.state.lock().unwrap().troubles.push_back(trouble);
    }

    /// Never answers so many of the next writes, and does not process them.
    pub(crate) fn silence(&self, writes: u64) {
        self.state.lock().unwrap().silences = writes;
    }

    /// Returns how many requests had this method; a list of objects counts as `LIST`.
    pub(crate) fn count(&self, method: &str) -> u64 {
        self.state.lock().unwrap().counts.get(method).copied().unwrap_or(0)
    }

    pub(crate) fn s3(&self) -> String {
        format!("s3://jobs?endpoint=http://{}&access_key_id=a&secret_access_key=b", self.address)
    }

    /// The key file turns OAuth off, as for other emulators. Without it, the driver would ask the metadata service of the
    /// machine for a token.
    pub(crate) fn gs(&self) -> String {
        let key = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/emulator.json");
        format!("gs://jobs?endpoint=http://{}&credentials={}", self.address, key.display())
    }
}

struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let (mut to, mut from) = (stream.try_clone().unwrap(), BufReader::new(stream));
    while let Some(request) = read(&mut from) {
        let is_silenced = request.method == "PUT" && is_silenced(&mut state.lock().unwrap());
        if is_silenced {
            continue;
        }
        let Some(answer) = answer(&request, &mut state.lock().unwrap()) else { return };
        if to.write_all(&answer).is_err() {
            return;
        }
    }
}

fn is_silenced(state: &mut State) -> bool {
    let is_silenced = state.silences > 0;
    state.silences = state.silences.saturating_sub(1);
    is_silenced
}

fn read(from: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let (method, rest) = line.split_once(' ')?;
    let (method, target) = (method.to_owned(), rest.split_once(' ')?.0.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => drop(headers.insert(name.to_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(Request { method, target, headers, body })
}

/// Returns the bytes of the response; `None` closes the connection.
fn answer(request: &Request, state: &mut State) -> Option<Vec<u8>> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let key = decoded(path.strip_prefix("/jobs/").unwrap_or("")).unwrap();
    let is_list = query.contains("list-type=2");
    let method = if is_list { "LIST" } else { &request.method };
    *state.counts.entry(method.to_owned()).or_default() += 1;
    match method {
        "LIST" => Some(response(200, "", list(query, state).as_bytes())),
        "GET" => Some(match state.objects.get(&key) {
            Some((body, generation, time)) => response(200, &headers(body, *generation, *time), body),
            None => failed(404, "NoSuchKey"),
        }),
        "DELETE" => {
            state.objects.remove(&key);
            Some(response(204, "", b""))
        }
        _ => put(request, key, state),
    }
}

fn put(request: &Request, key: String, state: &mut State) -> Option<Vec<u8>> {
    let is_seat = key.contains("/seats/");
    let trouble = if is_seat { state.troubles.pop_front() } else { None };
    match trouble {
        Some(Trouble::Conflict) => return Some(failed(409, "ConditionalRequestConflict")),
        Some(Trouble::Unavailable) => return Some(failed(503, "ServiceUnavailable")),
        Some(Trouble::Redirect) => return Some(response(303, &format!("Location: {}\r\n", request.target), b"")),
        _ => {}
    }
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    let now = state.objects.get(&key);
    let etag = now.map(|(body, ..)| etag(body));
    let generation = now.map_or(0, |(_, generation, _)| *generation).to_string();
    let holds = header("if-none-match").is_none_or(|_| now.is_none())
        && header("if-match").is_none_or(|expected| etag.as_deref() == Some(expected))
        && header("x-goog-if-generation-match").is_none_or(|expected| expected == generation);
    let is_ignored = state.ignores_conditions || state.ignores_conditions_of_seats && is_seat;
    if !holds && !is_ignored {
        // S3 answers 404 if there is nothing that could match.
        let is_gone = now.is_none() && header("if-match").is_some();
        return Some(if is_gone { failed(404, "NoSuchKey") } else { failed(412, "PreconditionFailed") });
    }
    // Generations are times in microseconds, as those of Google Cloud Storage.
    state.generation = state.generation.max(1_700_000_000_000_000) + 1;
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    let head = headers(&request.body, state.generation, time);
    state.objects.insert(key, (request.body.clone(), state.generation, time));
    match trouble {
        Some(Trouble::FailedAfterWriting) => Some(failed(500, "InternalError")),
        Some(Trouble::ConflictAfterWriting) => Some(failed(409, "ConditionalRequestConflict")),
        Some(Trouble::NoAnswer) => None,
        _ => Some(response(200, &head, b"")),
    }
}

fn list(query: &str, state: &State) -> String {
    let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or("");
    let prefix = decoded(prefix).unwrap();
    let contents = state.objects.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(key, (body, _, time))| {
        let (size, etag) = (body.len(), etag(body).replace('"', ""));
        let time = DateTime::from_timestamp(*time, 0).unwrap().to_rfc3339();
        format!(
            "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>{etag}</ETag><LastModified>{time}</LastModified></Contents>"
        )
    });
    format!("<ListBucketResult>{}</ListBucketResult>", contents.collect::<String>())
}

/// The ETag is a hash of the content, as that of S3.
fn etag(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("\"{:032x}\"", hasher.finish())
}

fn headers(body: &[u8], generation: u64, time: i64) -> String {
    let (etag, time) = (etag(body), date(time));
    format!("ETag: {etag}\r\nx-goog-generation: {generation}\r\nLast-Modified: {time}\r\n")
}

fn date(time: i64) -> String {
    DateTime::from_timestamp(time, 0).unwrap().format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn failed(status: u16, code: &str) -> Vec<u8> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as asked for</Message></Error>");
    response(status, "", body.as_bytes())
}

fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let (now, length) = (SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64, body.len());
    let head = format!("HTTP/1.1 {status} X\r\nDate: {}\r\n{headers}Content-Length: {length}\r\n\r\n", date(now));
    [head.as_bytes(), body].concat()
}
