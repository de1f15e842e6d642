//! The compressor of a replay: real codecs on real bytes, with their measured or a given cost.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use dwell_codec::{
    CONTEXT_DICTIONARY_CLASS, CodecError, CodecSpec, Compressor, ContextDictionary, Dictionary,
    DictionaryFile, SRC_LEN_MAX,
};
use dwell_policy::ClassKey;
use thiserror::Error;

use super::class::parse_class_key;
use crate::analysis::Clock;
use crate::contexts::Contexts;

/// A compressor of the units of a lane.
pub trait Compress {
    /// Compresses one packet, or the packets of a block one behind the other.
    fn compress(&mut self, job: Job<'_>) -> Compressed;
}

/// The input of a compression.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The class by which a dictionary is chosen; of a block, its first packet's.
    pub class: ClassKey,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The longest useful result; of a batch in a context there is no such.
    pub room: usize,
    /// The group whose context it belongs to, if it may refer to what went before.
    pub context: Option<u64>,
}

/// The result of a compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// Bytes of the result; `None` if there is nothing to gain. An error if the codec failed.
    pub len: Result<Option<usize>, CompressFailed>,
    /// It is part of a context, and must be sent whatever its size.
    pub in_context: bool,
    /// The time taken, in nanoseconds.
    pub took_ns: u64,
}

/// A codec failed in a way that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the codec failed")]
pub struct CompressFailed;

/// The time that compressing takes.
pub enum Cost {
    /// The time measured on this machine. The results of two replays then differ a little.
    Measured(Box<dyn Clock>),
    /// A given time: the same capture gives the same numbers everywhere.
    Given(GivenCost),
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(_) => f.write_str("Measured"),
            Self::Given(cost) => write!(f, "{cost:?}"),
        }
    }
}

/// A cost that grows with the size: `2000,5.5` is 2000 ns for a unit and 5.5 ns for each of its
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenCost {
    /// The time for a unit (a packet, or a block), in nanoseconds.
    pub unit_ns: u64,
    /// The time for each byte of it, in picoseconds.
    pub byte_ps: u64,
}

impl GivenCost {
    /// Returns the time for a unit of `bytes`, in nanoseconds.
    pub const fn of(self, bytes: usize) -> u64 {
        self.unit_ns.saturating_add((bytes as u64).saturating_mul(self.byte_ps) / 1000)
    }
}

/// A reason why a text is no cost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{0}\" is no cost: write nanoseconds for a packet and nanoseconds for a byte, as in \
     2000,5.5; each at most a second"
)]
pub struct ParseCostError(String);

impl FromStr for GivenCost {
    type Err = ParseCostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseCostError(text.to_owned());
        let (unit, byte) = text.split_once(',').ok_or_else(error)?;
        let number = |text: &str| {
            let number: f64 = text.trim().parse().map_err(|_| error())?;
            if (0.0..=1e9).contains(&number) { Ok(number) } else { Err(error()) }
        };
        let (unit, byte) = (number(unit)?, number(byte)?);
        Ok(Self { unit_ns: unit.round() as u64, byte_ps: (byte * 1e3).round() as u64 })
    }
}

/// The dictionaries of a lane.
#[derive(Clone, Debug, Default)]
pub struct Dictionaries {
    /// Those of packets and blocks that are compressed alone, by their class. Relays have none of these.
    pub by_class: Vec<(ClassKey, Arc<Dictionary>)>,
    /// The one that contexts begin from, as in relays.
    pub of_contexts: Option<Arc<ContextDictionary>>,
}

