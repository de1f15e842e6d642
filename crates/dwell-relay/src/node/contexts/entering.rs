//! Batches on their way to the compressor in a context, and back into the store.

use dwell_base::Instant;
use dwell_codec::{CONTEXT_BATCH_LEN_MAX, ContextSpec, MODEL_RECORD_LEN_MAX};
use dwell_drive::{Passed, gather};
use dwell_policy::{Event, Job, Outcome, PacketId};
use dwell_wire::block::BLOCK_HEADER_LEN;
use dwell_wire::context::{CONTEXT_ALONE_LEN, CONTEXT_BATCH_HEADER_LEN, CONTEXT_START_LEN};
use dwell_wire::predicted::GROWN_BYTES_MAX;
use dwell_wire::record::BLOCK_PACKETS_MAX;
use dwell_wire::{Alone, Headers};

use super::begin::{Coder, Kind, Wanted};
use super::choice::Mode;
use super::job::{ContextJob, Made};
use super::outgoing::{Entered, Left, Passage};
use super::{Contexts, bound_ns};
use crate::node::env::{Env, Ticket};
use crate::node::peer::Peer;
use crate::node::store::{InContext, Store};

/// Performs [`Action::Compress`](dwell_policy::Action::Compress) in the context of the job's group.
/// False, and nothing is changed, if it must do without one.
pub(in crate::node) fn compress_in_context(
    peer: &mut Peer,
    index: usize,
    job: Job,
    store: &mut Store,
    env: &mut impl Env,
) -> bool {
    let Some((group, first)) = may_enter(peer, job, store) else { return false };
    let now = env.now();
    let (mut batch, out) = peer.contexts.spare.pop().unwrap_or_default();
    let (config, wanted) = (&peer.config, wanted(peer));
    let len_max = if wanted.are_short { MODEL_RECORD_LEN_MAX } else { CONTEXT_BATCH_LEN_MAX };
    let packets = || peer.port.batch(job.id).iter().map(|&id| store.get(id).0);
    // Headers are predicted once it is known in which context; until then only the most that this can take.
    let predicted_len_max = packets().map(|packet| packet.len() + GROWN_BYTES_MAX).sum::<usize>();
    let predicts =
        config.columnar && peer.contexts.outgoing.predicts() && predicted_len_max <= len_max;
    let is_columnar = !predicts && gather(packets(), config.columnar, &mut batch);
    let fits = predicts || (1..=len_max).contains(&batch.len());
    // Who enters must come out again.
    let crowded_out = peer.contexts.outgoing.counts.crowded_out;
    let entered = fits.then(|| peer.contexts.outgoing.enter(now, group, wanted)).flatten();
    if peer.contexts.outgoing.counts.crowded_out > crowded_out {
        peer.contexts.flows.crowded_out(now, group);
    }
    let Some(Entered { context, epoch, encoder, is_new, generation, begins }) = entered else {
        peer.contexts.give_back((batch, out));
        return false;
    };
    if is_new {
        peer.contexts.bindings.forget(context);
    }
    let mut headers = if is_columnar { Headers::Columnar } else { Headers::Plain };
    if begins {
        peer.contexts.outgoing.forget_headers(context);
    }
    if predicts && let Some(predictor) = peer.contexts.outgoing.predictor(context) {
        batch.clear();
        let packets = peer.port.batch(job.id).iter().map(|&id| store.get(id).0);
        packets.for_each(|packet| predictor.write(packet, &mut batch));
        headers = Headers::Predicted;
    }
    let packets_bytes =
        peer.port.batch(job.id).iter().map(|&id| store.get(id).0.len() as u64).sum();
    let ticket = ticket(peer, (index, first), job);
    let (cost_ns, took_ns) = (if job.is_urgent { 0 } else { job.cost_ns }, 0);
    let (made, offset) = (Made::Failed, 0);
    let job = ContextJob {
        ticket,
        cost_ns,
        took_ns,
        elapsed_ns: None,
        group,
        context,
        epoch,
        encoder,
        generation,
        begins,
        headers,
        batch,
        packets_bytes,
        out,
        made,
        offset,
    };
    if let Some(done) = env.compress_in_context(job) {
        let (job, took_ns) = (done.ticket.job, done.took_ns);
        peer.compressed_ns = peer.compressed_ns.saturating_add(took_ns);
        let now = env.now();
        let outcome = finish(peer, done, store, now);
        peer.port.handle(now, Event::Compressed { job, outcome, took_ns });
    }
    true
}

