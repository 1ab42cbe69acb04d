//! The proxy itself, in front of a server that records every line and answers it with `ok LINE`.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_testkit::proxy::{Proxy, Way};

#[test]
fn requests_and_replies_pass() {
    let (server, proxy) = start();
    let mut store = connect(&proxy);
    assert_eq!(ask(&mut store, "a"), "ok a");
    assert_eq!(ask(&mut store, "b"), "ok b");
    assert_eq!(server.received(), ["a", "b"]);
}

#[test]
fn refuse_rejects_new_connections_and_keeps_existing_ones() {
    let (_server, proxy) = start();
    let mut store = connect(&proxy);
    assert_eq!(ask(&mut store, "a"), "ok a");
    proxy.refuse();
    wait("refused", || TcpStream::connect(proxy.address()).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused));
    assert_eq!(ask(&mut store, "b"), "ok b");
    proxy.pass();
    wait("taken again", || TcpStream::connect(proxy.address()).is_ok());
}

#[test]
fn a_reset_cuts_existing_connections_and_new_ones_work() {
    let (_server, proxy) = start();
    let mut store = connect(&proxy);
    assert_eq!(ask(&mut store, "a"), "ok a");
    proxy.reset();
    let ended = store.read(&mut [0; 8]);
    assert!(ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "{ended:?}");
    assert_eq!(ask(&mut connect(&proxy), "b"), "ok b");
}

#[test]
fn connections_can_be_frozen_by_their_last_request_and_others_work() {
    let (_server, proxy) = start();
    let (mut one, mut other) = (connect(&proxy), connect(&proxy));
    assert!(!proxy.freeze_after("watch"));
    assert_eq!((ask(&mut one, "watch"), ask(&mut other, "read")), ("ok watch".into(), "ok read".into()));
    assert!(proxy.freeze_after("watch"));
    one.write_all(b"more\n").unwrap();
    assert_eq!(ask(&mut other, "watch"), "ok watch");
    assert_eq!(ask(&mut connect(&proxy), "watch"), "ok watch");
    assert!(is_silent(&one));
    proxy.pass();
    assert_eq!(line(&one), "ok more");
}

#[test]
fn a_black_hole_upwards_holds_back_requests_until_they_pass() {
    let (server, proxy) = start();
    let mut store = connect(&proxy);
    proxy.black_hole(Way::Up);
    store.write_all(b"a\n").unwrap();
    assert!(is_silent(&store));
    assert!(server.received().is_empty());
    proxy.pass();
    assert_eq!(line(&store), "ok a");
}

#[test]
fn a_black_hole_downwards_holds_back_replies_until_they_pass() {
    let (server, proxy) = start();
    let mut store = connect(&proxy);
    proxy.black_hole(Way::Down);
    store.write_all(b"a\n").unwrap();
    wait("the request arrives", || server.received() == ["a"]);
    assert!(is_silent(&store));
    proxy.pass();
    assert_eq!(line(&store), "ok a");
}

#[test]
fn a_delay_is_applied_and_the_order_is_kept() {
    let (_server, proxy) = start();
    let mut store = connect(&proxy);
    proxy.delay(Way::Up, Duration::from_millis(60));
    proxy.delay(Way::Down, Duration::from_millis(60));
    let began = Instant::now();
    store.write_all(b"a\nb\n").unwrap();
    let mut lines = BufReader::new(&store).lines();
    assert_eq!([lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()], ["ok a", "ok b"]);
    assert!(began.elapsed() >= Duration::from_millis(120));
}

#[test]
fn a_message_is_cut_in_the_middle_in_either_direction() {
    for (way, marker, after, received, answered) in
        [(Way::Up, "secret", 3, &["a"][..], ""), (Way::Down, "secret", 5, &["a", "secret"][..], "ok se")]
    {
        let (server, proxy) = start();
        let mut store = connect(&proxy);
        assert_eq!(ask(&mut store, "a"), "ok a");
        proxy.cut_in_the_middle(way, marker, after);
        store.write_all(b"secret\n").unwrap();
        let mut rest = Vec::new();
        let _ = store.read_to_end(&mut rest);
        assert_eq!(String::from_utf8_lossy(&rest), answered);
        assert_eq!(server.received(), received);
        block_on(proxy.caught(1));
        assert_eq!(ask(&mut connect(&proxy), "secret"), "ok secret", "only one message is cut");
    }
}

#[test]
fn a_reply_is_dropped_after_the_request_has_arrived() {
    let (server, proxy) = start();
    let mut store = connect(&proxy);
    assert_eq!(ask(&mut store, "a"), "ok a");
    proxy.drop_reply_to("win");
    store.write_all(b"win\n").unwrap();
    let mut rest = Vec::new();
    let _ = store.read_to_end(&mut rest);
    assert!(rest.is_empty());
    block_on(proxy.caught(1));
    assert_eq!(server.received(), ["a", "win"]);
}

// -------------------------------------------------------------------------------------------------

/// A server that records every line and answers it.
struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

fn start() -> (Server, Proxy) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server { address: listener.local_addr().unwrap(), received: Arc::default() };
    let received = server.received.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let received = received.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|count| count > 0) && line.ends_with('\n') {
                    received.lock().unwrap().push(line.trim_end().to_owned());
                    let _ = (&stream).write_all(format!("ok {line}").as_bytes());
                    line.clear();
                }
            });
        }
    });
    let proxy = Proxy::start(server.address.to_string());
    (server, proxy)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn ask(store: &mut TcpStream, text: &str) -> String {
    store.write_all(format!("{text}\n").as_bytes()).unwrap();
    line(store)
}

fn line(store: &TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(store).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn is_silent(store: &TcpStream) -> bool {
    store.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let silent = store.peek(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    store.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    silent
}

fn wait(what: &str, mut ready: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed() < Duration::from_secs(30), "timed out, expected: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
