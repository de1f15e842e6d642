//! The gain and the cost of contexts, by level and window.
//!
//! ```text
//! cargo run --release -p dwell-codec --example context_ratio -- FILE... [--packets N] [LEVEL...]
//! ```
//!
//! The files are cut into packets of 1,408 bytes: as segments of four TCP connections that take turns,
//! each of which has a quarter of the files, with an IPv4 and a TCP header before each. A batch is
//! six packets, or N. Each level is measured with windows of 128 KiB, 1 MiB and 8 MiB: the bytes after
//! compression by those before, megabytes (of original bytes) a second at both ends, the memory of
//! both, and how long it takes to begin a generation from a base as long as the window, 1 MiB at most.
//!
//! All rows take turns for a number of rounds, and for each batch the fastest round counts: other
//! load on the machine can only add time.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads files and clocks")]
#![allow(clippy::disallowed_macros, reason = "a program, not a pure tier: prints")]

use std::time::Instant;

use dwell_codec::{Base, ContextDecoder, ContextEncoder, ContextSpec};

const PACKET_LEN: usize = 1408;
const HEADERS_LEN: usize = 40;
const CONNECTIONS: usize = 4;
const ROUNDS: usize = 5;
/// More would only take longer.
const BYTES_MAX: usize = 16 << 20;
const LEVELS: [i32; 7] = [1, 3, 6, 9, 12, 15, 19];
const WINDOW_LOGS: [u8; 3] = [17, 20, 23];

/// A line of the table.
struct Row {
    spec: ContextSpec,
    ratio: f64,
    /// For each batch.
    compress_ns: Vec<f64>,
    decompress_ns: Vec<f64>,
    begin_ns: f64,
    encoder_bytes: usize,
    decoder_bytes: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut levels, mut bytes, mut packets_per_batch) = (Vec::new(), Vec::new(), 6);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--packets" {
            let count = arguments.next().and_then(|count| count.parse().ok());
            packets_per_batch = count
                .filter(|count| (1..=45).contains(count))
                .ok_or("--packets wants a number from 1 to 45")?;
        } else if let Ok(level) = argument.parse() {
            levels.push(level);
        } else {
            bytes.extend(std::fs::read(&argument).map_err(|e| format!("{argument}: {e}"))?);
        }
    }
    if bytes.is_empty() {
        return Err("name the files to send, for instance data/text/book1.txt".into());
    }
    bytes.truncate(BYTES_MAX);
    let batches: Vec<_> =
        packets(&bytes).chunks(packets_per_batch).map(<[Vec<u8>]>::concat).collect();
    if levels.is_empty() {
        levels.extend(LEVELS);
    }
    let specs = WINDOW_LOGS
        .into_iter()
        .flat_map(|window_log| levels.iter().map(move |&level| ContextSpec { level, window_log }));
    let mut rows: Vec<_> = specs.map(Row::new).collect();
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.measure(&batches)?;
        }
    }
    print(&rows, &batches);
    Ok(())
}

/// The segments of connections that take turns.
fn packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let payload_len = PACKET_LEN - HEADERS_LEN;
    let shares: Vec<_> = bytes.chunks(bytes.len().div_ceil(CONNECTIONS)).collect();
    let longest = shares.iter().map(|share| share.len().div_ceil(payload_len)).max().unwrap_or(0);
    let mut packets = Vec::new();
    for at in 0..longest {
        for (connection, share) in shares.iter().enumerate() {
            let Some(payload) = share.chunks(payload_len).nth(at) else { continue };
            packets.push(segment(connection as u8, at, packets.len(), payload));
        }
    }
    packets
}

