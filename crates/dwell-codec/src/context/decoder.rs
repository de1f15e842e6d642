//! The receiving end of a context.

use std::fmt;

use super::alone::AloneDecoder;
use super::ring::Ring;
use super::{CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, Source, alone_base_len_max};
use crate::error::DecodeError;
use crate::ffi::zstd::Failure;
use crate::ffi::zstd::stream::DecodingStream;
use crate::id::CodecId;
use crate::model::{ModelDecoder, ModelSpec};
use crate::zstd::reported;

/// Restores the batches of a context.
///
/// All that it is given may come from anyone on the network. It holds at most the ring, the bytes
/// of a base, and a window with 0.5 MiB beside it, or in place of the window a model's memory; or in place of these two the bases of four generations
/// whose batches stand alone, 0.75 MiB in all. After a change from one kind to the other it holds both: until the
/// next running generation, or until [`forget_running`](Self::forget_running).
pub struct ContextDecoder {
    ring: Ring,
    /// Made for the first generation of zstd.
    stream: Option<DecodingStream>,
    /// The present running generation has a model; else none is kept.
    model: Option<ModelDecoder>,
    /// There is a running generation, and it can go on.
    is_live: bool,
    alone: Option<AloneDecoder>,
    /// No generation whose batches stand alone has begun since the latest running one: with the next running
    /// one their state is given back.
    is_alone_idle: bool,
    /// How often the ring was cut, and what it was when the running generation began: batches of before
    /// have no place in it.
    cuts: u64,
    cut_of_stream: u64,
    /// Batches that stand alone have their places in the ring as it is.
    fills: bool,
}

/// What became of a batch that stands alone and was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is in its place in the ring.
    InRing,
    /// It is of before the ring was cut, or after the ring was given up: it has no place.
    Nowhere,
    /// It is too far ahead of the first hole, or leaves too many: the ring takes no more, and its offset
    /// stays.
    TooFar,
}

impl ContextDecoder {
    /// Makes a decoder with a ring of `1 << ring_log` bytes, which is also its largest window;
    /// below [`CONTEXT_LOG_MIN`] and above [`CONTEXT_LOG_MAX`] these count. It takes next to no
    /// memory before a generation begins.
    pub fn new(ring_log: u8) -> Self {
        let ring = Ring::new(ring_log.clamp(CONTEXT_LOG_MIN, CONTEXT_LOG_MAX));
        Self {
            ring,
            stream: None,
            model: None,
            is_live: false,
            alone: None,
            is_alone_idle: true,
            cuts: 0,
            cut_of_stream: 0,
            fills: false,
        }
    }

