//! The link that all peers share, divided among them.
//!
//! Where the slow link is this node's own (a branch's access line, a hub's modem), the rates to the peers add up:
//! each may be given what is written or was found for it, and together they fill a queue further on, out of which
//! who sends most gets most. With the shared link's rate known, every peer is paced at its share of it, so that
//! it waits here and for a link whose rate it knows, as if it had one of its own.
//!
//! The shares are those of generalized processor sharing (Parekh and Gallager, "A Generalized Processor
//! Sharing Approach to Flow Control in Integrated Services Networks: The Single-Node Case", 1993), by equal
//! weights: who wants less than an equal part gets what it wants, and the others divide what is left. They are divided again every
//! [`EVERY_NS`], and when somebody begins to wait. In between a peer that wakes up sends at the share that it would
//! have as one more; if that was too much for all together, it is taken off again.
//!
//! It is pure: times and counts are arguments.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_base::{Instant, Rate};

/// The link is divided again this often, ...
const EVERY_NS: u64 = 2 * MILLI_NS;
/// ... and sooner if somebody begins to wait, but not more often than this.
const AGAIN_NS: u64 = 250 * MICRO_NS;
/// What a peer sends, and how busy its share is, is averaged over about this.
const MEAN_NS: f64 = 40e6;
/// Of a peer that waits while its share idles for more than the rest of this something else is the limit.
const BUSY_LEAST: f64 = 0.9;
/// Such a peer keeps so much more than it sends, so that it is seen when it could send more.
const ROOM: f64 = 1.25;
/// What was sent beyond the link's rate is taken off again in about this time, ...
const PAID_NS: f64 = 50e6;
/// ... from no more than this part of it, ...
const PAID_PART_MAX: f64 = 0.5;
/// ... and only so much: a queue that is longer has lost the rest.
const OWED_NS_MAX: f64 = 250e6;
/// Two clocks differ by up to 200 millionths: without this a queue would grow in front of a link of just that rate.
const LEFT_OUT_PART: f64 = 400.0;
/// A link that idles while somebody waits for a share, since others use less of theirs than before, is divided as if it
/// had more, up to this, ...
const STRETCH_MAX: f64 = 2.0;
/// ... which it reaches in this time.
const STRETCH_NS: f64 = 50e6;
/// Nobody's share is less, unless an equal one is.
const SHARE_BPS_MIN: f64 = 8e3;
/// Of many peers it takes time to look at each: the link is divided more rarely by so much for each of them.
const EACH_NS: u64 = 5 * MICRO_NS;
/// What a share was of late is averaged over about this, while the peer waits for more.
const LASTING_NS: f64 = 1e9;

/// What is to be known of a peer when the link is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// All that was ever sent to it, with the headers of the link.
    pub(super) sent_bytes: u64,
    /// Something waits for its share of the link.
    pub(super) is_waiting: bool,
    /// When its share will have sent what it was given.
    pub(super) free_at: Instant,
    /// Its own link takes no more than this.
    pub(super) own: Option<Rate>,
}

/// What is remembered of a peer from one division to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sent_bytes: u64,
    /// What it sends, in bits per second.
    use_bps: f64,
    /// The part of the time in which its share was busy, since it began to wait.
    busy: f64,
    is_waiting: bool,
    /// What it wants; infinite if it takes whatever it gets.
    want_bps: f64,
    share_bps: f64,
    /// What its share was of late while it waited, if it ever did.
    lasting_bps: Option<f64>,
}

impl Part {
    /// Notes what the peer did for `elapsed_ns` until `now`.
    fn note(&mut self, want: &Want, (now, elapsed_ns): (Instant, f64)) {
        let bytes = want.sent_bytes.saturating_sub(self.sent_bytes);
        let part = elapsed_ns / (elapsed_ns + MEAN_NS);
        if elapsed_ns > 0.0 {
            self.use_bps += (bytes as f64 * 8e9 / elapsed_ns - self.use_bps) * part;
        }
        let idled_ns = (now.since_ns(want.free_at) as f64).min(elapsed_ns);
        self.busy = if want.is_waiting && self.is_waiting && elapsed_ns > 0.0 {
            self.busy + ((1.0 - idled_ns / elapsed_ns) - self.busy) * part
        } else {
            1.0
        };
        let own_bps = want.own.map_or(f64::INFINITY, |rate| rate.as_bps() as f64);
        self.want_bps = match want.is_waiting {
            true if self.busy >= BUSY_LEAST => own_bps,
            true => (self.use_bps * ROOM).min(own_bps),
            false => self.use_bps.min(own_bps),
        };
        (self.sent_bytes, self.is_waiting) = (want.sent_bytes, want.is_waiting);
        if self.is_waiting && self.share_bps > 0.0 {
            let lasting = self.lasting_bps.get_or_insert(self.share_bps);
            *lasting += (self.share_bps - *lasting) * elapsed_ns / (elapsed_ns + LASTING_NS);
        }
    }
}

/// The link that all peers share.
#[derive(Clone, Debug, Default)]
pub(super) struct Uplink {
    rate: Option<Rate>,
    parts: Vec<Part>,
    divided_at: Option<Instant>,
    /// What was sent beyond the link's rate: it waits in front of it.
    owed_bytes: f64,
    /// The link is divided as if its rate were so many times as high.
    stretch: f64,
    /// What peers want, the least first.
    wants: Vec<f64>,
}

