//! The kinds of candidates: `tenure run` over a store, and the tools that people use for the same purpose.

use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_testkit::figures::{
    BenchTarget, ConsulTarget, EtcdTarget, FileTarget, KubernetesTarget, MysqlTarget, PostgresTarget, RedisTarget,
};
use tenure_testkit::servers::ConsulSetup;

use super::contest::End;

pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) is_peer: bool,
    /// Whether each of its steps is measured.
    pub(crate) is_profiled: bool,
    /// Whether the lock is freed at once if its holder is killed.
    is_freed_by_death: bool,
    pub(crate) wrap: Box<Wrap>,
}

/// Returns the command of a candidate, without the command that it is to run. Its arguments are a folder for files, and
/// the name of the candidate.
type Wrap = dyn Fn(&Path, &str) -> Command;

impl Kind {
    pub(crate) fn can(&self, end: End) -> bool {
        end == End::ByItself || self.is_freed_by_death
    }

    fn tenure(name: &str, program: PathBuf, url: String, election: &'static str) -> Self {
        let wrap = move |_: &Path, candidate: &str| {
            let mut command = Command::new(&program);
            command.args(["run", "--quiet", "--lease", "3s", "--candidate", candidate]);
            command.args(["--store", &url, election, "--"]);
            command
        };
        Self {
            name: name.to_owned(),
            is_peer: false,
            is_profiled: false,
            is_freed_by_death: true,
            wrap: Box::new(wrap),
        }
    }

    fn peer(name: &str, is_freed_by_death: bool, wrap: impl Fn(&Path) -> Command + 'static) -> Self {
        let wrap = Box::new(move |folder: &Path, _: &str| wrap(folder));
        Self { name: name.to_owned(), is_peer: true, is_profiled: false, is_freed_by_death, wrap }
    }

    /// A tool in a package for Python, which a script of this bench calls with the URL of the server.
    fn python(name: &str, is_freed_by_death: bool, script: &'static str, url: String) -> Option<Self> {
        let python = PathBuf::from(std::env::var_os("TENURE_BENCH_PYTHON")?);
        let module = script.trim_end_matches(".py");
        let is_there = Command::new(&python).args(["-c", &format!("import {module}")]).status();
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/handover/peers").join(format!("with_{script}"));
        is_there.is_ok_and(|status| status.success()).then(|| {
            Self::peer(name, is_freed_by_death, move |_| {
                let mut command = Command::new(&python);
                command.arg(&script).arg(&url);
                command
            })
        })
    }
}

/// A store, and what is measured on it.
pub(crate) type Scene = (Box<dyn BenchTarget>, Vec<Kind>);

/// Starts the servers of a store. Its argument says whether to measure each step, and no other tool.
type Start = fn(bool) -> Vec<Scene>;

pub(crate) const STORES: [(&str, Start); 7] = [
    ("sqlite", |profiles| {
        let flock = |folder: &Path| {
            let mut command = Command::new("flock");
            // It executes the command itself: whoever kills the command frees the lock.
            command.arg("--no-fork").arg(folder.join("lock"));
            command
        };
        vec![scene(FileTarget::new(), profiles, "flock", |_| Some(Kind::peer("flock", true, flock)))]
    }),
    ("redis", |profiles| {
        vec![scene(RedisTarget::start(), profiles, "python-redis-lock", |target| {
            Kind::python("python-redis-lock", false, "redis_lock.py", target.url())
        })]
    }),
    ("postgres", |profiles| {
        let on = |mode| {
            scene(PostgresTarget::start(mode), profiles, "pals", |target| {
                let url = target.server.url().replace("postgres://", "postgresql+psycopg2://");
                Kind::python("pals", true, "pals.py", url)
            })
        };
        vec![on("session"), on("lease")]
    }),
    ("mysql", |profiles| {
        vec![alone(MysqlTarget::start("session"), profiles), alone(MysqlTarget::start("lease"), profiles)]
    }),
    ("etcd", |profiles| {
        vec![scene(EtcdTarget::start(), profiles, "etcdctl lock", |target| {
            let endpoints = format!("--endpoints={}", target.0.addresses());
            is_there("etcdctl".as_ref()).then(|| {
                Kind::peer("etcdctl lock", false, move |_| {
                    let mut command = Command::new("etcdctl");
                    command.env("ETCDCTL_API", "3").args([&endpoints, "lock", "--ttl=3", "bench"]);
                    command
                })
            })
        })]
    }),
    ("consul", |profiles| {
        vec![scene(ConsulTarget::start(), profiles, "consul lock", |target| {
            let (program, address) = (ConsulSetup::new().program().to_owned(), target.0.address());
            Some(Kind::peer("consul lock", false, move |_| {
                let mut command = Command::new(&program);
                command.args(["lock", "-http-addr", &address, "-shell=false", "-child-exit-code", "bench"]);
                command
            }))
        })]
    }),
    ("kubernetes", |profiles| vec![alone(KubernetesTarget::start(), profiles)]),
];

/// A store beside another tool, whose name is printed if it is missing.
fn scene<T: BenchTarget + 'static>(
    target: T,
    profiles: bool,
    peer: &str,
    find: impl FnOnce(&T) -> Option<Kind>,
) -> Scene {
    let found = find(&target);
    if found.is_none() {
        println!("\n{peer} is not installed: {} is measured alone", target.name());
    }
    let (target, mut kinds) = alone(target, profiles);
    kinds.extend(found.filter(|_| !profiles));
    (target, kinds)
}

/// A store without another tool.
fn alone(target: impl BenchTarget + 'static, profiles: bool) -> Scene {
    let before = std::env::var_os("TENURE_BENCH_BEFORE").filter(|_| !profiles);
    let before = before.map(|program| Kind::tenure("tenure before", program.into(), target.url(), "before"));
    let mut now = Kind::tenure("tenure run", env!("CARGO_BIN_EXE_tenure").into(), target.url(), "bench");
    now.is_profiled = profiles;
    (Box::new(target), std::iter::once(now).chain(before).collect())
}

fn is_there(program: &Path) -> bool {
    Command::new(program).arg("--help").output().is_ok()
}
