//! Streams from end to end, over transports that take and give pieces of any size.

use dwell_base::{Instant, Rng};
use proptest::prelude::*;

use crate::{Compressors, Config, Decompressors, Limits, Receiver, Sender, Strategy, StreamError};

mod context;
mod granted;
mod mix;
mod next;

/// The limits of a receiver that takes any stream.
fn with_context() -> Limits {
    Limits { window_log: 23, model_log: 26, mixed_models: true, ..Limits::default() }
}

/// Sends `data` in pieces of the given lengths, through a transport with little room.
fn transfer(
    config: &Config,
    data: &[u8],
    sizes: &[usize],
) -> Result<(Vec<u8>, Sender), StreamError> {
    transfer_over(config, data, sizes, 1000)
}

/// Does the same, where each piece takes the given time.
fn transfer_over(
    config: &Config,
    data: &[u8],
    sizes: &[usize],
    piece_ns: u64,
) -> Result<(Vec<u8>, Sender), StreamError> {
    let mut sender = Sender::new(config).unwrap();
    let mut receiver = match config.strategy {
        Strategy::Plain => Receiver::plain(Limits::default()),
        _ => Receiver::new(with_context()),
    };
    let (mut compressors, mut decompressors) = (Compressors::new(), Decompressors::new());
    let mut sizes = sizes.iter().copied().cycle();
    let mut next = move || sizes.next().unwrap();
    let (mut rest, mut got) = (data, Vec::new());
    let mut now = Instant::ZERO;
    let mut jobs = Vec::new();
    for round in 0..2_000_000 {
        if sender.is_finished() {
            receiver.end()?;
            got.extend_from_slice(receiver.data());
            return Ok((got, sender));
        }
        now = now + piece_ns;
        let piece = next().min(rest.len());
        rest = &rest[sender.accept(&rest[..piece])..];
        if rest.is_empty() {
            sender.finish();
        }
        let wire = sender.wire(now);
        // From time to time it takes nothing at all.
        let refuses = round % 2 == 1 && next() % 2 == 0;
        let len = if refuses { 0 } else { wire.len().min(next()) };
        let taken = receiver.feed(&wire[..len], &mut decompressors)?;
        let refused = taken < wire.len();
        sender.wrote(now, taken);
        if refused {
            sender.blocked(now);
        }
        let consumed = receiver.data().len().min(next());
        got.extend_from_slice(&receiver.data()[..consumed]);
        receiver.consume(consumed);
        if round % 5 == 4 {
            got.extend(receiver.take_all(vec![1; 3]));
        }
        // Two jobs under way at once, finished in the wrong order.
        jobs.extend(sender.next_job(now));
        if jobs.len() == 2 || next() % 2 == 0 || sender.wire(now).is_empty() {
            for job in jobs.drain(..).rev() {
                sender.done(job.run(&mut compressors, || now));
            }
        }
    }
    panic!("the stream does not come to its end");
}

fn small(strategy: Strategy) -> Config {
    let mut config = Config::new(strategy);
    config.block_len = 4096;
    config.buffer_len = 16 << 10;
    config
}

fn text(len: usize) -> Vec<u8> {
    let words = ["packet ", "waits ", "in the ", "queue ", "of a slow ", "link, ", "idle.\n"];
    let mut rng = Rng::from_seed(7);
    let mut out = Vec::new();
    while out.len() < len {
        out.extend_from_slice(words[rng.below(words.len() as u64) as usize].as_bytes());
    }
    out.truncate(len);
    out
}

