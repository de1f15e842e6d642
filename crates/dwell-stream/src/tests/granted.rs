//! Streams that get a running context on the way.

use dwell_base::{Instant, Rng};
use proptest::prelude::*;

use super::{referring, rows, text};
use crate::{
    AbortReason, Compressors, Config, Decompressors, Limits, LinkReport, Receiver, Sender,
    StreamError,
};

const WINDOW_LOG: u8 = 20;

/// Settings of both directions.
fn config() -> Config {
    // Of level 1 the tables are too small for what was said long ago.
    let codecs = vec!["zstd:6".parse().unwrap()];
    Config { may_get_context: true, codecs, ..referring() }
}

/// Digits that only repetitions make much shorter.
fn digits(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed);
    (0..len).map(|_| b"0123456789abcdef"[rng.below(16) as usize]).collect()
}

/// One direction of a connection, over a slow link.
struct Line {
    sender: Sender,
    receiver: Receiver,
    wire: Vec<u8>,
    got: Vec<u8>,
}

impl Line {
    fn new(config: &Config) -> Self {
        let mut sender = Sender::new(config).unwrap();
        sender.expect_rate(Instant::ZERO, 1e5);
        let limits = Limits { mixed_models: config.mixed_models, ..Limits::in_order() };
        let receiver = Receiver::new(limits);
        Self { sender, receiver, wire: Vec::new(), got: Vec::new() }
    }

    /// Moves at most so many bytes, and compresses what waits then.
    fn step(&mut self, now: Instant, most: usize, compressors: &mut Compressors) {
        let offered = self.sender.wire(now);
        let len = offered.len().min(most);
        let refused = len < offered.len();
        self.wire.extend_from_slice(&offered[..len]);
        let (mut at, mut decompressors) = (0, Decompressors::new());
        while at < len {
            at += self.receiver.feed(&offered[at..len], &mut decompressors).unwrap();
        }
        self.sender.wrote(now, len);
        if refused {
            self.sender.blocked(now);
        }
        self.got.extend_from_slice(self.receiver.data());
        self.receiver.consume(self.receiver.data().len());
        self.sender.compress(compressors, || now);
    }
}

/// A connection whose first direction has data.
struct Connection {
    there: Line,
    back: Line,
    now: Instant,
    compressors: Compressors,
}

impl Connection {
    fn new() -> Self {
        let (there, back) = (Line::new(&config()), Line::new(&config()));
        Self { there, back, now: Instant::ZERO, compressors: Compressors::new() }
    }

    fn step(&mut self, most: usize) {
        self.now = self.now + 1_000_000;
        self.there.step(self.now, most, &mut self.compressors);
        self.back.step(self.now, most, &mut self.compressors);
    }

    /// The receiver grants a context, and the sender gets it.
    fn grant(&mut self, window_log: u8, model_log: u8) {
        self.there.receiver.grant(window_log, model_log).unwrap();
        assert!(self.back.sender.grant_context(window_log, model_log));
        self.hear();
    }

    fn hear(&mut self) {
        self.step(500);
        if let Some((window_log, model_log)) = self.back.receiver.take_offer() {
            let sender = &mut self.there.sender;
            if !sender.get_context(self.now, window_log, model_log) {
                sender.decline_context();
            }
        }
    }

    /// Sends all of it, to the last byte; returns how many bytes that took.
    fn send(&mut self, data: &[u8]) -> usize {
        let (before, mut rest) = (self.there.wire.len(), data);
        while !rest.is_empty() || !self.there.sender.is_idle() {
            rest = &rest[self.there.sender.accept(rest)..];
            self.step(100);
        }
        self.there.wire.len() - before
    }

    fn finish(&mut self) {
        self.there.sender.finish();
        self.back.sender.finish();
        while !self.there.sender.is_finished() || !self.back.sender.is_finished() {
            self.step(500);
        }
        assert_eq!((self.there.receiver.end(), self.back.receiver.end()), (Ok(()), Ok(())));
    }
}

