//! Which block is compressed next, with what, and what comes of it.

use dwell_base::Instant;
use dwell_policy::method::{Asked, Choice};

use super::{Blocks, ROOM, Refers, State, Waiting, standing_alone};
use crate::aside::{TRIAL_LEN_MIN, TRIAL_NS_MAX, Trial};
use crate::compress::{Done, Job};
use crate::context::{Lent, Position};

/// A block that is not full is compressed from this length on if the link is busy, in bytes.
const OPEN_COMPRESS_MIN: usize = 2 << 10;
/// With a running context no more is compressed while what is compressed keeps the link busy for this long, in
/// nanoseconds; nor is that ever less than so many bytes.
const AHEAD_NS: f64 = 1e8;
const AHEAD_LEN_MIN: f64 = 16384.0;
/// Without an idle history a stream that never is idle lets go of its history this often: a receiver that is short
/// of memory can leave it to others then.
const HISTORY_NS_MAX: u64 = 1_000_000_000;

impl Blocks {
    pub(crate) fn next_job(&mut self, now: Instant) -> Option<Job> {
        let is_ahead = self.is_far_ahead();
        let job = if is_ahead { None } else { self.choose_job(now) };
        if job.is_some() {
            self.steering.works(now, self.write_blocked);
        } else if self.busy && self.room() < self.block_len && (is_ahead || self.all_compressed()) {
            self.steering.waits(now);
        }
        job
    }

    /// Returns true if the link has enough to do with what is compressed already: what waits longer had better be
    /// compressed with what is known of the link by then.
    fn is_far_ahead(&self) -> bool {
        let link = &self.steering.link;
        if !self.busy || (self.context.is_none() && !link.is_presumed()) {
            return false;
        }
        // What is only presumed is soon known better.
        let Some(rate) = link.rate().map(|rate| if link.is_presumed() { 0.0 } else { rate }) else {
            return false;
        };
        let compressed = self.queue.iter().map(|block| match &block.state {
            State::Compressed(_, _, bytes) => bytes.len(),
            _ => 0,
        });
        let bytes = self.out.rest().len() + compressed.sum::<usize>();
        bytes as f64 >= (rate * AHEAD_NS / 1e9).max(AHEAD_LEN_MIN)
    }

    /// Returns true if all that waits is compressed: incompressible blocks say nothing of how much
    /// time there is.
    fn all_compressed(&self) -> bool {
        self.queue.iter().all(|block| matches!(block.state, State::Compressed(..)))
    }

    fn choose_job(&mut self, now: Instant) -> Option<Job> {
        let first = self.queue.iter().position(|block| matches!(block.state, State::Raw(_)));
        // Only if the application has left it so: if the buffer is full, the block will be filled
        // when there is room again.
        let missing = ROOM + self.block_len - self.open.len();
        let left_open = self.open.len() >= ROOM + OPEN_COMPRESS_MIN && self.room() >= missing;
        if first.is_none() && self.busy && left_open {
            self.close();
        }
        // While the link is free, the next block is left to it.
        let reserved = usize::from(self.in_order_with_thread && !self.busy);
        let mut waiting = self.queue.iter().enumerate().skip(reserved);
        let (at, block) = waiting.find(|(_, block)| matches!(block.state, State::Raw(_)))?;
        let asked = Asked {
            len: block.part.original_len,
            history_len: self.reach(block.part.original_len),
            looks_random: block.part.looks_random,
            busy: self.busy,
            more: self.more(),
        };
        let position = Position { index: block.part.index, start: block.part.start };
        let Choice { mut codec, refers } = self.steering.codec(now, asked)?;
        let context = match &mut self.context {
            Some(context) if refers && context.is_out() => return None,
            Some(context) if refers && context.takes(position, codec) => {
                Some(context.lend(position, codec))
            }
            // It was overtaken in vain, or there is no context any more, or it is too soon for another model.
            Some(_) if refers => {
                codec = standing_alone(codec);
                None
            }
            _ => None,
        };
        let mut trial = None;
        if let Some(lent) = &context {
            self.context_used(now);
            trial = self.trial(now, lent, asked.len);
        }
        let history = self.history_for(now, at, refers);
        let Waiting { part, state } = &mut self.queue[at];
        let State::Raw(bytes) = std::mem::replace(state, State::Compressing) else { return None };
        // The header of a compressed block is two bytes longer.
        let len_max = part.original_len.saturating_sub(3);
        Some(Job {
            index: part.index,
            spec: codec,
            block: bytes,
            looks_random: part.looks_random,
            history,
            context,
            len_max,
            trial,
        })
    }

