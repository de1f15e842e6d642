//! The sending side of the link to a peer: frames of the port, and control messages.

use dwell_base::Instant;
use dwell_policy::{Bypass, Event, FrameUnit, PacketId, SendCause};
use dwell_wire::block::FRAGMENTS_MAX;
use dwell_wire::carried::carried_extra_len;
use dwell_wire::control::{CONTROL_BODY_MAX, Numbers};
use dwell_wire::header::{DATA_HEADER_LEN, RECORD_HEADER_LEN};
use dwell_wire::record::{
    RESENT_RECORD_LEN, block_record_len, fragment_record_len, packets_max, raw_record_len,
};
use dwell_wire::{self as wire, Block, BodyWriter, Carried, Control, Fragment, Full, Unit};

use super::classes::Form;
use super::contexts::{Item, number_frame};
use super::env::Env;
use super::flow_watch::FlowWatch;
use super::parts::{Part, Parts};
use super::peer::Peer;
use super::shares::shares;
use super::store::{Compressed, Onward, Store};

/// The longest record of a control message.
const CONTROL_RECORD_MAX: usize = RECORD_HEADER_LEN + CONTROL_BODY_MAX;

/// What waits for the link while it carries second copies takes it at most this part of a round trip.
const COPIED_RTT_PART: u64 = 16;

/// The parameters that the two ends of the link agreed on.
#[derive(Clone, Copy, Debug)]
struct OnLink {
    /// Datagrams with blocks are kept for retransmission.
    retransmits: bool,
    /// The peer carries on.
    forwards: bool,
}

pub(super) fn offer_link(peer: &mut Peer, now: Instant) {
    // Without a session there is nobody to send to; what came out of the compressor meanwhile waits.
    let is_free = peer.parts.is_empty() && peer.pacer.ready(now);
    if peer.handshake.current().is_some() && is_free {
        peer.port.handle(now, Event::LinkReady);
    } else {
        peer.port.handle(now, Event::LinkBusy);
    }
}

/// Sends a control record in a datagram of its own, ahead of what waits in the port.
pub(super) fn send_control(peer: &mut Peer, index: usize, env: &mut impl Env, control: &Control) {
    let now = env.now();
    if let Some(sent) =
        send_body(peer, index, env, now, Sending::beside(peer), |body| body.control(control))
    {
        peer.sent_control(sent.len);
    }
}

/// The same of several, as many as fit a datagram together.
pub(super) fn send_controls(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    controls: &[Control],
) {
    let now = env.now();
    let room = peer.units_bytes_max();
    for together in controls.chunks((room / CONTROL_RECORD_MAX).max(1)) {
        let sent = send_body(peer, index, env, now, Sending::beside(peer), |body| {
            together.iter().try_for_each(|control| body.control(control))
        });
        if let Some(sent) = sent {
            peer.sent_control(sent.len);
        }
    }
}

/// Sends a probe in a datagram that is padded to this length.
pub(super) fn send_padded(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    probe: &Control,
    datagram_bytes: u16,
) {
    let now = env.now();
    let body_bytes = usize::from(datagram_bytes).saturating_sub(peer.session_bytes() as usize);
    let sent = send_body(peer, index, env, now, Sending::beside(peer), |body| {
        body.control(probe)?;
        body.padding(body_bytes.saturating_sub(body.len()))
    });
    if let Some(sent) = sent {
        peer.sent_control(sent.len);
    }
}