#[test]
fn what_was_said_long_ago_is_found_with_a_context_that_was_granted() {
    // Words in which a context pays from the beginning, and digits that were said long ago then.
    let words = text(200_000);
    let digits = digits(200_000, 1);
    let pieces = words.chunks(2000).zip(digits.chunks(2000));
    let data: Vec<u8> = pieces.flat_map(|(words, digits)| [words, digits].concat()).collect();
    let mut connection = Connection::new();
    let first = connection.send(&data);
    assert_eq!(connection.there.wire[3], 6);
    assert!(connection.send(&data) > first * 9 / 10, "the history is shorter");
    assert!(connection.there.receiver.may_grant() && !connection.there.receiver.has_granted());
    connection.grant(WINDOW_LOG, 0);
    assert!(!connection.there.receiver.may_grant());
    connection.send(&data);
    let again = connection.send(&data);
    assert!(again < first / 5, "{again} of {first}");
    let held = connection.there.receiver.context_bytes();
    assert!((1 << 18..(3 << WINDOW_LOG) + (1 << 19)).contains(&held), "{held}");
    assert_eq!(connection.there.receiver.history_bytes(), 0);

    // Both ends are rid of it, and there may be another one.
    assert!(connection.there.sender.context_unused_ns(connection.now).is_some());
    assert!(connection.there.sender.drop_context());
    assert!(!connection.there.sender.drop_context());
    connection.send(b"");
    let receiver = &connection.there.receiver;
    assert!(!receiver.has_granted() && receiver.may_grant());
    assert_eq!((receiver.context_bytes(), receiver.history_bytes()), (0, 0));
    let short = &data[..60_000];
    connection.send(short);
    connection.send(short);
    assert_eq!(connection.there.receiver.context_bytes(), 0);
    connection.grant(WINDOW_LOG, 21);
    connection.send(short);
    connection.finish();
    let all = [&data[..], &data, &data, &data, short, short, short].concat();
    assert!(connection.there.got == all);
}

#[test]
fn a_context_that_was_not_granted_is_refused() {
    let data = digits(300_000, 1);
    let mut connection = Connection::new();
    connection.grant(WINDOW_LOG, 0);
    connection.send(&data);
    for granted in [None, Some(15)] {
        let mut receiver = Receiver::new(Limits::in_order());
        if let Some(window_log) = granted {
            receiver.grant(window_log, 0).unwrap();
        }
        let (mut at, wire) = (0, &connection.there.wire);
        let error = loop {
            match receiver.feed(&wire[at..], &mut Decompressors::new()) {
                Ok(taken) => at += taken,
                Err(error) => break error,
            }
            receiver.consume(receiver.data().len());
        };
        assert!(!matches!(error, StreamError::Truncated), "{error}");
        assert!(receiver.context_bytes() < 1 << 19);
    }
    assert!(Receiver::new(Limits::in_order()).grant(0, 0).is_err());
    assert!(Receiver::new(Limits::in_order()).grant(14, 0).is_err());
    assert!(Receiver::new(Limits::in_order()).grant(20, 19).is_err());
}

/// Neither says anything of contexts to an end that knows nothing of them.
#[test]
fn nothing_is_granted_on_a_stream_that_gets_none() {
    let mut sender = Sender::new(&referring()).unwrap();
    assert!(!sender.grant_context(WINDOW_LOG, 0));
    assert!(!sender.get_context(Instant::ZERO, WINDOW_LOG, 0));
    sender.decline_context();
    assert_eq!(sender.context_unused_ns(Instant::ZERO), None);
    assert!(!sender.drop_context() && sender.is_idle());
    let mut connection = Connection::new();
    connection.finish();
    assert!(!connection.back.sender.grant_context(WINDOW_LOG, 0), "it has ended");
    assert!(!connection.there.receiver.may_grant());
}

#[test]
fn the_next_stream_begins_without_it() {
    let data = digits(60_000, 1);
    let mut connection = Connection::new();
    connection.there.sender.keep_for_next();
    connection.grant(WINDOW_LOG, 20);
    connection.send(&data);
    connection.finish();
    let Line { sender, receiver, .. } = connection.there;
    let (sender, receiver) = (sender.into_next().unwrap(), receiver.into_next().unwrap());
    assert_eq!((receiver.context_bytes(), receiver.history_bytes()), (0, 0));
    assert!(!receiver.has_granted());
    let there = Line { sender, receiver, wire: Vec::new(), got: Vec::new() };
    let mut connection = Connection { there, ..Connection::new() };
    connection.send(&data);
    assert_eq!(connection.there.wire[3], 7);
    assert!(connection.there.receiver.may_grant());
    connection.finish();
    assert!(connection.there.got == data);
}

