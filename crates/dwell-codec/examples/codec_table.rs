//! The gain and the cost of each codec per packet, by length of packet.
//!
//! ```text
//! cargo run --release -p dwell-codec --example codec_table -- FILE... [CODEC...]
//! ```
//!
//! An argument that reads like a codec (`zstd:3`) is one; all others are files. The second
//! half of each file is cut into packets. The rows with `+d` use a dictionary of 16 KiB, made
//! of pieces of the first halves: as a link could have learned from earlier traffic of the kind. A
//! packet that does not shrink counts as it is, as a relay would send it.
//!
//! All rows take turns for a number of rounds, and each shows its fastest round: other load on the
//! machine can only add time. `copy` is the row without a codec.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads files and clocks")]
#![allow(clippy::disallowed_macros, reason = "a program, not a pure tier: prints")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dwell_codec::{CodecId, CodecSpec, Compressor, Decompressor, Dictionary};

const PACKET_LENS: [usize; 5] = [64, 128, 256, 576, 1400];
const PACKETS_PER_FILE: usize = 100;
const ROUNDS: usize = 25;
const DICTIONARY_LEN: usize = 16 << 10;
const DEFAULT_CODECS: [&str; 9] =
    ["lz4", "lz4:8", "zstd:-3", "zstd:1", "zstd:3", "zstd:9", "zstd:19", "deflate:1", "deflate:6"];

/// A line of the table.
struct Row {
    name: String,
    /// None if packets are only copied.
    compressor: Option<Compressor>,
    cells: Vec<Cell>,
}

/// The results of a row for one length of packet.
#[derive(Clone, Copy)]
struct Cell {
    ratio: f64,
    compress_ns: f64,
    decompress_ns: f64,
}

impl Default for Cell {
    fn default() -> Self {
        Self { ratio: 1.0, compress_ns: f64::INFINITY, decompress_ns: f64::INFINITY }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut specs, mut files) = (Vec::new(), Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.parse::<CodecSpec>() {
            Ok(spec) => specs.push(spec),
            Err(_) => files.push(std::fs::read(&argument).map_err(|e| format!("{argument}: {e}"))?),
        }
    }
    if files.is_empty() {
        return Err("name the files to cut into packets, for instance data/text/book1.txt".into());
    }
    if specs.is_empty() {
        specs = DEFAULT_CODECS.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    }
    let mut rows = rows(&specs, &files)?;
    let packets: Vec<_> = PACKET_LENS.iter().map(|&len| packets(&files, len)).collect();
    let mut decompressor = Decompressor::new();
    for _ in 0..ROUNDS {
        for (class, packets) in packets.iter().enumerate() {
            for row in &mut rows {
                measure(row, class, packets, &mut decompressor);
            }
        }
    }
    print(&rows);
    Ok(())
}

fn rows(specs: &[CodecSpec], files: &[Vec<u8>]) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let dictionary = Arc::new(Dictionary::new(1, pieces_for_dictionary(files))?);
    let row = |name: String, compressor| Row {
        name,
        compressor,
        cells: vec![Cell::default(); PACKET_LENS.len()],
    };
    let mut rows = vec![row("copy".into(), None)];
    for &spec in specs {
        rows.push(row(spec.to_string(), Some(Compressor::new(spec, None)?)));
        if spec.id.takes_dictionary() {
            let compressor = Compressor::new(spec, Some(Arc::clone(&dictionary)))?;
            rows.push(row(format!("{spec} +d"), Some(compressor)));
        }
    }
    Ok(rows)
}

/// Pieces of 512 bytes, evenly from the first halves of all files.
fn pieces_for_dictionary(files: &[Vec<u8>]) -> Vec<u8> {
    const PIECE_LEN: usize = 512;
    let count = (DICTIONARY_LEN / PIECE_LEN / files.len()).max(1);
    let pieces = files.iter().flat_map(|file| evenly(&file[..file.len() / 2], PIECE_LEN, count));
    let mut bytes = pieces.flatten().copied().collect::<Vec<u8>>();
    bytes.truncate(DICTIONARY_LEN);
    bytes
}

fn packets(files: &[Vec<u8>], len: usize) -> Vec<&[u8]> {
    let halves = files.iter().map(|file| &file[file.len() / 2..]);
    halves.flat_map(|half| evenly(half, len, PACKETS_PER_FILE)).collect()
}

/// At most `count` pieces of `len` bytes that do not overlap, spread over `bytes`.
fn evenly(bytes: &[u8], len: usize, count: usize) -> impl Iterator<Item = &[u8]> {
    let count = count.min(bytes.len() / len);
    (0..count).map(move |i| {
        let start = i * (bytes.len() - len) / count.max(1);
        &bytes[start..start + len]
    })
}

fn measure(row: &mut Row, class: usize, packets: &[&[u8]], decompressor: &mut Decompressor) {
    let len = PACKET_LENS[class];
    let mut payloads = vec![0; packets.len() * len];
    let mut lens = vec![None; packets.len()];

    let start = Instant::now();
    for ((src, dst), compressed) in packets.iter().zip(payloads.chunks_mut(len)).zip(&mut lens) {
        *compressed = match &mut row.compressor {
            Some(compressor) => {
                compressor.compress(src, &mut dst[..len - 1]).expect("within the limits")
            }
            None => {
                dst.copy_from_slice(src);
                None
            }
        };
    }
    let compress_ns = start.elapsed().as_nanos() as f64;

    let mut data = vec![0; len];
    let codec = row.compressor.as_ref().map_or(CodecId::Lz4, |c| c.spec().id);
    let dictionary = row.compressor.as_ref().and_then(|c| c.dictionary()).map(Arc::as_ref);
    let start = Instant::now();
    for (payload, compressed) in payloads.chunks(len).zip(&lens) {
        match *compressed {
            Some(compressed) => {
                let payload = &payload[..compressed];
                let got = decompressor.decompress(codec, dictionary, payload, &mut data);
                assert_eq!(got, Ok(len));
            }
            None => data.copy_from_slice(payload),
        }
        black_box(&mut data);
    }
    let decompress_ns = start.elapsed().as_nanos() as f64;

    let sent: usize = lens.iter().map(|compressed| compressed.unwrap_or(len)).sum();
    let count = packets.len() as f64;
    let cell = &mut row.cells[class];
    cell.ratio = sent as f64 / (count * len as f64);
    cell.compress_ns = cell.compress_ns.min(compress_ns / count);
    cell.decompress_ns = cell.decompress_ns.min(decompress_ns / count);
}

fn print(rows: &[Row]) {
    print!("{:<12}", "ratio/c/d ns");
    for len in PACKET_LENS {
        print!(" | {:>19}", format!("{len} B"));
    }
    println!();
    for row in rows {
        print!("{:<12}", row.name);
        for Cell { ratio, compress_ns, decompress_ns } in &row.cells {
            print!(" | {ratio:.3} {compress_ns:>7.0} {decompress_ns:>5.0}");
        }
        println!();
    }
}
