//! What is left of captures in contexts: with headers as they are, in columns, and predicted.
//!
//! ```text
//! cargo run --release -p dwell-trace --example header_ratio -- CAPTURE... [--packets N]... [--model MODEL]...
//! ```
//!
//! The captures follow one another, as two contexts: one of the packets from the lower address to the higher, and
//! one of those in the other direction, as two relays would have them. Each context is compressed in batches of 1, 8
//! and 32 packets, or of N, with zstd level 6 (window 1 MiB) and ppm of order 6 (16 MiB), or with models: `mix` or an
//! order, with 16 MiB (64 from order 9 on). The columns are the
//! bytes after compression by those before, for each form of the headers; the change from the better of the first
//! two to the third; and the same change with the nine bytes that a batch takes beside its data. All of them
//! are restored, and compared.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads files")]
#![allow(clippy::disallowed_macros, reason = "a program, not a pure tier: prints")]

use std::fs::File;

use dwell_codec::{
    Base, ContextDecoder, ContextEncoder, ContextSpec, MODEL_RECORD_LEN_MAX, MixSpec, ModelSpec,
    PpmSpec,
};
use dwell_drive::gather;
use dwell_trace::{Capture, Datagram};
use dwell_wire::columnar::{self, PACKETS_MAX};
use dwell_wire::predicted::{GROWN_BYTES_MAX, HeaderPredictor, HeaderRestorer};

type Failure = Box<dyn std::error::Error>;

const BATCH_PACKETS: [usize; 3] = [1, 8, 32];
/// More would only take longer.
const BYTES_MAX: usize = 8 << 20;
/// What was captured before it was cut for the network is not what a relay gets.
const PACKET_LEN_MAX: usize = 9_000;
const ZSTD: ContextSpec = ContextSpec { level: 6, window_log: 20 };
const BATCH_HEADER_LEN: usize = 9;

/// The headers of the packets that are compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    Plain,
    Columnar,
    Predicted,
}

fn main() -> Result<(), Failure> {
    let (mut counts, mut directions, mut bytes) = (Vec::new(), [Vec::new(), Vec::new()], 0);
    let mut models = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--packets" {
            let count = arguments.next().and_then(|count| count.parse().ok());
            let count = count.filter(|count| (1..=PACKETS_MAX).contains(count));
            counts.push(count.ok_or("--packets wants a number from 1 to 128")?);
        } else if argument == "--model" {
            let model = arguments.next().and_then(|name| model_of(&name));
            models.push(Some(model.ok_or("--model wants mix, or an order from 2 to 12")?));
        } else {
            read(&argument, &mut directions, &mut bytes)?;
        }
    }
    let packets = directions.iter().map(Vec::len).sum::<usize>();
    if packets == 0 {
        return Err("name captures with IP packets".into());
    }
    if counts.is_empty() {
        counts.extend(BATCH_PACKETS);
    }
    println!("{packets} packets, {bytes} bytes, {} each", bytes / packets);
    println!("| codec | packets | as they are | columnar | predicted | change | on the link |");
    println!("|---|---|---|---|---|---|---|");
    if models.is_empty() {
        models = vec![None, Some(PpmSpec::default().into())];
    }
    for model in models {
        for &count in &counts {
            print(&directions, bytes, model, count)?;
        }
    }
    Ok(())
}

fn model_of(name: &str) -> Option<ModelSpec> {
    if name == "mix" {
        return Some(MixSpec::default().into());
    }
    let order = name.parse().ok()?;
    let memory_log = if order > 8 { 26 } else { 24 };
    PpmSpec { order, memory_log }.check().ok().map(ModelSpec::from)
}

