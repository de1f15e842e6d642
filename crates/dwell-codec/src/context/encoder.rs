//! The sending end of a context.

use std::fmt;

use super::ring::Ring;
use super::{
    Base, CONTEXT_BASE_LEN_MAX, CONTEXT_BATCH_LEN_MAX, CONTEXT_LOG_MAX, CONTEXT_LOG_MIN,
    ContextSpec, Source, context_bound,
};
use crate::error::CodecError;
use crate::ffi::zstd::stream::EncodingStream;
use crate::id::CodecId;
use crate::model::{ModelEncoder, ModelSpec};
use crate::zstd::{PrimedEncoder, tables, unexpected};

/// The kind of the present generation, with what it needs; what the other kind needs is given back.
enum Kind {
    Running(EncodingStream),
    Alone(PrimedEncoder),
    Model(ModelEncoder),
}

impl Kind {
    /// Returns what running generations need, made if there is none yet.
    fn running(&mut self) -> Result<&mut EncodingStream, CodecError> {
        if !matches!(self, Self::Running(_)) {
            *self = Self::Running(EncodingStream::new().map_err(unexpected)?);
        }
        match self {
            Self::Running(stream) => Ok(stream),
            _ => Err(CodecError::NoGeneration),
        }
    }

    /// Returns what generations need whose batches stand alone, made if there is none yet.
    fn alone(&mut self) -> Result<&mut PrimedEncoder, CodecError> {
        if !matches!(self, Self::Alone(_)) {
            *self = Self::Alone(PrimedEncoder::new()?);
        }
        match self {
            Self::Alone(primed) => Ok(primed),
            _ => Err(CodecError::NoGeneration),
        }
    }

    /// Returns a model that knows nothing, made if there is none yet.
    fn model(&mut self, spec: ModelSpec) -> Result<&mut ModelEncoder, CodecError> {
        match self {
            Self::Model(model) => model.renew(spec)?,
            _ => *self = Self::Model(ModelEncoder::new(spec)?),
        }
        match self {
            Self::Model(model) => Ok(model),
            _ => Err(CodecError::NoGeneration),
        }
    }
}

/// Compresses the batches of a context.
pub struct ContextEncoder {
    spec: ContextSpec,
    ring: Ring,
    kind: Kind,
    /// The generation can go on.
    is_live: bool,
}

impl ContextEncoder {
    /// Makes an encoder whose first generation begins from nothing, [`Base::default`]. The ring
    /// has `1 << ring_log` bytes, at most as many as that of the decoder.
    ///
    /// # Errors
    /// If there is no such level, window or ring, or no memory.
    pub fn new(spec: ContextSpec, ring_log: u8) -> Result<Self, CodecError> {
        if !(CONTEXT_LOG_MIN..=CONTEXT_LOG_MAX).contains(&ring_log) {
            return Err(CodecError::Ring(ring_log));
        }
        let kind = Kind::Running(EncodingStream::new().map_err(unexpected)?);
        let mut encoder = Self { spec, ring: Ring::new(ring_log), kind, is_live: false };
        encoder.begin(spec, Base::default())?;
        Ok(encoder)
    }

