//! What befalls packets on a link: losses, delays and rates that vary; and queues that are managed.

use std::sync::Arc;

use crate::tcp::Like;

/// A queue that decides what is dropped or marked, when packets come or when they leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Managed {
    /// The most packets that may wait; the one on the wire does not count.
    pub packets: u32,
    /// The rules.
    pub discipline: Discipline,
    /// Marks packets of senders that take marks, in place of dropping them.
    pub ecn: bool,
}

/// The rules of a managed queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    /// Controlled delay (RFC 8289).
    CoDel(CoDel),
    /// A queue for each flow, each with `CoDel` (RFC 8290).
    FqCoDel {
        /// The rules of each queue.
        codel: CoDel,
        /// Bytes that a flow may send in its turn.
        quantum_bytes: u32,
        /// The number of queues that flows are spread over.
        queues: u32,
    },
    /// Proportional integral controller enhanced (RFC 8033).
    Pie(Pie),
}

/// The parameters of `CoDel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// The acceptable standing delay.
    pub target_ns: u64,
    /// The time for which the delay may be larger.
    pub interval_ns: u64,
    /// The implementation that it is like, where these differ.
    pub like: Like,
}

impl Default for CoDel {
    /// The values of RFC 8289.
    fn default() -> Self {
        Self { target_ns: 5_000_000, interval_ns: 100_000_000, like: Like::Rfc }
    }
}

/// The parameters of PIE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pie {
    /// The delay that it aims at.
    pub target_ns: u64,
    /// The time between updates of the probability.
    pub update_ns: u64,
    /// The time for which a burst is let through.
    pub burst_ns: u64,
    /// The weight of the deviation from the target, per second.
    pub alpha: f64,
    /// The weight of the delay's growth, per second.
    pub beta: f64,
    /// The implementation that it is like, where these differ: Linux, or else the RFC.
    pub like: Like,
}

impl Default for Pie {
    /// The values of RFC 8033.
    fn default() -> Self {
        let (target_ns, update_ns, burst_ns) = (15_000_000, 15_000_000, 150_000_000);
        Self { target_ns, update_ns, burst_ns, alpha: 0.125, beta: 1.25, like: Like::Rfc }
    }
}

/// What a link does to packets, beside taking its time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Medium {
    /// Losses behind the queue.
    pub loss: Option<Loss>,
    /// Propagation that takes longer for some packets. They keep their order.
    pub jitter: Option<Jitter>,
    /// A rate that varies, in place of the link's own.
    pub variation: Option<Variation>,
    /// Keeps statistics of the queue, as managed queues do; it costs an event for each packet.
    pub is_observed: bool,
}

impl Medium {
    /// Returns true if nothing befalls packets and nothing is observed.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// Losses on a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each packet is lost with this probability.
    Random(f64),
    /// The model of Gilbert and Elliott: the link changes between a good and a bad state, packet by packet.
    Bursty {
        /// The probability that the state is bad after a packet in the good one.
        to_bad: f64,
        /// The probability that it is good after a packet in the bad one.
        to_good: f64,
        /// The probability that a packet is lost in the good state, and in the bad one.
        lost: (f64, f64),
    },
}

impl Loss {
    /// Returns the share of packets that are lost in the long run.
    pub fn share(self) -> f64 {
        match self {
            Self::Random(share) => share,
            Self::Bursty { to_bad, to_good, lost: (good, bad) } => {
                let is_bad = if to_bad > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 };
                good * (1.0 - is_bad) + bad * is_bad
            }
        }
    }
}

/// A delay that is added to propagation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Evenly distributed from zero to this many nanoseconds.
    Uniform(u64),
    /// Exponential, with this mean in nanoseconds.
    Exponential(u64),
}

/// A rate that varies.
#[derive(Clone, Debug, PartialEq)]
pub enum Variation {
    /// Rates by time.
    Steps {
        /// Times from the beginning, rising from zero, each with the rate from then on in bits per second.
        steps: Arc<[(u64, u64)]>,
        /// All is repeated after this time.
        repeat_ns: Option<u64>,
    },
    /// The link's rate times a factor that wanders by chance: its logarithm is a first-order autoregressive
    /// process (as the shadowing of radio links is modelled), and its mean is 1.
    Walk {
        /// The time between changes.
        step_ns: u64,
        /// The time after which the correlation is 1/e.
        correlation_ns: u64,
        /// The standard deviation of the factor's natural logarithm.
        sigma: f64,
        /// The least and the greatest factor.
        bounds: (f64, f64),
    },
}

/// Returns the reason why these can't be simulated.
pub(crate) fn check(managed: Option<&Managed>, medium: &Medium) -> Result<(), &'static str> {
    let is_share = |p: f64| (0.0..=1.0).contains(&p);
    match medium.loss {
        Some(Loss::Random(p)) if !is_share(p) => return Err("a probability is from 0 to 1"),
        Some(Loss::Bursty { to_bad, to_good, lost }) => {
            if ![to_bad, to_good, lost.0, lost.1].into_iter().all(is_share) {
                return Err("a probability is from 0 to 1");
            }
            if to_bad > 0.0 && to_good == 0.0 {
                return Err("the bad state must end some time");
            }
        }
        _ => {}
    }
    match &medium.variation {
        Some(Variation::Steps { steps, repeat_ns }) => {
            if steps.first().is_none_or(|&(at, _)| at != 0) || !steps.is_sorted_by(|a, b| a.0 < b.0)
            {
                return Err("the steps of a rate must begin at zero and rise");
            }
            let ends = steps.last().map_or(0, |&(at, _)| at);
            if repeat_ns.is_some_and(|after| after <= ends) {
                return Err("steps can't be repeated before the last one begins");
            }
            let last = steps.last().map_or(0, |&(_, bps)| bps);
            let stays_zero =
                if repeat_ns.is_some() { steps.iter().all(|s| s.1 == 0) } else { last == 0 };
            if stays_zero {
                return Err("the rate must not be zero for ever");
            }
        }
        Some(Variation::Walk { step_ns, sigma, bounds: (least, most), .. }) => {
            let is_sound =
                *step_ns > 0 && (0.0..=5.0).contains(sigma) && *least > 0.0 && least <= most;
            if !is_sound || !most.is_finite() {
                return Err(
                    "a wandering rate needs a step, a deviation of 0 to 5 and bounds that are positive",
                );
            }
        }
        None => {}
    }
    match managed.map(|managed| managed.discipline) {
        Some(Discipline::FqCoDel { queues, quantum_bytes, .. })
            if !(1..=65_536).contains(&queues) || quantum_bytes == 0 =>
        {
            Err("flows are spread over 1 to 65,536 queues, with a quantum of at least a byte")
        }
        Some(Discipline::Pie(pie)) if pie.update_ns == 0 => Err("PIE must update some time"),
        _ => Ok(()),
    }
}
