//! Datagrams that wait for one peer's socket.
//!
//! Datagrams of equal size are collected into runs that the kernel cuts up again (UDP GSO):
//! one system call for many. What the kernel refuses stays here, in order.

use std::collections::VecDeque;
use std::io;

use crate::io::udp::{SEGMENTS_MAX, SendOutcome, UdpPort};

/// Room for one datagram of any length.
const DATAGRAM_ROOM: usize = 65_535;
/// Room for what comes together while the link refuses.
const CAPACITY: usize = 4 * DATAGRAM_ROOM;
/// UDP can't carry more in one call.
const RUN_BYTES_MAX: usize = 65_000;

#[derive(Clone, Copy, Debug)]
struct Run {
    start: usize,
    len: usize,
    /// The size of every datagram but the last, which may be shorter.
    segment: usize,
    /// No more datagrams fit behind: the last was shorter, or there are enough.
    closed: bool,
}

/// The result of a flush.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    /// The kernel refuses more for now.
    pub(crate) blocked: bool,
    /// Datagrams that nobody will get: refused by the network.
    pub(crate) refused: u64,
    /// The system's error for the last of these.
    pub(crate) error: Option<io::Error>,
    /// Datagrams that were too long for the path, and the MTU that it has.
    pub(crate) too_big: u64,
    /// The path's MTU, if it proved to be smaller than believed.
    pub(crate) mtu: Option<usize>,
}

/// The datagrams that wait for one socket.
#[derive(Debug)]
pub(crate) struct Outbox {
    buffer: Box<[u8]>,
    used: usize,
    runs: VecDeque<Run>,
    /// Datagrams thrown away because too many came together while the link refused.
    pub(crate) overrun: u64,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; CAPACITY].into_boxed_slice(),
            used: 0,
            runs: VecDeque::with_capacity(64),
            overrun: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// Datagrams that wait.
    pub(crate) fn datagrams(&self) -> u64 {
        self.runs.iter().map(|run| run.len.div_ceil(run.segment) as u64).sum()
    }

    /// Room for the next datagram.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.used + DATAGRAM_ROOM > self.buffer.len() {
            self.overrun += self.datagrams();
            self.clear();
        }
        &mut self.buffer[self.used..self.used + DATAGRAM_ROOM]
    }

    /// Takes the first `len` bytes of [`Outbox::room`] as a datagram.
    pub(crate) fn commit(&mut self, len: usize) {
        let start = self.used;
        self.used += len;
        match self.runs.back_mut() {
            Some(run) if !run.closed && len <= run.segment && run.len + len <= RUN_BYTES_MAX => {
                run.len += len;
                run.closed = len < run.segment || run.len >= run.segment * SEGMENTS_MAX;
            }
            _ => self.runs.push_back(Run { start, len, segment: len, closed: false }),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.used = 0;
    }

    /// Gives the kernel what it takes.
    pub(crate) fn flush(&mut self, socket: &UdpPort) -> std::io::Result<Flushed> {
        let mut flushed = Flushed::default();
        while let Some(run) = self.runs.front_mut() {
            let datagrams = |bytes: usize| bytes.div_ceil(run.segment) as u64;
            let segment = (run.len > run.segment).then_some(run.segment);
            match socket.send(&self.buffer[run.start..run.start + run.len], segment) {
                SendOutcome::Sent => {}
                SendOutcome::WouldBlock { accepted } => {
                    run.start += accepted;
                    run.len -= accepted;
                    flushed.blocked = true;
                    return Ok(flushed);
                }
                SendOutcome::TooBig { accepted, mtu } => {
                    flushed.too_big += datagrams(run.len - accepted);
                    flushed.mtu = mtu.or(flushed.mtu);
                }
                SendOutcome::Refused(error) => {
                    flushed.refused += datagrams(run.len);
                    flushed.error = Some(error);
                }
                SendOutcome::Fatal(error) => return Err(error),
            }
            self.runs.pop_front();
        }
        self.used = 0;
        Ok(flushed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::io::udp::RecvBatch;

    fn put(outbox: &mut Outbox, fill: u8, len: usize) {
        outbox.room()[..len].fill(fill);
        outbox.commit(len);
    }

    #[test]
    fn equal_datagrams_share_a_run_and_arrive_apart_and_in_order() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let to = UdpPort::bind(any, None, None).unwrap();
        let from = UdpPort::connect(any, to.local_addr().unwrap(), None, None).unwrap();
        let mut outbox = Outbox::new();
        let lens = [1200, 1200, 1200, 800, 1200, 1300, 40, 1300, 1300];
        for (at, &len) in lens.iter().enumerate() {
            put(&mut outbox, at as u8, len);
        }
        assert_eq!(outbox.runs.len(), 4);
        let flushed = outbox.flush(&from).unwrap();
        assert!(!flushed.blocked && flushed.refused + flushed.too_big == 0, "{flushed:?}");
        assert!(outbox.is_empty());
        let mut batch = RecvBatch::new(4);
        let mut got = Vec::new();
        while got.len() < lens.len() {
            to.recv(&mut batch).unwrap();
            got.extend(batch.datagrams().map(|it| (it.bytes[0], it.bytes.len())));
        }
        let expected: Vec<_> = lens.iter().enumerate().map(|(at, &len)| (at as u8, len)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn what_comes_together_is_bounded() {
        let mut outbox = Outbox::new();
        for at in 0..1000 {
            put(&mut outbox, 0, 1000 + at);
        }
        assert!(outbox.overrun > 0);
        assert!(outbox.bytes() <= CAPACITY);
    }
}
