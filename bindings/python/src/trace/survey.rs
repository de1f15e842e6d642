//! A first look at captures: which direction packets go, and which captures are the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_trace::sides::Ends;
use dwell_trace::{Datagram, Fingerprint, Learner, Sides};
use ipnet::IpNet;
use pyo3::prelude::*;

use super::settings::wrong;
use super::source::Place;

/// Frames between two checks whether to stop.
const STOP_FRAMES: u64 = 1 << 16;

/// What tells the direction of packets.
pub(super) enum SidesBy {
    /// All go in one direction.
    OneWay,
    /// These prefixes are one side.
    Inside(Vec<IpNet>),
    /// All captures together.
    Together,
    /// Each capture by itself.
    Each,
}

impl SidesBy {
    /// Reads `"one-way"`, `"together"`, `"each"`, or a list of prefixes.
    pub(super) fn of(sides: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = sides.extract::<String>() {
            return match name.as_str() {
                "one-way" => Ok(Self::OneWay),
                "together" => Ok(Self::Together),
                "each" => Ok(Self::Each),
                other => Err(wrong(format!(
                    "sides are \"together\", \"each\", \"one-way\" or a list of prefixes, not {other:?}"
                ))),
            };
        }
        let prefixes = sides.extract::<Vec<String>>()?;
        let prefixes = prefixes.iter().map(|prefix| prefix.parse::<IpNet>().map_err(wrong));
        Ok(Self::Inside(prefixes.collect::<PyResult<_>>()?))
    }

    /// Returns the sides, if they are the same for all captures and known before.
    pub(super) fn given(&self) -> Option<Sides> {
        match self {
            Self::OneWay => Some(Sides::one_way()),
            Self::Inside(prefixes) => Some(Sides::inside(prefixes.clone())),
            Self::Together | Self::Each => None,
        }
    }
}

/// The survey of some captures.
#[derive(Default)]
pub(super) struct Survey {
    learner: Learner,
    seen: HashSet<Fingerprint>,
}

/// What a look at a capture found.
pub(super) struct Looked {
    /// The time of its first packet, if it has any.
    pub(super) first_ns: Option<u64>,
    /// Another one has the same packets.
    pub(super) is_there: bool,
}

impl Survey {
    /// Looks at a capture; one that can't be read says nothing.
    pub(super) fn look(&mut self, place: &Place, stop: &AtomicBool) -> Looked {
        let mut looked = Looked { first_ns: None, is_there: false };
        let Ok(mut capture) = place.open() else { return looked };
        let mut fingerprint = Fingerprint::default();
        while let Some(packet) = capture.next_packet() {
            fingerprint.see(&packet);
            if let Ok(found) = Datagram::find(&packet, 0) {
                if let Some(at_ns) = packet.timestamp_ns {
                    let first_ns = looked.first_ns.map_or(at_ns, |first_ns| first_ns.min(at_ns));
                    looked.first_ns = Some(first_ns);
                }
                self.learner.observe(&Ends::of(&packet), &found.info);
            }
            if fingerprint.frames().is_multiple_of(STOP_FRAMES) && stop.load(Ordering::Relaxed) {
                break;
            }
        }
        looked.is_there = fingerprint.frames() > 0 && !self.seen.insert(fingerprint);
        looked
    }

    /// Returns the sides that were found.
    pub(super) fn sides(self) -> Sides {
        self.learner.finish()
    }
}
