//! Runs every law against a stand-in for S3, with notes, and against one for Google Cloud Storage, without.

mod support;

use std::time::Duration;

use support::StandIn;
use tenure_core::DynStore;
use tenure_object_store::BucketStore;
use tenure_testkit::servers::{S3, free_port};
use tenure_testkit::{Kit, Subject};

fn main() {
    let (s3, gs) = (S3::start(), StandIn::start().gs());
    Kit::new()
        .subject("s3", Bucket { url: format!("{}&notes=true", s3.url()), _server: Some(s3) })
        .subject("gs", Bucket { url: gs, _server: None })
        .run();
}

struct Bucket {
    url: String,
    _server: Option<S3>,
}

/// There is no `delete`: an object that is deleted by hand leaves no floor for tokens, as the promises say.
impl Subject for Bucket {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(BucketStore::from_url(&self.url).expect("the URL is valid"))
    }

    /// Long enough for the stand-in on a busy machine: all laws share one interpreter.
    fn lease(&self) -> Duration {
        Duration::from_secs(8)
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let url = self.url.replace("://jobs?", "://jobs/tenure/2?");
        Some(Box::new(BucketStore::from_url(&url).expect("the URL is valid")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let url = S3::url_at(&format!("127.0.0.1:{}", free_port()));
        Some(Box::new(BucketStore::from_url(&url).expect("the URL is valid")))
    }
}
