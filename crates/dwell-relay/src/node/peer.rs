//! One peer of a node: its port, its sessions, its accounts.

mod cost;
mod tail;
mod timing;

use std::net::SocketAddr;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_codec::{CodecId, supported_bitmap};
use dwell_drive::Driven;
use dwell_policy::{
    ClassKey, ConfigError, Estimates, Event, LearnedConfig, PortConfig, Queue, Reference, Scheme,
    Select,
};
use dwell_report::Histogram;
use dwell_report::status::{Count, PeerReport, PeerState, RecentLoss, RxStatus};
use dwell_wire::block::FRAGMENTS_MAX;
use dwell_wire::record::carried_record_len;
use dwell_wire::{Arrivals, Carried, ContextOffer, Hello, Report, Unit};

use super::before::Before;
use super::bottleneck::{Bottleneck, LinkReport};
use super::classes::Classes;
use super::clocks::Changes;
use super::contexts::{Contexts, Item, Limits, Path};
use super::copies::Copies;
use super::deadlines::Deadlines;
use super::delivery::Delivery;
use super::diagnosis::Diagnosis;
use super::pacer::{Pacer, Pacing};
use super::parts::Parts;
use super::path_mtu::{Pace, PathMtu};
use super::problems::Problems;
use super::reassembly::Reassemblies;
use super::reorder::ReorderBuffer;
use super::repair::Repair;
use super::reports::Reports;
use super::retransmit::{Awaited, RetransmitBuffer};
use super::saturation::Seen;
use super::turns::Turn;
use crate::config::{ClassConfig, PeerConfig, RateConfig, Retransmit, batch_bytes_max};
use crate::trust::{Handshake, Offer, RandomSource};
use tail::Tail;
use timing::FIRST_PROBES;
pub use timing::Patience;

/// The datagram length assumed for a path of which nothing is known yet: an Ethernet's 1500
/// bytes, over IPv6.
pub(crate) const DATAGRAM_MAX_DEFAULT: u16 = 1452;
/// What is missing is asked for twice if no more is lost than this part of a million: sent twice, it takes as much
/// of the link again.
const TWICE_LOSS_PPM_MAX: u64 = 120_000;
/// A few are no measure of the path.
const TWICE_LOSSES_MAX: u64 = 2;
/// Packets that wait under an old scheme may leave for this long before they are dropped.
const OLD_SCHEME_NS: u64 = 2 * SECOND_NS;

/// Packets of classes that must not be compressed come to the port with this as their source: a
/// protocol number that is reserved, on every port's list of exceptions.
pub(crate) const NEVER_COMPRESSED: ClassKey = ClassKey::new(255, 0);

/// Counters beside those of the port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) control_datagrams: u64,
    pub(crate) control_bytes: u64,
    pub(crate) too_big: u64,
    pub(crate) unconnected: u64,
    pub(crate) unwritten: u64,
    pub(crate) resent_datagrams: u64,
    pub(crate) resent_bytes: u64,
    /// Of these, the datagrams that nobody asked for.
    pub(crate) copied_datagrams: u64,
    /// Datagrams beyond those that the port counted as frames, and what they cost on the link.
    pub(crate) split_datagrams: u64,
    pub(crate) split_bytes: u64,
    /// Packets that other peers sent compressed, and that went into the port unopened.
    pub(crate) forwarded_compressed: Count,
    /// All that were sent in sessions, whatever was in them.
    pub(crate) datagrams: u64,
}

/// What a new session says of the peer.
pub(crate) struct Connected {
    /// It is another than in the session before: restarted, or with other memory for histories.
    pub(crate) is_another: bool,
    /// It can't decode what we compress with.
    pub(crate) is_codec_refused: bool,
}

