//! From records of contexts to packets, and reports on how far that has come.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_codec::CodecId;
use dwell_policy::method::Processor;
use dwell_report::status::Problem;
use dwell_wire::{ContextRecord, Control, Headers};

use super::decode_job::DecodeJob;
use super::incoming::{Held, Opened, Origin, Taken};
use super::overload::Verdict;
use super::trial::CodecTrial;
use crate::node::Node;
use crate::node::before::is_missing;
use crate::node::env::Env;
use crate::node::link::send_controls;
use crate::node::peer::Peer;
use crate::node::problems::Finding;

/// Between the first peers that are asked to send without models.
const WITHDRAWALS_APART_NS: u64 = 4 * SECOND_NS;

/// Looks which codec is best for what is in no context; returns a trial if there is to be one.
fn pick_alone(
    peer: &mut Peer,
    now: Instant,
    processor: Processor,
    may_try: bool,
) -> Option<CodecTrial> {
    if !peer.config.picks_alone() {
        return None;
    }
    let possible = [CodecId::Lz4, CodecId::Zstd].map(|codec| (codec, peer.decodes(codec)));
    let decodes = |codec| possible.contains(&(codec, true));
    let rate = peer.pacer.lasting_rate();
    let alone = peer.contexts.alone.as_deref_mut()?;
    alone.review(now, (rate, processor), decodes, may_try)
}

fn decodes_slowly(for_ns: u64) -> Finding {
    Finding {
        problem: Problem::DecodesSlowly,
        why: format!(
            "More comes from it in models (codecs \"ppm\" and \"mix\") than the processors of this machine decode. It is \
             offered none for {} min: it sends by zstd.",
            for_ns / (60 * SECOND_NS)
        ),
        remedy: "Write models_max = 0 for this peer, or for others, if that does not end; or raise threads \
                 in [node], if fewer are configured than there are processors."
            .to_owned(),
    }
}

impl Node {
    /// A record of a context came.
    pub(in crate::node) fn of_context(
        &mut self,
        env: &mut impl Env,
        (now, origin): (Instant, Origin),
        index: usize,
        record: &ContextRecord<'_>,
    ) {
        let peer = &mut self.peers[index];
        let allowance = &mut peer.turn.packets_left;
        let mut taken = peer.contexts.incoming.take(now, record, origin, allowance);
        if taken == Taken::Full {
            self.open_ready(env, now, index);
            let peer = &mut self.peers[index];
            let allowance = &mut peer.turn.packets_left;
            taken = peer.contexts.incoming.take(now, record, origin, allowance);
        }
        self.do_with(env, index, record, taken);
        self.open_ready(env, now, index);
    }

    fn do_with(
        &mut self,
        env: &mut impl Env,
        index: usize,
        record: &ContextRecord<'_>,
        taken: Taken,
    ) {
        match taken {
            Taken::Now => self.open_in_context(env, index, record),
            Taken::Late => self.raw(env, index, record.data()),
            Taken::Full => self.peers[index].contexts.incoming.crowded_out(),
            Taken::Held | Taken::Dropped => {}
        }
    }

    /// Opens what was held and need not wait any longer, as far as the peer's turn goes.
    pub(in crate::node) fn open_ready(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        loop {
            let peer = &mut self.peers[index];
            if !peer.turn.may_restore() {
                return;
            }
            let (context, mut held, was_parked) = match peer.contexts.incoming.unpark() {
                Some((context, parked)) => (context, parked, true),
                None => match peer.contexts.incoming.ready(now) {
                    Some((context, held)) => (context, held, false),
                    None => return,
                },
            };
            let of_held = std::mem::take(&mut held.packets_left);
            let of_datagram = std::mem::replace(&mut peer.turn.packets_left, of_held);
            if was_parked {
                self.go_on(env, now, index, (context, &held));
            } else {
                self.open_in_context(env, index, &held.record(context));
            }
            self.peers[index].turn.packets_left = of_datagram;
        }
    }