#[test]
fn what_is_granted_may_be_declined_at_any_time() {
    let data = text(60_000);
    let mut connection = Connection::new();
    let mut rest = &data[..];
    while !rest.is_empty() {
        rest = &rest[connection.there.sender.accept(rest)..];
        connection.step(100);
        if connection.there.receiver.may_grant() {
            connection.there.receiver.grant(WINDOW_LOG, 0).unwrap();
        }
        // As often as it likes: it is said once until it is sent.
        (0..9).for_each(|_| connection.there.sender.decline_context());
        assert_eq!(connection.there.sender.context_unused_ns(connection.now), None);
    }
    let declined = connection.there.wire.iter().filter(|&&byte| byte == 0xf3).count();
    connection.finish();
    assert!(declined > 0 && connection.there.got == data);
    // A second one is passed over.
    let mut connection = Connection::new();
    connection.grant(WINDOW_LOG, 0);
    assert!(!connection.there.sender.get_context(connection.now, 15, 0));
    connection.there.sender.decline_context();
    connection.send(&data);
    assert!(connection.there.receiver.has_granted());
}

/// One direction ends, while the other goes on.
#[test]
fn the_end_of_a_stream_ends_its_context() {
    for ends_idle in [true, false] {
        let data = text(200_000);
        let mut connection = Connection::new();
        connection.grant(WINDOW_LOG, 20);
        let len = if ends_idle { connection.send(&data) } else { 0 };
        if len == 0 {
            connection.there.sender.accept(&data[..9000]);
        }
        connection.there.sender.finish();
        while !connection.there.sender.is_finished() {
            connection.step(500);
        }
        let receiver = &connection.there.receiver;
        assert_eq!(receiver.end(), Ok(()));
        assert_eq!((receiver.context_bytes(), receiver.has_granted()), (0, false));
        assert_eq!(connection.there.sender.context_unused_ns(connection.now), None);
    }
}

#[test]
fn giving_up_is_said_though_a_notice_was_refused() {
    let mut sender = Sender::new(&config()).unwrap();
    let now = Instant::ZERO;
    assert!(sender.grant_context(WINDOW_LOG, 0));
    assert!(!sender.wire(now).is_empty());
    sender.blocked(now);
    sender.abort(AbortReason::Reset);
    let wire = sender.wire(now).to_vec();
    let mut receiver = Receiver::new(Limits::in_order());
    let fed = receiver.feed(&wire, &mut Decompressors::new());
    assert_eq!(fed, Err(StreamError::Aborted(AbortReason::Reset)));
}

/// The receiver minds how soon another model comes, also if the one before was in another context.
#[test]
fn another_context_has_no_other_model_too_soon() {
    // Of which nothing that is known says that a model is worse.
    let data = digits(40_000, 1);
    let mut connection = Connection::new();
    let config = Config { codecs: Config::default().codecs, ..config() };
    connection.there = Line::new(&config);
    for order in 0..20 {
        connection.grant(15, 20 + order % 2);
        connection.there.sender.expect_rate(connection.now, 1000.0);
        report(&mut connection);
        connection.now = connection.now + 300_000_000;
        report(&mut connection);
        connection.send(&data);
        connection.there.sender.drop_context();
        connection.send(b"");
        assert!(!connection.there.receiver.has_granted());
    }
    let models = connection
        .there
        .sender
        .stats()
        .by_codec
        .keys()
        .filter(|codec| codec.id == dwell_codec::CodecId::Ppm);
    assert!(models.count() > 0, "{:?}", connection.there.sender.stats());
    connection.finish();
}

/// If both ends know that, the model of a context that is granted may be of mix.
#[test]
fn a_context_that_is_granted_may_mix() {
    for mixed_models in [true, false] {
        let codecs = Config::default().codecs;
        let (block_len, buffer_len) = (64 << 10, 256 << 10);
        let config = Config { mixed_models, codecs, block_len, buffer_len, ..config() };
        let mut connection = Connection { there: Line::new(&config), ..Connection::new() };
        connection.grant(15, 22);
        connection.there.sender.expect_rate(connection.now, 1000.0);
        report(&mut connection);
        connection.now = connection.now + 300_000_000;
        report(&mut connection);
        let data = rows(600_000);
        connection.send(&data);
        let held = connection.there.receiver.context_bytes();
        assert!(held as u64 <= Receiver::context_bytes_max(15, 22), "{held}");
        let mut codecs = connection.there.sender.stats().by_codec.keys();
        let is_mixed = codecs.any(|codec| codec.id == dwell_codec::CodecId::Mix);
        assert_eq!((is_mixed, connection.there.wire[7] >> 7 == 1), (mixed_models, mixed_models));
        connection.finish();
        assert!(connection.there.got == data);
    }
}