/// Reads the packets that were captured whole.
fn read(path: &str, directions: &mut [Vec<Vec<u8>>; 2], bytes: &mut usize) -> Result<(), Failure> {
    let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    let mut capture = Capture::open(file).map_err(|error| format!("{path}: {error}"))?;
    while let Some(packet) = capture.next_packet() {
        let Ok(found) = Datagram::find(&packet, 0) else { continue };
        let is_cut = !found.is_whole() || found.bytes.len() > PACKET_LEN_MAX;
        if is_cut || *bytes + found.bytes.len() > BYTES_MAX {
            continue;
        }
        *bytes += found.bytes.len();
        let is_up = found.info.src > found.info.dst;
        directions[usize::from(is_up)].push(found.bytes.to_vec());
    }
    Ok(())
}

fn print(
    directions: &[Vec<Vec<u8>>; 2],
    bytes: usize,
    model: Option<ModelSpec>,
    count: usize,
) -> Result<(), Failure> {
    let mut after = [0; 3];
    let mut batches = 0;
    for (after, headers) in
        after.iter_mut().zip([Headers::Plain, Headers::Columnar, Headers::Predicted])
    {
        batches = 0;
        for packets in directions {
            let (len, made) = compress(packets, headers, model, count)?;
            *after += len;
            batches += made;
        }
    }
    let [plain, columnar, predicted] = after;
    let percent = |framing: usize| {
        let before = plain.min(columnar) + framing;
        100.0 * ((predicted + framing) as f64 / before as f64 - 1.0)
    };
    let ratio = |after: usize| after as f64 / bytes as f64;
    println!(
        "| {} | {count} | {:.4} | {:.4} | {:.4} | {:+.1} % | {:+.1} % |",
        match model {
            None => "zstd 6".to_owned(),
            Some(ModelSpec::Ppm(spec)) => format!("ppm {}", spec.order),
            Some(ModelSpec::Mix(_)) => "mix".to_owned(),
        },
        ratio(plain),
        ratio(columnar),
        ratio(predicted),
        percent(0),
        percent(batches * BATCH_HEADER_LEN),
    );
    Ok(())
}

/// Returns the bytes after compression, and the number of batches.
fn compress(
    packets: &[Vec<u8>],
    headers: Headers,
    model: Option<ModelSpec>,
    count: usize,
) -> Result<(usize, usize), Failure> {
    let mut encoder = ContextEncoder::new(ZSTD, ZSTD.window_log)?;
    let mut decoder = ContextDecoder::new(ZSTD.window_log);
    if let Some(model) = model {
        encoder.begin_model(model, Base::default())?;
        decoder.begin_model(model, Base::default())?;
    } else {
        decoder.begin(ZSTD.window_log, Base::default())?;
    }
    let (mut predictor, mut restorer) = (HeaderPredictor::default(), HeaderRestorer::default());
    let (mut batch, mut out, mut data) = (Vec::new(), Vec::new(), Vec::new());
    let mut restored = vec![0; 1 << 16];
    let (mut after, mut batches) = (0, 0);
    let mut rest = packets;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest, count));
        rest = later;
        batch.clear();
        out.clear();
        match headers {
            Headers::Predicted => now.iter().for_each(|it| predictor.write(it, &mut batch)),
            _ => {
                let wanted = headers == Headers::Columnar;
                gather(now.iter().map(Vec::as_slice), wanted, &mut batch);
            }
        }
        encoder.compress(&batch, &mut out)?;
        after += out.len();
        batches += 1;
        data.resize(batch.len(), 0);
        decoder.decode(&out, &mut data)?;
        let len = match headers {
            Headers::Plain => {
                restored[..data.len()].copy_from_slice(&data);
                data.len()
            }
            Headers::Columnar => columnar::restore(&data, &mut restored)?.bytes(),
            Headers::Predicted => restorer.restore(&data, &mut restored)?.bytes(),
        };
        assert!(restored[..len] == now.concat(), "what comes out is what went in");
    }
    Ok((after, batches))
}

/// Returns how many of the first packets a batch holds.
fn fitting(packets: &[Vec<u8>], count: usize) -> usize {
    let mut len = 0;
    let fits = |packet: &&Vec<u8>| {
        len += packet.len() + GROWN_BYTES_MAX;
        len <= MODEL_RECORD_LEN_MAX
    };
    packets.iter().take(count).take_while(fits).count().max(1)
}