/// Rows of a dump.
pub(crate) fn rows(len: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(3);
    let words = ["anbecor", "dael", "figahu", "injo", "kalumer", "noorpa", "quirosa", "tiumva"];
    let word =
        |rng: &mut Rng| [words[rng.below(8) as usize], words[rng.below(8) as usize]].concat();
    let mut out = Vec::new();
    for id in 0.. {
        if out.len() >= len {
            break;
        }
        let (first, last, city) = (word(&mut rng), word(&mut rng), word(&mut rng));
        let (cents, day, second) = (rng.below(400_000), 1 + rng.below(28), rng.below(86_400));
        let row =
            format!("({id},'{first} {last}','{city}',{cents},'2026-03-{day:02} {second}'),\n");
        out.extend_from_slice(row.as_bytes());
    }
    out.truncate(len);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_gives_the_same_bytes(
        which in 0..Strategy::ALL.len(),
        len in 0usize..60_000,
        sizes in prop::collection::vec(1usize..9000, 1..20),
    ) {
        let strategy = Strategy::ALL[which];
        let data = text(len);
        let (got, sender) = transfer(&small(strategy), &data, &sizes).unwrap();
        prop_assert!(got == data, "{strategy}: {} of {} bytes", got.len(), data.len());
        prop_assert!(sender.is_idle());
        let stats = sender.stats();
        prop_assert_eq!(stats.accepted_bytes, len as u64);
        prop_assert_eq!(stats.framed_bytes, len as u64);
    }
}

/// Returns the configuration of a stream on a slow link, in which blocks refer to earlier ones.
fn referring() -> Config {
    let mut config = small(Strategy::Hull);
    config.codecs = vec!["zstd:1".parse().unwrap()];
    config
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Data of all kinds in turns, so that some blocks are not kept, or not compressed, and others
    /// are withdrawn.
    #[test]
    fn any_split_of_what_refers_to_itself_gives_the_same_bytes(
        turns in prop::collection::vec((any::<bool>(), 1usize..80_000), 1..8),
        sizes in prop::collection::vec(1usize..9000, 1..20),
        piece_ns in 1000u64..3_000_000,
    ) {
        let mut noise = vec![0; 80_000];
        Rng::from_seed(1).fill(&mut noise);
        let text = text(80_000);
        let data: Vec<u8> = turns
            .iter()
            .flat_map(|&(noisy, len)| if noisy { &noise[..len] } else { &text[..len] })
            .copied()
            .collect();
        let (got, sender) = transfer_over(&referring(), &data, &sizes, piece_ns).unwrap();
        prop_assert!(got == data, "{} of {} bytes", got.len(), data.len());
        prop_assert!(sender.is_idle());
    }
}

/// Random digits that are repeated 100 KB later: only blocks that refer to others make less than
/// half of them.
#[test]
fn what_came_before_is_not_sent_again() {
    let mut rng = Rng::from_seed(2);
    let mut data = text(400_000);
    data.extend((0..100_000).map(|_| b"0123456789abcdef"[rng.below(16) as usize]));
    let once = data.len();
    data.extend_from_within(400_000..);
    let wire_bytes = |config: &Config, data: &[u8]| {
        let (got, sender) = transfer_over(config, data, &[1000, 2000, 500], 1_000_000).unwrap();
        assert!(got == data);
        (sender.stats().wire_bytes, sender.stats().referring_blocks)
    };
    let (before, _) = wire_bytes(&referring(), &data[..once]);
    let (after, referring_blocks) = wire_bytes(&referring(), &data);
    assert!(after < before + 10_000, "{after} after {before}");
    assert!(referring_blocks > 50, "{referring_blocks}");
    let mut alone = referring();
    alone.history = false;
    let (after, referring_blocks) = wire_bytes(&alone, &data);
    assert!(after > before + 45_000 && referring_blocks == 0, "{after}, {referring_blocks}");
}

/// A receiver that does not hold earlier blocks reports that at once.
#[test]
fn a_history_can_be_refused() {
    let wire = wire_of(&referring(), &text(10_000));
    let limits = Limits { history: false, ..Limits::default() };
    let error = Receiver::new(limits).feed(&wire, &mut Decompressors::new()).unwrap_err();
    assert!(error.to_string().contains("refer to earlier ones"), "{error}");
    let mut alone = referring();
    alone.history = false;
    assert!(
        Receiver::new(limits)
            .feed(&wire_of(&alone, &text(10_000)), &mut Decompressors::new())
            .is_ok()
    );
}

