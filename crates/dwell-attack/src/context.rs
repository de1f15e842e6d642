//! The context of every attack: a lab, the program, and the durations.

use std::path::PathBuf;
use std::time::Duration;

use dwell_base::Instant;
use dwell_lab::lab::Lab;
use dwell_relay::io::clock::Clock;
use dwell_relay::trust::RandomSource;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::row::Bound;

/// The context of an attack.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) lab: Lab,
    /// The program under attack.
    pub(crate) dwell: PathBuf,
    /// Short phases and wide bounds: for every change, on machines that do other things too.
    pub(crate) is_quick: bool,
}

/// The durations of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Phases with the attack; there is one more without.
    pub(crate) rounds: u32,
    /// Each is measured for this long.
    pub(crate) phase: Duration,
    /// Before each, this long is not measured.
    pub(crate) settle: Duration,
}

impl Context {
    pub(crate) fn timing(&self) -> Timing {
        let settle = Duration::from_millis(700);
        if self.is_quick {
            Timing { rounds: 1, phase: Duration::from_millis(1500), settle }
        } else {
            Timing { rounds: 3, phase: Duration::from_secs(4), settle }
        }
    }

    /// The least share of its goodput that honest traffic keeps.
    pub(crate) fn goodput(&self, share: f64) -> Bound {
        Bound::AtLeast(if self.is_quick { share / 2.0 } else { share })
    }

    /// The least rate of an attack: below it, that honest traffic goes on says nothing.
    pub(crate) fn rate(&self, per_second: f64) -> Bound {
        Bound::AtLeast(if self.is_quick { per_second / 2.0 } else { per_second })
    }

    /// Returns a bound: a round trip may be longer by at most this factor.
    pub(crate) fn ping(&self, ratio: f64) -> Bound {
        Bound::AtMost(if self.is_quick { ratio * 4.0 } else { ratio })
    }

    /// The largest share of pings that are lost more.
    pub(crate) fn lost(&self, share: f64) -> Bound {
        Bound::AtMost(if self.is_quick { (share * 4.0).max(0.2) } else { share })
    }
}

/// The moment as relays have it.
pub(crate) fn now() -> Instant {
    Clock::now()
}

/// The time in UTC, in nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    Clock::unix_ns()
}

/// Sources of randomness for secrets, from the system.
pub(crate) fn random() -> RandomSource {
    Box::new(|bytes: &mut [u8]| fill(bytes))
}

/// 32 random bytes.
pub(crate) fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    fill(&mut bytes);
    bytes
}

fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        // Small requests are never cut short, and never fail once the system runs.
        if let Ok(len) = getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            filled += len;
        }
    }
}
