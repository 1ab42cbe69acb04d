//! Code that depends on the operating system: a clock that also counts while the machine is suspended, an alarm on that
//! clock, and the name of this host.

use tenure_protocol::Moment;

/// An open file or socket that keeps a seat held for as long as any process has it open. See
/// [`Store::lifeline`](crate::Store::lifeline).
#[cfg(not(windows))]
pub type Lifeline = std::os::fd::OwnedFd;

/// An open file that keeps a seat held for as long as any process has it open. See
/// [`Store::lifeline`](crate::Store::lifeline).
#[cfg(windows)]
pub type Lifeline = std::os::windows::io::OwnedHandle;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::Moment;

    /// Reads `CLOCK_BOOTTIME`, a monotonic clock that also counts while the machine is suspended.
    pub(crate) fn now() -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// A timer on the same clock. tokio's timers stop while the machine is suspended.
    pub(crate) struct Timer {
        fd: AsyncFd<OwnedFd>,
        set: Option<Moment>,
    }

    impl Timer {
        pub(crate) fn new() -> io::Result<Self> {
            let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            #[allow(
                deprecated,
                reason = "its replacement is unsafe, for types that could change their descriptor; an OwnedFd cannot"
            )]
            let fd = AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)?;
            Ok(Self { fd, set: None })
        }

        /// Resolves at this moment, or soon after.
        pub(crate) async fn wait(&mut self, until: Moment) -> io::Result<()> {
            if self.set != Some(until) {
                // An expiry of zero would disarm the timer.
                let nanos = until.as_nanos().max(1);
                let value = Timespec {
                    tv_sec: (nanos / 1_000_000_000).try_into().unwrap_or(i64::MAX),
                    tv_nsec: (nanos % 1_000_000_000) as _,
                };
                let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
                timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
                self.set = Some(until);
            }
            loop {
                let mut ready = self.fd.readable().await?;
                if now() >= until {
                    return Ok(());
                }
                ready.clear_ready();
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use std::io;
    use std::time::Duration;

    use super::Moment;

    /// Reads `CLOCK_MONOTONIC`, which on Apple's systems also counts while the machine is suspended.
    #[cfg(unix)]
    pub(crate) fn now() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Reads the performance counter behind `Instant`, which on Windows also counts while the machine is suspended.
    #[cfg(not(unix))]
    pub(crate) fn now() -> Moment {
        use std::sync::OnceLock;
        use std::time::Instant;
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(Instant::now);
        Moment::from_nanos(1 + u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX - 1))
    }

    /// A timer that reads the clock at least once a second, because tokio's timers can stop while the machine is
    /// suspended.
    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) async fn wait(&mut self, until: Moment) -> io::Result<()> {
            loop {
                let left = until.since(now());
                if left.is_zero() {
                    return Ok(());
                }
                tokio::time::sleep(left.min(Duration::from_secs(1))).await;
            }
        }
    }
}

pub(crate) use imp::{Timer, now};

/// Returns the name of this host, for people to read.
pub(crate) fn host_name() -> String {
    #[cfg(unix)]
    {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
    #[cfg(not(unix))]
    {
        std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
    }
}
