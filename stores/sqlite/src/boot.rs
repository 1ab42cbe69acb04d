//! The clock that all processes of this machine share, and how to tell that it is the same clock.

use std::sync::OnceLock;

use tenure_core::{Clock, StoreTime};

/// What the processes of one machine have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The boot id of the kernel. File locks are valid only within one boot.
    pub(crate) kernel: String,
    /// The boot id could be read. Otherwise no two processes know that they belong to the same boot.
    pub(crate) is_known: bool,
    /// The name of the clock. Two time namespaces of one kernel can have different clocks.
    pub(crate) clock: String,
}

impl Boot {
    /// Returns the names for this boot of this machine.
    pub(crate) fn this() -> &'static Self {
        static THIS: OnceLock<Boot> = OnceLock::new();
        THIS.get_or_init(|| {
            let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            Self::of(boot_id.trim())
        })
    }

    /// Returns the names for the boot with this id. An id that cannot be read is empty, as is the file of a sandbox that
    /// hides it. It is replaced by a random one, which equals no other: candidates then only observe each other's seats.
    pub(crate) fn of(boot_id: &str) -> Self {
        let is_known = !boot_id.is_empty();
        let kernel = if is_known { boot_id.to_owned() } else { format!("unknown-{:032x}", rand::random::<u128>()) };
        let namespace = std::fs::read_link("/proc/self/ns/time")
            .map_or_else(|_| "only".to_owned(), |link| link.to_string_lossy().into_owned());
        let clock = format!("{kernel}/{namespace}");
        Self { kernel, is_known, clock }
    }
}

/// Returns the time on the shared clock, in nanoseconds: `CLOCK_BOOTTIME`, which never steps and keeps counting
/// while the machine is suspended.
pub(crate) fn now() -> i64 {
    i64::try_from(Clock::system().now().as_nanos()).unwrap_or(i64::MAX)
}

/// Converts a time on the shared clock to the type of the protocol.
pub(crate) fn store_time(nanos: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(nanos))
}
