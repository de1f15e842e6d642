//! The times at which a peer is probed, sent a report, and given up as dead.

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};

use super::{OLD_SCHEME_NS, Peer};
use crate::node::contexts::GapWaits;
use crate::node::reorder::Waits;
use crate::node::reports::ASK_AGAIN_NS;
use crate::trust::Session;
use dwell_wire::Control;

/// The length of a datagram with a request for missing ones, with all headers.
const ASK_BYTES: u64 = 90;
/// They may take this part of the link.
const ASK_LINK_PART: u64 = 10;
/// The least time between such requests, whatever the link's rate.
const ASK_PAUSE_NS_MIN: u64 = MILLI_NS;
/// The most: what is missing is forgotten after a few seconds.
const ASK_PAUSE_NS_MAX: u64 = 250 * MILLI_NS;
/// The length of a datagram with a report, with all headers.
const REPORT_BYTES: u64 = 160;
/// Reports that follow a last datagram may take this part of the link.
const TAIL_LINK_PART: u64 = 50;
/// While something is unanswered, the peer is asked this often.
const PROBE_AGAIN_NS: u64 = SECOND_NS;
/// Until it was measured for the first time, the round trip is asked for this often, if the peer speaks, ...
const MEASURE_FIRST_NS: u64 = 200 * MILLI_NS;
/// ... and so many times if nobody does: what comes first is sent in one way or another by the round trip.
pub(super) const FIRST_PROBES: u8 = 5;
/// While packets come in, the round trip is measured this often.
const MEASURE_NS: u64 = 10 * SECOND_NS;
/// While packets are held back for deadlines, the round trip is measured this often.
const MEASURE_DEADLINES_NS: u64 = 2 * SECOND_NS;

/// When a node speaks without being spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// An idle peer is probed this often.
    pub keepalive_ns: u64,
    /// A peer that leaves something unanswered for this long is dead.
    pub dead_after_ns: u64,
}

/// The messages that are due to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) probe: bool,
    /// The probe only finds out if the way is long.
    pub(crate) is_first: bool,
    pub(crate) report: bool,
    pub(crate) dead: bool,
}

impl Peer {
    /// The times that are waited for what is missing in its contexts, and between reports on them.
    pub(crate) fn gap_waits(&self) -> GapWaits {
        GapWaits::of(self.rtt_ns).over(self.pacer.rate(), self.contexts.incoming.contexts())
    }

    /// Returns the times that missing datagrams are waited for.
    pub(crate) fn waits(&self) -> Waits {
        let has_contexts = self.contexts.incoming.is_active();
        let keeps_order = self.contexts.incoming.keeps_all_in_order();
        let order_wait_ns = if keeps_order { 0 } else { self.config.order_wait_ns };
        let pause_ns = match self.carried_rate() {
            Some(rate) => rate.transmission_ns(ASK_BYTES * ASK_LINK_PART),
            None => self.rtt_ns.unwrap_or(0) / 16,
        };
        let pause_ns = pause_ns.clamp(ASK_PAUSE_NS_MIN, ASK_PAUSE_NS_MAX);
        Waits { rtt_ns: self.rtt_ns, order_wait_ns, has_contexts, pause_ns, asks_twice: false }
    }

    /// The rate of which what is asked and reported may take a part: that of the link, but no more than comes where most is lost.
    /// Short datagrams fit a full queue where long ones don't: whatever the rate that was written, they would take all of the link.
    fn carried_rate(&self) -> Option<Rate> {
        self.pacer.rate().into_iter().chain(self.reports.carried_there()).min()
    }

    /// Something authentic came from the peer.
    pub(crate) fn received(&mut self, now: Instant) {
        self.last_received_at = Some(now);
        self.unanswered_since = None;
    }

    /// Something went to the peer that it is going to answer, sooner or later.
    pub(crate) fn spoke(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
        self.spoke_at = now;
    }

