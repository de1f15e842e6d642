//! Raw DEFLATE by libdeflate.

use libdeflater::{CompressionLvl, DecompressionError};

use crate::error::{CodecError, DecodeError};
use crate::id::CodecId;

pub(crate) struct Encoder(libdeflater::Compressor);

impl Encoder {
    pub(crate) fn new(level: i32) -> Result<Self, CodecError> {
        let level = CompressionLvl::new(level)
            .map_err(|_| CodecError::Level { codec: CodecId::Deflate, level })?;
        Ok(Self(libdeflater::Compressor::new(level)))
    }

    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // Its only error is that the result does not fit.
        self.0.deflate_compress(src, dst).ok()
    }
}

pub(crate) struct Decoder(libdeflater::Decompressor);

impl Decoder {
    pub(crate) fn new() -> Self {
        Self(libdeflater::Decompressor::new())
    }

    pub(crate) fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        self.0.deflate_decompress(src, dst).map_err(|error| match error {
            DecompressionError::BadData => DecodeError::Corrupt(CodecId::Deflate),
            DecompressionError::InsufficientSpace => DecodeError::DoesNotFit(CodecId::Deflate),
        })
    }
}
