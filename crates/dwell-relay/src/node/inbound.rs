//! From the network to the records of a datagram.

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_report::status::PeerState;
use dwell_wire::control::Numbers;
use dwell_wire::header::HELLO_NONCE_LEN;
use dwell_wire::record::packets_max;
use dwell_wire::{
    CloseReason, Control, DataHeader, Datagram, Record, Records, reconstruct_sequence,
};

use super::Node;
use super::allowance::Allowance;
use super::contexts::Origin;
use super::diagnosis::{Foreign, Parting};
use super::env::{Destination, Env};
use super::link::{retransmit, send_control};
use super::path_mtu::PathMtu;
use super::peer::Peer;
use super::reorder::Waits;
use super::turns::{DATAGRAM_NS, Waiting};
use crate::config::Security;
use crate::trust::{From, HELLO_LEN_MAX, HelloOutcome, OpenError, Opened};

/// Hellos may grow (docs/wire.md, section 4): bodies up to this length are read.
const HELLO_READ_MAX: usize = 512;

/// The requests in a datagram's records, beside delivery.
#[derive(Default)]
struct Asked {
    reply: Option<Control>,
    missing: Option<Numbers>,
    close: Option<CloseReason>,
    /// A probe of the path was answered.
    path_probe: Option<u32>,
}

/// Which records of a datagram are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    /// Those that concern the peers themselves.
    Control,
    /// Those that hold packets.
    Packets,
    /// The same, of a datagram that waited for its peer's turn.
    Rest,
}

/// From where on records are read, and how many packets they may hold.
#[derive(Debug)]
struct Span {
    from: usize,
    packets_left: Allowance,
    is_present: bool,
    /// The number under which it was first sent, if it is of the present session.
    number: u64,
}

impl Node {
    /// A datagram came in. `peer` is known if it came through the socket that is connected to
    /// that peer's endpoint. The driver calls [`Node::pump_handed`] when it has read what there was.
    pub fn datagram(
        &mut self,
        env: &mut impl Env,
        peer: Option<usize>,
        source: SocketAddr,
        datagram: &mut [u8],
    ) {
        self.take_datagram(env, peer, source, datagram);
        self.pump_paced(env);
    }

    fn take_datagram(
        &mut self,
        env: &mut impl Env,
        peer: Option<usize>,
        source: SocketAddr,
        datagram: &mut [u8],
    ) {
        let now = env.now();
        let Ok(parsed) = Datagram::parse(datagram) else {
            self.drops.malformed_datagram += 1;
            return;
        };
        match parsed {
            Datagram::Hello { sealed, nonce, body } => {
                let at = datagram.len() - body.len();
                self.hello(env, now, peer, source, (sealed, nonce), &mut datagram[at..]);
            }
            Datagram::Initiation(it) => self.initiation(env, now, source, &it),
            Datagram::Response(it) => self.response(env, now, source, &it),
            Datagram::Cookie(it) => self.cookie(now, &it),
            Datagram::Data { header, .. } => {
                let by_address = || self.peers.iter().position(|p| p.endpoint == Some(source));
                let Some(index) = peer.or_else(by_address) else {
                    self.data_from_elsewhere(env, now, source, header, datagram);
                    return;
                };
                // Two behind one address, or one that came to where another was: only keys distinguish them.
                let others = |peer: &Peer| !peer.removed && peer.handshake.may_open(header);
                let peer = &self.peers[index];
                if peer.handshake.is_keyed()
                    && !peer.handshake.may_open(header)
                    && self.peers.iter().any(others)
                {
                    self.data_from_elsewhere(env, now, source, header, datagram);
                    return;
                }
                let peer = &mut self.peers[index];
                let len = datagram.len() as u64;
                peer.turn.charge(DATAGRAM_NS);
                peer.turn.charge_bytes(len);
                match peer.handshake.open(now, header, datagram) {
                    Ok(opened) => {
                        if let Some(hello) = &opened.began {
                            self.installed(env, now, index, source, hello);
                        }
                        if let Some(clock) = opened.clock {
                            self.compare_clocks(env, index, clock);
                        }
                        let peer = &mut self.peers[index];
                        peer.rx.datagrams += 1;
                        peer.rx.bytes += len;
                        self.opened(env, now, index, header, &opened);
                    }
                    Err(OpenError::Replayed) => peer.rx.replayed += 1,
                    Err(OpenError::Session | OpenError::Seal) => {
                        peer.rx.auth_failed += 1;
                        peer.handshake.hurry();
                        repeat_final(env, now, index, peer);
                    }
                }
            }
        }
    }

