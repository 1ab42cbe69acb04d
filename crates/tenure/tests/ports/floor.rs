//! A detector of two candidates that work at once.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tenure::{Term, Token};

/// The place where the leader works. Work enters it with its term and leaves it when it returns or is dropped.
#[derive(Clone, Default)]
pub struct Floor(Arc<(Mutex<Vec<Visit>>, Condvar)>);

/// One run of a leader's work.
#[derive(Clone, Debug)]
pub struct Visit {
    pub who: String,
    pub token: Token,
    /// The work has returned or was dropped.
    pub left: bool,
    /// The work reached its end; otherwise it runs, or was dropped where it awaited.
    pub finished: bool,
    /// The candidates that were at work when this one began.
    beside: Vec<String>,
}

impl Floor {
    /// Enters the floor until the returned guard is dropped.
    pub fn enter(&self, term: &Term) -> Here {
        let mut visits = self.0.0.lock().unwrap();
        let beside = visits.iter().filter(|visit| !visit.left).map(|visit| visit.who.clone()).collect();
        let who = term.candidate().id.to_string();
        visits.push(Visit { who, token: term.token(), left: false, finished: false, beside });
        self.0.1.notify_all();
        Here { floor: self.clone(), number: visits.len() - 1 }
    }

    /// Works until the term begins to end, and takes a while to wrap up.
    pub async fn work(&self, term: Term) {
        let here = self.enter(&term);
        term.ending().await;
        wrap_up().await;
        here.finish();
    }

    /// Waits until `seen` returns a value for the visits so far, and returns the value.
    pub fn wait<T>(&self, what: &str, seen: impl Fn(&[Visit]) -> Option<T>) -> T {
        let began = Instant::now();
        let mut visits = self.0.0.lock().unwrap();
        loop {
            if let Some(seen) = seen(&visits) {
                return seen;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "timed out waiting until {what}: {visits:#?}");
            // Polls as well, because `seen` can depend on more than the floor.
            visits = self.0.1.wait_timeout(visits, Duration::from_millis(10)).unwrap().0;
        }
    }

    /// Waits until a candidate has begun to work whose token is above this one, and returns who it is, and its token.
    pub fn next(&self, above: Token) -> (String, Token) {
        self.wait("another candidate works", |visits| {
            let last = visits.last().filter(|visit| visit.token > above)?;
            Some((last.who.clone(), last.token))
        })
    }

    /// Waits until the work of this term has returned or was dropped, and returns whether it reached its end.
    pub fn left(&self, token: Token) -> bool {
        self.wait("the work has left", |visits| {
            let visit = visits.iter().rfind(|visit| visit.token == token)?;
            visit.left.then_some(visit.finished)
        })
    }

    /// Checks that two candidates never worked at once, and that tokens rose with every change of the leader. Returns
    /// the candidates that worked, in order.
    pub fn check(&self) -> Vec<String> {
        let visits = self.0.0.lock().unwrap();
        for visit in &*visits {
            assert!(visit.beside.is_empty(), "{} began beside {:?}: {visits:#?}", visit.who, visit.beside);
        }
        for pair in visits.windows(2) {
            let same = pair[0].who == pair[1].who && pair[0].token == pair[1].token;
            assert!(same || pair[0].token < pair[1].token, "tokens fell: {visits:#?}");
        }
        visits.iter().map(|visit| visit.who.clone()).collect()
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Visit)) {
        change(&mut self.0.0.lock().unwrap()[number]);
        self.0.1.notify_all();
    }
}

/// Work takes this long to wrap up: long enough for another candidate to begin, if the seat were free.
pub async fn wrap_up() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

/// The guard of work on the floor.
pub struct Here {
    floor: Floor,
    number: usize,
}

impl Here {
    /// Records that the work has reached its end.
    pub fn finish(self) {
        self.floor.change(self.number, |visit| visit.finished = true);
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.floor.change(self.number, |visit| visit.left = true);
    }
}