impl Uplink {
    /// The rate of the link; none if nothing is shared, or nothing is known of it.
    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        if rate != self.rate {
            *self = Self { rate, stretch: 1.0, ..Self::default() };
        }
    }

    /// True if the link is to be divided, as this peer waits or does not.
    pub(super) fn is_due(
        &self,
        now: Instant,
        peer: usize,
        is_waiting: impl FnOnce() -> bool,
    ) -> bool {
        if self.rate.is_none() {
            return false;
        }
        let Some(at) = self.divided_at else { return true };
        let all_ns = self.parts.len() as u64 * EACH_NS;
        if now >= at + EVERY_NS.max(4 * all_ns) {
            return true;
        }
        let begins = || !self.parts.get(peer).is_some_and(|part| part.is_waiting) && is_waiting();
        now >= at + AGAIN_NS.max(all_ns) && begins()
    }

    /// Divides the link among these peers.
    pub(super) fn divide(&mut self, now: Instant, wants: impl Iterator<Item = Want>) {
        let Some(rate) = self.rate else { return };
        let rate_bps = rate.as_bps() as f64;
        let elapsed_ns = self.divided_at.map_or(0, |at| now.since_ns(at)) as f64;
        self.divided_at = Some(now);
        let (mut at, mut sent_bytes) = (0, 0);
        for want in wants {
            if at == self.parts.len() {
                self.parts.push(Part { sent_bytes: want.sent_bytes, busy: 1.0, ..Part::default() });
            }
            // Another peer in its place counts from nothing.
            sent_bytes += want.sent_bytes.saturating_sub(self.parts[at].sent_bytes);
            self.parts[at].note(&want, (now, elapsed_ns));
            at += 1;
        }
        self.parts.truncate(at);
        let could_bytes = rate_bps * elapsed_ns / 8e9;
        let owed_max = rate_bps * OWED_NS_MAX / 8e9;
        self.owed_bytes = (self.owed_bytes + sent_bytes as f64 - could_bytes).clamp(0.0, owed_max);
        self.stretch = self.stretched(elapsed_ns);
        self.share_out(self.to_divide_bps(rate_bps));
    }

    /// Returns how much more than its rate the link is to be divided as.
    fn stretched(&self, elapsed_ns: f64) -> f64 {
        if self.owed_bytes > 0.0 {
            return 1.0_f64.max(self.stretch / 2.0);
        }
        let any_waits = self.parts.iter().any(|part| part.is_waiting && part.busy >= BUSY_LEAST);
        let more = if any_waits { elapsed_ns / STRETCH_NS } else { 0.0 };
        (self.stretch + more).min(STRETCH_MAX)
    }

    fn to_divide_bps(&self, rate_bps: f64) -> f64 {
        let owed_bps = self.owed_bytes * 8e9 / PAID_NS;
        let usable_bps = rate_bps * (1.0 - 1.0 / LEFT_OUT_PART) * self.stretch;
        usable_bps - owed_bps.min(rate_bps * PAID_PART_MAX)
    }

    /// Who wants less than the level gets what it wants; the level is what the others get each.
    fn share_out(&mut self, all_bps: f64) {
        let Self { parts, wants, .. } = self;
        wants.clear();
        wants.extend(parts.iter().map(|part| part.want_bps).filter(|&bps| bps > 0.0));
        wants.sort_unstable_by(f64::total_cmp);
        let level_bps = level(all_bps, wants, 0);
        // Who takes less may want more, or wake up: it begins as one that takes all that it gets, with what nobody wants.
        let more_bps = level(all_bps, wants, 1);
        let left_bps = (all_bps - wants.iter().sum::<f64>()).max(0.0);
        let least_bps = SHARE_BPS_MIN.min(all_bps / parts.len().max(1) as f64);
        for part in parts {
            let share_bps = match part.want_bps >= level_bps {
                true => level_bps,
                false => more_bps.max(part.want_bps + left_bps),
            };
            part.share_bps = share_bps.max(least_bps);
        }
    }

    /// The share of a peer; none if nothing is shared. One that was not there yet begins with all of it.
    pub(super) fn share(&self, peer: usize) -> Option<Rate> {
        let part = self.parts.get(peer);
        part.map(|part| Rate::clamped_bps(part.share_bps as u64)).or(self.rate)
    }

    /// What the share of a peer was of late; none if nothing is shared, or it never waited for more.
    pub(super) fn lasting_share(&self, peer: usize) -> Option<Rate> {
        let lasting = self.parts.get(peer).and_then(|part| part.lasting_bps);
        lasting.map(|bps| Rate::clamped_bps(bps as u64)).or_else(|| self.share(peer))
    }
}

/// Returns what each gets that takes all that it gets, if they and those who want less divide this: these, the least first, and
/// so many more that take all. Infinite if nobody does.
fn level(all_bps: f64, wants: &[f64], more: usize) -> f64 {
    let mut left_bps = all_bps;
    for (at, &want_bps) in wants.iter().enumerate() {
        let equal_bps = left_bps / (wants.len() - at + more) as f64;
        if want_bps >= equal_bps {
            return equal_bps;
        }
        left_bps -= want_bps;
    }
    if more == 0 { f64::INFINITY } else { left_bps / more as f64 }
}

#[cfg(test)]
mod tests;
