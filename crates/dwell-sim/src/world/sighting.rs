//! What can be seen of a simulation while it runs: packets on links, and windows.

use crate::tcp::Ack;
use crate::world::flow::Sending;
use crate::world::packets::Packet;
use crate::world::{EVENTS_AT_ONCE, World};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sighting {
    /// A packet or a compressed unit begins its transmission.
    Packet(Seen),
    /// The congestion window of a connection is another one.
    Window {
        /// When.
        at_ns: u64,
        /// The index of the flow.
        flow: usize,
        /// The window, in packets.
        packets: f64,
        /// The threshold of slow start, in packets.
        threshold: f64,
    },
}

/// A packet that begins its transmission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// When.
    pub at_ns: u64,
    /// The index of the link.
    pub link: usize,
    /// The index of the flow.
    pub flow: usize,
    /// Its size on the link.
    pub bytes: u32,
    /// True if it is compressed.
    pub is_compressed: bool,
    /// What it is.
    pub what: What,
}

/// The kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A packet of a source that does not react.
    Datagram,
    /// A segment of a connection.
    Segment {
        /// Its number; 0 is the SYN.
        number: u64,
        /// True if a queue has marked it.
        is_marked: bool,
        /// True if it may be marked.
        takes_mark: bool,
    },
    /// An acknowledgement.
    Acknowledgement(Ack),
}

impl World {
    /// Runs to the end, and shows all that happens on links whose queue is managed, a port or observed
    /// ([`Medium::is_observed`](crate::plan::Medium::is_observed)).
    pub fn run_observed(mut self, mut see: impl FnMut(&Sighting)) -> crate::Outcome {
        self.sightings = Some(Vec::new());
        while self.step_observed(&mut see) {}
        self.finish()
    }

    /// As [`Self::run_observed`], unless `goes_on`, called as by [`Self::run_while`], returns false.
    pub fn run_observed_while(
        mut self,
        mut goes_on: impl FnMut(f64) -> bool,
        mut see: impl FnMut(&Sighting),
    ) -> Option<crate::Outcome> {
        self.sightings = Some(Vec::new());
        while goes_on(self.share_over()) {
            if (0..EVENTS_AT_ONCE).any(|_| !self.step_observed(&mut see)) {
                return Some(self.finish());
            }
        }
        None
    }

    fn step_observed(&mut self, see: &mut impl FnMut(&Sighting)) -> bool {
        let goes_on = self.step();
        if let Some(sightings) = &mut self.sightings {
            sightings.drain(..).for_each(|sighting| see(&sighting));
        }
        goes_on
    }

    /// Shows a packet that begins its transmission, if somebody looks.
    #[inline]
    pub(super) fn show_packet(&mut self, link: u32, id: u32) {
        if self.sightings.is_some() {
            self.see_packet(link, id);
        }
    }

    fn see_packet(&mut self, link: u32, id: u32) {
        let packet = &self.packets[id];
        let Packet { flow, bytes, .. } = *packet;
        let state = &self.flows[flow as usize];
        let what = match &state.sending {
            Sending::Open(_) => What::Datagram,
            Sending::Tcp(_) if packet.back => What::Acknowledgement(self.acks.get(packet.detail)),
            Sending::Tcp(_) => What::Segment {
                number: packet.segment(),
                is_marked: packet.is_marked(),
                takes_mark: state.takes_marks,
            },
        };
        let seen = Seen {
            at_ns: self.now.ns,
            link: link as usize,
            flow: flow as usize,
            bytes,
            is_compressed: packet.is_compressed(),
            what,
        };
        self.sightings.iter_mut().for_each(|all| all.push(Sighting::Packet(seen)));
    }
}
