//! Runs every law against a stand-in for S3, with notes and without.

use tenure_core::DynStore;
use tenure_object_store::BucketStore;
use tenure_testkit::servers::{S3, free_port};
use tenure_testkit::{Kit, Subject};

fn main() {
    Kit::new()
        .subject("s3", Server { s3: S3::start(), options: "" })
        .subject("s3-notes", Server { s3: S3::start(), options: "&notes=true" })
        .run();
}

struct Server {
    s3: S3,
    options: &'static str,
}

impl Server {
    fn at(&self, url: &str) -> Box<dyn DynStore> {
        Box::new(BucketStore::from_url(&format!("{url}{}", self.options)).expect("the URL is valid"))
    }
}

impl Subject for Server {
    fn open(&self) -> Box<dyn DynStore> {
        self.at(&self.s3.url())
    }

    /// The store cannot keep a shorter one, and the stand-in takes some milliseconds for each request.
    fn lease(&self) -> std::time::Duration {
        std::time::Duration::from_secs(3)
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(self.at(&self.s3.url().replace("s3://jobs?", "s3://jobs/tenure/2?")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(self.at(&S3::url_at(&format!("127.0.0.1:{}", free_port()))))
    }
}
