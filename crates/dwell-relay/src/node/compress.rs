//! The compressor: packets and blocks of them to the codec, and its results back into the store.

use std::net::IpAddr;

use dwell_base::Instant;
use dwell_codec::CodecSpec;
use dwell_drive::gather;
use dwell_policy::{Event, Job, Outcome};
use dwell_wire::Label;
use dwell_wire::carried::carried_extra_len;
use dwell_wire::header::COMPRESSED_HEADER_LEN;
use dwell_wire::packet::destination;
use dwell_wire::record::BLOCK_PACKETS_MAX;

use super::contexts::{Passage, compress_in_context, passage};
use super::env::{CompressJob, Compression, Env, Ticket};
use super::peer::Peer;
use super::store::{Compressed, Onward, Store};

/// Buffers that the compressor works with.
pub(super) struct Scratch<'a> {
    /// Room for a result.
    pub(super) out: &'a mut [u8],
    /// The packets of a block, one after another.
    pub(super) block: &'a mut Vec<u8>,
}

/// Links that what is compressed here may take: a loop that no label shows must end.
const HOP_LIMIT: u8 = 16;
/// Of addresses of IPv6 a label names the part that networks are distinguished by.
const LABEL_BITS_V6: u8 = 64;

/// Performs [`Action::Compress`](dwell_policy::Action::Compress).
pub(super) fn compress(
    peer: &mut Peer,
    index: usize,
    job: Job,
    store: &mut Store,
    scratch: &mut Scratch<'_>,
    env: &mut impl Env,
) {
    let Some(&first) = peer.port.batch(job.id).first() else {
        debug_assert!(false, "a job has packets");
        return;
    };
    let passage = passage(peer, env.now(), job, store);
    if passage == Some(Passage::Raw) {
        let (job, outcome, took_ns) = (job.id, Outcome::Declined, 0);
        peer.port.handle(env.now(), Event::Compressed { job, outcome, took_ns });
        return;
    }
    if passage.is_none() && compress_in_context(peer, index, job, store, env) {
        return;
    }
    let mut columnar_len = None;
    let bytes = if job.packets == 1 {
        store.get(first).0
    } else {
        let packets = peer.port.batch(job.id).iter().map(|&id| store.get(id).0);
        if gather(packets, peer.config.columnar, scratch.block) {
            columnar_len = u16::try_from(scratch.block.len()).ok();
        }
        &scratch.block[..]
    };
    let (group, codec) = codec_of(peer, (env.now(), passage.zip(job.context)), bytes);
    let generation = peer.generation;
    let ticket =
        Ticket { peer: index, generation, id: first, job: job.id, codec, group, columnar_len };
    let reply = give(peer, ticket, job, bytes, scratch.out, env);
    report(peer, ticket, store, scratch.out, (reply, env.now()));
}

/// Returns the codec for a packet or a batch of them, which are in no context; and their group if they are outside of its
/// context.
fn codec_of(
    peer: &mut Peer,
    (now, passage): (Instant, Option<(Passage, u64)>),
    bytes: &[u8],
) -> (Option<u64>, CodecSpec) {
    let Peer { config, contexts, .. } = peer;
    if let Some((Passage::By(codec), group)) = passage {
        contexts.outgoing.saw_outside(now, group, bytes);
        return (Some(group), codec);
    }
    let picks = config.picks_alone();
    (None, if picks { contexts.alone_codec(config.codec, bytes) } else { config.codec })
}

/// Notes what a codec left of a batch that is in no context; nothing if it did not become smaller.
pub(super) fn note_alone(
    peer: &mut Peer,
    ticket: Ticket,
    store: &Store,
    (now, left_len): (Instant, Option<usize>),
    took_ns: u64,
) {
    let Peer { port, contexts, .. } = peer;
    let len = || port.batch(ticket.job).iter().map(|&id| store.get(id).0.len()).sum();
    let lens = |len: usize| (len as u64, left_len.unwrap_or(len) as u64);
    if let Some(group) = ticket.group {
        contexts.outgoing.compressed_outside(now, group, lens(len()), took_ns);
    } else if let Some(alone) = contexts.alone_mut() {
        alone.compressed(ticket.codec, lens(len()), took_ns);
    }
}

