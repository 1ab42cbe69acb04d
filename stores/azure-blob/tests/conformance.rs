//! Runs every law against Azurite, a stand-in for Azure Blob Storage, with notes.
//!
//! The shortest lease of Azure is 15 s, so most laws wait for a long time. They all run at once.

use std::time::Duration;

use tenure_azure_blob::AzureBlobStore;
use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_testkit::servers::{Azurite, free_port};
use tenure_testkit::{Kit, Subject};

fn main() {
    let azurite = Azurite::start();
    let url = format!("{}&notes=true", azurite.url());
    Kit::new().subject("azblob", Container { azurite: azurite.into(), url }).run();
}

struct Container {
    azurite: std::sync::Arc<Azurite>,
    url: String,
}

/// There is no `delete`: a blob that is deleted by hand leaves no floor for tokens, as the promises say.
impl Subject for Container {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(AzureBlobStore::from_url(&self.url).expect("the URL is valid"))
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(15)
    }

    /// Breaks the lease at once, as an operator can.
    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let blob = format!("tenure/seats/{}", seat.as_str().replace(' ', "~20"));
        let azurite = self.azurite.clone();
        Some(Box::pin(async move {
            let broken = move || azurite.lease(&blob, "break", &[("x-ms-lease-break-period", "0")]);
            assert_eq!(tokio::task::spawn_blocking(broken).await.expect("an answer"), 202);
        }))
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let url = self.url.replace("/jobs?", "/jobs/tenure/2?");
        Some(Box::new(AzureBlobStore::from_url(&url).expect("the URL is valid")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let url = Azurite::url_at(&format!("127.0.0.1:{}", free_port()));
        Some(Box::new(AzureBlobStore::from_url(&url).expect("the URL is valid")))
    }
}
