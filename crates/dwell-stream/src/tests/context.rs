//! Streams with a running context.

use dwell_base::Instant;
use dwell_codec::{CodecId, CodecSpec};
use proptest::prelude::*;

use super::{rows, text, transfer_over, with_context};
use crate::{
    AbortReason, Compressors, Config, Decompressors, Limits, LinkReport, Receiver, Sender,
    Strategy, StreamError,
};

/// Numbers that look random, the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Blocks of 4 KiB that may go on with a context of this window.
fn running(window_log: u8) -> Config {
    let mut config = Config::new(Strategy::Hull);
    config.block_len = 4096;
    config.buffer_len = 16_384;
    config.set_window(window_log);
    config
}

/// The same, and models of a megabyte.
fn with_model(window_log: u8) -> Config {
    let mut config = running(window_log);
    config.set_model(20);
    config
}

/// And these are of mix: without ppm it is not tried beside first, on longer blocks.
fn with_mixed_models(window_log: u8) -> Config {
    let mut config = Config { mixed_models: true, ..running(window_log) };
    config.set_model(20);
    config.codecs.retain(|codec| codec.id != CodecId::Ppm);
    config
}

/// As above, by number.
fn with_any(window_log: u8, which: usize) -> Config {
    [running, with_model, with_mixed_models][which](window_log)
}

/// What a transport says of a slow link with a queue before it.
fn full_link() -> LinkReport {
    LinkReport {
        delivered_rate: 1000.0,
        round_trip_ns: 40_000_000,
        queue_ns: 100_000_000,
        pending_bytes: 1 << 20,
        ..LinkReport::default()
    }
}

/// Sends all of it over a link that is known to be slow, each block compressed before it goes; returns the wire.
fn wire_of(config: &Config, data: &[u8]) -> Vec<u8> {
    wire_and_run(config, data, false).0
}

/// The same of a stream that may be taken to have much more, and the most blocks of a job.
fn wire_and_run(config: &Config, data: &[u8], is_bulk: bool) -> (Vec<u8>, usize) {
    let mut sender = Sender::new(config).unwrap();
    if is_bulk {
        sender.expect_bulk();
    }
    let mut longest = 0;
    let (mut compressors, mut wire, mut rest) = (Compressors::new(), Vec::new(), data);
    let mut now = Instant::ZERO;
    sender.expect_rate(now, 1000.0);
    for _ in 0..2 {
        sender.reported(now, &full_link());
        now = now + 300_000_000;
    }
    while !sender.is_finished() {
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        sender.blocked(now);
        while let Some(compression) = sender.compress(&mut compressors, || now) {
            longest = longest.max(compression.blocks);
        }
        sender.unblocked();
        now = now + 1_000_000_000;
        while !sender.wire(now).is_empty() {
            let len = sender.wire(now).len();
            wire.extend_from_slice(sender.wire(now));
            sender.wrote(now, len);
        }
    }
    (wire, longest)
}

