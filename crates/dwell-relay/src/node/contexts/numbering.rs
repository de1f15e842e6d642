//! The records of a frame: those of contexts get their numbers, and what must keep its place
//! among them does too.

use dwell_base::Instant;
use dwell_policy::{Bypass, PacketId};
use dwell_wire::context::{CONTEXT_ALONE_LEN, CONTEXT_RAW_HEADER_LEN, CONTEXT_START_LEN};
use dwell_wire::record::{BLOCK_PACKETS_MAX, raw_record_len};
use dwell_wire::{Alone, ContextBody, ContextRecord, Headers, context_record_len};

use super::again::Again;
use super::outgoing::Position;
use super::{Contexts, bound_ns};
use crate::node::peer::Peer;
use crate::node::store::Store;

/// One record of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) id: PacketId,
    /// Its packets.
    pub(crate) packets: usize,
    /// Its place in a context, if it has one.
    pub(crate) position: Option<Position>,
    /// It is the first packet of a batch that can't be sent any more, as it was.
    pub(crate) is_original: bool,
}

impl Item {
    /// The record, if it is one of a context.
    pub(crate) fn context_record<'s>(&self, store: &'s Store) -> Option<ContextRecord<'s>> {
        let Position { context, generation, number, is_confirmed } = self.position?;
        let body = match store.context(self.id).filter(|_| !self.is_original) {
            Some(place) => ContextBody::Batch {
                start: place.start.filter(|_| !is_confirmed),
                alone: place.alone.map(|it| Alone { keeps: it.keeps && !is_confirmed, ..it }),
                headers: place.headers,
                original_len: place.original_len,
                data: store.get(self.id).0,
            },
            None => ContextBody::Raw(self.packet(store)),
        };
        Some(ContextRecord { context, generation, number: number as u16, body })
    }

    /// The bytes of a packet that is not compressed.
    pub(crate) fn packet<'s>(&self, store: &'s Store) -> &'s [u8] {
        if self.is_original { store.original(self.id) } else { store.get(self.id).0 }
    }

    /// Bytes of the record, if it is one of a context or a packet that came out of one.
    pub(crate) fn len(&self, store: &Store) -> Option<usize> {
        match self.context_record(store) {
            Some(record) => Some(context_record_len(&record)),
            None => self.is_original.then(|| raw_record_len(self.packet(store).len())),
        }
    }
}

/// Finds what the records of the port's frame are. Returns by how many bytes they are more than the
/// core knows.
pub(in crate::node) fn number_frame(
    peer: &mut Peer,
    store: &Store,
    now: Instant,
    items: &mut Vec<Item>,
) -> usize {
    items.clear();
    let bound_ns = bound_ns(peer.rtt_ns);
    let Peer { port, contexts, .. } = peer;
    let frame = port.frame();
    let mut followers = frame.followers.iter().map(|packet| packet.id);
    let mut extra = 0;
    for unit in &frame.units {
        let of_batch = followers.by_ref().take(unit.followers as usize);
        let (id, known) = (unit.id, 1 + unit.followers as usize);
        let Some(place) = store.context(id) else {
            of_batch.for_each(drop);
            let packets = match store.get(id).1 {
                // Made elsewhere, and not opened here.
                Some(compressed) if compressed.is_block && known == 1 => BLOCK_PACKETS_MAX,
                Some(_) => known,
                None => {
                    let is_sparse = unit.bypass == Some(Bypass::Sparse);
                    let when = (now, bound_ns, is_sparse);
                    extra += raw(contexts, store, when, (id, false), items);
                    continue;
                }
            };
            items.push(Item { id, packets, position: None, is_original: false });
            continue;
        };
        if let Some(position) = contexts.outgoing.number_batch(now, &place) {
            let (mut again, mut packets) = (Again::default(), Vec::new());
            for (at, id) in std::iter::once(id).chain(of_batch).enumerate() {
                let treatment = store.treatment(id);
                contexts.bindings.bind(now, treatment.flow, place.context);
                again.set(at, treatment.again);
                if place.headers == Headers::Predicted {
                    let is_first = at == 0;
                    packets.extend(if is_first { store.original(id) } else { store.get(id).0 });
                }
            }
            contexts.outgoing.keep_original(now, &place, again, packets);
            let begins = place.start.is_some() && !position.is_confirmed;
            extra += if begins { CONTEXT_START_LEN } else { 0 };
            extra += if place.alone.is_some() { CONTEXT_ALONE_LEN } else { 0 };
            let position = Some(position);
            items.push(Item { id, packets: known, position, is_original: false });
            continue;
        }
        // Its generation has ended meanwhile: nobody could decode it.
        contexts.outgoing.counts.undone += 1;
        let before: usize = items.len();
        extra += raw(contexts, store, (now, bound_ns, false), (id, true), items);
        for id in of_batch {
            extra += raw(contexts, store, (now, bound_ns, false), (id, false), items);
        }
        let packets = items[before..].iter().map(|item| raw_record_len(item.packet(store).len()));
        extra += packets.sum::<usize>().saturating_sub(store.get(id).0.len());
    }
    extra
}