    /// A record was parked, and is placed now.
    fn go_on(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        (context, parked): (u8, &Held),
    ) {
        let peer = &mut self.peers[index];
        let (record, incoming) = (parked.record(context), &mut peer.contexts.incoming);
        // Whether it is of a session that is heard was looked at when it came.
        let origin = Origin { datagram: parked.datagram, is_present: true };
        let allowance = &mut peer.turn.packets_left;
        let mut taken = incoming.place(now, &record, origin, allowance);
        if taken == Taken::Full {
            // Those that waited were given up: either it is its turn now, or there is room.
            taken = incoming.place(now, &record, origin, allowance);
        }
        self.do_with(env, index, &record, taken);
    }

    fn open_in_context(&mut self, env: &mut impl Env, index: usize, record: &ContextRecord<'_>) {
        let peer = &mut self.peers[index];
        let worth = peer.contexts.incoming.bytes_worth(record);
        let begins = record.start().is_some();
        if let Some(mut job) = peer.contexts.incoming.depart(record) {
            (job.peer, job.peer_generation) = (index, peer.generation);
            job.packets_left = peer.turn.packets_left.share();
            // What threads do, they share among the peers themselves.
            if let Some(done) = env.decode_in_context(job) {
                self.peers[index].turn.charge_bytes(worth);
                self.deliver_decoded(env, index, done);
            }
            return;
        }
        // It costs as much if it fails.
        peer.turn.charge_bytes(worth);
        let mut scratch = std::mem::take(&mut self.scratch);
        let opened = peer.contexts.incoming.open(record, &mut scratch);
        let malformed = (peer.rx.malformed, peer.rx.decode_failed);
        match opened {
            Opened::Raw => {
                self.scratch = scratch;
                self.raw(env, index, record.data());
                return;
            }
            Opened::Batch { len, headers } => {
                self.deliver_batch(env, index, (record.context, headers), &mut scratch[..len]);
            }
            Opened::Nothing => {}
        }
        self.scratch = scratch;
        let peer = &mut self.peers[index];
        if malformed != (peer.rx.malformed, peer.rx.decode_failed) {
            peer.contexts.incoming.is_garbled(record.context);
        }
        if begins {
            self.history_grew(env.now(), index);
        }
    }

    /// A thread is done with a job that [`Env::decode_in_context`] gave it.
    pub fn decoded_in_context(&mut self, env: &mut impl Env, job: Box<DecodeJob>) {
        let index = job.peer;
        let is_here = |peer: &Peer| !peer.removed && peer.generation == job.peer_generation;
        if !self.peers.get(index).is_some_and(is_here) {
            return;
        }
        self.peers[index].excuse_silence(env.now());
        let (now, left_ns) = (env.now(), self.peers[index].turn.left_ns());
        self.deliver_decoded(env, index, job);
        self.open_ready(env, now, index);
        let elapsed_ns = env.now().since_ns(now);
        self.peers[index].turn.took(left_ns, elapsed_ns);
    }

    fn deliver_decoded(&mut self, env: &mut impl Env, index: usize, mut job: Box<DecodeJob>) {
        let is_whole = self.peers[index].contexts.incoming.returned(&mut job);
        if job.begins.is_some() {
            self.history_grew(env.now(), index);
        }
        if !is_whole {
            return;
        }
        let peer = &mut self.peers[index];
        let of_job = std::mem::take(&mut job.packets_left);
        let of_datagram = std::mem::replace(&mut peer.turn.packets_left, of_job);
        let malformed = (peer.rx.malformed, peer.rx.decode_failed);
        self.deliver_batch(env, index, (job.context, job.headers), &mut job.out);
        let peer = &mut self.peers[index];
        peer.turn.packets_left = of_datagram;
        if malformed != (peer.rx.malformed, peer.rx.decode_failed) {
            peer.contexts.incoming.is_garbled(job.context);
        }
    }