fn receive(limits: Limits, wire: &[u8]) -> (Vec<u8>, Result<(), StreamError>) {
    let mut receiver = Receiver::new(limits);
    let mut decompressors = Decompressors::new();
    let (mut at, mut got) = (0, Vec::new());
    while at < wire.len() {
        match receiver.feed(&wire[at..], &mut decompressors) {
            Ok(taken) => at += taken,
            Err(error) => return (got, Err(error)),
        }
        got.extend_from_slice(receiver.data());
        receiver.consume(receiver.data().len());
    }
    (got, receiver.end())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Raw blocks and blocks of other codecs in between, refusals, and jobs that end in the wrong order.
    #[test]
    fn any_split_of_a_running_context_gives_the_same_bytes(
        sizes in prop::collection::vec(1usize..9000, 3..40),
        parts in prop::collection::vec((0usize..3, 1usize..20_000), 1..12),
        piece_ns in prop_oneof![Just(1_000u64), Just(1_000_000), Just(50_000_000)],
        window_log in 15u8..19,
        idle: bool,
        which in 0..3usize,
    ) {
        let (words, noise) = (text(40_000), noise(20_000));
        let data: Vec<u8> = parts
            .iter()
            .flat_map(|&(kind, len)| match kind {
                0 => &words[..len],
                1 => &words[40_000 - len..],
                _ => &noise[..len],
            })
            .copied()
            .collect();
        let mut config = with_any(window_log, which);
        config.idle_history = idle;
        let (got, sender) = transfer_over(&config, &data, &sizes, piece_ns).unwrap();
        prop_assert_eq!(got, data);
        prop_assert!(sender.is_finished());
    }

    #[test]
    fn damage_to_a_running_context_is_noticed(
        at in 0usize..60_000, flip in 1u8.., which in 0..3usize,
    ) {
        let data = text(25_000);
        let mut wire = wire_of(&with_any(16, which), &data);
        let at = at % wire.len();
        wire[at] ^= flip;
        let (got, result) = receive(with_context(), &wire);
        // A bit of no consequence: a model that could have more memory, or a codec that does not occur.
        prop_assert!(result.is_err() || (got == data && (6..8).contains(&at)), "{result:?}");
        prop_assert!(data.starts_with(&got), "what was given out is right");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn several_blocks_at_a_time_give_the_same_bytes(
        which in 0..3usize, rows_len in 0..200_000usize, noise_len in 0..20_000usize,
    ) {
        let data = [rows(rows_len), noise(noise_len), text(rows_len / 2)].concat();
        let (wire, longest) = wire_and_run(&with_any(20, which), &data, true);
        let (got, end) = receive(with_context(), &wire);
        prop_assert_eq!(end, Ok(()));
        prop_assert!(got == data);
        prop_assert!(longest <= 8, "{}", longest);
    }
}

#[test]
fn a_stream_with_much_more_has_several_blocks_compressed_at_a_time() {
    let data = rows(1 << 20);
    let (wire, longest) = wire_and_run(&running(20), &data, true);
    assert!(longest > 1, "{longest}");
    let (got, end) = receive(with_context(), &wire);
    assert_eq!(end, Ok(()));
    assert!(got == data, "it is what was sent");
    assert_eq!(wire_and_run(&running(20), &data, false).1, 1);
}

#[test]
fn while_the_link_has_enough_to_do_several_blocks_are_waited_for() {
    let mut sender = Sender::new(&running(20)).unwrap();
    let (mut compressors, now, data) = (Compressors::new(), Instant::ZERO, rows(1 << 20));
    sender.expect_bulk();
    sender.expect_rate(now, 1e6);
    sender.accept(&data[..65_536]);
    sender.blocked(now);
    while sender.compress(&mut compressors, || now).is_some() {}
    let compressed = sender.stats().by_codec.values().map(|codec| codec.blocks).sum::<u64>();
    assert!((8..=16).contains(&compressed), "{compressed}");
    let left = 16 - compressed as usize;
    // Three and what was left over: that is too little, and with one more it is enough.
    sender.accept(&data[..(3 - left) * 4096]);
    assert_eq!(sender.compress(&mut compressors, || now), None);
    sender.accept(&data[..4096]);
    let compression = sender.compress(&mut compressors, || now);
    assert_eq!(compression.map(|it| it.blocks), Some(4));
    // What is left at the end does not wait.
    sender.accept(&data[..4096]);
    sender.finish();
    assert_eq!(sender.compress(&mut compressors, || now).map(|it| it.blocks), Some(1));
}

#[test]
fn what_was_said_megabytes_ago_is_not_said_again() {
    // Of letters, as what looks random is not even tried.
    let letters: Vec<u8> = noise(1 << 20).iter().map(|byte| b'?' + byte % 64).collect();
    let data = [&letters[..], &letters].concat();
    let mut config = Config::new(Strategy::Hull);
    config.set_codec("zstd:6").unwrap();
    let alone = wire_of(&config, &data).len();
    config.set_window(21);
    let wire = wire_of(&config, &data);
    assert!(receive(with_context(), &wire) == (data, Ok(())));
    assert!(alone > 3 << 19 && wire.len() < 900_000, "{alone}, {}", wire.len());
}

#[test]
fn a_context_must_be_accepted_with_its_window() {
    let wire = wire_of(&running(18), b"a context is an agreement");
    for (window_log, fits) in [(0, false), (17, false), (18, true), (23, true)] {
        let limits = Limits { window_log, ..Limits::default() };
        let (_, result) = receive(limits, &wire);
        assert_eq!(result.is_ok(), fits, "{window_log}: {result:?}");
        assert!(fits || matches!(result, Err(StreamError::Preamble(_))));
    }
}

#[test]
fn a_model_must_be_accepted_with_its_memory() {
    let mut config = running(18);
    config.set_model(24);
    let wire = wire_of(&config, b"a model is an agreement");
    assert_eq!(wire[3], 4, "the version");
    for (model_log, fits) in [(0, false), (23, false), (24, true), (26, true)] {
        let (_, result) = receive(Limits { model_log, ..with_context() }, &wire);
        assert_eq!(result.is_ok(), fits, "{model_log}: {result:?}");
        assert!(fits || matches!(result, Err(StreamError::Preamble(_))));
    }
}

/// Returns the bytes on the wire without models, with those of ppm, and with those of mix, too.
fn lens_with_models(data: &[u8]) -> [usize; 3] {
    [(0, false), (23, false), (23, true)].map(|(model_log, mixed_models)| {
        let mut config = Config { mixed_models, ..Config::new(Strategy::Hull) };
        config.set_window(20);
        config.set_model(model_log);
        let wire = wire_of(&config, data);
        assert!(receive(with_context(), &wire) == (data.to_vec(), Ok(())));
        wire.len()
    })
}

#[test]
fn over_a_slow_link_a_model_leaves_less() {
    let book = include_bytes!("../../../../data/text/book1.txt");
    let [zstd, ppm, mix] = lens_with_models(book);
    assert!(ppm < zstd * 9 / 10, "{ppm} and {zstd} bytes");
    assert_eq!(mix, ppm, "of prose it would leave no less");
    let [zstd, ppm, mix] = lens_with_models(&rows(1 << 20));
    assert!(ppm < zstd && mix < ppm * 92 / 100, "{mix}, {ppm} and {zstd} bytes");
}

/// An end that does not know of them, as those of before, or is not said to, gets none; and who does not accept them refuses them.
#[test]
fn mixed_models_are_for_who_accepts_them() {
    let book = &include_bytes!("../../../../data/text/book1.txt")[..300_000];
    let codecs = |config: &Config| wire_of(config, book)[7] & 0xc0;
    assert_eq!((codecs(&with_model(18)), codecs(&with_mixed_models(18))), (0x40, 0x80));
    let may_get = |mixed_models| {
        let mut config = Config { mixed_models, may_get_context: true, ..running(0) };
        config.idle_history = true;
        let wire = wire_of(&config, book);
        (wire[3], wire[7] & 0xc0)
    };
    assert_eq!((may_get(false), may_get(true)), ((6, 0x40), (6, 0xc0)));

    let refuses = Limits { mixed_models: false, ..with_context() };
    assert!(receive(refuses, &wire_of(&with_model(18), book)) == (book.to_vec(), Ok(())));
    for mixed in
        [with_mixed_models(18), Config { may_get_context: true, mixed_models: true, ..running(0) }]
    {
        let wire = wire_of(&mixed, book);
        assert!(receive(with_context(), &wire) == (book.to_vec(), Ok(())));
        let (got, result) = receive(refuses, &wire);
        assert!(got.is_empty() && matches!(result, Err(StreamError::Preamble(_))), "{result:?}");
    }
    // What was not announced is refused, too: here the bit is taken from the preamble.
    let mut config = with_mixed_models(18);
    config.codecs = vec![CodecSpec::with_default_level(CodecId::Mix), "lz4".parse().unwrap()];
    let mut wire = wire_of(&config, book);
    assert_eq!(wire[7] & 0xc0, 0x80);
    wire[7] ^= 0xc0;
    assert!(
        matches!(receive(with_context(), &wire), (got, Err(StreamError::Header(_))) if got.is_empty())
    );
}

/// Whoever feeds a receiver gets it back after each block that takes long, and knows it before the first.
#[test]
fn a_mixed_model_does_a_block_at_a_time() {
    let mut config = with_mixed_models(18);
    config.codecs = vec![CodecSpec::with_default_level(CodecId::Mix)];
    let data = text(50_000);
    let wire = wire_of(&config, &data);
    let (mut receiver, mut decompressors) = (Receiver::new(with_context()), Decompressors::new());
    let (mut at, mut got) = (0, Vec::new());
    while at < wire.len() {
        let had_model = receiver.has_model();
        let taken = receiver.feed(&wire[at..], &mut decompressors).unwrap();
        assert!(taken > 0);
        at += taken;
        let len = receiver.data().len();
        assert!(len <= 4096 && (len == 0 || had_model), "{len}");
        got.extend(receiver.take_all(Vec::new()));
    }
    assert!(got == data && receiver.end() == Ok(()));
}

#[test]
fn a_model_needs_memory_and_a_context() {
    let message = |window_log, model_log, codecs: &[&str]| {
        let mut config = running(window_log);
        config.model_log = model_log;
        let ppm = CodecSpec { id: CodecId::Ppm, level: 6 };
        let codecs = codecs.iter().map(|name| name.parse().unwrap_or(ppm));
        config.codecs = codecs.collect();
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(message(20, 24, &["zstd", "ppm"]), Ok(()));
    assert_eq!(message(20, 24, &["ppm"]), Ok(()));
    assert_eq!(message(20, 24, &["zstd"]), Ok(()));
    for (window_log, model_log) in [(0, 24), (20, 19), (20, 27), (20, 0)] {
        let error = message(window_log, model_log, &["zstd", "ppm"]).unwrap_err();
        assert!(error.contains("use 20 to 26"), "{error}");
    }
    let mut config = running(20);
    config.set_model(24);
    config.codecs.iter_mut().for_each(|codec| codec.level = 13);
    assert!(config.check().is_err());
    for which in [1, 2] {
        let more = with_any(20, which).context_bytes_max() - running(20).context_bytes_max();
        // And what a trial takes of four.
        let least = if which == 2 { 5 << 20 } else { 1 << 20 };
        assert!((least..least + (1 << 19)).contains(&more), "{more}");
    }
    let mixed = |change: fn(&mut Config)| {
        let mut config = with_mixed_models(20);
        config.codecs = vec![CodecSpec::with_default_level(CodecId::Mix)];
        change(&mut config);
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(mixed(|_| {}), Ok(()));
    assert!(mixed(|config| config.mixed_models = false).unwrap_err().contains("set mixed_models"));
    assert!(mixed(|config| config.model_log = 0).unwrap_err().contains("use 20 to 26"));
    assert!(mixed(|config| config.codecs[0].level = 2).is_err());
}

#[test]
fn an_idle_stream_holds_a_context_only_if_it_may() {
    for idle in [true, false] {
        let mut config = running(17);
        config.idle_history = idle;
        let mut sender = Sender::new(&config).unwrap();
        let mut receiver = Receiver::new(with_context());
        let (mut compressors, mut decompressors) = (Compressors::new(), Decompressors::new());
        let now = Instant::ZERO;
        sender.expect_rate(now, 1000.0);
        let mut held_meanwhile = 0;
        for _ in 0..2 {
            sender.accept(&text(9000));
            sender.blocked(now);
            while sender.compress(&mut compressors, || now).is_some() {}
            sender.unblocked();
            while !sender.is_idle() {
                let wire = sender.wire(now).to_vec();
                if wire.is_empty() {
                    sender.compress(&mut compressors, || now);
                    continue;
                }
                assert_eq!(receiver.feed(&wire, &mut decompressors), Ok(wire.len()));
                sender.wrote(now, wire.len());
                held_meanwhile = held_meanwhile.max(receiver.context_bytes());
                receiver.consume(receiver.data().len());
            }
            assert_eq!(receiver.context_bytes() > 0, idle);
        }
        assert!(held_meanwhile > 0, "there was a context");
        sender.abort(AbortReason::Reset);
    }
}

#[test]
fn the_heavy_levels_come_with_the_context() {
    let mut config = Config::new(Strategy::Hull);
    assert_eq!(config.context_bytes_max(), 0);
    let levels = config.codecs.len();
    config.set_window(20);
    assert_eq!(config.codecs.len(), levels + 3);
    config.set_window(20);
    assert_eq!(config.codecs.len(), levels + 3);
    assert_eq!(config.check(), Ok(()));
    let bytes = config.context_bytes_max();
    assert!((6 << 20..32 << 20).contains(&bytes), "{bytes}");
    config.window_log = 14;
    assert!(config.check().unwrap_err().to_string().contains("use 15 to 23"));
}

/// A running context with the usual blocks and buffer.
fn long_blocks() -> Config {
    let mut config = Config::new(Strategy::Hull);
    config.set_window(20);
    config
}

/// What is sent first over a link of which nothing is known but that its window is large, and how much the transport is to hold.
fn begun(presumes: bool, is_bulk: bool) -> (Vec<u8>, u32) {
    let mut sender = Sender::new(&long_blocks()).unwrap();
    let now = Instant::from_ns(1);
    if is_bulk {
        sender.expect_bulk();
    }
    if presumes {
        sender.presume_rate(now, 1e6, 128 << 10);
    }
    let text = text(100_000);
    assert_eq!(sender.accept(&text), text.len());
    sender.reported(now, &LinkReport { window_rate: 1e9, ..LinkReport::default() });
    if sender.wire(now).is_empty() {
        assert!(sender.compress(&mut Compressors::new(), || now).is_some());
    }
    (sender.wire(now).to_vec(), sender.not_sent_len())
}

#[test]
fn the_first_block_is_compressed_where_no_more_is_presumed() {
    let (raw, usual) = begun(false, false);
    assert!(raw.len() > 60_000, "{}", raw.len());
    let (wire, held) = begun(true, false);
    assert!(wire.len() < 40_000 && held < usual, "{} {held} {usual}", wire.len());
    let first = |wire: &[u8]| wire[8];
    assert_eq!(first(&wire) & 0x10, 0, "a message for itself");
    assert_eq!(first(&begun(true, true).0) & 0x10, 0x10, "what follows can refer to it");
}

#[test]
fn no_more_is_compressed_than_the_link_takes_for_a_while() {
    let mut sender = Sender::new(&long_blocks()).unwrap();
    let (mut compressors, now) = (Compressors::new(), Instant::from_ns(1));
    sender.expect_rate(now, 1000.0);
    let noisy: Vec<u8> =
        text(200_000).into_iter().zip(noise(200_000)).flat_map(|(a, b)| [a, b]).collect();
    while sender.accept(&noisy) > 0 {}
    sender.blocked(now);
    let mut jobs = 0;
    while sender.compress(&mut compressors, || now).is_some() {
        jobs += 1;
    }
    assert_eq!(jobs, 1, "the buffer has room for four");
    // Once that is gone, there is more.
    sender.unblocked();
    let len = sender.wire(now).len();
    assert!(len > 16 << 10, "{len}");
    sender.wrote(now, len);
    sender.blocked(now);
    assert!(sender.compress(&mut compressors, || now).is_some());
}
