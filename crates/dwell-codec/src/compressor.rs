//! One compressor for all codecs.

use std::fmt;
use std::sync::Arc;

use crate::dictionary::Dictionary;
use crate::error::CodecError;
use crate::id::CodecId;
use crate::spec::CodecSpec;
use crate::{SRC_LEN_MAX, deflate, end_of, lz4, zstd};

/// Compresses packets with one codec, level and dictionary; all its memory is allocated once.
///
/// Packets do not depend on each other: each can be decoded without the others.
pub struct Compressor {
    spec: CodecSpec,
    dictionary: Option<Arc<Dictionary>>,
    takes_history: bool,
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
            CodecId::Ppm | CodecId::Mix => return Err(CodecError::NotBuiltIn(spec.id)),
            #[cfg(not(feature = "bzip2"))]
            CodecId::Bzip2 => return Err(CodecError::NotBuiltIn(spec.id)),
            #[cfg(not(feature = "lzo"))]
            CodecId::Lzo => return Err(CodecError::NotBuiltIn(spec.id)),
        };
        Ok(Self { spec, dictionary, takes_history: false, engine })
    }

    /// Makes a compressor that takes a history, if the codec can refer to one
    /// ([`CodecId::takes_history`]): zstd reserves 0.9 to 5 MiB for it then.
    ///
    /// # Errors
    /// If the build lacks the codec, or the codec the level.
    pub fn with_history(spec: CodecSpec) -> Result<Self, CodecError> {
        let mut compressor = Self::new(spec, None)?;
        if spec.id == CodecId::Zstd {
            compressor.engine = Engine::Zstd(zstd::Encoder::with_history(spec.level)?);
        }
        compressor.takes_history = spec.id.takes_history();
        Ok(compressor)
    }

    /// Returns the codec and level that it was made with.
    pub fn spec(&self) -> CodecSpec {
        self.spec
    }

    /// Returns the dictionary that it was made with.
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.dictionary.as_ref()
    }

    /// Compresses `src` into `dst` and gives the length of the payload, never zero.
    ///
    /// `None` means that the payload does not fit, or that there is nothing to gain: `src` is
    /// empty, or zstd would store it. A caller that wants a gain of `n` bytes passes a `dst`
    /// that is `n` bytes shorter than `src`; the codecs stop as soon as the result is too long.
    /// What `dst` contains beyond the payload, or after `None`, has no meaning.
    ///
    /// # Errors
    /// If `src` is longer than [`SRC_LEN_MAX`], or the library fails in a way that it should
    /// not.
    pub fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>, CodecError> {
        let Some(dst) = room(src, dst)? else { return Ok(None) };
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

    /// Compresses `src` as [`Compressor::compress`] does, as a continuation of `history`:
    /// repetitions of the history are encoded as references. The decoder needs the same bytes, or
    /// more bytes of which these are the
    /// end. Only the last [`HISTORY_LEN_MAX`](crate::HISTORY_LEN_MAX) bytes of a history are used.
    /// Only for compressors of [`Compressor::with_history`].
    ///
    /// # Errors
    /// As [`Compressor::compress`]; and [`CodecError::NoHistory`] if the codec can't refer to one,
    /// or the compressor was not made for it.
    pub fn compress_after(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<usize>, CodecError> {
        if !self.takes_history {
            return Err(CodecError::NoHistory(self.spec.id));
        }
        let Some(dst) = room(src, dst)? else { return Ok(None) };
        let history = end_of(history);
        match &mut self.engine {
            Engine::Lz4(encoder) => Ok(encoder.compress_after(history, src, dst)),
            Engine::Zstd(encoder) => encoder.compress_after(history, src, dst),
            _ => Err(CodecError::NoHistory(self.spec.id)),
        }
    }
}

/// Returns the part of `dst` that a payload may fill; none if there is nothing to do.
fn room<'a>(src: &[u8], dst: &'a mut [u8]) -> Result<Option<&'a mut [u8]>, CodecError> {
    if src.len() > SRC_LEN_MAX {
        return Err(CodecError::TooLong(src.len()));
    }
    if src.is_empty() || dst.is_empty() {
        return Ok(None);
    }
    // A longer payload would be refused by the decompressor.
    let room = dst.len().min(SRC_LEN_MAX);
    Ok(Some(&mut dst[..room]))
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("spec", &self.spec)
            .field("dictionary", &self.dictionary)
            .finish_non_exhaustive()
    }
}