pub(crate) struct Peer {
    /// Unlike an index, never used again.
    pub(crate) generation: u64,
    pub(crate) config: PeerConfig,
    pub(crate) endpoint: Option<SocketAddr>,
    /// When it was last found to be elsewhere.
    pub(super) moved_at: Option<Instant>,
    pub(crate) port: Driven,
    pub(crate) pacer: Pacer,
    /// The state of the path beyond the next hop.
    pub(crate) bottleneck: Bottleneck,
    pub(crate) handshake: Handshake,
    pub(crate) state: PeerState,
    /// Why it is not up.
    pub(super) diagnosis: Diagnosis,
    pub(super) problems: Problems,
    pub(super) clock_changes: Changes,
    pub(super) delivery: Delivery,
    /// The longest datagram that passes, if it is shorter than the kernel and the peer allow.
    pub(super) path_mtu: PathMtu,
    pub(crate) removed: bool,
    /// The longest datagram that the path takes, and that the peer takes.
    path_datagram_max: u16,
    peer_datagram_max: u16,
    /// The peer's hello at the start of the session.
    pub(super) hello: Option<Hello>,
    /// The port goes on with another scheme than the configured one until it is empty; since
    /// when, once that was noted.
    old_scheme: Option<Option<Instant>>,
    pub(crate) deadlines: Deadlines,
    /// Accounts by class.
    pub(crate) classes: Classes,
    /// When held-back packets go at the latest, if the link waits for that.
    pub(crate) held_until: Option<Instant>,
    /// How long links starved, as far as the core knows, and for how long this thread has compressed since.
    pub(crate) starved: Seen,
    pub(crate) compressed_ns: u64,
    /// Compressing would cost more than it saves: all goes raw, and nothing is to be spent on finding out what could be
    /// compressed with what.
    pub(super) leaves_raw: bool,
    /// The records of the frame that is being sent; storage that is used again.
    pub(crate) frame_items: Vec<Item>,
    /// What waits of records that were cut.
    pub(crate) parts: Parts,
    pub(crate) reassembly: Reassemblies,
    pub(crate) contexts: Contexts,
    /// This node forwards what the peer sends compressed.
    transit: bool,
    /// Datagrams that were sent and may be retransmitted.
    pub(crate) retransmit_buffer: RetransmitBuffer,
    pub(crate) repair: Repair,
    /// Those that may go a second time before anybody asks.
    pub(crate) copies: Copies,
    /// Those of them that the peer misses and the link has not taken yet.
    pub(crate) to_retransmit: Awaited,
    /// What is yet to come, or to be sent again, of the session before.
    pub(super) before: Option<Box<Before>>,
    /// The last datagram, if it may be missed without anybody noticing.
    pub(crate) tail: Tail,
    pub(crate) reorder: ReorderBuffer,
    pub(crate) rx: RxStatus,
    /// The allowed cost of restoring the peer's packets, and those that wait for it.
    pub(crate) turn: Turn,
    pub(crate) extra: Extra,
    pub(crate) reported: Option<PeerReport>,
    pub(crate) sojourn: Histogram,
    pub(crate) rtt_ns: Option<u64>,
    pub(crate) last_received_at: Option<Instant>,
    /// The time of the first datagram sent since something was last received from the peer.
    unanswered_since: Option<Instant>,
    spoke_at: Instant,
    probed_at: Instant,
    /// Probes that are yet sent to measure the round trip for the first time, though nobody speaks.
    first_probes: u8,
    /// When the latest of them was sent.
    pub(crate) first_sent_at: Option<Instant>,
    pub(crate) reports: Reports,
    pub(crate) records: u64,
    /// Records that carried packets: only they are worth a report, or two idle peers would
    /// report each other's reports for ever.
    pub(crate) data_records: u64,
    /// The port gathers no longer batches than models can have.
    pub(crate) has_short_batches: bool,
}

