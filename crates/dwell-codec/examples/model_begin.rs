//! What it costs a receiver to begin a generation, of one byte each: what somebody can make it do who writes a new one
//! with every block.
//!
//! ```text
//! cargo run --release -p dwell-codec --example model_begin
//! MALLOC_MMAP_THRESHOLD_=524288 cargo run --release -p dwell-codec --example model_begin
//! ```
//!
//! Each row is a sequence of generations that is repeated, after a model of 16 MiB had been filled: microseconds for a
//! generation with its byte, the least and the middle of a number of rounds. In the second form the allocator of glibc
//! maps what is large, as `dwell relay`, `send` and `recv` have it do. In the last rows each begins from the longest base that there
//! is, of noise.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads clocks")]
#![allow(clippy::disallowed_macros, reason = "a program, not a pure tier: prints")]

use std::time::Instant;

use dwell_codec::{Base, ContextDecoder, ContextEncoder, ContextSpec, MixSpec, ModelSpec, PpmSpec};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 7;
const GENERATIONS: usize = 200;
/// Those that learn a base take milliseconds each.
const BASED_GENERATIONS: usize = 10;
const WINDOW_LOG: u8 = 20;
/// What fills a model of 16 MiB.
const FILLING: usize = 512 << 10;

#[derive(Clone, Copy)]
enum Kind {
    Zstd,
    Model(ModelSpec),
}

const fn ppm(order: u8, memory_log: u8) -> Kind {
    Kind::Model(ModelSpec::Ppm(PpmSpec { order, memory_log }))
}

const fn mix(memory_log: u8) -> Kind {
    Kind::Model(ModelSpec::Mix(MixSpec { memory_log }))
}

/// What is beside the generations themselves.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// All memory is given back after each.
    Forgets,
    /// Each begins from the longest base.
    Base,
}

const ROWS: [(&str, &[Kind], Beside); 18] = [
    ("zstd", &[Kind::Zstd], Beside::Nothing),
    ("the same model", &[ppm(6, 24)], Beside::Nothing),
    ("another order", &[ppm(6, 24), ppm(7, 24)], Beside::Nothing),
    ("another memory", &[ppm(6, 24), ppm(6, 23)], Beside::Nothing),
    ("the least and the most memory", &[ppm(6, 20), ppm(6, 26)], Beside::Nothing),
    ("zstd and a model", &[Kind::Zstd, ppm(6, 24)], Beside::Nothing),
    ("all given back, a model", &[ppm(6, 24)], Beside::Forgets),
    ("the same mix", &[mix(24)], Beside::Nothing),
    ("the same mix of 64 MiB", &[mix(26)], Beside::Nothing),
    ("another memory, mix", &[mix(24), mix(23)], Beside::Nothing),
    ("the least and the most, mix", &[mix(20), mix(26)], Beside::Nothing),
    ("zstd and mix", &[Kind::Zstd, mix(24)], Beside::Nothing),
    ("ppm and mix of 1 MiB", &[ppm(6, 20), mix(20)], Beside::Nothing),
    ("ppm and mix of 16 MiB", &[ppm(6, 24), mix(24)], Beside::Nothing),
    ("ppm and mix of 64 MiB", &[ppm(6, 26), mix(26)], Beside::Nothing),
    ("all given back, mix", &[mix(24)], Beside::Forgets),
    ("a base of 32 KiB, a model", &[ppm(12, 24)], Beside::Base),
    ("a base of 8 KiB, mix", &[mix(24)], Beside::Base),
];

fn main() -> Result<(), Failure> {
    println!("{:32} {:>10} {:>10}", "generations of one byte", "least us", "middle us");
    for (name, kinds, beside) in ROWS {
        let mut rounds =
            (0..ROUNDS).map(|_| round(kinds, beside)).collect::<Result<Vec<_>, _>>()?;
        rounds.sort_by(f64::total_cmp);
        println!("{name:32} {:10.2} {:10.2}", rounds[0], rounds[ROUNDS / 2]);
    }
    Ok(())
}

/// Returns the microseconds that a generation takes.
fn round(kinds: &[Kind], beside: Beside) -> Result<f64, Failure> {
    let mut decoder = ContextDecoder::new(WINDOW_LOG);
    fill(&mut decoder)?;
    // Once without a clock: what was filled is given back, if that is due.
    run(&mut decoder, kinds, beside)?;
    let begin = Instant::now();
    run(&mut decoder, kinds, beside)?;
    Ok(begin.elapsed().as_secs_f64() * 1e6 / generations(beside) as f64)
}

fn generations(beside: Beside) -> usize {
    if beside == Beside::Base { BASED_GENERATIONS } else { GENERATIONS }
}

fn run(decoder: &mut ContextDecoder, kinds: &[Kind], beside: Beside) -> Result<(), Failure> {
    let one_byte = zstd_of_one_byte()?;
    let mut byte = [0];
    for kind in kinds.iter().cycle().take(generations(beside)) {
        let base = Base { offset: decoder.offset(), len: 0 };
        match *kind {
            Kind::Zstd => {
                decoder.begin(WINDOW_LOG, base)?;
                decoder.decode(&one_byte, &mut byte)?;
            }
            Kind::Model(model) => {
                let longest = model.prime_len_max() as u32;
                let len = if beside == Beside::Base { longest } else { 0 };
                decoder.begin_model(model, Base { len, ..base })?;
                decoder.decode(b"x", &mut byte)?;
            }
        }
        if beside == Beside::Forgets {
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