/// Returns the group of a batch whose context it may enter, and its first packet.
fn may_enter(peer: &Peer, job: Job, store: &Store) -> Option<(u64, PacketId)> {
    let outgoing = &peer.contexts.outgoing;
    let group = job.context?;
    let batch = peer.port.batch(job.id);
    let &first = batch.first()?;
    // What must not be sent again can't be needed by what comes after it.
    let treatment = store.treatment(first);
    let is_possible = outgoing.is_possible() && outgoing.mode() != Mode::Stateless;
    let fits = !treatment.once && !treatment.alone && batch.len() <= BLOCK_PACKETS_MAX;
    (is_possible && fits).then_some((group, first))
}

/// Returns how batches pass the context of this group by, if they do.
pub(in crate::node) fn passage(
    peer: &mut Peer,
    now: Instant,
    job: Job,
    store: &Store,
) -> Option<Passage> {
    let wanted = Some(wanted(peer)).filter(|it| it.picks)?;
    let (group, _) = may_enter(peer, job, store)?;
    let bound_ns = bound_ns(peer.rtt_ns);
    let Contexts { outgoing, bindings, .. } = &mut peer.contexts;
    outgoing.passage(now, (group, wanted), bound_ns, bindings)
}

/// Returns what contexts of the peer are to be.
fn wanted(peer: &Peer) -> Wanted {
    let config = &peer.config;
    let zstd = ContextSpec { level: config.codec.level, window_log: config.context_window_log };
    Wanted {
        coder: Coder { zstd, model: config.model() },
        picks: config.picks_codec,
        memory_log: config.model_memory_log,
        are_short: peer.has_short_batches,
    }
}

fn ticket(peer: &Peer, (index, id): (usize, PacketId), job: Job) -> Ticket {
    let (generation, codec) = (peer.generation, peer.config.codec);
    Ticket { peer: index, generation, id, job: job.id, codec, group: None, columnar_len: None }
}

/// Puts a result into the first packet's place, if its generation can yet go on.
pub(in crate::node) fn finish(
    peer: &mut Peer,
    job: ContextJob,
    store: &mut Store,
    now: Instant,
) -> Outcome {
    let extra = CONTEXT_BATCH_HEADER_LEN + CONTEXT_START_LEN + CONTEXT_ALONE_LEN - BLOCK_HEADER_LEN;
    let len_max = peer.cut_bytes_max() - extra;
    let contexts = &mut peer.contexts;
    // Too long, and it can never be sent: then nothing after it can be decoded.
    let made = match job.made {
        Made::Done if !(1..=len_max).contains(&job.out.len()) => Made::Failed,
        made => made,
    };
    let left = Left {
        made,
        primed: job.primes(),
        lens: (job.batch.len() as u64, job.out.len() as u64),
        took_ns: job.took_ns,
        elapsed_ns: job.elapsed_ns,
    };
    let place = place_of(&job).filter(|_| made == Made::Done);
    let codec = job.generation.coder.name();
    let ContextJob { ticket, group, context, epoch, encoder, batch, packets_bytes, out, .. } = job;
    let memory_bytes = encoder.memory_bytes();
    let is_live = contexts.outgoing.leave(now, (context, epoch), encoder, left);
    let outcome = match place {
        Some(place) if is_live => {
            store.commit(ticket.id, place, &out);
            contexts.outgoing.counts.batches += 1;
            contexts.outgoing.counts.alone += u64::from(place.alone.is_some());
            contexts.outgoing.counts.bytes_in += packets_bytes;
            contexts.outgoing.counts.bytes_out += out.len() as u64;
            let (from_bytes, to_bytes) = (packets_bytes, out.len() as u64);
            let passed = Passed { codec, from_bytes, to_bytes, took_ns: left.took_ns };
            let flow = store.treatment(ticket.id).flow;
            contexts.flows.compressed(now, (group, flow), passed, memory_bytes);
            Outcome::Committed(out.len() as u32)
        }
        _ if made == Made::NotSmaller => Outcome::NotSmaller,
        // Nothing refers to it: its packets go as they are.
        _ => Outcome::Failed,
    };
    contexts.give_back((batch, out));
    outcome
}

/// The place of a batch; none if the format has none for it.
fn place_of(job: &ContextJob) -> Option<InContext> {
    let generation = &job.generation;
    let alone = match generation.kind {
        Kind::Running => None,
        Kind::Alone { keeps } => {
            let distance = u32::try_from(job.offset.checked_sub(generation.base.offset)?).ok()?;
            Some(Alone { distance, keeps })
        }
    };
    Some(InContext {
        context: job.context,
        epoch: job.epoch,
        generation: generation.number,
        start: (job.begins || alone.is_some()).then(|| generation.start()),
        alone,
        offset: job.offset,
        original_len: u16::try_from(job.batch.len()).ok()?,
        headers: job.headers,
    })
}
