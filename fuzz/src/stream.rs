//! What must hold of `dwell-stream` for any bytes.

use dwell_base::Instant;
use dwell_stream::{
    Compressors, Config, Decompressors, Limits, LinkReport, Receiver, Sender, Strategy,
};

/// The longest window of a running context that is accepted.
const WINDOW_LOG: u8 = 18;
/// The most memory of a model in its place.
const MODEL_LOG: u8 = 21;
/// What is held of output, a block, blocks out of order, and a history.
const HELD_BYTES_MAX: usize = 8 << 20;
/// What is held of a context.
const CONTEXT_BYTES_MAX: usize = (3 << WINDOW_LOG) + (1 << 19) + (1 << MODEL_LOG) + (192 << 10);

/// Bytes from anyone, after a byte that says in which pieces they come: restored or refused, with
/// bounded memory, and the same in whatever pieces.
pub fn receive(bytes: &[u8]) {
    let Some((&piece, wire)) = bytes.split_first() else { return };
    let whole = received(wire, wire.len().max(1));
    let pieces = received(wire, usize::from(piece) + 1);
    assert_eq!(whole, pieces, "the pieces made a difference");
}

/// What was given out, and whether the stream came to its end; and the streams behind it, which may refer to it.
fn received(wire: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut limits = Limits::default();
    (limits.window_log, limits.model_log) = (WINDOW_LOG, MODEL_LOG);
    limits.mixed_models = true;
    let mut receiver = Receiver::new(limits);
    // Once, whatever the stream is: after each piece it would be another time in other pieces.
    receiver.grant(WINDOW_LOG, MODEL_LOG).expect("there can be such a context");
    let (mut decompress, mut got) = (Decompressors::new(), Vec::new());
    for mut bytes in wire.chunks(piece) {
        while !bytes.is_empty() {
            let result = receiver.feed(bytes, &mut decompress);
            assert!(receiver.data().len() <= limits.output_len + limits.block_len);
            assert!(receiver.context_bytes() <= CONTEXT_BYTES_MAX);
            got.extend_from_slice(receiver.data());
            receiver.consume(receiver.data().len());
            assert!(receiver.held() <= HELD_BYTES_MAX);
            match result {
                Ok(taken) => bytes = &bytes[taken..],
                Err(_) => return (got, false),
            }
            // A stream may restore to a thousand times its length: enough is enough.
            if got.len() > 1 << 20 {
                return (Vec::new(), false);
            }
            if receiver.is_finished() && !bytes.is_empty() {
                receiver = receiver.into_next().expect("it has come to its end");
            }
        }
    }
    (got, receiver.end().is_ok())
}

/// A byte for the strategy, one for the sizes, and data: they come out again. The upper half of strategies have a
/// running context, over a link that is known to be slow; the upper quarter may have models, those of the upper eighth mix. Where a stream leaves
/// something to the next, the data come once more on that.
pub fn round_trip(bytes: &[u8]) {
    let Some((&[strategy, sizes], data)) = bytes.split_first_chunk::<2>() else { return };
    let framed: Vec<Strategy> =
        Strategy::ALL.into_iter().filter(|&strategy| strategy != Strategy::Plain).collect();
    let mut config = Config::new(framed[usize::from(strategy) % framed.len()]);
    config.block_len = 4096;
    config.buffer_len = 8192;
    config.mss = 64 + usize::from(strategy);
    let has_context = strategy >= 128;
    if has_context {
        config.set_window(15 + strategy % 4);
        if strategy >= 192 {
            config.mixed_models = strategy >= 224;
            config.set_model(20 + strategy % 2);
            if config.mixed_models {
                // It would be tried beside ppm first, on longer blocks.
                config.codecs.retain(|codec| codec.id.name() != "ppm");
            }
        }
    }
    let mut sender = Sender::new(&config).expect("a possible configuration");
    if has_context {
        sender.expect_rate(Instant::ZERO, 1e5);
        // With a queue before it.
        let (delivered_rate, queue_ns, pending_bytes) = (1e5, 100_000_000, 1 << 20);
        let report =
            LinkReport { delivered_rate, queue_ns, pending_bytes, ..LinkReport::default() };
        sender.reported(Instant::ZERO, &report);
        sender.reported(Instant::ZERO + 500_000_000, &report);
    }
    let mut limits = Limits::default();
    (limits.window_log, limits.model_log) = (WINDOW_LOG, MODEL_LOG);
    limits.mixed_models = true;
    let mut receiver = Receiver::new(limits);
    sender.keep_for_next();
    pass(&mut sender, &mut receiver, data, sizes);
    let (sender, receiver) = (sender.into_next(), receiver.into_next());
    if let Some(mut sender) = sender {
        pass(&mut sender, &mut receiver.expect("it has come to its end"), data, sizes);
    }
}

/// Sends a whole stream.
fn pass(sender: &mut Sender, receiver: &mut Receiver, data: &[u8], sizes: u8) {
    let (mut compress, mut decompress) = (Compressors::new(), Decompressors::new());
    let (mut rest, mut got, mut now) = (data, Vec::new(), Instant::ZERO + 500_000_000);
    while !sender.is_finished() {
        now = now + 100_000;
        let piece = rest.len().min(1 + 7 * usize::from(sizes));
        rest = &rest[sender.accept(&rest[..piece])..];
        if rest.is_empty() {
            sender.finish();
        }
        let wire = sender.wire(now);
        let len = wire.len().min(1 + 5 * usize::from(sizes));
        let refused = len < wire.len();
        let taken = receiver.feed(&wire[..len], &mut decompress).expect("what was sent is right");
        sender.wrote(now, taken);
        if refused {
            sender.blocked(now);
        }
        got.extend_from_slice(receiver.data());
        receiver.consume(receiver.data().len());
        sender.compress(&mut compress, || now);
    }
    receiver.end().expect("all was sent");
    assert_eq!(got, data);
}
