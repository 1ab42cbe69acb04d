//! Real servers for tests, on free ports of this machine and in temporary folders.
//!
//! ```no_run
//! use tenure_testkit::servers::Redis;
//!
//! let mut redis = Redis::start();
//! println!("{}", redis.url());
//! redis.pause();          // SIGSTOP: connections stay open, but the server does not answer
//! redis.resume();
//! redis.kill();           // SIGKILL
//! redis.restart();        // on the same port, with the data in its folder
//! ```
//!
//! Dropping the value of a server ends the server, and if the test itself is killed, the kernel kills the server,
//! too. If a server is not installed, the test fails with the command that installs it. If a server does not start,
//! the test prints its output.

mod azurite;
mod certificates;
mod connections;
mod consul;
mod consul_api;
mod etcd;
mod folder;
mod kubernetes;
mod launch;
mod memcached;
mod mysql;
mod pgbouncer;
mod postgres;
mod process;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod resp;
mod s3;

pub use crate::ports::free_port;
pub use azurite::Azurite;
pub use certificates::Certificates;
pub use connections::connections;
pub use consul::{Consul, ConsulCluster, ConsulSetup};
pub use etcd::{Etcd, EtcdMember, EtcdProxy, EtcdSetup};
pub use folder::Folder;
pub use kubernetes::Kubernetes;
pub use launch::Launch;
pub use memcached::{Memcached, MemcachedSetup};
pub use mysql::{Mysql, MysqlSetup};
pub use pgbouncer::PgBouncer;
pub use postgres::{Postgres, PostgresSetup};
pub use process::{PATIENCE, Process};
pub use redis::{Redis, RedisSetup};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use resp::Reply;
pub use s3::{S3, S3Setup};
