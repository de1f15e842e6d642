//! Random numbers: what `validate/rng.tcl` printed, and ours.

use std::fs;

use dwell_sim::ns2::Stream;

use crate::Agreement;

/// ns-2 prints exponential draws with 7 digits.
const DRAW_DIGITS: f64 = 1e-6;

/// Compares all numbers of a file: blocks that begin with `seed S`, then lines `STREAM state
/// NUMBERS...`, `STREAM integers NUMBERS...` and `STREAM exponential NUMBERS...`.
pub(crate) fn run(file: &str) -> Agreement {
    let text = fs::read_to_string(file)?;
    let (mut seed, mut compared, mut differ) = (0, 0, 0);
    let mut stream = Stream::new(0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, rest @ ..] = &words[..] else { continue };
        match rest {
            [number] if *name == "seed" => seed = number.parse()?,
            [kind, numbers @ ..] => {
                if *kind != "integers" {
                    stream = find(seed, name)?;
                }
                for (n, number) in numbers.iter().enumerate() {
                    compared += 1;
                    differ += u64::from(!is_next(&mut stream, kind, n, number)?);
                }
            }
            [] => {}
        }
    }
    println!("{compared} numbers, {differ} differ");
    Ok(compared > 0 && differ == 0)
}

/// The stream called `default`, `stream2` or, its next substream, `stream2.1`.
fn find(seed: u64, name: &str) -> Result<Stream, Box<dyn std::error::Error>> {
    let number = name.strip_prefix("stream").unwrap_or("0");
    let (number, substream) = number.split_once('.').unwrap_or((number, "0"));
    let mut stream = Stream::new(seed, number.parse()?);
    for _ in 0..substream.parse::<u32>()? {
        stream.next_substream();
    }
    Ok(stream)
}

fn is_next(
    stream: &mut Stream,
    kind: &str,
    n: usize,
    number: &str,
) -> Result<bool, Box<dyn std::error::Error>> {
    Ok(match kind {
        "state" => stream.state().get(n) == Some(&number.parse()?),
        "integers" => stream.integer() == number.parse::<u32>()?,
        "exponential" => {
            let (ours, theirs) = (stream.exponential(1.0), number.parse::<f64>()?);
            (ours - theirs).abs() <= DRAW_DIGITS * theirs
        }
        _ => return Err(format!("\"{kind}\" is no kind of number").into()),
    })
}
