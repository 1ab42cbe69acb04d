//! Errors: their messages, and whether the failed request took effect.

use std::error::Error as _;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use tenure_core::StoreError;
use tenure_kit::{cannot_connect, causes};

/// What a server answered to a request that failed.
pub(crate) struct Answer {
    /// The status of the response; `None` if there was none.
    pub(crate) status: Option<u16>,
    /// The code in the body, such as `NoSuchBucket`.
    pub(crate) code: String,
    /// The message in the body, or all causes of the error.
    text: String,
    /// Whether no connection could be opened, so that nothing was sent.
    is_unsent: bool,
    /// Whether the request was one for credentials, which comes before the call itself.
    is_for_credentials: bool,
}

impl Answer {
    pub(crate) fn of(error: &Error) -> Self {
        let text = causes(error);
        let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            rest.split_once("</").map(|(content, _)| content.to_owned())
        };
        let http = std::iter::successors(error.source(), |error| (*error).source()).find_map(|e| e.downcast_ref::<HttpError>());
        let services = ["/latest/", "169.254.", "metadata.google", "oauth2", "AssumeRole", "credential"];
        Self {
            status,
            code: element("Code").unwrap_or_default(),
            is_unsent: http.is_some_and(|error| error.kind() == HttpErrorKind::Connect),
            is_for_credentials: status.is_none_or(|status| status != 404)
                && services.iter().any(|part| text.split("<?xml").next().is_some_and(|text| text.contains(part))),
            text: element("Message").unwrap_or(text),
        }
    }

    /// Returns whether the condition of a write does not hold. Nothing was written.
    ///
    /// S3 answers 404 to a write on the version of an object that was deleted. A 409 is not in the list: it reports a
    /// concurrent write, and does not say which of the two has won.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.status, Some(412 | 304)) || self.is_absent()
    }

    /// Returns whether there is no such object.
    pub(crate) fn is_absent(&self) -> bool {
        self.status == Some(404) && self.code != "NoSuchBucket"
    }

    /// Returns the error for a call to the bucket at `place`, such as `s3://jobs`.
    pub(crate) fn into_error(self, place: &str, error: &Error) -> StoreError {
        let Self { status, code, text, is_unsent, is_for_credentials } = self;
        let detail = match status {
            Some(status) => format!("{status} {code}: {text}"),
            None => text.clone(),
        };
        let denied = |message: String| StoreError::denied(message);
        if is_for_credentials {
            return StoreError::refused(format!(
                "cannot get credentials for {place}; give them as options or in the environment, or check the service \
                 that issues them"
            ))
            .because(detail);
        }
        if is_unsent {
            return cannot_connect(place, "its server", "check the certificates of the endpoint", error);
        }
        let result = match (status, code.as_str()) {
            (Some(404), _) => denied(format!("{place} does not exist; check the name, the region and the endpoint")),
            (_, "RequestTimeTooSkewed") => denied(format!(
                "{place} rejected the request because of its time; set the clock of this host"
            )),
            (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidSecurity" | "SignatureNotValid") => {
                denied(format!("{place} rejected the credentials ({code}); check the access key and its secret"))
            }
            (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                denied(format!("{place} rejected the session token ({code}); get new credentials"))
            }
            (_, "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException")
            | (Some(301 | 307), _) => denied(format!("{place} is in another region; set region")),
            (_, "NotImplemented") | (Some(501), _) => {
                denied(format!("{place} does not support conditional writes, so it cannot elect a leader"))
            }
            (Some(401 | 403), _) => denied(format!(
                "{place} does not permit the request; grant reading and writing of its objects, and listing of the bucket"
            )),
            (Some(429), _) => StoreError::refused(format!("{place} is overloaded")),
            (Some(409), _) => StoreError::unknown(format!("{place} reported a conflict with a concurrent write")),
            (Some(500..), _) => StoreError::unknown(format!("{place} failed to answer the request")),
            (Some(_), _) => denied(format!("{place} rejected the request; check the options")),
            (None, _) if text.contains("redirect without LOCATION") => {
                denied(format!("{place} is in another region; set region"))
            }
            (None, _) => StoreError::unknown(format!("the connection to {place} was lost before the answer")),
        };
        result.because(detail)
    }
}
