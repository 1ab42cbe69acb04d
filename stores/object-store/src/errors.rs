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
        let http = std::iter::successors(error.source(), |error| (*error).source())
            .find_map(|e| e.downcast_ref::<HttpError>());
        Self {
            status,
            code: element("Code").unwrap_or_default(),
            is_unsent: http.is_some_and(|error| error.kind() == HttpErrorKind::Connect),
            is_for_credentials: is_about_credentials(&error.to_string()),
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
            (_, "RequestTimeTooSkewed") => {
                denied(format!("{place} rejected the request because of its time; set the clock of this host"))
            }
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

/// Returns whether a request for credentials has failed, which the driver makes before the call itself. Only its text
/// shows that: it names the request, or the address of the service. The text of the server comes after that.
fn is_about_credentials(text: &str) -> bool {
    let own = text.split("status code").next().unwrap_or_default();
    ["token request", "metadata", "169.254.", "AssumeRole", "oauth2", "credential"]
        .iter()
        .any(|part| own.contains(part))
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    fn of(text: &str) -> StoreError {
        let error = Error::Generic { store: "S3", source: text.into() };
        Answer::of(&error).into_error("s3://jobs", &error)
    }

    #[test]
    fn answers_of_servers_are_classified() {
        let status = |status: &str, code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
            of(&format!(
                "Error performing PUT http://h/jobs/x in 1ms - Server returned non-2xx status code: {status}: {body}"
            ))
        };
        for (answer, code, fault, expected) in [
            ("403 Forbidden", "AccessDenied", Fault::Denied, "does not permit the request"),
            ("403 Forbidden", "RequestTimeTooSkewed", Fault::Denied, "set the clock of this host"),
            ("403 Forbidden", "SignatureDoesNotMatch", Fault::Denied, "rejected the credentials"),
            ("400 Bad Request", "ExpiredToken", Fault::Denied, "get new credentials"),
            ("400 Bad Request", "AuthorizationHeaderMalformed", Fault::Denied, "in another region"),
            ("301 Moved Permanently", "PermanentRedirect", Fault::Denied, "in another region"),
            ("404 Not Found", "NoSuchBucket", Fault::Denied, "does not exist"),
            ("501 Not Implemented", "NotImplemented", Fault::Denied, "does not support conditional writes"),
            ("400 Bad Request", "InvalidRequest", Fault::Denied, "rejected the request"),
            ("429 Too Many Requests", "SlowDown", Fault::Refused, "is overloaded"),
            ("503 Service Unavailable", "SlowDown", Fault::Unknown, "failed to answer"),
            ("500 Internal Server Error", "InternalError", Fault::Unknown, "failed to answer"),
            ("409 Conflict", "ConditionalRequestConflict", Fault::Unknown, "concurrent write"),
        ] {
            let error = status(answer, code);
            assert_eq!(error.fault(), fault, "{answer} {code}");
            assert!(error.to_string().contains(expected), "{answer} {code}: {error}");
        }
        assert_eq!(of("connection reset by peer").fault(), Fault::Unknown);
    }

    #[test]
    fn a_failed_request_for_credentials_is_not_taken_for_an_answer_about_the_bucket() {
        for text in [
            "Error performing token request: Error performing GET http://h/token in 1ms - HTTP error: timed out",
            "Error performing PUT http://169.254.1.1/token in 1ms - Server returned non-2xx status code: 403 Forbidden: ",
        ] {
            let error = of(text);
            assert_eq!(error.fault(), Fault::Refused, "nothing was written");
            assert!(error.to_string().contains("cannot get credentials for s3://jobs"), "{error}");
        }
    }
}
