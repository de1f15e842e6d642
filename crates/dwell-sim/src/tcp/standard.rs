//! The sender by the RFCs: loss recovery with SACK (RFC 6675), limited transmit (RFC 3042),
//! timeouts (RFC 6298), windows of `NewReno` (RFC 5681), CUBIC (RFC 9438) or BBR. Marks of congestion count as
//! losses, once in a window of data (RFC 3168, section 6.1.2).
//!
//! Where it is like Linux's, retransmissions that are lost are found (RACK), and the window comes down as packets arrive (PRR).
//!
//! Left out: the last two rules of RFC 6675's `NextSeg`, which matter at the end of a
//! transfer only. After a timeout the scoreboard is kept, as RFC 6675 allows: the receivers
//! here keep what they have reported.

use super::bbr::{Acked, Bbr, Repair};
use super::config::{Flavour, Like, TcpConfig};
use super::growth::Window;
use super::prr::Reduction;
use super::resent::Resent;
use super::rto::Rto;
use super::scoreboard::Scoreboard;
use super::segment::Ack;

/// A packet is lost if this many after it have arrived.
const REORDERING_MAX: u32 = 3;
/// The longest time between two questions for the receiver's window.
const PROBE_NS_MAX: u64 = 60_000_000_000;

/// The state of a sender.
#[derive(Clone, Debug)]
pub(super) struct Standard {
    window_packets: u64,
    /// One past the last packet for which the receiver has room.
    edge: u64,
    /// The packet that asks the receiver whether it has room again.
    probe: Option<u64>,
    /// The number of times that it was asked in vain.
    probes: u32,
    /// True if the timer is that of the next question.
    asks: bool,
    initial_window: u32,
    grow_after_syn: bool,
    limited_transmit: bool,
    /// One past the last packet to send.
    data_end: u64,

    /// One past the highest packet that was sent.
    sent_end: u64,
    /// All before it are acknowledged.
    acked: u64,
    phase: Phase,
    window: Window,
    bbr: Option<Box<Bbr>>,
    /// The time before which pacing lets nothing be sent, if that is what stopped the sender.
    paced_until_ns: Option<u64>,
    /// Packets below were sent before the window was reduced for a mark.
    reduced_to: u64,
    /// True if the window stopped the sender, not the receiver or the data.
    window_full: bool,
    scoreboard: Scoreboard,
    /// Packets below that are not reported have been lost.
    lost_to: u64,
    /// What was retransmitted, where lost retransmissions are found.
    resent: Option<Box<Resent>>,
    /// Brings the window down with what arrives (PRR), and how far it is.
    reduces_by_arrivals: bool,
    reduction: Option<Reduction>,

    forced: Option<u64>,
    filling: bool,

    rto: Rto,
    deadline_ns: Option<u64>,
    /// The round trip is measured when all before it are acknowledged.
    measure_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Repairing, until all before this packet are acknowledged.
    Recovery(u64),
    /// As `Recovery`, after a timeout, with slow start.
    Timeout(u64),
}

