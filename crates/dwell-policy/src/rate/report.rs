//! What a transport says of its link.

/// Nothing is compressed for a link of this rate, in bytes a second.
const RAW_RATE: f64 = 1e12;

/// The state of a link as its transport sees it: TCP does, on Linux, by `TCP_INFO`. Zero is what is not
/// known.
///
/// ```
/// use dwell_policy::rate::LinkReport;
///
/// // A connection that was just made: ten segments may go in a round trip of 20 ms.
/// let new = LinkReport { window_rate: 14_480.0 / 0.02, ..LinkReport::default() };
/// assert_eq!(new.rate(), Some(724_000.0));
/// // Short answers show the least that the link carries.
/// let short = LinkReport { delivered_rate: 50_000.0, is_least: true, ..new };
/// assert_eq!(short.rate(), Some(724_000.0));
/// // Other streams have seen more of it.
/// let known = LinkReport { path_rate: 625_000.0, ..short };
/// assert_eq!(known.rate(), Some(625_000.0));
/// // And one that was sent at once, how long the link took for it.
/// let train = LinkReport { train_rate: 500_000.0, ..short };
/// assert_eq!(train.rate(), Some(500_000.0));
/// // If none of them had to wait, a window in each round trip is less than the link carries.
/// let fast = LinkReport { train_least: 5e7, ..short };
/// assert_eq!(fast.rate(), Some(5e7));
/// // A long one shows what it carries.
/// let long = LinkReport { delivered_rate: 600_000.0, is_least: false, ..known };
/// assert_eq!(long.rate(), Some(600_000.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkReport {
    /// The rate at which the other end has received lately, in bytes a second.
    pub delivered_rate: f64,
    /// True if that is only the least, as the application had nothing more to send.
    pub is_least: bool,
    /// The rate at which the transport may send now, in bytes a second: its window in each round trip.
    pub window_rate: f64,
    /// The rate that other streams over the same path have found, in bytes a second.
    pub path_rate: f64,
    /// The rate at which the link took what was sent to it at once, in bytes a second ([`Trains`](super::Trains)).
    pub train_rate: f64,
    /// The least that the link carries if what was sent to it at once never made it wait, in bytes a second
    /// ([`Trains`](super::Trains)).
    pub train_least: f64,
    /// The rate that a message with nothing behind it had better expect, in bytes a second, as long as nothing better is known
    /// ([`Arms`](super::Arms)).
    pub prudent_rate: f64,
    /// True if such messages are there as soon as they are as compressed ([`Arms`](super::Arms)).
    pub goes_raw: bool,
    /// The bytes of a full segment; zero if that is not known.
    pub segment_bytes: u64,
    /// How often the other end has confirmed something without sending anything itself, since the connection was made.
    pub confirmations: u64,
    /// The shortest round trip, in nanoseconds.
    pub round_trip_ns: u64,
    /// How much longer than that a round trip was lately, smoothed, in nanoseconds.
    pub queue_ns: u64,
    /// How long the transport has waited for the other end to take something since the connection was made, in nanoseconds.
    pub receiver_wait_ns: u64,
    /// How long the transport has had something to send, or on its way, since the connection was made, in nanoseconds.
    pub busy_ns: u64,
    /// The bytes that the transport holds, and those that are on their way.
    pub pending_bytes: u64,
}

impl LinkReport {
    /// Returns the rate of the link for what comes next, in bytes a second, if anything is known of it.
    ///
    /// As long as only short messages were sent, nobody knows more than the least that the link
    /// carries; then it is taken to carry what the window allows, or what messages that it let pass at once show to be
    /// less than it can, but not more than others have found. How long
    /// messages of some packets took counts for more than the least: that may be a single packet's which a
    /// shaper had let pass at once.
    pub fn rate(&self) -> Option<f64> {
        let known = |rate: f64| rate.is_finite() && rate > 0.0;
        let delivered = Some(self.delivered_rate).filter(|&rate| known(rate));
        if delivered.is_some() && !self.is_least {
            return delivered;
        }
        let window = self.window_rate.max(self.train_least);
        let others = [window, self.path_rate].into_iter().filter(|&rate| known(rate));
        let most = others.reduce(f64::min);
        let guess = match (delivered, most) {
            (Some(least), Some(most)) => Some(least.max(most)),
            (least, most) => least.or(most),
        };
        guess.map(|guess| if known(self.train_rate) { guess.min(self.train_rate) } else { guess })
    }