    /// An authentic datagram.
    pub(super) fn opened(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        header: DataHeader,
        opened: &Opened<'_>,
    ) {
        let left_ns = self.peers[index].turn.left_ns();
        self.take_records(env, now, index, header, opened);
        let elapsed_ns = env.now().since_ns(now);
        self.peers[index].turn.took(left_ns, elapsed_ns);
    }

    fn take_records(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        header: DataHeader,
        opened: &Opened<'_>,
    ) {
        self.peers[index].received(now);
        if self.peers[index].state != PeerState::Up {
            self.came_up(env, now, index);
        }
        let peer = &mut self.peers[index];
        let body = &*opened.body;
        // Only those of the present session have an order among each other.
        let session = peer.handshake.current().filter(|_| opened.current);
        let highest = session.map(|session| session.window().highest());
        let number = highest.map(|highest| reconstruct_sequence(highest, header.sequence_low));
        if let Some(number) = number {
            peer.reports.came(now, env.came_at().unwrap_or(now), number);
        }
        let resent = match Records::new(body).next() {
            Some(Ok(Record::Resent { sequence_low })) => Some(sequence_low),
            _ => None,
        };
        let Some(number) = number else {
            // A number that is missed may be older than the window knows: over a long path many follow within a round trip.
            let mut is_new = resent.is_none_or(|low| peer.handshake.accept_resent(header, low));
            if opened.previous {
                repeat_late_final(env, now, index, peer);
                is_new |= self.came_before(env, now, index, (header, body));
            }
            let part = if is_new { Part::All } else { Part::Control };
            self.records(env, now, index, (body, None), part);
            return;
        };
        peer.contexts.incoming.came(now);
        let waits = peer.waits();
        let mut first_sent = number;
        let at_once = match resent {
            Some(sequence_low) => {
                peer.reorder.pass(now, number, waits);
                let retransmitted = reconstruct_sequence(number, sequence_low);
                first_sent = retransmitted;
                let placed = peer.reorder.resent(retransmitted, body);
                if placed.is_some() {
                    // The datagram that was believed lost may only be late.
                    if peer.handshake.accept_resent(header, sequence_low) {
                        peer.reports.on_retransmission(retransmitted);
                    }
                }
                placed.unwrap_or(false)
            }
            None => peer.reorder.take(now, number, body, waits),
        };
        // What others wait for must not wait itself.
        let part = if at_once { Part::All } else { Part::Control };
        self.records(env, now, index, (body, Some(first_sent)), part);
        self.hand_on(env, now, index);
    }

    /// Asks for datagrams that are missing, and gives up waiting for some.
    pub(super) fn chase_missing(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        let waits = peer.waits();
        if now < peer.reorder.deadline(waits) {
            return;
        }
        let waits = Waits { asks_twice: peer.asks_twice(now), ..waits };
        while let Some(numbers) = peer.reorder.ask(now, waits) {
            send_control(peer, index, env, &Control::Missing(numbers));
        }
        self.hand_on(env, now, index);
    }

    /// Hands on what waited for a datagram that came, or is not waited for any more.
    fn hand_on(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        while let Some((number, body)) = self.peers[index].reorder.ready() {
            self.records(env, now, index, (&body, Some(number)), Part::Packets);
        }
    }

    /// A new session takes the place of the present one: what came by that is handed on. What is missing of it
    /// may yet come.
    pub(super) fn stop_waiting(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        self.peers[index].reorder.stop_waiting();
        self.hand_on(env, now, index);
    }

    /// The present session ends: what came by it is handed on.
    pub(super) fn release(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        self.peers[index].reorder.release();
        self.hand_on(env, now, index);
    }

    /// The records of an authentic datagram; it is of the present session or not. Packets wait if
    /// restoring them is not to be paid for in this turn.
    fn records(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        (body, number): (&[u8], Option<u64>),
        part: Part,
    ) {
        let (is_present, number) = (number.is_some(), number.unwrap_or(0));
        let packets_left = Allowance::new(packets_max(body.len()));
        let span = Span { from: 0, packets_left, is_present, number };
        let Some(rest) = self.restore(env, now, index, (body, span), part) else { return };
        let Span { from, packets_left, is_present, number } = rest;
        let peer = &mut self.peers[index];
        let waiting = Waiting { body: body.to_vec(), from, packets_left, is_present, number };
        let kept = peer.turn.defer(waiting);
        peer.rx.deferred_datagrams += u64::from(kept);
        peer.rx.over_budget += u64::from(!kept);
    }

