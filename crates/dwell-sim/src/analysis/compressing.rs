//! The largest share of packets that can be compressed.

/// The largest share of packets that a CPU can compress without making the link wait: one of C·B/S +
/// (1 − R).
///
/// While one packet is compressed, the link sends the others and the one compressed before. `compress_ns`
/// is C, the time to compress one packet; `transmission_ns` is S/B, the transmission of an
/// original; `ratio` is R, compressed / original. At most 1, also where the formula gives more:
/// where compressing takes less time than it saves.
///
/// Eq. (3) of Shimamura et al.; a bound for a queue that is never empty.
pub fn compressed_share_max(compress_ns: f64, transmission_ns: f64, ratio: f64) -> f64 {
    (1.0 / (compress_ns / transmission_ns + (1.0 - ratio))).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_papers_bounds() {
        // 200 µs to compress, 40 µs to send.
        assert!((compressed_share_max(200e3, 40e3, 0.70) - 0.189).abs() < 0.0005);
        assert!((compressed_share_max(200e3, 40e3, 0.95) - 0.198).abs() < 0.0005);
    }

    proptest! {
        #[test]
        fn is_a_share_that_falls_with_the_cost(
            compress_ns in 1.0f64..1e9, transmission_ns in 1.0f64..1e9, ratio in 0.0f64..1.0
        ) {
            let share = compressed_share_max(compress_ns, transmission_ns, ratio);
            prop_assert!((0.0..=1.0).contains(&share));
            prop_assert!(compressed_share_max(2.0 * compress_ns, transmission_ns, ratio) <= share);
        }
    }
}