/// Returns the destination of the compressed packets beyond the peer, if the peer can forward them.
fn onward<'p>(peer: &Peer, packets: impl Iterator<Item = &'p [u8]>) -> Option<Onward> {
    if !peer.forwards() {
        return None;
    }
    let label = Label::of_all(packets.filter_map(destination))?;
    let label = match label.address() {
        IpAddr::V4(_) => label,
        IpAddr::V6(_) => Label::new(label.address(), label.bits().min(LABEL_BITS_V6)),
    };
    Some(Onward { hop_limit: HOP_LIMIT, label })
}

/// Returns the bytes that a label adds to compressed ones.
fn extra_bytes(onward: Option<Onward>) -> u32 {
    onward.map_or(0, |onward| carried_extra_len(&onward.label) as u32)
}

fn give(
    peer: &Peer,
    ticket: Ticket,
    job: Job,
    bytes: &[u8],
    out: &mut [u8],
    env: &mut impl Env,
) -> Compression {
    if !peer.codec_accepted() || bytes.len() > usize::from(u16::MAX) {
        return Compression::Failed;
    }
    // One byte less than the packets, headers counted: what doesn't fit is not smaller.
    let room = bytes.len().saturating_sub(COMPRESSED_HEADER_LEN + 1);
    env.compress(CompressJob {
        ticket,
        codec: ticket.codec,
        packet: bytes,
        out: &mut out[..room],
        // While the link waits nobody else may do it.
        cost_ns: if job.is_urgent { 0 } else { job.cost_ns },
    })
}

fn report(
    peer: &mut Peer,
    ticket: Ticket,
    store: &mut Store,
    out: &[u8],
    (reply, now): (Compression, Instant),
) {
    if let Compression::Done { len, took_ns } = reply {
        note_alone(peer, ticket, store, (now, len), took_ns);
    }
    let (outcome, took_ns) = match reply {
        Compression::Pending => return,
        Compression::Done { len: Some(len), took_ns } => {
            (keep_compressed(peer, ticket, store, &out[..len]), took_ns)
        }
        Compression::Done { len: None, took_ns } => (Outcome::NotSmaller, took_ns),
        Compression::Failed => (Outcome::Failed, 0),
    };
    peer.compressed_ns = peer.compressed_ns.saturating_add(took_ns);
    peer.port.handle(now, Event::Compressed { job: ticket.job, outcome, took_ns });
}

/// Puts a compression result into the first packet's place, if it is smaller with its header, and the
/// peer decodes it: it may be another peer than when the compressor began.
pub(super) fn keep_compressed(
    peer: &Peer,
    ticket: Ticket,
    store: &mut Store,
    bytes: &[u8],
) -> Outcome {
    let Ticket { id, codec: CodecSpec { id: codec, .. }, .. } = ticket;
    if !peer.decodes(codec) {
        return Outcome::NotSmaller;
    }
    let batch = peer.port.batch(ticket.job);
    let packets = batch.len();
    let original_len: usize = batch.iter().map(|&id| store.get(id).0.len()).sum();
    let Ok(declared) = u16::try_from(original_len) else { return Outcome::NotSmaller };
    let onward = onward(peer, batch.iter().map(|&id| store.get(id).0));
    let len = bytes.len() as u32 + extra_bytes(onward);
    let gains = peer.port.config().frame.gains(len, (packets as u32, u32::from(declared)));
    let is_block = packets > 1;
    let columnar_len = ticket.columnar_len.filter(|_| is_block);
    let declared = columnar_len.unwrap_or(declared);
    // The format has no room for what grew, whatever headers are saved, nor for more parts or packets.
    let too_many = packets > BLOCK_PACKETS_MAX;
    if !gains
        || too_many
        || bytes.len() >= usize::from(declared)
        || len as usize > peer.cut_bytes_max()
    {
        return Outcome::NotSmaller;
    }
    let codec = codec as u8;
    let is_columnar = columnar_len.is_some();
    let compressed =
        Compressed { codec, epoch: 0, original_len: declared, is_block, is_columnar, onward };
    store.compress(id, compressed, bytes);
    Outcome::Smaller(len)
}
