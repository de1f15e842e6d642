//! Which block is compressed next, with what, and what comes of it.

use dwell_base::Instant;
use dwell_codec::{CodecId, CodecSpec};
use dwell_policy::method::{Asked, Choice};

use super::{Blocks, ROOM, Refers, State, Waiting, standing_alone};
use crate::aside::{TRIAL_LEN_MIN, TRIAL_NS_MAX, Trial};
use crate::compress::{Behind, Done, Job};
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
/// A job of a stream that has much more to send goes on with up to so many blocks in all, as far as they take no longer than this,
/// in nanoseconds, nor than the link has to do meanwhile. While a thread rests its tables leave the cache: a codec that
/// takes 7 ns a byte took 10 to 15 if it rested after each block.
const RUN_BLOCKS_MAX: usize = 8;
const RUN_NS_MAX: f64 = 4e6;
/// While the link has enough to do for so long, in nanoseconds, a job has to wait for so many blocks.
const RUN_AHEAD_NS: f64 = 20e6;
const RUN_BLOCKS_WANTED: usize = 4;

impl Blocks {
    pub(crate) fn next_job(&mut self, now: Instant) -> Option<Job> {
        let is_ahead = self.is_far_ahead() || self.waits_for_a_run(now);
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
        self.ahead_len_max().is_some_and(|most| self.compressed_len() as f64 >= most)
    }

    /// Returns the most bytes that are to be compressed ahead, if the link is busy and that is limited.
    fn ahead_len_max(&self) -> Option<f64> {
        let link = &self.steering.link;
        if !self.busy || (self.context.is_none() && !link.is_presumed()) {
            return None;
        }
        // What is only presumed is soon known better.
        let rate = if link.is_presumed() { 0.0 } else { link.rate()? };
        Some((rate * AHEAD_NS / 1e9).max(AHEAD_LEN_MIN))
    }

    /// Returns the length of what is compressed and waits, in bytes.
    fn compressed_len(&self) -> usize {
        let compressed = self.queue.iter().map(|block| match &block.state {
            State::Compressed(_, _, bytes) => bytes.len(),
            _ => 0,
        });
        self.out.rest().len() + compressed.sum::<usize>()
    }

    /// Returns true if the link has enough to do until there are several blocks to compress at a time.
    fn waits_for_a_run(&self, now: Instant) -> bool {
        if !self.is_bulk || self.finishing || !self.busy {
            return false;
        }
        let raw = self.queue.iter().position(|block| matches!(block.state, State::Raw(_)));
        let (Some(context), Some(first)) = (&self.context, raw) else { return false };
        let run = self.run_from(first);
        // With more behind it, it gets no longer.
        if run >= RUN_BLOCKS_WANTED || first + run < self.queue.len() {
            return false;
        }
        let work_ns = context.codec().and_then(|codec| {
            self.steering.work_ns(Choice { codec, refers: true }, self.block_len)
        });
        let is_short = work_ns.is_some_and(|ns| 2.0 * ns <= RUN_NS_MAX);
        is_short && self.ahead_ns(now) >= RUN_AHEAD_NS
    }

    /// Returns the number of blocks from this place of the queue on that a job could have.
    fn run_from(&self, first: usize) -> usize {
        let looks_random = self.queue[first].part.looks_random;
        let is_like = |block: &&Waiting| {
            matches!(block.state, State::Raw(_)) && block.part.looks_random == looks_random
        };
        self.queue.iter().skip(first).take_while(is_like).count()
    }

    /// Returns the time for which the link has enough to do with what is compressed already, in nanoseconds.
    fn ahead_ns(&self, now: Instant) -> f64 {
        let link = &self.steering.link;
        let Some(rate) = link.rate() else { return 0.0 };
        link.drain_ns(now) + self.compressed_len() as f64 / rate * 1e9
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
                Some(Box::new(context.lend(position, codec)))
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
        let is_run = self.is_bulk && context.is_some() && trial.is_none();
        let rest = if is_run { self.behind(now, at, codec, asked.len) } else { Vec::new() };
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
            rest: rest.into_boxed_slice(),
        })
    }

    /// Takes the blocks behind the one at this place of the queue that its job goes on with.
    fn behind(&mut self, now: Instant, at: usize, codec: CodecSpec, len: usize) -> Vec<Behind> {
        let choice = Choice { codec, refers: true };
        let work_ns = self.steering.work_ns(choice, len).unwrap_or(f64::INFINITY);
        let time_ns = self.ahead_ns(now).min(RUN_NS_MAX);
        // What they leave is not known yet: at most as much as they have.
        let room = self.ahead_len_max().map_or(0.0, |most| most - self.compressed_len() as f64);
        let most = (time_ns / work_ns).min(room / len as f64) as usize;
        let most = most.clamp(1, RUN_BLOCKS_MAX).min(self.run_from(at));
        let mut rest = Vec::new();
        for Waiting { part, state } in self.queue.iter_mut().skip(at + 1).take(most - 1) {
            let State::Raw(bytes) = state else { break };
            rest.push(Behind { index: part.index, block: std::mem::take(bytes) });
            *state = State::Compressing;
        }
        self.steering.goes_on(choice, rest.len());
        if let Some(context) = &mut self.context {
            context.goes_on(rest.len());
        }
        rest
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
        let measured = done.measured();
        let Done { mut job, payload, rest, took_ns, tried, .. } = done;
        let lent = job.context.take();
        if !lent.as_ref().is_some_and(|lent| lent.is_primed()) {
            for measured in &measured {
                self.steering.compressed(measured, job.looks_random);
            }
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
            context.returned(*lent, job.original_len());
        }
        self.spare_history = std::mem::take(&mut job.history);
        let codec = job.spec.id;
        self.took_back(job.index, job.block, payload.map(|bytes| (codec, refers, bytes)));
        for (behind, payload) in job.rest.into_iter().zip(rest) {
            let payload = payload.map(|bytes| (codec, Refers::Context(None), bytes));
            self.took_back(behind.index, behind.block, payload);
        }
    }

    /// Takes a block back, with what it was compressed to.
    fn took_back(
        &mut self,
        index: u64,
        original: Vec<u8>,
        compressed: Option<(CodecId, Refers, Vec<u8>)>,
    ) {
        // The block is gone if the stream was aborted meanwhile.
        let Some(block) = self.queue.iter_mut().find(|block| block.part.index == index) else {
            return;
        };
        match compressed {
            Some((codec, refers, payload)) => {
                self.held = self.held + (payload.len() - ROOM) - block.part.original_len;
                block.state = State::Compressed(codec, refers, payload);
                self.keep(original);
            }
            None => {
                self.stats.failures += 1;
                block.state = State::Final(original);
            }
        }
    }
}
