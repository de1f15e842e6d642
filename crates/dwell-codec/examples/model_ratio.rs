//! The gain and the cost of models, prediction by partial matching and mixing of contexts, beside zstd's contexts.
//!
//! ```text
//! cargo run --release -p dwell-codec --example model_ratio -- FILE... [ORDER:MIB...] [mix:MIB...] [--record LEN...]
//! ```
//!
//! The files, one after another, are cut into records of 94, 1,400 and 8,400 bytes, or of those lengths that are
//! given. Each row is a codec that runs on through all of them: the bytes after compression by those before, the
//! bytes a record takes, megabytes (of original bytes) a second at both ends, and the memory of both. zstd
//! has a window of 8 MiB, and levels 1, 6 and 12.
//!
//! All rows take turns for a number of rounds, and for each record the fastest round counts: other
//! load on the machine can only add time.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads files and clocks")]
#![allow(clippy::disallowed_macros, reason = "a program, not a pure tier: prints")]

use std::time::Instant;

use dwell_codec::{
    Base, ContextDecoder, ContextEncoder, ContextSpec, MixSpec, ModelDecoder, ModelEncoder,
    ModelSpec, PpmSpec,
};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 3;
/// More would only take longer.
const BYTES_MAX: usize = 16 << 20;
const RECORD_LENS: [usize; 3] = [94, 1_400, 8_400];
const WINDOW_LOG: u8 = 23;
const ZSTD_LEVELS: [i32; 3] = [1, 6, 12];
/// Where none is named: orders with MiB, and the mixed one.
const MODELS: [&str; 7] = ["3:16", "4:16", "5:16", "6:16", "6:4", "8:64", "mix:16"];

#[derive(Clone, Copy)]
enum Codec {
    Zstd(ContextSpec),
    Model(ModelSpec),
}

/// A line of the table.
struct Row {
    codec: Codec,
    after: usize,
    /// For each record.
    compress_ns: Vec<f64>,
    restore_ns: Vec<f64>,
    memory_bytes: (usize, usize),
}

fn main() -> Result<(), Failure> {
    let (mut models, mut bytes, mut record_lens) = (Vec::new(), Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--record" {
            let len = arguments.next().and_then(|len| len.parse().ok());
            let len = len.filter(|len| (1..=65_535).contains(len));
            record_lens.push(len.ok_or("--record wants a length from 1 to 65535")?);
        } else if let Some(model) = model_of(&argument) {
            models.push(model);
        } else {
            bytes.extend(std::fs::read(&argument).map_err(|e| format!("{argument}: {e}"))?);
        }
    }
    if bytes.is_empty() {
        return Err("name the files to send, for instance data/text/book1.txt".into());
    }
    bytes.truncate(BYTES_MAX);
    if models.is_empty() {
        models.extend(MODELS.into_iter().filter_map(model_of));
    }
    if record_lens.is_empty() {
        record_lens.extend(RECORD_LENS);
    }
    for record_len in record_lens {
        let records: Vec<_> = bytes.chunks(record_len).collect();
        let zstd = ZSTD_LEVELS.map(|level| ContextSpec { level, window_log: WINDOW_LOG });
        let codecs = zstd.map(Codec::Zstd).into_iter().chain(models.iter().copied());
        let mut rows: Vec<_> = codecs.map(Row::new).collect();
        for _ in 0..ROUNDS {
            for row in &mut rows {
                row.measure(&records)?;
            }
        }
        print(&rows, bytes.len(), records.len());
    }
    Ok(())
}

/// Reads "6:16" and "mix:16".
fn model_of(text: &str) -> Option<Codec> {
    let (name, mib) = text.split_once(':')?;
    let mib: u32 = mib.parse().ok().filter(|mib: &u32| mib.is_power_of_two())?;
    let memory_log = 20 + mib.ilog2() as u8;
    if name == "mix" {
        return ModelSpec::from(MixSpec { memory_log }).check().ok().map(Codec::Model);
    }
    let spec = PpmSpec { order: name.parse().ok()?, memory_log };
    ModelSpec::from(spec).check().ok().map(Codec::Model)
}

impl Row {
    fn new(codec: Codec) -> Self {
        Self {
            codec,
            after: 0,
            compress_ns: Vec::new(),
            restore_ns: Vec::new(),
            memory_bytes: (0, 0),
        }
    }

    fn measure(&mut self, records: &[&[u8]]) -> Result<(), Failure> {
        match self.codec {
            Codec::Zstd(spec) => {
                let mut encoder = ContextEncoder::new(spec, spec.window_log)?;
                let mut decoder = ContextDecoder::new(spec.window_log);
                decoder.begin(spec.window_log, Base::default())?;
                self.run(
                    records,
                    |record, out| Ok(encoder.compress(record, out)?),
                    |payload, data| Ok(decoder.decode(payload, data)?),
                )?;
                self.memory_bytes = (encoder.memory_bytes(), decoder.memory_bytes());
            }
            Codec::Model(spec) => {
                let mut encoder = ModelEncoder::new(spec)?;
                let mut decoder = ModelDecoder::new(spec)?;
                self.run(
                    records,
                    |record, out| Ok(encoder.compress(record, out)?),
                    |payload, data| Ok(decoder.decode(payload, data)?),
                )?;
                self.memory_bytes = (encoder.memory_bytes(), decoder.memory_bytes());
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        records: &[&[u8]],
        mut compress: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), Failure>,
        mut restore: impl FnMut(&[u8], &mut [u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.compress_ns.resize(records.len(), f64::INFINITY);
        self.restore_ns.resize(records.len(), f64::INFINITY);
        let (mut payloads, mut ends) = (Vec::new(), Vec::new());
        for (record, best_ns) in records.iter().zip(&mut self.compress_ns) {
            let start = Instant::now();
            compress(record, &mut payloads)?;
            *best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
            ends.push(payloads.len());
        }
        let (mut data, mut from) = (Vec::new(), 0);
        for ((record, &end), best_ns) in records.iter().zip(&ends).zip(&mut self.restore_ns) {
            data.resize(record.len(), 0);
            let start = Instant::now();
            restore(&payloads[from..end], &mut data)?;
            *best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
            assert!(data == *record, "what comes out is what went in");
            from = end;
        }
        self.after = payloads.len();
        Ok(())
    }
}

fn print(rows: &[Row], bytes: usize, records: usize) {
    println!("{records} records, {bytes} bytes");
    println!(
        "| codec | ratio | bytes a record | compress, MB/s | restore, MB/s | encoder, MiB | decoder, MiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    for row in rows {
        let mb_per_s = |ns: &[f64]| bytes as f64 * 1e3 / ns.iter().sum::<f64>();
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let name = match row.codec {
            Codec::Zstd(spec) => format!("zstd {}", spec.level),
            Codec::Model(ModelSpec::Ppm(spec)) => {
                format!("ppm {}, {} MiB", spec.order, 1 << (spec.memory_log - 20))
            }
            Codec::Model(ModelSpec::Mix(spec)) => {
                format!("mix, {} MiB", 1 << (spec.memory_log - 20))
            }
        };
        println!(
            "| {name} | {:.4} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            row.after as f64 / bytes as f64,
            row.after as f64 / records as f64,
            mb_per_s(&row.compress_ns),
            mb_per_s(&row.restore_ns),
            mib(row.memory_bytes.0),
            mib(row.memory_bytes.1),
        );
    }
}
