//! Streams one after the other over the same transport, each of which may refer to the one before.

use dwell_base::Instant;
use proptest::prelude::*;

use super::{referring, small, text};
use crate::{
    AbortReason, Compressors, Decompressors, Limits, Receiver, Sender, Strategy, StreamError,
};

/// Both ends of a transport, with the sender and the receiver of the stream that it has.
struct Ends {
    sender: Sender,
    receiver: Receiver,
    now: Instant,
}

impl Ends {
    /// For a stream that leaves what it refers to to the next, or not.
    fn new(keeps: bool) -> Self {
        let mut sender = Sender::new(&referring()).unwrap();
        // Slow enough for blocks to refer to others from the first one on.
        sender.expect_rate(Instant::ZERO, 1e5);
        if keeps {
            sender.keep_for_next();
        }
        let (receiver, now) = (Receiver::new(Limits::in_order()), Instant::ZERO);
        Self { sender, receiver, now }
    }

    /// Sends a whole stream over a slow link, in pieces of these lengths, and returns the wire.
    fn send(&mut self, data: &[u8], sizes: &[usize]) -> Vec<u8> {
        let (mut compressors, mut decompressors) = (Compressors::new(), Decompressors::new());
        let mut sizes = sizes.iter().copied().cycle();
        let (mut rest, mut got, mut wire) = (data, Vec::new(), Vec::new());
        while !self.sender.is_finished() {
            self.now = self.now + 1_000_000;
            rest = &rest[self.sender.accept(&rest[..rest.len().min(sizes.next().unwrap())])..];
            if rest.is_empty() {
                self.sender.finish();
            }
            let offered = self.sender.wire(self.now);
            let len = offered.len().min(500);
            let refused = len < offered.len();
            wire.extend_from_slice(&offered[..len]);
            let taken = self.receiver.feed(&offered[..len], &mut decompressors).unwrap();
            assert_eq!(taken, len);
            self.sender.wrote(self.now, len);
            if refused {
                self.sender.blocked(self.now);
            }
            got.extend_from_slice(self.receiver.data());
            self.receiver.consume(self.receiver.data().len());
            self.sender.compress(&mut compressors, || self.now);
        }
        assert_eq!(self.receiver.end(), Ok(()));
        assert!(got == data);
        let stats = self.sender.stats();
        assert_eq!((stats.accepted_bytes, stats.framed_bytes), (len(data), len(data)));
        assert_eq!(stats.wire_bytes, len(&wire));
        wire
    }

    /// Both go on with another stream.
    fn next(self, keeps: bool) -> Self {
        let (mut sender, receiver) =
            (self.sender.into_next().unwrap(), self.receiver.into_next().unwrap());
        if keeps {
            sender.keep_for_next();
        }
        Self { sender, receiver, now: self.now + 5_000_000_000 }
    }
}

fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// Digits that only repetitions make much shorter.
fn digits(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = dwell_base::Rng::from_seed(seed);
    (0..len).map(|_| b"0123456789abcdef"[rng.below(16) as usize]).collect()
}

#[test]
fn a_stream_refers_to_the_one_before() {
    let data = [text(60_000), digits(8_000, 1)].concat();
    let mut ends = Ends::new(true);
    let first = ends.send(&data, &[9_000]);
    assert_eq!(first[3], 2);
    let mut ends = ends.next(true);
    // Without another word it is kept for the one after this.
    let second = ends.send(&data[60_000..], &[9_000]);
    assert_eq!(second[3], 5);
    assert!(second.len() < 3_000, "{}", second.len());
    let mut ends = ends.next(false);
    let third = ends.send(&data[60_000..], &[9_000]);
    assert!(third.len() < 3_000, "{}", third.len());
    assert!(ends.sender.into_next().is_none(), "it was not to leave anything");
}

#[test]
fn only_a_stream_that_has_come_to_its_end_leaves_something() {
    let unfinished = || {
        let mut sender = Sender::new(&referring()).unwrap();
        sender.keep_for_next();
        sender.accept(b"something");
        sender
    };
    assert!(unfinished().into_next().is_none());
    let mut sender = unfinished();
    sender.abort(AbortReason::Reset);
    let now = Instant::ZERO;
    let len = sender.wire(now).len();
    sender.wrote(now, len);
    assert!(sender.is_finished() && sender.into_next().is_none(), "given up");
    // Nothing refers to anything there, or it is not held while the stream is idle.
    let mut config = referring();
    config.idle_history = false;
    for config in [config, small(Strategy::All)] {
        let mut ends = Ends { sender: Sender::new(&config).unwrap(), ..Ends::new(false) };
        ends.sender.keep_for_next();
        ends.send(b"something", &[9_000]);
        assert!(ends.sender.into_next().is_none());
        // The receiver takes whatever comes next.
        let receiver = ends.receiver.into_next().unwrap();
        let sender = Sender::new(&config).unwrap();
        let mut ends = Ends { sender, receiver, now: ends.now };
        ends.send(b"something else", &[9_000]);
    }
    assert!(Receiver::new(Limits::in_order()).into_next().is_none());
}

