//! The ACL token. A token that stands in a file is read again, so that it can be rotated under a process that runs.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;
use tenure_kit::{lock, tls};

use crate::options::ConsulOptions;

pub(crate) struct AclToken {
    file: Option<PathBuf>,
    header: Mutex<Option<HeaderValue>>,
    /// When the file is read again.
    due: Mutex<Instant>,
}

/// How long a token is used before its file is read again.
const FRESH: Duration = Duration::from_secs(1);

impl AclToken {
    /// # Errors
    /// In one line, if the file cannot be read.
    pub(crate) fn new(options: &ConsulOptions) -> Result<Self, String> {
        let file = options.token_file.clone().filter(|_| options.token.is_none());
        let header = match (&file, &options.token) {
            (Some(file), _) => read(file)?,
            (None, Some(token)) => header(token.0.as_bytes())?,
            (None, None) => None,
        };
        Ok(Self { file, header: Mutex::new(header), due: Mutex::new(Instant::now() + FRESH) })
    }

    /// The token to send with a call. A file that cannot be read, as while it is replaced, leaves the token as it was.
    pub(crate) async fn header(&self) -> Option<HeaderValue> {
        if let Some(file) = self.file.clone().filter(|_| self.is_due()) {
            // On a thread that may block: the disk may be slow.
            let read = tokio::task::spawn_blocking(move || read(&file)).await;
            match read.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(header) => *lock(&self.header) = header,
                Err(error) => tracing::debug!(%error, "the token file cannot be read"),
            }
        }
        lock(&self.header).clone()
    }

    /// Has the file read before the next call, as the server does not take this token.
    pub(crate) fn doubt(&self) {
        *lock(&self.due) = Instant::now();
    }

    /// Whether it is time to read the file. Only one call is told so.
    fn is_due(&self) -> bool {
        let (mut due, now) = (lock(&self.due), Instant::now());
        let is_due = *due <= now;
        if is_due {
            *due = now + FRESH;
        }
        is_due
    }
}

fn read(file: &Path) -> Result<Option<HeaderValue>, String> {
    header(&tls::read(file)?)
}

fn header(text: &[u8]) -> Result<Option<HeaderValue>, String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    let mut header = HeaderValue::from_bytes(text).map_err(|_| "the token is not plain text")?;
    header.set_sensitive(true);
    Ok(Some(header))
}
