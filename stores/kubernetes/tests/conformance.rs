//! All laws, on a real API server. `TENURE_TEST_KUBECONFIG=FILE` names another one; the namespace of its context
//! is used.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject};
use kube::discovery::ApiResource;
use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::servers::{Kubernetes, free_port};
use tenure_testkit::{Kit, Subject};

fn main() {
    Kit::new().subject("kubernetes", Cluster::find()).run();
}

struct Cluster {
    kubeconfig: PathBuf,
    /// The same server with another namespace, if this program started it.
    elsewhere: Option<PathBuf>,
    _server: Option<Arc<Kubernetes>>,
}

impl Cluster {
    fn find() -> Self {
        if let Some(kubeconfig) = std::env::var_os("TENURE_TEST_KUBECONFIG") {
            return Self { kubeconfig: kubeconfig.into(), elsewhere: None, _server: None };
        }
        let server = Kubernetes::shared();
        let [kubeconfig, elsewhere] = [(); 2].map(|()| server.kubeconfig(&server.namespace()));
        Self { kubeconfig, elsewhere: Some(elsewhere), _server: Some(server) }
    }

    fn url(&self) -> String {
        format!("kubernetes:?kubeconfig={}", self.kubeconfig.display())
    }
}

impl Subject for Cluster {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(KubernetesStore::from_url(&self.url()).expect("a valid URL"))
    }

    /// A Lease lasts a whole number of seconds, and a fifteenth of it must be enough for a call.
    fn lease(&self) -> Duration {
        Duration::from_secs(6)
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async move {
            let kubeconfig = kube::config::Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
            let client = kube::Client::try_from(config).expect("a client");
            let resource = ApiResource {
                group: "coordination.k8s.io".to_owned(),
                version: "v1".to_owned(),
                api_version: "coordination.k8s.io/v1".to_owned(),
                kind: "Lease".to_owned(),
                plural: "leases".to_owned(),
            };
            let leases: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
            let all = leases.list(&Default::default()).await.expect("a list");
            for lease in all {
                // Finds the object by its annotations, because its name is an internal matter of the store.
                let annotations = lease.metadata.annotations.unwrap_or_default();
                let is_it = annotations.get("tenure.election/name").is_some_and(|name| name == seat.as_str());
                if is_it && annotations.contains_key("tenure.election/record") {
                    let name = lease.metadata.name.unwrap_or_default();
                    leases.delete(&name, &DeleteParams::default()).await.expect("the Lease is deleted");
                }
            }
        }))
    }

    fn keeps_tokens_of_removed_seats(&self) -> bool {
        false
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let url = format!("kubernetes:?kubeconfig={}", self.elsewhere.as_ref()?.display());
        Some(Box::new(KubernetesStore::from_url(&url).expect("a valid URL")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let server = format!("https://127.0.0.1:{}", free_port());
        let config = kube::Config::new(server.parse().expect("a URL"));
        Some(Box::new(KubernetesStore::with_config(config, None)))
    }
}
