//! CUBIC's growth as Linux counts it (`net/ipv4/tcp_cubic.c`, and ns-3.37 after it): in whole packets, one more after
//! so many acknowledged ones, with a curve that is cut to whole packets. Below the plateau it keeps up with a Reno that
//! adds 8/15 of a packet in a round trip, and goes on so beyond it (RFC 8312; RFC 9438 goes on with a whole packet).
//!
//! Left out: the clock's jiffies; that Linux moves the curve on while the program pauses, and takes the least of all round trips,
//! those of slow start included, where here it is the least of their smoothed values.

/// C, in packets per cubic second: 410 / 1024.
const SCALE: f64 = 410.0 / 1_024.0;
/// What a loss leaves of the window: 717 / 1024.
const DECREASE: f64 = 717.0 / 1_024.0;
/// Reno with that decrease adds a packet for so many windows.
const RENO_WINDOWS: f64 = 15.0 / 8.0;
/// The curve is not computed again for as long, in nanoseconds, if the window is the same.
const PAUSE_NS: u64 = 1_000_000_000 / 32;
/// The most packets for one more before the first loss.
const COUNT_FIRST_MAX: u64 = 20;
/// The fewest packets for one more.
const COUNT_MIN: u64 = 2;
/// Packets for one more, as a multiple of the window, where the curve is not above it.
const HARDLY: f64 = 100.0;
const LEAST: f64 = 2.0;

/// Acknowledged packets that have not opened the window yet (`tcp_cong_avoid_ai` in `tcp_cong.c`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit(u64);

impl Credit {
    /// Returns by how many packets the window opens with `acked` more, where `count` open it by one.
    pub(super) fn spend(&mut self, acked: u64, count: u64) -> u64 {
        let count = count.max(1);
        let mut more = 0;
        if self.0 >= count {
            // From when there were to be more of them.
            (self.0, more) = (0, 1);
        }
        self.0 += acked;
        more += self.0 / count;
        self.0 %= count;
        more
    }
}

/// The state of a sender. Windows are in packets, and whole.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    keeps_up_with_reno: bool,
    /// The window before the last decrease, or less, to make room for newcomers; zero before that and after timeouts.
    plateau: f64,
    stage: Option<Stage>,
    /// So many acknowledged packets open the window by one.
    count: u64,
    credit: Credit,
    least_round_ns: u64,
    /// The window for which the curve was computed, and when.
    computed: (f64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    start_ns: u64,
    origin: f64,
    /// The time from the start to the origin, in seconds.
    origin_s: f64,
    /// The window that Reno would have, and the packets acknowledged since it grew.
    reno: f64,
    acked: f64,
}

impl Counted {
    /// ns-3.37's does not keep up with Reno, and computes the curve for each acknowledgement.
    pub(super) fn new(keeps_up_with_reno: bool) -> Self {
        Self {
            keeps_up_with_reno,
            plateau: 0.0,
            stage: None,
            count: 0,
            credit: Credit::default(),
            least_round_ns: u64::MAX,
            computed: (0.0, 0),
        }
    }

    /// Returns the window after a loss.
    pub(super) fn decrease(&mut self, packets: f64) -> f64 {
        let converging = packets < self.plateau;
        self.plateau =
            if converging { (packets * (1.0 + DECREASE) / 2.0).floor() } else { packets };
        self.stage = None;
        self.begin_to_count();
        (packets * DECREASE).floor().max(LEAST)
    }

    /// After a timeout nothing is known of the path.
    pub(super) fn forget(&mut self) {
        *self = Self { credit: self.credit, ..Self::new(self.keeps_up_with_reno) };
        self.begin_to_count();
    }

    /// Linux begins to count again at each loss, ns-3.37 does not.
    fn begin_to_count(&mut self) {
        if self.keeps_up_with_reno {
            self.credit = Credit::default();
        }
    }

