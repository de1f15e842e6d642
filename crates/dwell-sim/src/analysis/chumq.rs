//! Sawabe et al., section 6: late packets and chunk sizes of ChuMQ.

use dwell_base::Rate;
use dwell_base::time::SECOND_NS;
use thiserror::Error;

use super::poisson;

/// The number of packets in a chunk when `k` arrived while the timer ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// `1 + k`: the packet that started the timer too. The values in the paper's text.
    #[default]
    WithHead,
    /// `k`, as the equations are printed.
    Literal,
}

impl Reading {
    fn head(self) -> u32 {
        match self {
            Self::WithHead => 1,
            Self::Literal => 0,
        }
    }
}

/// One class of packets, which has a buffer of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// h: the size of its packets.
    pub packet_bytes: u32,
    /// T: the longest time that a packet may wait for others.
    pub timer_ns: u64,
    /// λ: its offered load, as a share of the link's rate.
    pub load: f64,
}

/// The model: a link, and the classes that share it.
#[derive(Clone, Debug)]
pub struct ChuMq {
    rate: Rate,
    mtu_bytes: u32,
    reading: Reading,
    classes: Vec<Class>,
}

/// A reason why there is no model of such a link.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AnalysisError {
    /// There are no classes.
    #[error("there is no class of packets")]
    NoClasses,
    /// Packets of no size, or larger than a chunk.
    #[error("class {class}: packets have 1 to {mtu_bytes} bytes, the MTU, not {packet_bytes}")]
    PacketBytes {
        /// The class, from zero.
        class: usize,
        /// The requested size.
        packet_bytes: u32,
        /// The largest size.
        mtu_bytes: u32,
    },
    /// A load that is no share.
    #[error("class {class}: the load must be a finite number, not negative, not {load}")]
    Load {
        /// The class, from zero.
        class: usize,
        /// The requested load.
        load: f64,
    },
}

impl ChuMq {
    /// The model for a link of this rate, chunks of at most `mtu_bytes`, and these classes.
    ///
    /// # Errors
    /// If there is no class, a packet is empty or larger than the MTU, or a load is negative or no
    /// number.
    pub fn new(
        rate: Rate,
        mtu_bytes: u32,
        classes: &[Class],
        reading: Reading,
    ) -> Result<Self, AnalysisError> {
        if classes.is_empty() {
            return Err(AnalysisError::NoClasses);
        }
        for (class, &Class { packet_bytes, load, .. }) in classes.iter().enumerate() {
            if packet_bytes == 0 || packet_bytes > mtu_bytes {
                return Err(AnalysisError::PacketBytes { class, packet_bytes, mtu_bytes });
            }
            if !load.is_finite() || load < 0.0 {
                return Err(AnalysisError::Load { class, load });
            }
        }
        Ok(Self { rate, mtu_bytes, reading, classes: classes.to_vec() })
    }

    /// Λ: the offered load of all classes, as a share of the link.
    pub fn load(&self) -> f64 {
        self.classes.iter().map(|class| class.load).sum()
    }

    /// The model of each class, in their order.
    pub fn classes(&self) -> impl Iterator<Item = ClassModel> + '_ {
        self.classes.iter().map(|&class| ClassModel {
            class,
            reading: self.reading,
            mtu_bytes: self.mtu_bytes,
            others_load: self.load() - class.load,
            packets_per_ns: class.load * self.rate.as_bps() as f64
                / (8.0 * f64::from(class.packet_bytes) * SECOND_NS as f64),
            full_chunk_ns: f64::from(self.mtu_bytes) * 8.0 * SECOND_NS as f64
                / self.rate.as_bps() as f64,
        })
    }

    /// Eq. (6): mean size of all chunks, in bytes; `None` if there are none.
    pub fn chunk_bytes_mean(&self) -> Option<f64> {
        let (mut bytes, mut chunks) = (0.0, 0.0);
        for class in self.classes() {
            let packets = class.chunk_packets_mean();
            // A class without packets has no chunks.
            if packets > 0.0 {
                let chunks_per_ns = class.packets_per_ns / packets;
                bytes += class.chunk_bytes_mean() * chunks_per_ns;
                chunks += chunks_per_ns;
            }
        }
        (chunks > 0.0).then(|| bytes / chunks)
    }
}

