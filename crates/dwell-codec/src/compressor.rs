//! One compressor for all codecs.

use std::fmt;
use std::sync::Arc;

use crate::dictionary::Dictionary;
use crate::error::CodecError;
use crate::id::CodecId;
use crate::spec::CodecSpec;
use crate::{SRC_LEN_MAX, deflate, lz4, zstd};

/// Compresses packets with one codec, level and dictionary; all its memory is made once.
///
/// Packets do not depend on each other: each can be decoded without the others.
pub struct Compressor {
    spec: CodecSpec,
    dictionary: Option<Arc<Dictionary>>,
    engine: Engine,
}

enum Engine {
    Lz4(lz4::Encoder),
    Zstd(zstd::Encoder),
    Deflate(deflate::Encoder),
    #[cfg(feature = "lzo")]
    Lzo(crate::lzo::Encoder),
    #[cfg(feature = "bzip2")]
    Bzip2(crate::bzip2::Encoder),
}

impl Compressor {
    /// Makes a compressor. It takes 16 KiB for lz4, and some 100 KiB (from level 10 some MiB)
    /// for deflate. zstd reserves 0.6 MiB at level 1 and 3 MiB at level 19, for inputs of
    /// [`SRC_LEN_MAX`] bytes; packets use a small part of it, and only that becomes resident.
    ///
    /// # Errors
    /// If the build lacks the codec, or the codec the level or the use of dictionaries.
    pub fn new(spec: CodecSpec, dictionary: Option<Arc<Dictionary>>) -> Result<Self, CodecError> {
        spec.check()?;
        if dictionary.is_some() && !spec.id.takes_dictionary() {
            return Err(CodecError::NoDictionary(spec.id));
        }
        let engine = match spec.id {
            CodecId::Lz4 => Engine::Lz4(lz4::Encoder::new(spec.level, dictionary.as_deref())?),
            CodecId::Zstd => Engine::Zstd(zstd::Encoder::new(spec.level, dictionary.as_deref())?),
            CodecId::Deflate => Engine::Deflate(deflate::Encoder::new(spec.level)?),
            #[cfg(feature = "lzo")]
            CodecId::Lzo => Engine::Lzo(crate::lzo::Encoder::new()),
            #[cfg(feature = "bzip2")]
            CodecId::Bzip2 => Engine::Bzip2(crate::bzip2::Encoder::default()),
            #[cfg(not(feature = "bzip2"))]
            CodecId::Bzip2 => return Err(CodecError::NotBuiltIn(spec.id)),
            #[cfg(not(feature = "lzo"))]
            CodecId::Lzo => return Err(CodecError::NotBuiltIn(spec.id)),
        };
        Ok(Self { spec, dictionary, engine })
    }

    /// The codec and level that it was made with.
    pub fn spec(&self) -> CodecSpec {
        self.spec
    }

    /// The dictionary that it was made with.
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.dictionary.as_ref()
    }

    /// Compresses `src` into `dst` and gives the length of the payload, never zero.
    ///
    /// `None` means that the payload does not fit, or that there is nothing to gain: `src` is
    /// empty, or zstd would store it. A caller that wants a gain of `n` bytes passes a `dst`
    /// that is `n` bytes shorter than `src`; the codecs give up as soon as they know. What
    /// `dst` contains beyond the payload, or after `None`, has no meaning.
    ///
    /// # Errors
    /// If `src` is longer than [`SRC_LEN_MAX`], or the library fails in a way that it should
    /// not.
    pub fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, CodecError> {
        if src.len() > SRC_LEN_MAX {
            return Err(CodecError::TooLong(src.len()));
        }
        if src.is_empty() || dst.is_empty() {
            return Ok(None);
        }
        // A longer payload would be refused by the decompressor.
        let room = dst.len().min(SRC_LEN_MAX);
        let dst = &mut dst[..room];
        match &mut self.engine {
            Engine::Lz4(encoder) => Ok(encoder.compress(src, dst)),
            Engine::Zstd(encoder) => encoder.compress(src, dst),
            Engine::Deflate(encoder) => Ok(encoder.compress(src, dst)),
            #[cfg(feature = "lzo")]
            Engine::Lzo(encoder) => Ok(encoder.compress(src, dst)),
            #[cfg(feature = "bzip2")]
            Engine::Bzip2(encoder) => Ok(encoder.compress(src, dst)),
        }
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("spec", &self.spec)
            .field("dictionary", &self.dictionary)
            .finish_non_exhaustive()
    }
}
