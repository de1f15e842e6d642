//! The pump: lets a peer's port compress and send what it can.

use dwell_base::Instant;
use dwell_drive::{World, drain};
use dwell_policy::method::Slowdown;
use dwell_policy::{Action, CpuLimit, DropReason, Event, Job, LinkState, PacketId, Select};

use super::Node;
use super::before::send_missing_before;
use super::compress::{Scratch, compress};
use super::env::Env;
use super::flow_watch::FlowWatch;
use super::link::{offer_link, send_copies, send_frame, send_missing, send_parts};
use super::peer::Peer;
use super::saturation::Saturation;
use super::store::Store;
use super::uplink::Want;

impl Node {
    /// Whoever drives the node had nothing to do between these two: what a link idled for meanwhile did
    /// not wait for the processor.
    pub fn slept(&mut self, from: Instant, until: Instant) {
        self.saturation.slept(from, until);
    }

    /// Lets a peer's port compress and send what it can.
    ///
    /// With a paced link a packet should be pumped before the next one arrives; without
    /// pacing, pumping after a batch lets its small packets share datagrams.
    pub fn pump(&mut self, env: &mut impl Env, index: usize) {
        self.encode_again(env, index);
        let Self {
            peers, store, scratch, block, saturation, processors, flow_watch: watch, ..
        } = self;
        let peer = &mut peers[index];
        if peer.pacer.found().is_some() {
            peer.forget_old_bottleneck(env.now());
        }
        peer.pacer.begin();
        if peer.owes_before() {
            let now = env.now();
            send_missing_before(peer, index, env, now);
        }
        if !peer.to_retransmit.is_empty() {
            let now = env.now();
            send_missing(peer, index, env, now);
        }
        if !peer.parts.is_empty() {
            let now = env.now();
            send_parts(peer, index, env, now);
        }
        let scratch = Scratch { out: scratch, block };
        let (link_first, now) = (offers_link_first(peer), env.now());
        let starved_ns = starved_ns(peer, saturation, now);
        let limits = [processors.limit(index), peer.config.saving.cpu_limit()];
        let cpu_limit = limits.into_iter().flatten().reduce(CpuLimit::least);
        let mut served = Served {
            peer,
            index,
            store,
            watch,
            scratch,
            env,
            link_first,
            starved_ns,
            cpu_limit,
            now,
        };
        drain(&mut served);
        let peer = &mut peers[index];
        saturation.compressed(std::mem::take(&mut peer.compressed_ns));
        note_work(peer, &mut processors.slowdown, env.now());
        let has_begun = peer.contexts.outgoing.take_begun();
        if peer.port.is_empty() && peer.parts.is_empty() {
            let now = env.now();
            send_copies(peer, index, env, now);
            peer.take_up_scheme();
            if !peer.pacer.is_blocked() {
                peer.pacer.idle(env.now());
            }
        }
        peer.held_until = peer.port.next_deadline();
        peer.port.handle(env.now(), Event::LinkBusy);
        let now = env.now();
        if self.uplink.is_due(now, index, || waits(peer, now)) {
            self.divide_uplink(now);
        }
        if has_begun {
            self.history_grew(now, index);
        }
    }

    /// Divides the link that all peers share.
    fn divide_uplink(&mut self, now: Instant) {
        let want = |peer: &Peer| Want {
            sent_bytes: peer.pacer.all_bytes(),
            is_waiting: waits(peer, now),
            free_at: peer.pacer.free_at(),
            own: peer.pacer.own_pace(),
        };
        self.uplink.divide(now, self.peers.iter().map(want));
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let lasting = self.uplink.lasting_share(index);
            peer.pacer.set_share(now, self.uplink.share(index), lasting);
        }
    }

    /// [`Node::pump`] for every peer.
    pub fn pump_all(&mut self, env: &mut impl Env) {
        self.handed.clear();
        for index in 0..self.peers.len() {
            self.pump(env, index);
        }
    }
}

/// True if something waits for the link to a peer, and could be sent if that were free: what is held back while the link is
/// ready waits for something else.
fn waits(peer: &Peer, now: Instant) -> bool {
    let can_be_sent = !peer.removed && peer.handshake.current().is_some();
    can_be_sent
        && !peer.pacer.ready(now)
        && (peer.port.can_send() || !peer.to_retransmit.is_empty() || !peer.parts.is_empty())
}

/// Without pacing, single packets that are not to be compressed are moved before the link is
/// offered: they came in one batch, and the small ones share datagrams.
fn offers_link_first(peer: &Peer) -> bool {
    let select = peer.port.config().scheme.select;
    peer.pacer.is_paced() || !matches!(select, Select::Nothing | Select::Each(_))
}

