//! From records of contexts to packets, and reports on how far that has come.

use dwell_base::Instant;
use dwell_wire::{ContextRecord, Control};

use super::incoming::{GapWaits, Opened, Origin, Taken};
use crate::node::Node;
use crate::node::env::Env;
use crate::node::link::send_controls;

impl Node {
    /// A record of a context came.
    pub(in crate::node) fn of_context(
        &mut self,
        env: &mut impl Env,
        (now, origin): (Instant, Origin),
        index: usize,
        record: &ContextRecord<'_>,
    ) {
        let peer = &mut self.peers[index];
        let allowance = &mut peer.turn.packets_left;
        let mut taken = peer.contexts.incoming.take(now, record, origin, allowance);
        if taken == Taken::Full {
            self.open_ready(env, now, index);
            let peer = &mut self.peers[index];
            let allowance = &mut peer.turn.packets_left;
            taken = peer.contexts.incoming.take(now, record, origin, allowance);
        }
        let peer = &mut self.peers[index];
        match taken {
            Taken::Now => self.open_in_context(env, index, record),
            Taken::Late => self.raw(env, index, record.data()),
            Taken::Full => peer.contexts.incoming.crowded_out(),
            Taken::Held | Taken::Dropped => {}
        }
        self.open_ready(env, now, index);
    }

    /// Opens what was held and need not wait any longer, as far as the peer's turn goes.
    pub(in crate::node) fn open_ready(&mut self, env: &mut impl Env, now: Instant, index: usize) {
        loop {
            let peer = &mut self.peers[index];
            if !peer.turn.may_restore() {
                return;
            }
            let Some((context, mut held)) = peer.contexts.incoming.ready(now) else { return };
            let of_held = std::mem::take(&mut held.packets_left);
            let of_datagram = std::mem::replace(&mut peer.turn.packets_left, of_held);
            self.open_in_context(env, index, &held.record(context));
            self.peers[index].turn.packets_left = of_datagram;
        }
    }

    fn open_in_context(&mut self, env: &mut impl Env, index: usize, record: &ContextRecord<'_>) {
        let peer = &mut self.peers[index];
        // It costs as much if it fails.
        peer.turn.charge_bytes(peer.contexts.incoming.bytes_worth(record));
        let mut scratch = std::mem::take(&mut self.scratch);
        let opened = peer.contexts.incoming.open(record, &mut scratch);
        let malformed = (peer.rx.malformed, peer.rx.decode_failed);
        match opened {
            Opened::Raw => {
                self.scratch = scratch;
                self.raw(env, index, record.data());
                return;
            }
            Opened::Batch { len, is_columnar: true } => {
                self.columnar(env, index, &scratch[..len]);
            }
            Opened::Batch { len, is_columnar: false } => {
                self.one_after_another(env, index, &mut scratch[..len]);
            }
            Opened::Nothing => {}
        }
        self.scratch = scratch;
        let peer = &mut self.peers[index];
        if malformed != (peer.rx.malformed, peer.rx.decode_failed) {
            peer.contexts.incoming.is_garbled(record.context);
        }
    }

    /// Gives up what is waited for in vain, and reports how far the peer's contexts have come.
    pub(in crate::node) fn tend_contexts(
        &mut self,
        env: &mut impl Env,
        now: Instant,
        index: usize,
    ) {
        let peer = &mut self.peers[index];
        peer.contexts.outgoing.expire(now);
        if peer.contexts.begins_again(now) {
            peer.renew_contexts();
        }
        let path = (peer.reports.recent_there(now), peer.rtt_ns);
        peer.contexts.review(now, peer.config.history_mode, path);
        let (rate, takes_models) = (peer.pacer.rate(), peer.takes_models());
        let trial = peer.contexts.outgoing.pick(now, rate, takes_models);
        if let Some(trial) = trial
            && let Some(done) = env.try_codecs(trial.of_peer(index, peer.generation))
        {
            peer.contexts.outgoing.tried(now, &done);
        }
        let waits = GapWaits::of(peer.rtt_ns);
        let reorder = &peer.reorder;
        let is_missing = |datagram| reorder.is_missing_before(datagram);
        // What came and waits for the peer's turn may hold what is missing.
        if !peer.turn.is_behind() {
            peer.contexts.incoming.expire(now, waits, is_missing);
        }
        self.open_ready(env, now, index);
        let peer = &mut self.peers[index];
        if peer.handshake.current().is_none() {
            return;
        }
        let mut due = Vec::new();
        peer.contexts.incoming.reports(now, waits.report_ns, &mut due);
        if !due.is_empty() {
            let controls: Vec<_> = due.into_iter().map(Control::ContextReport).collect();
            send_controls(peer, index, env, &controls);
        }
    }
}