/// Sends the frame of the port, cut into fragments if it is a unit that is larger than a
/// datagram. `scratch` has room for any record.
pub(super) fn send_frame(
    peer: &mut Peer,
    index: usize,
    (store, watch): (&mut Store, &mut FlowWatch),
    scratch: &mut [u8],
    env: &mut impl Env,
    now: Instant,
) {
    peer.spoke(now);
    peer.handshake.carried(now);
    if peer.handshake.session().is_none() {
        debug_assert!(false, "the link is offered only while there is a session");
        return;
    }
    let mut items = std::mem::take(&mut peer.frame_items);
    let split_before = peer.extra.split_bytes;
    let more = number_frame(peer, store, now, &mut items);
    if more > 0 {
        split(peer, 0, more);
    }
    send_units(peer, index, (store, &items), scratch, env, now);
    peer.frame_items = items;
    let split_bytes = peer.extra.split_bytes - split_before;
    let Peer { port, sojourn, deadlines, classes, contexts, config, leaves_raw, .. } = peer;
    let frame = port.frame();
    // Beside what passes contexts by, and where nothing is to be compressed (but for what was queued before), it says nothing of
    // histories.
    if !*leaves_raw && !contexts.outgoing.is_passed_by() {
        for unit in frame.units.iter().filter(|unit| unit.bypass == Some(Bypass::NoTime)) {
            let flow = store.treatment(unit.id).flow;
            contexts.flows.passed_raw(flow, u64::from(unit.original_bytes));
        }
    }
    if !classes.is_empty() || watch.is_on() {
        let extra_bytes = config.link_overhead.bytes;
        shares(frame, frame.link_bytes + split_bytes, |unit, share| {
            let class = store.class(share.id);
            classes.sent(class, (&share, Form::from(unit)), extra_bytes);
            watch.sent((now, index), store.treatment(share.id).flow, &share, extra_bytes);
        });
    }
    let units = frame.units.iter().map(|unit| (unit.id, unit.sojourn_ns));
    let followers = frame.followers.iter().map(|packet| (packet.id, packet.sojourn_ns));
    for (id, sojourn_ns) in units.chain(followers) {
        sojourn.record(sojourn_ns);
        deadlines.sent(store.treatment(id).class.map(usize::from), sojourn_ns);
        store.remove(id);
    }
}

/// For how long the link might have had the port's frame: as long as any of its packets waits, or, if
/// it goes because one can't be held any longer, since it could not.
fn waited_ns(peer: &Peer, store: &Store) -> u64 {
    let frame = peer.port.frame();
    let held_ns = |id| match frame.cause {
        SendCause::Timer => peer.deadlines.deadline_ns(store.treatment(id).class.map(usize::from)),
        SendCause::Ready | SendCause::Full => 0,
    };
    let waited = |unit: &FrameUnit| unit.sojourn_ns.saturating_sub(held_ns(unit.id));
    frame.units.iter().map(waited).max().unwrap_or(0)
}

/// Bytes of the record that a unit becomes.
fn unit_len(store: &Store, item: &Item, on_link: OnLink) -> usize {
    if let Some(len) = item.len(store) {
        return len;
    }
    let (bytes, compressed) = store.get(item.id);
    let Some(compressed) = compressed else { return raw_record_len(bytes.len()) };
    let onward = compressed.onward.filter(|_| on_link.forwards);
    let extra = onward.map_or(0, |onward| carried_extra_len(&onward.label));
    block_record_len(bytes.len()) + extra
}

fn write_unit(
    body: &mut BodyWriter<'_>,
    store: &Store,
    item: &Item,
    on_link: OnLink,
) -> Result<(), Full> {
    if let Some(record) = item.context_record(store) {
        return body.context(&record);
    }
    let (data, compressed) = store.get(item.id);
    let Some(p) = compressed.filter(|_| !item.is_original) else {
        return body.raw(item.packet(store));
    };
    let Compressed { codec, epoch, original_len, .. } = p;
    let unit = if p.is_block {
        let flags = Block::flags(p.is_columnar, on_link.retransmits);
        Unit::Block(Block { codec, flags, original_len, data })
    } else {
        Unit::Compressed(wire::Compressed { codec, epoch, original_len, data })
    };
    match (p.onward.filter(|_| on_link.forwards), &unit) {
        (Some(Onward { hop_limit, label }), _) => body.carried(&Carried { hop_limit, label, unit }),
        (None, Unit::Block(block)) => body.block(block),
        (None, Unit::Compressed(_)) => body.compressed(codec, epoch, original_len, data),
    }
}

