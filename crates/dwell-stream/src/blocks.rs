//! The queue of blocks between the application and the transport.

mod granted;
mod jobs;
mod waiting;

use std::collections::VecDeque;

use crc32fast::Hasher;
use dwell_base::Instant;
use dwell_codec::content::{ContentClass, classify};
use dwell_codec::{CodecId, CodecSpec, HISTORY_LEN_MAX};
use dwell_policy::method::{Offer, Steering};
use dwell_policy::rate::LinkReport;

use crate::config::{ALONE_LEVEL_MAX, Config, Objective};
use crate::context::SenderContext;
use crate::depth::Depth;
use crate::error::AbortReason;
use crate::frame::{BlockHeader, Header, HeaderBytes, Layout, Preamble, ROOM};
use crate::history::History;
use crate::rule::steering;
use crate::sender::Learned;
use crate::stats::SenderStats;
use crate::strategy::Strategy;
use granted::Granted;
use waiting::{Outgoing, Part, Refers, State, Waiting};

/// The most blocks that wait, however short they are.
const BLOCKS_MAX: usize = 1024;
/// The most empty buffers that are kept for reuse.
const SPARE_MAX: usize = 4;
/// The most bytes that wait of a stream that has much more to send, and a context through which all of it goes: several blocks are
/// compressed at a time then, while those before them go.
const BULK_BUFFER_LEN: usize = 1 << 20;
/// A message refers to so many bytes before it, and two times its own length more, unless bytes are to be saved: what is further
/// back brings it next to nothing, and would all have to be read for it.
const REACH_LEN_MIN: usize = 8 << 10;
/// Returns the codecs that the stream may contain, bit n for the one with id n.
fn codecs(config: &Config) -> u8 {
    let bits = config.codecs_used().iter().fold(0, |bits, spec| bits | 1 << spec.id as u8);
    let with = |bits: u8, id: CodecId| bits | 1 << id as u8;
    match () {
        // Whatever the context may be that is granted.
        () if config.gets_context() => {
            let bits = with(with(bits, CodecId::Zstd), CodecId::Ppm);
            if config.mixed_models { with(bits, CodecId::Mix) } else { bits }
        }
        // A block that can't go through a model stands alone.
        () if config.model_log_used() > 0 => with(bits, CodecId::Zstd),
        () => bits,
    }
}

/// Returns what a block gets that can't go on with a context for this codec.
fn standing_alone(codec: CodecSpec) -> CodecSpec {
    let level = if codec.id == CodecId::Zstd { codec.level } else { ALONE_LEVEL_MAX };
    CodecSpec { id: CodecId::Zstd, level: level.min(ALONE_LEVEL_MAX) }
}

/// The queue of blocks of one sender.
#[derive(Debug)]
pub(crate) struct Blocks {
    steering: Steering<CodecSpec>,
    block_len: usize,
    buffer_len: usize,
    reorder: u64,
    in_order_with_thread: bool,
    /// The preamble, while it was not sent.
    preamble: Option<Preamble>,
    /// The preamble of the first stream.
    described: Preamble,
    /// The last block, while it is not full: `ROOM` bytes and data, or nothing.
    open: Vec<u8>,
    queue: VecDeque<Waiting>,
    out: Outgoing,
    /// Bytes of `open`, `queue` and `out`, without headers.
    held: usize,
    /// The hash of all data accepted.
    hasher: Hasher,
    next_index: u64,
    /// The position in the stream at which the block that is not full begins.
    open_start: u64,
    /// True if the receiver was asked to expect a history.
    with_history: bool,
    /// The data that later blocks can refer to.
    history: History,
    /// How far back any message refers.
    reach_min: usize,
    /// The running context in its place, if there is to be one.
    context: Option<SenderContext>,
    /// What it takes to get one on the way, if the stream may.
    granted: Option<Box<Granted>>,
    /// What is to be sent before the next block.
    notices: Vec<u8>,
    /// True if either is kept while nothing waits.
    idle_history: bool,
    /// True if the history is kept for a stream after this one, too.
    keeps_for_next: bool,
    /// The time from which the history goes back, if it is let go of now and then.
    history_since: Option<Instant>,
    /// The time since which the transport has what it was offered, until it reports how much it
    /// took.
    offered_at: Option<Instant>,
    depth: Depth,
    /// True if the application had more than there was room for, and it has not all gone since.
    write_blocked: bool,
    /// True if there is always more until the end.
    is_bulk: bool,
    /// True if the link took no more, and nothing since.
    busy: bool,
    finishing: bool,
    ended: bool,
    /// True if the stream was given up.
    aborted: bool,
    spare: Vec<Vec<u8>>,
    /// An empty buffer for the history of a job.
    spare_history: Vec<u8>,
    stats: SenderStats,
}