/// Bounds of the share of packets that wait too long, and what lies between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LateShare {
    /// The share if only the packet at the head of a delayed chunk is late.
    pub lower: f64,
    /// The share if packets that came during half of a full chunk's transmission are late too.
    pub approximation: f64,
    /// The share if packets that came during a full chunk's transmission are late too.
    pub upper: f64,
}

/// The model's predictions for one class.
#[derive(Clone, Copy, Debug)]
pub struct ClassModel {
    class: Class,
    reading: Reading,
    mtu_bytes: u32,
    others_load: f64,
    packets_per_ns: f64,
    full_chunk_ns: f64,
}

impl ClassModel {
    /// K: the number of packets that fill a chunk.
    pub fn packets_max(&self) -> u32 {
        self.mtu_bytes / self.class.packet_bytes
    }

    /// λT: the mean number of packets that arrive while the timer runs.
    pub fn arrivals_mean(&self) -> f64 {
        self.packets_per_ns * self.class.timer_ns as f64
    }

    /// M̄(T): the mean number of packets that the timer finds, if the MTU sets no limit.
    pub fn timer_packets_mean(&self) -> f64 {
        f64::from(self.reading.head()) + self.arrivals_mean()
    }

    /// Eq. (2): the share of chunks that leave because the timer expired, the others being full.
    pub fn timer_share(&self) -> f64 {
        poisson::below(self.arrivals_mean(), self.packets_max())
    }

    /// Eq. (3): the probability that a chunk made by the timer has `packets` packets; zero where
    /// the timer never gets to make one.
    pub fn timer_chunk_mass(&self, packets: u32) -> f64 {
        let timer = self.timer_share();
        match packets.checked_sub(self.reading.head()) {
            Some(arrivals) if arrivals < self.packets_max() && timer > 0.0 => {
                (poisson::mass(self.arrivals_mean(), arrivals) / timer).min(1.0)
            }
            _ => 0.0,
        }
    }

    /// Eq. (4): the share of the packets that waits longer than the timer, at least, about, and at
    /// most; `None` in overload, where nearly all do.
    pub fn late_share(&self) -> Option<LateShare> {
        if self.others_load + self.class.load >= 1.0 {
            return None;
        }
        let met_busy = self.others_load * self.timer_share();
        let late = |wait_ns: f64| {
            let packets = 1.0 + self.packets_per_ns * wait_ns;
            // No more can be late than there are, which the literal reading ignores with few.
            (packets / self.timer_packets_mean()).min(1.0) * met_busy
        };
        Some(LateShare {
            lower: late(0.0),
            approximation: late(self.full_chunk_ns / 2.0),
            upper: late(self.full_chunk_ns),
        })
    }

    /// Eq. (5): the mean size of this class' chunks, in bytes.
    ///
    /// A full chunk counts as the MTU, though packets that do not divide it leave some free.
    pub fn chunk_bytes_mean(&self) -> f64 {
        let (mean, full) = (self.arrivals_mean(), self.packets_max());
        let head = self.reading.head();
        let by_timer: f64 = (0..full)
            .map(|k| {
                poisson::mass(mean, k) * f64::from(k + head) * f64::from(self.class.packet_bytes)
            })
            .sum();
        by_timer + (1.0 - self.timer_share()) * f64::from(self.mtu_bytes)
    }

    /// M: the mean number of packets in this class' chunks, L̄ / h.
    pub fn chunk_packets_mean(&self) -> f64 {
        self.chunk_bytes_mean() / f64::from(self.class.packet_bytes)
    }
}

