//! A codec with its level, as users write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::error::CodecError;
use crate::id::CodecId;
use crate::ppm::{PPM_ORDER_MAX, PPM_ORDER_MIN};

/// A codec and its level: `lz4`, `lz4:8`, `zstd:-3`, `deflate:9`, `lzo`, `bzip2`.
///
/// The level of lz4 is its acceleration: higher is faster and compresses less. For zstd and
/// deflate higher is slower and compresses more; zstd's negative levels are its fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodecSpec {
    /// The codec.
    pub id: CodecId,
    /// The level, in the codec's own scale.
    pub level: i32,
}

impl CodecSpec {
    /// Returns the codec with its default level.
    pub const fn with_default_level(id: CodecId) -> Self {
        Self { id, level: default_level(id) }
    }

    /// Returns true if it is the codec of a model, which only a running context can be.
    pub const fn is_model(self) -> bool {
        matches!(self.id, CodecId::Ppm | CodecId::Mix)
    }

    /// Reads the name of a codec that a running context may have or that stands alone: `ppm`, with its order as the level, `mix`, or any
    /// other.
    ///
    /// # Errors
    /// If the text names no codec of this build.
    pub fn of_stream(text: &str) -> Result<Self, ParseSpecError> {
        let (name, level) = match text.trim().split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text.trim(), None),
        };
        let is_named = |codec: &CodecId| codec.name().eq_ignore_ascii_case(name);
        let Some(codec) = [CodecId::Ppm, CodecId::Mix].into_iter().find(is_named) else {
            return text.parse();
        };
        let Some(level) = level else { return Ok(Self::with_default_level(codec)) };
        with_level(codec, level)
    }

    /// Checks that this build has the codec and that the codec has the level.
    ///
    /// # Errors
    /// [`CodecError::NotBuiltIn`] or [`CodecError::Level`].
    pub fn check(self) -> Result<Self, CodecError> {
        if !self.id.is_built_in() {
            return Err(CodecError::NotBuiltIn(self.id));
        }
        if !level_exists(self) {
            return Err(CodecError::Level { codec: self.id, level: self.level });
        }
        Ok(self)
    }
}

const fn default_level(id: CodecId) -> i32 {
    match id {
        CodecId::Lz4 | CodecId::Zstd | CodecId::Lzo | CodecId::Bzip2 | CodecId::Mix => 1,
        CodecId::Deflate | CodecId::Ppm => 6,
    }
}

fn level_exists(spec: CodecSpec) -> bool {
    match spec.id {
        // Beyond 64, lz4 finds next to nothing in a packet.
        CodecId::Lz4 => (1..=64).contains(&spec.level),
        // Zero would mean zstd's own default, 3. The levels above 19 only have larger
        // windows, which packets cannot fill.
        CodecId::Zstd => (-50..=19).contains(&spec.level) && spec.level != 0,
        CodecId::Deflate => (1..=12).contains(&spec.level),
        // Higher levels of bzip2 are for blocks that no packet or piece of a stream fills.
        CodecId::Lzo | CodecId::Bzip2 | CodecId::Mix => spec.level == 1,
        CodecId::Ppm => (PPM_ORDER_MIN.into()..=PPM_ORDER_MAX.into()).contains(&spec.level),
    }
}

/// Returns the levels of a codec, in words.
pub(crate) fn levels(id: CodecId) -> &'static str {
    match id {
        CodecId::Lz4 => "1 to 64 (higher is faster)",
        CodecId::Zstd => "-50 to -1 (lower is faster) or 1 to 19 (higher is slower)",
        CodecId::Deflate => "1 to 12 (higher is slower)",
        CodecId::Lzo | CodecId::Bzip2 | CodecId::Mix => "only 1",
        CodecId::Ppm => "2 to 12 (higher takes more memory)",
    }
}

/// The reason why a text is not a codec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseSpecError {
    /// No codec has this name.
    #[error("\"{0}\" is no codec: use {names}", names = possible_names())]
    Name(String),
    /// The codec exists, but not in this build.
    #[error(
        "{0} is not in this build: build dwell with `--features {0}`, or use {names}",
        names = possible_names()
    )]
    NotBuiltIn(CodecId),
    /// After the colon there is no number, or a level that the codec does not have.
    #[error("\"{text}\" is no level of {codec}: it can be {}", levels(*codec))]
    Level {
        /// The codec.
        codec: CodecId,
        /// The text after the colon.
        text: String,
    },
}

