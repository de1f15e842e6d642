//! The packets of several captures in the order of their times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::Read;

use super::input::Input;
use crate::capture::{Capture, Trouble};
use crate::datagram::Datagram;
use crate::sides::Ends;

/// The most captures that are read at once, since they overlap in time. There may be any number
/// of others.
pub const OVERLAPPING_MAX: usize = 4096;
/// The most frames read in one step: captures can be without IP, and the caller wants to show
/// progress, and to stop.
const STEP_FRAMES: usize = 1 << 16;

/// Opens a capture; an error is a sentence.
pub type Open<R> = Box<dyn FnOnce() -> Result<Capture<R>, String>>;

/// A capture that is opened when it is needed.
pub struct Part<R: Read> {
    /// The time of its first packet. It is opened at once if that is not known.
    pub first_ns: Option<u64>,
    /// The capture, or a function that opens it.
    pub source: PartSource<R>,
}

/// A capture, or a function that opens it.
pub enum PartSource<R: Read> {
    /// An open capture.
    Open(Box<Capture<R>>),
    /// A capture that will be opened.
    Closed(Open<R>),
}

/// Reads captures side by side: parts of one recording, one behind the other, or recordings of the
/// same time at several places. Captures that don't overlap in time are not open at the same time.
pub struct Merge<R: Read> {
    /// Captures that are not needed yet, the earliest first, with their places.
    waiting: VecDeque<(usize, Part<R>)>,
    /// The open captures by place; none for those that wait and those that have ended.
    captures: Vec<Option<Source<R>>>,
    open: usize,
    /// The next packets' times and places.
    next: BinaryHeap<Reverse<(Option<u64>, usize)>>,
    /// Captures whose next packet is yet to be found.
    behind: Vec<usize>,
    given: Vec<u8>,
    faults: Vec<(usize, Fault)>,
    not_ip: u64,
    frames: u64,
}

/// The result of a step.
#[derive(Debug)]
pub enum MergeStep<'a> {
    /// The next IP packet.
    Packet(Input<'a>),
    /// No packet yet: 65,536 frames held none.
    Skipped,
    /// There is nothing left.
    End,
}

/// A reason why a capture was not read, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The capture could not be opened.
    Closed(String),
    /// The capture is broken from here on.
    Broken(Trouble),
}

struct Source<R: Read> {
    capture: Capture<R>,
    /// The time of the packet before, if there was one with a time.
    last_ns: Option<u64>,
    bytes: Vec<u8>,
    wire_len: u32,
    ends: Ends,
}

impl<R: Read> Merge<R> {
    /// Begins to read captures that are open.
    pub fn new(captures: impl IntoIterator<Item = Capture<R>>) -> Self {
        let part = |capture| Part { first_ns: None, source: PartSource::Open(Box::new(capture)) };
        Self::of_parts(captures.into_iter().map(part))
    }

    /// Begins to read captures that are opened when they are needed.
    pub fn of_parts(parts: impl IntoIterator<Item = Part<R>>) -> Self {
        let mut waiting: Vec<(usize, Part<R>)> = parts.into_iter().enumerate().collect();
        let captures = waiting.iter().map(|_| None).collect();
        waiting.sort_by_key(|(n, part)| (part.first_ns, *n));
        Self {
            waiting: waiting.into(),
            captures,
            open: 0,
            next: BinaryHeap::new(),
            behind: Vec::new(),
            given: Vec::new(),
            faults: Vec::new(),
            not_ip: 0,
            frames: 0,
        }
    }

