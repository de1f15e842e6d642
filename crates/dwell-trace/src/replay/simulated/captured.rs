//! Captures as scenarios name them: flows send their packets, and ports really compress these.

use std::sync::Arc;

use dwell_base::time::SECOND_NS;
use dwell_policy::Gather;
use dwell_sim::plan::{
    CompressionModel, Plan, Queue, RealCodec, RecordedPacket, Recording, Traffic,
};
use dwell_sim::scenario::Selection;
use dwell_wire::PacketInfo;

use super::super::compress::{CodecCompressor, Cost, Dictionaries, GivenCost};
use super::super::cut::cut;
use super::super::input::{Input, Spelled};
use super::super::merge::{Fault, Merge, MergeStep};
use super::super::{FLOW_SEED, arriving};
use super::{CaptureContents, RealPort, Recorded};
use crate::capture::Capture;
use crate::contexts::CONTEXTS_MAX;
use crate::datagram::Datagram;
use crate::sides::{Ends, Learner, Sides};

/// Returns the packets of a capture as traces of scenarios have them: lines of seconds since the first and bytes. One that
/// is earlier than the one before it counts as simultaneous, as in replays. None if the bytes are no capture.
///
/// # Errors
/// If it is damaged, or has no packet.
pub(super) fn times_and_sizes(bytes: &[u8]) -> Option<Result<String, String>> {
    let capture = Capture::open(bytes).ok()?;
    let mut text = String::new();
    let read = each(capture, |at_ns, input| {
        let (seconds, ns) = (at_ns / SECOND_NS, at_ns % SECOND_NS);
        let bytes = input.wire_len.unwrap_or(input.packet.len() as u32);
        text.push_str(&format!("{seconds}.{ns:09},{bytes}\n"));
    });
    Some(match read {
        Ok(()) if text.is_empty() => Err("the capture has no IP packet in it".to_owned()),
        read => read.map(|()| text),
    })
}

/// Returns packets of a capture with their contents, at their times since its first. What the capture lacks of a packet is
/// noise, as in replays.
///
/// # Errors
/// If it is no capture, or damaged.
pub(super) fn recording(bytes: &[u8], selection: &Selection) -> Result<Recording, String> {
    let open = || Capture::open(bytes).map_err(|error| error.to_string());
    let sides = selection.direction.map(|_| open().map(sides)).transpose()?;
    let (mut spelled, mut piece, mut packets) = (Spelled::default(), Vec::new(), Vec::new());
    each(open()?, |at_ns, input| {
        let Some(packet) = spelled.whole(input) else { return };
        let Ok(info) = PacketInfo::parse(packet, FLOW_SEED) else { return };
        let direction = sides.as_ref().and_then(|it| it.direction(&input.ends, &info).index());
        if selection.direction.is_some() && direction != selection.direction {
            return;
        }
        let packet = &packet[..info.total_len];
        let is_long = packet.len() > selection.mtu_bytes;
        let whole_headers: Option<Arc<[u8]>> =
            packet.get(..usize::from(info.header_len)).filter(|_| is_long).map(Into::into);
        cut(packet, &info, selection.mtu_bytes, &mut piece, |piece| {
            let whole_headers = whole_headers.clone();
            packets.push(RecordedPacket { at_ns, bytes: piece.into(), whole_headers });
        });
    })?;
    Ok(Recording::new(packets))
}

/// Gives each IP packet to `take`, with its time since the first.
fn each(capture: Capture<&[u8]>, mut take: impl FnMut(u64, Input<'_>)) -> Result<(), String> {
    let mut merge = Merge::new([capture]);
    let (mut first_ns, mut last_ns) = (None, 0);
    loop {
        match merge.step() {
            MergeStep::End => break,
            MergeStep::Skipped => {}
            MergeStep::Packet(packet) => {
                let at_ns = packet.at_ns.unwrap_or(last_ns).max(last_ns);
                last_ns = at_ns;
                take(at_ns - *first_ns.get_or_insert(at_ns), packet);
            }
        }
    }
    match merge.faults().first() {
        Some((_, Fault::Broken(trouble))) => Err(format!(
            "the capture is damaged: {trouble}. A scenario takes whole captures only; `dwell trace replay` takes what is before it"
        )),
        Some((_, Fault::Closed(why))) => Err(why.clone()),
        None => Ok(()),
    }
}

/// Finds the sides of a capture's link.
fn sides(mut capture: Capture<&[u8]>) -> Sides {
    let mut learner = Learner::default();
    while let Some(packet) = capture.next_packet() {
        if let Ok(found) = Datagram::find(&packet, 0) {
            learner.observe(&Ends::of(&packet), &found.info);
        }
    }
    learner.finish()
}

/// Returns the contents of a plan's packets, if it has ports that compress them really: for
/// [`World::with_contents`](dwell_sim::World::with_contents).
///
/// # Errors
/// If a port's codec does not exist.
pub fn contents(plan: &Plan) -> Result<Option<CaptureContents>, String> {
    if !plan.needs_contents() {
        return Ok(None);
    }
    let mut contents = CaptureContents::default();
    for (link, it) in plan.links.iter().enumerate() {
        let Queue::Port(port) = &it.queue else { continue };
        let CompressionModel::Real(codec) = &port.compress else { continue };
        let scheme = port.config.scheme;
        let chooses = scheme.has_contexts() && scheme.gather() == Gather::HostPair;
        contents = contents.with_port(RealPort {
            link,
            gather: scheme.gather(),
            compress: Box::new(compressor(codec)?),
            columnar: true,
            chosen_contexts: if chooses { CONTEXTS_MAX } else { 0 },
            waits_ns_max: Vec::new(),
        });
    }
    // Copies of a flow send the same packets.
    let mut known: Vec<(&Recording, u64, Arc<Recorded>)> = Vec::new();
    for (number, flow) in plan.flows.iter().enumerate() {
        let Traffic::Recorded(recording) = &flow.traffic else { continue };
        let is_same = |it: &&(&Recording, u64, Arc<Recorded>)| {
            Arc::ptr_eq(it.0.times(), recording.times()) && it.1 == flow.max_wait_ns
        };
        let recorded = match known.iter().find(is_same) {
            Some((.., recorded)) => Arc::clone(recorded),
            None => {
                let recorded = Arc::new(recorded(recording, flow.max_wait_ns));
                known.push((recording, flow.max_wait_ns, Arc::clone(&recorded)));
                recorded
            }
        };
        contents = contents.with_flow(number, recorded);
    }
    Ok(Some(contents))
}

fn compressor(codec: &RealCodec) -> Result<CodecCompressor, String> {
    let name = &codec.codec;
    let spec = name.parse().map_err(|error| format!("[compress], `codec`: {error}"))?;
    let cost = GivenCost { unit_ns: codec.unit_ns, byte_ps: codec.byte_ps };
    CodecCompressor::new(spec, &Dictionaries::default(), Cost::Given(cost))
        .map_err(|error| format!("[compress], `codec`: {error}"))
}

fn recorded(recording: &Recording, max_wait_ns: u64) -> Recorded {
    let mut out = Recorded { max_wait_ns: Some(max_wait_ns), ..Recorded::default() };
    for RecordedPacket { at_ns, bytes, whole_headers } in recording.packets() {
        let info = match whole_headers {
            Some(headers) => PacketInfo::parse_head(headers, FLOW_SEED),
            None => PacketInfo::parse(bytes, FLOW_SEED),
        };
        // It was read from its capture as an IP packet.
        if let Ok(info) = info {
            out.push(*at_ns, arriving(bytes, &info, &[]));
        }
    }
    out
}