impl Peer {
    pub(crate) fn new(
        generation: u64,
        mut config: PeerConfig,
        classes: &[ClassConfig],
        endpoint: Option<SocketAddr>,
        mut random: RandomSource,
    ) -> Result<Self, ConfigError> {
        // A restarted node must not go on with names that it had before.
        let mut fragment_id = [0; 4];
        random(&mut fragment_id);
        let mut incarnation = [0; 8];
        random(&mut incarnation);
        config.exceptions.sort_unstable();
        let mut contexts = Contexts::new(Limits::of(&config), u64::from_be_bytes(incarnation));
        contexts.set_dictionary(config.dictionary.clone());
        let offer = offer(false, contexts.offer());
        let handshake = Handshake::new(&config.security, offer, random);
        let mut peer = Self {
            generation,
            endpoint,
            moved_at: None,
            port: Driven::new(PortConfig::default())?,
            pacer: Pacer::new(pacing(&config)),
            bottleneck: Bottleneck::default(),
            handshake,
            state: PeerState::Connecting,
            diagnosis: Diagnosis::default(),
            problems: Problems::default(),
            clock_changes: Changes::default(),
            delivery: Delivery::default(),
            path_mtu: PathMtu::default(),
            removed: false,
            path_datagram_max: DATAGRAM_MAX_DEFAULT,
            peer_datagram_max: u16::MAX,
            hello: None,
            old_scheme: None,
            deadlines: Deadlines::default(),
            classes: Classes::default(),
            held_until: None,
            starved: Seen::default(),
            leaves_raw: false,
            compressed_ns: 0,
            frame_items: Vec::new(),
            contexts,
            transit: false,
            parts: Parts::new(u32::from_be_bytes(fragment_id)),
            reassembly: Reassemblies::default(),
            retransmit_buffer: RetransmitBuffer::default(),
            repair: Repair::default(),
            copies: Copies::default(),
            tail: Tail::default(),
            to_retransmit: Awaited::default(),
            before: None,
            reorder: ReorderBuffer::default(),
            rx: RxStatus::default(),
            turn: Turn::default(),
            extra: Extra::default(),
            reported: None,
            sojourn: Histogram::new(),
            rtt_ns: None,
            last_received_at: None,
            unanswered_since: None,
            spoke_at: Instant::ZERO,
            probed_at: Instant::ZERO,
            first_probes: FIRST_PROBES,
            first_sent_at: None,
            reports: Reports::default(),
            records: 0,
            data_records: 0,
            has_short_batches: false,
            config,
        };
        peer.listen_for_bottleneck();
        peer.deadlines.configure(classes);
        peer.classes.configure(classes);
        peer.refresh_deadlines();
        peer.configure_port()?;
        peer.port.handle(Instant::ZERO, Event::LinkBusy);
        Ok(peer)
    }

    /// Takes a new configuration; what waits, the session and what was learned stay.
    pub(crate) fn reconfigure(
        &mut self,
        mut config: PeerConfig,
        classes: &[ClassConfig],
    ) -> Result<(), ConfigError> {
        config.exceptions.sort_unstable();
        let other_codec =
            (config.codec, config.model()) != (self.config.codec, self.config.model());
        self.pacer.set_pacing(pacing(&config));
        self.config = config;
        self.contexts.set_limits(Limits::of(&self.config));
        self.contexts.set_history(self.config.history);
        self.contexts.set_dictionary(self.config.dictionary.clone());
        self.contexts.keep_alone(self.config.picks_alone());
        self.set_transit(self.transit);
        self.limit_retransmissions();
        self.listen_for_bottleneck();
        self.deadlines.configure(classes);
        self.classes.configure(classes);
        self.refresh_deadlines();
        self.configure_port()?;
        if other_codec {
            self.port.forget_estimates();
        }
        Ok(())
    }