    /// Restores and delivers the packets of a batch that was decoded.
    fn deliver_batch(
        &mut self,
        env: &mut impl Env,
        index: usize,
        (context, headers): (u8, Headers),
        batch: &mut [u8],
    ) {
        match headers {
            Headers::Plain => self.one_after_another(env, index, batch),
            Headers::Columnar => self.columnar(env, index, batch),
            Headers::Predicted => self.predicted(env, index, context, batch),
        }
    }

    /// Looks if what models of the peer send can be decoded in time.
    fn review_overload(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        // What one peer does not send helps the others: they are not asked at once.
        let may = now >= self.may_withdraw_at;
        let peer = &mut self.peers[index];
        let verdict = peer.contexts.review_overload(now, may);
        if verdict == Verdict::AsBefore {
            return;
        }
        peer.renew_offer();
        match verdict {
            Verdict::Withdraw { for_ns } => {
                self.may_withdraw_at = now + WITHDRAWALS_APART_NS;
                self.note_problem(env, Some(index), decodes_slowly(for_ns));
            }
            _ => self.clear_problem(env, Some(index), Problem::DecodesSlowly),
        }
    }

    /// Does what time brings for contexts in both directions.
    pub(in crate::node) fn tend_contexts(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
    ) {
        let peer = &mut self.peers[index];
        peer.excuse_silence(now);
        peer.contexts.outgoing.expire(now);
        if peer.contexts.begins_again(now) {
            peer.renew_contexts();
        }
        self.review_overload(env, now, index);
        if self.peers[index].contexts.is_look_due(now) {
            self.look_at_codecs(env, now, index);
        }
        self.report_contexts(env, now, index);
    }

    /// Looks how batches should refer to others, and which codecs are best now.
    fn look_at_codecs(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        let path = peer.path(now);
        peer.contexts.review(now, peer.config.history_mode, path);
        let (rate, takes_models) = (peer.pacer.lasting_rate(), peer.takes_models());
        peer.contexts.outgoing.set_path(rate, peer.rtt_ns);
        let takes_lz4 = peer.decodes(CodecId::Lz4);
        peer.contexts.outgoing.set_takes_lz4(takes_lz4);
        peer.contexts.incoming.set_path(peer.rtt_ns);
        let parallel = peer.contexts.outgoing.parallel(now);
        self.processors.set_parallel(index, parallel.min(peer.port.jobs_max() as f64));
        let mut processor = self.processors.of_peer(now, index);
        if let Some(share) = peer.config.saving.cpu_share() {
            processor.share = processor.share.min(share);
        }
        let may_try = self.processors.may_try(now);
        let path = (rate, takes_models, peer.reports.model_rate());
        let generation = peer.generation;
        let trial = peer.contexts.outgoing.pick(now, path, processor, may_try);
        let may_try = may_try && trial.is_none();
        let trial = pick_alone(peer, now, processor, may_try).or(trial);
        peer.refresh_batches();
        if let Some(trial) = trial {
            self.processors.trial_began(now);
            if let Some(done) = env.try_codecs(trial.of_peer(index, generation)) {
                self.tried(now, &done);
            }
        }
    }

    /// Gives up what is waited for in vain, and reports how far the peer's contexts have come.
    fn report_contexts(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        let waits = peer.gap_waits();
        let (reorder, before) = (&peer.reorder, &peer.before);
        let is_missing = |datagram| is_missing((reorder, before), datagram);
        // What came and waits for the peer's turn may hold what is missing.
        if !peer.turn.is_behind() {
            peer.contexts.incoming.expire(now, waits, is_missing);
        }
        self.open_ready(env, now, index);
        let peer = &mut self.peers[index];
        if peer.handshake.current().is_none() {
            return;
        }
        let mut due = Vec::new();
        peer.contexts.incoming.reports(now, waits.report_ns, &mut due);
        if !due.is_empty() {
            let controls: Vec<_> = due.into_iter().map(Control::ContextReport).collect();
            send_controls(peer, index, env, &controls);
        }
    }
}
