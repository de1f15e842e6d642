//! Codes what comes by standard input with the codec ppm, to compare with another implementation.
//!
//! ```text
//! cargo run --release -p dwell-codec --example ppm_records -- encode 60 1400 [BASE] < bytes > records
//! cargo run --release -p dwell-codec --example ppm_records -- decode 60 [BASE] < records > bytes
//! ```
//!
//! The arguments and the records are those of docs/examples/ppm.py: the model as in docs/wire.md (section 9.7), the
//! length of batches, a file that both ends learn first. A record is the length of a batch and that of its compressed
//! bytes, 2 bytes each, and these.
#![allow(clippy::disallowed_methods, reason = "a program, not a pure tier: reads files")]

use std::io::{Read, Write};

use dwell_codec::{ModelDecoder, ModelEncoder, PpmSpec};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let output = match words[..] {
        ["encode", model, len, ref base @ ..] => {
            encode(spec(model)?, len.parse()?, &base_of(base)?, &input)?
        }
        ["decode", model, ref base @ ..] => decode(spec(model)?, &base_of(base)?, &input)?,
        _ => return Err("encode MODEL LEN [BASE], or decode MODEL [BASE]".into()),
    };
    std::io::stdout().write_all(&output)?;
    Ok(())
}

fn spec(model: &str) -> Result<PpmSpec, Failure> {
    Ok(PpmSpec::from_wire(u8::from_str_radix(model, 16)?)?)
}

fn base_of(paths: &[&str]) -> Result<Vec<u8>, Failure> {
    Ok(paths.first().map(std::fs::read).transpose()?.unwrap_or_default())
}

fn encode(spec: PpmSpec, len: usize, base: &[u8], input: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = ModelEncoder::new(spec)?;
    encoder.prime(base);
    let (mut records, mut compressed) = (Vec::new(), Vec::new());
    for batch in input.chunks(len) {
        compressed.clear();
        encoder.compress(batch, &mut compressed)?;
        for len in [batch.len(), compressed.len()] {
            records.extend(u16::try_from(len)?.to_be_bytes());
        }
        records.extend(&compressed);
    }
    Ok(records)
}

fn decode(spec: PpmSpec, base: &[u8], records: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut decoder = ModelDecoder::new(spec)?;
    decoder.prime(base);
    let (mut bytes, mut rest) = (Vec::new(), records);
    while let Some((head, behind)) = rest.split_first_chunk::<4>() {
        let [len, compressed_len] =
            [[head[0], head[1]], [head[2], head[3]]].map(|it| usize::from(u16::from_be_bytes(it)));
        let (compressed, behind) = behind.split_at_checked(compressed_len).ok_or("cut short")?;
        let start = bytes.len();
        bytes.resize(start + len, 0);
        decoder.decode(compressed, &mut bytes[start..])?;
        rest = behind;
    }
    Ok(bytes)
}
