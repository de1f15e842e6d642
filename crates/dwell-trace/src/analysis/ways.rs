//! Packets by all that their direction follows from, so that a capture's sides can be found while it is read.

use std::cmp::Ordering;
use std::net::IpAddr;

use dwell_wire::PacketInfo;

use super::directions::Directions;
use super::record::Sums;
use crate::keyed::KeyedMap;
use crate::replay::content::Composition;
use crate::sides::{Ends, Learner, Sides};

/// The most ways that are distinguished; each takes some 350 bytes.
pub const WAYS_MAX: usize = 1 << 17;

/// What the direction of a packet follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    ends: Ends,
    src: IpAddr,
    dst: IpAddr,
    /// The source's port beside the destination's.
    ports: Ordering,
}

/// The packets that went a way.
#[derive(Clone, Copy, Debug)]
struct Gone {
    way: Way,
    sums: Sums,
    /// The number of the last of them.
    last: u64,
}

/// The ways of a capture, in the order of their first packets.
#[derive(Debug, Default)]
pub(super) struct Ways {
    places: KeyedMap<Way, u32>,
    gone: Vec<Gone>,
    packets: u64,
}

impl Ways {
    /// Counts a packet, and returns the place of its way; none if there are too many.
    #[inline]
    pub(super) fn count(&mut self, ends: Ends, info: &PacketInfo) -> Option<u32> {
        let ports = info.src_port.cmp(&info.dst_port);
        let way = Way { ends, src: info.src, dst: info.dst, ports };
        let place = match self.places.get(&way) {
            Some(&place) => place,
            None => self.begin(way)?,
        };
        self.packets += 1;
        let gone = self.gone.get_mut(place as usize)?;
        gone.sums.add(info.total_len as u64);
        gone.last = self.packets;
        Some(place)
    }

    #[cold]
    fn begin(&mut self, way: Way) -> Option<u32> {
        let place = u32::try_from(self.gone.len()).ok().filter(|_| self.gone.len() < WAYS_MAX)?;
        self.places.insert(way, place);
        self.gone.push(Gone { way, sums: Sums::default(), last: 0 });
        Some(place)
    }

    /// Returns the sides that a [`Learner`] finds, who sees the packets one by one in their order.
    fn sides(&self) -> Sides {
        let mut learner = Learner::default();
        for Gone { way, sums, .. } in &self.gone {
            learner.observe_bytes(&way.ends, &way.info(), sums.bytes);
        }
        // What a packet says again each time: the last one's word counts.
        let mut by_last: Vec<&Gone> = self.gone.iter().collect();
        by_last.sort_unstable_by_key(|gone| gone.last);
        for Gone { way, .. } in by_last {
            learner.observe_bytes(&way.ends, &way.info(), 0);
        }
        learner.finish()
    }

    /// Returns the sums by direction. `compositions` has the content of the packets of each way, where it was sorted.
    pub(super) fn directions(&self, compositions: &[Composition]) -> Directions {
        let sides = self.sides();
        let mut directions = Directions::new(&sides);
        for (place, Gone { way, sums, .. }) in self.gone.iter().enumerate() {
            match sides.direction(&way.ends, &way.info()).index() {
                Some(direction) => {
                    let to = &mut directions.sums[direction];
                    to.packets += sums.packets;
                    to.bytes += sums.bytes;
                    if let Some(composition) = compositions.get(place) {
                        to.composition.merge(composition);
                    }
                }
                None => directions.neither.merge(sums),
            }
        }
        directions
    }
}

impl Way {
    /// Returns a packet of this way; what its direction does not follow from is 0.
    fn info(&self) -> PacketInfo {
        PacketInfo {
            version: 4,
            protocol: 0,
            flow_hash: 0,
            src_port: u16::from(self.ports == Ordering::Greater),
            dst_port: u16::from(self.ports == Ordering::Less),
            dscp: 0,
            header_len: 0,
            total_len: 0,
            fragment: false,
            dont_fragment: false,
            tcp_syn: false,
            src: self.src,
            dst: self.dst,
        }
    }
}

#[cfg(test)]
mod tests;