    fn configure_port(&mut self) -> Result<(), ConfigError> {
        self.has_short_batches = self.wants_short_batches();
        let cut_bytes_max = self.cut_bytes_max();
        let config = &self.config;
        let mut scheme = if self.codec_accepted() { config.scheme } else { Scheme::none() };
        if self.is_to_chunk() {
            // Filling datagrams needs no codec.
            let timers = self.deadlines.timers();
            scheme = timers.map_or(config.scheme, |timers| config.scheme.with_class_timers(timers));
            if config.chunk_compress && self.codec_accepted() {
                scheme = scheme.with_compressed_frames();
            }
        }
        if !self.contexts.outgoing.is_possible() {
            scheme.method.reference = Reference::Nothing;
        }
        if let Select::Waiting { bytes_max, .. } | Select::Slack { bytes_max, .. } =
            &mut scheme.select
        {
            // Compressing what may not fit through the path would be for nothing.
            *bytes_max = (*bytes_max).min(u32::try_from(cut_bytes_max).unwrap_or(u32::MAX));
            *bytes_max = (*bytes_max).min(batch_bytes_max(self.has_short_batches));
        }
        let mut exceptions = config.exceptions.clone();
        exceptions.push(NEVER_COMPRESSED);
        let mut learned =
            LearnedConfig { poor_ratio: config.poor_ratio, ..LearnedConfig::default() };
        if let Some(kind) = config.model_kind {
            learned.first_cost_ps_per_byte = kind.assumed_ps_per_byte();
        }
        let wanted = PortConfig {
            scheme,
            rate: self.pacer.rate(),
            limit: config.queue,
            frame: self.frame_cost(),
            estimates: Estimates::Learned(learned),
            compress_bytes_min: config.compress_bytes_min,
            exceptions,
            objective: config.saving.objective(&scheme),
            jobs_max: self.port.config().jobs_max,
        };
        match self.port.configure(wanted.clone()) {
            // What waits leaves as it was queued.
            Err(ConfigError::Occupied) => {
                self.old_scheme = self.old_scheme.or(Some(None));
                let scheme = self.port.config().scheme;
                let objective = config.saving.objective(&scheme);
                self.port.configure(PortConfig { scheme, objective, ..wanted })
            }
            done => {
                self.old_scheme = None;
                done
            }
        }
    }

    /// The port is empty: the configured scheme can begin, if it could not before.
    pub(crate) fn take_up_scheme(&mut self) {
        if self.old_scheme.is_some() {
            self.refresh_port();
        }
    }

    /// True if the port does not become empty, so that the configured scheme could not begin.
    pub(crate) fn gives_up_scheme(&mut self, now: Instant) -> bool {
        let Some(since) = &mut self.old_scheme else { return false };
        now >= *since.get_or_insert(now) + OLD_SCHEME_NS
    }

    /// Returns true if packets are held back to fill datagrams, now; after a reload the port goes
    /// on with the scheme before until it is empty.
    pub(crate) fn is_chunked(&self) -> bool {
        self.port.config().scheme.fills_frames()
    }

    /// Returns true if the configured scheme holds packets back.
    fn is_to_chunk(&self) -> bool {
        self.config.scheme.fills_frames()
    }

    /// Adapts deadlines to another delay of the path to the peer, or of the link.
    fn refresh_deadlines(&mut self) -> bool {
        let frame_bytes = u64::from(self.frame_bytes()) + self.units_bytes_max() as u64;
        let frame_ns = self.pacer.rate().map_or(0, |rate| rate.transmission_ns(frame_bytes));
        let changed = self.deadlines.refresh(self.config.one_way_delay_ns, frame_ns);
        let deadline_min_ns = self.deadlines.deadline_min_ns().unwrap_or(u64::MAX);
        self.pacer.set_exact(self.is_to_chunk().then_some(deadline_min_ns));
        changed
    }

    /// Returns true if the peer's reports are used to find a bottleneck beyond the next hop.
    pub(crate) fn listens(&self) -> bool {
        self.config.rate == RateConfig::Auto
    }

    fn listen_for_bottleneck(&mut self) {
        self.reports.want(self.listens());
        if !self.listens() {
            self.bottleneck.forget();
            self.pacer.set_found(None);
        }
    }