    /// Goes on with a datagram that waited; what is left of it must wait for another turn.
    pub(super) fn restore_rest(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        waiting: Waiting,
    ) -> Option<Waiting> {
        let Waiting { body, from, packets_left, is_present, number } = waiting;
        let span = Span { from, packets_left, is_present, number };
        let rest = self.restore(env, now, index, (&body, span), Part::Rest)?;
        let Span { from, packets_left, is_present, number } = rest;
        Some(Waiting { body, from, packets_left, is_present, number })
    }

    /// Reads records, and restores their packets while the peer's turn lasts. Returns where the
    /// packets begin that must wait.
    fn restore(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
        (body, span): (&[u8], Span),
        mut part: Part,
    ) -> Option<Span> {
        let mut asked = Asked::default();
        let mut rest = None;
        let Span { from, packets_left, is_present, number } = span;
        let origin = Origin { datagram: number, is_present };
        let peer = &mut self.peers[index];
        peer.turn.packets_left = packets_left;
        let data_records = peer.data_records;
        // What came later must not pass what waits already.
        let must_wait = part != Part::Rest && peer.turn.is_behind();
        let mut records = Records::new(&body[from..]);
        loop {
            let from = body.len() - records.rest_len();
            let Some(record) = records.next() else { break };
            let peer = &mut self.peers[index];
            let Ok(record) = record else {
                peer.rx.malformed += u64::from(matches!(part, Part::All | Part::Control));
                break;
            };
            if is_present && record.is_kept() {
                peer.reorder.activate(now);
            }
            let is_packets = record.has_packets();
            if is_packets == (part == Part::Control) && part != Part::All {
                continue;
            }
            if is_packets && (must_wait || !peer.turn.may_restore()) {
                let packets_left = std::mem::take(&mut peer.turn.packets_left);
                rest = Some(Span { from, packets_left, is_present, number });
                // What the peers say to each other does not wait.
                match part {
                    Part::All => part = Part::Control,
                    _ => break,
                }
                continue;
            }
            peer.records += 1;
            match record {
                Record::Control(control) => {
                    note_control(peer, (now, is_present), &control, &mut asked);
                }
                Record::Resent { .. } => {}
                Record::Skipped { .. } => peer.rx.skipped_records += 1,
                _ => self.take_in(env, (now, origin), index, &record),
            }
        }
        self.answer(env, (now, is_present), index, (asked, data_records));
        rest
    }

    /// Does what the records of a datagram ask for.
    fn answer(
        &mut self,
        env: &mut impl Env,
        (now, is_present): (Instant, bool),
        index: usize,
        (asked, data_records): (Asked, u64),
    ) {
        let peer = &mut self.peers[index];
        if peer.data_records > data_records {
            peer.handshake.carried(now);
        }
        if let Some(reply) = asked.reply {
            send_control(peer, index, env, &reply);
        }
        if let Some(missing) = asked.missing {
            retransmit(peer, index, env, now, &missing);
        }
        if let Some(id) = asked.path_probe {
            self.path_answered(env, now, index, id);
        }
        // A word of the session before may come late; it does not end this one.
        if let Some(reason) = asked.close.filter(|_| is_present) {
            self.give_up(env, index, Parting::Closed(reason));
        }
    }

