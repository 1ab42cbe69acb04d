//! The clock that all processes of this machine share, and how to tell that it is the same one.

use std::sync::OnceLock;

use tenure_core::{Clock, StoreTime};

/// What the processes of a machine have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    /// Names this start of the kernel: locks on files are its own.
    pub(crate) kernel: String,
    /// Names the clock: two namespaces of one kernel can have different ones.
    pub(crate) clock: String,
}

impl Boot {
    /// This start of this machine. What cannot be told is random: it then equals nobody's, and
    /// candidates go by what they observe.
    pub(crate) fn this() -> &'static Self {
        static THIS: OnceLock<Boot> = OnceLock::new();
        THIS.get_or_init(|| {
            let unknown = || format!("unknown-{:032x}", rand::random::<u128>());
            let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .map_or_else(|_| unknown(), |id| id.trim().to_owned());
            let namespace = std::fs::read_link("/proc/self/ns/time")
                .map_or_else(|_| "only".to_owned(), |link| link.to_string_lossy().into_owned());
            let clock = format!("{kernel}/{namespace}");
            Self { kernel, clock }
        })
    }
}

/// What time it is on the clock that all share, in nanoseconds: `CLOCK_BOOTTIME`, which neither steps
/// nor stops while the machine is suspended.
pub(crate) fn now() -> i64 {
    i64::try_from(Clock::system().now().as_nanos()).unwrap_or(i64::MAX)
}

/// The same, as the protocol counts it.
pub(crate) fn store_time(nanos: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(nanos))
}
