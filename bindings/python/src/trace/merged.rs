//! Captures merged by time, for replays and training.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_trace::replay::input::Input;
use dwell_trace::replay::merge::{Fault, Merge, MergeStep, Part, PartSource};

use super::source::{Place, Source};
use super::survey::Survey;

/// Captures that are read together, in the order of their packets.
pub(super) struct Merged {
    merge: Merge<Source>,
    /// The names of the captures, without those whose packets others have.
    names: Vec<String>,
}

impl Merged {
    /// Looks at captures and merges them; none if it was to stop.
    ///
    /// # Errors
    /// If one can't be read, as a sentence.
    pub(super) fn look(
        places: &[Arc<Place>],
        stop: &AtomicBool,
    ) -> Option<Result<(Self, Survey), String>> {
        let mut survey = Survey::default();
        let (mut parts, mut names) = (Vec::new(), Vec::new());
        for place in places {
            if let Err(why) = place.open() {
                return Some(Err(format!("{} can't be read: {why}", place.name)));
            }
            let looked = survey.look(place, stop);
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            if !looked.is_there {
                names.push(place.name.clone());
                // Opened again when it is needed: there may be thousands.
                let place = Arc::clone(place);
                let source = PartSource::Closed(Box::new(move || place.open()));
                parts.push(Part { first_ns: looked.first_ns, source });
            }
        }
        Some(Ok((Self { merge: Merge::of_parts(parts), names }, survey)))
    }

    /// Gives each packet to `take`; returns false if it was to stop.
    pub(super) fn each(&mut self, stop: &AtomicBool, mut take: impl FnMut(Input<'_>)) -> bool {
        loop {
            match self.merge.step() {
                MergeStep::Packet(input) => take(input),
                MergeStep::Skipped => {}
                MergeStep::End => return true,
            }
            if stop.load(Ordering::Relaxed) {
                return false;
            }
        }
    }

    /// Returns the number of frames, and of those without an IP packet.
    pub(super) fn frames(&self) -> (u64, u64) {
        (self.merge.frames(), self.merge.not_ip())
    }

    /// Returns the names of captures that were not read to the end, each with the reason.
    pub(super) fn faults(&self) -> Vec<(String, String)> {
        let faults = self.merge.faults().iter().map(|(at, fault)| {
            let why = match fault {
                Fault::Broken(trouble) => trouble.to_string(),
                Fault::Closed(why) => why.clone(),
            };
            (self.names.get(*at).cloned().unwrap_or_default(), why)
        });
        faults.collect()
    }
}