fn possible_names() -> String {
    let mut names: Vec<_> = CodecId::ALL.into_iter().filter(|id| id.is_built_in()).collect();
    // lz4, zstd and deflate are in every build.
    let last = names.pop().map_or("", CodecId::name);
    let first: Vec<_> = names.into_iter().map(CodecId::name).collect();
    format!("{} or {last}, with a level if you like (\"zstd:3\")", first.join(", "))
}

impl FromStr for CodecSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, ParseSpecError> {
        let text = text.trim();
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let id = CodecId::ALL
            .into_iter()
            .find(|id| id.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| ParseSpecError::Name(name.to_owned()))?;
        if !id.is_built_in() {
            return Err(ParseSpecError::NotBuiltIn(id));
        }
        let Some(level) = level else { return Ok(Self::with_default_level(id)) };
        with_level(id, level)
    }
}

fn with_level(id: CodecId, level: &str) -> Result<CodecSpec, ParseSpecError> {
    let spec = level.parse().ok().map(|level| CodecSpec { id, level });
    let spec = spec.filter(|&spec| level_exists(spec));
    spec.ok_or_else(|| ParseSpecError::Level { codec: id, text: level.to_owned() })
}

impl fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.level == default_level(self.id) {
            write!(f, "{}", self.id)
        } else {
            write!(f, "{}:{}", self.id, self.level)
        }
    }
}

impl Serialize for CodecSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CodecSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CodecSpec, String> {
        text.parse().map_err(|error: ParseSpecError| error.to_string())
    }

    #[test]
    fn levels_have_defaults() {
        assert_eq!(parse("lz4"), Ok(CodecSpec { id: CodecId::Lz4, level: 1 }));
        assert_eq!(parse(" ZSTD "), Ok(CodecSpec { id: CodecId::Zstd, level: 1 }));
        assert_eq!(parse("zstd:-3"), Ok(CodecSpec { id: CodecId::Zstd, level: -3 }));
        assert_eq!(parse("deflate"), Ok(CodecSpec { id: CodecId::Deflate, level: 6 }));
        assert_eq!(parse("deflate:12"), Ok(CodecSpec { id: CodecId::Deflate, level: 12 }));
    }

    #[test]
    fn models_are_for_contexts_only() {
        let of_stream = |text| CodecSpec::of_stream(text).map_err(|error| error.to_string());
        assert_eq!(of_stream(" PPM "), Ok(CodecSpec { id: CodecId::Ppm, level: 6 }));
        assert_eq!(of_stream("ppm:12"), Ok(CodecSpec { id: CodecId::Ppm, level: 12 }));
        assert_eq!(of_stream("ppm:12").unwrap().to_string(), "ppm:12");
        assert_eq!(of_stream("zstd:3"), parse("zstd:3"));
        let mix = CodecSpec { id: CodecId::Mix, level: 1 };
        assert_eq!((of_stream("mix"), of_stream("MIX:1")), (Ok(mix), Ok(mix)));
        assert_eq!(mix.to_string(), "mix");
        assert!(of_stream("mix:2").unwrap_err().contains("only 1"));
        for bad in ["ppm:1", "ppm:13", "ppm:", "ppm:x"] {
            assert!(of_stream(bad).unwrap_err().contains("2 to 12"), "{bad}");
        }
        assert!(parse("ppm").is_err() && parse("mix").is_err() && of_stream("ppmd").is_err());
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for text in ["lz4", "lz4:8", "zstd", "zstd:-3", "zstd:19", "deflate", "deflate:1"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(parse("zstd:1").unwrap().to_string(), "zstd");
    }

    #[test]
    fn serde_uses_the_text() {
        let spec: CodecSpec = serde_json::from_str("\"zstd:3\"").unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), "\"zstd:3\"");
        assert!(serde_json::from_str::<CodecSpec>("\"zstd:0\"").is_err());
    }

    #[test]
    fn errors_say_what_is_possible() {
        assert!(parse("brotli").unwrap_err().starts_with("\"brotli\" is no codec: use lz4, zstd"));
        assert_eq!(
            parse("zstd:20").unwrap_err(),
            "\"20\" is no level of zstd: it can be -50 to -1 (lower is faster) or 1 to 19 \
             (higher is slower)"
        );
        for bad in ["", "lz4:", "lz4:0", "lz4:65", "zstd:0", "zstd:-51", "deflate:13", "zstd:x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_built_in_says_how_to_get_it() {
        for id in [CodecId::Lzo, CodecId::Bzip2] {
            let name = id.name();
            if id.is_built_in() {
                assert_eq!(parse(name).unwrap().to_string(), name);
            } else {
                let how = format!("build dwell with `--features {name}`");
                assert!(parse(name).unwrap_err().contains(&how), "{name}");
            }
        }
    }
}