/// A packet goes as it is: in its place among those of its flow, if they are in a context and may not
/// have come yet. Returns by how many bytes its record is longer then.
///
/// A flow that sends little is not bound again by that: it would be for as long as it sends more often than
/// reports come, and wait for what others lose. So when it is bound no more its packets may pass those that
/// wait yet.
fn raw(
    contexts: &mut Contexts,
    store: &Store,
    (now, bound_ns, is_sparse): (Instant, u64, bool),
    (id, is_original): (PacketId, bool),
    items: &mut Vec<Item>,
) -> usize {
    let treatment = store.treatment(id);
    let bound = contexts.bindings.context_of(now, treatment.flow, bound_ns);
    let context = bound.filter(|_| !treatment.once);
    let position = context.and_then(|context| contexts.outgoing.number_raw(now, context));
    items.push(Item { id, packets: 1, position, is_original });
    if let Some(position) = position {
        if !is_sparse {
            contexts.bindings.bind(now, treatment.flow, position.context);
        }
        contexts.outgoing.counts.raw += 1;
        return CONTEXT_RAW_HEADER_LEN;
    }
    0
}

#[cfg(test)]
mod tests {
    use dwell_base::time::{MILLI_NS, SECOND_NS};
    use dwell_codec::ContextSpec;
    use dwell_wire::{ContextOffer, Headers};

    use super::*;
    use crate::node::contexts::begin::{Coder, Wanted};
    use crate::node::contexts::job::Made;
    use crate::node::contexts::outgoing::{Entered, Left};
    use crate::node::contexts::{Limits, Mode};
    use crate::node::store::{InContext, Treatment};

    const BOUND_NS: u64 = 200 * MILLI_NS;
    const LIMITS: Limits = Limits { contexts: 1, ring_log: 15, models: None };
    const FLOW: u64 = 7;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(SECOND_NS + ms * MILLI_NS)
    }

    /// Contexts with a flow that has gone through one of them now, in a batch that is on its way.
    fn bound(now: Instant) -> Contexts {
        let mut contexts = Contexts::new(LIMITS, 1);
        let offer = ContextOffer { incarnation: 2, ..contexts.offer() };
        let ours = contexts.offer();
        contexts.begin_session(Instant::ZERO, (&ours, Some(&offer)));
        let coder = Coder { zstd: ContextSpec { level: 1, window_log: 15 }, model: None };
        let wanted = Wanted { coder, picks: false, memory_log: 20, are_short: true };
        let entered = contexts.outgoing.enter(now, 1, wanted).expect("a context");
        let Entered { context, epoch, encoder, generation, .. } = entered;
        let (lens, elapsed_ns) = ((1, 1), None);
        let left = Left { made: Made::Done, primed: false, lens, took_ns: 1, elapsed_ns };
        assert!(contexts.outgoing.leave(now, (context, epoch), encoder, left));
        let place = InContext {
            context,
            epoch,
            generation: generation.number,
            start: Some(generation.start()),
            alone: None,
            offset: 0,
            original_len: 1_000,
            headers: Headers::Plain,
        };
        assert!(contexts.outgoing.number_batch(now, &place).is_some());
        contexts.bindings.bind(now, FLOW, context);
        contexts
    }

    /// The times, of packets every 20 ms for a second, at which one keeps its place behind the batch.
    fn in_context(is_sparse: bool, once: bool) -> Vec<u64> {
        let (mut contexts, mut store) = (bound(at(0)), Store::default());
        let mut items = Vec::new();
        let id = store.insert(&[0x45; 20], Treatment { once, flow: FLOW, ..Treatment::default() });
        let times = (20..1_000).step_by(20);
        let has_place = |&ms: &u64| {
            items.clear();
            let when = (at(ms), BOUND_NS, is_sparse);
            let extra = raw(&mut contexts, &store, when, (id, false), &mut items);
            assert_eq!(extra > 0, items[0].position.is_some());
            extra > 0
        };
        times.filter(has_place).collect()
    }

    /// A flow that sends little, but more often than reports come, would wait for what others lose as long as it
    /// sends.
    #[test]
    fn packets_of_sparse_flows_do_not_bind_their_flow_again() {
        assert_eq!(in_context(true, false), (20..200).step_by(20).collect::<Vec<_>>());
        // Those of others do, while something is on its way.
        assert_eq!(in_context(false, false).len(), 49);
        assert_eq!(in_context(false, true), [0; 0]);
    }

    /// Of what is not sent again nothing may be waited for.
    #[test]
    fn what_goes_raw_has_no_number_where_batches_refer_to_nothing() {
        let now = at(0);
        let mut contexts = bound(now);
        assert!(contexts.outgoing.number_raw(now, 0).is_some());
        contexts.outgoing.want(Mode::Stateless);
        assert!(contexts.outgoing.number_raw(now, 0).is_none());
    }
}
