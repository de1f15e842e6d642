//! The attribute value α of section 4.3, by which ChuTQ chooses among the heads of its queues.
//!
//! With the residual waiting time r = deadline − now and the packet's size S:
//! * DCF (delay constraint first): α = 1 / r,
//! * TPF (throughput performance first): α = S / r, over the size of the largest frame,
//! * CEF (chunking efficiency first): α = 1 / (r·S).
//!
//! α is taken with its sign, as a reader of the formula would: an overdue packet (r ≤ 0) ranks
//! below every packet that is not, and among overdue ones the one whose α is nearest to zero
//! comes first: under DCF the most overdue. The comparison is exact.

use std::cmp::Ordering;

use dwell_base::Instant;

use crate::scheme::PullPolicy;

/// The accounts that α is computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alpha {
    overdue: bool,
    /// |r| in nanoseconds.
    residual_ns: u64,
    bytes: u32,
}

impl Alpha {
    /// Of a packet of this size at `now`. No residual is taken for less than `clamp_ns`; zero
    /// leaves it as it is.
    pub(super) fn new(now: Instant, deadline: Instant, bytes: u32, clamp_ns: u64) -> Self {
        let left_ns = deadline.since_ns(now).max(clamp_ns);
        if left_ns > 0 {
            Self { overdue: false, residual_ns: left_ns, bytes }
        } else {
            Self { overdue: true, residual_ns: now.since_ns(deadline), bytes }
        }
    }

    /// True if this α is larger than the other.
    pub(super) fn is_above(&self, other: &Self, policy: PullPolicy) -> bool {
        match (self.overdue, other.overdue) {
            (false, true) => true,
            (true, false) => false,
            (false, false) => self.inverse_order(other, policy) == Ordering::Less,
            (true, true) => self.inverse_order(other, policy) == Ordering::Greater,
        }
    }

    /// Compares 1 / |α| with that of the other, by multiplying crosswise.
    fn inverse_order(&self, other: &Self, policy: PullPolicy) -> Ordering {
        let times = |alpha: &Self, bytes| u128::from(alpha.residual_ns) * u128::from(bytes);
        match policy {
            PullPolicy::Dcf => self.residual_ns.cmp(&other.residual_ns),
            PullPolicy::Tpf => times(self, other.bytes).cmp(&times(other, self.bytes)),
            PullPolicy::Cef => times(self, self.bytes).cmp(&times(other, other.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_ns(1_000_000);

    fn alpha(left_ns: i64, bytes: u32) -> Alpha {
        let deadline = Instant::from_ns(NOW.as_ns().saturating_add_signed(left_ns));
        Alpha::new(NOW, deadline, bytes, 0)
    }

    fn above(a: (i64, u32), b: (i64, u32), policy: PullPolicy) -> bool {
        alpha(a.0, a.1).is_above(&alpha(b.0, b.1), policy)
    }

    #[test]
    fn each_policy_prefers_what_it_is_named_for() {
        use PullPolicy::{Cef, Dcf, Tpf};
        // The urgent one whatever the size.
        assert!(above((100, 40), (101, 1500), Dcf) && above((100, 1500), (101, 40), Dcf));
        // 1500 / 200 µs against 200 / 26.6 and 26.7 µs.
        assert!(above((26_600, 200), (200_000, 1500), Tpf));
        assert!(!above((26_700, 200), (200_000, 1500), Tpf));
        // 50 µs × 200 against 200 µs × 40 and so on.
        assert!(above((200_000, 40), (50_000, 200), Cef));
        assert!(!above((250_000, 40), (50_000, 200), Cef), "a tie");
        assert!(!above((50_000, 200), (250_000, 40), Cef), "a tie");
    }

    #[test]
    fn overdue_packets_come_last_and_among_them_alpha_keeps_its_sign() {
        use PullPolicy::{Dcf, Tpf};
        for policy in [Dcf, Tpf, PullPolicy::Cef] {
            assert!(above((1_000_000_000, 40), (-5, 40), policy));
            assert!(above((1_000_000_000, 40), (0, 40), policy), "r = 0 is overdue");
            assert!(above((-10, 40), (-5, 40), policy), "the most overdue first");
            assert!(above((-5, 40), (0, 40), policy), "1 / −0");
            assert!(!above((0, 40), (0, 40), policy));
        }
        // −1500 / 10 is below −40 / 5.
        assert!(above((-5, 40), (-10, 1500), Tpf));
    }

    #[test]
    fn a_clamp_makes_the_urgent_and_the_overdue_equal() {
        let clamped = |left_ns: i64| {
            let deadline = Instant::from_ns(NOW.as_ns().saturating_add_signed(left_ns));
            Alpha::new(NOW, deadline, 40, 10_000)
        };
        assert!(!clamped(-500).is_above(&clamped(9_999), PullPolicy::Dcf));
        assert!(!clamped(9_999).is_above(&clamped(-500), PullPolicy::Dcf));
        assert!(clamped(-500).is_above(&clamped(10_001), PullPolicy::Dcf));
    }

    #[test]
    fn the_comparison_is_exact_at_the_extremes() {
        let far = |bytes| Alpha::new(Instant::ZERO, Instant::FAR_FUTURE, bytes, 0);
        assert!(far(u32::MAX).is_above(&far(u32::MAX - 1), PullPolicy::Tpf));
        assert!(far(u32::MAX - 1).is_above(&far(u32::MAX), PullPolicy::Cef));
    }
}
