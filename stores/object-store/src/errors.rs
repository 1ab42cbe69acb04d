//! Errors: their messages, and whether the failed request took effect.

use std::error::Error as _;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use tenure_core::Fault::{Denied, Refused, Unknown};
use tenure_core::StoreError;
use tenure_kit::url::decoded;
use tenure_kit::{cannot_connect, causes};

/// What a server answered to a request that failed.
pub(crate) struct Answer {
    /// The status of the response; `None` if there was none.
    status: Option<u16>,
    /// The code in the body, such as `NoSuchBucket`.
    code: String,
    /// The message in the body, or all causes of the error.
    text: String,
    /// Whether the request was one for credentials, which the driver makes before the call itself. Its answer says nothing
    /// about the object: a 404 does not mean that the seat is absent.
    is_for_credentials: bool,
}

impl Answer {
    /// Reads an error of the driver. `marks` are texts of which each request to the bucket has one in its URL.
    pub(crate) fn of(error: &Error, marks: &[String]) -> Self {
        let (all, text) = (error.to_string(), causes(error));
        // The driver names the URL of a request that failed, or hides it if it is secret.
        let url = all.rsplit_once("Error performing ").and_then(|(_, rest)| decoded(rest.split(" in ").next()?).ok());
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            rest.split_once("</").map(|(content, _)| content.to_owned())
        };
        Self {
            status: text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok()),
            code: element("Code").unwrap_or_default(),
            // A token that is in a file is read without a request.
            is_for_credentials: url.is_some_and(|url| !marks.iter().any(|mark| url.contains(mark)))
                || all.contains("token file"),
            text: element("Message").unwrap_or(text),
        }
    }

    /// Returns whether the condition of a write does not hold. Nothing was written.
    ///
    /// S3 answers 404 to a write on the version of an object that was deleted. A 409 is not in the list: it reports a
    /// concurrent write, and does not say which of the two has won.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_for_credentials && matches!(self.status, Some(412 | 304)) || self.is_absent()
    }

    /// Returns whether there is no such object. A 404 of another kind, such as that of a proxy, does not count.
    pub(crate) fn is_absent(&self) -> bool {
        !self.is_for_credentials && self.status == Some(404) && self.code == "NoSuchKey"
    }

    /// Returns the error for a call to the bucket at `place`, such as `s3://jobs`.
    pub(crate) fn into_error(self, place: &str, error: &Error) -> StoreError {
        let Self { status, code, text, is_for_credentials } = self;
        let detail = status.map_or(text.clone(), |status| format!("{status} {code}: {text}"));
        if is_for_credentials {
            let advice = "give them as options or in the environment, or check the service that issues them";
            return StoreError::refused(format!("cannot get credentials for {place}; {advice}")).because(detail);
        }
        let mut sources = std::iter::successors(error.source(), |error| (*error).source());
        let http = sources.find_map(|error| error.downcast_ref::<HttpError>());
        if http.is_some_and(|error| error.kind() == HttpErrorKind::Connect) {
            return cannot_connect(place, "its server", "check the certificates of the endpoint", error);
        }
        let is_redirect = text.contains("redirect without LOCATION");
        let (fault, what) = match (status, code.as_str()) {
            (Some(404), _) => (Denied, "does not exist; check the name, the region and the endpoint"),
            (_, "RequestTimeTooSkewed") => (Denied, "rejected the time of the request; set the clock of this host"),
            (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidSecurity") => {
                (Denied, "rejected the key; check it")
            }
            (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                (Denied, "rejected the token; get a new one")
            }
            (_, "AuthorizationHeaderMalformed") | (Some(301 | 307), _) => (Denied, "is in another region; set region"),
            (None, _) if is_redirect => (Denied, "is in another region; set region"),
            (Some(501), _) => (Denied, "does not support conditional writes, so it cannot elect a leader; use another"),
            (Some(401 | 403), _) => (Denied, "forbids the request; grant reading, writing and listing of its objects"),
            (Some(429), _) => (Refused, "is overloaded; the request was not processed"),
            (Some(409), _) => (Unknown, "reported a conflict with a concurrent write"),
            (Some(408 | 500..), _) | (_, "RequestTimeout") => (Unknown, "failed to answer the request"),
            (Some(_), _) => (Denied, "rejected the request; check the options"),
            (None, _) => (Unknown, "did not answer before the connection was lost"),
        };
        let message = format!("{place} {what}");
        let error = match fault {
            Denied => StoreError::denied(message),
            Refused => StoreError::refused(message),
            Unknown => StoreError::unknown(message),
        };
        error.because(detail)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    fn of(text: &str) -> StoreError {
        let error = Error::Generic { store: "S3", source: text.into() };
        Answer::of(&error, &["/jobs/tenure/".to_owned()]).into_error("s3://jobs", &error)
    }

    #[test]
    fn answers_of_servers_are_classified() {
        let status = |status: &str, code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
            of(&format!(
                "Error performing PUT http://h/jobs/tenure/seats/metadata-credentials in 1ms - Server returned non-2xx status code: {status}: {body}"
            ))
        };
        for (answer, code, fault, expected) in [
            ("403 Forbidden", "AccessDenied", Fault::Denied, "forbids the request"),
            ("403 Forbidden", "RequestTimeTooSkewed", Fault::Denied, "set the clock of this host"),
            ("403 Forbidden", "SignatureDoesNotMatch", Fault::Denied, "rejected the key"),
            ("400 Bad Request", "ExpiredToken", Fault::Denied, "get a new one"),
            ("400 Bad Request", "AuthorizationHeaderMalformed", Fault::Denied, "in another region"),
            ("301 Moved Permanently", "PermanentRedirect", Fault::Denied, "in another region"),
            ("404 Not Found", "NoSuchBucket", Fault::Denied, "does not exist"),
            ("501 Not Implemented", "NotImplemented", Fault::Denied, "does not support conditional writes"),
            ("400 Bad Request", "InvalidRequest", Fault::Denied, "rejected the request"),
            ("429 Too Many Requests", "SlowDown", Fault::Refused, "is overloaded"),
            ("503 Service Unavailable", "SlowDown", Fault::Unknown, "failed to answer"),
            ("500 Internal Server Error", "InternalError", Fault::Unknown, "failed to answer"),
            ("400 Bad Request", "RequestTimeout", Fault::Unknown, "failed to answer"),
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
            "Failed to read token file '/nonexistent': No such file or directory (os error 2)",
            "Error performing token request: Error performing GET http://h/token in 1ms - HTTP error: timed out",
            "Error performing GET http://h/token in 1ms - Server returned non-2xx status code: 404 Not Found: ",
            "Error performing POST REDACTED in 1ms - Server returned non-2xx status code: 412 x: <Code>NoSuchKey</Code>",
        ] {
            let error = Error::Generic { store: "S3", source: text.into() };
            let answer = Answer::of(&error, &["/jobs/tenure/".to_owned()]);
            assert!(!answer.is_lost() && !answer.is_absent(), "{text}");
            let error = of(text);
            assert_eq!(error.fault(), Fault::Refused, "nothing was written");
            assert!(error.to_string().contains("cannot get credentials for s3://jobs"), "{error}");
        }
    }
}