impl Dictionaries {
    /// Reads files that `dwell trace train` wrote, each with its name for messages: those of classes, and all of them
    /// joined for contexts.
    ///
    /// # Errors
    /// If one is no such file, or of a class that there is not, as a sentence.
    pub fn read(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, String> {
        let (mut all, mut by_class) = (Vec::new(), Vec::new());
        for (name, bytes) in files {
            let reported = |error: &dyn fmt::Display| format!("{name}: {error}");
            for file in DictionaryFile::parse_all(&bytes).map_err(|error| reported(&error))? {
                if file.class != CONTEXT_DICTIONARY_CLASS {
                    let class = parse_class_key(&file.class).map_err(|error| reported(&error))?;
                    let dictionary = file.dictionary().map_err(|error| reported(&error))?;
                    by_class.push((class, Arc::new(dictionary)));
                }
                all.push(file);
            }
        }
        let of_contexts = ContextDictionary::of(&all).map(Arc::new);
        Ok(Self { by_class, of_contexts })
    }
}

/// A codec, with a dictionary for some classes.
#[derive(Debug)]
pub struct CodecCompressor {
    plain: Compressor,
    by_class: BTreeMap<ClassKey, Compressor>,
    /// None if the codec has no contexts.
    contexts: Option<Contexts>,
    out: Vec<u8>,
    cost: Cost,
}

impl CodecCompressor {
    /// Creates a compression with this codec.
    ///
    /// # Errors
    /// If the build lacks the codec, or the codec the level or the use of dictionaries.
    pub fn new(
        spec: CodecSpec,
        dictionaries: &Dictionaries,
        cost: Cost,
    ) -> Result<Self, CodecError> {
        let mut by_class = BTreeMap::new();
        for (class, dictionary) in &dictionaries.by_class {
            by_class.insert(*class, Compressor::new(spec, Some(Arc::clone(dictionary)))?);
        }
        let plain = Compressor::new(spec, None)?;
        let of_contexts = &dictionaries.of_contexts;
        let contexts = Contexts::of(spec).map(|it| it.with_dictionary(of_contexts.clone()));
        Ok(Self { plain, by_class, contexts, out: vec![0; SRC_LEN_MAX], cost })
    }
}

impl Compress for CodecCompressor {
    fn compress(&mut self, job: Job<'_>) -> Compressed {
        let Self { plain, by_class, contexts, out, cost } = self;
        let room = job.room.min(out.len());
        let mut run = || {
            if let Some((contexts, group)) = contexts.as_mut().zip(job.context) {
                let len = contexts.compress(group, job.bytes).map_err(|_| CompressFailed);
                return (len.map(Some), true);
            }
            let compressor = by_class.get_mut(&job.class).unwrap_or(plain);
            (compressor.compress(job.bytes, &mut out[..room]).map_err(|_| CompressFailed), false)
        };
        let ((len, in_context), took_ns) = match cost {
            Cost::Given(cost) => (run(), cost.of(job.bytes.len())),
            Cost::Measured(clock) => {
                let start_ns = clock.now_ns();
                let result = run();
                (result, clock.now_ns().saturating_sub(start_ns))
            }
        };
        Compressed { len, in_context, took_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read() {
        let cost: GivenCost = "2000,5.5".parse().unwrap();
        assert_eq!(cost, GivenCost { unit_ns: 2000, byte_ps: 5500 });
        assert_eq!(cost.of(100), 2550);
        for bad in ["", "2000", "2000,", ",5", "-1,5", "1,nan", "1,2e9", "a,b"] {
            assert!(bad.parse::<GivenCost>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_clock_that_is_given_measures() {
        struct Ticks(u64);
        impl Clock for Ticks {
            fn now_ns(&mut self) -> u64 {
                self.0 += 7;
                self.0
            }
        }
        let spec: CodecSpec = "lz4".parse().unwrap();
        let cost = Cost::Measured(Box::new(Ticks(0)));
        let mut compress = CodecCompressor::new(spec, &Dictionaries::default(), cost).unwrap();
        let bytes = b"all work and no play ".repeat(20);
        let job = Job {
            class: ClassKey::new(6, 80),
            bytes: &bytes,
            room: bytes.len() - 4,
            context: None,
        };
        let compressed = compress.compress(job);
        assert_eq!(compressed.took_ns, 7);
        assert!(compressed.len.unwrap().unwrap() < bytes.len() / 2);
        let nothing = compress.compress(Job { room: 3, ..job });
        assert_eq!(nothing.len, Ok(None));
    }

    #[test]
    fn a_batch_in_a_context_refers_to_those_before_it() {
        let given = || Cost::Given(GivenCost { unit_ns: 1, byte_ps: 0 });
        let mut compress =
            CodecCompressor::new("zstd:1".parse().unwrap(), &Dictionaries::default(), given())
                .unwrap();
        let bytes: Vec<u8> = (0..2_000u32).map(|at| ((at * at) >> 3) as u8).collect();
        let job = |context| Job { class: ClassKey::new(6, 80), bytes: &bytes, room: 9, context };
        let mut of = |group| compress.compress(job(Some(group))).len.unwrap().unwrap();
        let (first, again, other) = (of(1), of(1), of(2));
        assert!(again < first / 5 && other == first, "{first}, {again}, {other}");
        assert!(compress.compress(job(Some(1))).in_context);
        assert!(!compress.compress(job(None)).in_context);
        let mut lz4 =
            CodecCompressor::new("lz4".parse().unwrap(), &Dictionaries::default(), given())
                .unwrap();
        assert!(!lz4.compress(job(Some(1))).in_context, "it has no contexts");
    }

    #[test]
    fn the_dictionary_of_its_class_is_used() {
        let text = b"{\"temperature\": 21.5, \"unit\": \"C\", \"sensor\": \"kitchen\"}".to_vec();
        let class = ClassKey::new(17, 5683);
        let dictionary = Arc::new(Dictionary::new(1, text.repeat(3)).unwrap());
        let given = || Cost::Given(GivenCost { unit_ns: 1, byte_ps: 0 });
        let spec: CodecSpec = "zstd:1".parse().unwrap();
        let dictionaries = Dictionaries { by_class: vec![(class, dictionary)], of_contexts: None };
        let mut compress = CodecCompressor::new(spec, &dictionaries, given()).unwrap();
        let job = Job { class, bytes: &text, room: text.len(), context: None };
        let with = compress.compress(job).len.unwrap().unwrap();
        assert!(with < text.len() / 3, "{with}");
        let without = compress.compress(Job { class: ClassKey::new(17, 53), ..job }).len.unwrap();
        assert!(without.is_none_or(|len| len > with), "{without:?}");
    }
}