    /// A probe that goes out now.
    pub(crate) fn probe(&mut self, now: Instant, index: usize) -> Control {
        self.probed_at = now;
        self.first_probes = self.first_probes.saturating_sub(1);
        self.spoke(now);
        let report_every_ms = self.reports.wish_ms();
        let (id, arrivals_max) = (index as u32, self.reports.wish_arrivals());
        Control::Probe { sender_time_ns: now.as_ns(), id, report_every_ms, arrivals_max }
    }

    /// The peer answered a probe that was sent then, and that came there then, by its clock.
    pub(crate) fn answered(&mut self, now: Instant, sent_at: Instant, came_at_ns: u64) {
        if sent_at > now {
            return; // no probe of ours
        }
        self.reports.answered(sent_at);
        if self.listens() {
            self.bottleneck.probed(now, sent_at, came_at_ns);
        }
        let rtt_ns = now.since_ns(sent_at);
        self.first_probes = 0;
        // A short round trip before anything was carried is not that of a link with something to do: it is measured then.
        let is_first = self.first_sent_at == Some(sent_at) && self.port.accounts().frames == 0;
        if is_first {
            self.repair.measured(rtt_ns);
        }
        if !is_first || self.repair.is_far() {
            self.measured_rtt(rtt_ns);
        }
    }

    fn measured_rtt(&mut self, rtt_ns: u64) {
        self.rtt_ns = Some(rtt_ns);
        self.repair.measured(rtt_ns);
        self.deadlines.measured(rtt_ns);
        if self.refresh_deadlines() {
            self.refresh_port();
        }
    }

    /// Returns the messages that are due now.
    pub(crate) fn due(&self, now: Instant, patience: Patience) -> Due {
        if self.handshake.current().is_none() {
            return Due::default();
        }
        let report = now >= self.tail_at() || self.report_at().is_some_and(|at| now >= at);
        // A node that receives packets all the time has no reason to ask, but wants the round trip.
        let due_again = self.rtt_ns.is_none() || now >= self.probed_at + MEASURE_NS;
        let measure = (report && due_again) || now >= self.measure_at() || now >= self.ask_at();
        let probe = now >= self.probe_at(patience) || measure;
        let is_first = now >= self.first_at();
        Due {
            probe: probe || is_first,
            is_first: is_first && !probe,
            report,
            dead: now >= self.dead_at(patience),
        }
    }

    /// When it is time for the peer's timers, or to pump it.
    pub(crate) fn due_at(&self, patience: Patience) -> Instant {
        let timers = self.deadline(patience);
        if self.handshake.current().is_none() || self.pacer.is_blocked() {
            return timers;
        }
        let ready_at = self.pacer.ready_at();
        // While others wait, what was lost with its context comes after them.
        let is_lost = self.contexts.outgoing.has_lost() && self.port.is_empty();
        let is_begun = !self.to_retransmit.is_empty() || !self.parts.is_empty();
        let is_again = is_lost || is_begun || self.owes_before();
        let again = if is_again { ready_at } else { Instant::FAR_FUTURE };
        // Either the link can't take a frame yet, or what waits is held back.
        let frame_at = self.held_until.unwrap_or(ready_at);
        let frame = if self.port.can_send() { frame_at } else { Instant::FAR_FUTURE };
        let has_none = self.copies.is_empty();
        let copy = if has_none { Instant::FAR_FUTURE } else { self.pacer.idle_at() };
        timers.min(again).min(copy).min(frame)
    }

    /// When [`Peer::due`] or the handshake will next ask for something.
    pub(crate) fn deadline(&self, patience: Patience) -> Instant {
        let mut at = self.handshake.deadline();
        if self.removed {
            return Instant::FAR_FUTURE;
        }
        if let Some(since) = self.old_scheme {
            at = at.min(since.map_or(Instant::ZERO, |since| since + OLD_SCHEME_NS));
        }
        if self.handshake.current().is_some() {
            at = at.min(self.probe_at(patience)).min(self.dead_at(patience));
            at = at.min(self.measure_at()).min(self.first_at());
            at = at.min(self.reorder.deadline(self.waits()));
            let is_missing = |datagram| self.is_missing(datagram);
            at = at.min(self.contexts.incoming.deadline(self.gap_waits(), is_missing));
            at = at.min(self.before_at());
            at = at.min(self.ask_at()).min(self.report_at().unwrap_or(Instant::FAR_FUTURE));
            at = at.min(self.tail_at());
        }
        if self.probes_path() {
            at = at.min(self.path_mtu.deadline());
            at = at.min(self.delivery.deadline(&self.problems));
        }
        at
    }