    /// Goes on to the next IP packet, by at most 65,536 frames. A packet without a time comes with
    /// the one before it; if there is none, it is the first.
    pub fn step(&mut self) -> MergeStep<'_> {
        loop {
            while let Some(&n) = self.behind.last() {
                match self.advance(n) {
                    true => self.behind.pop(),
                    false => return MergeStep::Skipped,
                };
            }
            if !self.open_next() {
                break;
            }
        }
        let Some(Reverse((at_ns, n))) = self.next.pop() else { return MergeStep::End };
        let Some(source) = &mut self.captures[n] else { return MergeStep::End };
        source.last_ns = at_ns;
        std::mem::swap(&mut self.given, &mut source.bytes);
        self.behind.push(n);
        let (wire_len, ends) = (Some(source.wire_len), source.ends);
        MergeStep::Packet(Input { at_ns, packet: &self.given, wire_len, ends })
    }

    /// Frames that hold no IP packet.
    pub fn not_ip(&self) -> u64 {
        self.not_ip
    }

    /// Frames read.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the faults of captures, by their place in the order in which they were given.
    pub fn faults(&self) -> &[(usize, Fault)] {
        &self.faults
    }

    /// Opens the next capture if it is needed; returns false if none is.
    fn open_next(&mut self) -> bool {
        let now = self.next.peek().map(|Reverse((at_ns, _))| *at_ns);
        let is_due = |(_, part): &(usize, Part<R>)| now.is_none_or(|now| part.first_ns <= now);
        if !self.waiting.front().is_some_and(is_due) {
            return false;
        }
        let Some((n, part)) = self.waiting.pop_front() else { return false };
        if self.open >= OVERLAPPING_MAX {
            let why = format!(
                "it overlaps in time with {OVERLAPPING_MAX} others, and no more are read at once: \
                 join some with `mergecap` first"
            );
            self.faults.push((n, Fault::Closed(why)));
            return true;
        }
        let opened = match part.source {
            PartSource::Open(capture) => Ok(*capture),
            PartSource::Closed(open) => open(),
        };
        match opened {
            Ok(capture) => {
                let (bytes, ends) = (Vec::new(), Ends::default());
                self.captures[n] =
                    Some(Source { capture, last_ns: None, bytes, wire_len: 0, ends });
                self.open += 1;
                self.behind.push(n);
            }
            Err(why) => self.faults.push((n, Fault::Closed(why))),
        }
        true
    }

    /// Reads on to a capture's next packet; returns false if there may be one further on.
    fn advance(&mut self, n: usize) -> bool {
        let Some(source) = &mut self.captures[n] else { return true };
        for _ in 0..STEP_FRAMES {
            let Some(packet) = source.capture.next_packet() else {
                let trouble = source.capture.trouble().cloned();
                self.faults.extend(trouble.map(|trouble| (n, Fault::Broken(trouble))));
                self.captures[n] = None;
                self.open -= 1;
                return true;
            };
            self.frames += 1;
            let Ok(found) = Datagram::find(&packet, 0) else {
                self.not_ip += 1;
                continue;
            };
            source.bytes.clear();
            source.bytes.extend_from_slice(found.bytes);
            source.wire_len = u32::try_from(found.info.total_len).unwrap_or(u32::MAX);
            source.ends = Ends::of(&packet);
            self.next.push(Reverse((packet.timestamp_ns.or(source.last_ns), n)));
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
        while let MergeStep::Packet(input) = merge.step() {
            assert_eq!(input.wire_len, Some(input.packet.len() as u32));
            seen.push((input.at_ns.unwrap(), input.packet[21]));
        }
        assert_eq!(seen, [(10, 1), (20, 2), (25, 9), (30, 3), (30, 4)]);
        assert_eq!((merge.frames(), merge.not_ip()), (6, 1));
        assert!(matches!(merge.faults(), [(2, Fault::Broken(_))]), "{:?}", merge.faults());
    }

    /// More captures than could be open at once: each is opened when its time comes, and closed at
    /// its end.
    #[test]
    fn captures_are_opened_when_their_time_comes() {
        use std::cell::Cell;
        use std::rc::Rc;

        struct Counted(std::io::Cursor<Vec<u8>>, Rc<Cell<(u32, u32)>>);
        impl Read for Counted {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buffer)
            }
        }
        impl Drop for Counted {
            fn drop(&mut self) {
                self.1.set((self.1.get().0 - 1, self.1.get().1));
            }
        }
        let open = Rc::new(Cell::new((0, 0)));
        let part = |n: u64| {
            let open = Rc::clone(&open);
            let bytes = pcap(&[(10 * n, udp_v4(1, 53, b"a")), (10 * n + 15, udp_v4(2, 53, b"b"))]);
            let open: Open<Counted> = Box::new(move || {
                let (now, most) = open.get();
                open.set((now + 1, most.max(now + 1)));
                Capture::open(Counted(std::io::Cursor::new(bytes), open))
                    .map_err(|error| error.to_string())
            });
            Part { first_ns: Some(10 * n), source: PartSource::Closed(open) }
        };
        // In any order, and one that can't be opened.
        let failing: Open<Counted> = Box::new(|| Err("gone".to_owned()));
        let parts = (0..1000).map(|n| part(n * 7 % 1000));
        let parts =
            parts.chain([Part { first_ns: Some(500), source: PartSource::Closed(failing) }]);
        let mut merge = Merge::of_parts(parts);
        let mut times = Vec::new();
        while let MergeStep::Packet(input) = merge.step() {
            times.push(input.at_ns.unwrap());
        }
        assert!(times.len() == 2000 && times.is_sorted());
        assert_eq!(merge.faults(), [(1000, Fault::Closed("gone".to_owned()))]);
        assert!(open.get().0 == 0 && open.get().1 <= 3, "{:?}", open.get());
    }

    #[test]
    fn who_reads_frames_without_ip_gets_a_word_in() {
        let mut frames = vec![(1, vec![0x99]); STEP_FRAMES + 5];
        frames.push((2, udp_v4(1, 53, b"hello")));
        let (file, other) = (pcap(&frames), pcap(&[(3, udp_v4(2, 53, b"hello"))]));
        let mut merge = Merge::new([&file[..], &other].map(|file| Capture::open(file).unwrap()));
        assert!(matches!(merge.step(), MergeStep::Skipped));
        assert!(matches!(merge.step(), MergeStep::Packet(Input { at_ns: Some(2), .. })));
        assert!(matches!(merge.step(), MergeStep::Packet(Input { at_ns: Some(3), .. })));
        assert!(matches!(merge.step(), MergeStep::End));
        assert_eq!((merge.frames(), merge.not_ip()), (65_543, 65_541));
    }
}
