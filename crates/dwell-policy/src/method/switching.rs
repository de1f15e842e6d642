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
