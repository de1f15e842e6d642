//! Sources that do not react to the network: the time and the size of their next packets.

use std::sync::Arc;

use dwell_base::{Exponentials, Rng};

use crate::plan::{OnOff, RandomSource, Traffic};

/// A source; gives its packets one by one in order of time.
#[derive(Clone, Debug)]
pub enum Source {
    /// ns-2's exponential bursts and pauses.
    OnOff(OnOffSource),
    /// Poisson arrivals.
    Poisson(PoissonSource),
    /// Equal distances.
    Cbr(CbrSource),
    /// Packets as recorded.
    Trace(TraceSource),
}

impl Source {
    /// Returns the source for `traffic`, with random numbers of its own; none for TCP, which
    /// reacts.
    pub fn new(traffic: &Traffic, seed: u64, stream: u64) -> Option<Self> {
        Some(match traffic {
            Traffic::OnOff(config) => Self::OnOff(OnOffSource::new(*config, seed, stream)),
            Traffic::Poisson { packet_bytes, steps } => {
                Self::Poisson(PoissonSource::new(*packet_bytes, steps, Rng::stream(seed, stream)))
            }
            Traffic::Cbr { packet_bytes, rate, start_ns } => Self::Cbr(CbrSource {
                packet_bytes: *packet_bytes,
                start_ns: *start_ns,
                spacing_ns: f64::from(*packet_bytes) * 8e9 / rate.as_bps() as f64,
                sent: 0,
            }),
            Traffic::Trace(packets) => {
                Self::Trace(TraceSource { packets: packets.clone(), next: 0 })
            }
            Traffic::Recorded(recording) => {
                Self::Trace(TraceSource { packets: recording.times().clone(), next: 0 })
            }
            Traffic::Tcp(..) => return None,
        })
    }

    /// Returns the next packet: its time and its size in bytes. `None` once there are no more.
    #[inline]
    pub fn next_packet(&mut self) -> Option<(u64, u32)> {
        match self {
            Self::OnOff(source) => Some(source.next_packet()),
            Self::Poisson(source) => source.next_packet(),
            Self::Cbr(source) => Some(source.next_packet()),
            Self::Trace(source) => source.next_packet(),
        }
    }
}

/// ns-2's `Application/Traffic/Exponential`.
///
/// Within a burst packets are a = 8 S / rate apart. A burst has max(1, ⌊X + 0.5⌋) packets, X
/// exponential with the mean on / a; the pause, exponential, is drawn right after X. The first
/// packet of a burst comes a + pause after the last one of the burst before, the very first at
/// a + pause. The rounding lets the source send a little more than on / (on + off) suggests:
/// with the parameters of Shimamura et al., 50.25 Mbit/s in place of 50, and it is this that
/// fills their link.
#[derive(Clone, Debug)]
pub struct OnOffSource {
    config: OnOff,
    spacing_ns: f64,
    burst_mean: f64,
    left: u64,
    at_ns: f64,
    random: Random,
}

#[derive(Clone, Debug)]
enum Random {
    Own(Exponentials),
    Ns2(Box<crate::ns2::Stream>),
}

impl Random {
    #[inline]
    fn exponential(&mut self, mean: f64) -> f64 {
        match self {
            Self::Own(draws) => draws.draw(mean),
            Self::Ns2(stream) => stream.exponential(mean),
        }
    }
}

impl OnOffSource {
    fn new(config: OnOff, seed: u64, stream: u64) -> Self {
        let spacing_ns = f64::from(config.packet_bytes) * 8e9 / config.rate.as_bps() as f64;
        let random = match config.random {
            RandomSource::Own => Random::Own(Exponentials::new(Rng::stream(seed, stream))),
            RandomSource::Ns2 { stream } => {
                Random::Ns2(Box::new(crate::ns2::Stream::new(seed, stream)))
            }
        };
        let burst_mean = config.on_ns / spacing_ns;
        Self { config, spacing_ns, burst_mean, left: 0, at_ns: 0.0, random }
    }

    #[inline]
    fn next_packet(&mut self) -> (u64, u32) {
        if self.left == 0 {
            let burst = self.random.exponential(self.burst_mean);
            self.left = ((burst + 0.5) as u64).max(1);
            self.at_ns += self.random.exponential(self.config.off_ns);
        }
        self.left -= 1;
        self.at_ns += self.spacing_ns;
        (self.at_ns as u64, self.config.packet_bytes)
    }
}

/// Poisson arrivals whose rate changes in steps.
#[derive(Clone, Debug)]
pub struct PoissonSource {
    packet_bytes: u32,
    steps: Vec<(u64, f64)>,
    step: usize,
    draws: Exponentials,
    at_ns: f64,
    /// In this step: the mean distance, unless it is a pause, and the end.
    mean_ns: Option<f64>,
    until_ns: f64,
}

