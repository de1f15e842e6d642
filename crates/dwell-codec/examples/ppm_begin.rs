//! What it costs a receiver to begin a generation, of one byte each: what somebody can make it do who writes a new one
//! with every block.
//!
//! ```text
//! cargo run --release -p dwell-codec --example ppm_begin
//! MALLOC_MMAP_THRESHOLD_=524288 cargo run --release -p dwell-codec --example ppm_begin
//! ```
//!
//! Each row is a sequence of generations that is repeated, after a model of 16 MiB had been filled: microseconds for a
//! generation with its byte, the least and the middle of a number of rounds. In the second form the allocator of glibc
//! maps what is large, as `dwell relay`, `send` and `recv` have it do.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads clocks")]
#![allow(clippy::disallowed_macros, reason = "a program, not a pure tier: prints")]

use std::time::Instant;

use dwell_codec::{Base, ContextDecoder, ContextEncoder, ContextSpec, PpmSpec};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 7;
const GENERATIONS: usize = 200;
const WINDOW_LOG: u8 = 20;
/// What fills a model of 16 MiB.
const FILLING: usize = 512 << 10;

#[derive(Clone, Copy)]
enum Kind {
    Zstd,
    Model { order: u8, memory_log: u8 },
}

const fn model(order: u8, memory_log: u8) -> Kind {
    Kind::Model { order, memory_log }
}

/// Generations, and whether all memory is given back after each.
const ROWS: [(&str, &[Kind], bool); 7] = [
    ("zstd", &[Kind::Zstd], false),
    ("the same model", &[model(6, 24)], false),
    ("another order", &[model(6, 24), model(7, 24)], false),
    ("another memory", &[model(6, 24), model(6, 23)], false),
    ("the least and the most memory", &[model(6, 20), model(6, 26)], false),
    ("zstd and a model", &[Kind::Zstd, model(6, 24)], false),
    ("all given back, a model", &[model(6, 24)], true),
];

fn main() -> Result<(), Failure> {
    println!("{:32} {:>10} {:>10}", "generations of one byte", "least us", "middle us");
    for (name, kinds, forgets) in ROWS {
        let mut rounds =
            (0..ROUNDS).map(|_| round(kinds, forgets)).collect::<Result<Vec<_>, _>>()?;
        rounds.sort_by(f64::total_cmp);
        println!("{name:32} {:10.2} {:10.2}", rounds[0], rounds[ROUNDS / 2]);
    }
    Ok(())
}

/// Returns the microseconds that a generation takes.
fn round(kinds: &[Kind], forgets: bool) -> Result<f64, Failure> {
    let mut decoder = ContextDecoder::new(WINDOW_LOG);
    fill(&mut decoder)?;
    // Once without a clock: what was filled is given back, if that is due.
    run(&mut decoder, kinds, forgets)?;
    let begin = Instant::now();
    run(&mut decoder, kinds, forgets)?;
    Ok(begin.elapsed().as_secs_f64() * 1e6 / GENERATIONS as f64)
}

fn run(decoder: &mut ContextDecoder, kinds: &[Kind], forgets: bool) -> Result<(), Failure> {
    let one_byte = zstd_of_one_byte()?;
    let mut byte = [0];
    for kind in kinds.iter().cycle().take(GENERATIONS) {
        let base = Base { offset: decoder.offset(), len: 0 };
        match *kind {
            Kind::Zstd => {
                decoder.begin(WINDOW_LOG, base)?;
                decoder.decode(&one_byte, &mut byte)?;
            }
            Kind::Model { order, memory_log } => {
                decoder.begin_model(PpmSpec { order, memory_log }, base)?;
                decoder.decode(b"x", &mut byte)?;
            }
        }
        if forgets {
            *decoder = ContextDecoder::new(WINDOW_LOG);
        }
    }
    Ok(())
}

fn fill(decoder: &mut ContextDecoder) -> Result<(), Failure> {
    decoder.begin_model(PpmSpec::default(), Base::default())?;
    let (mut state, mut record) = (1u64, [0; 16_384]);
    for _ in 0..FILLING / record.len() {
        for byte in &mut record {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        // As long as what it stands for: it is learned as it is.
        decoder.decode(&record.clone(), &mut record)?;
    }
    Ok(())
}

fn zstd_of_one_byte() -> Result<Vec<u8>, Failure> {
    let spec = ContextSpec { level: 1, window_log: WINDOW_LOG };
    let mut payload = Vec::new();
    ContextEncoder::new(spec, WINDOW_LOG)?.compress(b"x", &mut payload)?;
    Ok(payload)
}