/// Section 6.1: the share of arriving packets that a full buffer drops in the long run, for an
/// offered load of `load` times the link's rate.
///
/// The paper's Λ − 1 relates the excess to the capacity of the link; as a share of the offered load
/// it is (Λ − 1) / Λ, in bytes.
pub fn overload_loss(load: f64) -> f64 {
    if load > 1.0 { (load - 1.0) / load } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The paper's Table II: sensing, real-time, file transfer, with these loads.
    fn table_ii(loads: [f64; 3], reading: Reading) -> ChuMq {
        let [sensing, real_time, file] = loads;
        let classes = [
            Class { packet_bytes: 40, timer_ns: 50_000, load: sensing },
            Class { packet_bytes: 200, timer_ns: 100_000, load: real_time },
            Class { packet_bytes: 1500, timer_ns: 200_000, load: file },
        ];
        ChuMq::new(Rate::from_mbps(10_000), 9000, &classes, reading).unwrap()
    }

    fn class(model: &ChuMq, index: usize) -> ClassModel {
        model.classes().nth(index).unwrap()
    }

    #[track_caller]
    fn near(ours: f64, expected: f64, tolerance: f64) {
        assert!((ours - expected).abs() <= tolerance, "{ours}, expected {expected} ± {tolerance}");
    }

    #[test]
    fn chunks_are_full_with_the_papers_numbers_of_packets() {
        let model = table_ii([0.3; 3], Reading::WithHead);
        let full: Vec<u32> = model.classes().map(|class| class.packets_max()).collect();
        assert_eq!(full, [225, 45, 6]);
    }

    #[test]
    fn timers_find_the_papers_numbers_of_packets() {
        let file_dominant = table_ii([0.01, 0.01, 0.88], Reading::WithHead);
        near(class(&file_dominant, 0).timer_packets_mean(), 16.63, 0.006);
        near(class(&file_dominant, 1).timer_packets_mean(), 7.25, 1e-9);
        let sensing_dominant = table_ii([0.88, 0.01, 0.01], Reading::WithHead);
        near(class(&sensing_dominant, 1).timer_packets_mean(), 7.25, 1e-9);
        near(class(&sensing_dominant, 2).timer_packets_mean(), 2.66, 0.007);
        // Without the packet at the head the paper's numbers do not come out.
        let literal = table_ii([0.01, 0.01, 0.88], Reading::Literal);
        near(class(&literal, 0).timer_packets_mean(), 15.625, 1e-9);
    }

    #[test]
    fn late_packets_are_as_in_the_papers_figure_9() {
        let percent = |loads, index| {
            let late = class(&table_ii(loads, Reading::WithHead), index).late_share().unwrap();
            100.0 * late.approximation
        };
        let file_dominant = [0.01, 0.01, 0.88];
        near(percent(file_dominant, 0), 11.38, 0.006);
        near(percent(file_dominant, 1), 15.04, 0.006);
        near(percent(file_dominant, 2), 0.0, 1e-3);
        let sensing_dominant = [0.88, 0.01, 0.01];
        near(percent(sensing_dominant, 0), 0.0, 1e-9);
        near(percent(sensing_dominant, 1), 15.04, 0.006);
        near(percent(sensing_dominant, 2), 34.13, 0.006);
    }

    #[test]
    fn equal_loads_fill_all_chunks_from_one_half_on() {
        // The paper's Fig. 8 (a); the sensing packets' timer is the shortest.
        let full = |load: f64, index| {
            let model = table_ii([load / 3.0; 3], Reading::WithHead);
            1.0 - class(&model, index).timer_share()
        };
        assert!((0..3).all(|index| full(0.5, index) > 0.98));
        assert!(full(0.4, 0) < 0.2);
        assert!((1..3).all(|index| full(0.4, index) > 0.98));
    }

    #[test]
    fn chunk_sizes_follow_from_the_definition() {
        // 5/3 packets of 1500 bytes expected in 200 µs, six at most: summed by hand.
        let model = table_ii([0.88, 0.01, 0.01], Reading::Literal);
        let file = class(&model, 2);
        let (mean, mut mass, mut bytes, mut below) =
            (5.0f64 / 3.0, (-5.0f64 / 3.0).exp(), 0.0, 0.0);
        for k in 0..6 {
            bytes += mass * f64::from(k) * 1500.0;
            below += mass;
            mass *= mean / f64::from(k + 1);
        }
        near(file.timer_share(), below, 1e-12);
        near(file.chunk_bytes_mean(), bytes + (1.0 - below) * 9000.0, 1e-8);
        // The packet at the head adds itself to each chunk that is not full.
        let with_head = class(&table_ii([0.88, 0.01, 0.01], Reading::WithHead), 2);
        near(with_head.chunk_bytes_mean() - file.chunk_bytes_mean(), below * 1500.0, 1e-8);
    }

    #[test]
    fn overload_has_no_bounds_but_a_loss() {
        let model = table_ii([0.4; 3], Reading::WithHead);
        assert!(model.classes().all(|class| class.late_share().is_none()));
        near(overload_loss(model.load()), 0.2 / 1.2, 1e-12);
        assert_eq!(overload_loss(0.9), 0.0);
    }

    #[test]
    fn impossible_classes_are_refused() {
        let new = |packet_bytes, load| {
            let class = Class { packet_bytes, timer_ns: 1, load };
            ChuMq::new(Rate::from_mbps(1), 9000, &[class], Reading::WithHead).map(|_| ())
        };
        assert!(matches!(new(0, 0.1), Err(AnalysisError::PacketBytes { .. })));
        assert!(matches!(new(9001, 0.1), Err(AnalysisError::PacketBytes { .. })));
        assert!(matches!(new(40, -0.1), Err(AnalysisError::Load { .. })));
        assert!(matches!(new(40, f64::NAN), Err(AnalysisError::Load { .. })));
        assert_eq!(new(9000, 0.1), Ok(()));
        let none = ChuMq::new(Rate::from_mbps(1), 9000, &[], Reading::WithHead);
        assert_eq!(none.map(|_| ()), Err(AnalysisError::NoClasses));
    }

    prop_compose! {
        fn any_class()(
            packet_bytes in 20u32..9000, timer_ns in 0u64..2_000_000, load in 0.0f64..0.33
        ) -> Class {
            Class { packet_bytes, timer_ns, load }
        }
    }

    proptest! {
        #[test]
        fn shares_are_shares_and_bounds_are_ordered(
            classes in proptest::collection::vec(any_class(), 1..4), literal in any::<bool>()
        ) {
            let reading = if literal { Reading::Literal } else { Reading::WithHead };
            let model = ChuMq::new(Rate::from_mbps(10_000), 9000, &classes, reading).unwrap();
            for class in model.classes() {
                prop_assert!((0.0..=1.0).contains(&class.timer_share()));
                let late = class.late_share().unwrap();
                prop_assert!(0.0 <= late.lower && late.lower <= late.approximation);
                prop_assert!(late.approximation <= late.upper && late.upper <= 1.0);
                let total: f64 = (0..=class.packets_max()).map(|m| class.timer_chunk_mass(m)).sum();
                prop_assert!(total == 0.0 || (total - 1.0).abs() < 1e-9, "{}", total);
                let bytes = class.chunk_bytes_mean();
                prop_assert!((0.0..=9000.0 * (1.0 + 1e-9)).contains(&bytes), "{}", bytes);
            }
            if let Some(mean) = model.chunk_bytes_mean() {
                let sizes: Vec<f64> = model.classes().map(|c| c.chunk_bytes_mean()).collect();
                let (least, most) = (
                    sizes.iter().copied().fold(f64::INFINITY, f64::min),
                    sizes.iter().copied().fold(0.0, f64::max),
                );
                prop_assert!(least * (1.0 - 1e-9) <= mean && mean <= most * (1.0 + 1e-9));
            }
        }

        #[test]
        fn more_load_makes_fewer_timers_expire(class in any_class(), more in 1.0f64..3.0) {
            let share = |load| {
                let class = Class { load, ..class };
                let model = ChuMq::new(Rate::from_mbps(10_000), 9000, &[class], Reading::WithHead);
                model.unwrap().classes().next().unwrap().timer_share()
            };
            prop_assert!(share(class.load * more) <= share(class.load) + 1e-12);
        }
    }
}
