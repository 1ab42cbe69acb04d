//! The ACL token. A token file is read again from time to time, so that the token can be rotated while the
//! process runs.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;
use tenure_core::ConfigError;
use tenure_kit::{lock, tls};

use crate::options::ConsulOptions;

pub(crate) struct AclToken {
    file: Option<PathBuf>,
    header: Mutex<Option<HeaderValue>>,
    /// When the file is due to be read again.
    due: Mutex<Instant>,
}

/// The time after which the token file is read again.
const REREAD_AFTER: Duration = Duration::from_secs(1);

impl AclToken {
    /// # Errors
    /// Returns one line if the file is not readable.
    pub(crate) fn new(options: &ConsulOptions) -> Result<Self, ConfigError> {
        let file = options.token_file.clone().filter(|_| options.token.is_none());
        let header = match (&file, &options.token) {
            (Some(file), _) => read(file)?,
            (None, Some(token)) => header(token.0.as_bytes())?,
            (None, None) => None,
        };
        Ok(Self { file, header: Mutex::new(header), due: Mutex::new(Instant::now() + REREAD_AFTER) })
    }

    /// Returns the token to send with a call. If the file is not readable, as while it is replaced, the token
    /// stays as it was.
    pub(crate) async fn header(&self) -> Option<HeaderValue> {
        if let Some(file) = self.file.clone().filter(|_| self.is_due()) {
            // On a thread that can block, because the disk may be slow.
            let read = tokio::task::spawn_blocking(move || read(&file)).await;
            match read.unwrap_or_else(|error| Err(error.to_string().into())) {
                Ok(header) => *lock(&self.header) = header,
                Err(error) => tracing::debug!(%error, "cannot read the token file; the last token stays in use"),
            }
        }
        lock(&self.header).clone()
    }

    /// Makes the next call read the file again, because the server rejected the token.
    pub(crate) fn reread(&self) {
        *lock(&self.due) = Instant::now();
    }

    /// Whether the file must be read again. Returns true for only one of several concurrent calls.
    fn is_due(&self) -> bool {
        let (mut due, now) = (lock(&self.due), Instant::now());
        let is_due = *due <= now;
        if is_due {
            *due = now + REREAD_AFTER;
        }
        is_due
    }
}

fn read(file: &Path) -> Result<Option<HeaderValue>, ConfigError> {
    header(&tls::read(file)?)
}

fn header(text: &[u8]) -> Result<Option<HeaderValue>, ConfigError> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    let mut header = HeaderValue::from_bytes(text).map_err(|_| "the ACL token is not valid in an HTTP header")?;
    header.set_sensitive(true);
    Ok(Some(header))
}