/// A block that overtook one that is being compressed, and is refused, is behind it again.
#[test]
fn a_block_that_overtook_in_vain_has_its_place_again() {
    let data = text(5 * 4096);
    let mut sender = Sender::new(&small(Strategy::MixOutOfOrder)).unwrap();
    let (mut compressors, now) = (Compressors::new(), Instant::ZERO);
    let mut rest = &data[sender.accept(&data)..];
    let first = sender.next_job(now).unwrap();
    let mut receiver = Receiver::new(Limits::default());
    let (mut decompressors, mut got) = (Decompressors::new(), Vec::new());
    assert!(!sender.wire(now).is_empty());
    sender.wrote(now, 0);
    sender.blocked(now);
    let second = sender.next_job(now).unwrap();
    sender.wire(now);
    sender.blocked(now);
    for job in [second, first] {
        sender.done(job.run(&mut compressors, || now));
    }
    while !sender.is_finished() {
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        let taken = receiver.feed(sender.wire(now), &mut decompressors).unwrap();
        sender.wrote(now, taken);
        got.extend_from_slice(receiver.data());
        receiver.consume(receiver.data().len());
        sender.compress(&mut compressors, || now);
    }
    assert_eq!(receiver.end(), Ok(()));
    assert!(got == data);
}

/// Returns the whole wire of a stream over a transport that takes everything at once.
pub(crate) fn wire_of(config: &Config, data: &[u8]) -> Vec<u8> {
    let mut sender = Sender::new(config).unwrap();
    let (mut compressors, now) = (Compressors::new(), Instant::ZERO);
    let (mut rest, mut out) = (data, Vec::new());
    while !sender.is_finished() {
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        loop {
            let wire = sender.wire(now).to_vec();
            if wire.is_empty() {
                break;
            }
            out.extend_from_slice(&wire);
            sender.wrote(now, wire.len());
        }
        sender.compress(&mut compressors, || now);
    }
    out
}

/// Returns the wire of a stream over a slow link in which blocks refer to earlier ones.
fn referring_wire(data: &[u8]) -> Vec<u8> {
    let mut sender = Sender::new(&referring()).unwrap();
    let (mut compressors, mut now) = (Compressors::new(), Instant::ZERO);
    let (mut rest, mut out) = (data, Vec::new());
    while !sender.is_finished() {
        now = now + 1_000_000;
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        let wire = sender.wire(now);
        let (len, refused) = (wire.len().min(500), wire.len() > 500);
        out.extend_from_slice(&wire[..len]);
        sender.wrote(now, len);
        if refused {
            sender.blocked(now);
        }
        sender.compress(&mut compressors, || now);
    }
    assert!(sender.stats().referring_blocks > 5, "{:?}", sender.stats());
    out
}

/// Feeds a wire, and returns the data that came out before the error or the end.
fn receive(wire: &[u8]) -> (Vec<u8>, Result<(), StreamError>) {
    let mut receiver = Receiver::new(Limits::default());
    let (mut decompressors, mut got, mut at) = (Decompressors::new(), Vec::new(), 0);
    while at < wire.len() {
        match receiver.feed(&wire[at..], &mut decompressors) {
            Ok(taken) => at += taken,
            Err(error) => {
                got.extend_from_slice(receiver.data());
                return (got, Err(error));
            }
        }
        assert!(receiver.data().len() <= Limits::default().output_len + (64 << 10));
        got.extend_from_slice(receiver.data());
        receiver.consume(receiver.data().len());
    }
    let end = receiver.end();
    (got, end)
}

/// The strategies whose streams are framed, one for each difference on the wire.
const FRAMED: [Strategy; 4] =
    [Strategy::Raw, Strategy::All, Strategy::TcpComp, Strategy::KernelLevel];

