//! What models leave of files that go over a thin link as streams, and the time that they take.
//!
//! ```text
//! cargo run --release -p dwell-stream --example model_bytes -- FILE...
//! ```
//!
//! Each row is a file and the codec of its stream: the bytes on the wire, headers with them, and nanoseconds a byte to compress and to
//! restore, by the clock: others on the machine add to these.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this is a program, and no part of the library"
)]

use std::error::Error;
use std::time::Instant as Clock;

use dwell_base::Instant;
use dwell_codec::CodecSpec;
use dwell_stream::{
    Compressors, Config, Decompressors, Limits, LinkReport, Receiver, Sender, Strategy,
};

const CODECS: [&str; 5] = ["zstd:9", "zstd:19", "ppm:4", "ppm:6", "mix"];
/// As `dwell send` has them with its usual memory.
const WINDOW_LOG: u8 = 23;
const MODEL_LOG: u8 = 24;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| file | bytes | codec | on the wire | of it | ns/byte here | and there |");
    println!("|---|---:|---|---:|---:|---:|---:|");
    for file in std::env::args().skip(1) {
        let data = std::fs::read(&file)?;
        for codec in CODECS {
            let (wire, compress_ns) = sent(&data, CodecSpec::of_stream(codec)?)?;
            let restore_ns = received(&wire, &data)?;
            let each = |ns: f64| ns / data.len() as f64;
            println!(
                "| {file} | {} | {codec} | {} | {:.4} | {:.0} | {:.0} |",
                data.len(),
                wire.len(),
                wire.len() as f64 / data.len() as f64,
                each(compress_ns),
                each(restore_ns)
            );
        }
    }
    Ok(())
}

/// The bytes of a stream over a link that is known to be thin, and the time that compressing took, in nanoseconds.
fn sent(data: &[u8], codec: CodecSpec) -> Result<(Vec<u8>, f64), Box<dyn Error>> {
    let mut config = Config::new(Strategy::Hull);
    config.mixed_models = true;
    config.set_window(WINDOW_LOG);
    config.set_model(MODEL_LOG);
    config.codecs = vec![codec];
    let (mut sender, mut compressors) = (Sender::new(&config)?, Compressors::new());
    let (mut now, mut wire, mut rest, mut took_ns) = (Instant::ZERO, Vec::new(), data, 0.0);
    sender.expect_rate(now, 1000.0);
    let report = LinkReport {
        delivered_rate: 1000.0,
        round_trip_ns: 40_000_000,
        queue_ns: 100_000_000,
        pending_bytes: 1 << 20,
        ..LinkReport::default()
    };
    for _ in 0..2 {
        sender.reported(now, &report);
        now = now + 300_000_000;
    }
    while !sender.is_finished() {
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        sender.blocked(now);
        let begin = Clock::now();
        while sender.compress(&mut compressors, || now).is_some() {}
        took_ns += begin.elapsed().as_nanos() as f64;
        sender.unblocked();
        now = now + 1_000_000_000;
        while !sender.wire(now).is_empty() {
            let len = sender.wire(now).len();
            wire.extend_from_slice(sender.wire(now));
            sender.wrote(now, len);
        }
    }
    Ok((wire, took_ns))
}

/// The time that restoring takes, in nanoseconds, if it gives the same bytes.
fn received(wire: &[u8], data: &[u8]) -> Result<f64, Box<dyn Error>> {
    let mut limits = Limits::in_order();
    (limits.window_log, limits.model_log, limits.mixed_models) = (WINDOW_LOG, MODEL_LOG, true);
    let (mut receiver, mut decompressors) = (Receiver::new(limits), Decompressors::new());
    let (mut at, mut got, begin) = (0, Vec::with_capacity(data.len()), Clock::now());
    while at < wire.len() {
        at += receiver.feed(&wire[at..], &mut decompressors)?;
        got.extend_from_slice(receiver.data());
        receiver.consume(receiver.data().len());
    }
    let took_ns = begin.elapsed().as_nanos() as f64;
    receiver.end()?;
    if got != data {
        return Err("other bytes came out".into());
    }
    Ok(took_ns)
}