    /// When a report should follow the last datagram, if nothing else is about to.
    fn tail_at(&self) -> Instant {
        let waits = !self.port.is_empty() || !self.parts.is_empty();
        let follows = waits || !self.to_retransmit.is_empty();
        if follows || self.pacer.is_blocked() {
            return Instant::FAR_FUTURE;
        }
        self.tail.deadline(self.rtt_ns)
    }

    /// A report is sent. Those that follow a last datagram take a small part of the link.
    pub(crate) fn note_tail_report(&mut self, now: Instant) {
        let report_ns = self.carried_rate().map_or(0, |rate| rate.transmission_ns(REPORT_BYTES));
        self.tail.reported(now, report_ns.saturating_mul(TAIL_LINK_PART));
    }

    pub(super) fn probe_at(&self, patience: Patience) -> Instant {
        let received_at = self.last_received_at.unwrap_or(Instant::ZERO);
        // One of the two asks a little later, so that on an idle link only the other asks.
        let salts = self.handshake.current().map(Session::salts).unwrap_or_default();
        let later_ns = if salts.0 < salts.1 { patience.keepalive_ns / 4 } else { 0 };
        let idle = received_at.max(self.probed_at) + patience.keepalive_ns + later_ns;
        match self.unanswered_since {
            Some(since) => idle.min(since.max(self.probed_at) + PROBE_AGAIN_NS),
            None => idle,
        }
    }

    /// When it is to be found out if the way is long, before anybody speaks.
    fn first_at(&self) -> Instant {
        let is_open = self.rtt_ns.is_none() && self.first_probes > 0;
        if is_open { self.probed_at + MEASURE_FIRST_NS } else { Instant::FAR_FUTURE }
    }

    /// When the round trip is to be measured: for the first time, or again for the sake of deadlines.
    pub(super) fn measure_at(&self) -> Instant {
        // What is missing is asked for, and waited for, by the round trip.
        if self.rtt_ns.is_none() && self.spoke_at > self.probed_at {
            return self.probed_at + MEASURE_FIRST_NS;
        }
        let needed = self.is_to_chunk()
            && self.deadlines.any()
            && self.config.one_way_delay_ns.is_none()
            && self.spoke_at > self.probed_at;
        if needed { self.probed_at + MEASURE_DEADLINES_NS } else { Instant::FAR_FUTURE }
    }

    /// A peer of which nothing is read, since what came of it waits for threads, may answer all the time.
    pub(crate) fn excuse_silence(&mut self, now: Instant) {
        if self.contexts.incoming.is_clogged() && self.unanswered_since.is_some() {
            self.unanswered_since = Some(now);
        }
    }

    pub(super) fn dead_at(&self, patience: Patience) -> Instant {
        self.unanswered_since.map_or(Instant::FAR_FUTURE, |since| since + patience.dead_after_ns)
    }

    /// True if the peer was not asked just now.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.handshake.current().is_some() && now >= self.probed_at + PROBE_AGAIN_NS
    }

    pub(super) fn report_at(&self) -> Option<Instant> {
        self.reports.due_at(&self.rx, self.data_records, self.pacer.rate())
    }

    /// When the peer is to be notified how often we want reports.
    pub(super) fn ask_at(&self) -> Instant {
        let must = self.reports.must_ask();
        if must { self.probed_at + ASK_AGAIN_NS } else { Instant::FAR_FUTURE }
    }
}
