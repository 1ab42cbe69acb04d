//! The ACL token. A token that stands in a file is read again, so that it can be rotated under a process that runs.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;

use crate::options::ConsulOptions;

pub(crate) struct AclToken {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    header: Option<HeaderValue>,
    /// When the file is read again.
    due: Instant,
}

/// How long a token is used before its file is read again.
const FRESH: Duration = Duration::from_secs(1);

impl AclToken {
    /// # Errors
    /// In one line, if the file cannot be read.
    pub(crate) fn new(options: &ConsulOptions) -> Result<Self, String> {
        let file = options.token_file.clone().filter(|_| options.token.is_none());
        let text = match &file {
            Some(file) => Some(std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?),
            None => options.token.as_ref().map(|token| token.0.clone()),
        };
        let header = text.map_or(Ok(None), |text| header(&text))?;
        Ok(Self { file, state: Mutex::new(State { header, due: Instant::now() + FRESH }) })
    }

    /// The token to send with a call. A file that cannot be read, as while it is replaced, leaves the token as it was.
    pub(crate) async fn header(&self) -> Option<HeaderValue> {
        if let Some(file) = self.file.clone().filter(|_| self.is_due()) {
            // On a thread that may block: the disk may be slow.
            let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file)).await;
            let read = read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string()));
            match read.and_then(|text| header(&text)) {
                Ok(header) => self.lock().header = header,
                Err(error) => tracing::debug!(%error, "the token file cannot be read"),
            }
        }
        self.lock().header.clone()
    }

    /// Has the file read before the next call, as the server does not take this token.
    pub(crate) fn doubt(&self) {
        self.lock().due = Instant::now();
    }

    /// Whether it is time to read the file. Only one call is told so.
    fn is_due(&self) -> bool {
        let (mut state, now) = (self.lock(), Instant::now());
        let is_due = state.due <= now;
        if is_due {
            state.due = now + FRESH;
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn header(text: &str) -> Result<Option<HeaderValue>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let mut header = HeaderValue::from_str(text).map_err(|_| "the token is not plain text")?;
    header.set_sensitive(true);
    Ok(Some(header))
}
