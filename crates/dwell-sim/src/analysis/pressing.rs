//! How many packets can be pressed at all.

/// The largest share of packets that a CPU can press without making the link wait: one of C·B/S +
/// (1 − R).
///
/// While one packet is pressed, the link sends the others and the one pressed before. `press_ns`
/// is C, the time to press one packet; `transmission_ns` is S/B, the transmission of an
/// original; `ratio` is R, compressed / original. At most 1, also where the formula gives more:
/// where pressing takes less time than it saves.
///
/// Eq. (3) of Shimamura et al.; a bound for a queue that is never empty.
pub fn pressed_share_max(press_ns: f64, transmission_ns: f64, ratio: f64) -> f64 {
    (1.0 / (press_ns / transmission_ns + (1.0 - ratio))).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_papers_bounds() {
        // 200 µs to press, 40 µs to send.
        assert!((pressed_share_max(200e3, 40e3, 0.70) - 0.189).abs() < 0.0005);
        assert!((pressed_share_max(200e3, 40e3, 0.95) - 0.198).abs() < 0.0005);
    }

    proptest! {
        #[test]
        fn is_a_share_that_falls_with_the_cost(
            press_ns in 1.0f64..1e9, transmission_ns in 1.0f64..1e9, ratio in 0.0f64..1.0
        ) {
            let share = pressed_share_max(press_ns, transmission_ns, ratio);
            prop_assert!((0.0..=1.0).contains(&share));
            prop_assert!(pressed_share_max(2.0 * press_ns, transmission_ns, ratio) <= share);
        }
    }
}