/// Nobody holds a history that nothing will refer to.
#[test]
fn a_context_that_has_not_begun_has_no_history_beside_it() {
    let mut noise = vec![0; 300_000];
    Rng::from_seed(1).fill(&mut noise);
    let mut connection = Connection::new();
    connection.send(&text(30_000));
    connection.grant(WINDOW_LOG, 0);
    connection.send(&noise);
    assert_eq!(connection.there.receiver.history_bytes(), 0);
}

/// A link that idles now and then, of which TCP says that it is slow.
fn report(connection: &mut Connection) {
    let report = LinkReport {
        delivered_rate: 1e3,
        round_trip_ns: 40_000_000,
        queue_ns: 100_000_000,
        pending_bytes: 1 << 20,
        ..LinkReport::default()
    };
    connection.there.sender.reported(connection.now, &report);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whenever contexts are granted and dropped, and whatever is sent meanwhile, also if what waits can't be held while idle.
    #[test]
    fn contexts_that_come_and_go_change_no_byte(
        seed: u64, steps in 20usize..400, idle_history: bool, gives_up: bool, all_codecs: bool,
    ) {
        let mut rng = Rng::from_seed(seed);
        let mut connection = Connection::new();
        let mut config = Config { idle_history, ..config() };
        if all_codecs {
            // Models among them, once they are granted.
            config.codecs = Config::default().codecs;
        }
        connection.there = Line::new(&config);
        let mut noise = vec![0; 30_000];
        rng.fill(&mut noise);
        let contents = [text(60_000), noise, digits(40_000, seed)];
        let mut sent = Vec::new();
        let mut granted = 0;
        for _ in 0..steps {
            let most = [7, 500, 5000][rng.below(3) as usize];
            match rng.below(8) {
                0..4 => {
                    let content = &contents[rng.below(3) as usize];
                    let from = rng.below(content.len() as u64) as usize;
                    let len = (rng.below(9000) as usize).min(content.len() - from);
                    let taken = connection.there.sender.accept(&content[from..from + len]);
                    sent.extend_from_slice(&content[from..from + taken]);
                    connection.step(most);
                }
                4 => report(&mut connection),
                5 if connection.there.receiver.may_grant() => {
                    let (window_log, model_log) = (15 + rng.below(4) as u8, 20 * rng.below(2) as u8);
                    granted = (3 << window_log) + (1 << 19) + (1 << 20) + (192 << 10);
                    connection.there.receiver.grant(window_log, model_log).unwrap();
                    prop_assert!(connection.back.sender.grant_context(window_log, model_log));
                }
                6 => drop(connection.there.sender.drop_context()),
                _ => connection.hear(),
            }
            prop_assert!(connection.there.receiver.context_bytes() <= granted);
            prop_assert!(sent.starts_with(&connection.there.got));
        }
        if gives_up {
            connection.there.sender.abort(AbortReason::Reset);
            let now = connection.now;
            let wire = connection.there.sender.wire(now).to_vec();
            let fed = connection.there.receiver.feed(&wire, &mut Decompressors::new());
            prop_assert_eq!(fed, Err(StreamError::Aborted(AbortReason::Reset)));
        } else {
            connection.finish();
            prop_assert!(connection.there.got == sent);
        }
    }

    #[test]
    fn any_damage_is_noticed(at: u32, flip in 1u8..) {
        let data = [text(40_000), digits(30_000, 1), text(50_000)];
        let mut connection = Connection::new();
        connection.send(&data[0]);
        connection.grant(WINDOW_LOG, 20);
        connection.send(&data[1]);
        prop_assert!(connection.there.sender.drop_context());
        connection.send(&data[2]);
        connection.finish();
        let (mut wire, data) = (connection.there.wire, data.concat());
        let at = at as usize % wire.len();
        wire[at] ^= flip;
        let mut receiver = Receiver::new(Limits::in_order());
        receiver.grant(WINDOW_LOG, 20).unwrap();
        let (mut at, mut got, mut result) = (0, Vec::new(), Ok(()));
        while at < wire.len() && result.is_ok() {
            match receiver.feed(&wire[at..], &mut Decompressors::new()) {
                Ok(taken) => at += taken,
                Err(error) => result = Err(error),
            }
            got.extend_from_slice(receiver.data());
            receiver.consume(receiver.data().len());
        }
        let result = result.and_then(|()| receiver.end());
        prop_assert!(data.starts_with(&got), "what was given out is right");
        // A bit of no consequence: what is held longer, or a codec that does not occur.
        prop_assert!(result.is_err() || got == data);
    }
}
