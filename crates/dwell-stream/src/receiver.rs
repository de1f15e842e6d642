//! The receiving end of a stream.

mod granted;

use std::collections::BTreeMap;

use crc32fast::Hasher;

use crate::compress::Decompressors;
use crate::config::{BLOCK_LEN_MAX, BLOCK_LEN_MIN, REORDER_MAX, check_model, check_window};
use crate::context::{ContextLimits, ReceiverContext};
use crate::error::{AbortReason, ConfigError, StreamError};
use crate::frame::{
    BlockHeader, Contexts, HEADER_LEN_MAX, Header, Layout, MAGIC, PREAMBLE_LEN, Preamble, UnitForm,
    UnitHeader,
};
use crate::history::History;
use crate::stats::ReceiverStats;

/// The limits that a receiver sets to its sender. Together with the block length they bound its
/// memory: output, plus a block that arrives, plus blocks out of order, plus the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The restored bytes that wait to be consumed before no more is taken; one block may exceed
    /// it. Default 256 KiB.
    pub output_len: usize,
    /// The longest blocks accepted, 4 to 64 KiB. Default 64 KiB.
    pub block_len: usize,
    /// The most blocks that may come before one that precedes them. Default and maximum 64.
    pub reorder: u8,
    /// True if streams in units are accepted ([`Strategy::TcpComp`](crate::Strategy::TcpComp),
    /// [`Strategy::KernelLevel`](crate::Strategy::KernelLevel)). Their bytes are given out before
    /// the check sum that covers them has come. Default true.
    pub units: bool,
    /// True if streams are accepted in which blocks refer to earlier ones, of which 192 KiB are
    /// then held. Default true.
    pub history: bool,
    /// The binary logarithm of the longest window of a running context that is accepted, 15 to 23; of it three times as
    /// many bytes are then held, and half a megabyte. 0: none. Default 0.
    pub window_log: u8,
    /// The binary logarithm of the most memory that a model may have in such a context, in bytes, 20 to 26: so much
    /// more is then held, and 192 KiB. It takes a window beside it. 0: none. Default 0.
    pub model_log: u8,
    /// True if such models, also those of contexts that are granted on the way, may be of the codec `mix`, which decodes about a
    /// megabyte a second. Default false.
    pub mixed_models: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            output_len: 256 << 10,
            block_len: BLOCK_LEN_MAX,
            reorder: REORDER_MAX,
            units: true,
            history: true,
            window_log: 0,
            model_log: 0,
            mixed_models: false,
        }
    }
}

impl Limits {
    /// Returns the default limits, but only for streams in blocks that come in order: never more
    /// than `output_len`, two blocks and the history are held, and nothing is given out unverified.
    pub fn in_order() -> Self {
        Self { reorder: 0, units: false, ..Self::default() }
    }

    /// Checks that each limit is one that a receiver can keep to; [`Builder`](crate::Builder) does. [`Receiver::new`] makes
    /// one with others, too: what is beyond a maximum is then the maximum.
    ///
    /// # Errors
    /// The first that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.output_len == 0 {
            return Err(ConfigError::OutputLen);
        }
        if !(BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&self.block_len) {
            return Err(ConfigError::BlockLimit(self.block_len));
        }
        if self.reorder > REORDER_MAX {
            return Err(ConfigError::Reorder(self.reorder));
        }
        check_window(self.window_log)?;
        check_model(self.model_log)
    }
}

/// The memory that an empty output keeps, in bytes.
const OUTPUT_KEPT: usize = 64 << 10;

/// Takes bytes from a transport and gives the bytes of the application. The crate's first page
/// describes its use.
#[derive(Debug)]
pub struct Receiver {
    limits: Limits,
    phase: Phase,
    /// True if the stream may refer to the one before it.
    may_go_on: bool,
    preamble: Option<Preamble>,
    /// Bytes of a preamble or header that is not complete.
    header: Vec<u8>,
    /// Bytes of a payload that is not complete.
    payload: Vec<u8>,
    /// Blocks that came before one that precedes them.
    early: BTreeMap<u64, Early>,
    next_index: u64,
    /// The data that blocks can refer to.
    history: History,
    /// The same of a stream with a running context.
    context: ReceiverContext,
    /// What the sender was granted of one, ...
    granted: Option<ContextLimits>,
    /// ... and what the other end has granted the stream of the other direction.
    offered: Option<ContextLimits>,
    output: Vec<u8>,
    output_at: usize,
    hasher: Hasher,
    stats: ReceiverStats,
    failed: Option<StreamError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Preamble,
    /// There is no framing.
    Plain,
    Header,
    Payload(BlockHeader),
    Unit(UnitHeader),
    Ended,
}