impl Blocks {
    pub(crate) fn new(config: &Config) -> Self {
        let out_of_order = config.strategy == Strategy::MixOutOfOrder;
        let reorder = if out_of_order { config.reorder_max } else { 0 };
        let refers = config.codecs.iter().any(|&codec| config.may_refer(codec));
        let window_log = if refers { config.window_log } else { 0 };
        let with_history = refers && window_log == 0;
        let model_log = config.model_log_used();
        let preamble = Preamble {
            layout: Layout::Blocks,
            block_len_log2: config.block_len.trailing_zeros() as u8,
            reorder,
            codecs: codecs(config),
            history: with_history,
            goes_on: false,
            window_log,
            model_log,
            may_get_context: with_history && config.gets_context(),
        };
        Self {
            steering: steering(config),
            block_len: config.block_len,
            buffer_len: config.buffer_len,
            reorder: u64::from(reorder),
            in_order_with_thread: config.strategy == Strategy::MixInOrder,
            preamble: Some(preamble),
            described: preamble,
            open: Vec::new(),
            queue: VecDeque::new(),
            out: Outgoing::default(),
            held: 0,
            hasher: Hasher::new(),
            next_index: 0,
            open_start: 0,
            with_history,
            history: History::default(),
            reach_min: match config.objective {
                Objective::Time => REACH_LEN_MIN,
                Objective::Bytes => HISTORY_LEN_MAX,
            },
            context: (window_log > 0).then(|| SenderContext::new(window_log, model_log)),
            granted: preamble.may_get_context.then(|| Box::new(Granted::new(config))),
            notices: Vec::new(),
            idle_history: config.idle_history,
            keeps_for_next: false,
            history_since: None,
            offered_at: None,
            depth: Depth::new(config),
            write_blocked: false,
            is_bulk: false,
            busy: false,
            finishing: false,
            ended: false,
            aborted: false,
            spare: Vec::new(),
            spare_history: Vec::new(),
            stats: SenderStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> &SenderStats {
        &self.stats
    }

    pub(crate) fn room(&self) -> usize {
        if self.finishing || self.queue.len() >= BLOCKS_MAX {
            return 0;
        }
        self.buffer_len.saturating_sub(self.held)
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn not_sent_len(&self) -> u32 {
        self.depth.len()
    }

    pub(crate) fn accept(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let room = self.room();
            if room == 0 {
                break;
            }
            if self.open.is_empty() {
                self.open = self.buffer();
            }
            let len = room.min(bytes.len() - taken).min(self.block_len + ROOM - self.open.len());
            let piece = &bytes[taken..taken + len];
            self.open.extend_from_slice(piece);
            self.hasher.update(piece);
            self.held += len;
            taken += len;
            if self.open.len() == ROOM + self.block_len {
                self.close();
            }
        }
        self.write_blocked |= self.room() < self.block_len;
        self.stats.accepted_bytes += taken as u64;
        taken
    }

    /// Returns true if the application has more than was accepted.
    const fn more(&self) -> bool {
        self.write_blocked || (self.is_bulk && !self.finishing)
    }

    pub(crate) fn expect_bulk(&mut self) {
        self.is_bulk = true;
        // What can't go through a context yet had better wait for it; and who has little memory has a short window.
        if let Some(context) = &self.context {
            let len = BULK_BUFFER_LEN.min(context.window_len());
            self.buffer_len = self.buffer_len.max(len);
        }
    }

    pub(crate) fn finish(&mut self) {
        if !self.finishing {
            self.finishing = true;
            self.write_blocked = false;
            self.close();
        }
    }

    pub(crate) fn abort(&mut self, reason: AbortReason) {
        if self.ended {
            return;
        }
        self.finishing = true;
        self.ended = true;
        self.aborted = true;
        self.queue.clear();
        self.notices.clear();
        self.open = Vec::new();
        // A block that has begun must be completed, or the receiver could not read the reason.
        if self.out.at == self.out.begin {
            self.preamble = self.preamble.or(self.out.preamble);
            self.out = Outgoing::default();
        }
        let mut tail = self.preamble_bytes();
        tail.extend_from_slice(Header::Abort(reason).to_bytes().as_slice());
        self.out.bytes.extend_from_slice(&tail);
        self.held = self.out.held;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.held == 0 && self.out.rest().is_empty() && self.notices.is_empty()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.ended && self.out.rest().is_empty()
    }

    pub(crate) fn wire(&mut self, now: Instant) -> &[u8] {
        if self.out.rest().is_empty() {
            self.next_out(now);
        }
        if !self.out.rest().is_empty() && self.offered_at.is_none() {
            self.offered_at = Some(now);
            self.steering.link.offered(now);
            self.steering.works(now, self.write_blocked);
        }
        self.out.rest()
    }

    pub(crate) fn wrote(&mut self, now: Instant, len: usize) {
        assert!(len <= self.out.rest().len(), "more was written than there was");
        if len == 0 {
            return;
        }
        self.busy = false;
        if let Some(at) = self.offered_at.take() {
            self.steering.writing.measured(len, now.since_ns(at));
        }
        self.stats.wire_bytes += len as u64;
        self.out.at += len;
        self.steering.link.wrote(now, len);
        if let Some(part) = self.out.regret.take() {
            self.steering.went_raw(part.looks_random);
        }
        if self.out.rest().is_empty() {
            self.held -= self.out.held;
            let out = std::mem::take(&mut self.out);
            self.keep(out.bytes);
            if self.held == 0 {
                self.write_blocked = false;
                self.steering.link.starved(now);
                // Many connections are idle most of the time.
                self.spare = Vec::new();
                self.spare_history = Vec::new();
                // A context that was granted is dropped when the receiver is notified.
                if !self.idle_history && !self.has_got_context() {
                    self.forget();
                }
            }
        }
    }

    pub(crate) fn unblocked(&mut self) {
        self.busy = false;
    }

    pub(crate) fn blocked(&mut self, now: Instant) {
        self.busy = true;
        self.offered_at = None;
        self.steering.blocked(now);
        self.depth.follow(self.steering.link.shown_rate(), self.steering.raw_share());
        self.stats.blocked += 1;
        // Nothing of it was taken: so it can be compressed now.
        let Some(part) = self.out.regret.take() else { return };
        let out = std::mem::take(&mut self.out);
        self.preamble = self.preamble.or(out.preamble);
        self.stats.raw_blocks -= 1;
        self.stats.raw_bytes -= part.original_len as u64;
        self.stats.framed_bytes -= part.original_len as u64;
        if self.queue.is_empty() && self.open.is_empty() && !self.finishing {
            (self.next_index, self.open_start) = (part.index, part.start);
            self.open = out.bytes;
            self.steering.reopened(part.looks_random);
        } else {
            let state = State::Raw(out.bytes);
            // It may have overtaken one that is being compressed.
            let at = self.queue.partition_point(|block| block.part.index < part.index);
            self.queue.insert(at, Waiting { part, state });
        }
    }

    pub(crate) fn learned(&self) -> Option<Learned> {
        self.learned_without_context().map(Learned)
    }

    pub(crate) fn learn(&mut self, learned: &Learned) {
        self.steering.learn(&learned.0);
    }

    pub(crate) fn expect_rate(&mut self, now: Instant, rate: f64) {
        self.steering.expect(now, rate);
    }

    pub(crate) fn presume_rate(&mut self, now: Instant, rate: f64, bytes: u64) {
        self.steering.presume(now, rate, bytes);
        self.depth.begin_small();
    }

    pub(crate) fn reported(&mut self, now: Instant, report: &LinkReport) {
        self.steering.reported(now, report);
        if self.steering.link.measured_rate().is_none()
            && !self.steering.link.is_presumed()
            && let Some(rate) = self.steering.link.rate()
        {
            self.depth.follow(rate, self.steering.raw_share());
        }
    }

    pub(crate) fn raw_share(&self) -> f64 {
        self.steering.raw_share()
    }

    pub(crate) fn believed_rate(&self) -> Option<f64> {
        self.steering.link.rate()
    }

    pub(crate) fn measured_rate(&self) -> Option<f64> {
        self.steering.link.measured_rate()
    }

    pub(crate) fn transport_holds(&mut self, len: u32) {
        self.steering.link.holds(len);
    }

    pub(crate) fn hold_idle_history(&mut self) {
        self.idle_history = true;
    }

    pub(crate) fn keep_for_next(&mut self) {
        self.keeps_for_next = self.idle_history && self.with_history;
    }

    /// Begins another stream, if this one has ended as it should and was to leave its history to it.
    pub(crate) fn begin_next(&mut self) -> bool {
        if !self.keeps_for_next || self.aborted || !self.is_finished() {
            return false;
        }
        self.forget_contexts();
        self.history.restart();
        self.preamble = Some(Preamble { goes_on: true, ..self.described });
        self.hasher = Hasher::new();
        (self.next_index, self.open_start) = (0, 0);
        (self.history_since, self.offered_at) = (None, None);
        (self.write_blocked, self.busy) = (false, false);
        (self.finishing, self.ended, self.keeps_for_next) = (false, false, false);
        self.stats = SenderStats::default();
        true
    }

    /// Ends the last block, so that it can be compressed or sent.
    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.open);
        let original_len = bytes.len() - ROOM;
        let looks_random =
            self.steering.depends_on_content() && classify(&bytes[ROOM..]) == ContentClass::Random;
        let admitted = self.steering.admits(looks_random);
        let state = if admitted { State::Raw(bytes) } else { State::Final(bytes) };
        let check = self.hasher.clone().finalize();
        let start = self.open_start;
        self.open_start += original_len as u64;
        let index = self.next_index;
        let part = Part { index, start, original_len, check, looks_random, kept: None };
        self.queue.push_back(Waiting { part, state });
        self.next_index += 1;
    }

