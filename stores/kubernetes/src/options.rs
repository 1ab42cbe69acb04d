//! The options of the store: the cluster, the credentials and the namespace.

use std::path::PathBuf;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use tenure_core::{ConfigError, StoreError};
use tenure_kit::url::Url;

use crate::errors;

/// Options of a [`KubernetesStore`](crate::KubernetesStore): which cluster keeps the seats, and in which
/// namespace.
///
/// They deserialize from a configuration file; unknown fields are an error. The default is the same as with
/// kubectl.
///
/// ```
/// # use tenure_kubernetes::KubernetesOptions;
/// let options = KubernetesOptions::from_url("kubernetes://jobs?context=production")?;
/// assert_eq!(options.namespace.as_deref(), Some("jobs"));
/// assert_eq!(options.context.as_deref(), Some("production"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesOptions {
    /// The namespace of the seats. By default that of the kubeconfig's context, or of the service account.
    pub namespace: Option<String>,
    /// The kubeconfig file. By default those in `KUBECONFIG`, else `~/.kube/config`, else the service account of
    /// the pod that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig. By default its current context.
    pub context: Option<String>,
    /// Whether to use the service account of the pod even if a kubeconfig exists.
    pub in_cluster: bool,
}

/// The URL schemes that this store accepts: `kubernetes`, and `k8s` for short.
pub const SCHEMES: &[&str] = &["kubernetes", "k8s"];

impl KubernetesOptions {
    /// Parses a URL:
    ///
    /// | URL | |
    /// |---|---|
    /// | `kubernetes:` | the namespace of the kubeconfig's context, or of the service account |
    /// | `kubernetes://NAMESPACE` | this namespace |
    /// | `?context=NAME` | this context of the kubeconfig instead of the current one |
    /// | `?kubeconfig=FILE` | this kubeconfig file |
    /// | `?in_cluster` | the service account of the pod, even if a kubeconfig exists |
    ///
    /// # Errors
    /// Returns one line if the URL is not valid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse_without_login(url, SCHEMES)?;
        let namespace = url.place.strip_suffix('/').unwrap_or(url.place);
        if namespace.contains(['@', ':', '/']) {
            return Err(
                "the URL can only name a namespace: the cluster and the credentials come from the kubeconfig".into()
            );
        }
        let (mut options, mut given) = (Self::default(), url.options()?);
        given.take("context", &mut options.context)?.take("kubeconfig", &mut options.kubeconfig)?;
        given.take("in_cluster", &mut options.in_cluster)?.take("namespace", &mut options.namespace)?;
        given.finish()?;
        if !namespace.is_empty() {
            options.namespace = Some(namespace.to_owned());
        }
        options.check()?;
        Ok(options)
    }

    /// Rejects options that are not valid or contradict each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = |name: &String| {
            (1..=63).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-') && !name.ends_with('-')
        };
        if self.namespace.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(
                "a namespace has at most 63 lower-case letters, digits and dashes; write it like kubernetes://my-namespace".into()
            );
        }
        if self.in_cluster && (self.kubeconfig.is_some() || self.context.is_some()) {
            return Err("use a kubeconfig or the service account (in_cluster), not both".into());
        }
        Ok(())
    }
}

/// The source of the client's configuration.
#[derive(Clone)]
pub(crate) enum ConfigSource {
    Options(KubernetesOptions),
    /// A configuration that the application supplied, and the namespace.
    Config(Box<Config>, Option<String>),
}

impl ConfigSource {
    /// Returns the configuration and the namespace. It reads files, so call it on a thread that can block.
    pub(crate) fn config(&self) -> Result<(Config, String), StoreError> {
        let (config, namespace) = match self {
            Self::Config(config, namespace) => ((**config).clone(), namespace),
            Self::Options(options) => (options.config()?, &options.namespace),
        };
        let namespace = namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok((config, namespace))
    }
}

impl KubernetesOptions {
    fn config(&self) -> Result<Config, StoreError> {
        let in_cluster = || {
            Config::incluster().map_err(|error| {
                StoreError::denied(format!("found no service account; in_cluster works only in a pod: {error}"))
            })
        };
        if self.in_cluster {
            return in_cluster();
        }
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let named = self.kubeconfig.is_some() || self.context.is_some() || std::env::var_os("KUBECONFIG").is_some();
        let kubeconfig = match kubeconfig {
            Ok(kubeconfig) => kubeconfig,
            Err(error) if named => return Err(errors::from_kubeconfig(&error)),
            Err(_) => {
                return Config::incluster().map_err(|_| {
                    StoreError::denied(
                        "found no kubeconfig (KUBECONFIG, ~/.kube/config) and no service account of a pod; choose a \
                         cluster with ?kubeconfig=FILE",
                    )
                });
            }
        };
        let authority = authority(&kubeconfig, self.context.as_ref());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        // This function is async, but never waits.
        let config =
            futures_util::future::FutureExt::now_or_never(Config::from_custom_kubeconfig(kubeconfig, &options))
                .unwrap_or(Err(kube::config::KubeconfigError::FindPath))
                .map_err(|error| errors::from_kubeconfig(&error))?;
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(errors::no_certificate(authority.as_deref()));
        }
        Ok(config)
    }
}

/// Returns the file with the certificate authority of a context, or of the current one.
fn authority(kubeconfig: &Kubeconfig, context: Option<&String>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.certificate_authority.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_sets_the_namespace_context_and_file() {
        let options = |url: &str| KubernetesOptions::from_url(url).unwrap();
        for url in ["kubernetes:", "kubernetes://", "k8s:", "kubernetes:///"] {
            assert_eq!(options(url), KubernetesOptions::default(), "{url}");
        }
        let some = options("k8s://jobs?context=a%20b&kubeconfig=/etc/kube%3F");
        assert_eq!((some.namespace.as_deref(), some.context.as_deref()), (Some("jobs"), Some("a b")));
        assert_eq!(some.kubeconfig, Some("/etc/kube?".into()));
        assert!(options("kubernetes:?in_cluster").in_cluster);
        assert!(!options("kubernetes://a?in_cluster=false").in_cluster);
        assert_eq!(options("kubernetes:?namespace=x").namespace.as_deref(), Some("x"));
    }

    #[test]
    fn invalid_urls_are_errors() {
        for (url, expected) in [
            ("kubernetes://u:hunter2@host", "can only name a namespace"),
            ("kubernetes://a/b", "can only name a namespace"),
            ("kubernetes://u:x?hunter2@host", "can only name a namespace"),
            ("kubernetes://Jobs", "lower-case letters"),
            ("kubernetes://-a", "lower-case letters"),
            ("kubernetes://a?colour=hunter2", "unknown option \"colour\""),
            ("kubernetes://a?in_cluster&context=b", "not both"),
        ] {
            let error = KubernetesOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_deserialize_and_unknown_ones_are_rejected() {
        let options: KubernetesOptions = toml::from_str("namespace = 'jobs'\ncontext = 'a'").unwrap();
        assert_eq!(options.namespace.as_deref(), Some("jobs"));
        assert!(toml::from_str::<KubernetesOptions>("contxt = 'a'").unwrap_err().to_string().contains("unknown field"));
    }
}
