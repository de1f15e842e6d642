//! A node's accounts, in the form that reports use.

use std::collections::BTreeMap;

use dwell_base::Instant;
use dwell_report::status::{
    ClassStatus, FlowStatus, PeerStatus, RateSource, RxStatus, Status, TunStatus, TxContexts,
    TxStatus,
};

use super::Node;
use super::dictionary;
use super::pacer::Pacing;
use super::peer::Peer;

/// Learned classes reported of each peer: more than anybody reads.
const CLASSES_MAX: usize = 64;

impl Node {
    /// The state of the node now. The driver fills in what only it knows: the name, the TUN,
    /// CPU time and errors of its sockets.
    pub fn status(&self, now: Instant) -> Status {
        let peers = self.peers.iter().filter(|peer| !peer.removed);
        let tun = TunStatus { mtu: u32::from(self.tun_mtu), ..TunStatus::default() };
        let peers = peers.map(|peer| peer_status(peer, now)).collect();
        let problems = self.problems.status(now);
        let (drops, history) = (self.drops_by_name(), self.history_status());
        Status { tun, problems, peers, drops, history, ..Status::default() }
    }

    /// Somebody looks: flows are counted for some time from now on.
    pub fn watch_flows(&mut self, now: Instant) {
        self.flow_watch.look(now);
    }

    /// Returns the flows that send most.
    pub fn flows(&self, now: Instant) -> Vec<FlowStatus> {
        self.flow_watch.status(now, |peer| self.peer_config(peer).map(|it| it.name.clone()))
    }

    fn drops_by_name(&self) -> BTreeMap<String, u64> {
        let drops = self.drops;
        let gate = self.gate_counts();
        [
            ("malformed_packet", drops.malformed_packet),
            ("no_route", drops.no_route),
            ("malformed_datagram", drops.malformed_datagram),
            ("unknown_source", drops.unknown_source),
            ("unknown_key", drops.unknown_key),
            ("hello_replayed", drops.hello_replayed),
            ("hello_refused", gate.refused),
            ("hello_invalid_mac", gate.invalid_mac),
            ("hello_cookie", gate.cookies),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into()
    }
}

fn peer_status(peer: &Peer, now: Instant) -> PeerStatus {
    let config = &peer.config;
    let (cpu, relay) = peer.port.waiting();
    let rate = peer.pacer.rate();
    PeerStatus {
        name: config.name.clone(),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        prefixes: config.prefixes.iter().map(ToString::to_string).collect(),
        state: peer.state,
        problems: peer.problems.status(now),
        security: config.security.name().to_owned(),
        on_dead: config.on_dead.name().to_owned(),
        scheme: config.scheme_name.to_owned(),
        codec: config.codec_name(),
        dictionary: dictionary::status(peer),
        rate_bps: rate.map(dwell_base::Rate::as_bps),
        rate_source: match (peer.pacer.pacing(), rate) {
            _ if peer.pacer.is_shared() => RateSource::Share,
            (Pacing::Fixed(_), _) => RateSource::Configured,
            (Pacing::Auto, Some(_)) => RateSource::Measured,
            (Pacing::Auto, None) | (Pacing::Unlimited, _) => RateSource::Unlimited,
        },
        mtu: u32::from(peer.packet_max()),
        waiting_packets: (cpu + relay) as u64,
        waiting_bytes: peer.port.backlog_bytes(),
        waiting_ns: peer.port.waiting_ns(),
        rtt_ns: peer.rtt_ns,
        since_received_ns: peer.last_received_at.map(|at| now.since_ns(at)),
        tx: tx_status(peer, now),
        rx: rx_status(peer, now),
        bottleneck_bps: peer.pacer.found().map(|found| found.rate.as_bps()),
        beyond_ns: peer.bottleneck.queue_ns(),
        deadlines: peer.deadlines.status(),
        traffic: peer.classes.status(),
        // The driver knows the time since when.
        state_for_ns: 0,
        recent: None,
        one_way_ns: peer.deadlines.one_way_ns(config.one_way_delay_ns),
        classes: peer.port.learned_classes().take(CLASSES_MAX).map(ClassStatus::learned).collect(),
    }
}

fn tx_status(peer: &Peer, now: Instant) -> TxStatus {
    let (extra, accounts) = (&peer.extra, peer.port.accounts());
    let errors = [
        ("too_big", extra.too_big),
        ("unconnected", extra.unconnected),
        ("unwritten", extra.unwritten),
    ];
    TxStatus {
        sojourn: peer.sojourn.summary(),
        control_datagrams: extra.control_datagrams,
        control_bytes: extra.control_bytes,
        resent_datagrams: extra.resent_datagrams,
        resent_bytes: extra.resent_bytes,
        copied_datagrams: extra.copied_datagrams,
        forwarded_compressed: extra.forwarded_compressed,
        datagrams: extra.datagrams,
        peer_got_datagrams: peer.reports.path().got,
        peer_lost_datagrams: peer.reports.path().lost,
        loss: peer.reports.recent_there(now),
        frames: accounts.frames + extra.split_datagrams,
        link_bytes: accounts.link_bytes + extra.split_bytes,
        contexts: contexts_of(peer),
        send_errors: errors.map(|(name, count)| (name.to_owned(), count)).into(),
        ..TxStatus::from(accounts)
    }
    .with_savings(peer.config.link_overhead.bytes)
}

fn contexts_of(peer: &Peer) -> TxContexts {
    let contexts = peer.contexts.status().0;
    let kept_bytes = if contexts.is_unused() { 0 } else { peer.kept_bytes() };
    TxContexts { kept_bytes, ..contexts }
}

fn rx_status(peer: &Peer, now: Instant) -> RxStatus {
    let drops = peer.reassembly.drops();
    let dropped = [
        ("timed_out", drops.timed_out),
        ("crowded_out", drops.crowded_out),
        ("malformed", drops.malformed),
    ];
    RxStatus {
        lost_datagrams: peer.reports.lost(now),
        loss: peer.reports.recent(now),
        sequence_jumps: peer.reports.jumps(),
        recovered_datagrams: peer.reorder.counts.recovered,
        unrecovered_datagrams: peer.reorder.counts.given_up,
        dropped_records: dropped.map(|(name, count)| (name.to_owned(), count)).into(),
        reported: peer.reported,
        contexts: peer.contexts.status().1,
        ..peer.rx.clone()
    }
}
