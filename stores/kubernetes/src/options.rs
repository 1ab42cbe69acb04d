//! What the store is told: which cluster, and which namespace of it.

use std::path::PathBuf;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use tenure_core::StoreError;
use tenure_kit::url::Url;

use crate::errors;

/// Which cluster keeps the seats, and where in it.
///
/// ```
/// # use tenure_kubernetes::KubernetesOptions;
/// let options = KubernetesOptions::from_url("kubernetes://jobs?context=production")?;
/// assert_eq!(options.namespace.as_deref(), Some("jobs"));
/// assert_eq!(options.context.as_deref(), Some("production"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesOptions {
    /// The namespace that the seats are in. If none is named: that of the context in the kubeconfig, or
    /// of the service account.
    pub namespace: Option<String>,
    /// A kubeconfig file. If none is named: those of `KUBECONFIG`, or `~/.kube/config`, or, if there is
    /// neither, the service account of the pod that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, if not its current one.
    pub context: Option<String>,
    /// Whether to go by the service account, whatever kubeconfig there is.
    pub in_cluster: bool,
}

/// The schemes of this store's URLs.
pub const SCHEMES: &[&str] = &["kubernetes", "k8s"];

impl KubernetesOptions {
    /// From a URL:
    ///
    /// | URL | |
    /// |---|---|
    /// | `kubernetes:` | the namespace of the kubeconfig's context, or of the service account |
    /// | `kubernetes://NAMESPACE` | this namespace |
    /// | `?context=NAME` | another context of the kubeconfig than the current one |
    /// | `?kubeconfig=FILE` | another file |
    /// | `?in_cluster` | the service account, whatever kubeconfig there is |
    ///
    /// # Errors
    /// In one line, if it cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let url = Url::parse_without_login(url, SCHEMES)?;
        let namespace = url.place.strip_suffix('/').unwrap_or(url.place);
        if namespace.contains(['@', ':', '/']) {
            return Err(
                "only a namespace stands in this URL: which cluster, and who we are, is in the kubeconfig".to_owned()
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

    /// What cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = |name: &String| {
            (1..=63).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-') && !name.ends_with('-')
        };
        if self.namespace.as_ref().is_some_and(|name| !is_name(name)) {
            return Err(
                "a namespace has at most 63 small letters, digits and dashes: kubernetes://my-namespace".to_owned()
            );
        }
        if self.in_cluster && (self.kubeconfig.is_some() || self.context.is_some()) {
            return Err("a kubeconfig or the service account (in_cluster), not both".to_owned());
        }
        Ok(())
    }
}

/// Where the configuration of the client comes from.
#[derive(Clone)]
pub(crate) enum Place {
    Options(KubernetesOptions),
    /// What the application has configured already.
    Config(Box<Config>, Option<String>),
}

impl Place {
    /// The configuration, and the namespace. Reads files, so not to be called where nothing may block.
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
                StoreError::denied(format!("there is no service account here, as there is in a pod: {error}"))
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
            Err(error) if named => return Err(errors::of_kubeconfig(&error)),
            Err(_) => {
                return Config::incluster().map_err(|_| {
                    StoreError::denied(
                        "there is no kubeconfig (KUBECONFIG, ~/.kube/config) and no service account of a pod: \
                         say which cluster is meant with ?kubeconfig=FILE",
                    )
                });
            }
        };
        let authority = authority(&kubeconfig, self.context.as_ref());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        // Nothing in it waits for anything, whatever its name says.
        let config =
            futures_util::future::FutureExt::now_or_never(Config::from_custom_kubeconfig(kubeconfig, &options))
                .unwrap_or(Err(kube::config::KubeconfigError::FindPath))
                .map_err(|error| errors::of_kubeconfig(&error))?;
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(errors::no_certificate(authority.as_deref()));
        }
        Ok(config)
    }
}

/// The file that names the certificate authority of a context, or of the current one.
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
    fn urls_name_a_namespace_a_context_and_a_file() {
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
    fn what_is_wrong_with_a_url_is_told() {
        for (url, told) in [
            ("http://x", "begins with one of kubernetes://, k8s://"),
            ("kubernetes:jobs", "begins with kubernetes://"),
            ("kubernetes://u:hunter2@host", "only a namespace"),
            ("kubernetes://a/b", "only a namespace"),
            ("kubernetes://u:x?hunter2@host", "only a namespace"),
            ("kubernetes://Jobs", "small letters"),
            ("kubernetes://-a", "small letters"),
            ("kubernetes://a?colour=hunter2", "unknown option \"colour\""),
            ("kubernetes://a?context=%", "%25"),
            ("kubernetes://a?in_cluster&context=b", "not both"),
            ("kubernetes://a?in_cluster=hunter2", "true or false"),
        ] {
            let error = KubernetesOptions::from_url(url).unwrap_err();
            assert!(error.contains(told) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_come_from_configuration_and_unknown_ones_are_refused() {
        let options: KubernetesOptions = toml::from_str("namespace = 'jobs'\ncontext = 'a'").unwrap();
        assert_eq!(options.namespace.as_deref(), Some("jobs"));
        assert!(toml::from_str::<KubernetesOptions>("contxt = 'a'").unwrap_err().to_string().contains("unknown field"));
    }
}