/// Sends the units of the port's frame: in one datagram, unless they would be more packets than it
/// may hold, or leave no room for what marks it as sent again.
fn send_units(
    peer: &mut Peer,
    index: usize,
    (store, items): (&Store, &[Item]),
    scratch: &mut [u8],
    env: &mut impl Env,
    now: Instant,
) {
    let on_link = OnLink { retransmits: peer.retransmits(), forwards: peer.forwards() };
    let keeping = Keeping::of(peer, store, now);
    let mut room = peer.units_bytes_max();
    if let [item] = items
        && unit_len(store, item, on_link) > room
    {
        send_cut(peer, index, (store, item), (scratch, keeping), env, now);
        return;
    }
    if keeping != Keeping::No {
        room -= RESENT_RECORD_LEN;
    }
    let mut rest = items;
    while let Some(first) = rest.first() {
        if rest.len() < items.len() {
            split(peer, 1, 0);
        }
        let may_cut = store.is_block(first.id) || keeping == Keeping::Each;
        if unit_len(store, first, on_link) > room && may_cut {
            let parts = send_cut(peer, index, (store, first), (scratch, keeping), env, now);
            let headers = parts * fragment_record_len(0);
            split(peer, parts.saturating_sub(1), headers);
            rest = &rest[1..];
            continue;
        }
        let fitting = fitting(store, rest, (room, on_link), keeping == Keeping::Each);
        let (these, later) = rest.split_at(fitting);
        let mut unwritten = 0;
        let sending = Sending::of_frame(peer, store, (now, keeping.keeps(store, first)));
        let sent = send_body(peer, index, env, now, sending, |body| {
            for item in these {
                let written = write_unit(body, store, item, on_link);
                debug_assert!(written.is_ok(), "the core knows what a frame has room for");
                unwritten += u64::from(written.is_err());
            }
            Ok(())
        });
        peer.extra.unwritten += unwritten;
        let sent = sent.filter(|_| unwritten == 0);
        note_sent(peer, now, these, sent);
        rest = later;
    }
}

/// Which datagrams of a frame are kept for retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    No,
    All,
    /// Those with what must be sent once are not.
    Each,
}

impl Keeping {
    fn of(peer: &Peer, store: &Store, now: Instant) -> Self {
        // What passes contexts by is missed beside them as much as they are.
        let is_active = match peer.leaves_raw {
            // Nothing comes after what is on its way.
            true => peer.contexts.outgoing.has_in_flight(now),
            false => peer.contexts.is_active(now, peer.rtt_ns),
        };
        if peer.retransmits() && is_active && peer.sends_again_in_time() {
            return Self::Each;
        }
        if may_keep(peer, store) { Self::All } else { Self::No }
    }

    /// Returns true if the datagram that begins with this is kept.
    fn keeps(self, store: &Store, first: &Item) -> bool {
        match self {
            Self::No => false,
            Self::All => true,
            Self::Each => !store.treatment(first.id).once,
        }
    }
}

/// Notes where the records of contexts are, or that they are nowhere.
fn note_sent(peer: &mut Peer, now: Instant, items: &[Item], sent: Option<Sent>) {
    for position in items.iter().filter_map(|item| item.position) {
        match sent {
            Some(sent) => peer.contexts.outgoing.written(position, sent.number),
            None => peer.contexts.outgoing.unwritten(now, position),
        }
    }
}

/// Returns the number of units that fit into one datagram; the first always does.
fn fitting(
    store: &Store,
    items: &[Item],
    (room, on_link): (usize, OnLink),
    keeps_each: bool,
) -> usize {
    let (mut bytes, mut packets, mut fitting) = (0, 0, 1);
    let once = |item: &Item| store.treatment(item.id).once;
    for (at, item) in items.iter().enumerate() {
        bytes += unit_len(store, item, on_link);
        packets += item.packets;
        if at > 0 && (bytes > room || (keeps_each && once(item) != once(&items[0]))) {
            break;
        }
        if packets <= packets_max(bytes) {
            fitting = at + 1;
        }
    }
    fitting
}