/// A packet with headers as a connection has them: its addresses and ports, a number that counts
/// its bytes, and checksums that nothing predicts.
fn segment(connection: u8, at: usize, id: usize, payload: &[u8]) -> Vec<u8> {
    let len = ((HEADERS_LEN + payload.len()) as u16).to_be_bytes();
    let id = (id as u16).to_be_bytes();
    let sequence =
        ((at * (PACKET_LEN - HEADERS_LEN)) as u32).wrapping_add(0x1234_5678).to_be_bytes();
    let sum = |seed: u32| {
        let mixed = payload.iter().fold(seed, |sum, &byte| sum.wrapping_mul(31) ^ u32::from(byte));
        (mixed ^ u32::from_be_bytes(sequence)) as u16
    };
    let ip_sum = sum(u32::from(u16::from_be_bytes(id))).to_be_bytes();
    let tcp_sum = sum(u32::from(connection)).to_be_bytes();
    [
        &[0x45, 0][..],
        &len,
        &id,
        &[0x40, 0, 64, 6],
        &ip_sum,
        &[10, 0, 0, 1, 10, 0, 1, 2, 0x01, 0xbb, 0xc0, connection],
        &sequence,
        &[0x9a, 0xbc, 0xde, connection, 0x50, 0x10, 0x01, 0xf5],
        &tcp_sum,
        &[0, 0],
        payload,
    ]
    .concat()
}

impl Row {
    fn new(spec: ContextSpec) -> Self {
        Self {
            spec,
            ratio: 1.0,
            compress_ns: Vec::new(),
            decompress_ns: Vec::new(),
            begin_ns: f64::INFINITY,
            encoder_bytes: 0,
            decoder_bytes: 0,
        }
    }

    fn measure(&mut self, batches: &[Vec<u8>]) -> Result<(), Box<dyn std::error::Error>> {
        let window_log = self.spec.window_log;
        let mut encoder = ContextEncoder::new(self.spec, window_log)?;
        let (mut payloads, mut ends) = (Vec::new(), Vec::new());
        self.compress_ns.resize(batches.len(), f64::INFINITY);
        self.decompress_ns.resize(batches.len(), f64::INFINITY);
        for (batch, best_ns) in batches.iter().zip(&mut self.compress_ns) {
            let start = Instant::now();
            encoder.compress(batch, &mut payloads)?;
            *best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
            ends.push(payloads.len());
        }

        let mut decoder = ContextDecoder::new(window_log);
        decoder.begin(window_log, Base::default())?;
        let (mut data, mut from) = (Vec::new(), 0);
        for ((batch, &end), best_ns) in batches.iter().zip(&ends).zip(&mut self.decompress_ns) {
            data.resize(batch.len(), 0);
            let start = Instant::now();
            decoder.decode(&payloads[from..end], &mut data)?;
            *best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
            assert!(data == *batch, "what comes out is what went in");
            from = end;
        }
        self.ratio = payloads.len() as f64 / encoder.offset() as f64;

        // The first batch of a generation pays for it; what it costs by itself is next to nothing.
        let base = encoder.base_at(encoder.offset()).ok_or("the end is always there")?;
        let start = Instant::now();
        encoder.begin(self.spec, base)?;
        encoder.compress(b"a", &mut payloads)?;
        self.begin_ns = self.begin_ns.min(start.elapsed().as_nanos() as f64);
        self.encoder_bytes = encoder.memory_bytes();
        decoder.begin(window_log, base)?;
        self.decoder_bytes = decoder.memory_bytes();
        Ok(())
    }
}

fn print(rows: &[Row], batches: &[Vec<u8>]) {
    let bytes: usize = batches.iter().map(Vec::len).sum();
    println!("{} batches, {bytes} bytes", batches.len());
    println!(
        "| window | level | ratio | compress, MB/s | restore, MB/s | begin, ms | encoder, MiB | decoder, MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows {
        let mb_per_s = |ns: &[f64]| bytes as f64 * 1e3 / ns.iter().sum::<f64>();
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        println!(
            "| {} KiB | {} | {:.3} | {:.0} | {:.0} | {:.2} | {:.1} | {:.1} |",
            (1 << row.spec.window_log) / 1024,
            row.spec.level,
            row.ratio,
            mb_per_s(&row.compress_ns),
            mb_per_s(&row.decompress_ns),
            row.begin_ns / 1e6,
            mib(row.encoder_bytes),
            mib(row.decoder_bytes),
        );
    }
}