/// A peer while its port is drained, and all that this needs.
struct Served<'a, E> {
    peer: &'a mut Peer,
    index: usize,
    store: &'a mut Store,
    watch: &'a mut FlowWatch,
    scratch: Scratch<'a>,
    env: &'a mut E,
    /// True if the link is offered before each poll; otherwise only when the port has nothing else to do
    /// than to compress.
    link_first: bool,
    /// What the port is to learn of it, once.
    starved_ns: u64,
    cpu_limit: Option<CpuLimit>,
    /// The time of the latest poll.
    now: Instant,
}

impl<E: Env> Served<'_, E> {
    /// Offers the link to the port, behind what goes a second time.
    #[inline]
    fn offer(&mut self) {
        send_copies(self.peer, self.index, self.env, self.now);
        offer_link(self.peer, self.now);
    }

    /// Sends what is ready on a link that is not offered first: before the port compresses, which takes
    /// time, and when it asks for nothing more. While packets are dropped, more drops may come; they are
    /// for the next polls.
    fn send_ready(&mut self) {
        self.offer();
        while let Some(Action::Send) = self.peer.port.poll(self.now) {
            self.send();
            self.offer();
        }
        self.peer.port.handle(self.now, Event::LinkBusy);
    }
}

impl<E: Env> World for Served<'_, E> {
    #[inline]
    fn poll(&mut self) -> Option<Action> {
        let now = self.env.now();
        self.now = now;
        let starved_ns = std::mem::take(&mut self.starved_ns);
        let state = link_state(self.peer, now, (starved_ns, self.cpu_limit));
        self.peer.port.handle(now, Event::Link(state));
        if self.link_first {
            self.offer();
        }
        let action = self.peer.port.poll(now);
        if !self.link_first && matches!(action, None | Some(Action::Compress(_))) {
            self.send_ready();
        }
        action
    }

    #[inline]
    fn compress(&mut self, job: Job) {
        compress(self.peer, self.index, job, self.store, &mut self.scratch, self.env);
    }

    #[inline]
    fn send(&mut self) {
        let kept = (&mut *self.store, &mut *self.watch);
        send_frame(self.peer, self.index, kept, self.scratch.out, self.env, self.now);
    }

    #[inline]
    fn dropped(&mut self, id: PacketId, reason: DropReason) {
        self.peer.classes.dropped(self.store.class(id), reason);
        if self.watch.is_on() {
            self.watch.dropped(self.index, self.store.treatment(id).flow);
        }
        self.store.remove(id);
    }

    #[inline]
    fn marked(&mut self, id: PacketId) {
        self.store.mark(id);
    }
}

/// Returns what the core has to know of the link.
fn link_state(
    peer: &Peer,
    now: Instant,
    (starved_ns, cpu_limit): (u64, Option<CpuLimit>),
) -> LinkState {
    let pacer = &peer.pacer;
    // What is sent again, and the rest of what has begun to leave, goes before all that waits.
    let again_bytes = peer.to_retransmit.bytes().min(peer.retransmit_buffer.budget_bytes());
    let again_bytes = again_bytes + peer.parts.bytes();
    let again_bytes = again_bytes + peer.before.as_ref().map_or(0, |before| before.again_bytes());
    LinkState {
        rate: pacer.rate_to_compress_for(),
        burst_bytes: pacer.at_once_bytes(),
        ahead_bytes: pacer.ahead_bytes(now) + again_bytes,
        given_bytes: pacer.given_bytes(now) + again_bytes,
        takes_all: pacer.takes_all(),
        starved_ns,
        // What waits because the queue beyond is emptied is no reason for a connection to slow down.
        granted_ns: pacer.found().map_or(0, |found| found.held_back_ns),
        round_trip_ns: peer.repair.least_rtt_ns().unwrap_or(0),
        cpu_limit,
    }
}

/// Returns how long links have idled because this thread compresses, as far as the port does not know yet.
fn starved_ns(peer: &mut Peer, saturation: &mut Saturation, now: Instant) -> u64 {
    let idled_ns = peer.pacer.busy_since(saturation.busy_since(now));
    saturation.starved_ns(&mut peer.starved, idled_ns)
}

/// Notes how long batches took in contexts, and how long the processor worked at them.
pub(super) fn note_work(peer: &mut Peer, slowdown: &mut Slowdown, now: Instant) {
    let (cpu_ns, elapsed_ns) = peer.contexts.outgoing.take_worked_ns();
    if elapsed_ns > 0 {
        slowdown.worked(now, cpu_ns, elapsed_ns);
    }
}
