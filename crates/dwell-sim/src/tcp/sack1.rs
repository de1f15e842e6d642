//! The sender that ns-2.35 calls `Agent/TCP/Sack1`, with its default settings.
//!
//! It differs from the RFCs in ways that show in the throughput: the pipe counts lost packets until
//! recovery ends, one retransmission each; while it recovers, a partial acknowledgement lets two
//! packets go; a timeout forgets the scoreboard and goes back to the first gap; and after it there
//! is no fast retransmit until all packets sent before it are acknowledged.

use super::config::TcpConfig;
use super::scoreboard::Scoreboard;
use super::segment::Ack;
use super::ticks::TickRto;

/// The number of duplicate acknowledgements that mean a loss.
const DUPLICATES_MAX: u32 = 3;
/// The congestion window after a timeout.
const WINDOW_AFTER_TIMEOUT: f64 = 1.0;
/// The least threshold of slow start.
const THRESHOLD_MIN: u64 = 2;

/// The state of a sender.
#[derive(Clone, Debug)]
pub(super) struct Sack1 {
    window_packets: u64,
    initial_window: u32,
    /// The window of the data begins with the acknowledgement of packet 0.
    grow_after_syn: bool,
    limited_transmit: bool,
    /// One past the last packet to send.
    data_end: u64,

    /// The next packet to send.
    next: u64,
    /// One past the highest packet that was ever sent.
    sent_end: u64,
    /// All before it are acknowledged.
    acked: u64,
    /// One past the highest packet that was sent when the last loss was found; zero if that
    /// recovery has ended.
    recover: u64,
    window: f64,
    threshold: u64,
    duplicates: u32,
    recovering: bool,
    /// Since the last timeout nothing new was acknowledged.
    after_timeout: bool,
    /// An estimate of the packets in flight, while recovering. Losses and duplicates can bring it
    /// below zero.
    pipe: i64,
    scoreboard: Scoreboard,

    /// Goes out before anything else.
    forced: Option<u64>,
    /// The window is to be filled.
    filling: bool,

    rto: TickRto,
    deadline_ns: Option<u64>,
    /// The packet whose round trip is measured, and when it was sent.
    timed: Option<(u64, u64)>,
}

