//! The rule that decides whether a packet has time to be compressed.

use dwell_base::Rate;

use crate::estimate::{Estimate, RATIO_ONE_PPM, Ratio};

/// Eq. (2) of Shimamura et al.: compressing pays if W > C − (1 − R)·S/B.
///
/// W is the time that the `backlog_bytes` ahead in the relay queue take on the link of rate
/// B (the packet on the wire does not count), C and R the estimated time and ratio for this
/// packet of S = `packet_bytes`.
///
/// The arithmetic is exact. Equality does not suffice: ties occur whenever C·B/S is a whole
/// number, and the strict reading fits the paper's Table 3 far better.
pub fn waiting_time_suffices(
    backlog_bytes: u64,
    packet_bytes: u32,
    estimate: Estimate,
    rate: Rate,
) -> bool {
    if estimate.ratio.ppm() > RATIO_ONE_PPM {
        return false; // Eq. (2) holds for R ≤ 1 only
    }
    let saved_ppm = RATIO_ONE_PPM - estimate.ratio.ppm();
    // Both sides of W + (1 − R)·S/B > C, times B · 10^9 ns/s; bytes in millionths.
    let saved = u64::from(packet_bytes) * u64::from(saved_ppm);
    let gained = u128::from(backlog_bytes) * u128::from(RATIO_ONE_PPM) + u128::from(saved);
    let gain = gained * (8_000_000_000 / u128::from(RATIO_ONE_PPM));
    let cost = u128::from(estimate.cost_ns) * u128::from(rate.as_bps());
    gain > cost
}

/// How much sooner a packet is there that costs no time to compress: W + (1 − R)·S/B, in nanoseconds, as in
/// [`waiting_time_suffices`]; zero if it does not shrink.
pub(crate) fn gained_ns(backlog_bytes: u64, packet_bytes: u32, ratio: Ratio, rate: Rate) -> u64 {
    let Some(saved_ppm) = RATIO_ONE_PPM.checked_sub(ratio.ppm()) else { return 0 };
    let saved = u64::from(packet_bytes) * u64::from(saved_ppm) / u64::from(RATIO_ONE_PPM);
    rate.transmission_ns(backlog_bytes.saturating_add(saved))
}

/// The fewest bytes of backlog with which [`waiting_time_suffices`]; `None` if no backlog does.
pub(crate) fn backlog_needed_bytes(
    packet_bytes: u32,
    estimate: Estimate,
    rate: Rate,
) -> Option<u64> {
    let saved_ppm = RATIO_ONE_PPM.checked_sub(estimate.ratio.ppm())?;
    let saved = u64::from(packet_bytes) * u64::from(saved_ppm);
    let gain = u128::from(saved) * (8_000_000_000 / u128::from(RATIO_ONE_PPM));
    let cost = u128::from(estimate.cost_ns) * u128::from(rate.as_bps());
    match cost.checked_sub(gain) {
        Some(missing) => u64::try_from(missing / 8_000_000_000 + 1).ok(),
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn suffices(backlog: u64, ratio_ppm: u32, cost_ns: u64) -> bool {
        let estimate = Estimate { ratio: Ratio::from_ppm(ratio_ppm), cost_ns };
        waiting_time_suffices(backlog, 500, estimate, Rate::from_mbps(100))
    }

    // Table 2's link: a packet of 500 bytes takes 40 µs, and C = 10 of those.
    #[test]
    fn a_tie_does_not_suffice() {
        let c = 400_000;
        // R = 1: W must exceed C = 10 packets.
        assert!(!suffices(5_000, 1_000_000, c));
        assert!(suffices(5_001, 1_000_000, c));
        // R = 0.5: half a packet less is enough.
        assert!(!suffices(4_750, 500_000, c));
        assert!(suffices(4_751, 500_000, c));
    }

    #[test]
    fn a_link_slower_than_the_compress_always_gains() {
        // C is 4 µs and compressing saves 12 µs of transmission: even an empty queue will do.
        assert!(suffices(0, 700_000, 4_000));
        assert!(!suffices(0, 700_000, 12_000));
    }

    #[test]
    fn an_expanding_class_is_never_compressed() {
        assert!(!suffices(u64::MAX >> 1, 1_000_001, 0));
    }
    proptest! {
        #[test]
        fn what_is_needed_is_the_least_that_suffices(
            bytes in 0u32..70_000,
            ratio_ppm in 0u32..1_100_000,
            cost_ns in prop_oneof![0u64..1_000_000, any::<u64>()],
            bps in 1u64..=dwell_base::rate::RATE_MAX_BPS,
        ) {
            let rate = Rate::clamped_bps(bps);
            let estimate = Estimate { ratio: Ratio::from_ppm(ratio_ppm), cost_ns };
            let suffices = |backlog| waiting_time_suffices(backlog, bytes, estimate, rate);
            match backlog_needed_bytes(bytes, estimate, rate) {
                Some(0) => prop_assert!(suffices(0)),
                Some(needed) => prop_assert!(suffices(needed) && !suffices(needed - 1)),
                None => prop_assert!(!suffices(u64::MAX)),
            }
        }

        #[test]
        fn what_is_gained_is_the_most_that_compressing_may_take(
            backlog in 0u64..1 << 30,
            bytes in 1u32..100_000,
            ratio_ppm in 0u32..=RATIO_ONE_PPM,
            bps in 1_000u64..=dwell_base::rate::RATE_MAX_BPS,
        ) {
            let (rate, ratio) = (Rate::clamped_bps(bps), Ratio::from_ppm(ratio_ppm));
            let suffices = |cost_ns| {
                waiting_time_suffices(backlog, bytes, Estimate { ratio, cost_ns }, rate)
            };
            let gained_ns = gained_ns(backlog, bytes, ratio, rate);
            // But for a byte, and a nanosecond.
            prop_assert!(gained_ns <= 1 || suffices(gained_ns - 2));
            prop_assert!(!suffices(gained_ns + rate.transmission_ns(1) + 2));
        }
    }
}
