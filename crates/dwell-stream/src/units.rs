//! The queue of units: each is a segment of the transport (Wang et al., "TCPComp", and the schemes
//! that they compare with).

use std::collections::VecDeque;

use crc32fast::Hasher;
use dwell_codec::{CodecId, SRC_LEN_MAX};
use dwell_policy::{BackOff, BackOffConfig};

use crate::compress::{Done, Job};
use crate::config::Config;
use crate::error::AbortReason;
use crate::frame::{Layout, Preamble, ROOM, UNIT_PAYLOAD_MAX, UnitForm, UnitHeader};
use crate::stats::SenderStats;
use crate::strategy::Strategy;
use crate::tcpcomp::FactorFilter;

/// The most segments that are made in advance while the link is busy.
const READY_MAX: usize = 16;
/// The bytes of data after which a check sum is sent; another one is sent at the end.
pub(crate) const CHECK_EVERY: u64 = 1 << 20;

/// The queue of units of one sender.
#[derive(Debug)]
pub(crate) struct Units {
    config: Config,
    layout: Option<Layout>,
    /// The longest payload of a unit.
    payload_max: usize,
    preamble: Option<Preamble>,
    filter: FactorFilter,
    back_off: BackOff,
    /// None if every unit is tried.
    back_off_config: Option<BackOffConfig>,
    /// The data that are in no unit yet.
    waiting: VecDeque<u8>,
    /// The segments that are complete.
    ready: VecDeque<Segment>,
    out: Vec<u8>,
    out_at: usize,
    out_held: usize,
    /// The length of the unit that a job is compressing.
    being_compressed: Option<usize>,
    held: usize,
    hasher: Hasher,
    unchecked: u64,
    next_index: u64,
    busy: bool,
    finishing: bool,
    ended: bool,
    aborted: bool,
    stats: SenderStats,
}

#[derive(Debug)]
struct Segment {
    bytes: Vec<u8>,
    /// The bytes of `held` in it.
    held: usize,
}

impl Units {
    pub(crate) fn new(config: &Config) -> Self {
        let layout = match config.strategy {
            Strategy::TcpComp => Some(Layout::Units),
            Strategy::KernelLevel => Some(Layout::LongUnits),
            _ => None,
        };
        let header_len = layout.map_or(0, Layout::unit_header_len);
        let longest = if layout.is_some() { UNIT_PAYLOAD_MAX } else { SRC_LEN_MAX };
        let preamble = layout.map(|layout| Preamble {
            window_log: 0,
            model_log: 0,
            may_get_context: false,
            layout,
            block_len_log2: SRC_LEN_MAX.trailing_zeros() as u8,
            reorder: 0,
            codecs: 1 << config.codec.id as u8,
            history: false,
            goes_on: false,
        });
        Self {
            layout,
            payload_max: (config.mss - header_len).min(longest),
            preamble,
            filter: FactorFilter::new(config.tcpcomp),
            back_off: BackOff::default(),
            // The scheme that it is compared with tries every segment.
            back_off_config: (config.strategy == Strategy::TcpComp)
                .then(|| config.tcpcomp.back_off())
                .flatten(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            out: Vec::new(),
            out_at: 0,
            out_held: 0,
            being_compressed: None,
            held: 0,
            hasher: Hasher::new(),
            unchecked: 0,
            next_index: 0,
            busy: false,
            finishing: false,
            ended: false,
            aborted: false,
            stats: SenderStats::default(),
            config: config.clone(),
        }
    }

    pub(crate) fn stats(&self) -> &SenderStats {
        &self.stats
    }

    pub(crate) fn room(&self) -> usize {
        if self.finishing {
            return 0;
        }
        self.config.buffer_len.saturating_sub(self.held)
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn not_sent_len(&self) -> u32 {
        self.config.not_sent_len()
    }

    pub(crate) fn accept(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.room())];
        self.waiting.extend(bytes);
        self.held += bytes.len();
        self.stats.accepted_bytes += bytes.len() as u64;
        bytes.len()
    }

    pub(crate) fn finish(&mut self) {
        self.finishing = true;
    }