    /// Puts the next block or header into `out`, if something may be sent.
    fn next_out(&mut self, now: Instant) {
        if !self.notices.is_empty() {
            // It may be that none of it is taken.
            let preamble = self.preamble;
            let mut bytes = self.preamble_bytes();
            bytes.append(&mut self.notices);
            self.out = Outgoing { bytes, preamble, ..Outgoing::default() };
            return;
        }
        if self.queue.is_empty() {
            self.close();
        }
        if let Some(at) = self.next_to_go(now) {
            if self.with_history {
                self.decide_to_keep(now, at);
            }
            if let Some(block) = self.queue.remove(at) {
                self.frame(block);
            }
        } else if self.queue.is_empty() && self.finishing && !self.ended {
            self.ended = true;
            self.leave_context();
            let end = Header::End {
                total: self.stats.accepted_bytes,
                check: self.hasher.clone().finalize(),
            };
            let mut bytes = self.preamble_bytes();
            bytes.extend_from_slice(end.to_bytes().as_slice());
            self.out = Outgoing { bytes, ..Outgoing::default() };
        }
    }

    /// Returns the place in the queue of the block that may be sent now.
    fn next_to_go(&mut self, now: Instant) -> Option<usize> {
        let oldest = self.queue.front()?.part.index;
        let reachable =
            self.queue.iter().take_while(|block| block.part.index - oldest <= self.reorder);
        for (at, block) in reachable.enumerate() {
            match block.state {
                State::Compressing => {}
                State::Raw(_) => {
                    let len = block.part.original_len;
                    let is_full = len >= self.block_len;
                    let history_len = self.reach(len);
                    let offer = Offer { len, history_len, is_full, more: self.more() };
                    return self.steering.lets_raw_go(now, offer).then_some(at);
                }
                _ => return Some(at),
            }
        }
        None
    }

