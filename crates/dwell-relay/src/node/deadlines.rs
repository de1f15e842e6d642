//! The times for which packets of a class may be held back to fill a datagram, and how well these
//! times are kept.
//!
//! W = Q − (X + D), Sawabe et al., section 3.2: Q is what the class accepts (`max_wait`), D the
//! path to the peer, X what the relays themselves need. D is half of the smoothed round trip,
//! which is right if both directions take equally long: clocks of two nodes can't show more without
//! something that both trust. Who knows D configures it.
//!
//! Of X one frame's time is a reserve: a packet whose W is over may find the link at work on another
//! frame, which nobody can call back. In the paper a frame takes a seventh of the shortest W at most, on
//! thin links it may take all of it. So a packet that uses the reserve is sent after its W, but
//! not too late.

use dwell_base::time::MICRO_NS;
use dwell_policy::{CLASSES_MAX, ClassTimers};
use dwell_report::status::DeadlineStatus;

use crate::config::ClassConfig;

/// The time allowed for waking up late, compressing and restoring.
const MARGIN_NS: u64 = 100 * MICRO_NS;
/// Smaller changes of W are not worth that everything that waits is queued again.
const STEP_NS: u64 = 50 * MICRO_NS;

#[derive(Clone, Debug)]
struct Class {
    name: String,
    max_wait_ns: u64,
    /// W; zero if a packet can't be held back at all.
    deadline_ns: u64,
    packets: u64,
    past_deadline: u64,
    late: u64,
    excess_sum_ns: u64,
    excess_max_ns: u64,
}

/// The deadlines of the classes on the path to one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    /// In the order of the configuration; those without a `max_wait` are none.
    classes: Vec<Option<Class>>,
    /// Smoothed.
    rtt_ns: Option<u64>,
    /// The time that a packet may wait for the link beyond its W.
    reserve_ns: u64,
}

impl Deadlines {
    /// Takes the classes of a configuration. Accounts of those that stay are kept.
    pub(crate) fn configure(&mut self, classes: &[ClassConfig]) {
        let before = std::mem::take(&mut self.classes);
        self.classes.extend(classes.iter().map(|class| {
            let max_wait_ns = class.max_wait_ns?;
            let known = before.iter().flatten().find(|known| known.name == class.name);
            let fresh = Class {
                name: class.name.clone(),
                max_wait_ns,
                deadline_ns: 0,
                packets: 0,
                past_deadline: 0,
                late: 0,
                excess_sum_ns: 0,
                excess_max_ns: 0,
            };
            Some(known.map_or(fresh, |known| Class { max_wait_ns, ..known.clone() }))
        }));
    }

    /// True if packets of some class may be held back.
    pub(crate) fn any(&self) -> bool {
        self.classes.iter().any(Option::is_some)
    }

    /// A round trip was measured.
    pub(crate) fn measured(&mut self, rtt_ns: u64) {
        self.rtt_ns = Some(match self.rtt_ns {
            Some(smoothed) => smoothed - smoothed / 8 + rtt_ns / 8,
            None => rtt_ns,
        });
    }

    /// Forgets what was measured: the path to the peer may be another one.
    pub(crate) fn forget(&mut self) {
        self.rtt_ns = None;
    }

    /// D: as configured, or as measured; unknown before the first round trip.
    pub(crate) fn one_way_ns(&self, configured_ns: Option<u64>) -> Option<u64> {
        configured_ns.or(self.rtt_ns.map(|rtt_ns| rtt_ns / 2))
    }

    /// Computes W again; true if it changed by enough to configure the port. While D is unknown
    /// nothing is held back. `frame_ns` is what the link needs for a full datagram: once for the
    /// packet's own, and once for one that it finds on the link.
    pub(crate) fn refresh(&mut self, configured_ns: Option<u64>, frame_ns: u64) -> bool {
        let taken_ns = self
            .one_way_ns(configured_ns)
            .map_or(u64::MAX, |delay_ns| delay_ns.saturating_add(2 * frame_ns + MARGIN_NS));
        self.reserve_ns = frame_ns;
        let mut changed = false;
        for class in self.classes.iter_mut().flatten() {
            let deadline_ns = class.max_wait_ns.saturating_sub(taken_ns);
            let gone = (deadline_ns == 0) != (class.deadline_ns == 0);
            if gone || deadline_ns.abs_diff(class.deadline_ns) > STEP_NS {
                class.deadline_ns = deadline_ns;
                changed = true;
            }
        }
        changed
    }

    /// W of a class.
    pub(crate) fn deadline_ns(&self, class: Option<usize>) -> u64 {
        let found = class.and_then(|class| self.classes.get(class)?.as_ref());
        found.map_or(0, |class| class.deadline_ns)
    }

    /// The shortest W of all that are held back at all.
    pub(crate) fn deadline_min_ns(&self) -> Option<u64> {
        self.classes.iter().flatten().map(|class| class.deadline_ns).filter(|&ns| ns > 0).min()
    }