    pub(crate) fn abort(&mut self, reason: AbortReason) {
        if self.ended {
            return;
        }
        (self.finishing, self.ended, self.aborted) = (true, true, true);
        self.waiting.clear();
        self.ready.clear();
        self.being_compressed = None;
        self.held = self.out_held;
        self.push_preamble();
        if let Some(layout) = self.layout {
            let form = UnitForm::Abort;
            let header = UnitHeader { form, payload_len: 1, original_len: 0 };
            let mut bytes = header.to_bytes(layout);
            bytes.push(reason.to_wire());
            self.ready.push_back(Segment { bytes, held: 0 });
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.held == 0 && self.out_at == self.out.len() && self.ready.is_empty()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.ended && self.is_idle()
    }

    pub(crate) fn wire(&mut self) -> &[u8] {
        if self.out_at == self.out.len() {
            self.fill_ready();
            if let Some(segment) = self.ready.pop_front() {
                self.stats.segments += 1;
                (self.out, self.out_at, self.out_held) = (segment.bytes, 0, segment.held);
            }
        }
        &self.out[self.out_at..]
    }

    pub(crate) fn wrote(&mut self, len: usize) {
        assert!(len <= self.out.len() - self.out_at, "more was written than there was");
        if len == 0 {
            return;
        }
        self.busy = false;
        self.out_at += len;
        self.stats.wire_bytes += len as u64;
        if self.out_at == self.out.len() {
            self.held -= self.out_held;
            self.out_held = 0;
        }
    }

    pub(crate) fn unblocked(&mut self) {
        self.busy = false;
    }

    pub(crate) fn blocked(&mut self) {
        self.busy = true;
        self.stats.blocked += 1;
    }

    pub(crate) fn next_job(&mut self) -> Option<Job> {
        if self.layout.is_none() || self.being_compressed.is_some() || self.ready.len() >= READY_MAX
        {
            return None;
        }
        if self.back_off.is_skipping() || self.waiting.is_empty() {
            return None;
        }
        let wanted = self.unit_len();
        if self.waiting.len() < wanted && !self.finishing && (self.busy || !self.ready.is_empty()) {
            return None;
        }
        let len = wanted.min(self.waiting.len());
        let mut block = vec![0; ROOM];
        block.extend(self.waiting.drain(..len));
        self.being_compressed = Some(len);
        let index = self.next_index;
        // A result as long as the original is already too long: it is a failure.
        let len_max = self.payload_max.min(len - 1);
        Some(Job {
            index,
            spec: self.config.codec,
            block,
            looks_random: false,
            context: None,
            history: Vec::new(),
            len_max,
            trial: None,
            rest: Box::default(),
        })
    }

    pub(crate) fn done(&mut self, done: Done) {
        let compression = done.compression();
        let Done { job, payload, took_ns, .. } = done;
        self.stats.compressed_with(&compression, took_ns);
        if self.aborted || self.being_compressed.take().is_none() {
            return;
        }
        let data = &job.block[ROOM..];
        let factor = compression.compressed_len.map_or(1.0, |len| data.len() as f64 / len as f64);
        if let Some(config) = &self.back_off_config {
            self.back_off.record(factor < self.config.tcpcomp.factor_min, config);
        }
        match payload {
            Some(payload) => {
                self.filter.measured(factor);
                let form = UnitForm::Compressed(job.spec.id);
                self.push_unit(form, &payload[ROOM..], data);
            }
            None => {
                self.stats.failures += 1;
                self.filter.failed();
                // One segment of it is sent uncompressed, and the rest is tried again.
                let (now, later) = data.split_at(data.len().min(self.payload_max));
                for &byte in later.iter().rev() {
                    self.waiting.push_front(byte);
                }
                self.push_unit(UnitForm::Raw, now, now);
            }
        }
    }

    /// Returns the estimated number of bytes that fill a segment when they are compressed.
    fn unit_len(&self) -> usize {
        match self.config.strategy {
            Strategy::TcpComp => {
                let target = self.config.tcpcomp.target_len.min(self.payload_max) as f64;
                ((target * self.filter.estimate()) as usize).clamp(1, SRC_LEN_MAX)
            }
            _ => self.payload_max,
        }
    }

    /// Makes the units that need no compression: the preamble, units in a back-off, the end.
    fn fill_ready(&mut self) {
        if self.being_compressed.is_some() || !self.ready.is_empty() {
            return;
        }
        let raw = self.layout.is_none() || self.back_off.is_skipping();
        if raw && !self.waiting.is_empty() {
            let len = self.waiting.len().min(self.payload_max);
            let data: Vec<u8> = self.waiting.drain(..len).collect();
            self.back_off.may_try();
            self.push_unit(UnitForm::Raw, &data, &data);
        } else if self.waiting.is_empty() && self.finishing && !self.ended {
            self.ended = true;
            self.push_preamble();
            self.push_end();
        }
    }

    fn push_preamble(&mut self) {
        if let Some(preamble) = self.preamble.take() {
            self.ready.push_back(Segment { bytes: preamble.to_bytes().to_vec(), held: 0 });
        }
    }

    fn push_unit(&mut self, form: UnitForm, payload: &[u8], data: &[u8]) {
        self.push_preamble();
        self.next_index += 1;
        self.hasher.update(data);
        self.unchecked += data.len() as u64;
        let header = UnitHeader { form, payload_len: payload.len(), original_len: data.len() };
        let mut bytes = self.layout.map_or(Vec::new(), |layout| header.to_bytes(layout));
        bytes.extend_from_slice(payload);
        self.held -= data.len() - payload.len();
        self.stats.framed(matches!(form, UnitForm::Compressed(_)), data.len(), payload.len());
        self.ready.push_back(Segment { bytes, held: payload.len() });
        if self.unchecked >= CHECK_EVERY {
            self.unchecked = 0;
            self.push_note(UnitForm::Check, &self.check().to_be_bytes());
        }
    }

    fn push_end(&mut self) {
        let mut note = self.stats.framed_bytes.to_be_bytes().to_vec();
        note.extend_from_slice(&self.check().to_be_bytes());
        self.push_note(UnitForm::End, &note);
    }

    /// Adds a unit without data.
    fn push_note(&mut self, form: UnitForm, payload: &[u8]) {
        let Some(layout) = self.layout else { return };
        let header = UnitHeader { form, payload_len: payload.len(), original_len: 0 };
        let mut bytes = header.to_bytes(layout);
        bytes.extend_from_slice(payload);
        self.ready.push_back(Segment { bytes, held: 0 });
    }

    fn check(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}

/// Returns the codec that a form names.
impl UnitForm {
    pub(crate) fn codec(self) -> Option<CodecId> {
        match self {
            Self::Compressed(codec) => Some(codec),
            _ => None,
        }
    }
}
