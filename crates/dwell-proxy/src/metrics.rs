//! The counters of a proxy.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dwell_report::proxy::{ConnectionCounts, StreamCounts, StreamRx, StreamTx};
use dwell_stream::{ReceiverStats, SenderStats};

use crate::carrier::CarrierError;
use crate::message::Reason;

/// Reasons for which the other end has no words, as it was not reached.
const NO_CONNECTION: &str = "no_connection";
const WRONG_KEY: &str = "wrong_key";

/// A number that only grows, but for those that say how many there are now.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn subtract(&self, less: u64) {
        self.0.fetch_sub(less, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts something for as long as it lives.
#[derive(Debug)]
pub(crate) struct Present<'a>(&'a Counter);

impl<'a> Present<'a> {
    pub(crate) fn new(counter: &'a Counter) -> Self {
        counter.add(1);
        Self(counter)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.subtract(1);
    }
}

/// All counters of a process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) streams_open: Counter,
    pub(crate) streams_opened: Counter,
    pub(crate) contexts_held: Counter,
    pub(crate) finished: Counter,
    pub(crate) reset: Counter,
    pub(crate) idle: Counter,
    pub(crate) stalled: Counter,
    pub(crate) cut: Counter,
    pub(crate) damaged: Counter,
    pub(crate) client_errors: Counter,
    pub(crate) refused: [Counter; Reason::ALL.len()],
    no_connection: Counter,
    wrong_key: Counter,
    pub(crate) connections_open: Counter,
    pub(crate) connections_made: Counter,
    pub(crate) connections_reused: Counter,
    pub(crate) connections_failed: Counter,
    pub(crate) connections_retried: Counter,
    pub(crate) unknown_peers: Counter,
    pub(crate) wrong_keys: Counter,
    pub(crate) evicted: Counter,
    pub(crate) no_descriptors: Counter,
    tx: [Counter; 7],
    rx: [Counter; 4],
}

/// The numbers of a sender that are counted, in the order of `Metrics::tx`.
pub(crate) fn sender_numbers(stats: &SenderStats) -> [u64; 7] {
    [
        stats.accepted_bytes,
        stats.wire_bytes,
        stats.raw_blocks,
        stats.compressed_blocks,
        stats.compressed_original_bytes,
        stats.compressed_bytes,
        stats.compress_ns,
    ]
}

/// The numbers of a receiver that are counted, in the order of `Metrics::rx`.
pub(crate) fn receiver_numbers(stats: &ReceiverStats) -> [u64; 4] {
    [stats.data_bytes, stats.wire_bytes, stats.raw_blocks, stats.compressed_blocks]
}

impl Metrics {
    pub(crate) fn refused(&self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|known| *known == reason) {
            self.refused[at].add(1);
        }
    }

    /// Counts a stream for which there was no connection, and returns the name of the reason.
    pub(crate) fn unconnected(&self, error: &CarrierError) -> &'static str {
        let (counter, name) = match error {
            CarrierError::OtherKey => (&self.wrong_key, WRONG_KEY),
            _ => (&self.no_connection, NO_CONNECTION),
        };
        counter.add(1);
        name
    }

    /// Counts an attempt to connect that failed.
    pub(crate) fn failed(&self, error: &CarrierError) {
        self.connections_failed.add(1);
        self.wrong_keys.add(u64::from(matches!(error, CarrierError::OtherKey)));
    }

    /// Counts a connection that was rejected.
    pub(crate) fn rejected(&self, error: &CarrierError) {
        self.unknown_peers.add(1);
        self.wrong_keys.add(u64::from(matches!(error, CarrierError::OtherKey)));
    }

    /// Counts the work of a sender since `before`, which is brought up to date.
    pub(crate) fn sent(&self, stats: &SenderStats, before: &mut [u64; 7]) {
        advance(&self.tx, sender_numbers(stats), before);
    }

    /// Counts the work of a receiver since `before`, which is brought up to date.
    pub(crate) fn received(&self, stats: &ReceiverStats, before: &mut [u64; 4]) {
        advance(&self.rx, receiver_numbers(stats), before);
    }

    pub(crate) fn streams(&self, max: usize) -> StreamCounts {
        let unconnected = [(NO_CONNECTION, &self.no_connection), (WRONG_KEY, &self.wrong_key)];
        let refused: BTreeMap<String, u64> = Reason::ALL
            .iter()
            .map(|reason| reason.name())
            .zip(&self.refused)
            .chain(unconnected)
            .map(|(name, count)| (name.to_owned(), count.get()))
            .collect();
        StreamCounts {
            max: max as u64,
            open: self.streams_open.get(),
            opened: self.streams_opened.get(),
            contexts: self.contexts_held.get(),
            finished: self.finished.get(),
            reset: self.reset.get(),
            idle: self.idle.get(),
            stalled: self.stalled.get(),
            cut: self.cut.get(),
            damaged: self.damaged.get(),
            client_errors: self.client_errors.get(),
            refused,
        }
    }

    pub(crate) fn connections(&self, warm: usize) -> ConnectionCounts {
        ConnectionCounts {
            open: self.connections_open.get(),
            warm: warm as u64,
            made: self.connections_made.get(),
            reused: self.connections_reused.get(),
            failed: self.connections_failed.get(),
            retried: self.connections_retried.get(),
            unknown_peers: self.unknown_peers.get(),
            wrong_keys: self.wrong_keys.get(),
            handshakes: 0,
            evicted: self.evicted.get(),
            no_descriptors: self.no_descriptors.get(),
        }
    }

    pub(crate) fn tx(&self) -> StreamTx {
        let [
            bytes,
            link_bytes,
            raw_blocks,
            compressed_blocks,
            compressed_bytes,
            compressed_to_bytes,
            compress_ns,
        ] = self.tx.each_ref().map(Counter::get);
        StreamTx {
            bytes,
            link_bytes,
            raw_blocks,
            compressed_blocks,
            compressed_bytes,
            compressed_to_bytes,
            compress_ns,
        }
    }

    pub(crate) fn rx(&self) -> StreamRx {
        let [bytes, link_bytes, raw_blocks, compressed_blocks] =
            self.rx.each_ref().map(Counter::get);
        StreamRx { bytes, link_bytes, raw_blocks, compressed_blocks }
    }
}

fn advance<const N: usize>(counters: &[Counter; N], now: [u64; N], before: &mut [u64; N]) {
    for ((counter, now), before) in counters.iter().zip(now).zip(before) {
        if now > *before {
            counter.add(now - *before);
            *before = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_between_ends_with_different_keys_is_counted_apart() {
        let metrics = Metrics::default();
        assert_eq!(metrics.unconnected(&CarrierError::OtherKey), "wrong_key");
        for error in [CarrierError::Closed, CarrierError::Expired] {
            assert_eq!(metrics.unconnected(&error), "no_connection");
            metrics.failed(&error);
        }
        metrics.failed(&CarrierError::OtherKey);
        metrics.rejected(&CarrierError::OtherKey);
        metrics.rejected(&CarrierError::Evicted);
        let (streams, connections) = (metrics.streams(1), metrics.connections(0));
        assert_eq!((streams.refused["wrong_key"], streams.refused["no_connection"]), (1, 2));
        assert_eq!(streams.refused["full"], 0);
        assert_eq!((connections.failed, connections.unknown_peers), (3, 2));
        assert_eq!(connections.wrong_keys, 2);
    }
}
