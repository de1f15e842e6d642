//! The congestion window of `NewReno` (RFC 5681) and of CUBIC (RFC 9438).

use super::config::{Flavour, Like, TcpConfig};
use super::counted::{Counted, Credit};

/// The least window and threshold of slow start after a loss.
const AFTER_LOSS_MIN: f64 = 2.0;
/// The most packets by which an acknowledgement opens the window in slow start (RFC 3465).
const SLOW_START_STEP_MAX: u64 = 2;
/// `NewReno` halves.
const RENO_DECREASE: f64 = 0.5;
/// CUBIC's C, in packets per cubic second.
const CUBIC_SCALE: f64 = 0.4;
/// CUBIC's beta.
const CUBIC_DECREASE: f64 = 0.7;
/// The growth of a Reno with CUBIC's decrease that is as fast as Reno.
const CUBIC_RENO_INCREASE: f64 = 3.0 * (1.0 - CUBIC_DECREASE) / (1.0 + CUBIC_DECREASE);
/// The largest growth of CUBIC's window in a round trip: half of it.
const CUBIC_STEP_MAX: f64 = 1.5;

/// A congestion window, in packets.
#[derive(Clone, Debug)]
pub(super) struct Window {
    packets: f64,
    threshold: f64,
    growth: Growth,
}

#[derive(Clone, Debug)]
enum Growth {
    NewReno,
    /// In whole packets, as Linux counts.
    Whole(Credit),
    Cubic(Cubic),
    Counted(Box<Counted>),
}

