//! The bytes of waiting packets.

use dwell_drive::Slab;
use dwell_policy::PacketId;
use dwell_wire::{Alone, Headers, Label, Start, ecn};

/// A packet's place.
#[derive(Debug, Default)]
struct Place {
    bytes: Vec<u8>,
    codec: Option<Compressed>,
    /// It is a batch of a context, and its first packet is here as it was.
    context: Option<InContext>,
    original: Vec<u8>,
    treatment: Treatment,
}

/// The treatment of a packet, by its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Treatment {
    /// The class's index.
    pub(crate) class: Option<u8>,
    /// It is not sent again if it is lost.
    pub(crate) once: bool,
    /// It refers to nothing that went before, and nothing to it.
    pub(crate) alone: bool,
    /// Its sender sees to it that it arrives.
    pub(crate) repairs: bool,
    /// It was sent before, in a generation that was lost: it is not encoded a third time.
    pub(crate) again: bool,
    /// Its flow, as the core knows it.
    pub(crate) flow: u64,
}

/// The method by which a packet was compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressed {
    pub(crate) codec: u8,
    pub(crate) epoch: u8,
    pub(crate) original_len: u16,
    /// It is several packets; those after the first have places of their own.
    pub(crate) is_block: bool,
    /// True if the packets were rearranged before they were compressed.
    pub(crate) is_columnar: bool,
    /// Its destination beyond the next node, if that node can forward it.
    pub(crate) onward: Option<Onward>,
}

/// The place of a batch that was compressed in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InContext {
    pub(crate) context: u8,
    /// The generations since the ring was cut, by a name that no others have had; and its own.
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    /// It is the first batch of its generation, or stands alone.
    pub(crate) start: Option<Start>,
    pub(crate) alone: Option<Alone>,
    /// The offset of its first byte.
    pub(crate) offset: u64,
    /// The bytes that were compressed: the packets, in this form.
    pub(crate) original_len: u16,
    pub(crate) headers: Headers,
}

/// The reach of a compressed packet or block beyond the next node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Onward {
    /// Links that it may still take.
    pub(crate) hop_limit: u8,
    pub(crate) label: Label,
}

/// The packets that wait in the ports of a node, by the names that the core knows them by.
#[derive(Debug, Default)]
pub(crate) struct Store {
    places: Slab<Place>,
}

impl Store {
    /// Keeps a packet.
    pub(crate) fn insert(&mut self, packet: &[u8], treatment: Treatment) -> PacketId {
        let (id, place) = self.places.take();
        place.bytes.clear();
        place.bytes.extend_from_slice(packet);
        (place.codec, place.context) = (None, None);
        place.treatment = treatment;
        id
    }

    /// Keeps what came compressed.
    pub(crate) fn insert_compressed(
        &mut self,
        data: &[u8],
        compressed: Compressed,
        treatment: Treatment,
    ) -> PacketId {
        let id = self.insert(data, treatment);
        self.places.get_mut(id).codec = Some(compressed);
        id
    }

    /// The bytes to send, and how they are compressed if they are.
    pub(crate) fn get(&self, id: PacketId) -> (&[u8], Option<Compressed>) {
        let place = self.places.get(id);
        (&place.bytes, place.codec)
    }

    /// Returns true if this is a block.
    pub(crate) fn is_block(&self, id: PacketId) -> bool {
        self.places.get(id).codec.is_some_and(|compressed| compressed.is_block)
    }

    /// Returns the treatment of the packet.
    pub(crate) fn treatment(&self, id: PacketId) -> Treatment {
        self.places.get(id).treatment
    }

    /// The classes have other indices now: each old one has a new one here, if the class is still
    /// there.
    pub(crate) fn reclass(&mut self, new: &[Option<u8>]) {
        for place in self.places.places_mut() {
            let class = &mut place.treatment.class;
            *class = class.and_then(|old| new.get(usize::from(old)).copied().flatten());
        }
    }

    /// The packet's class, by its index.
    pub(crate) fn class(&self, id: PacketId) -> Option<usize> {
        self.treatment(id).class.map(usize::from)
    }

    /// Puts a packet's compressed form in its place.
    pub(crate) fn compress(&mut self, id: PacketId, compressed: Compressed, bytes: &[u8]) {
        let place = self.places.get_mut(id);
        place.bytes.clear();
        place.bytes.extend_from_slice(bytes);
        place.codec = Some(compressed);
    }

    /// Puts a batch that was compressed in a context in the place of its first packet, which is kept
    /// until the batch is sent.
    pub(crate) fn commit(&mut self, id: PacketId, context: InContext, bytes: &[u8]) {
        let place = self.places.get_mut(id);
        std::mem::swap(&mut place.bytes, &mut place.original);
        place.bytes.clear();
        place.bytes.extend_from_slice(bytes);
        place.context = Some(context);
    }

    /// Returns the place in its context, if this is a batch of one.
    pub(crate) fn context(&self, id: PacketId) -> Option<InContext> {
        self.places.get(id).context
    }

    /// Returns the first packet of a batch of a context.
    pub(crate) fn original(&self, id: PacketId) -> &[u8] {
        &self.places.get(id).original
    }

    /// Marks a packet that is not compressed as one that met congestion.
    pub(crate) fn mark(&mut self, id: PacketId) {
        let place = self.places.get_mut(id);
        let is_marked =
            place.codec.is_none() && place.context.is_none() && ecn::mark(&mut place.bytes);
        debug_assert!(is_marked, "only what takes a mark is marked");
    }

    /// Forgets a packet.
    pub(crate) fn remove(&mut self, id: PacketId) {
        self.places.release(id);
    }

    /// Packets kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_keeps_its_class_when_others_take_its_index() {
        let mut store = Store::default();
        let of = |class| Treatment { class, once: true, ..Treatment::default() };
        let ids = [Some(0), Some(1), Some(2), None].map(|class| store.insert(&[1], of(class)));
        // The first is gone, the other two changed places.
        store.reclass(&[None, Some(1), Some(0)]);
        assert_eq!(ids.map(|id| store.class(id)), [None, Some(1), Some(0), None]);
        assert!(ids.iter().all(|&id| store.treatment(id).once));
    }
}
