//! LZO1X by lzokay (MIT), in builds with the feature `lzo`.
//!
//! The format is that of liblzo (GPL), which published results are about. lzokay searches
//! longer than LZO1X-1: it compresses a little more and takes many times as long. Compare
//! ratios with its help, not speeds.

use lzokay::compress::{Dict, compress_no_alloc};

use crate::error::DecodeError;
use crate::id::CodecId;

pub(crate) struct Encoder(Box<Dict>);

impl Encoder {
    pub(crate) fn new() -> Self {
        Self(Dict::new())
    }

    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // Its only error in compressing is that the result does not fit.
        compress_no_alloc(src, dst, &mut self.0).ok()
    }
}

pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
    lzokay::decompress::decompress(src, dst).map_err(|error| match error {
        lzokay::Error::OutputOverrun => DecodeError::DoesNotFit(CodecId::Lzo),
        _ => DecodeError::Corrupt(CodecId::Lzo),
    })
}