#[derive(Clone, Debug, Default)]
struct Cubic {
    /// The window before the last decrease, or less, to make room for newcomers.
    plateau: f64,
    /// The window before the last decrease.
    before: f64,
    after_timeout: bool,
    /// The present stage of congestion avoidance.
    stage: Option<Stage>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    start_ns: u64,
    /// The time until the window is at its plateau, in seconds.
    plateau_s: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Window {
    pub(super) fn new(config: &TcpConfig, packets: u32, threshold: u32) -> Self {
        let growth = match (config.flavour, config.like) {
            (Flavour::Cubic, Like::Rfc) => Growth::Cubic(Cubic::default()),
            (Flavour::Cubic, like) => Growth::Counted(Box::new(Counted::new(like == Like::Linux))),
            (Flavour::NewReno, Like::Linux) => Growth::Whole(Credit::default()),
            (Flavour::NewReno | Flavour::Sack1 | Flavour::Bbr, _) => Growth::NewReno,
        };
        Self { packets: f64::from(packets), threshold: f64::from(threshold), growth }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    pub(super) fn threshold(&self) -> f64 {
        self.threshold
    }

    /// The data begin: packet 0 was the SYN.
    pub(super) fn begin(&mut self, packets: u32) {
        self.packets = f64::from(packets);
    }

    /// Handles `packets` newly acknowledged packets while the window was full.
    pub(super) fn on_acked(&mut self, now_ns: u64, packets: u64, round_ns: u64) {
        if self.packets < self.threshold {
            self.packets += packets.min(SLOW_START_STEP_MAX) as f64;
            return;
        }
        self.packets = match &mut self.growth {
            Growth::NewReno => self.packets + packets as f64 / self.packets,
            Growth::Whole(credit) => {
                self.packets + credit.spend(packets, self.packets as u64) as f64
            }
            Growth::Cubic(cubic) => cubic.grown(self.packets, now_ns, packets as f64, round_ns),
            Growth::Counted(cubic) => cubic.grown(self.packets, now_ns, packets, round_ns),
        };
    }

    /// Handles a loss, with `in_flight` packets unacknowledged. Of these no more count than the
    /// window holds: limited transmit's don't (RFC 5681, section 3.2), nor packets that arrived
    /// long ago beyond a gap that can't be closed.
    pub(super) fn on_loss(&mut self, in_flight: u64) {
        let in_flight = (in_flight as f64).min(self.packets);
        let after = match &mut self.growth {
            Growth::NewReno => in_flight * RENO_DECREASE,
            Growth::Whole(credit) => {
                *credit = Credit::default();
                (self.packets * RENO_DECREASE).floor()
            }
            Growth::Cubic(cubic) => in_flight * cubic.decrease(self.packets),
            Growth::Counted(cubic) => cubic.decrease(self.packets),
        };
        self.threshold = after.max(AFTER_LOSS_MIN);
        self.packets = self.threshold;
    }

    /// Handles an expired timer; `repeated` if its packet had been retransmitted before.
    pub(super) fn on_timeout(&mut self, in_flight: u64, repeated: bool) {
        if !repeated {
            self.on_loss(in_flight);
        }
        match &mut self.growth {
            Growth::NewReno => {}
            Growth::Whole(credit) => *credit = Credit::default(),
            Growth::Cubic(cubic) => {
                cubic.stage = None;
                cubic.after_timeout = true;
            }
            Growth::Counted(cubic) => cubic.forget(),
        }
        self.packets = 1.0;
    }
}

impl Cubic {
    fn decrease(&mut self, packets: f64) -> f64 {
        let converging = packets < self.plateau;
        self.plateau = if converging { packets * (1.0 + CUBIC_DECREASE) / 2.0 } else { packets };
        self.before = packets;
        self.after_timeout = false;
        self.stage = None;
        CUBIC_DECREASE
    }

    fn grown(&mut self, packets: f64, now_ns: u64, acked: f64, round_ns: u64) -> f64 {
        let mut stage = self.stage.unwrap_or_else(|| self.begin_stage(packets, now_ns));
        let increase = if stage.reno < self.before { CUBIC_RENO_INCREASE } else { 1.0 };
        stage.reno += increase * acked / packets;
        self.stage = Some(stage);
        let elapsed_ns = now_ns.saturating_sub(stage.start_ns);
        if self.curve(stage, elapsed_ns) < stage.reno {
            return stage.reno;
        }
        let target = self.curve(stage, elapsed_ns.saturating_add(round_ns));
        let target = target.clamp(packets, packets * CUBIC_STEP_MAX);
        packets + acked * (target - packets) / packets
    }

    fn begin_stage(&mut self, packets: f64, now_ns: u64) -> Stage {
        if self.after_timeout || packets >= self.plateau {
            self.plateau = packets;
        }
        self.after_timeout = false;
        let plateau_s = libm::cbrt((self.plateau - packets) / CUBIC_SCALE);
        Stage { start_ns: now_ns, plateau_s, reno: packets }
    }

    /// RFC 9438, Figure 1.
    fn curve(&self, stage: Stage, elapsed_ns: u64) -> f64 {
        let s = elapsed_ns as f64 * 1e-9 - stage.plateau_s;
        CUBIC_SCALE * s * s * s + self.plateau
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A window of 100 packets, that lost one and avoids congestion.
    fn after_loss(flavour: Flavour) -> Window {
        let mut window = Window::new(&TcpConfig::of(flavour), 100, 100);
        window.on_loss(100);
        window
    }

    /// Lets whole windows be acknowledged, each 100 ms, packet by packet; returns the window
    /// after each.
    fn rounds(window: &mut Window, count: u64) -> Vec<f64> {
        let round_ns = SECOND / 10;
        (0..count)
            .map(|round| {
                let packets = window.packets() as u64;
                for k in 0..packets {
                    let now_ns = round * round_ns + k * round_ns / packets;
                    window.on_acked(now_ns, 1, round_ns);
                }
                window.packets()
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles() {
        let mut window = Window::new(&TcpConfig::of(Flavour::NewReno), 10, 1000);
        assert_eq!(rounds(&mut window, 3), [20.0, 40.0, 80.0]);
    }

    #[test]
    fn new_reno_halves_and_adds_one_packet_per_round_trip() {
        let mut window = after_loss(Flavour::NewReno);
        assert_eq!((window.packets(), window.threshold()), (50.0, 50.0));
        let after = rounds(&mut window, 10)[9];
        assert!((59.5..60.0).contains(&after), "{after}");
    }

    #[test]
    fn cubic_is_back_at_its_plateau_after_the_time_of_the_formula() {
        let mut window = after_loss(Flavour::Cubic);
        assert_eq!((window.packets(), window.threshold()), (70.0, 70.0));
        // The cube root of 30 / 0.4 is 4.217 s: concave up to there, convex after.
        let after = rounds(&mut window, 80);
        assert!((99.0..=100.5).contains(&after[41]), "{}", after[41]);
        let step = |round: usize| after[round] - after[round - 1];
        assert!(step(5) > step(20) && step(20) > step(40));
        assert!(step(75) > step(60) && step(60) > step(45));
    }

    #[test]
    fn cubic_makes_room_when_it_did_not_reach_its_plateau() {
        let mut window = after_loss(Flavour::Cubic);
        rounds(&mut window, 5);
        let before = window.packets();
        window.on_loss(before as u64);
        let Growth::Cubic(cubic) = &window.growth else { unreachable!() };
        assert_eq!(cubic.plateau, before * 0.85);
    }

    #[test]
    fn cubic_is_at_least_as_fast_as_reno_where_windows_are_small() {
        let grown = |flavour| {
            let mut window = Window::new(&TcpConfig::of(flavour), 8, 8);
            window.on_loss(8);
            rounds(&mut window, 20)[19] - window.threshold()
        };
        assert!(grown(Flavour::Cubic) > 0.5 * grown(Flavour::NewReno));
    }

    #[test]
    fn timeouts_start_again_from_one_packet_and_halve_once() {
        for flavour in [Flavour::NewReno, Flavour::Cubic] {
            let mut window = Window::new(&TcpConfig::of(flavour), 40, 40);
            window.on_timeout(40, false);
            let threshold = window.threshold();
            window.on_timeout(40, true);
            assert_eq!((window.packets(), window.threshold()), (1.0, threshold));
            assert!(rounds(&mut window, 12)[11] > threshold);
        }
    }
}
