//! Shaping with the kernel's token bucket filter.

use dwell_base::Rate;
use dwell_base::time::MILLI_NS;

use crate::link::QueueLimit;

/// A limit on the traffic that leaves through a device (`tc tbf`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The rate, counting Ethernet headers.
    pub rate: Rate,
    /// The bytes that may leave at once after a pause; `None` is 1 ms' worth, but at least two full
    /// frames.
    pub burst_bytes: Option<u64>,
    /// The length of the queue.
    pub queue: QueueLimit,
}

/// Two Ethernet frames of 1500 bytes and their headers.
const BURST_MIN_BYTES: u64 = 2 * 1514;

impl Shape {
    /// Makes a shape with this rate, a small burst and a queue of 100 ms.
    pub fn new(rate: Rate) -> Self {
        Self { rate, burst_bytes: None, queue: QueueLimit::default() }
    }

    /// Sets the queue.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueLimit) -> Self {
        self.queue = queue;
        self
    }

    /// Returns the burst that is used.
    pub fn burst_bytes(&self) -> u64 {
        let usual = self.rate.bytes_in_ns(MILLI_NS).max(BURST_MIN_BYTES);
        self.burst_bytes.unwrap_or(usual)
    }

    pub(super) fn tc_arguments(&self, device: &str) -> Vec<String> {
        // tbf counts the burst as part of the queue.
        let limit = self.queue.bytes(self.rate).saturating_add(self.burst_bytes());
        let limit = limit.min(u64::from(u32::MAX));
        format!(
            "qdisc replace dev {device} root tbf rate {}bit burst {} limit {limit}",
            self.rate.as_bps(),
            self.burst_bytes(),
        )
        .split(' ')
        .map(str::to_owned)
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_suits_the_rate() {
        assert_eq!(Shape::new(Rate::from_mbps(1)).burst_bytes(), 3028);
        assert_eq!(Shape::new(Rate::from_mbps(1000)).burst_bytes(), 125_000);
        let arguments = Shape::new(Rate::from_mbps(10)).tc_arguments("eth0").join(" ");
        let expected = "qdisc replace dev eth0 root tbf rate 10000000bit burst 3028 limit 128028";
        assert_eq!(arguments, expected);
    }
}
