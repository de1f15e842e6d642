//! The decoder for all codecs.

use std::fmt;

use crate::dictionary::Dictionary;
use crate::error::DecodeError;
use crate::id::CodecId;
use crate::{SRC_LEN_MAX, deflate, end_of, lz4, zstd};

/// Decodes payloads of all codecs, within the bounds of the given buffer.
///
/// It holds about 170 KiB, allocated once; decoding allocates nothing, whatever the input (but 400
/// KiB for bzip2, in builds that have it, and see [`Decompressor::decompress_after`]).
pub struct Decompressor {
    zstd: zstd::Decoder,
    deflate: deflate::Decoder,
}

impl Decompressor {
    /// Makes the contexts for all codecs.
    pub fn new() -> Self {
        Self { zstd: zstd::Decoder::new(), deflate: deflate::Decoder::new() }
    }

    /// Decodes `src` into `dst` and gives the length of the data.
    ///
    /// Both may come from anyone on the network: nothing is written outside `dst`, and data
    /// that would be longer are an error. Payloads carry no checksum, so damaged ones may
    /// decode to other data. The caller should make `dst` as long as the packet is declared to
    /// be, and refuse it if the result is shorter. What `dst` contains beyond the result, or
    /// after an error, has no meaning.
    ///
    /// # Errors
    /// If the payload is damaged, too long or made with another dictionary or codec, its data
    /// do not fit, or the build lacks the codec. If several things are wrong with a payload,
    /// the one that is reported may differ from call to call.
    pub fn decompress(
        &mut self,
        codec: CodecId,
        dictionary: Option<&Dictionary>,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, DecodeError> {
        if !codec.is_built_in() {
            return Err(DecodeError::NotBuiltIn(codec));
        }
        if dictionary.is_some() && !codec.takes_dictionary() {
            return Err(DecodeError::NoDictionary(codec));
        }
        if src.len() > SRC_LEN_MAX {
            return Err(DecodeError::TooLong(src.len()));
        }
        match codec {
            CodecId::Lz4 => lz4::decompress(dictionary, src, dst),
            CodecId::Zstd => self.zstd.decompress(dictionary, src, dst),
            CodecId::Deflate => self.deflate.decompress(src, dst),
            #[cfg(feature = "lzo")]
            CodecId::Lzo => crate::lzo::decompress(src, dst),
            #[cfg(not(feature = "lzo"))]
            CodecId::Lzo => Err(DecodeError::NotBuiltIn(codec)),
            #[cfg(feature = "bzip2")]
            CodecId::Bzip2 => crate::bzip2::decompress(src, dst),
            #[cfg(not(feature = "bzip2"))]
            CodecId::Bzip2 => Err(DecodeError::NotBuiltIn(codec)),
            CodecId::Ppm | CodecId::Mix => Err(DecodeError::NotBuiltIn(codec)),
        }
    }

    /// Decodes a payload that refers to `history`
    /// ([`Compressor::compress_after`](crate::Compressor::compress_after)), of which the last
    /// [`HISTORY_LEN_MAX`](crate::HISTORY_LEN_MAX) bytes are used. The first such payload of zstd
    /// makes a context of 160 KiB, and each allocates some 30 KiB while it is decoded.
    ///
    /// # Errors
    /// As [`Decompressor::decompress`]; and [`DecodeError::NoHistory`] if the codec can't refer to
    /// one.
    pub fn decompress_after(
        &mut self,
        codec: CodecId,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, DecodeError> {
        if src.len() > SRC_LEN_MAX {
            return Err(DecodeError::TooLong(src.len()));
        }
        let history = end_of(history);
        match codec {
            CodecId::Lz4 => lz4::decompress_after(history, src, dst),
            CodecId::Zstd => self.zstd.decompress_after(history, src, dst),
            CodecId::Deflate | CodecId::Lzo | CodecId::Bzip2 | CodecId::Ppm | CodecId::Mix => {
                Err(DecodeError::NoHistory(codec))
            }
        }
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}
