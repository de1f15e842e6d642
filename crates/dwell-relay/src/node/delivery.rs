//! The delivery of packets at a peer that is up: what its reports say, and what is refused here.

use std::net::IpAddr;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::status::{PeerState, Problem};
use dwell_wire::Control;

use super::Node;
use super::env::Env;
use super::link::{send_control, send_padded};
use super::problems::{Finding, Problems};

/// The length of the window that is assessed.
const WINDOW_NS: u64 = 10 * SECOND_NS;
/// An assessment needs this many datagrams with packets that left, or packets that were refused.
const DATAGRAMS_MIN: u64 = 20;
const REFUSED_MIN: u64 = 5;

/// The counts at the window's start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    since: Option<Instant>,
    frames: u64,
    got: u64,
    refused: u64,
    /// The source of the latest packet that was refused.
    source: Option<IpAddr>,
}

impl Delivery {
    /// A packet from this address was refused.
    #[inline]
    pub(crate) fn not_allowed(&mut self, source: IpAddr) {
        self.source = Some(source);
    }

    /// The time at which a problem that was found is assessed again: nothing else may happen by then.
    pub(crate) fn deadline(&self, problems: &Problems) -> Instant {
        let is_any = [Problem::NotDelivered, Problem::NotAllowed]
            .into_iter()
            .any(|problem| problems.has(problem));
        let since = self.since.filter(|_| is_any);
        since.map_or(Instant::FAR_FUTURE, |since| since + WINDOW_NS)
    }
}

impl Node {
    /// Assesses the delivery of the last seconds' packets, to and from a peer.
    pub(super) fn watch_delivery(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        if peer.delivery.since.is_some_and(|since| now < since + WINDOW_NS) {
            return;
        }
        let is_up = peer.state == PeerState::Up;
        let before = peer.delivery;
        let frames = peer.port.accounts().frames;
        let (got, refused) = (peer.reports.path().got, peer.rx.not_allowed);
        peer.delivery = Delivery { since: Some(now), frames, got, refused, ..before };
        let Some(since) = before.since else { return };
        let seconds = now.since_ns(since) / SECOND_NS;
        let received_lately = peer.last_received_at.is_some_and(|at| at > since);
        let (frames, refused) = (frames - before.frames, refused - before.refused);
        if got > before.got || !is_up {
            self.clear_problem(env, Some(index), Problem::NotDelivered);
        } else if received_lately && frames >= DATAGRAMS_MIN {
            self.note_problem(env, Some(index), not_delivered(frames, seconds));
        }
        if let Some(source) = before.source.filter(|_| refused >= REFUSED_MIN) {
            let finding = not_allowed(source, refused, seconds);
            self.note_problem(env, Some(index), finding);
        } else {
            self.clear_problem(env, Some(index), Problem::NotAllowed);
        }
    }

    /// Sends the probes of the path that are due.
    pub(super) fn probe_path(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        if !peer.probes_path() || now < peer.path_mtu.deadline() {
            return;
        }
        let before = (peer.path_mtu.limit(), peer.path_mtu.is_searching());
        let mut path_mtu = std::mem::take(&mut peer.path_mtu);
        let round = path_mtu.poll(now, |bytes| peer.pace(bytes));
        peer.path_mtu = path_mtu;
        if let Some(round) = round {
            let probe = |id| Control::Probe {
                sender_time_ns: now.as_ns(),
                id,
                report_every_ms: peer.reports.wish_ms(),
                arrivals_max: peer.reports.wish_arrivals(),
            };
            let (long, short) = (probe(round.long_id), probe(round.short_id));
            // In this order: a short datagram behind a long one may share a system call with it (GSO),
            // and be dropped with it as one packet by a filter of this machine or a virtual link.
            send_control(peer, index, env, &short);
            send_padded(peer, index, env, &long, round.long_bytes);
        }
        self.path_learned(env, index, before);
    }

    /// A probe of the path was answered.
    pub(super) fn path_answered(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        id: u32,
    ) {
        let path = &mut self.peers[index].path_mtu;
        let before = (path.limit(), path.is_searching());
        path.answered(now, id);
        self.path_learned(env, index, before);
    }

    fn path_learned(&mut self, env: &mut impl Env, index: usize, before: (Option<u16>, bool)) {
        let peer = &mut self.peers[index];
        let path = &peer.path_mtu;
        if (path.limit(), path.is_searching()) == before {
            return;
        }
        let Some(passes) = path.limit() else {
            peer.path_changed();
            self.clear_problem(env, Some(index), Problem::PathMtu);
            return;
        };
        let (ceiling, is_searching) = (path.ceiling(), path.is_searching());
        peer.path_changed();
        let ip_bytes = u32::from(passes) + peer.udp_bytes();
        let inside = peer.packet_max();
        let finding = narrow_path((ceiling, passes, is_searching), ip_bytes, inside);
        self.note_problem(env, Some(index), finding);
    }
}

fn narrow_path(
    (ceiling, passes, is_searching): (u16, u16, bool),
    ip_bytes: u32,
    inside: u16,
) -> Finding {
    let for_now = if is_searching { "For now, until it is known what passes" } else { "So" };
    Finding {
        problem: Problem::PathMtu,
        why: format!(
            "Datagrams of {ceiling} bytes do not arrive there, though short ones do: something on \
             the path drops long packets, and the ICMP messages that would say so. {for_now}, \
             datagrams of at most {passes} bytes are sent, and packets of at most {inside} bytes go \
             through the tunnel."
        ),
        remedy: format!(
            "Let ICMP \"fragmentation needed\" and \"packet too big\" pass on the path; or give the \
             outgoing interface, or the route to the peer, an MTU of {ip_bytes}."
        ),
    }
}

fn not_delivered(frames: u64, seconds: u64) -> Finding {
    Finding {
        problem: Problem::NotDelivered,
        why: format!(
            "{frames} datagrams with packets were sent in {seconds} s, and the peer reports none of \
             them, though it answers."
        ),
        remedy:
            "Look for a firewall or a rate limit on the path from here to there that drops UDP \
                 by length or amount."
                .to_owned(),
    }
}

fn not_allowed(source: IpAddr, packets: u64, seconds: u64) -> Finding {
    Finding {
        problem: Problem::NotAllowed,
        why: format!(
            "{packets} packets from it were refused in {seconds} s, since their source ({source}, \
             for one) is not in its prefixes."
        ),
        remedy: "Add the network of that address to the peer's prefixes here, or stop the other \
                 end from sending for it."
            .to_owned(),
    }
}
