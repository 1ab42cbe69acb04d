//! A container in memory, with the requests that the store makes. It counts them, and can ignore conditions and leases.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A server on this machine. It checks no credentials, and ends with its process.
#[derive(Clone)]
pub(crate) struct StandIn {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    blobs: BTreeMap<String, Blob>,
    writes: u64,
    counts: BTreeMap<String, usize>,
    ignores_conditions: bool,
    ignores_conditions_of_seats: bool,
    /// A status, a code and headers with which the server answers all requests.
    answer: Option<(u16, &'static str, String)>,
    /// The server processes the next write whose content has this text, and closes the connection without an answer.
    loses: Option<&'static str>,
    /// The server closes the connection of each release, and keeps the request.
    delays_releases: bool,
    delayed: Vec<Request>,
}

struct Blob {
    content: Vec<u8>,
    etag: String,
    /// The id of the lease, its duration, and when it ends.
    lease: Option<(String, Duration, Instant)>,
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl StandIn {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn ignoring_conditions(self) -> Self {
        self.state.lock().unwrap().ignores_conditions = true;
        self
    }

    /// Ignores conditions and leases, except on the probe.
    pub(crate) fn ignoring_conditions_of_seats(self) -> Self {
        self.state.lock().unwrap().ignores_conditions_of_seats = true;
        self
    }

    pub(crate) fn answering(self, status: u16, code: &'static str, headers: &str) -> Self {
        self.state.lock().unwrap().answer = Some((status, code, headers.to_owned()));
        self
    }

    pub(crate) fn losing_the_answer_to(self, text: &'static str) -> Self {
        self.state.lock().unwrap().loses = Some(text);
        self
    }

    pub(crate) fn delaying_releases(self) -> Self {
        self.state.lock().unwrap().delays_releases = true;
        self
    }

    /// Processes the releases that were delayed, and returns how many there were.
    pub(crate) fn process_delayed(&self) -> usize {
        let state = &mut *self.state.lock().unwrap();
        state.delays_releases = false;
        let delayed = std::mem::take(&mut state.delayed);
        delayed.iter().for_each(|request| drop(answer(request, state)));
        delayed.len()
    }

    pub(crate) fn url(&self) -> String {
        format!("azblob://acc/jobs?endpoint=http://{}&account_key=aGV5", self.address)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns how many requests of this kind there were: `GET`, `PUT`, `LIST`, `DELETE`, or the action of a lease.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.state.lock().unwrap().counts.get(kind).copied().unwrap_or_default()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let (mut to, mut from) = (stream.try_clone().ok()?, BufReader::new(stream));
    loop {
        let request = receive(&mut from)?;
        let is_release = request.headers.get("x-ms-lease-action").is_some_and(|action| action == "release");
        if is_release && state.lock().unwrap().delays_releases {
            state.lock().unwrap().delayed.push(request);
            return None;
        }
        let response = answer(&request, &mut state.lock().unwrap());
        let content = String::from_utf8_lossy(&request.body);
        if state.lock().unwrap().loses.take_if(|text| content.contains(*text)).is_some() {
            return None;
        }
        to.write_all(&response).ok()?;
    }
}

fn receive(from: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => drop(headers.insert(name.to_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    from.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body })
}

fn answer(request: &Request, state: &mut State) -> Vec<u8> {
    if let Some((status, code, headers)) = &state.answer {
        return failed(*status, code, headers);
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    let action = header("x-ms-lease-action");
    let kind = if query.contains("comp=list") { "LIST" } else { action.unwrap_or(&request.method) };
    *state.counts.entry(kind.to_owned()).or_default() += 1;
    if query.contains("restype=container") {
        let list = b"<EnumerationResults><Blobs></Blobs><NextMarker /></EnumerationResults>";
        return if kind == "LIST" { response(200, "", list) } else { failed(409, "ContainerAlreadyExists", "") };
    }
    let is_ignored = state.ignores_conditions || state.ignores_conditions_of_seats && path.contains("/seats/");
    let blob = state.blobs.get_mut(path);
    let lease = blob.as_ref().and_then(|blob| blob.lease.clone()).filter(|(.., end)| Instant::now() < *end);
    let etag = blob.as_ref().map(|blob| format!("\"{}\"", blob.etag));
    let holds = header("if-match").is_none_or(|expected| etag.as_deref() == Some(expected));
    match (request.method.as_str(), action, blob) {
        ("GET", _, None) => failed(404, "BlobNotFound", ""),
        ("GET", _, Some(blob)) => {
            let is_named = |id: &str| lease.as_ref().is_some_and(|(active, ..)| active == id);
            if header("x-ms-lease-id").is_some_and(|id| !is_named(id)) {
                return failed(412, "LeaseIdMismatchWithBlobOperation", "");
            }
            let lease = if lease.is_some() { "leased" } else { "available" };
            let headers = format!("ETag: \"{}\"\r\nx-ms-lease-state: {lease}\r\n", blob.etag);
            response(200, &headers, &blob.content)
        }
        (_, Some(_), None) => failed(404, "BlobNotFound", ""),
        (_, Some(_), _) if !holds && !is_ignored => failed(412, "ConditionNotMet", ""),
        (_, Some(action), Some(blob)) => {
            let id = header("x-ms-lease-id").or(header("x-ms-proposed-lease-id")).unwrap_or_default().to_owned();
            let length = header("x-ms-lease-duration").and_then(|text| text.parse().ok()).map(Duration::from_secs);
            if lease.as_ref().is_some_and(|(active, ..)| *active != id) && !is_ignored {
                return failed(409, "LeaseAlreadyPresent", "");
            }
            let length = length.or(blob.lease.as_ref().map(|(_, length, _)| *length)).unwrap_or_default();
            match action {
                "renew" if blob.lease.is_none() && !is_ignored => {
                    return failed(409, "LeaseIdMismatchWithLeaseOperation", "");
                }
                "release" => blob.lease = None,
                _ => blob.lease = Some((id, length, Instant::now() + length)),
            }
            response(200, &format!("ETag: \"{}\"\r\n", blob.etag), b"")
        }
        (_, None, blob) => {
            let is_absent = blob.is_none();
            let id = header("x-ms-lease-id");
            let is_free = match (&lease, id) {
                (None, None) => true,
                (active, id) => active.as_ref().map(|(id, ..)| id.as_str()) == id,
            };
            if !is_ignored && header("if-none-match").is_some() && !is_absent {
                return failed(409, "BlobAlreadyExists", "");
            }
            if !is_ignored && !holds {
                return failed(412, "ConditionNotMet", "");
            }
            if !is_ignored && !is_free {
                return failed(412, if id.is_none() { "LeaseIdMissing" } else { "LeaseLost" }, "");
            }
            state.writes += 1;
            let etag = format!("0x{:X}", 0x8D0_0000_0000 + state.writes);
            state.blobs.insert(path.to_owned(), Blob { content: request.body.clone(), etag: etag.clone(), lease });
            response(201, &format!("ETag: \"{etag}\"\r\n"), b"")
        }
    }
}

fn failed(status: u16, code: &str, headers: &str) -> Vec<u8> {
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as asked for\nTime:0</Message></Error>");
    response(status, headers, body.as_bytes())
}

fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