/// Books datagrams that the port did not count as frames: their headers, and `more` bytes.
fn split(peer: &mut Peer, datagrams: usize, more: usize) {
    let link_bytes = datagrams as u64 * u64::from(peer.frame_bytes()) + more as u64;
    peer.extra.split_datagrams += datagrams as u64;
    peer.extra.split_bytes += link_bytes;
}

/// Sends a unit in parts; returns how many.
fn send_cut(
    peer: &mut Peer,
    index: usize,
    (store, item): (&Store, &Item),
    (scratch, keeping): (&mut [u8], Keeping),
    env: &mut impl Env,
    now: Instant,
) -> usize {
    let mut record = BodyWriter::new(scratch);
    let on_link = OnLink { retransmits: peer.retransmits(), forwards: peer.forwards() };
    let written = write_unit(&mut record, store, item, on_link);
    let len = record.len();
    let part_len = peer.part_bytes_max();
    let sending = Sending::of_frame(peer, store, (now, keeping.keeps(store, item)));
    let parts = scratch[..len].chunks(part_len);
    if written.is_err() || parts.len() > FRAGMENTS_MAX {
        // The path became narrower since it was compressed.
        peer.extra.unwritten += 1;
        note_sent(peer, now, std::slice::from_ref(item), None);
        return 0;
    }
    let last = (parts.len() - 1) as u8;
    let id = peer.parts.next_id();
    // Batches of contexts are no longer than what others wait for anyway.
    let may_wait = item.position.is_none() && peer.pacer.is_paced();
    for (part, data) in (0..=last).zip(parts) {
        let fragment = Fragment { id, index: part, last, data };
        if may_wait && !(peer.parts.is_empty() && peer.pacer.ready(now)) {
            let first = Part { fragment, keep: sending.keep, copy: sending.copy };
            peer.parts.push(&first, &scratch[..len], part_len);
            break;
        }
        let sent = send_body(peer, index, env, now, sending, |body| body.fragment(&fragment));
        note_sent(peer, now, std::slice::from_ref(item), sent);
    }
    usize::from(last) + 1
}

/// Sends what waits of blocks that have begun to leave, as the link takes it.
pub(super) fn send_parts(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    let empty = Parts::new(0);
    let mut parts = std::mem::replace(&mut peer.parts, empty);
    while peer.pacer.ready(now)
        && let Some(Part { fragment, keep, copy }) = parts.first()
    {
        // It has waited for nothing but the link.
        let sending = Sending { keep, copy, has_packets: true, waited_ns: u64::MAX };
        send_body(peer, index, env, now, sending, |body| body.fragment(&fragment));
        parts.remove_first();
    }
    peer.parts = parts;
}

/// Retransmits datagrams that the peer misses, before anything else is sent.
pub(super) fn retransmit(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    now: Instant,
    missing: &Numbers,
) {
    let mut gone = Numbers::default();
    for number in missing.iter() {
        if peer.to_retransmit.contains(number) {
            continue;
        }
        let low = number as u32;
        // A request that is repeated within a round trip is one loss; and its answer is on its way.
        let was_asked = peer.retransmit_buffer.is_on_its_way(now, low, peer.rtt_ns);
        if !was_asked {
            peer.contexts.asked();
        }
        let kept_bytes = peer.retransmit_buffer.bytes_of(low);
        if was_asked && kept_bytes.is_none() {
            continue;
        }
        // Others may wait for what will not come: the peer is notified at once if the link is open.
        if !peer.pacer.is_blocked() && kept_bytes.is_none() {
            gone.add(number);
            peer.contexts.outgoing.gone(now, number);
        } else {
            peer.to_retransmit.push(number, kept_bytes.unwrap_or(0));
        }
    }
    if gone.bits != 0 {
        send_control(peer, index, env, &Control::Gone(gone));
    }
    send_missing(peer, index, env, now);
}

