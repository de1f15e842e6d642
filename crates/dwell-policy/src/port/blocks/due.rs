//! Which packets have time to be compressed: the rule of [`Select::Waiting`].
//!
//! [`Select::Waiting`]: crate::Select::Waiting

use dwell_base::{Instant, Rate};

use super::gather::{REACH_UNITS, Room};
use super::queue::{NONE, Node, Queue, State};
use super::{Blocks, Rule, TELLING_BYTES_MIN, unit_bytes};
use crate::account::Bypass;
use crate::port::common::Common;
use crate::scheme::Gather;
use crate::waiting_time::backlog_needed_bytes;

/// The answer of [`Blocks::ask`]: whether packets have time to be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// They have, and are the `members` of the next block.
    Time,
    /// They would have it with this many bytes more ahead of them.
    Missing(u64),
    /// It is a small packet without company: it is exempt from now on.
    TooSmall,
}

impl Blocks {
    /// Gathers what waits with the packet that an idle link may take, if compressing it lets it
    /// leave the link earlier even so: Eq. (2) of Shimamura et al. with W = 0.
    pub(super) fn gains_at_once(&mut self, common: &mut Common, now: Instant, at: u32) -> bool {
        let Rule::Waiting { room, .. } = self.rule else { return false };
        let Some(rate) = common.config.rate else { return false };
        let is_eligible = !self.is_compressing && self.queue.node(at).state == State::Raw;
        is_eligible && self.ask(common, now, (at, 0), (room, rate)) == Asked::Time
    }

    /// Gathers what waits with the first packet that the link is about to get to and that has
    /// time to be compressed. Those before it leave as they are: one without time must not keep
    /// others from it that wait longer, or nothing would ever be learned.
    pub(super) fn gather_due(
        &mut self,
        common: &mut Common,
        now: Instant,
        room: Room,
        lead_ns: u64,
    ) {
        let Some(rate) = common.config.rate else { return };
        let frame_bytes = u64::from(common.config.frame.units_bytes_max).max(1);
        let lead_bytes = rate.bytes_in_ns(lead_ns).max(frame_bytes) + common.link.burst_bytes;
        let mut place = Place::head(&self.queue);
        loop {
            // Whatever needs time has to be asked earlier by this.
            let until_bytes = lead_bytes.saturating_add(self.needed_bytes);
            if !place.find_raw(&self.queue, until_bytes, |node| unit_bytes(common, node)) {
                return;
            }
            match self.ask(common, now, (place.at, place.ahead_bytes), (room, rate)) {
                Asked::Time => return,
                Asked::TooSmall => (),
                // Blocks behind may be smaller and need less, so not all the way.
                Asked::Missing(bytes) => {
                    let step_bytes = frame_bytes.max(bytes / 2);
                    place.skip(&self.queue, step_bytes, |node| unit_bytes(common, node));
                }
            }
        }
    }

    /// True if nothing of the packet's context was compressed behind it: the order of compression is
    /// the order of sending.
    fn is_last_of_context(&self, first: u32) -> bool {
        let context = self.queue.node(first).context;
        let behind = self.queue.iter_from(first).take(REACH_UNITS).map(|at| self.queue.node(at));
        !behind.into_iter().any(|it| it.state == State::Compressed && it.context == context)
    }

    /// Gathers what waits with `first`, which has `ahead_bytes` ahead of it, if there is time to
    /// compress it: Eq. (2) of Shimamura et al., for the whole block.
    fn ask(
        &mut self,
        common: &mut Common,
        now: Instant,
        (first, ahead_bytes): (u32, u64),
        (room, rate): (Room, Rate),
    ) -> Asked {
        if common.config.scheme.has_contexts() && !self.is_last_of_context(first) {
            return Asked::Missing(0);
        }
        let has_cpu = common.cpu_share.allows(now);
        let Self { queue, members, gatherer, .. } = self;
        let bytes = gatherer.gather_waiting(queue, first, room, members);
        let node = *queue.node(first);
        if members.len() == 1 && bytes < common.config.compress_bytes_min {
            // It found no company, and the link is here.
            queue.set_state(first, State::Exempt(Bypass::TooSmall));
            members.clear();
            return Asked::TooSmall;
        }
        let key = node.learned_as();
        let estimate = common.estimate(key.0, key.1, bytes);
        let backlog_bytes = common.wait_bytes(ahead_bytes);
        let missing_bytes = match backlog_needed_bytes(bytes, estimate, rate) {
            Some(needed_bytes) if has_cpu => {
                self.needed_bytes = needed_bytes;
                needed_bytes.saturating_sub(backlog_bytes)
            }
            _ => u64::MAX,
        };
        // Results that would say nothing are not worth finding out.
        let is_telling = self.gather == Gather::Packet || u64::from(bytes) >= TELLING_BYTES_MIN;
        if missing_bytes == 0 || (is_telling && common.explore(now, key)) {
            return Asked::Time;
        }
        self.members.clear();
        Asked::Missing(missing_bytes)
    }
}

/// A place in the queue.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The unit there.
    at: u32,
    /// The bytes of the units before it.
    ahead_bytes: u64,
    units_left: usize,
}

impl Place {
    /// The head of the queue; units behind [`REACH_UNITS`] are not examined from there.
    fn head(queue: &Queue) -> Self {
        Self { at: queue.head(), ahead_bytes: 0, units_left: REACH_UNITS }
    }

    /// Goes on to the first packet that may be compressed; false if there is none with less than
    /// `until_bytes` before it.
    fn find_raw(
        &mut self,
        queue: &Queue,
        until_bytes: u64,
        unit_bytes: impl Fn(&Node) -> u64,
    ) -> bool {
        while self.at != NONE && self.units_left > 0 && self.ahead_bytes < until_bytes {
            if queue.node(self.at).state == State::Raw {
                return true;
            }
            self.pass(queue, &unit_bytes);
        }
        false
    }

    /// Goes on by one unit at least, and until `bytes` more are before it.
    fn skip(&mut self, queue: &Queue, bytes: u64, unit_bytes: impl Fn(&Node) -> u64) {
        let until_bytes = self.ahead_bytes.saturating_add(bytes);
        loop {
            self.pass(queue, &unit_bytes);
            if self.at == NONE || self.units_left == 0 || self.ahead_bytes >= until_bytes {
                return;
            }
        }
    }

    fn pass(&mut self, queue: &Queue, unit_bytes: impl Fn(&Node) -> u64) {
        self.ahead_bytes += unit_bytes(queue.node(self.at));
        self.at = queue.next(self.at);
        self.units_left -= 1;
    }
}
