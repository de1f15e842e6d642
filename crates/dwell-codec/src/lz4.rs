//! LZ4 blocks.

use std::sync::Arc;

use crate::dictionary::Dictionary;
use crate::error::{CodecError, DecodeError};
use crate::ffi::lz4::{self, Digest, Stream};
use crate::id::CodecId;

pub(crate) struct Encoder {
    stream: Stream,
    digest: Option<Arc<Digest>>,
    acceleration: i32,
}

impl Encoder {
    pub(crate) fn new(
        acceleration: i32,
        dictionary: Option<&Dictionary>,
    ) -> Result<Self, CodecError> {
        let no_memory = CodecError::OutOfMemory(CodecId::Lz4);
        let stream = Stream::new().ok_or(no_memory)?;
        let digest = match dictionary {
            Some(dictionary) => Some(dictionary.for_lz4().ok_or(no_memory)?),
            None => None,
        };
        Ok(Self { stream, digest, acceleration })
    }

    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        match &self.digest {
            Some(digest) => self.stream.compress_after(digest, src, dst, self.acceleration),
            None => self.stream.compress(src, dst, self.acceleration),
        }
    }

    pub(crate) fn compress_after(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Option<usize> {
        self.stream.compress_following(history, src, dst, self.acceleration)
    }
}

pub(crate) fn decompress_after(
    history: &[u8],
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, DecodeError> {
    lz4::decompress_after(history, src, dst).ok_or(DecodeError::Corrupt(CodecId::Lz4))
}

pub(crate) fn decompress(
    dictionary: Option<&Dictionary>,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, DecodeError> {
    match dictionary {
        Some(dictionary) => lz4::decompress_after(dictionary.bytes(), src, dst),
        None => lz4::decompress(src, dst),
    }
    .ok_or(DecodeError::Corrupt(CodecId::Lz4))
}
