//! What relays carry where nothing changes, and where the link has less than is sent.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::status::RateSource;

use crate::end::Pace;

/// Shorter is not judged.
const LEAST_NS: u64 = 60 * SECOND_NS;
/// Of what the link takes as it is, so much comes at least. Most of the room below 1 is for headers: packets are as short as 37
/// bytes here.
const SHARE_MIN: f64 = 0.5;
/// A link is full if so many times more is sent than it takes.
const FULL: f64 = 1.5;
/// Of what a full link is sent, so much is compressed at least, if it can be and there is a processor for it.
const COMPRESSED_MIN: f64 = 0.05;
/// If so much of what is sent does not come, the link has to have been busy, ...
const DROPPED: f64 = 0.2;
/// ... for so much of the time, by what it was given.
const BUSY_MIN: f64 = 0.6;
/// With so much of a processor or more nothing else is the limit.
const PROCESSOR_MIN: f64 = 0.25;
/// A rate that was found for a full link is off if it is more than twice the link's, or less than half; more often than in so many of
/// the looks it is not.
const OFF_TIMES: f64 = 2.0;
const OFF_MAX: f64 = 0.5;

/// Where a relay is observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) link_bps: f64,
    pub(crate) cpu_share: f64,
}

/// One side, from some time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    since: Instant,
    before: Pace,
    /// How often it was looked, and how often the rate was off.
    looks: u32,
    off: u32,
}

/// What was seen of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// What came, as a share of what the link could take of it as it is.
    pub(crate) share: f64,
    /// The part of the looks in which the found rate was off; none if it was written, or the link was not full.
    /// A written rate above the link of the other end hides it: that end's reports are lost.
    pub(crate) off: Option<f64>,
    /// What the link was given, as a share of what it takes, if there was more to send than came. More than 1 is what its
    /// queue had no room for.
    pub(crate) busy: Option<f64>,
    /// What of it was compressed, if that may be judged.
    pub(crate) compressed: Option<f64>,
}

impl Pace {
    /// True if the written rate is more than the link's.
    pub(crate) fn is_above(&self, place: Place) -> bool {
        self.rate_source == RateSource::Configured && self.rate_bps > place.link_bps
    }
}

impl Watch {
    pub(crate) fn new(now: Instant, pace: Pace) -> Self {
        Self { since: now, before: pace, looks: 0, off: 0 }
    }

    /// Looks again.
    pub(crate) fn look(&mut self, pace: Pace, place: Place) {
        let times = pace.rate_bps / place.link_bps;
        self.looks += 1;
        self.off += u32::from(!(1.0 / OFF_TIMES..OFF_TIMES).contains(&times));
    }

    /// Returns what was seen until now; none if that is too short, or the written rate is not the link's.
    pub(crate) fn seen(&self, now: Instant, pace: Pace, place: Place) -> Option<Seen> {
        let elapsed_ns = now.since_ns(self.since);
        let is_found = pace.rate_source != RateSource::Configured;
        if elapsed_ns < LEAST_NS || pace.is_above(place) || place.cpu_share < PROCESSOR_MIN {
            return None;
        }
        let bps =
            |before: u64, after: u64| after.saturating_sub(before) as f64 * 8e9 / elapsed_ns as f64;
        let offered = bps(self.before.made_bytes, pace.made_bytes);
        let came = bps(self.before.arrived_bytes, pace.arrived_bytes);
        let takes = if is_found { place.link_bps } else { place.link_bps.min(pace.rate_bps) };
        let is_full = offered > FULL * takes;
        // What all arrives, compressed for a rate that is only assumed, fills no link.
        let is_short = came < (1.0 - DROPPED) * offered;
        let sent = pace.sent_packets.saturating_sub(self.before.sent_packets);
        let compressed = pace.compressed_packets.saturating_sub(self.before.compressed_packets);
        Some(Seen {
            share: came / offered.min(takes).max(1.0),
            off: (is_found && is_full && is_short)
                .then(|| f64::from(self.off) / f64::from(self.looks.max(1))),
            busy: is_short.then(|| bps(self.before.link_bytes, pace.link_bytes) / takes),
            compressed: (is_full && pace.is_compressible)
                .then(|| compressed as f64 / sent.max(1) as f64),
        })
    }
}

impl Seen {
    /// # Errors
    /// If something was locked out, or does not come to rest.
    pub(crate) fn check(&self, side: usize) -> Result<(), String> {
        if self.share < SHARE_MIN {
            return Err(format!("side {side} had {:.2} of what the link takes", self.share));
        }
        if let Some(busy) = self.busy.filter(|&busy| busy < BUSY_MIN) {
            return Err(format!(
                "side {side} left its link idle: it was given {busy:.2} of what it takes, and there was more to send"
            ));
        }
        if let Some(off) = self.off.filter(|&off| off > OFF_MAX) {
            return Err(format!(
                "side {side} found a rate that is not the link's in {off:.2} of the looks"
            ));
        }
        match self.compressed.filter(|&part| part < COMPRESSED_MIN) {
            Some(part) => {
                Err(format!("side {side} compressed {part:.3} of what a full link was sent"))
            }
            None => Ok(()),
        }
    }
}
