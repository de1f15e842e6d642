//! The packets of several captures in the order of their times.

use std::io::Read;

use super::input::Input;
use crate::capture::{Capture, Trouble};
use crate::datagram::Datagram;

/// The most captures that are read at once.
pub const CAPTURES_MAX: usize = 256;

/// Reads captures side by side: parts of one recording, one behind the other, or recordings of
/// the same time at several places.
pub struct Merge<R: Read> {
    captures: Vec<Source<R>>,
    /// The capture whose packet was handed out, and the packet's time.
    handed_out: Option<(usize, u64)>,
    not_ip: u64,
    frames: u64,
}

struct Source<R: Read> {
    capture: Capture<R>,
    /// The next packet, if there is one.
    next: Option<Next>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Next {
    at_ns: u64,
    wire_len: u32,
}

impl<R: Read> Merge<R> {
    /// Begins to read them all; those beyond [`CAPTURES_MAX`] are left out.
    pub fn new(captures: impl IntoIterator<Item = Capture<R>>) -> Self {
        let source = |capture| Source { capture, next: None, bytes: Vec::new() };
        let mut merge = Self {
            captures: captures.into_iter().take(CAPTURES_MAX).map(source).collect(),
            handed_out: None,
            not_ip: 0,
            frames: 0,
        };
        (0..merge.captures.len()).for_each(|n| merge.advance(n, 0));
        merge
    }

    /// The next IP packet. A packet without a time comes with the one before it.
    pub fn next_input(&mut self) -> Option<Input<'_>> {
        if let Some((n, at_ns)) = self.handed_out.take() {
            self.advance(n, at_ns);
        }
        let waiting = self.captures.iter().enumerate();
        let (n, next) = waiting
            .filter_map(|(n, source)| source.next.map(|next| (n, next)))
            .min_by_key(|&(n, next)| (next.at_ns, n))?;
        self.handed_out = Some((n, next.at_ns));
        let packet = &self.captures[n].bytes;
        Some(Input { at_ns: next.at_ns, packet, wire_len: Some(next.wire_len) })
    }

    /// Frames that hold no IP packet.
    pub fn not_ip(&self) -> u64 {
        self.not_ip
    }

    /// Frames read.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// What broke captures off, by their place in the order in which they were given.
    pub fn troubles(&self) -> impl Iterator<Item = (usize, &Trouble)> {
        let all = self.captures.iter().enumerate();
        all.filter_map(|(n, source)| source.capture.trouble().map(|trouble| (n, trouble)))
    }

    fn advance(&mut self, n: usize, last_ns: u64) {
        let Source { capture, next, bytes } = &mut self.captures[n];
        *next = None;
        while let Some(packet) = capture.next_packet() {
            self.frames += 1;
            let Ok(found) = Datagram::find(&packet, 0) else {
                self.not_ip += 1;
                continue;
            };
            bytes.clear();
            bytes.extend_from_slice(found.bytes);
            let wire_len = u32::try_from(found.info.total_len).unwrap_or(u32::MAX);
            *next = Some(Next { at_ns: packet.timestamp_ns.unwrap_or(last_ns), wire_len });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::samples::{pcap, udp_v4};

    #[test]
    fn captures_are_merged_by_time() {
        let packet = |n: u16| udp_v4(n, 53, b"hello");
        let a = pcap(&[(10, packet(1)), (30, packet(3))]);
        let b = pcap(&[(20, packet(2)), (30, packet(4)), (40, vec![0x99])]);
        let mut broken = pcap(&[(25, packet(9)), (26, packet(8))]);
        broken.truncate(broken.len() - 3);
        let files = [&a[..], &b[..], &broken[..]];
        let mut merge = Merge::new(files.map(|file| Capture::open(file).unwrap()));
        let mut seen = Vec::new();
        while let Some(input) = merge.next_input() {
            assert_eq!(input.wire_len, Some(input.packet.len() as u32));
            seen.push((input.at_ns, input.packet[21]));
        }
        assert_eq!(seen, [(10, 1), (20, 2), (25, 9), (30, 3), (30, 4)]);
        assert_eq!((merge.frames(), merge.not_ip()), (6, 1));
        assert_eq!(merge.troubles().map(|(n, _)| n).collect::<Vec<_>>(), [2]);
    }
}