impl PoissonSource {
    fn new(packet_bytes: u32, steps: &[(u64, f64)], rng: Rng) -> Self {
        let at_ns = steps.first().map_or(f64::INFINITY, |&(from_ns, _)| from_ns as f64);
        let mut source = Self {
            packet_bytes,
            steps: steps.to_vec(),
            step: 0,
            draws: Exponentials::new(rng),
            at_ns,
            mean_ns: None,
            until_ns: f64::INFINITY,
        };
        source.enter(0);
        source
    }

    fn enter(&mut self, step: usize) {
        let bps = self.steps.get(step).map(|&(_, bps)| bps).filter(|&bps| bps > 0.0);
        self.step = step;
        self.mean_ns = bps.map(|bps| f64::from(self.packet_bytes) * 8e9 / bps);
        self.until_ns = self.steps.get(step + 1).map_or(f64::INFINITY, |&(from, _)| from as f64);
    }

    #[inline]
    fn next_packet(&mut self) -> Option<(u64, u32)> {
        loop {
            if let Some(mean_ns) = self.mean_ns {
                let at_ns = self.at_ns + self.draws.draw(mean_ns);
                if at_ns < self.until_ns {
                    self.at_ns = at_ns;
                    return Some((at_ns as u64, self.packet_bytes));
                }
            }
            // A Poisson process has no memory: it restarts at the step.
            if self.until_ns == f64::INFINITY {
                return None;
            }
            self.at_ns = self.until_ns;
            self.enter(self.step + 1);
        }
    }
}

/// Packets at equal distances.
#[derive(Clone, Debug)]
pub struct CbrSource {
    packet_bytes: u32,
    start_ns: u64,
    spacing_ns: f64,
    sent: u64,
}

impl CbrSource {
    fn next_packet(&mut self) -> (u64, u32) {
        let at_ns = self.start_ns + (self.sent as f64 * self.spacing_ns) as u64;
        self.sent += 1;
        (at_ns, self.packet_bytes)
    }
}

/// Packets as recorded.
#[derive(Clone, Debug)]
pub struct TraceSource {
    packets: Arc<[(u64, u32)]>,
    next: usize,
}

impl TraceSource {
    fn next_packet(&mut self) -> Option<(u64, u32)> {
        let packet = self.packets.get(self.next).copied();
        self.next += 1;
        packet
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rate;

    use super::*;

    fn mean_bps(mut source: Source, until_ns: u64) -> f64 {
        let packets = std::iter::from_fn(|| source.next_packet());
        let bytes: u64 =
            packets.take_while(|&(at, _)| at < until_ns).map(|(_, b)| u64::from(b)).sum();
        bytes as f64 * 8e9 / until_ns as f64
    }

    #[test]
    fn on_off_sends_what_its_rounding_makes_of_it() {
        let config = OnOff {
            packet_bytes: 500,
            rate: Rate::from_mbps(60),
            on_ns: 250_000.0,
            off_ns: 50_000.0,
            random: RandomSource::Own,
        };
        // E[N] = 1 + e^(−1.5/m) / (1 − e^(−1/m)); the mean rate is E[N] / (E[N]·a + off).
        let spacing = 500.0 * 8.0 / 60e6;
        let m: f64 = 250e-6 / spacing;
        let packets = 1.0 + (-1.5 / m).exp() / (1.0 - (-1.0 / m).exp());
        let expected = packets * 4000.0 / (packets * spacing + 50e-6);
        let source = Source::new(&Traffic::OnOff(config), 1, 0).unwrap();
        let measured = mean_bps(source, 100_000_000_000);
        assert!((measured / expected - 1.0).abs() < 0.002, "{measured} {expected}");
        assert!((expected / 50.2465e6 - 1.0).abs() < 1e-5);
    }

    #[test]
    fn poisson_follows_its_steps() {
        let steps = vec![(0, 1e6), (1_000_000_000, 0.0), (2_000_000_000, 4e6)];
        let traffic = Traffic::Poisson { packet_bytes: 100, steps };
        let mut source = Source::new(&traffic, 1, 0).unwrap();
        let mut packets = [0; 3];
        while let Some((at, _)) = source.next_packet() {
            if at >= 3_000_000_000 {
                break;
            }
            packets[(at / 1_000_000_000) as usize] += 1;
        }
        assert!((1100..1400).contains(&packets[0]), "{packets:?}");
        assert_eq!(packets[1], 0);
        assert!((4700..5300).contains(&packets[2]), "{packets:?}");
    }

    #[test]
    fn cbr_and_traces_are_exact() {
        let cbr = Traffic::Cbr { packet_bytes: 125, rate: Rate::from_mbps(1), start_ns: 7 };
        let mut source = Source::new(&cbr, 1, 0).unwrap();
        assert_eq!(source.next_packet(), Some((7, 125)));
        assert_eq!(source.next_packet(), Some((1_000_007, 125)));
        let trace = Traffic::Trace(Arc::from([(3, 40), (5, 1500)]));
        let mut source = Source::new(&trace, 1, 0).unwrap();
        assert_eq!(source.next_packet(), Some((3, 40)));
        assert_eq!(source.next_packet(), Some((5, 1500)));
        assert_eq!(source.next_packet(), None);
    }
}
