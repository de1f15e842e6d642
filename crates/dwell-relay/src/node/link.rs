//! What goes on the link to a peer: frames of the port, and control messages.

use dwell_base::Instant;
use dwell_policy::PacketId;
use dwell_wire::block::FRAGMENTS_MAX;
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::record::fragment_record_len;
use dwell_wire::{Block, BodyWriter, Control, Fragment, Full};

use super::env::Env;
use super::peer::Peer;
use super::store::Store;

pub(super) fn offer_link(peer: &mut Peer, now: Instant) {
    // Without a session there is nobody to send to; what came out of the press meanwhile waits.
    if peer.handshake.current().is_some() && peer.pacer.ready(now) {
        peer.port.link_ready();
    } else {
        peer.port.link_busy();
    }
}

/// Sends a control record in a datagram of its own, ahead of what waits in the port.
pub(super) fn send_control(peer: &mut Peer, index: usize, env: &mut impl Env, control: &Control) {
    let now = env.now();
    if let Some(len) = send_body(peer, index, env, now, |body| body.control(control)) {
        peer.sent_control(now, len);
    }
}

/// Sends the frame of the port, cut into fragments if it is a unit that is larger than a
/// datagram. `scratch` has room for any record.
pub(super) fn send_frame(
    peer: &mut Peer,
    index: usize,
    store: &mut Store,
    scratch: &mut [u8],
    env: &mut impl Env,
    now: Instant,
) {
    peer.spoke(now);
    if peer.handshake.session().is_none() {
        debug_assert!(false, "the link is offered only while there is a session");
        return;
    }
    peer.pacer.sent(now, peer.port.frame().link_bytes);
    let kept = peer.keeps();
    let units = std::mem::take(&mut peer.frame_units);
    let units = peer.copy_units(units);
    let room = peer.units_bytes_max();
    match units[..] {
        [id] if unit_len(store, id) > room => send_cut(peer, index, (store, id), scratch, env, now),
        _ => {
            let mut unwritten = 0;
            send_body(peer, index, env, now, |body| {
                for &id in &units {
                    let written = write_unit(body, store, id, kept);
                    debug_assert!(written.is_ok(), "the core knows what a frame has room for");
                    unwritten += u64::from(written.is_err());
                }
                Ok(())
            });
            peer.extra.unwritten += unwritten;
        }
    }
    peer.frame_units = units;
    let frame = peer.port.frame();
    for unit in &frame.units {
        store.remove(unit.id);
        peer.sojourn.record(unit.sojourn_ns);
    }
    for packet in &frame.followers {
        store.remove(packet.id);
        peer.sojourn.record(packet.sojourn_ns);
    }
}

/// Bytes of the record that a unit becomes.
fn unit_len(store: &Store, id: PacketId) -> usize {
    let (bytes, pressed) = store.get(id);
    let header = if pressed.is_some() { dwell_wire::block::BLOCK_HEADER_LEN } else { 0 };
    dwell_wire::header::RECORD_HEADER_LEN + header + bytes.len()
}

fn write_unit(
    body: &mut BodyWriter<'_>,
    store: &Store,
    id: PacketId,
    kept: bool,
) -> Result<(), Full> {
    let (bytes, pressed) = store.get(id);
    match pressed {
        None => body.raw(bytes),
        Some(p) if p.is_block => body.block(&Block {
            codec: p.codec,
            flags: Block::flags(false, kept),
            original_len: p.original_len,
            data: bytes,
        }),
        Some(p) => body.pressed(p.codec, p.epoch, p.original_len, bytes),
    }
}

fn send_cut(
    peer: &mut Peer,
    index: usize,
    (store, id): (&Store, PacketId),
    scratch: &mut [u8],
    env: &mut impl Env,
    now: Instant,
) {
    let mut record = BodyWriter::new(scratch);
    let written = write_unit(&mut record, store, id, peer.keeps());
    let len = record.len();
    let part_len = peer.units_bytes_max().saturating_sub(fragment_record_len(0)).max(1);
    let parts = scratch[..len].chunks(part_len);
    if written.is_err() || parts.len() > FRAGMENTS_MAX {
        debug_assert!(false, "blocks are not larger than 64 datagrams");
        peer.extra.unwritten += 1;
        return;
    }
    let last = (parts.len() - 1) as u8;
    peer.fragment_id = peer.fragment_id.wrapping_add(1);
    let id = peer.fragment_id;
    for (part, data) in (0..=last).zip(parts) {
        let fragment = Fragment { id, index: part, last, data };
        send_body(peer, index, env, now, |body| body.fragment(&fragment));
    }
}

/// Seals and commits a datagram with what `fill` writes, and returns its length; none if there
/// is no session, or `fill` has nothing to send.
fn send_body(
    peer: &mut Peer,
    index: usize,
    env: &mut impl Env,
    now: Instant,
    fill: impl FnOnce(&mut BodyWriter<'_>) -> Result<(), Full>,
) -> Option<usize> {
    let session = peer.handshake.session()?;
    let datagram = env.datagram(index);
    let mut body = BodyWriter::new(&mut datagram[DATA_HEADER_LEN..]);
    fill(&mut body).ok()?;
    let body_len = body.len();
    let len = session.seal(datagram, body_len);
    if !env.commit(index, len, peer.pacer.burst_bytes()) {
        peer.pacer.blocked(now);
    }
    Some(len)
}