    /// The peer reported on the present session.
    pub(crate) fn on_report(&mut self, now: Instant, report: &Report) {
        if !self.reports.on_report(now, report) {
            return;
        }
        self.reported = Some(Reports::reported(report));
        let recent_ppm = self.reports.recent_there(now).map_or(0, |recent| recent.ppm);
        self.copies.reported(now, report.datagrams, recent_ppm);
        // Reports without arrival times show no queue.
        if !self.listens() || report.highest_at_ns == 0 {
            return;
        }
        let headers = report.datagrams.saturating_mul(self.link_bytes(0));
        let link_report = LinkReport {
            highest: report.highest_sequence,
            highest_at_ns: report.highest_at_ns,
            bytes: report.bytes.saturating_add(headers),
            refused_at: self.pacer.blocked_at(),
        };
        self.bottleneck.on_report(now, &link_report);
        let found = self.bottleneck.found();
        if found.is_some() && self.pacer.found().is_none() {
            self.reports.excuse(now, self.rtt_ns.unwrap_or(0));
        }
        self.pacer.set_found(found);
        self.pacer.set_assumed(self.bottleneck.assumed());
    }

    /// The peer says when datagrams of the present session came.
    pub(crate) fn on_arrivals(&mut self, now: Instant, arrivals: &Arrivals) {
        if self.listens() {
            self.bottleneck.on_arrivals(now, arrivals);
        }
    }

    /// Forgets findings about the bottleneck that may be too old to be true.
    pub(crate) fn forget_old_bottleneck(&mut self, now: Instant) {
        self.bottleneck.forget_old(now);
        self.pacer.set_found(self.bottleneck.found());
    }

    /// Returns true if the peer can decode what we compress with.
    pub(crate) fn codec_accepted(&self) -> bool {
        self.decodes(self.config.codec.id)
    }

    /// Returns true if the peer can decode this; assumed of a peer from which nothing was received yet.
    pub(crate) fn decodes(&self, codec: CodecId) -> bool {
        self.hello.is_none_or(|hello| hello.decodes(codec as u8))
    }

    /// Sets whether this node forwards what the peer sends compressed, which the peer is notified of.
    pub(crate) fn set_transit(&mut self, transit: bool) {
        self.transit = transit;
        self.handshake.set_offer(offer(transit, self.contexts.offer()));
    }

    /// What is offered may have changed: with another session, if so.
    pub(crate) fn renew_offer(&mut self) {
        self.set_transit(self.transit);
    }

    /// The contexts begin from nothing, with another session.
    pub(crate) fn renew_contexts(&mut self) {
        self.renew_offer();
        self.handshake.renew();
    }

    /// Returns true if the peer forwards what is sent to it compressed.
    pub(crate) fn forwards(&self) -> bool {
        self.hello.is_some_and(|hello| hello.carries())
    }

    /// Returns true if packets can be sent to it.
    pub(crate) fn is_connected(&self) -> bool {
        self.handshake.current().is_some() && self.state == PeerState::Up
    }

    /// Returns true if this can go to the peer unopened.
    pub(crate) fn can_forward(&self, carried: &Carried<'_>) -> bool {
        let (codec, is_known) = match carried.unit {
            Unit::Compressed(compressed) => (compressed.codec, compressed.epoch == 0),
            Unit::Block(block) => (block.codec, !block.is_of_later_version()),
        };
        // Where some packets are held back longer than others, nobody knows for how long these may.
        let is_sorted = self.is_chunked()
            && self.deadlines.any()
            && self.port.config().scheme.queue != Queue::One;
        let decodes = self.hello.is_some_and(|hello| hello.decodes(codec));
        let len = carried_record_len(carried);
        let fits =
            len <= self.units_bytes_max() || len.div_ceil(self.part_bytes_max()) <= FRAGMENTS_MAX;
        self.is_connected() && decodes && is_known && !is_sorted && fits
    }

    /// Returns true if datagrams with blocks are kept for retransmission.
    pub(crate) fn retransmits(&self) -> bool {
        self.config.retransmit != Retransmit::Never
    }

