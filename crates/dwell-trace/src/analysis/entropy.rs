//! The randomness of the bytes of packets.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::frequencies::Frequencies;

/// Half a bit each: 0 to 0.5, ..., 7.5 to 8.
const BINS: usize = 16;

/// The shortest payloads that are measured: `n` bytes can't have more than log2(n) bits each, so
/// that short ones look orderly whatever they are.
pub const PAYLOAD_BYTES_MIN: usize = 256;

/// Entropy of order 0, in bits per byte: the limit of a code that knows the frequency of each byte
/// in the packet, and nothing of their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entropy {
    /// Packets by the entropy of their payload, in steps of half a bit; those with payloads of at
    /// least 256 bytes.
    pub packets: Vec<u64>,
    /// Bytes of their payloads.
    pub bytes: Vec<u64>,
    /// The frequency of each byte in the payloads of all packets.
    pub histogram: Vec<u64>,
}

impl Default for Entropy {
    fn default() -> Self {
        Self { packets: vec![0; BINS], bytes: vec![0; BINS], histogram: vec![0; 256] }
    }
}

impl Entropy {
    /// Records a payload, whose bytes `counts` has the frequencies of, if they were counted already.
    pub(super) fn record(&mut self, payload: &[u8], counts: Option<&Frequencies>) {
        if payload.len() < PAYLOAD_BYTES_MIN {
            // Most packets are short: there are more places than bytes.
            payload.iter().for_each(|&byte| self.histogram[usize::from(byte)] += 1);
            return;
        }
        let own;
        let counts = match counts {
            Some(counts) => counts,
            None => {
                own = Frequencies::of(payload);
                &own
            }
        };
        counts.add_to(&mut self.histogram);
        let bits = bits_of_packet(counts, payload.len());
        let bin = ((bits * 2.0) as usize).min(BINS - 1);
        self.packets[bin] += 1;
        self.bytes[bin] += payload.len() as u64;
    }

    /// Adds the sums of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        let pairs = [
            (&mut self.packets, &other.packets),
            (&mut self.bytes, &other.bytes),
            (&mut self.histogram, &other.histogram),
        ];
        for (sums, others) in pairs {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = sum.saturating_add(*other);
            }
        }
    }

    /// Returns true if all tables have their sizes, and the sum of each is at most `sum_max`.
    pub(super) fn is_sound(&self, sum_max: u64) -> bool {
        let tables = [(&self.packets, BINS), (&self.bytes, BINS), (&self.histogram, 256)];
        tables.iter().all(|(table, len)| {
            let sum = table.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
            table.len() == *len && sum.is_some_and(|sum| sum <= sum_max)
        })
    }

    /// Returns the entropy of all payloads together.
    pub fn of_all(&self) -> Option<f64> {
        let any = self.histogram.iter().any(|&count| count > 0);
        any.then(|| bits_per_byte(self.histogram.iter().copied()))
    }
}

fn bits_per_byte(counts: impl Iterator<Item = u64>) -> f64 {
    let (mut total, mut weighted) = (0.0, 0.0);
    for count in counts.filter(|&count| count > 0) {
        let count = count as f64;
        total += count;
        weighted += count * libm::log2(count);
    }
    if total == 0.0 { 0.0 } else { libm::log2(total) - weighted / total }
}

/// The table of weights has those of counts below this: of all bytes of a packet.
const TABLED: usize = 1 << 11;

/// Returns the entropy of one packet, whose bytes have these counts.
fn bits_of_packet(counts: &Frequencies, bytes: usize) -> f64 {
    /// n log2(n): to compute a logarithm for each count would take longer than to compress the packet.
    static WEIGHTS: LazyLock<Box<[f64; TABLED]>> = LazyLock::new(|| {
        let mut weights = Box::new([0.0; TABLED]);
        for (count, weight) in weights.iter_mut().enumerate().skip(1) {
            *weight = count as f64 * libm::log2(count as f64);
        }
        weights
    });
    let (Frequencies::Short(counts), true) = (counts, bytes < TABLED) else {
        return bits_per_byte(counts.iter());
    };
    let weights: &[f64; TABLED] = &WEIGHTS;
    // Four sums, since each addition waits for the one before.
    let mut sums = [0.0; 4];
    for counts in counts.chunks_exact(4) {
        for (sum, &count) in sums.iter_mut().zip(counts) {
            *sum += weights[count as usize % TABLED];
        }
    }
    let bytes = bytes as f64;
    libm::log2(bytes) - (sums[0] + sums[1] + sums[2] + sums[3]) / bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_entropy_of_its_counts() {
        let mut rng = dwell_base::Rng::from_seed(1);
        for bytes in [256usize, 700, 1500, 2047, 2048, 9000] {
            let spread = 1 + rng.below(255);
            let payload: Vec<u8> = (0..bytes).map(|_| rng.below(spread) as u8).collect();
            let counts = Frequencies::of(&payload);
            let whole = bits_per_byte(counts.iter());
            assert!((bits_of_packet(&counts, bytes) - whole).abs() < 1e-9, "{bytes}: {whole}");
        }
    }

    #[test]
    fn the_extremes() {
        let mut entropy = Entropy::default();
        entropy.record(&[7; 300], None);
        assert_eq!((entropy.packets[0], entropy.of_all()), (1, Some(0.0)));
        let mut entropy = Entropy::default();
        assert_eq!(entropy.of_all(), None);
        let all: Vec<u8> = (0..=255).collect();
        entropy.record(&all, Some(&Frequencies::of(&all)));
        entropy.record(b"short", None);
        assert_eq!((entropy.packets[15], entropy.bytes[15]), (1, 256));
        let mut half = Entropy::default();
        half.record(&[[1, 2], [1, 2]].concat(), None);
        assert_eq!(half.of_all(), Some(1.0));
    }
}
