//! Values of options, as they are written elsewhere.

use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use dwell_lab::LinkSpec;
use dwell_relay::config::Codec;

/// The schemes that a relay can run.
pub fn schemes() -> PossibleValuesParser {
    PossibleValuesParser::new(dwell_relay::config::SCHEMES)
}

/// A codec as it is written in a relay's configuration.
///
/// # Errors
/// Parses it, and returns the text; an error is a sentence.
pub fn codec(text: &str) -> Result<String, String> {
    Codec::from_str(text).map(|_| text.to_owned())
}

/// A share, as the emulator reads it: `0.01` or `1%`.
///
/// # Errors
/// Parses a probability: a share or percents. An error is a sentence.
pub fn probability(text: &str) -> Result<f64, String> {
    // The emulator's own reading of it, which takes the whole text as one word.
    let word: String = text.split_whitespace().collect();
    LinkSpec::from_str(&format!("loss {word}"))
        .map(|spec| spec.loss)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_elsewhere() {
        assert_eq!(probability("1%"), Ok(0.01));
        assert_eq!(probability("0.25"), Ok(0.25));
        assert!(probability("2").is_err());
        assert_eq!(codec("zstd:1").as_deref(), Ok("zstd:1"));
        assert_eq!(codec("ppm:8").as_deref(), Ok("ppm:8"));
        assert!(codec("zip").is_err());
    }
}