/// Retransmits datagrams that the peer misses when the link has time for them as for any other
/// datagram; notifies it of those that it will not get.
pub(super) fn send_missing(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    let mut gone = Numbers::default();
    while !peer.pacer.is_blocked() {
        let Some(number) = peer.to_retransmit.first() else { break };
        let low = number as u32;
        if !peer.pacer.ready(now) && peer.retransmit_buffer.has(low) {
            break;
        }
        peer.to_retransmit.remove_first();
        let is_on_its_way = peer.retransmit_buffer.is_on_its_way(now, low, peer.rtt_ns);
        let Some(body) = peer.retransmit_buffer.retransmit(now, low) else {
            if is_on_its_way {
                continue;
            }
            peer.contexts.outgoing.gone(now, number);
            if !gone.add(number) {
                send_control(peer, index, env, &Control::Gone(gone));
                gone = Numbers::default();
                gone.add(number);
            }
            continue;
        };
        let body = body.to_vec();
        let sent = send_body(peer, index, env, now, Sending::beside(peer), |writer| {
            writer.resent(low)?;
            writer.records(&body)
        });
        if let Some(sent) = sent {
            let link_bytes = peer.link_bytes(sent.len);
            peer.extra.resent_datagrams += 1;
            peer.extra.resent_bytes += link_bytes;
        }
    }
    if gone.bits != 0 {
        send_control(peer, index, env, &Control::Gone(gone));
    }
}

/// Sends datagrams a second time, each right behind itself, while the link has little else to send.
pub(super) fn send_copies(peer: &mut Peer, index: usize, env: &mut impl Env, now: Instant) {
    if peer.copies.is_empty() {
        return;
    }
    peer.copies.expire(now);
    if peer.port.waiting_ns() > peer.rtt_ns.unwrap_or(0) / COPIED_RTT_PART {
        peer.copies.clear();
        return;
    }
    while !peer.pacer.is_blocked() && now >= peer.pacer.idle_at() {
        // The rate of a device of our own says nothing of the link beyond.
        let is_blind = !peer.pacer.is_paced();
        let Some(copy) = peer.copies.next(now, is_blind) else { break };
        let sent = send_body(peer, index, env, now, Sending::beside(peer), |writer| {
            writer.resent(copy.number as u32)?;
            writer.records(&copy.body)
        });
        if let Some(sent) = sent {
            let link_bytes = peer.link_bytes(sent.len);
            peer.extra.resent_datagrams += 1;
            peer.extra.copied_datagrams += 1;
            peer.extra.resent_bytes += link_bytes;
        }
    }
}

/// True if the port's frame is to be kept: there is a block in it, and no packet, in a block or
/// beside it, that must be sent only once; and what is in it would be missed: later batches need it, or nobody else
/// sends it again before.
fn may_keep(peer: &Peer, store: &Store) -> bool {
    let frame = peer.port.frame();
    let is_block = |id| store.is_block(id);
    let is_in_time = peer.sends_again_in_time();
    let is_missed = |id| {
        let is_needed = store.context(id).is_some_and(|place| place.alone.is_none());
        is_in_time || is_needed || !store.treatment(id).repairs
    };
    peer.retransmits()
        && frame.units.iter().map(|unit| unit.id).any(is_block)
        && packets_of(peer).any(is_missed)
        && !has_once(peer, store)
}

/// The packets of the port's frame, in blocks or beside them.
fn packets_of(peer: &Peer) -> impl Iterator<Item = PacketId> {
    let frame = peer.port.frame();
    let units = frame.units.iter().map(|unit| unit.id);
    units.chain(frame.followers.iter().map(|packet| packet.id))
}