    /// Returns what is to be tried on a block of this length beside, if it goes through a model. The block is back only behind the trial:
    /// meanwhile the link must have enough to do, or it would be given what is uncompressed.
    fn trial(&mut self, now: Instant, lent: &Lent, len: usize) -> Option<Trial> {
        let memory_log = lent.model_memory_log()?;
        let may = len >= TRIAL_LEN_MIN && self.steering.link.drain_ns(now) >= TRIAL_NS_MAX;
        let codecs = may.then(|| self.steering.take_trial())??;
        Some(Trial { codecs, memory_log })
    }

    /// Returns how many bytes a block of this length refers to: those of a stream that has more than it can send to all.
    pub(super) fn reach(&self, len: usize) -> usize {
        match self.more() {
            true => self.history.len(),
            false => (self.reach_min + 2 * len).min(self.history.len()),
        }
    }

    /// Returns the history that the block at this place of the queue may refer to.
    fn history_for(&mut self, now: Instant, at: usize, refers: bool) -> Vec<u8> {
        let mut history = std::mem::take(&mut self.spare_history);
        history.clear();
        if self.with_history {
            for at in 0..=at {
                self.decide_to_keep(now, at);
            }
            let part = self.queue[at].part;
            if refers && part.kept == Some(true) {
                let reach = self.reach(part.original_len);
                let before = self.history.before(part.start);
                let len = before.len().min(reach);
                history.extend_from_slice(&before[before.len() - len..]);
            }
        }
        history
    }

    /// Decides if later blocks may refer to the one at this place of the queue. It is called for
    /// all blocks in order, as the history must not have gaps.
    pub(super) fn decide_to_keep(&mut self, now: Instant, at: usize) {
        let Waiting { part, state } = &mut self.queue[at];
        let (None, State::Raw(bytes) | State::Final(bytes)) = (part.kept, &*state) else { return };
        // Blocks that are not even tried don't look for repetitions either.
        let mut kept = self.steering.keeps_history() && matches!(state, State::Raw(_));
        if !self.idle_history {
            let since = self.history_since.get_or_insert(now);
            if now.since_ns(*since) >= HISTORY_NS_MAX {
                (*since, kept) = (now, false);
            }
        }
        part.kept = Some(kept);
        match kept {
            true => self.history.keep(part.start, &bytes[ROOM..]),
            false => self.history.forget(),
        }
    }

    pub(crate) fn done(&mut self, done: Done) {
        let compression = done.compression();
        let Done { mut job, payload, took_ns, tried, .. } = done;
        let used = compression.used_len();
        let lent = job.context.take();
        if !lent.as_ref().is_some_and(Lent::is_primed) {
            self.steering.compressed(&compression.measured(), job.looks_random);
        }
        if let Some(tried) = tried {
            self.steering.tried_aside(&tried);
        }
        self.stats.compressed_with(&compression, took_ns);
        let refers = match &lent {
            Some(lent) => Refers::Context(lent.begins()),
            None if job.history.is_empty() => Refers::Nothing,
            None => Refers::History,
        };
        if let (Some(context), Some(lent)) = (&mut self.context, lent) {
            context.returned(lent, job.original_len());
        }
        // The block is gone if the stream was aborted meanwhile.
        self.spare_history = std::mem::take(&mut job.history);
        let waiting = self.queue.iter_mut().find(|block| block.part.index == job.index);
        let Some(block) = waiting else { return };
        match payload {
            Some(payload) => {
                self.held = self.held + used - block.part.original_len;
                block.state = State::Compressed(job.spec.id, refers, payload);
                self.keep(job.block);
            }
            None => {
                self.stats.failures += 1;
                block.state = State::Final(job.block);
            }
        }
    }
}
