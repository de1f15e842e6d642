//! The packets of several captures in the order of their times.

use std::io::Read;

use super::input::Input;
use crate::capture::{Capture, Trouble};
use crate::datagram::Datagram;

/// The most captures that are read at once.
pub const CAPTURES_MAX: usize = 256;
/// Frames that are looked at in one step: there are captures without IP, and who reads them wants
/// to be told how far it is, and to stop.
const STEP_FRAMES: usize = 1 << 16;

/// Reads captures side by side: parts of one recording, one behind the other, or recordings of
/// the same time at several places.
pub struct Merge<R: Read> {
    captures: Vec<Source<R>>,
    not_ip: u64,
    frames: u64,
}

/// What a step brought.
#[derive(Debug)]
pub enum Step<'a> {
    /// The next IP packet.
    Packet(Input<'a>),
    /// Nothing, as yet: 65,536 frames were none.
    Skipped,
    /// There is nothing left.
    End,
}

struct Source<R: Read> {
    capture: Capture<R>,
    state: State,
    /// The time of the packet before, if there was one with a time.
    last_ns: Option<u64>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
enum State {
    /// The next packet is yet to be looked for.
    Behind,
    /// There is one.
    Next { at_ns: Option<u64>, wire_len: u32 },
    /// The capture has no more.
    End,
}

impl<R: Read> Merge<R> {
    /// Begins to read them all; those beyond [`CAPTURES_MAX`] are left out.
    pub fn new(captures: impl IntoIterator<Item = Capture<R>>) -> Self {
        let source =
            |capture| Source { capture, state: State::Behind, last_ns: None, bytes: Vec::new() };
        Self {
            captures: captures.into_iter().take(CAPTURES_MAX).map(source).collect(),
            not_ip: 0,
            frames: 0,
        }
    }

    /// Goes on to the next IP packet, or as near to it as 65,536 frames bring. A packet without a
    /// time comes with the one before it; if there is none, it is the first.
    pub fn step(&mut self) -> Step<'_> {
        for n in 0..self.captures.len() {
            if matches!(self.captures[n].state, State::Behind) && !self.advance(n) {
                return Step::Skipped;
            }
        }
        let waiting = self.captures.iter().enumerate();
        let first = waiting
            .filter_map(|(n, source)| match source.state {
                State::Next { at_ns, wire_len } => Some((at_ns, n, wire_len)),
                State::Behind | State::End => None,
            })
            .min();
        let Some((at_ns, n, wire_len)) = first else { return Step::End };
        let source = &mut self.captures[n];
        (source.state, source.last_ns) = (State::Behind, at_ns);
        Step::Packet(Input { at_ns, packet: &source.bytes, wire_len: Some(wire_len) })
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

    /// Looks for a capture's next packet; false if there may be one further on.
    fn advance(&mut self, n: usize) -> bool {
        let Source { capture, state, last_ns, bytes } = &mut self.captures[n];
        for _ in 0..STEP_FRAMES {
            let Some(packet) = capture.next_packet() else {
                *state = State::End;
                return true;
            };
            self.frames += 1;
            let Ok(found) = Datagram::find(&packet, 0) else {
                self.not_ip += 1;
                continue;
            };
            bytes.clear();
            bytes.extend_from_slice(found.bytes);
            let wire_len = u32::try_from(found.info.total_len).unwrap_or(u32::MAX);
            *state = State::Next { at_ns: packet.timestamp_ns.or(*last_ns), wire_len };
            return true;
        }
        false
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
        while let Step::Packet(input) = merge.step() {
            assert_eq!(input.wire_len, Some(input.packet.len() as u32));
            seen.push((input.at_ns.unwrap(), input.packet[21]));
        }
        assert_eq!(seen, [(10, 1), (20, 2), (25, 9), (30, 3), (30, 4)]);
        assert_eq!((merge.frames(), merge.not_ip()), (6, 1));
        assert_eq!(merge.troubles().map(|(n, _)| n).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn who_reads_frames_without_ip_gets_a_word_in() {
        let mut frames = vec![(1, vec![0x99]); STEP_FRAMES + 5];
        frames.push((2, udp_v4(1, 53, b"hello")));
        let (file, other) = (pcap(&frames), pcap(&[(3, udp_v4(2, 53, b"hello"))]));
        let mut merge = Merge::new([&file[..], &other].map(|file| Capture::open(file).unwrap()));
        assert!(matches!(merge.step(), Step::Skipped));
        assert!(matches!(merge.step(), Step::Packet(Input { at_ns: Some(2), .. })));
        assert!(matches!(merge.step(), Step::Packet(Input { at_ns: Some(3), .. })));
        assert!(matches!(merge.step(), Step::End));
        assert_eq!((merge.frames(), merge.not_ip()), (65_543, 65_541));
    }
}