#[derive(Debug)]
struct Early {
    data: Vec<u8>,
    check: u32,
}

impl Receiver {
    /// Makes a receiver at the beginning of its stream.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            phase: Phase::Preamble,
            may_go_on: false,
            preamble: None,
            header: Vec::with_capacity(HEADER_LEN_MAX),
            payload: Vec::new(),
            early: BTreeMap::new(),
            next_index: 0,
            history: History::default(),
            context: ReceiverContext::default(),
            granted: None,
            offered: None,
            output: Vec::new(),
            output_at: 0,
            hasher: Hasher::new(),
            stats: ReceiverStats::default(),
            failed: None,
        }
    }

    /// Makes a receiver for [`Strategy::Plain`](crate::Strategy::Plain), which has no framing: it
    /// gives out the bytes as they come, and can't detect the end.
    pub fn plain(limits: Limits) -> Self {
        Self { phase: Phase::Plain, ..Self::new(limits) }
    }

    /// Returns the receiver of the stream that follows this one on the same transport, and may refer to what came on this
    /// one; it need not. None if this one has not come to its end, or something of it was not consumed.
    pub fn into_next(mut self) -> Option<Self> {
        if !self.is_finished() || self.failed.is_some() || !self.data().is_empty() {
            return None;
        }
        self.history.restart();
        Some(Self { may_go_on: true, history: self.history, ..Self::new(self.limits) })
    }

    /// Takes bytes from the transport and returns their number. It takes less than all if the
    /// output is full: consume some, and feed the rest again. It does so, too, before and behind each block of a
    /// model of `mix`, which may take a twentieth of a second: then feed the rest again, too, when others had their turn.
    ///
    /// # Errors
    /// If the stream is damaged, not ours, or given up by its sender. Data given out before are
    /// correct; later calls return the same error.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        decompressors: &mut Decompressors,
    ) -> Result<usize, StreamError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut taken = 0;
        while taken < bytes.len() && self.wants_more() {
            // Bytes after the end belong to the next user of the transport.
            if taken > 0 && self.is_finished() {
                break;
            }
            let was_slow = self.is_slow_next();
            match self.step(&bytes[taken..], decompressors) {
                Ok(len) => taken += len,
                Err(error) => {
                    self.failed = Some(error.clone());
                    return Err(error);
                }
            }
            if self.is_slow_next() != was_slow {
                break;
            }
        }
        self.stats.wire_bytes += taken as u64;
        Ok(taken)
    }

    /// Returns true if [`Receiver::feed`] would take something.
    pub fn wants_more(&self) -> bool {
        self.data().len() < self.limits.output_len
    }

    /// Returns the restored and verified bytes that were not consumed yet.
    pub fn data(&self) -> &[u8] {
        &self.output[self.output_at..]
    }

    /// Drops the first `len` bytes of [`Receiver::data`].
    ///
    /// # Panics
    /// If that is more than there is.
    pub fn consume(&mut self, len: usize) {
        assert!(len <= self.data().len(), "more was consumed than there was");
        self.output_at += len;
        if self.output_at == self.output.len() {
            self.output_at = 0;
            self.output.clear();
            // Many connections are idle most of the time.
            self.output.shrink_to(OUTPUT_KEPT);
        }
    }

    /// Returns the bytes of memory that it has for data: those that wait to be consumed or to be complete,
    /// those that later ones may refer to, and what is free in their buffers.
    pub fn held(&self) -> usize {
        let early: usize = self.early.values().map(|early| early.data.capacity()).sum();
        self.output.capacity() + self.payload.capacity() + early + self.history.capacity()
    }

    /// Returns the part of [`Receiver::held`] for what later blocks may refer to.
    pub fn history_bytes(&self) -> usize {
        self.history.capacity()
    }

    /// Returns the bytes that are missing of the block that is coming, or zero if none is, or the length of
    /// none is known.
    pub fn missing(&self) -> usize {
        let whole = match &self.phase {
            Phase::Payload(header) => header.payload_len,
            Phase::Unit(header) => header.payload_len,
            Phase::Preamble | Phase::Plain | Phase::Header | Phase::Ended => return 0,
        };
        whole.saturating_sub(self.payload.len())
    }

    /// Frees what its buffers have free, for a connection that will be idle for a while.
    pub fn shrink(&mut self) {
        if self.output_at == self.output.len() {
            (self.output, self.output_at) = (Vec::new(), 0);
        }
        self.payload.shrink_to_fit();
    }

    /// Moves as many bytes as are there and fit into `buf`, and returns their number.
    pub fn take(&mut self, buf: &mut [u8]) -> usize {
        let len = self.data().len().min(buf.len());
        buf[..len].copy_from_slice(&self.data()[..len]);
        self.consume(len);
        len
    }

    /// Takes all bytes that are there, and leaves it this buffer for the next ones, whatever is in it.
    pub fn take_all(&mut self, buffer: Vec<u8>) -> Vec<u8> {
        let mut taken = std::mem::replace(&mut self.output, buffer);
        self.output.clear();
        taken.drain(..std::mem::take(&mut self.output_at));
        taken
    }

    /// Returns true if the end was announced, and everything before it has come. There may still be
    /// data to consume.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Checks that the stream is complete, when the transport has ended.
    ///
    /// # Errors
    /// [`StreamError::Truncated`] if the stream has not ended before, or the error that it failed
    /// with.
    pub fn end(&self) -> Result<(), StreamError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None if self.is_finished() || self.phase == Phase::Plain => Ok(()),
            None => Err(StreamError::Truncated),
        }
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &ReceiverStats {
        &self.stats
    }

    #[cfg(test)]
    pub(crate) fn history_len(&mut self) -> usize {
        self.history.before(self.stats.data_bytes).len()
    }

    /// Takes some bytes, at most to the end of the current part.
    fn step(
        &mut self,
        bytes: &[u8],
        decompressors: &mut Decompressors,
    ) -> Result<usize, StreamError> {
        match self.phase {
            Phase::Preamble => self.in_preamble(bytes),
            Phase::Header => self.in_header(bytes),
            Phase::Payload(header) => {
                self.in_payload(header.payload_len, bytes, |receiver, payload| {
                    receiver.complete(header, payload, decompressors)
                })
            }
            Phase::Unit(header) => {
                self.in_payload(header.payload_len, bytes, |receiver, payload| {
                    receiver.complete_unit(header, payload, decompressors)
                })
            }
            Phase::Plain => {
                self.stats.data_bytes += bytes.len() as u64;
                self.give_out(bytes);
                Ok(bytes.len())
            }
            Phase::Ended => Err(StreamError::AfterEnd),
        }
    }

    fn in_preamble(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let len = fill(&mut self.header, bytes, PREAMBLE_LEN);
        // Reported as soon as it is known: the other side may be waiting for an answer.
        if !MAGIC.starts_with(&self.header[..self.header.len().min(3)]) {
            return Err(StreamError::NotAStream);
        }
        if let Ok(preamble) = <[u8; PREAMBLE_LEN]>::try_from(&self.header[..]) {
            let preamble = Preamble::from_bytes(preamble)?;
            if preamble.block_len() > self.limits.block_len.max(1 << 12) {
                return Err(StreamError::Preamble("its blocks are longer than is accepted here"));
            }
            if preamble.layout != Layout::Blocks && !self.limits.units {
                return Err(StreamError::Preamble(
                    "its data come in units, which are not accepted",
                ));
            }
            if preamble.history && !self.limits.history {
                return Err(StreamError::Preamble(
                    "its blocks refer to earlier ones, which is not accepted",
                ));
            }
            match (preamble.goes_on, self.may_go_on) {
                (true, false) => {
                    return Err(StreamError::Preamble(
                        "it goes on with another stream, of which nothing is here",
                    ));
                }
                (true, true) => {}
                (false, _) => self.history.forget(),
            }
            if preamble.window_log > self.limits.window_log {
                return Err(StreamError::Preamble(
                    "it has a longer context than is accepted, or none is accepted",
                ));
            }
            if preamble.model_log > self.limits.model_log {
                return Err(StreamError::Preamble(
                    "it has a model with more memory than is accepted, or none is accepted",
                ));
            }
            if preamble.mixes() && !self.limits.mixed_models {
                return Err(StreamError::Preamble(
                    "its models may be of the codec mix, which is not accepted",
                ));
            }
            if preamble.reorder > self.limits.reorder {
                return Err(StreamError::Preamble("too much may come out of order"));
            }
            self.preamble = Some(preamble);
            self.header.clear();
            self.phase = Phase::Header;
        }
        Ok(len)
    }

    fn in_header(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let layout = self.preamble.map_or(Layout::Blocks, |preamble| preamble.layout);
        let contexts = self.preamble.map_or(Contexts::None, Preamble::contexts);
        let first = self.header.first().copied().unwrap_or(bytes[0]);
        let wanted = match layout {
            Layout::Blocks => Header::len_of(first, contexts)?,
            Layout::Units | Layout::LongUnits => layout.unit_header_len(),
        };
        let len = fill(&mut self.header, bytes, wanted);
        if self.header.len() < wanted {
            return Ok(len);
        }
        if layout == Layout::Blocks {
            let header = Header::from_bytes(&self.header, contexts)?;
            self.begin(header)?;
        } else {
            self.phase = Phase::Unit(UnitHeader::from_bytes(&self.header, layout)?);
        }
        self.header.clear();
        Ok(len)
    }

    fn begin(&mut self, header: Header) -> Result<(), StreamError> {
        match header {
            Header::Block(block) => {
                self.check_block(&block)?;
                self.phase = Phase::Payload(block);
                Ok(())
            }
            Header::End { total, check } => self.at_end(total, check),
            Header::Abort(reason) => Err(StreamError::Aborted(reason)),
            Header::Grant(limits) => {
                self.offered = Some(limits);
                Ok(())
            }
            Header::Drop => {
                // There is no history beside it. One that there is without it stays.
                self.context.forget();
                self.granted = None;
                Ok(())
            }
        }
    }

    fn at_end(&mut self, total: u64, check: u32) -> Result<(), StreamError> {
        if !self.early.is_empty() || total != self.stats.data_bytes {
            return Err(StreamError::CheckSum);
        }
        self.compare(check)?;
        // What the next stream may refer to is the history.
        self.context.forget();
        self.granted = None;
        self.phase = Phase::Ended;
        Ok(())
    }

    fn compare(&self, check: u32) -> Result<(), StreamError> {
        if self.hasher.clone().finalize() == check { Ok(()) } else { Err(StreamError::CheckSum) }
    }

    /// Compares a header with the promises of the preamble.
    fn check_block(&self, block: &BlockHeader) -> Result<(), StreamError> {
        let Some(preamble) = self.preamble else { return Err(StreamError::NotAStream) };
        if block.original_len > preamble.block_len() {
            return Err(StreamError::Header("a block that is longer than was announced"));
        }
        if block.codec.is_some_and(|codec| !preamble.allows(codec)) {
            return Err(StreamError::Header("a codec that was not announced"));
        }
        if block.index.is_some() != (preamble.reorder > 0) {
            return Err(StreamError::Header("a block that is numbered, or not, unlike announced"));
        }
        let has_context = preamble.window_log > 0;
        if (block.refers && !preamble.history) || (block.kept && !preamble.history && !has_context)
        {
            return Err(StreamError::Header("a block that refers to others, unlike announced"));
        }
        if let Some(index) = block.index {
            let ahead = index.wrapping_sub(self.next_index as u32);
            let full = self.next_index + u64::from(ahead);
            if ahead > u32::from(preamble.reorder) || self.early.contains_key(&full) {
                return Err(StreamError::Header("a block that comes twice, or too early"));
            }
        }
        Ok(())
    }

    /// Collects a payload of this length, and then processes it.
    fn in_payload(
        &mut self,
        wanted: usize,
        bytes: &[u8],
        complete: impl FnOnce(&mut Self, &[u8]) -> Result<(), StreamError>,
    ) -> Result<usize, StreamError> {
        // A payload that is complete needs no copy.
        if self.payload.is_empty() && bytes.len() >= wanted {
            complete(self, &bytes[..wanted])?;
            return Ok(wanted);
        }
        let len = fill(&mut self.payload, bytes, wanted);
        if self.payload.len() == wanted {
            let mut payload = std::mem::take(&mut self.payload);
            complete(self, &payload)?;
            payload.clear();
            self.payload = payload;
        }
        Ok(len)
    }

    fn complete(
        &mut self,
        header: BlockHeader,
        payload: &[u8],
        decompressors: &mut Decompressors,
    ) -> Result<(), StreamError> {
        self.phase = Phase::Header;
        match header.codec {
            Some(_) => self.stats.compressed_blocks += 1,
            None => self.stats.raw_blocks += 1,
        }
        let data = match header.codec {
            None => payload,
            Some(codec) if header.running => {
                let limits = self.limits_of_context()?;
                // It takes the history's place.
                self.history.forget();
                let dst = decompressors.room(header.original_len);
                // In order: all data before it were given out.
                let block = (self.stats.data_bytes, codec, header.begins);
                self.context.decode(limits, block, payload, dst)?;
                &*dst
            }
            Some(codec) if header.refers => {
                let history = self.history.before(self.stats.data_bytes);
                decompressors.restore_after(codec, history, payload, header.original_len)?
            }
            Some(codec) => decompressors.restore(codec, payload, header.original_len)?,
        };
        let ahead = header.index.map_or(0, |index| index.wrapping_sub(self.next_index as u32));
        if ahead > 0 {
            self.stats.early_blocks += 1;
            let early = Early { data: data.to_vec(), check: header.check };
            self.early.insert(self.next_index + u64::from(ahead), early);
            return Ok(());
        }
        let start = self.stats.data_bytes;
        self.deliver(data, header.check)?;
        match header.kept {
            true if self.preamble.is_some_and(|preamble| preamble.history)
                && !self.context.is_there() =>
            {
                self.history.keep(start, data);
            }
            true => {}
            false => self.forget(),
        }
        while let Some(early) = self.early.remove(&self.next_index) {
            self.deliver(&early.data, early.check)?;
        }
        Ok(())
    }

    /// Gives a block out, if it and everything before it is undamaged.
    fn deliver(&mut self, data: &[u8], check: u32) -> Result<(), StreamError> {
        self.hasher.update(data);
        self.compare(check)?;
        self.next_index += 1;
        self.stats.data_bytes += data.len() as u64;
        self.give_out(data);
        Ok(())
    }

    /// A unit is given out before the check sum that covers it has come: its header has no room
    /// for one.
    fn complete_unit(
        &mut self,
        header: UnitHeader,
        payload: &[u8],
        decompressors: &mut Decompressors,
    ) -> Result<(), StreamError> {
        self.phase = Phase::Header;
        let data = match header.form {
            UnitForm::Raw => payload,
            UnitForm::Compressed(codec) => {
                let Some(preamble) = self.preamble.filter(|p| p.allows(codec)) else {
                    return Err(StreamError::Header("a codec that was not announced"));
                };
                match (preamble.layout, header.original_len) {
                    (Layout::LongUnits, len) => decompressors.restore(codec, payload, len)?,
                    _ => decompressors.restore_up_to(codec, payload, preamble.block_len())?,
                }
            }
            UnitForm::Check => return self.compare(number(payload)),
            UnitForm::End => {
                let (total, check) = payload.split_at(8.min(payload.len()));
                let total = <[u8; 8]>::try_from(total).map_or(0, u64::from_be_bytes);
                return self.at_end(total, number(check));
            }
            UnitForm::Abort => {
                let reason = payload.first().copied().unwrap_or(0);
                return Err(StreamError::Aborted(AbortReason::from_wire(reason)));
            }
        };
        match header.form.codec() {
            Some(_) => self.stats.compressed_blocks += 1,
            None => self.stats.raw_blocks += 1,
        }
        self.hasher.update(data);
        self.stats.data_bytes += data.len() as u64;
        self.give_out(data);
        Ok(())
    }

    fn give_out(&mut self, data: &[u8]) {
        if self.output_at > 0 {
            self.output.drain(..self.output_at);
            self.output_at = 0;
        }
        self.output.extend_from_slice(data);
    }
}

