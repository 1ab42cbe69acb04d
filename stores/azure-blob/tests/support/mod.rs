//! Helpers of the tests: candidates that work under an overlap detector, stores, and a stand-in for a container.

#![allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]

mod stand_in;

use std::time::Duration;

use http::Request;
use reqsign_azure_storage::{RequestSigner, StaticCredentialProvider};
use reqsign_core::{Context, Signer};
use tenure_azure_blob::AzureBlobStore;
use tenure_core::{Candidate, Incarnation, Record, SeatName, SeatStore, StoreError, Token};
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, told, until, within};
use tenure_testkit::servers::Azurite;

pub(crate) use self::stand_in::StandIn;

/// The shortest lease of Azure.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// Starts a candidate for a seat.
pub(crate) fn stand(url: &str, seat: &str, id: &str, detector: &OverlapDetector) -> TestCandidate {
    TestCandidate::stand_for(open(url), seat, detector, |election| election.lease(LEASE).candidate(id))
}

/// Opens the store at this URL.
pub(crate) fn open(url: &str) -> AzureBlobStore {
    AzureBlobStore::from_url(url).unwrap()
}

/// Reads the only seat of a test, and returns the error.
pub(crate) async fn error_of(url: &str) -> StoreError {
    within("the read is answered", SeatStore::read(&open(url), &seat())).await.expect_err("the read must fail")
}

/// Returns the only seat of a test.
pub(crate) fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

/// Returns a record with a holder.
pub(crate) fn record(token: u64) -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(rand::random()) };
    Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(token), LEASE) }
}

/// Returns the URL of a store with a shared access signature for the container, which permits this and expires then.
pub(crate) async fn url_with_sas(azurite: &Azurite, permissions: &str, lasts: Duration) -> String {
    let account = tenure_azure_blob::AzureBlobOptions::from_url(&azurite.url()).unwrap();
    let key = StaticCredentialProvider::new_shared_key(&account.account, &account.account_key.unwrap().0);
    let request = RequestSigner::new().with_service_sas_permissions(permissions);
    let signer = Signer::new(Context::new(), key, request);
    // The signature covers the name of the container, and not the host.
    let (mut parts, ()) = Request::get("http://devstoreaccount1.host/jobs").body(()).unwrap().into_parts();
    signer.sign(&mut parts, Some(lasts)).await.unwrap();
    let sas =
        parts.uri.query().unwrap().replace('%', "%25").replace('&', "%26").replace('=', "%3D").replace('+', "%2B");
    let endpoint = format!("http://{}/devstoreaccount1", azurite.address());
    format!("azblob://devstoreaccount1/jobs?endpoint={endpoint}&sas_token={sas}")
}