#[test]
fn a_stream_that_is_cut_off_is_distinguished_from_one_that_ends() {
    let data = text(20_000);
    for strategy in FRAMED {
        let wire = wire_of(&small(strategy), &data);
        assert_eq!(receive(&wire), (data.clone(), Ok(())));
        for len in (0..wire.len()).step_by(7) {
            let (got, result) = receive(&wire[..len]);
            assert_eq!(result, Err(StreamError::Truncated), "{strategy} after {len} bytes");
            assert!(data.starts_with(&got));
        }
        let mut longer = wire.clone();
        longer.push(0);
        assert_eq!(receive(&longer).1, Err(StreamError::AfterEnd));
    }
}

#[test]
fn a_stream_with_a_history_that_is_cut_off_is_noticed() {
    let data = text(200_000);
    let wire = referring_wire(&data);
    assert_eq!(receive(&wire), (data.clone(), Ok(())));
    for len in (0..wire.len()).step_by(61) {
        let (got, result) = receive(&wire[..len]);
        assert_eq!(result, Err(StreamError::Truncated), "after {len} bytes");
        assert!(data.starts_with(&got));
    }
}

/// After the last data, the receiver need not hold anything.
#[test]
fn an_idle_stream_has_no_history() {
    let config = Config { idle_history: false, ..referring() };
    assert_eq!(history_of_an_idle_stream(&config), 0);
    let config = Config { idle_history: true, ..config };
    assert!((1..=192 << 10).contains(&history_of_an_idle_stream(&config)));
}

/// A receiver that is short of memory can stop where nothing that comes refers to what came.
#[test]
fn a_busy_stream_lets_go_of_its_history_now_and_then() {
    let config = Config { idle_history: false, ..referring() };
    let mut held = Sender::new(&config).unwrap();
    held.hold_idle_history();
    for (mut sender, lets_go) in [(Sender::new(&config).unwrap(), true), (held, false)] {
        let mut receiver = Receiver::new(Limits::in_order());
        let (mut compressors, mut decompressors) = (Compressors::new(), Decompressors::new());
        let (data, mut now) = (text(600_000), Instant::ZERO);
        let (mut rest, mut times, mut got) = (&data[..], 0, Vec::new());
        while !rest.is_empty() {
            now = now + 1_000_000;
            rest = &rest[sender.accept(rest)..];
            let wire = sender.wire(now);
            let (len, refused) = (wire.len().min(25), wire.len() > 25);
            let before = receiver.history_bytes();
            receiver.feed(&wire[..len], &mut decompressors).unwrap();
            times += u32::from(before > 0 && receiver.history_bytes() == 0);
            got.extend_from_slice(receiver.data());
            receiver.consume(receiver.data().len());
            sender.wrote(now, len);
            if refused {
                sender.blocked(now);
            }
            sender.compress(&mut compressors, || now);
        }
        let seconds = now.as_ns() / 1_000_000_000;
        let expected = if lets_go { 1..=seconds } else { 0..=0 };
        assert!(seconds > 1 && expected.contains(&times.into()), "{times} in {seconds} s");
        assert!(data.starts_with(&got) && sender.stats().referring_blocks > 50);
    }
}

#[test]
fn how_long_a_job_was_away_is_no_time_of_its_codec() {
    let mut sender = Sender::new(&Config::new(Strategy::All)).unwrap();
    sender.accept(&text(70_000));
    let job = sender.next_job(Instant::ZERO).unwrap();
    let mut clock = [0, 7_000].map(Instant::from_ns).into_iter();
    let mut done = job.run(&mut Compressors::new(), || clock.next().unwrap());
    for (back_ns, away_ns) in [(5_000, 7_000), (9_000, 9_000)] {
        done.back_after(back_ns);
        let compression = done.compression();
        assert_eq!((compression.took_ns, compression.away_ns), (7_000, away_ns));
    }
    sender.done(done);
}