impl Sack1 {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let window = if config.syn { 1 } else { config.initial_window };
        Self {
            window_packets: u64::from(config.window_packets),
            initial_window: config.initial_window,
            grow_after_syn: config.syn,
            limited_transmit: config.limited_transmit,
            data_end: config.packets.unwrap_or(u64::MAX),
            next: 0,
            sent_end: 0,
            acked: 0,
            recover: 0,
            window: f64::from(window),
            threshold: u64::from(config.initial_threshold.unwrap_or(config.window_packets)),
            duplicates: 0,
            recovering: false,
            after_timeout: false,
            pipe: 0,
            scoreboard: Scoreboard::new(),
            forced: None,
            filling: false,
            rto: TickRto::new(config),
            deadline_ns: None,
            timed: None,
        }
    }

    pub(super) fn start(&mut self) {
        self.filling = true;
    }

    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    pub(super) fn threshold(&self) -> f64 {
        self.threshold as f64
    }

    pub(super) fn recovering(&self) -> bool {
        self.recovering
    }

    pub(super) fn rto_ns(&self) -> u64 {
        self.rto.timeout_ns()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline_ns
    }

    pub(super) fn on_ack(&mut self, now_ns: u64, ack: &Ack) {
        if ack.cumulative > self.sent_end {
            return;
        }
        if self.recovering {
            self.on_ack_recovering(now_ns, ack);
        } else {
            self.on_ack_open(now_ns, ack);
        }
    }

    fn on_ack_open(&mut self, now_ns: u64, ack: &Ack) {
        if ack.cumulative > self.acked {
            self.advance(now_ns, ack.cumulative);
            self.open_window();
            if ack.cumulative == 1 && self.grow_after_syn {
                self.window = f64::from(self.initial_window);
            }
        } else if ack.cumulative == self.acked && !self.after_timeout && self.report(ack) > 0 {
            self.on_duplicate(now_ns);
        }
        self.filling = self.duplicates == 0;
    }

    fn on_duplicate(&mut self, now_ns: u64) {
        self.duplicates += 1;
        if self.duplicates == DUPLICATES_MAX {
            self.enter_recovery(now_ns);
        } else if self.duplicates < DUPLICATES_MAX && self.limited_transmit {
            self.send_beyond_window();
        }
    }

    /// Sends one packet more than the window holds (RFC 3042).
    fn send_beyond_window(&mut self) {
        let in_flight = (self.next + 1 - self.acked) as f64;
        if self.next < self.acked + self.window_packets
            && self.next < self.data_end
            && in_flight <= self.window + f64::from(self.duplicates)
        {
            self.forced = Some(self.next);
            self.next += 1;
        }
    }

    fn enter_recovery(&mut self, now_ns: u64) {
        // One reaction for one window of losses; right after the SYN there can't have been
        // an earlier one.
        if self.acked <= self.recover && self.acked != 1 {
            return;
        }
        self.recover = self.sent_end;
        self.pipe = (self.sent_end - self.acked) as i64 - i64::from(DUPLICATES_MAX);
        self.set_timer(now_ns);
        self.timed = None;
        self.recovering = true;
        self.scoreboard.fill(self.acked);
        let half = self.usable_window() / 2.0;
        self.window = half;
        self.threshold = (half as u64).max(THRESHOLD_MIN);
        self.forced = Some(self.acked);
    }

    fn on_ack_recovering(&mut self, now_ns: u64, ack: &Ack) {
        self.pipe -= 1;
        if ack.cumulative >= self.recover {
            self.recover = 0;
            self.recovering = false;
            self.advance(now_ns, ack.cumulative);
        } else if ack.cumulative > self.acked {
            self.acked = ack.cumulative;
            self.scoreboard.advance(self.acked);
            self.report(ack);
            // The packet that filled the gap has left the network as well.
            self.pipe -= 1;
            self.set_timer(now_ns);
            self.rto.end_backoff();
        } else {
            self.report(ack);
        }
        self.filling = true;
    }

    /// Handles the acknowledgement of all before `acked`: the state of recovery and timeouts is
    /// cleared.
    fn advance(&mut self, now_ns: u64, acked: u64) {
        self.duplicates = 0;
        self.acked = acked;
        self.next = self.next.max(acked);
        if let Some((seq, sent_ns)) = self.timed
            && acked > seq
        {
            self.timed = None;
            self.rto.end_backoff();
            self.rto.measure(now_ns, sent_ns);
        }
        if acked < self.data_end {
            self.set_timer(now_ns);
        } else {
            self.deadline_ns = None;
        }
        self.after_timeout = false;
        self.scoreboard.clear(acked);
    }

    fn open_window(&mut self) {
        self.window += if self.window < self.threshold as f64 { 1.0 } else { 1.0 / self.window };
    }

    /// Enters the blocks; returns the number of their packets that are news.
    fn report(&mut self, ack: &Ack) -> u64 {
        ack.blocks().map(|block| self.scoreboard.report(block, self.sent_end)).sum()
    }

    /// The timer expired.
    pub(super) fn on_timeout(&mut self, now_ns: u64) {
        self.duplicates = 0;
        self.recovering = false;
        self.after_timeout = true;
        self.recover = self.sent_end;
        self.scoreboard.clear(self.acked);
        self.forced = None;
        if self.acked == 0 {
            // The SYN was lost: begin the data carefully.
            self.initial_window = 1;
        }
        self.threshold = ((self.usable_window().max(1.0) / 2.0) as u64).max(THRESHOLD_MIN);
        self.window = WINDOW_AFTER_TIMEOUT;
        self.rto.back_off();
        self.set_timer(now_ns);
        self.timed = None;
        self.next = self.acked;
        self.filling = true;
    }

    /// Returns the next packet to send, and true if it was sent before.
    pub(super) fn next_segment(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        if let Some(seq) = self.forced.take() {
            return Some((seq, self.note_sent(now_ns, seq)));
        }
        if !self.filling {
            return None;
        }
        let Some(seq) = self.choose() else {
            self.filling = false;
            return None;
        };
        self.pipe += 1;
        self.next = self.next.max(seq + 1);
        Some((seq, self.note_sent(now_ns, seq)))
    }

    fn choose(&mut self) -> Option<u64> {
        let limit = self.acked + self.window_packets;
        if self.recovering {
            if self.pipe >= self.window as i64 {
                return None;
            }
            if let Some(gap) = self.scoreboard.next_gap() {
                self.scoreboard.fill(gap);
                return Some(gap);
            }
            return (self.next < limit.min(self.data_end)).then_some(self.next);
        }
        let limit = limit.min(self.acked + self.window as u64);
        (self.next < limit.min(self.data_end)).then_some(self.next)
    }

    /// Notes that `seq` is sent; returns true if it was sent before.
    fn note_sent(&mut self, now_ns: u64, seq: u64) -> bool {
        let nothing_outstanding = self.acked == self.sent_end;
        let resent = seq < self.sent_end;
        if !resent {
            self.sent_end = seq + 1;
            self.timed.get_or_insert((seq, now_ns));
        }
        if nothing_outstanding || self.deadline_ns.is_none() {
            self.set_timer(now_ns);
        }
        resent
    }

    fn usable_window(&self) -> f64 {
        self.window.min(self.window_packets as f64)
    }

    fn set_timer(&mut self, now_ns: u64) {
        self.deadline_ns = Some(now_ns.saturating_add(self.rto.timeout_ns()));
    }
}

#[cfg(test)]
mod tests;