    /// The timers of queues that separate classes; none if no packet is held back.
    pub(crate) fn timers(&self) -> Option<ClassTimers> {
        let mut timers: Vec<u64> = self
            .classes
            .iter()
            .flatten()
            .map(|class| class.deadline_ns)
            .filter(|&ns| ns > 0)
            .collect();
        timers.sort_unstable();
        timers.dedup();
        timers.truncate(CLASSES_MAX);
        ClassTimers::new(&timers).ok()
    }

    /// Counts a packet of this class that was sent, with its queueing delay.
    pub(crate) fn sent(&mut self, class: Option<usize>, sojourn_ns: u64) {
        let found = class.and_then(|class| self.classes.get_mut(class)?.as_mut());
        let Some(class) = found else { return };
        class.packets += 1;
        // What is not held back at all can't be late by being held back.
        if class.deadline_ns == 0 || sojourn_ns <= class.deadline_ns {
            return;
        }
        class.past_deadline += 1;
        let excess_ns = (sojourn_ns - class.deadline_ns).saturating_sub(self.reserve_ns);
        if excess_ns > 0 {
            class.late += 1;
            class.excess_sum_ns += excess_ns;
            class.excess_max_ns = class.excess_max_ns.max(excess_ns);
        }
    }

    /// For reports.
    pub(crate) fn status(&self) -> Vec<DeadlineStatus> {
        let status = |class: &Class| DeadlineStatus {
            class: class.name.clone(),
            max_wait_ns: class.max_wait_ns,
            deadline_ns: class.deadline_ns,
            packets: class.packets,
            past_deadline: class.past_deadline,
            late: class.late,
            excess_mean_ns: class.excess_sum_ns.checked_div(class.late).unwrap_or(0),
            excess_max_ns: class.excess_max_ns,
        };
        self.classes.iter().flatten().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::time::MILLI_NS;

    use super::*;

    fn class(name: &str, max_wait_ms: Option<u64>) -> ClassConfig {
        ClassConfig {
            name: name.to_owned(),
            dscp: Vec::new(),
            protocols: Vec::new(),
            ports: Vec::new(),
            prefixes: Vec::new(),
            max_wait_ns: max_wait_ms.map(|ms| ms * MILLI_NS),
            compress: true,
            history: None,
            retransmit: true,
        }
    }

    #[test]
    fn the_way_is_taken_off() {
        let mut deadlines = Deadlines::default();
        deadlines.configure(&[class("a", Some(5)), class("b", None), class("c", Some(20))]);
        deadlines.refresh(None, MILLI_NS);
        assert_eq!((deadlines.deadline_ns(Some(2)), deadlines.timers()), (0, None), "D is unknown");
        deadlines.measured(10 * MILLI_NS);
        assert!(deadlines.refresh(None, MILLI_NS));
        // 5 ms are less than 5 + 2 + 0.1.
        assert_eq!(deadlines.deadline_ns(Some(0)), 0);
        assert_eq!(deadlines.deadline_ns(Some(1)), 0);
        assert_eq!(deadlines.deadline_ns(Some(2)), 12_900_000);
        assert_eq!(deadlines.deadline_ns(None), 0);
        assert_eq!(deadlines.deadline_min_ns(), Some(12_900_000));
        assert!(!deadlines.refresh(None, MILLI_NS + 1_000), "too small a change");
        assert!(deadlines.refresh(Some(MILLI_NS), MILLI_NS));
        let timers = deadlines.timers().expect("two classes are held");
        assert_eq!(timers.as_slice(), [1_900_000, 16_900_000]);
        assert_eq!(deadlines.deadline_min_ns(), Some(1_900_000));
    }

    #[test]
    fn violations_are_counted_with_their_excess() {
        let mut deadlines = Deadlines::default();
        deadlines.configure(&[class("a", Some(5))]);
        deadlines.refresh(Some(0), 0);
        for sojourn_ns in [1, 4_900_000, 4_900_010, 4_900_030] {
            deadlines.sent(Some(0), sojourn_ns);
        }
        deadlines.sent(None, u64::MAX);
        let status = deadlines.status();
        assert_eq!((status[0].packets, status[0].past_deadline, status[0].late), (4, 2, 2));
        assert_eq!((status[0].excess_mean_ns, status[0].excess_max_ns), (20, 30));
        // With frames of a millisecond 2.9 are left, and the reserve reaches up to 3.9.
        deadlines.refresh(Some(0), MILLI_NS);
        for sojourn_ns in [2_900_000, 2_900_001, 3_900_000, 3_900_040] {
            deadlines.sent(Some(0), sojourn_ns);
        }
        let status = deadlines.status();
        assert_eq!((status[0].packets, status[0].past_deadline, status[0].late), (8, 5, 3));
        assert_eq!(status[0].excess_max_ns, 40);
        // A reload keeps the accounts of the class.
        deadlines.configure(&[class("b", Some(1)), class("a", Some(6))]);
        assert_eq!(deadlines.status()[1].late, 3);
    }
}