    fn hello(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        peer: Option<usize>,
        source: SocketAddr,
        (sealed, nonce): (bool, [u8; HELLO_NONCE_LEN]),
        body: &mut [u8],
    ) {
        let mut answer = [0; HELLO_LEN_MAX];
        let mut copy = [0; HELLO_READ_MAX];
        let Some(copy) = copy.get_mut(..body.len()) else {
            self.drops.malformed_datagram += 1;
            return;
        };
        let by_address = self.peers.iter().position(|p| p.endpoint == Some(source));
        let first = peer.or(by_address);
        for index in first.into_iter().chain(0..self.peers.len()) {
            if !self.may_speak_from(index, source, first) {
                continue;
            }
            // Opening destroys the body, and the next key needs it.
            copy.copy_from_slice(body);
            let peer = &mut self.peers[index];
            let from = match peer.endpoint == Some(source) {
                true => From::Peer,
                false => From::Elsewhere(source.ip()),
            };
            let (outcome, len) =
                peer.handshake.hello(now, from, (sealed, nonce), copy, &mut answer);
            let (hello, installed) = match outcome {
                HelloOutcome::Rejected => continue,
                HelloOutcome::Known(hello) => (hello, false),
                HelloOutcome::Installed(hello) => (hello, true),
            };
            // The socket to the peer leads to where it was; it is moved only after this.
            let at_home = peer.endpoint == Some(source);
            if installed {
                self.installed(env, now, index, source, &hello);
            }
            let peer = &mut self.peers[index];
            if len > 0 {
                if !installed {
                    peer.diagnosis.answered(now);
                }
                if at_home {
                    env.hello(Destination::Peer(index), &answer[..len]);
                    peer.sent_hello(now, len);
                } else {
                    // Not by the peer's link: anybody can ask for it.
                    env.hello(Destination::Address(source), &answer[..len]);
                }
            }
            self.review_if_due(env, now, index);
            return;
        }
        self.drops.unknown_key += 1;
        if let Some(index) = first {
            let foreign = match (&self.peers[index].config.security, sealed) {
                (Security::Psk(_), true) => Foreign::OtherPsk,
                (Security::None, false) => return, // it is malformed
                (_, true) => Foreign::OtherSecurity("psk"),
                (_, false) => Foreign::OtherSecurity("none"),
            };
            self.saw_foreign(now, source, foreign);
        }
    }

    /// A key identifies the sender, at any address. A peer without one is known by its address
    /// only, unless it has none and is the only such peer.
    fn may_speak_from(&self, index: usize, source: SocketAddr, first: Option<usize>) -> bool {
        let peer = &self.peers[index];
        if peer.removed {
            return false;
        }
        let open = |p: &Peer| p.config.security == Security::None && p.config.endpoint.is_none();
        match peer.config.security {
            Security::Keys { .. } => false, // it sends no such hellos
            Security::Psk(_) => true,
            Security::None if peer.endpoint == Some(source) => true,
            Security::None => {
                first.is_none() && open(peer) && self.peers.iter().filter(|p| open(p)).count() == 1
            }
        }
    }
}

fn repeat_final(env: &mut impl Env, now: Instant, index: usize, peer: &mut Peer) {
    let mut out = [0; HELLO_LEN_MAX];
    if let Some(len) = peer.handshake.repeat_final(now, &mut out) {
        env.hello(Destination::Peer(index), &out[..len]);
        peer.sent_hello(now, len);
    }
}

/// The peer may not know that the present session has begun.
pub(super) fn repeat_late_final(env: &mut impl Env, now: Instant, index: usize, peer: &mut Peer) {
    let mut out = [0; HELLO_LEN_MAX];
    if let Some(len) = peer.handshake.repeat_late_final(now, &mut out) {
        env.hello(Destination::Peer(index), &out[..len]);
        peer.sent_hello(now, len);
    }
}

fn note_control(
    peer: &mut Peer,
    (now, is_present): (Instant, bool),
    control: &Control,
    asked: &mut Asked,
) {
    match *control {
        Control::KeepAlive => {}
        Control::Probe { sender_time_ns, id, report_every_ms, arrivals_max } => {
            let receiver_time_ns = now.as_ns();
            asked.reply = Some(Control::ProbeReply { sender_time_ns, id, receiver_time_ns });
            if is_present {
                peer.reports.wanted(report_every_ms, arrivals_max);
            }
        }
        Control::ProbeReply { id, .. } if PathMtu::is_own(id) => asked.path_probe = Some(id),
        Control::ProbeReply { sender_time_ns, receiver_time_ns, .. } => {
            peer.answered(now, Instant::from_ns(sender_time_ns), receiver_time_ns);
        }
        // One on the session before counts otherwise, and its numbers are others.
        Control::Report(report) if is_present => peer.on_report(now, &report),
        Control::Missing(numbers) if is_present => asked.missing = Some(numbers),
        Control::Gone(numbers) if is_present => {
            numbers.iter().for_each(|number| peer.reorder.gone(number));
        }
        Control::ContextReport(report) if is_present => {
            peer.contexts.outgoing.report(now, &report);
        }
        Control::ContextReport(_) => {}
        Control::Arrivals(arrivals) if is_present => peer.on_arrivals(now, &arrivals),
        Control::Report(_) | Control::Missing(_) | Control::Gone(_) | Control::Arrivals(_) => {}
        Control::Close { reason } => asked.close = Some(reason),
        Control::Unknown { .. } => peer.rx.skipped_records += 1,
    }
}