    /// Begins a generation from bytes of the ring, which is cut back to their end, or from the end of a
    /// dictionary, which is all that is in the ring then, and primes the codec with them. The work of priming is
    /// done by the first [`compress`](Self::compress).
    ///
    /// The decoder must have the same bytes. Those of the ring it surely has if it has confirmed their end in a
    /// generation of this encoder, and no generation since began before that offset.
    ///
    /// # Errors
    /// If there is no such level or window, or the source is longer than the window, or is not there, or is
    /// nothing of a dictionary: then nothing has changed. If zstd fails there is no generation until the next call.
    pub fn begin<'a>(
        &mut self,
        spec: ContextSpec,
        source: impl Into<Source<'a>>,
    ) -> Result<(), CodecError> {
        spec.check(self.ring.log())?;
        let source = self.find(source.into(), 1 << spec.window_log)?;
        self.is_live = false;
        let ring = &self.ring;
        let begun = self.kind.running()?.begin(&tables(spec), |prefix| source.read(ring, prefix));
        begun.map_err(unexpected)?;
        source.cut(&mut self.ring);
        self.spec = spec;
        self.is_live = true;
        Ok(())
    }

    /// Begins a generation whose batches stand alone, and primes the codec with the source's bytes; the
    /// work of that is done by the first [`compress_alone`](Self::compress_alone). Unless the ring
    /// `keeps` what is beyond the base, it is cut back to the base's offset; from a dictionary it keeps nothing.
    ///
    /// The decoder must have the same bytes, as for [`begin`](Self::begin). The ring may be kept only after another
    /// such generation.
    ///
    /// # Errors
    /// As of [`begin`](Self::begin), with [`ContextSpec::alone_base_len_max`] for the window; and
    /// [`CodecError::NoGeneration`] if there is nothing to keep.
    pub fn begin_alone<'a>(
        &mut self,
        spec: ContextSpec,
        source: impl Into<Source<'a>>,
        keeps: bool,
    ) -> Result<(), CodecError> {
        spec.check(self.ring.log())?;
        let source = self.find(source.into(), spec.alone_base_len_max())?;
        let keeps = keeps && matches!(source, Source::Ring(_));
        if keeps && (!self.is_live || !matches!(self.kind, Kind::Alone(_))) {
            return Err(CodecError::NoGeneration);
        }
        self.is_live = false;
        let ring = &self.ring;
        self.kind.alone()?.prime(spec.level, |prefix| source.read(ring, prefix))?;
        if !keeps {
            source.cut(&mut self.ring);
        }
        self.spec = spec;
        self.is_live = true;
        Ok(())
    }

    /// Begins a running generation of a model, as [`begin`](Self::begin) does, and learns
    /// the source's bytes, which takes as long as to compress them. The model's memory is
    /// kept for the next such generation, unless that has another one, or another codec comes between.
    ///
    /// # Errors
    /// If there is no such model, or the source is longer than it [learns](ModelSpec::prime_len_max), or is not
    /// there, or is nothing of a dictionary: then nothing has changed.
    pub fn begin_model<'a>(
        &mut self,
        spec: impl Into<ModelSpec>,
        source: impl Into<Source<'a>>,
    ) -> Result<(), CodecError> {
        let spec = spec.into().check()?;
        let source = self.find(source.into(), spec.prime_len_max() as u32)?;
        self.is_live = false;
        let mut bytes = Vec::new();
        source.read(&self.ring, &mut bytes);
        self.kind.model(spec)?.prime(&bytes);
        source.cut(&mut self.ring);
        self.is_live = true;
        Ok(())
    }

    fn find<'a>(&self, source: Source<'a>, len_max: u32) -> Result<Source<'a>, CodecError> {
        let is_there = source.is_there(&self.ring, len_max);
        if is_there { Ok(source) } else { Err(CodecError::Base(source.base())) }
    }

    /// Compresses a batch that stands alone, and appends the result to `out`, if it is smaller than the batch.
    /// Then the offset moves on by the batch's length; otherwise, when the answer is false, nothing has
    /// changed.
    ///
    /// # Errors
    /// As of [`compress`](Self::compress).
    pub fn compress_alone(&mut self, batch: &[u8], out: &mut Vec<u8>) -> Result<bool, CodecError> {
        if batch.len() > CONTEXT_BATCH_LEN_MAX {
            return Err(CodecError::BatchTooLong(batch.len()));
        }
        let primed = match &mut self.kind {
            Kind::Alone(primed) if self.is_live => primed,
            _ => return Err(CodecError::NoGeneration),
        };
        if batch.is_empty() {
            return Ok(false);
        }
        self.is_live = false;
        let is_smaller = primed.compress(batch, out)?;
        if is_smaller {
            self.ring.push(batch);
        }
        self.is_live = true;
        Ok(is_smaller)
    }

    /// Returns the longest base at this offset that a decoder with the same ring surely has,
    /// however far behind it is, not longer than the present window and [`CONTEXT_BASE_LEN_MAX`], or in a
    /// generation of a model than that [learns](ModelSpec::prime_len_max); none if the offset is not
    /// in the ring any more, or not yet.
    pub fn base_at(&self, offset: u64) -> Option<Base> {
        let longest = match &self.kind {
            Kind::Model(model) => model.spec().prime_len_max(),
            _ => (1 << self.spec.window_log).min(CONTEXT_BASE_LEN_MAX as usize),
        };
        let len = self.ring.len_before(offset)?.min(longest);
        Some(Base { offset, len: len as u32 })
    }

    /// Returns the longest base at this offset for a generation of any kind, which may take less: not longer than
    /// [`CONTEXT_BASE_LEN_MAX`], whatever the present generation is; otherwise as [`base_at`](Self::base_at).
    pub fn ring_at(&self, offset: u64) -> Option<Base> {
        let len = self.ring.len_before(offset)?.min(CONTEXT_BASE_LEN_MAX as usize);
        Some(Base { offset, len: len as u32 })
    }

    /// Compresses a batch and appends the bytes that the decoder needs for all of it to `out`: at
    /// most [`context_bound`] bytes, and none for an empty batch. The offset moves on by the
    /// batch's length.
    ///
    /// # Errors
    /// If the batch is longer than [`CONTEXT_BATCH_LEN_MAX`]: then nothing has changed. If zstd
    /// fails, `out` is as it was, and there is no generation until [`begin`](Self::begin).
    pub fn compress(&mut self, batch: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        if batch.len() > CONTEXT_BATCH_LEN_MAX {
            return Err(CodecError::BatchTooLong(batch.len()));
        }
        let stream = match &mut self.kind {
            Kind::Running(stream) if self.is_live => stream,
            Kind::Model(model) if self.is_live => {
                model.compress(batch, out)?;
                self.ring.push(batch);
                return Ok(());
            }
            _ => return Err(CodecError::NoGeneration),
        };
        if batch.is_empty() {
            return Ok(());
        }
        self.is_live = false;
        let start = out.len();
        // With more room than the result can need, zstd writes to it without a copy in between.
        let room = zstd_safe::compress_bound(batch.len()).max(context_bound(batch.len()));
        stream.flush(batch, room, out).map_err(unexpected)?;
        debug_assert!(out.len() - start <= context_bound(batch.len()), "the bound is too low");
        self.ring.push(batch);
        self.is_live = true;
        Ok(())
    }

    /// Appends the `len` bytes that went through the context from `offset` on to `out`; false, and nothing
    /// is appended, if they are not all in the ring any more, or were never there.
    pub fn read(&self, offset: u64, len: u32, out: &mut Vec<u8>) -> bool {
        let Some(end) = offset.checked_add(len.into()) else { return false };
        let bytes = Base { offset: end, len };
        let is_there = self.ring.has(bytes);
        if is_there && len > 0 {
            self.ring.read(bytes, out);
        }
        is_there
    }

    /// Returns the number of bytes that went through the context: the offset of the next one.
    pub fn offset(&self) -> u64 {
        self.ring.end()
    }

    /// Appends the latest bytes that went through the context to `out`, at most `len_max` and not more than
    /// are in the ring.
    pub fn latest(&self, len_max: usize, out: &mut Vec<u8>) {
        let offset = self.ring.end();
        let len = self.ring.len_before(offset).unwrap_or(0).min(len_max);
        self.ring.read(Base { offset, len: len as u32 }, out);
    }

    /// Returns the level and window of the present generation, or of the latest that zstd had.
    pub fn spec(&self) -> ContextSpec {
        self.spec
    }

    /// Returns the model of the present generation, if it has one.
    pub fn model_spec(&self) -> Option<ModelSpec> {
        match &self.kind {
            Kind::Model(model) => Some(model.spec()),
            _ => None,
        }
    }

    /// Returns the codec of the present generation.
    pub fn codec(&self) -> CodecId {
        match &self.kind {
            Kind::Model(model) => model.spec().codec(),
            _ => CodecId::Zstd,
        }
    }

    /// Returns true if a batch of so many bytes may take [much longer](crate::ModelEncoder::may_learn_again) than others.
    pub fn may_learn_again(&self, bytes: usize) -> bool {
        matches!(&self.kind, Kind::Model(model) if model.may_learn_again(bytes))
    }

    /// Returns the bytes of memory that are allocated now. They grow with the first batch of a
    /// generation, for zstd's tables and window, and with the ring until it is full.
    pub fn memory_bytes(&self) -> usize {
        let of_kind = match &self.kind {
            Kind::Running(stream) => stream.memory_bytes(),
            Kind::Alone(primed) => primed.memory_bytes(),
            Kind::Model(model) => model.memory_bytes(),
        };
        size_of::<Self>() + self.ring.memory_bytes() + of_kind
    }
}

impl fmt::Debug for ContextEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextEncoder")
            .field("spec", &self.spec)
            .field("offset", &self.offset())
            .field("is_live", &self.is_live)
            .finish_non_exhaustive()
    }
}