    /// Writes the header before a block.
    fn frame(&mut self, block: Waiting) {
        let Waiting { mut part, state } = block;
        // Neither end need hold data that no block refers to: nothing will, or nothing does for now.
        let is_last = self.queue.is_empty() && self.open.is_empty();
        let is_held = self.idle_history || self.has_got_context();
        let ends = is_last && (self.finishing || !is_held) && !self.keeps_for_next;
        if self.has_got_context() {
            let refers = match &state {
                State::Compressed(_, refers, _) => *refers,
                _ => Refers::Nothing,
            };
            part.kept = Some(self.holds_with_context(refers) && !ends);
        } else if self.context.is_some() {
            part.kept = Some(!ends);
        }
        if ends && (part.kept == Some(true) || self.context.is_some()) {
            part.kept = Some(false);
            self.forget();
        }
        let (codec, refers, bytes, regret) = match state {
            State::Raw(bytes) => (None, Refers::Nothing, bytes, Some(part)),
            State::Final(bytes) => (None, Refers::Nothing, bytes, None),
            State::Compressed(codec, refers, bytes) => (Some(codec), refers, bytes, None),
            State::Compressing => return,
        };
        let Part { index, original_len, check, .. } = part;
        let kept = part.kept == Some(true);
        let payload_len = bytes.len() - ROOM;
        self.stats.framed(codec.is_some(), original_len, payload_len);
        self.stats.referring_blocks += u64::from(!matches!(refers, Refers::Nothing));
        let index = (self.reorder > 0).then_some(index as u32);
        let (running, begins) = match refers {
            Refers::Context(begins) => (true, begins),
            _ => (false, None),
        };
        let refers = matches!(refers, Refers::History);
        let header = BlockHeader {
            codec,
            refers,
            running,
            begins,
            kept,
            index,
            original_len,
            payload_len,
            check,
        };
        let held = payload_len;
        self.out = Outgoing { bytes, at: ROOM, begin: ROOM, held, regret, preamble: None };
        self.prepend(Header::Block(header).to_bytes());
    }

    /// Drops what later blocks could refer to.
    fn forget(&mut self) {
        self.history.forget();
        if let Some(context) = &mut self.context {
            context.forget();
        }
    }

    /// Puts a header, and the preamble if it was not sent yet, into the room before the bytes.
    fn prepend(&mut self, header: HeaderBytes) {
        self.out.preamble = self.preamble;
        let mut before = self.preamble_bytes();
        before.extend_from_slice(header.as_slice());
        let begin = ROOM - before.len();
        self.out.bytes[begin..ROOM].copy_from_slice(&before);
        (self.out.at, self.out.begin) = (begin, begin);
    }

    fn preamble_bytes(&mut self) -> Vec<u8> {
        self.preamble.take().map_or(Vec::new(), |preamble| preamble.to_bytes().to_vec())
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(ROOM, 0);
        buffer
    }

    /// Keeps a buffer for reuse, if it has the full size.
    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && buffer.capacity() >= self.block_len {
            self.spare.push(buffer);
        }
    }
}
