//! The session before the present one: what was lost of its end is asked for, and sent again, by that session itself
//! (`docs/wire.md` section 8.3).
//!
//! Contexts go on when keys are renewed. What they miss has its number in the session before, and so have requests for
//! it and answers. They go by that session as long as it may matter, a few seconds. That its last datagrams
//! are missing shows with a sign of life behind them.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_wire::control::Numbers;
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::sequence::REPLAY_WINDOW;
use dwell_wire::{BodyWriter, Control, DataHeader, Full, Record, Records, reconstruct_sequence};

use super::Node;
use super::env::Env;
use super::peer::Peer;
use super::reorder::{ReorderBuffer, Waits};
use super::retransmit::{Awaited, RetransmitBuffer};

/// What a session needs after its end is kept for so long: longer than a receiver waits for anything.
const KEEP_NS: u64 = 4 * SECOND_NS;
/// If nothing is heard by it for so many round trips, and so much longer, what is missing is given up: an earlier version
/// does not answer.
const SILENT_ROUND_TRIPS: u64 = 4;
const SILENT_NS: u64 = 50 * MILLI_NS;
/// The round trip assumed until one is measured.
const RTT_NS_DEFAULT: u64 = 400 * MILLI_NS;
/// So many signs of life stand behind a session's last datagram, ...
const MARKS: u8 = 3;
/// ... apart by a quarter of the round trip, within these.
const MARK_NS_MIN: u64 = 5 * MILLI_NS;
const MARK_NS_MAX: u64 = 100 * MILLI_NS;

/// What is yet to come, or to be sent again, of the session before.
#[derive(Debug)]
pub(crate) struct Before {
    until: Instant,
    /// When something came by it last.
    heard_at: Instant,
    /// What is missing of what came by it.
    came: ReorderBuffer,
    /// What was sent by it, and what the peer misses of that.
    sent: RetransmitBuffer,
    awaited: Awaited,
    /// Signs of life that are yet to be sent, and when.
    marks: u8,
    mark_at: Instant,
}

impl Before {
    /// The bytes that the link is to take before anything else.
    pub(super) fn again_bytes(&self) -> u64 {
        self.awaited.bytes().min(self.sent.budget_bytes())
    }

    /// When it is in vain to wait for what is missing.
    fn silent_at(&self, rtt_ns: Option<u64>) -> Instant {
        if !self.came.is_missing_any() {
            return Instant::FAR_FUTURE;
        }
        let rtt_ns = rtt_ns.unwrap_or(RTT_NS_DEFAULT);
        self.heard_at + (rtt_ns.saturating_mul(SILENT_ROUND_TRIPS) + SILENT_NS)
    }

    /// Returns the bytes that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.sent.bytes()
    }

    /// Takes what the node has for it.
    pub(super) fn set_share(&mut self, bytes: usize) {
        self.sent.set_share(bytes);
    }

    fn deadline(&self, waits: Waits) -> Instant {
        let mark_at = if self.marks > 0 { self.mark_at } else { Instant::FAR_FUTURE };
        let at = self.until.min(self.silent_at(waits.rtt_ns));
        at.min(self.came.deadline(waits)).min(mark_at)
    }
}

/// Returns true if a datagram is missing, and may yet come, that came before the one of this number in the present
/// session.
pub(super) fn is_missing(
    (reorder, before): (&ReorderBuffer, &Option<Box<Before>>),
    datagram: u64,
) -> bool {
    let is_missing = |before: &Before| before.came.is_missing_any();
    before.as_deref().is_some_and(is_missing) || reorder.is_missing_before(datagram)
}

impl Peer {
    /// A session begins: keeps what contexts need of the one before, if they go on.
    pub(super) fn keep_before(
        &mut self,
        now: Instant,
        (sent, awaited): (RetransmitBuffer, Awaited),
        mut came: ReorderBuffer,
    ) {
        if let Some(mut before) = self.before.take() {
            before.came.release();
            self.reorder.count(&mut before.came);
        }
        // Nobody else waits for what is missing, or would take it in its order.
        if !self.contexts.incoming.is_active() {
            came.release();
            self.reorder.count(&mut came);
            came = ReorderBuffer::default();
        }
        // With one tag for both a mark of the old one would be taken for the new one's latest, once in 256 times.
        let is_there = self.handshake.previous().is_some() && self.handshake.are_distinct();
        if self.contexts.goes_on() && is_there {
            let marks = if sent.is_empty() { 0 } else { MARKS };
            let until = now + KEEP_NS;
            let (heard_at, mark_at) = (now, now);
            let before = Before { until, heard_at, came, sent, awaited, marks, mark_at };
            self.before = Some(Box::new(before));
        }
    }

    /// See [`is_missing`].
    pub(super) fn is_missing(&self, datagram: u64) -> bool {
        is_missing((&self.reorder, &self.before), datagram)
    }

    /// Returns true if the peer waits for something of the session before.
    pub(super) fn owes_before(&self) -> bool {
        self.before.as_ref().is_some_and(|before| !before.awaited.is_empty())
    }

    /// When there is something to do about the session before.
    pub(super) fn before_at(&self) -> Instant {
        let deadline = |before: &Before| before.deadline(self.waits_before());
        self.before.as_deref().map_or(Instant::FAR_FUTURE, deadline)
    }

    /// Nothing is held for what is missing of it, but by contexts.
    fn waits_before(&self) -> Waits {
        Waits { order_wait_ns: 0, has_contexts: true, ..self.waits() }
    }
}