    /// Returns the path as contexts see it.
    pub(crate) fn path(&self, now: Instant) -> Path {
        let (recent, rtt_ns) = (self.reports.recent_there(now), self.rtt_ns);
        let is_mended = self.is_mended() && self.repair.is_usual();
        Path { recent, clean: self.reports.clean(), rtt_ns, is_mended }
    }

    /// Returns true if others can't be decoded without what is missing, and so little is lost that it costs next to
    /// nothing to have it sent twice.
    pub(crate) fn asks_twice(&self, now: Instant) -> bool {
        let loses_little = |recent: RecentLoss| {
            recent.lost <= TWICE_LOSSES_MAX || recent.ppm <= TWICE_LOSS_PPM_MAX
        };
        self.contexts.incoming.keeps_order() && self.reports.recent(now).is_none_or(loses_little)
    }

    /// Offers as a version does that knows no contexts.
    #[cfg(test)]
    pub(crate) fn offer_no_contexts(&mut self) {
        let offer = offer(self.transit, self.contexts.offer());
        self.handshake.set_offer(Offer { contexts: None, ..offer });
    }

    /// Offers as a version does that knows no batches that stand alone.
    #[cfg(test)]
    pub(crate) fn offer_running_only(&mut self) {
        let contexts = ContextOffer {
            takes_alone: false,
            takes_predicted: false,
            models: None,
            ..self.contexts.offer()
        };
        self.handshake.set_offer(offer(self.transit, contexts));
    }

    /// Offers as an older version does.
    #[cfg(test)]
    pub(crate) fn offer_less(&mut self, less: impl Fn(ContextOffer) -> ContextOffer) {
        let contexts = less(self.contexts.offer());
        self.handshake.set_offer(offer(self.transit, contexts));
    }

    /// Returns true if what is sent may go through contexts, by the configuration.
    pub(crate) fn has_contexts(&self) -> bool {
        self.config.scheme.has_contexts()
    }

    /// Returns true if probes can find out which datagrams pass.
    pub(crate) fn probes_path(&self) -> bool {
        self.state == PeerState::Up && self.handshake.current().is_some()
    }

    /// Returns the times that probes of the path must wait for.
    pub(crate) fn pace(&self, datagram_bytes: u16) -> Pace {
        let queue_ns = self.bottleneck.queue_ns().unwrap_or(0);
        let bytes = self.link_bytes(datagram_bytes.into());
        Pace {
            rtt_ns: self.rtt_ns.unwrap_or(0).saturating_add(queue_ns),
            transmission_ns: self.pacer.rate().map_or(0, |rate| rate.transmission_ns(bytes)),
        }
    }

    /// Adapts the port to a better estimate of what passes.
    pub(crate) fn path_changed(&mut self) {
        self.refresh_port();
    }

    /// The path to the peer takes datagrams of this length.
    pub(crate) fn set_path_datagram_max(&mut self, bytes: u16) {
        // Below this IPv6 does not work inside; such a path must fragment outside.
        self.path_datagram_max = bytes.max(576);
        self.path_mtu.set_ceiling(self.datagram_max_allowed());
        self.refresh_port();
    }

    pub(crate) fn set_endpoint(&mut self, endpoint: SocketAddr) {
        if self.endpoint.replace(endpoint) != Some(endpoint) {
            // Another path, of which nothing was measured.
            self.deadlines.forget();
            self.bottleneck.forget();
            self.pacer.moved();
            (self.rtt_ns, self.first_probes) = (None, FIRST_PROBES);
            self.repair.moved();
            self.copies.moved();
            self.reports.moved();
            self.contexts.moved();
            self.path_mtu.forget();
            self.refresh_deadlines();
        }
        self.refresh_port();
    }

