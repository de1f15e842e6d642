//! What happens at a link, by time.

use crate::outcome::LinkBin;

/// The time line of a link; of no bins, if nobody wants one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    bin_ns: Option<u64>,
    bins: Vec<LinkBin>,
}

impl Timeline {
    pub(crate) fn new(bin_ns: Option<u64>) -> Self {
        Self { bin_ns, bins: Vec::new() }
    }

    /// Notes that so many packets waited from one time to another.
    #[inline]
    pub(crate) fn waited(&mut self, from_ns: u64, to_ns: u64, packets: u64) {
        if let Some(bin_ns) = self.bin_ns
            && packets > 0
        {
            self.spread(bin_ns, (from_ns, to_ns), packets);
        }
    }

    fn spread(&mut self, bin_ns: u64, (mut from_ns, to_ns): (u64, u64), packets: u64) {
        while from_ns < to_ns {
            let end_ns = ((from_ns / bin_ns + 1) * bin_ns).min(to_ns);
            self.bin(bin_ns, from_ns).waiting_area += packets * (end_ns - from_ns);
            from_ns = end_ns;
        }
    }

    /// Notes a frame whose transmission begins.
    #[inline]
    pub(crate) fn sent(&mut self, now_ns: u64, bytes: u64) {
        if let Some(bin_ns) = self.bin_ns {
            self.bin(bin_ns, now_ns).sent_bytes += bytes;
        }
    }

    /// Notes packets that the queue drops.
    #[inline]
    pub(crate) fn dropped(&mut self, now_ns: u64, packets: u64) {
        if let Some(bin_ns) = self.bin_ns {
            self.bin(bin_ns, now_ns).dropped += packets;
        }
    }

    pub(crate) fn into_bins(self) -> Vec<LinkBin> {
        self.bins
    }

    fn bin(&mut self, bin_ns: u64, at_ns: u64) -> &mut LinkBin {
        let at = (at_ns / bin_ns) as usize;
        if self.bins.len() <= at {
            self.bins.resize(at + 1, LinkBin::default());
        }
        &mut self.bins[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_spread_over_the_bins_that_it_lasts() {
        let mut line = Timeline::new(Some(10));
        line.waited(5, 27, 2);
        line.waited(27, 27, 9);
        line.sent(9, 100);
        line.dropped(20, 3);
        let bins = line.into_bins();
        let areas: Vec<u64> = bins.iter().map(|bin| bin.waiting_area).collect();
        assert_eq!(areas, [10, 20, 14]);
        assert_eq!((bins[0].sent_bytes, bins[2].dropped), (100, 3));
    }

    #[test]
    fn without_a_width_there_is_none() {
        let mut line = Timeline::new(None);
        line.waited(0, 5, 1);
        line.sent(1, 1);
        assert!(line.into_bins().is_empty());
    }
}
