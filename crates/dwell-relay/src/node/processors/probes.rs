//! Moments at which the other way is tried than what is planned: what is done rarely is not learned of otherwise.
//!
//! Where all goes raw a probe compresses all, and the reverse. That costs what the plan saves, so the same plan under
//! the same circumstances is doubted more and more rarely.

/// A probe takes so many windows, or one where what both ways cost is known already, ...
const WINDOWS: u32 = 2;
/// ... of so many from the beginning of one to that of the next, or up to so many times as many where the
/// latest ones have confirmed what was planned.
const APART_WINDOWS: u32 = 48;
const TIMES_MAX: u32 = 16;
/// One in which compressing is tried takes up to so many more if it has shown nothing: codecs that are due are tried as soon as
/// something is compressed, and while they are nothing is learned of what bytes cost.
const MORE_WINDOWS: u32 = 3;
/// The first one comes so many windows after the beginning.
const FIRST_WINDOWS: u32 = 12;
/// Under other circumstances, by so many times, earlier ones have confirmed nothing.
const CHANGE: f64 = 1.25;

/// What a plan for a peer is made by, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Planned {
    /// Bytes a second.
    pub(super) link: f64,
    /// What compressing leaves.
    pub(super) ratio: f64,
    /// Processors that may be had.
    pub(super) quota: f64,
    /// As good as nothing should be compressed.
    pub(super) is_raw: bool,
}

impl Planned {
    fn differs(self, before: Self) -> bool {
        let is_other = |now: f64, before: f64| now.max(before) > CHANGE * now.min(before);
        self.is_raw != before.is_raw
            || is_other(self.link, before.link)
            || is_other(self.ratio, before.ratio)
            || is_other(self.quota, before.quota)
    }
}

/// When the other way is tried, of all peers at once: what a byte costs is learned of all together.
#[derive(Debug)]
pub(super) struct Probes {
    /// Windows since the latest began, and how many it takes.
    windows: u32,
    length: u32,
    /// How many times the usual number of windows are between it and the next.
    times: u32,
    /// It showed what a byte costs the other way.
    has_shown: bool,
    /// There was one.
    has_begun: bool,
    /// What was planned for each peer when it began; nothing of those of which nothing was known.
    then: Vec<Option<Planned>>,
}

impl Probes {
    pub(super) fn new() -> Self {
        let windows = APART_WINDOWS - FIRST_WINDOWS;
        Self {
            windows,
            length: WINDOWS,
            times: 1,
            has_shown: false,
            has_begun: false,
            then: Vec::new(),
        }
    }

    /// Returns true if the other way is tried now for a peer for which as good as nothing should be compressed, or for
    /// another one.
    pub(super) fn are_on(&self, is_raw: bool) -> bool {
        let would_compress = || self.then.iter().flatten().any(|planned| planned.is_raw);
        let goes_on = is_raw && !self.has_shown && would_compress();
        // What was compressed before leaves in the first of those in which nothing is.
        let length = if is_raw { self.length } else { WINDOWS };
        self.windows < length + if goes_on { MORE_WINDOWS } else { 0 }
    }

    /// In the window that is over it was seen what a byte costs, raw or compressed.
    pub(super) fn saw(&mut self, is_raw: bool) {
        let is_shown = |planned: &Planned| planned.is_raw != is_raw && self.are_on(planned.is_raw);
        self.has_shown |= self.then.iter().flatten().any(is_shown);
    }

    /// A window is over, and this is planned now; `are_costs_known` if both ways were seen, and `is_clear` if compressing was
    /// seen to cost far too much.
    pub(super) fn next(
        &mut self,
        planned: Vec<Option<Planned>>,
        are_costs_known: bool,
        is_clear: bool,
    ) {
        self.windows += 1;
        if is_clear && !self.has_begun && planned.iter().flatten().all(|it| it.is_raw) {
            // What the first one would show has been seen.
            (self.windows, self.has_begun) = (WINDOWS + MORE_WINDOWS, true);
            self.then = planned;
            return;
        }
        let is_as_before = self.is_as_before(&planned);
        if !is_as_before {
            self.times = 1;
        }
        if self.windows >= APART_WINDOWS * self.times {
            // Nothing is confirmed by a window in which nothing went.
            let is_confirmed = is_as_before && self.has_shown;
            self.times = if is_confirmed { (2 * self.times).min(TIMES_MAX) } else { 1 };
            (self.windows, self.has_shown) = (0, false);
            self.has_begun = true;
            self.length = if are_costs_known { 1 } else { WINDOWS };
            self.then = planned;
        }
    }