    /// A session came to be.
    pub(crate) fn connected(&mut self, now: Instant, hello: &Hello) -> Connected {
        self.peer_datagram_max = hello.datagram_max.max(576);
        self.path_mtu.set_ceiling(self.datagram_max_allowed());
        self.hello = Some(*hello);
        self.reassembly.begin();
        self.turn.end_session();
        self.copies.clear();
        self.first_probes = FIRST_PROBES;
        let sent = self.retransmit_buffer.take();
        let awaited = std::mem::take(&mut self.to_retransmit);
        self.parts.begin_session(self.part_bytes_max());
        let came = self.reorder.begin_session();
        // Of tests only offers none.
        let ours = self.handshake.offered().contexts.unwrap_or(self.contexts.offer());
        let is_another = self.contexts.begin_session(now, (&ours, hello.contexts.as_ref()));
        self.keep_before(now, (sent, awaited), came);
        self.contexts.set_history(self.config.history);
        self.limit_retransmissions();
        self.refresh_deadlines();
        self.refresh_port();
        self.received(now);
        self.reports.begin_session(now, &self.rx, (self.records, self.data_records));
        self.bottleneck.begin_session();
        Connected { is_another, is_codec_refused: !self.codec_accepted() }
    }

    /// What contexts refer to must come, so that more of it is kept and it is tried more often.
    fn limit_retransmissions(&mut self) {
        let has_contexts = self.has_contexts() && self.contexts.outgoing.is_possible();
        self.retransmit_buffer.set_limits(has_contexts);
    }

    /// Returns true if batches can have models, on a link of the present rate.
    pub(crate) fn takes_models(&self) -> bool {
        self.config.may_have_models(self.pacer.lasting_rate())
    }

    /// Returns true if batches have to be short: they have a model, which is configured or was picked. Others are the smaller the
    /// longer they are.
    fn wants_short_batches(&self) -> bool {
        let has_model = || self.contexts.outgoing.has_picked_model();
        self.config.model_kind.is_some() || self.takes_models() && has_model()
    }

    /// Another codec may have been picked: the port learns how long batches may be.
    pub(crate) fn refresh_batches(&mut self) {
        if self.wants_short_batches() != self.has_short_batches {
            self.refresh_port();
        }
    }

    fn refresh_port(&mut self) {
        // The values come from a configuration that the port took before.
        let refreshed = self.configure_port();
        debug_assert!(refreshed.is_ok(), "{refreshed:?}");
    }

    /// Something went to the peer outside of the port, in a session.
    pub(crate) fn sent_control(&mut self, datagram_len: usize) {
        self.extra.control_datagrams += 1;
        self.extra.control_bytes += self.link_bytes(datagram_len);
    }

    /// The same of what belongs to no session.
    pub(crate) fn sent_hello(&mut self, now: Instant, datagram_len: usize) {
        self.sent_control(datagram_len);
        let paced_bytes = self.paced_bytes(datagram_len);
        self.pacer.sent(now, paced_bytes, self.late_by_ns_max());
    }

    /// For how long the link may have been kept from what waits for it, by a wake-up that came late: what
    /// is held back counts as well, as nobody asks the port when it began to wait for the link.
    pub(crate) fn late_by_ns_max(&self) -> u64 {
        if self.port.is_empty() { 0 } else { u64::MAX }
    }

    /// The report that goes out now, with the rate at which there is time to decode what models make.
    pub(crate) fn report(&mut self, now: Instant, model_bps: u64) -> Report {
        let report = self.reports.report(now, &self.rx, (self.records, self.data_records));
        let waiting_bytes = self.port.backlog_bytes();
        Report { waiting_bytes, waiting_ns: self.port.waiting_ns(), model_bps, ..report }
    }
}

/// Returns the parameters that a peer is sent.
fn offer(forwards: bool, contexts: ContextOffer) -> Offer {
    let contexts = Some(contexts);
    Offer { datagram_max: u16::MAX, codecs: supported_bitmap(), forwards, contexts }
}

fn pacing(config: &PeerConfig) -> Pacing {
    match config.rate {
        RateConfig::Auto | RateConfig::Local => Pacing::Auto,
        RateConfig::Unlimited => Pacing::Unlimited,
        RateConfig::Fixed(rate) => Pacing::Fixed(rate),
    }
}