    /// Begins a generation from bytes of the ring, which is cut back to their end, or from the end of a
    /// dictionary, which is all that is in the ring then. A cold start, [`Base::default`](super::Base), is always
    /// possible.
    ///
    /// # Errors
    /// [`DecodeError::Window`] or [`DecodeError::Base`] if the window is none that it takes, or the
    /// source is longer than the window, or is not there, or is nothing of a dictionary;
    /// [`DecodeError::OutOfMemory`]. The ring is as it was then, and there is no generation.
    pub fn begin<'a>(
        &mut self,
        window_log: u8,
        source: impl Into<Source<'a>>,
    ) -> Result<(), DecodeError> {
        self.is_live = false;
        self.check_window(window_log)?;
        let source = self.find(source.into(), 1 << window_log)?;
        let (ring, stream) = (&self.ring, opened(&mut self.stream)?);
        let begun = stream.begin(u32::from(window_log), |prefix| source.read(ring, prefix));
        begun.map_err(|Failure(number)| reported(number))?;
        self.model = None;
        source.cut(&mut self.ring);
        self.runs();
        Ok(())
    }

    /// Begins a running generation of a model, as [`begin`](Self::begin) does, and learns
    /// the source's bytes, which takes as long as to decode them. What decodes zstd's running
    /// generations is given back. The caller has checked that the model's memory is not more
    /// than it offers.
    ///
    /// # Errors
    /// [`DecodeError::Ppm`], [`DecodeError::Mix`] or [`DecodeError::Base`] if there is no such model, or the source is
    /// longer than it [learns](ModelSpec::prime_len_max), or is not there, or is nothing of a dictionary. The ring is as it was then, and there
    /// is no generation.
    pub fn begin_model<'a>(
        &mut self,
        spec: impl Into<ModelSpec>,
        source: impl Into<Source<'a>>,
    ) -> Result<(), DecodeError> {
        self.is_live = false;
        let spec = spec.into();
        let source = self.find(source.into(), spec.prime_len_max() as u32)?;
        let mut bytes = Vec::new();
        source.read(&self.ring, &mut bytes);
        self.learn(spec, &bytes)?;
        source.cut(&mut self.ring);
        self.runs();
        Ok(())
    }

    fn find<'a>(&self, source: Source<'a>, len_max: u32) -> Result<Source<'a>, DecodeError> {
        let is_there = source.is_there(&self.ring, len_max);
        if is_there { Ok(source) } else { Err(DecodeError::Base(source.base())) }
    }

    /// Begins with a model that knows these bytes only. Memory that one of before has had is kept if this one has as
    /// much: a peer may let a generation begin with each byte.
    fn learn(&mut self, spec: ModelSpec, bytes: &[u8]) -> Result<(), DecodeError> {
        let no_model = |_| match spec {
            ModelSpec::Ppm(spec) => DecodeError::Ppm(spec),
            ModelSpec::Mix(spec) => DecodeError::Mix(spec),
        };
        let model = match &mut self.model {
            Some(model) => {
                model.renew(spec).map_err(no_model)?;
                model
            }
            none => none.insert(ModelDecoder::new(spec).map_err(no_model)?),
        };
        model.prime(bytes);
        self.stream = None;
        Ok(())
    }

    /// A running generation has begun, and the ring was cut for it.
    fn runs(&mut self) {
        self.cuts += 1;
        (self.cut_of_stream, self.fills) = (self.cuts, false);
        self.is_live = true;
        if std::mem::replace(&mut self.is_alone_idle, true) {
            self.alone = None;
        }
    }

    fn check_window(&self, window_log: u8) -> Result<(), DecodeError> {
        if !(CONTEXT_LOG_MIN..=self.ring.log()).contains(&window_log) {
            return Err(DecodeError::Window { window_log, ring_log: self.ring.log() });
        }
        Ok(())
    }

    /// Begins a generation whose batches stand alone. Unless the ring `keeps` what is beyond the base, it
    /// is cut back to the base's offset; from a dictionary it keeps nothing. Batches of the generations before can
    /// yet be decoded: of the latest few that stand alone, and of the running one until that is
    /// [forgotten](Self::forget_running).
    ///
    /// # Errors
    /// As of [`begin`](Self::begin), with a shorter source; nothing has changed then.
    pub fn begin_alone<'a>(
        &mut self,
        generation: u8,
        (window_log, source): (u8, impl Into<Source<'a>>),
        keeps: bool,
    ) -> Result<(), DecodeError> {
        self.check_window(window_log)?;
        let source = self.find(source.into(), alone_base_len_max(window_log))?;
        let alone = opened_alone(&mut self.alone)?;
        if !keeps || matches!(source, Source::Dictionary(..)) {
            source.cut(&mut self.ring);
            (self.cuts, self.fills) = (self.cuts + 1, true);
        }
        let (ring, from) = (&self.ring, (source.base().offset, self.cuts));
        alone.begin(generation, from, |bytes| source.read(ring, bytes));
        self.is_alone_idle = false;
        Ok(())
    }

    /// Returns true if the running generation has a model.
    pub fn has_model(&self) -> bool {
        self.model.is_some()
    }

    /// Returns the codec of that model.
    pub fn model_codec(&self) -> Option<CodecId> {
        self.model.as_ref().map(|model| model.spec().codec())
    }

    /// Returns true if a generation with this model would begin in the memory that the running one's has: if not, most of the
    /// time that it takes to begin is that of new memory.
    pub fn has_memory_for(&self, spec: ModelSpec) -> bool {
        let has = |model: &ModelDecoder| {
            let of = |spec: ModelSpec| (spec.codec(), spec.memory_log());
            of(model.spec()) == of(spec)
        };
        self.model.as_ref().is_some_and(has)
    }

    /// Returns true if a batch of so many bytes may take [much longer](crate::ModelDecoder::may_learn_again) than others.
    pub fn may_learn_again(&self, bytes: usize) -> bool {
        self.model.as_ref().is_some_and(|model| model.may_learn_again(bytes))
    }

    /// Gives back what the running generation is decoded with: nothing of it is to come any more.
    pub fn forget_running(&mut self) {
        (self.stream, self.model, self.is_live) = (None, None, false);
    }

    /// Decodes a batch that stands alone, which must be exactly as long as `dst`, and puts it in its
    /// place in the ring: so far behind its generation's base. As for [`decode`](Self::decode), damaged
    /// batches may decode to other data.
    ///
    /// # Errors
    /// If the batch is damaged or of another length: then all further ones of this generation are
    /// refused. [`DecodeError::NoGeneration`] if there is none, or not any more.
    pub fn decode_alone(
        &mut self,
        generation: u8,
        distance: u32,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Placed, DecodeError> {
        let alone = self.alone.as_mut().ok_or(DecodeError::NoGeneration)?;
        let (offset, cut) = alone.decode(generation, src, dst)?;
        if !self.fills || cut != self.cuts {
            return Ok(Placed::Nowhere);
        }
        let place = offset.checked_add(distance.into());
        if place.is_some_and(|place| self.ring.fill(place, dst)) {
            return Ok(Placed::InRing);
        }
        self.fills = false;
        Ok(Placed::TooFar)
    }

    /// Returns true if batches of this generation that stand alone can be decoded.
    pub fn has_alone(&self, generation: u8) -> bool {
        self.alone.as_ref().is_some_and(|alone| alone.has(generation))
    }

    /// Returns true if something is missing before what is in the ring.
    pub fn has_holes(&self) -> bool {
        self.fills && self.ring.has_holes()
    }

    /// Puts nothing into the ring any more, until it is cut: what is missing does not come.
    pub fn give_up_holes(&mut self) {
        self.fills = false;
    }

    /// Decodes a batch, which must be exactly as long as `dst`. Batches carry no checksum, so that
    /// damaged ones, or those after other ones than the encoder's, may decode to other data. What
    /// `dst` contains after an error has no meaning.
    ///
    /// # Errors
    /// If the batch is damaged or of another length: then the generation is over, and all further
    /// batches are refused until [`begin`](Self::begin). [`DecodeError::NoGeneration`] if it was
    /// over before.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        if !std::mem::take(&mut self.is_live) {
            return Err(DecodeError::NoGeneration);
        }
        match (&mut self.model, &mut self.stream) {
            (Some(model), _) => model.decode(src, dst)?,
            (None, Some(stream)) => decode_by_zstd(stream, src, dst)?,
            (None, None) => return Err(DecodeError::NoGeneration),
        }
        if self.cut_of_stream == self.cuts {
            self.ring.push(dst);
        }
        self.is_live = true;
        Ok(())
    }

    /// Returns the number of bytes that went through the context without a hole: the offset of the next one.
    pub fn offset(&self) -> u64 {
        self.ring.end()
    }

    /// Returns the bytes of memory that are allocated now.
    pub fn memory_bytes(&self) -> usize {
        let stream = self.stream.as_ref().map_or(0, DecodingStream::memory_bytes);
        let alone = self.alone.as_ref().map_or(0, AloneDecoder::memory_bytes);
        let model = self.model.as_ref().map_or(0, |model| model.memory_bytes());
        size_of::<Self>() + self.ring.memory_bytes() + stream + model + alone
    }
}

fn decode_by_zstd(
    stream: &mut DecodingStream,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecodeError> {
    // No batch is empty on either side.
    if src.is_empty() || dst.is_empty() {
        return Err(DecodeError::Corrupt(CodecId::Zstd));
    }
    match stream.decode(src, dst) {
        Ok(true) => Ok(()),
        Ok(false) => Err(DecodeError::Corrupt(CodecId::Zstd)),
        Err(Failure(number)) => Err(reported(number)),
    }
}

/// Returns the stream, made if there is none yet.
fn opened(stream: &mut Option<DecodingStream>) -> Result<&mut DecodingStream, DecodeError> {
    Ok(match stream {
        Some(stream) => stream,
        none => none.insert(DecodingStream::new().map_err(|Failure(number)| reported(number))?),
    })
}

/// The same for batches that stand alone.
fn opened_alone(alone: &mut Option<AloneDecoder>) -> Result<&mut AloneDecoder, DecodeError> {
    Ok(match alone {
        Some(alone) => alone,
        none => none.insert(AloneDecoder::new()?),
    })
}

impl fmt::Debug for ContextDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextDecoder")
            .field("offset", &self.offset())
            .field("is_live", &self.is_live)
            .finish_non_exhaustive()
    }
}