/// Ten thousands of connections are idle most of the time.
#[test]
fn an_idle_receiver_holds_nothing() {
    let config = Config { idle_history: false, ..referring() };
    let mut sender = Sender::new(&config).unwrap();
    let mut receiver = Receiver::new(Limits::in_order());
    let (mut compressors, mut decompressors) = (Compressors::new(), Decompressors::new());
    let (data, now) = (text(100_000), Instant::ZERO);
    let (mut rest, mut got) = (&data[..], 0);
    while !(rest.is_empty() && sender.is_idle()) {
        rest = &rest[sender.accept(rest)..];
        // To the end of each block.
        let wire = sender.wire(now);
        let len = match receiver.missing() {
            0 => wire.len().min(1),
            missing => wire.len().min(missing),
        };
        receiver.feed(&wire[..len], &mut decompressors).unwrap();
        sender.wrote(now, len);
        sender.compress(&mut compressors, || now);
        got += receiver.data().len();
        receiver.consume(receiver.data().len());
    }
    receiver.shrink();
    assert_eq!((got, receiver.held(), receiver.missing()), (data.len(), 0, 0));
}

/// Returns what a receiver holds of a stream that has had something to say, and has no more.
fn history_of_an_idle_stream(config: &Config) -> usize {
    let mut sender = Sender::new(config).unwrap();
    let mut receiver = Receiver::new(Limits::default());
    let (mut compressors, mut decompressors, mut now) =
        (Compressors::new(), Decompressors::new(), Instant::ZERO);
    let data = text(200_000);
    let (mut rest, mut held_max) = (&data[..], 0);
    while !(rest.is_empty() && sender.is_idle()) {
        now = now + 1_000_000;
        rest = &rest[sender.accept(rest)..];
        let wire = sender.wire(now);
        let (len, refused) = (wire.len().min(500), wire.len() > 500);
        receiver.feed(&wire[..len], &mut decompressors).unwrap();
        receiver.consume(receiver.data().len());
        held_max = held_max.max(receiver.history_len());
        sender.wrote(now, len);
        if refused {
            sender.blocked(now);
        }
        sender.compress(&mut compressors, || now);
    }
    assert!(sender.stats().referring_blocks > 5 && held_max > 10_000, "{held_max}");
    receiver.history_len()
}

#[test]
fn units_can_be_refused() {
    for strategy in FRAMED {
        let wire = wire_of(&small(strategy), &text(5000));
        let taken = Receiver::new(Limits::in_order()).feed(&wire, &mut Decompressors::new());
        match strategy.is_segmented() {
            true => {
                assert!(matches!(taken, Err(StreamError::Preamble(_))), "{strategy}: {taken:?}");
            }
            false => assert_eq!(taken, Ok(wire.len()), "{strategy}"),
        }
    }
}

#[test]
fn an_empty_stream_has_an_end_too() {
    for strategy in FRAMED {
        let wire = wire_of(&small(strategy), &[]);
        assert!(wire.len() < 32);
        assert_eq!(receive(&wire), (Vec::new(), Ok(())), "{strategy}");
    }
}

#[test]
fn giving_up_is_reported_with_its_reason() {
    for strategy in FRAMED {
        for begun in [false, true] {
            let mut sender = Sender::new(&small(strategy)).unwrap();
            let now = Instant::ZERO;
            let mut wire = Vec::new();
            sender.accept(&text(10_000));
            if begun {
                sender.compress(&mut Compressors::new(), || now);
                let part = sender.wire(now)[..5].to_vec();
                sender.wrote(now, part.len());
                wire.extend(part);
            }
            sender.abort(crate::AbortReason::Reset);
            assert_eq!(sender.accept(b"more"), 0);
            while !sender.is_finished() {
                let part = sender.wire(now).to_vec();
                assert!(!part.is_empty());
                wire.extend_from_slice(&part);
                sender.wrote(now, part.len());
            }
            let (got, result) = receive(&wire);
            assert_eq!(result, Err(StreamError::Aborted(crate::AbortReason::Reset)), "{strategy}");
            assert!(text(10_000).starts_with(&got));
        }
    }
}

