//! The laws catch a server that ignores conditions: a stand-in that obeys those of the probe, and then no others.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::DynStore;
use tenure_memcached::MemcachedStore;
use tenure_testkit::{Subject, laws};

/// A server in memory that knows `mg` and `ms`.
struct Liar {
    url: String,
}

type Values = Mutex<HashMap<String, (Vec<u8>, u64)>>;

impl Liar {
    fn start(is_honest: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("memcached://{}", listener.local_addr().unwrap());
        let values: Arc<Values> = Arc::default();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let values = values.clone();
                std::thread::spawn(move || serve(stream, &values, is_honest));
            }
        });
        Self { url }
    }
}

fn serve(stream: TcpStream, values: &Values, is_honest: bool) -> Option<()> {
    let (mut to, mut from) = (stream.try_clone().ok()?, BufReader::new(stream));
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, key) = (*words.first()?, (*words.get(1)?).to_owned());
        let mut body = vec![0; if command == "ms" { words.get(2)?.parse::<usize>().ok()? + 2 } else { 0 }];
        from.read_exact(&mut body).ok()?;
        let mut values = values.lock().unwrap();
        let next = values.values().map(|(_, cas)| *cas).max().unwrap_or(0) + 1;
        let now = values.get(&key);
        let reply = match (command, now) {
            ("mg", None) => b"EN\r\n".to_vec(),
            ("mg", Some((value, cas))) => {
                [format!("VA {} c{cas}\r\n", value.len() - 2).as_bytes(), value.as_slice()].concat()
            }
            (_, now) => {
                let cas = |word: &&&str| word.strip_prefix('C').and_then(|cas| cas.parse::<u64>().ok());
                let expected = words[3..].iter().find_map(|word| cas(&word));
                let holds = expected.is_none_or(|cas| now.is_some_and(|(_, now)| *now == cas))
                    && (!words.contains(&"ME") || now.is_none());
                if holds || !is_honest && !key.ends_with("#probe") {
                    values.insert(key, (body, next));
                    format!("HD c{next}\r\n").into_bytes()
                } else {
                    b"EX c0\r\n".to_vec()
                }
            }
        };
        drop(values);
        to.write_all(&reply).ok()?;
    }
}

impl Subject for Liar {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(MemcachedStore::from_url(&self.url).unwrap())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[test]
fn the_laws_catch_a_server_that_ignores_conditions_after_the_probe() {
    // The store compares the nonce before it writes on a version. So of the laws without a race, only those about an absent
    // seat catch such a server.
    for name in ["one_of_many_racing_bids_wins", "a_swap_on_a_stale_version_loses_and_changes_nothing"] {
        let law = laws::all().into_iter().find(|law| law.name == name).unwrap();
        law.check_on(Arc::new(Liar::start(true))).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        let verdict = law.check_on(Arc::new(Liar::start(false)));
        assert!(verdict.is_err(), "{name} passes although the server ignores conditions");
    }
}