    /// Returns true if that is no more than what the window allows, or the least.
    pub(super) fn is_guess(&self) -> bool {
        self.is_least || !self.delivered_rate.is_finite() || self.delivered_rate <= 0.0
    }

    /// Returns the same for a message with nothing behind it: as long as nobody knows what the link carries, it is the prudent
    /// rate, not the window.
    pub fn alone_rate(&self) -> Option<f64> {
        if self.goes_raw {
            return Some(RAW_RATE);
        }
        let prudent = Some(self.prudent_rate).filter(|&rate| rate > 0.0);
        match (self.rate(), prudent) {
            (Some(rate), Some(prudent)) => Some(rate.min(prudent)),
            (rate, prudent) => rate.or(prudent),
        }
    }

    /// Returns the bytes that wait for the link, if it carries this many a second: those that are
    /// pending but for those that are on their way.
    pub(super) fn waiting_bytes(&self, rate: f64) -> f64 {
        (self.pending_bytes as f64 - rate * self.round_trip_ns as f64 / 1e9).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_of_a_link_of_which_nothing_was_said() {
        assert_eq!(LinkReport::default().rate(), None);
        let odd = LinkReport { delivered_rate: f64::NAN, window_rate: -1.0, ..Default::default() };
        assert_eq!(odd.rate(), None);
        let path = LinkReport { path_rate: 5.0, ..odd };
        assert_eq!(path.rate(), Some(5.0));
    }

    #[test]
    fn a_packet_that_a_shaper_let_pass_is_not_the_links_rate() {
        let burst = LinkReport {
            delivered_rate: 2.6e8,
            is_least: true,
            window_rate: 7e7,
            ..Default::default()
        };
        assert_eq!(burst.rate(), Some(2.6e8));
        assert_eq!(LinkReport { train_rate: 6e5, ..burst }.rate(), Some(6e5));
        // What others have found may be their part of it.
        assert_eq!(LinkReport { path_rate: 6e5, ..burst }.rate(), Some(2.6e8));
        // What the link carried of a long message is no guess.
        let long = LinkReport { is_least: false, train_rate: 6e5, path_rate: 1e6, ..burst };
        assert_eq!(long.rate(), Some(2.6e8));
    }

    #[test]
    fn what_is_alone_expects_no_more_than_is_prudent_unless_it_is_known_better() {
        let alone = |report: LinkReport| report.alone_rate();
        let window = LinkReport { window_rate: 7e7, ..LinkReport::default() };
        assert_eq!(alone(LinkReport::default()), None);
        assert_eq!(alone(window), Some(7e7));
        let prudent = LinkReport { prudent_rate: 2e6, ..window };
        assert_eq!((alone(prudent), prudent.rate()), (Some(2e6), Some(7e7)));
        assert_eq!(alone(LinkReport { window_rate: 5e5, ..prudent }), Some(5e5));
        assert_eq!(alone(LinkReport { window_rate: 0.0, ..prudent }), Some(2e6));
        assert_eq!(alone(LinkReport { goes_raw: true, ..prudent }), Some(RAW_RATE));
    }

    #[test]
    fn what_is_on_its_way_does_not_wait() {
        let report = LinkReport {
            round_trip_ns: 20_000_000,
            pending_bytes: 50_000,
            ..LinkReport::default()
        };
        assert_eq!(report.waiting_bytes(1e6), 30_000.0);
        assert_eq!(report.waiting_bytes(1e7), 0.0);
    }
}