#[test]
fn a_receiver_takes_no_more_than_it_may_hold() {
    let data = vec![7; 10 << 20];
    let wire = wire_of(&Config::new(Strategy::All), &data);
    let mut receiver = Receiver::new(Limits::default());
    let mut decompressors = Decompressors::new();
    let taken = receiver.feed(&wire, &mut decompressors).unwrap();
    assert!(taken < wire.len() && !receiver.wants_more());
    assert!(receiver.data().len() <= (256 << 10) + (64 << 10));
    assert_eq!(receiver.feed(&wire[taken..], &mut decompressors), Ok(0));
    receiver.consume(receiver.data().len());
    assert!(receiver.wants_more());
}

#[test]
fn a_payload_that_restores_to_more_than_it_says_is_refused() {
    // Two streams alike but for their length: the payload of the longer one, said to be shorter.
    let mut wire = wire_of(&small(Strategy::All), &[b'x'; 4096]);
    let at = crate::frame::PREAMBLE_LEN;
    assert_eq!(wire[at..at + 3], [2, 0x0f, 0xff]);
    wire[at + 1] = 0x07;
    let (got, result) = receive(&wire);
    assert!(got.is_empty() && matches!(result, Err(StreamError::Decode(_))), "{result:?}");
}

/// Returns what is given out of a stream with one byte changed, which must be noticed. Bits that a
/// codec does not use make no difference, and neither do bytes of the preamble that are still valid.
fn damaged(mut wire: Vec<u8>, data: &[u8], (at, flip): (usize, u8)) -> Vec<u8> {
    let at = at % wire.len();
    wire[at] ^= flip;
    let (got, result) = receive(&wire);
    let is_harmless = got == data || at < crate::frame::PREAMBLE_LEN;
    assert!(result.is_err() || is_harmless, "byte {at}");
    got
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damage_is_noticed_before_anything_wrong_is_given_out(
        strategy in prop::sample::select(vec![Strategy::Raw, Strategy::All, Strategy::MixOutOfOrder]),
        at in 0usize..20_000,
        flip in 1u8..,
    ) {
        let data = text(20_000);
        let got = damaged(wire_of(&small(strategy), &data), &data, (at, flip));
        prop_assert!(data.starts_with(&got), "wrong bytes were given out");
    }

    #[test]
    fn damage_to_what_refers_to_itself_is_noticed(at in 0usize..60_000, flip in 1u8..) {
        let data = text(200_000);
        let got = damaged(referring_wire(&data), &data, (at, flip));
        prop_assert!(data.starts_with(&got), "wrong bytes were given out");
    }

    #[test]
    fn damaged_units_end_in_an_error(
        strategy in prop::sample::select(vec![Strategy::TcpComp, Strategy::KernelLevel]),
        at in 0usize..20_000,
        flip in 1u8..,
    ) {
        let data = text(20_000);
        damaged(wire_of(&small(strategy), &data), &data, (at, flip));
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        receive(&bytes).1.unwrap_err();
        for (version, layout) in [(1, 1), (1, 2), (1, 3), (2, 1)] {
            let mut wire = vec![b'd', b'w', b's', version, layout, 16, 0, 14];
            if version == 2 {
                // A history to refer to: a raw block of "a", kept, and its check sum.
                wire.extend([0x40, 0, 0, 0xe8, 0xb7, 0xbe, 0x43, b'a']);
            }
            wire.extend_from_slice(&bytes);
            let _ = receive(&wire);
        }
    }
}

#[test]
fn on_a_link_that_is_known_to_be_busy_the_first_block_is_compressed() {
    let data = vec![0; 256 << 10];
    let now = Instant::from_ns(1);
    let first = |expected: Option<f64>| {
        let mut sender = Sender::new(&Config::default()).unwrap();
        sender.accept(&data);
        if let Some(rate) = expected {
            sender.expect_rate(now, rate);
        }
        sender.wire(now).len()
    };
    assert!(first(None) > 60_000);
    // Nothing goes before it was compressed.
    assert_eq!(first(Some(25_000.0)), 0);
}
