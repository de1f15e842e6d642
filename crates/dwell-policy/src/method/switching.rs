//! All or nothing, with probes: simple switching (Pu and Singaravelu, section 3).

use crate::estimate::smoothed;
use crate::rate::LinkRate;

/// One block in this many is sent the other way as a probe: 5 %.
const PERIOD: u32 = 20;
/// Probes of the network come several in a row, as one block disappears in the transport's buffer
/// and shows nothing. If this many did not show a rate either, twice as many are sent next.
const PROBES_FIRST: u32 = 8;
const PROBES_MAX: u32 = 32;
/// The weight of a measurement in the estimate of the codec's speed.
const GAIN: f64 = 0.3;

/// The two modes and the estimates for choosing between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switching {
    compressing: bool,
    /// The blocks until the next probes.
    until_probes: u32,
    /// The probes that are still to be sent.
    probes: u32,
    probes_length: u32,
    /// The number of measurements of the link when the last probes began.
    measurements: u64,
    /// The codec's input rate, in bytes a second.
    codec_rate: Option<f64>,
}

impl Switching {
    pub(super) fn new() -> Self {
        Self {
            compressing: true,
            until_probes: PERIOD,
            probes: 0,
            // Doubled before it is first used.
            probes_length: PROBES_FIRST / 2,
            measurements: 0,
            codec_rate: None,
        }
    }

    pub(super) fn is_compressing(&self) -> bool {
        self.compressing
    }

    /// Returns true if the next block is compressed. Call it once for each.
    pub(super) fn admits(&mut self, link: &LinkRate) -> bool {
        self.reconsider(link);
        if self.probes > 0 {
            self.probes -= 1;
            return !self.compressing;
        }
        self.until_probes = self.until_probes.saturating_sub(1);
        if self.until_probes == 0 && !(self.compressing && self.network_bound(link)) {
            self.begin_probes(link);
        }
        self.compressing
    }

    /// Returns true if the link is full of compressed data; then there is nothing to probe.
    fn network_bound(&self, link: &LinkRate) -> bool {
        matches!((link.measured_rate(), self.codec_rate), (Some(b), Some(c)) if b < 0.2 * c)
    }

    fn begin_probes(&mut self, link: &LinkRate) {
        self.probes = 1;
        if self.compressing {
            let reported = link.measurements() > self.measurements;
            self.probes_length = match reported {
                true => PROBES_FIRST,
                false => (2 * self.probes_length).min(PROBES_MAX),
            };
            self.probes = self.probes_length;
        }
        self.measurements = link.measurements();
        self.until_probes = PERIOD * self.probes;
    }

    pub(super) fn compressed(&mut self, original_len: usize, took_ns: u64) {
        let rate = original_len as f64 * 1e9 / took_ns.max(1) as f64;
        self.codec_rate = Some(match self.codec_rate {
            Some(known) => smoothed(known, rate, GAIN),
            None => rate,
        });
    }

    /// Chooses the mode that carries more: raw data at the link's rate, or the codec's input rate.
    fn reconsider(&mut self, link: &LinkRate) {
        let (Some(link), Some(codec)) = (link.rate(), self.codec_rate) else { return };
        // With the same threshold on both sides it would change with every measurement.
        if self.compressing && link > 1.05 * codec {
            self.compressing = false;
        } else if !self.compressing && link < codec {
            self.compressing = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Instant;

    use super::*;

    /// A link that is believed to carry `rate` bytes a second.
    fn believed(rate: f64) -> LinkRate {
        let mut link = LinkRate::new(1_000);
        link.expect(Instant::ZERO, rate);
        link
    }

    /// A link of 2 MB/s, by `measurements` measurements.
    fn measured(measurements: u64) -> LinkRate {
        let mut link = LinkRate::new(200_000);
        for tick in 0..=measurements {
            let now = Instant::from_ns(10_000_000 * tick);
            link.wrote(now, 20_000);
            link.blocked(now);
        }
        assert_eq!(link.measurements(), measurements);
        link
    }

    /// Returns how many blocks in a row are compressed or not, of the next ones.
    fn runs(switching: &mut Switching, link: &LinkRate, blocks: usize) -> Vec<(bool, u32)> {
        let mut runs: Vec<(bool, u32)> = Vec::new();
        for _ in 0..blocks {
            let admitted = switching.admits(link);
            match runs.last_mut() {
                Some((last, count)) if *last == admitted => *count += 1,
                _ => runs.push((admitted, 1)),
            }
        }
        runs
    }

    #[test]
    fn probes_that_show_nothing_become_more_and_one_block_in_twenty_is_one() {
        let mut switching = Switching::new();
        let found = runs(&mut switching, &LinkRate::new(1_000), 1_876);
        let (compressed, raw) = (|count| (true, count), |count| (false, count));
        let expected = [
            [compressed(20), raw(8)],
            [compressed(160), raw(16)],
            [compressed(320), raw(32)],
            [compressed(640), raw(32)],
            [compressed(640), raw(8)],
        ];
        assert_eq!(found, expected.concat(), "no more than 32 in a row");
        // Once they have shown a rate, few do again.
        let mut switching = Switching::new();
        runs(&mut switching, &LinkRate::new(1_000), 20 + 8 + 160 + 16);
        let found = runs(&mut switching, &measured(3), 320 + 32 + 640 + 8 + 1);
        assert_eq!(found[..2], [compressed(320), raw(8)]);
        assert_eq!(found[3], raw(16), "nothing new since");
    }

    #[test]
    fn the_mode_changes_when_the_other_is_better_by_more_than_a_little() {
        let mut switching = Switching::new();
        switching.admits(&believed(1e9));
        assert!(switching.is_compressing(), "nobody knows what the codec can do");
        // A million bytes a second.
        switching.compressed(1_000, 1_000_000);
        for (rate, is_compressing) in [
            (1e6, true),
            (1.04e6, true),
            (1.05 * 1e6, true),
            (1.06e6, false),
            (1.01e6, false),
            (1e6, false),
            (0.99e6, true),
        ] {
            assert_eq!(switching.admits(&believed(rate)), is_compressing, "{rate}");
            assert_eq!(switching.is_compressing(), is_compressing, "{rate}");
        }
        // One block that takes twice as long counts for three tenths: 850 kB/s.
        switching.compressed(1_000, 2_000_000);
        assert!(switching.admits(&believed(0.88e6)) && !switching.admits(&believed(0.9e6)));
    }

    #[test]
    fn a_link_that_is_full_of_compressed_data_is_not_probed() {
        for (codec_rate, is_probed) in [(9_000, true), (11_000, false)] {
            let mut switching = Switching::new();
            switching.compressed(codec_rate, 1_000_000);
            // 2 MB/s are less than a fifth of 11 MB/s.
            let raw = runs(&mut switching, &measured(3), 100).iter().any(|run| !run.0);
            assert_eq!(raw, is_probed, "{codec_rate}");
        }
    }
}