    /// Returns the window after `acked` packets more, with the round trip that was measured.
    pub(super) fn grown(&mut self, packets: f64, now_ns: u64, acked: u64, round_ns: u64) -> f64 {
        self.least_round_ns = self.least_round_ns.min(round_ns);
        self.update(packets, now_ns, acked);
        packets + self.credit.spend(acked, self.count) as f64
    }

    fn update(&mut self, packets: f64, now_ns: u64, acked: u64) {
        if let Some(stage) = &mut self.stage {
            stage.acked += acked as f64;
            let (before, at_ns) = self.computed;
            if self.keeps_up_with_reno && before == packets && now_ns - at_ns <= PAUSE_NS {
                return;
            }
        }
        self.computed = (packets, now_ns);
        let mut stage = self.stage.unwrap_or_else(|| self.begin(packets, now_ns, acked));
        self.count = self.count_for(stage, packets, now_ns);
        if self.keeps_up_with_reno {
            let window = (packets * RENO_WINDOWS).floor().max(1.0);
            let grown = ((stage.acked - 1.0) / window).floor().max(0.0);
            stage.acked -= grown * window;
            stage.reno += grown;
            if stage.reno > packets {
                self.count = self.count.min((packets / (stage.reno - packets)) as u64);
            }
        }
        self.count = self.count.max(COUNT_MIN);
        self.stage = Some(stage);
    }

    fn begin(&self, packets: f64, now_ns: u64, acked: u64) -> Stage {
        let origin = self.plateau.max(packets);
        let origin_s = libm::cbrt((origin - packets) / SCALE);
        Stage { start_ns: now_ns, origin, origin_s, reno: packets, acked: acked as f64 }
    }

    /// The number of packets for one more, by the curve.
    fn count_for(&self, stage: Stage, packets: f64, now_ns: u64) -> u64 {
        let elapsed_ns = (now_ns - stage.start_ns).saturating_add(self.least_round_ns);
        let s = elapsed_ns as f64 * 1e-9 - stage.origin_s;
        let away = (SCALE * s.abs() * s * s).floor();
        let target = if s < 0.0 { stage.origin - away } else { stage.origin + away };
        let count = if target > packets { packets / (target - packets) } else { HARDLY * packets };
        if self.plateau == 0.0 { (count as u64).min(COUNT_FIRST_MAX) } else { count as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_NS: u64 = 40_000_000;

    /// Lets whole windows be acknowledged, packet by packet; returns the window after all.
    fn rounds(cubic: &mut Counted, mut packets: f64, rounds: u64) -> f64 {
        for round in 0..rounds {
            let window = packets as u64;
            for k in 0..window {
                let now_ns = round * ROUND_NS + k * ROUND_NS / window;
                packets = cubic.grown(packets, now_ns, 1, ROUND_NS);
            }
        }
        packets
    }

    #[test]
    fn small_windows_grow_by_eight_fifteenths_of_a_packet_in_a_round_trip() {
        let mut cubic = Counted::new(true);
        let after = cubic.decrease(20.0);
        assert_eq!(after, 14.0);
        // 30 round trips are 1.2 s: the curve's origin, 20, is 2.5 s away, and Reno's window is 14 + 16.
        let grown = rounds(&mut cubic, after, 30) - after;
        assert!((14.0..=17.0).contains(&grown), "{grown}");
    }

    #[test]
    fn without_reno_the_curve_alone_counts() {
        let mut cubic = Counted::new(false);
        let after = cubic.decrease(20.0);
        let grown = rounds(&mut cubic, after, 30) - after;
        assert!((4.0..=6.0).contains(&grown), "{grown}");
    }

    #[test]
    fn a_second_loss_makes_room_and_a_timeout_forgets() {
        let mut cubic = Counted::new(true);
        cubic.decrease(100.0);
        assert_eq!((cubic.decrease(90.0), cubic.plateau), (63.0, 76.0));
        cubic.forget();
        assert_eq!(cubic.plateau, 0.0);
        // One packet more for twenty, 5 % in a round trip, until something is lost.
        let grown = rounds(&mut cubic, 100.0, 1) - 100.0;
        assert!((4.0..=6.0).contains(&grown), "{grown}");
    }
}
