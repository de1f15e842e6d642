//! Delivery rates: how many packets arrived in which time, sampled by each acknowledgement (Cheng, Cardwell, Yeganeh,
//! Jacobson, "Delivery Rate Estimation"; Linux's `tcp_rate.c`).

use std::collections::VecDeque;

/// The state when a packet was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ns: u64,
    /// Packets that had arrived, when the last of them was reported, and when it was sent.
    delivered: u64,
    delivered_ns: u64,
    first_ns: u64,
    has_arrived: bool,
}

/// The rates of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// The packets from this number on that are not acknowledged.
    from: u64,
    sent: VecDeque<Sent>,
    delivered: u64,
    delivered_ns: u64,
    first_ns: u64,
    /// What the present acknowledgement reports: its most recently sent packet, and the number of all.
    latest: Option<Sent>,
    acked: u64,
}

/// The sample of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Packets per second, if it shows any.
    pub(super) rate: Option<f64>,
    /// Packets that had arrived when the latest of those it reports was sent.
    pub(super) prior_delivered: u64,
    /// Packets that it reports.
    pub(super) acked: u64,
}

impl Rates {
    /// Packets that have arrived.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn on_sent(&mut self, now_ns: u64, seq: u64, in_flight: u64) {
        if in_flight == 0 {
            self.first_ns = now_ns;
            self.delivered_ns = now_ns;
        }
        let sent = Sent {
            at_ns: now_ns,
            delivered: self.delivered,
            delivered_ns: self.delivered_ns,
            first_ns: self.first_ns,
            has_arrived: false,
        };
        let Some(place) = seq.checked_sub(self.from) else { return };
        match self.sent.get_mut(place as usize) {
            Some(slot) if !slot.has_arrived => *slot = sent,
            Some(_) => {}
            None => self.sent.push_back(sent),
        }
    }

    /// Notes that packets up to `seq` are acknowledged.
    pub(super) fn acknowledged(&mut self, seq: u64) {
        while self.from < seq {
            let Some(sent) = self.sent.pop_front() else { break };
            if !sent.has_arrived {
                self.arrived(sent);
            }
            self.from += 1;
        }
        self.from = self.from.max(seq);
    }

    /// Notes that the packets of a block have arrived.
    pub(super) fn reported(&mut self, from: u64, until: u64) {
        let places = from.saturating_sub(self.from)..until.saturating_sub(self.from);
        for place in places.start as usize..(places.end as usize).min(self.sent.len()) {
            if !std::mem::replace(&mut self.sent[place].has_arrived, true) {
                self.arrived(self.sent[place]);
            }
        }
    }

    fn arrived(&mut self, sent: Sent) {
        self.delivered += 1;
        self.acked += 1;
        let is_later =
            |latest: &Sent| (sent.delivered, sent.at_ns) >= (latest.delivered, latest.at_ns);
        if self.latest.as_ref().is_none_or(is_later) {
            self.latest = Some(sent);
        }
    }

    /// Returns the sample of what was noted since the last one. Shorter than a round trip is no interval.
    pub(super) fn sample(&mut self, now_ns: u64, least_round_ns: u64) -> Sample {
        let acked = std::mem::take(&mut self.acked);
        let Some(latest) = self.latest.take() else {
            return Sample { rate: None, prior_delivered: 0, acked };
        };
        self.delivered_ns = now_ns;
        self.first_ns = latest.at_ns;
        let delivered = self.delivered - latest.delivered;
        let sending_ns = latest.at_ns.saturating_sub(latest.first_ns);
        let arriving_ns = now_ns.saturating_sub(latest.delivered_ns);
        let interval_ns = sending_ns.max(arriving_ns);
        let is_sound =
            interval_ns > 0 && (least_round_ns == u64::MAX || interval_ns >= least_round_ns);
        let rate = is_sound.then(|| delivered as f64 * 1e9 / interval_ns as f64);
        Sample { rate, prior_delivered: latest.delivered, acked }
    }
}