impl Standard {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let packets = if config.syn { 1 } else { config.initial_window };
        let threshold = config.initial_threshold.unwrap_or(config.window_packets);
        Self {
            window_packets: u64::from(config.window_packets),
            edge: u64::from(config.window_packets),
            probe: None,
            probes: 0,
            asks: false,
            initial_window: config.initial_window,
            grow_after_syn: config.syn,
            limited_transmit: config.limited_transmit,
            data_end: config.packets.unwrap_or(u64::MAX),
            sent_end: 0,
            acked: 0,
            phase: Phase::Open,
            window: Window::new(config, packets, threshold),
            bbr: (config.flavour == Flavour::Bbr).then(|| Box::new(Bbr::new(config))),
            paced_until_ns: None,
            reduced_to: 0,
            window_full: false,
            scoreboard: Scoreboard::new(),
            lost_to: 0,
            resent: (config.like == Like::Linux).then(Box::default),
            reduces_by_arrivals: config.like != Like::Rfc && config.flavour != Flavour::Bbr,
            reduction: None,
            forced: None,
            filling: false,
            rto: Rto::new(config),
            deadline_ns: None,
            measure_at: 1,
        }
    }

    pub(super) fn start(&mut self) {
        self.filling = true;
    }

    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    pub(super) fn window(&self) -> f64 {
        self.bbr.as_ref().map_or(self.window.packets(), |bbr| bbr.window())
    }

    pub(super) fn threshold(&self) -> f64 {
        self.window.threshold()
    }

    pub(super) fn recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovery(_))
    }

    pub(super) fn rto_ns(&self) -> u64 {
        self.rto.timeout_ns()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Returns the time before which pacing lets nothing be sent, if that is what stopped the sender.
    pub(super) fn release(&self) -> Option<u64> {
        self.paced_until_ns
    }

    /// Returns the number of packets that are assumed to be in flight.
    pub(super) fn pipe(&self) -> u64 {
        let outstanding = self.sent_end - self.acked;
        let again = self.resent.as_ref().map_or(0, |resent| resent.lost_len());
        let gaps = self.scoreboard.gaps_len(self.lost_to);
        outstanding - self.scoreboard.reported_len() - gaps - again
    }

    pub(super) fn on_ack(&mut self, now_ns: u64, ack: &Ack) {
        if ack.cumulative > self.sent_end {
            return;
        }
        let in_flight = self.bbr.as_ref().map_or(0, |_| self.pipe());
        let newly = ack.cumulative.saturating_sub(self.acked);
        let arrived = self.acked + self.scoreboard.reported_len();
        let room = u64::from(ack.window).min(self.window_packets);
        self.edge = self.edge.max(ack.cumulative + room);
        if newly > 0 {
            self.advance(now_ns, ack);
        }
        for block in ack.blocks() {
            self.scoreboard.report(block, self.sent_end);
        }
        let lost = self.find_lost(ack);
        let arrived = self.acked + self.scoreboard.reported_len() - arrived;
        let has_ended = self.end_repair();
        if ack.ecn_echo && self.phase == Phase::Open && self.acked > self.reduced_to {
            self.reduced_to = self.sent_end;
            self.cut();
        }
        // Linux takes what has arrived now, others what the cumulative number has passed, but not at the end of a repair.
        let acked = match self.resent {
            Some(_) => arrived,
            None if has_ended => 0,
            None => newly,
        };
        self.change_phase(now_ns, if newly > 0 { acked } else { 0 });
        self.reduce(arrived, newly > 0 && lost == 0);
        if self.bbr.is_some() {
            self.pace(now_ns, ack, in_flight, lost);
        }
        self.filling = true;
        if self.is_blocked() && !self.asks {
            self.ask_later(now_ns);
        } else if self.asks && !self.is_blocked() {
            (self.asks, self.probes, self.deadline_ns) = (false, 0, None);
        }
    }

    /// Returns the number of packets that an acknowledgement shows to be lost.
    fn find_lost(&mut self, ack: &Ack) -> u64 {
        let before = self.lost_to;
        // Linux wants as many to have arrived only for the first loss, and wherever they are.
        let repairs = match self.phase {
            Phase::Open => false,
            Phase::Recovery(until) | Phase::Timeout(until) => self.acked < until,
        };
        let is_sure = repairs || self.scoreboard.reported_len() >= u64::from(REORDERING_MAX);
        let enough = if self.resent.is_some() && is_sure { 1 } else { REORDERING_MAX };
        if let Some(seq) = self.scoreboard.nth_highest(enough) {
            self.lost_to = self.lost_to.max(seq);
        }
        let gaps = self.scoreboard.gaps_len(self.lost_to) - self.scoreboard.gaps_len(before);
        let Some(resent) = &mut self.resent else { return gaps };
        resent.acknowledged(ack.cumulative);
        ack.blocks().for_each(|block| resent.reported(block.start, block.end));
        gaps + resent.find_lost()
    }

    /// Lets the window come down with what arrives, while losses are repaired or after a mark.
    fn reduce(&mut self, arrived: u64, repairs: bool) {
        let in_flight = self.in_flight();
        if let Some(reduction) = &mut self.reduction {
            reduction.on_acked(arrived, in_flight, repairs);
        }
    }

    /// Returns true if only the receiver's window keeps it from sending: nothing is under way, so that nobody would
    /// tell it if it did not ask (RFC 9293, section 3.8.6.1).
    pub(super) fn is_blocked(&self) -> bool {
        self.acked == self.sent_end && self.sent_end >= self.edge && self.sent_end < self.data_end
    }

    fn ask_later(&mut self, now_ns: u64) {
        let wait_ns = self.rto.timeout_ns().saturating_mul(1 << self.probes.min(16));
        self.deadline_ns = Some(now_ns.saturating_add(wait_ns.min(PROBE_NS_MAX)));
        self.asks = true;
    }

    /// Asks the receiver whether it has room: with a packet that it has already.
    pub(super) fn ask(&mut self, now_ns: u64) {
        self.probe = Some(self.acked.saturating_sub(1));
        self.probes += 1;
        self.ask_later(now_ns);
    }

    /// Returns the packet that asks, once.
    pub(super) fn take_probe(&mut self) -> Option<u64> {
        self.probe.take()
    }

    /// What is in flight; a retransmission that goes first is not on its way yet.
    fn in_flight(&self) -> u64 {
        self.pipe().saturating_sub(u64::from(self.forced.is_some()))
    }

    /// Lets BBR know of an acknowledgement that shows so many packets to be lost; `in_flight` is from before it.
    fn pace(&mut self, now_ns: u64, ack: &Ack, in_flight: u64, lost: u64) {
        let facts = Acked {
            now_ns,
            round_ns: now_ns.saturating_sub(ack.echo_ns),
            in_flight: (in_flight, self.in_flight()),
            lost,
            repair: match self.phase {
                Phase::Open => Repair::None,
                Phase::Recovery(_) => Repair::Recovery,
                Phase::Timeout(_) => Repair::Timeout,
            },
        };
        let Some(bbr) = &mut self.bbr else { return };
        bbr.rates.acknowledged(ack.cumulative);
        ack.blocks().for_each(|block| bbr.rates.reported(block.start, block.end));
        bbr.on_acked(facts);
    }

    fn advance(&mut self, now_ns: u64, ack: &Ack) {
        self.acked = ack.cumulative;
        self.scoreboard.advance(self.acked);
        self.lost_to = self.lost_to.max(self.acked);
        if self.acked >= self.measure_at {
            self.rto.measure(now_ns.saturating_sub(ack.echo_ns));
            self.measure_at = self.sent_end + 1;
        }
        if self.acked < self.sent_end {
            self.set_timer(now_ns);
        } else {
            self.deadline_ns = None;
        }
    }

    /// Leaves the repair of losses, or the window of data after a mark, once all of it is acknowledged; returns true if losses
    /// are repaired now.
    fn end_repair(&mut self) -> bool {
        match self.phase {
            Phase::Recovery(until) if self.acked >= until => {
                (self.phase, self.reduction) = (Phase::Open, None);
                return true;
            }
            Phase::Open if self.acked >= self.reduced_to => self.reduction = None,
            _ => {}
        }
        false
    }

    /// Lowers the window: at once, or with what arrives.
    fn cut(&mut self) {
        let before = self.window.packets() as u64;
        self.window.on_loss(self.sent_end - self.acked);
        if self.reduces_by_arrivals {
            self.reduction = Some(Reduction::new(before, self.window.packets() as u64));
        }
    }

    /// Grows by so many acknowledged packets, and begins to repair what is lost.
    fn change_phase(&mut self, now_ns: u64, acked: u64) {
        if matches!(self.phase, Phase::Recovery(_)) {
            return;
        }
        self.grow(now_ns, acked);
        if matches!(self.phase, Phase::Timeout(until) if self.acked >= until) {
            self.phase = Phase::Open;
        }
        if self.phase == Phase::Open && self.lost_to > self.acked {
            self.begin_repair(now_ns);
        }
    }

    fn begin_repair(&mut self, now_ns: u64) {
        let is_reduced = self.acked < self.reduced_to;
        let until =
            if is_reduced && self.reduces_by_arrivals { self.reduced_to } else { self.sent_end };
        self.phase = Phase::Recovery(until);
        if !is_reduced {
            self.cut();
        }
        // What the repair before has retransmitted, Linux does not send again.
        if self.resent.is_none() || !self.scoreboard.filled(self.acked) {
            self.scoreboard.fill(self.acked);
            self.forced = Some(self.acked);
        }
        self.set_timer(now_ns);
    }

    fn grow(&mut self, now_ns: u64, acked: u64) {
        // Not in the window of data in which it was reduced for a mark.
        if acked == 0 || self.acked < self.reduced_to {
            return;
        }
        if self.acked == acked && self.grow_after_syn {
            self.window.begin(self.initial_window);
        } else if self.window_full {
            self.window.on_acked(now_ns, acked, self.rto.round_ns().unwrap_or(0));
        }
    }

    /// Returns true if a timeout is no reason to lower the threshold once more.
    fn has_cut(&self) -> bool {
        match self.phase {
            Phase::Timeout(_) => self.scoreboard.filled(self.acked),
            // Linux has one reduction for a window of data.
            Phase::Recovery(until) => self.resent.is_some() && self.acked < until,
            Phase::Open => self.resent.is_some() && self.acked < self.reduced_to,
        }
    }

    pub(super) fn on_timeout(&mut self, now_ns: u64) {
        let repeated = self.has_cut();
        self.window.on_timeout(self.sent_end - self.acked, repeated);
        if let Some(bbr) = &mut self.bbr {
            bbr.on_timeout();
        }
        self.phase = Phase::Timeout(self.sent_end);
        self.reduction = None;
        if let Some(resent) = &mut self.resent {
            resent.on_timeout();
        }
        if self.acked == 0 {
            // The SYN was lost: begin the data carefully (RFC 5681, section 3.1).
            self.initial_window = 1;
        }
        self.scoreboard.unfill();
        self.lost_to = self.sent_end;
        self.forced = None;
        self.filling = true;
        // The echo shows which transmission was answered: no need to wait for new data.
        self.measure_at = self.acked + 1;
        self.rto.back_off();
        self.set_timer(now_ns);
    }

    pub(super) fn next_segment(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        self.paced_until_ns = None;
        let in_flight = self.bbr.as_ref().map_or(0, |_| self.pipe());
        let segment = self.segment_to_send(now_ns)?;
        if let Some(bbr) = &mut self.bbr {
            bbr.on_sent(now_ns, segment.0, in_flight);
        }
        if let Some(resent) = &mut self.resent {
            resent.on_sent(segment.0, segment.1);
        }
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent();
        }
        Some(segment)
    }

    fn segment_to_send(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        if let Some(seq) = self.forced.take() {
            return Some((seq, true));
        }
        if !self.filling {
            return None;
        }
        if self.acked == self.data_end {
            // There is nothing to wait for either.
            (self.filling, self.window_full) = (false, false);
            return None;
        }
        if let Some(bbr) = &self.bbr
            && bbr.release_ns() > now_ns
        {
            self.paced_until_ns = Some(bbr.release_ns());
            return None;
        }
        let Some(seq) = self.choose() else {
            self.filling = false;
            return None;
        };
        let resent = seq < self.sent_end;
        if resent {
            self.scoreboard.fill(seq);
        } else {
            self.sent_end = seq + 1;
        }
        // Linux's begins again when the first packet that is missing goes once more.
        let is_first = self.resent.is_some() && resent && seq == self.acked;
        if self.deadline_ns.is_none() || is_first {
            self.set_timer(now_ns);
        }
        Some((seq, resent))
    }

    fn choose(&mut self) -> Option<u64> {
        let counts_as_sent = if self.phase == Phase::Open && !self.limited_transmit {
            self.sent_end - self.acked
        } else {
            self.pipe()
        };
        let window = self.reduction.map_or(self.window() as u64, |reduction| reduction.window());
        self.window_full = counts_as_sent >= window.max(1);
        if self.window_full {
            return None;
        }
        if self.phase != Phase::Open
            && let Some(lost) = self.resent.as_ref().and_then(|resent| resent.first_lost())
        {
            return Some(lost);
        }
        if self.phase != Phase::Open
            && let Some(gap) = self.scoreboard.first_gap(self.lost_to)
        {
            return Some(gap);
        }
        let limit = self.data_end.min(self.edge);
        (self.sent_end < limit).then_some(self.sent_end)
    }

    fn set_timer(&mut self, now_ns: u64) {
        self.deadline_ns = Some(now_ns.saturating_add(self.rto.timeout_ns()));
    }
}

#[cfg(test)]
mod tests;
