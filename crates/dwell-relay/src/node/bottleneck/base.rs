//! The least delay of late.

use dwell_base::Instant;

/// In buckets of this time each: the least of the last two to three of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Base<const SPAN_NS: u64> {
    buckets: [Option<(Instant, i64)>; 3],
}

impl<const SPAN_NS: u64> Base<SPAN_NS> {
    pub(super) fn add(&mut self, now: Instant, delay_ns: i64) {
        let [.., newest] = &mut self.buckets;
        match newest {
            Some((since, least)) if now.since_ns(*since) < SPAN_NS => {
                *least = delay_ns.min(*least);
            }
            _ => {
                self.buckets.rotate_left(1);
                self.buckets[2] = Some((now, delay_ns));
            }
        }
        for bucket in &mut self.buckets {
            *bucket = bucket.filter(|(since, _)| now.since_ns(*since) < 3 * SPAN_NS);
        }
    }

    pub(super) fn least(&self) -> Option<i64> {
        self.buckets.iter().flatten().map(|&(_, least)| least).min()
    }
}