/// Returns true if the port's frame has a packet that must be sent only once.
fn has_once(peer: &Peer, store: &Store) -> bool {
    packets_of(peer).any(|id| store.treatment(id).once)
}

/// How a datagram is sent.
#[derive(Clone, Copy, Debug)]
struct Sending {
    /// It may be retransmitted: a copy is kept.
    keep: bool,
    /// It may go a second time before anybody asks.
    copy: bool,
    /// It holds packets, so that the peer reports it.
    has_packets: bool,
    /// For how long the link might have had it already.
    waited_ns: u64,
}

impl Sending {
    /// What is beside the port's frames.
    fn beside(peer: &Peer) -> Self {
        let waited_ns = peer.late_by_ns_max();
        Self { keep: false, copy: false, has_packets: false, waited_ns }
    }

    /// A part of the port's frame, or all of it.
    fn of_frame(peer: &Peer, store: &Store, (now, keep): (Instant, bool)) -> Self {
        let copy = peer.is_copied(now) && !has_once(peer, store);
        Self { keep, copy, has_packets: true, waited_ns: waited_ns(peer, store) }
    }
}

/// A datagram that was sent: its length, and its number in the session.
#[derive(Clone, Copy, Debug)]
struct Sent {
    len: usize,
    number: u64,
}

/// Seals and commits a datagram with what `fill` writes, and returns what it is; none if there
/// is no session, or `fill` has nothing to send. The link's time is taken for just what goes.
fn send_body(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    now: Instant,
    sending: Sending,
    fill: impl FnOnce(&mut BodyWriter<'_>) -> Result<(), Full>,
) -> Option<Sent> {
    let room = peer.units_bytes_max();
    let (listens, header_bytes) = (peer.listens(), peer.link_bytes(0));
    let is_copied = sending.has_packets && peer.is_copied(now);
    let rate = peer.pacer.rate().filter(|_| is_copied);
    let Peer { handshake, retransmit_buffer, copies, rtt_ns, extra, path_mtu, tail, .. } = peer;
    let loses = peer.reports.loses_there(now);
    let session = handshake.session()?;
    let datagram = env.datagram(index);
    let mut body = BodyWriter::new(&mut datagram[DATA_HEADER_LEN..]);
    fill(&mut body).ok()?;
    let body_len = body.len();
    // Sealing is done in place: the copy is made before, under the number that comes next. Room for the
    // mark was left, unless the path has become narrower since.
    let link_bytes = header_bytes + body_len as u64;
    let has_room = body_len + RESENT_RECORD_LEN <= room;
    let is_kept = sending.keep && has_room;
    tail.sent(now, is_kept && loses);
    let number = session.next_sequence();
    let body = &datagram[DATA_HEADER_LEN..DATA_HEADER_LEN + body_len];
    if is_kept {
        retransmit_buffer.keep(now, session.next_sequence_low(), body, *rtt_ns);
    }
    let transmission_ns = rate.map_or(0, |rate| rate.transmission_ns(link_bytes));
    let is_copied = is_copied && copies.takes(now, transmission_ns);
    if sending.copy && has_room && is_copied {
        copies.keep(now, number, body);
    }
    let len = session.seal(datagram, body_len);
    extra.datagrams += 1;
    path_mtu.sent(now, len);
    let paced_bytes = peer.paced_bytes(len);
    let lost_ns = peer.pacer.sent(now, paced_bytes, sending.waited_ns);
    if listens {
        peer.bottleneck.sent(now, number, (header_bytes + len as u64, lost_ns));
        if sending.has_packets {
            peer.bottleneck.sent_packets(now, header_bytes + len as u64);
        }
    }
    if sending.has_packets {
        peer.reports.sent_packets(now, header_bytes + len as u64);
    }
    if !env.commit(index, len, peer.pacer.burst_bytes()) {
        peer.pacer.blocked(now);
    }
    Some(Sent { len, number })
}