    fn is_as_before(&self, planned: &[Option<Planned>]) -> bool {
        let is_same = |(now, before): (&Option<Planned>, &Option<Planned>)| match (now, before) {
            (Some(now), Some(before)) => !now.differs(*before),
            (now, before) => now.is_none() && before.is_none(),
        };
        self.then.len() == planned.len()
            && planned.iter().any(Option::is_some)
            && planned.iter().zip(&self.then).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: Planned = Planned { link: 25e6, ratio: 0.4, quota: 0.1, is_raw: true };

    /// The windows of so many in which the other way is tried.
    fn tried(probes: &mut Probes, windows: u32, planned: Planned) -> Vec<u32> {
        let is_tried = |_: &u32| {
            probes.saw(!planned.is_raw);
            probes.next(vec![Some(planned)], true, false);
            probes.are_on(true)
        };
        (1..=windows).filter(is_tried).collect()
    }

    #[test]
    fn a_window_in_which_nothing_goes_confirms_nothing() {
        let mut probes = Probes::new();
        let is_tried = |_: &u32| {
            // What goes by the plan shows nothing of the other way.
            probes.saw(RAW.is_raw);
            probes.next(vec![Some(RAW)], true, false);
            probes.are_on(true)
        };
        let tried: Vec<_> = (1..=1_000).filter(is_tried).collect();
        let begins: Vec<_> = tried.iter().step_by(1 + MORE_WINDOWS as usize).collect();
        assert!(begins.windows(2).all(|it| it[1] - it[0] == APART_WINDOWS), "{tried:?}");
        assert!(tried.chunks(4).all(|it| it[it.len() - 1] - it[0] <= MORE_WINDOWS), "{tried:?}");
    }

    #[test]
    fn compressing_is_tried_until_a_window_shows_what_it_costs() {
        let mut probes = Probes::new();
        let mut on = Vec::new();
        for window in 1..=3 * APART_WINDOWS {
            probes.next(vec![Some(RAW)], true, false);
            if probes.are_on(true) {
                on.push(window);
            }
            // Codecs are tried in the first window of each.
            if on.len() >= 2 && on[on.len() - 1] == on[on.len() - 2] + 1 {
                probes.saw(false);
            }
        }
        let (first, apart) = (FIRST_WINDOWS, APART_WINDOWS);
        assert_eq!(on, [first, first + 1, first + apart, first + apart + 1]);
    }

    #[test]
    fn what_is_confirmed_is_doubted_more_and_more_rarely() {
        let mut probes = Probes::new();
        let begins = tried(&mut probes, 5_000, RAW);
        assert_eq!(begins[0], FIRST_WINDOWS);
        let apart: Vec<_> = begins.windows(2).map(|it| (it[1] - it[0]) / APART_WINDOWS).collect();
        assert_eq!(apart, [1, 2, 4, 8, 16, 16, 16, 16, 16]);
    }

    #[test]
    fn under_other_circumstances_nothing_is_confirmed() {
        let others = [
            Planned { link: 19e6, ..RAW },
            Planned { ratio: 0.3, ..RAW },
            Planned { quota: 0.13, ..RAW },
            Planned { is_raw: false, ..RAW },
        ];
        for other in others {
            let mut probes = Probes::new();
            tried(&mut probes, 3_000, RAW);
            // At once if it is due then, and as often as in the beginning.
            let begins = tried(&mut probes, 3 * APART_WINDOWS, other);
            assert!(begins[0] <= APART_WINDOWS && begins.len() >= 2, "{other:?}: {begins:?}");
            assert!(begins[1] - begins[0] <= 2 * APART_WINDOWS, "{other:?}: {begins:?}");
        }
        // A little other is the same.
        let mut probes = Probes::new();
        tried(&mut probes, 3_000, RAW);
        let near = Planned { link: 21e6, ratio: 0.45, quota: 0.09, ..RAW };
        assert!(tried(&mut probes, 16 * APART_WINDOWS, near).len() <= 1);
    }

    #[test]
    fn what_is_not_known_yet_takes_longer_and_is_never_confirmed() {
        let mut probes = Probes::new();
        let is_tried = |_: &u32| {
            probes.next(vec![None], false, false);
            probes.are_on(true)
        };
        let tried: Vec<_> = (1..=100).filter(is_tried).collect();
        assert_eq!(tried, [12, 13, 60, 61]);
    }

    #[test]
    fn what_was_seen_to_cost_far_too_much_is_not_tried_again_at_once() {
        let mut probes = Probes::new();
        let is_on = |window: &u32| {
            probes.next(vec![Some(RAW)], true, *window == 1);
            probes.are_on(true)
        };
        let on: Vec<_> = (0..2 * APART_WINDOWS).filter(is_on).collect();
        assert_eq!(on[0], 1 + APART_WINDOWS - WINDOWS - MORE_WINDOWS, "{on:?}");
    }

    #[test]
    fn who_has_all_compressed_does_not_wait_for_what_others_show() {
        let mut probes = Probes::new();
        let compressed = Planned { is_raw: false, ..RAW };
        let mut on = [0, 0];
        for _ in 0..APART_WINDOWS {
            probes.next(vec![Some(RAW), Some(compressed)], true, false);
            on[0] += u32::from(probes.are_on(true));
            on[1] += u32::from(probes.are_on(false));
        }
        assert_eq!(on, [1 + MORE_WINDOWS, WINDOWS]);
    }
}