impl Node {
    /// An authentic datagram of the session before came. Returns true if it has the content of one that is missed, and that
    /// is older than the replay window knows.
    pub(super) fn came_before(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        (header, body): (DataHeader, &[u8]),
    ) -> bool {
        let peer = &mut self.peers[index];
        let waits = peer.waits_before();
        let Peer { before: Some(before), handshake, reorder, .. } = peer else { return false };
        let Some(session) = handshake.previous() else { return false };
        let highest = session.window().highest();
        let is_too_old = |number| highest.saturating_sub(number) >= REPLAY_WINDOW;
        let mut is_missed = false;
        let number = reconstruct_sequence(session.window().highest(), header.sequence_low);
        before.heard_at = now;
        before.came.pass(now, number, waits);
        for record in Records::new(body).map_while(Result::ok) {
            match record {
                Record::Resent { sequence_low } => {
                    let number = reconstruct_sequence(number, sequence_low);
                    let is_missing = before.came.resent(number, &[]).is_some();
                    is_missed |= is_missing && before.came.is_active() && is_too_old(number);
                }
                Record::Control(Control::Gone(numbers)) => {
                    numbers.iter().for_each(|number| before.came.gone(number));
                }
                Record::Control(Control::Missing(numbers)) => {
                    asked_before(&mut self.peers[index], index, env, now, &numbers);
                    return is_missed;
                }
                _ => {}
            }
        }
        reorder.count(&mut before.came);
        is_missed
    }

    /// Asks for what is missing of the session before, and ends it in time.
    pub(super) fn tend_before(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        let (rtt_ns, waits) = (peer.rtt_ns, peer.waits_before());
        let asks_twice = peer.asks_twice(now);
        let Peer { before: Some(before), reorder, .. } = peer else { return };
        if now >= before.until {
            before.came.release();
            reorder.count(&mut before.came);
            peer.before = None;
            return;
        }
        before.sent.expire(now, rtt_ns);
        if now >= before.silent_at(rtt_ns) {
            before.came.release();
            reorder.count(&mut before.came);
        }
        let mut asks = Vec::new();
        if now >= before.came.deadline(waits) {
            let waits = Waits { asks_twice, ..waits };
            asks.extend(std::iter::from_fn(|| before.came.ask(now, waits)));
            reorder.count(&mut before.came);
        }
        for numbers in asks {
            send_control_before(peer, index, env, now, &Control::Missing(numbers));
        }
        mark_end(peer, index, env, now);
    }
}

/// Sends a sign of life behind the last datagram of the session before, if it is time.
pub(super) fn mark_end(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    let rtt_ns = peer.rtt_ns.unwrap_or(0);
    let Some(before) = &mut peer.before else { return };
    if before.marks > 0 && now >= before.mark_at {
        before.marks -= 1;
        before.mark_at = now + (rtt_ns / 4).clamp(MARK_NS_MIN, MARK_NS_MAX);
        send_control_before(peer, index, env, now, &Control::KeepAlive);
    }
}

/// The peer misses datagrams of the session before.
fn asked_before(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    now: Instant,
    missing: &Numbers,
) {
    let rtt_ns = peer.rtt_ns;
    let Some(before) = &mut peer.before else { return };
    let mut gone = Numbers::default();
    for number in missing.iter() {
        let low = number as u32;
        match before.sent.bytes_of(low) {
            Some(bytes) => before.awaited.push(number, bytes),
            None if before.sent.is_on_its_way(now, low, rtt_ns) => {}
            None => _ = gone.add(number),
        }
    }
    if gone.bits != 0 {
        send_control_before(peer, index, env, now, &Control::Gone(gone));
    }
    send_missing_before(peer, index, env, now);
}

/// Retransmits datagrams of the session before, when the link has time for them as for any other datagram.
pub(super) fn send_missing_before(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    while !peer.pacer.is_blocked() && peer.pacer.ready(now) {
        let Some(before) = &mut peer.before else { return };
        let Some(number) = before.awaited.first() else { return };
        before.awaited.remove_first();
        let low = number as u32;
        // What was sent often enough meanwhile, the peer asks for again, and is answered then.
        let Some(body) = before.sent.retransmit(now, low).map(<[u8]>::to_vec) else { continue };
        let sent = send_before(peer, index, env, now, |writer| {
            writer.resent(low)?;
            writer.records(&body)
        });
        if let Some(len) = sent {
            let link_bytes = peer.link_bytes(len);
            peer.extra.resent_datagrams += 1;
            peer.extra.resent_bytes += link_bytes;
        }
    }
}

fn send_control_before(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    now: Instant,
    control: &Control,
) {
    if let Some(len) = send_before(peer, index, env, now, |body| body.control(control)) {
        peer.sent_control(len);
    }
}

/// Seals and commits a datagram of the session before. Returns its length; none if that session is over.
fn send_before(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    now: Instant,
    fill: impl FnOnce(&mut BodyWriter<'_>) -> Result<(), Full>,
) -> Option<usize> {
    let session = peer.handshake.previous()?;
    let datagram = env.datagram(index);
    let mut body = BodyWriter::new(&mut datagram[DATA_HEADER_LEN..]);
    fill(&mut body).ok()?;
    let body_len = body.len();
    let len = session.seal(datagram, body_len);
    peer.extra.datagrams += 1;
    let (paced_bytes, late_ns) = (peer.paced_bytes(len), peer.late_by_ns_max());
    peer.pacer.sent(now, paced_bytes, late_ns);
    if !env.commit(index, len, peer.pacer.burst_bytes()) {
        peer.pacer.blocked(now);
    }
    Some(len)
}