/// Reads a check sum.
fn number(bytes: &[u8]) -> u32 {
    <[u8; 4]>::try_from(bytes).map_or(0, u32::from_be_bytes)
}

/// Moves bytes into `buf` until it is `wanted` long or there are no more; returns their number.
fn fill(buf: &mut Vec<u8>, bytes: &[u8], wanted: usize) -> usize {
    let len = (wanted - buf.len()).min(bytes.len());
    buf.extend_from_slice(&bytes[..len]);
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_out_of_range_are_reported() {
        assert_eq!(Limits::default().check(), Ok(()));
        assert_eq!(Limits::in_order().check(), Ok(()));
        let most = Limits { window_log: 23, model_log: 26, ..Limits::default() };
        assert_eq!(most.check(), Ok(()));
        let reported = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            limits.check().unwrap_err()
        };
        assert_eq!(reported(|l| l.output_len = 0), ConfigError::OutputLen);
        assert_eq!(reported(|l| l.block_len = 4095), ConfigError::BlockLimit(4095));
        assert_eq!(reported(|l| l.block_len = 65_537), ConfigError::BlockLimit(65_537));
        assert_eq!(reported(|l| l.reorder = 65), ConfigError::Reorder(65));
        assert_eq!(reported(|l| l.window_log = 14), ConfigError::Window(14));
        assert_eq!(reported(|l| l.model_log = 27), ConfigError::Model(27));
    }
}