#[test]
fn what_begins_by_itself_has_nothing_of_the_stream_before() {
    let data = text(30_000);
    let mut ends = Ends::new(true);
    ends.send(&data, &[9_000]);
    let mut receiver = ends.receiver.into_next().unwrap();
    assert!(receiver.history_bytes() > 0);
    let wire = Ends::new(false).send(&data, &[9_000]);
    receiver.feed(&wire[..8], &mut Decompressors::new()).unwrap();
    assert_eq!(receiver.history_bytes(), 0);
}

#[test]
fn a_receiver_that_holds_nothing_refuses_a_stream_that_goes_on() {
    let mut ends = Ends::new(true);
    ends.send(&text(30_000), &[9_000]);
    let mut ends = ends.next(false);
    let wire = ends.send(&text(30_000), &[9_000]);
    let mut receiver = Receiver::new(Limits::in_order());
    let error = receiver.feed(&wire, &mut Decompressors::new()).unwrap_err();
    assert!(matches!(error, StreamError::Preamble(_)), "{error}");
}

/// A receiver that holds another history than its sender notices.
#[test]
fn another_history_is_noticed() {
    let data = text(8_000);
    let [mut ends, other] = [text(68_000), digits(68_000, 2)].map(|before| {
        let mut ends = Ends::new(true);
        ends.send(&before, &[9_000]);
        ends
    });
    ends = ends.next(false);
    let wire = ends.send(&data, &[9_000]);
    assert!(wire.len() < 3_000, "{}", wire.len());
    let mut receiver = other.receiver.into_next().unwrap();
    receiver.feed(&wire, &mut Decompressors::new()).unwrap_err();
    assert!(receiver.data().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any number of streams of any data one after the other, with and without histories between them.
    #[test]
    fn any_streams_after_each_other_come_as_they_were(
        streams in prop::collection::vec((0usize..3, 0usize..40_000, any::<bool>()), 1..6),
        sizes in prop::collection::vec(1usize..9000, 1..20),
    ) {
        let mut noise = vec![0; 40_000];
        dwell_base::Rng::from_seed(1).fill(&mut noise);
        let contents = [text(40_000), noise, digits(40_000, 1)];
        let mut ends = Ends::new(streams[0].2);
        for (at, &(which, len, keeps)) in streams.iter().enumerate() {
            if at > 0 {
                ends = match streams[at - 1].2 {
                    true => ends.next(keeps),
                    // The receiver may hold something of which the sender makes no use.
                    false => Ends { receiver: ends.receiver.into_next().unwrap(), ..Ends::new(keeps) },
                };
            }
            ends.send(&contents[which][..len], &sizes);
        }
    }

    /// Whatever comes after a stream, nothing is given out that was not verified, and nobody panics.
    #[test]
    fn any_bytes_after_a_stream_are_taken_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        flips in prop::collection::vec((0usize..2000, 1u8..), 0..3),
    ) {
        let mut ends = Ends::new(true);
        ends.send(&text(20_000), &[9_000]);
        let mut ends = ends.next(true);
        let before = text(20_000);
        let mut wire = ends.send(&before, &[9_000]);
        for (at, flip) in flips {
            let at = at % wire.len();
            wire[at] ^= flip;
        }
        let going_on = [&b"dws\x05\x01\x0c\0\x06"[..], &bytes].concat();
        for wire in [wire, going_on] {
            let mut other = Ends::new(true);
            other.send(&before, &[9_000]);
            let mut receiver = other.receiver.into_next().unwrap();
            let (mut decompressors, mut at) = (Decompressors::new(), 0);
            while at < wire.len() {
                match receiver.feed(&wire[at..], &mut decompressors) {
                    Ok(taken) => at += taken,
                    Err(_) => break,
                }
                prop_assert!(receiver.held() <= 256 << 11);
                receiver.consume(receiver.data().len());
            }
        }
    }
}
