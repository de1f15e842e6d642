//! Which flows have gone through which context of late.

use dwell_base::Instant;

/// Places for flows; a flow has one of [`WAYS`] in a set.
const SETS: usize = 1_024;
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Binding {
    flow: u64,
    context: u8,
    at: Instant,
}

/// The flows that have gone through contexts of late: what else is sent of them must keep its place
/// among their packets there. Of more flows than there are places the oldest are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// Empty until the first flow comes.
    sets: Vec<[Option<Binding>; WAYS]>,
}

impl Bindings {
    /// A packet of the flow goes through the context.
    pub(crate) fn bind(&mut self, now: Instant, flow: u64, context: u8) {
        if self.sets.is_empty() {
            self.sets.resize(SETS, [None; WAYS]);
        }
        let set = &mut self.sets[flow as usize % SETS];
        let same = set.iter().position(|it| it.is_some_and(|it| it.flow == flow));
        let oldest = || {
            let ages = set.iter().enumerate().map(|(at, it)| (it.map(|it| it.at), at));
            ages.min().map_or(0, |(_, at)| at)
        };
        let at = same.unwrap_or_else(oldest);
        set[at] = Some(Binding { flow, context, at: now });
    }

    /// The context that the flow went through less than `bound_ns` ago.
    pub(crate) fn context_of(&self, now: Instant, flow: u64, bound_ns: u64) -> Option<u8> {
        let set = self.sets.get(flow as usize % SETS)?;
        let binding = set.iter().flatten().find(|it| it.flow == flow)?;
        (now.since_ns(binding.at) < bound_ns).then_some(binding.context)
    }

    /// The context has other flows from now on.
    pub(crate) fn forget(&mut self, context: u8) {
        for binding in self.sets.iter_mut().flatten() {
            if binding.is_some_and(|it| it.context == context) {
                *binding = None;
            }
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.sets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn a_flow_is_bound_for_a_while_and_to_the_latest_context() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.context_of(at(0), 7, 100), None);
        bindings.bind(at(0), 7, 1);
        assert_eq!(bindings.context_of(at(99), 7, 100), Some(1));
        assert_eq!(bindings.context_of(at(100), 7, 100), None);
        bindings.bind(at(50), 7, 2);
        assert_eq!(bindings.context_of(at(149), 7, 100), Some(2));
        assert_eq!(bindings.context_of(at(50), 8, 100), None);
        bindings.forget(2);
        assert_eq!(bindings.context_of(at(50), 7, 100), None);
    }

    #[test]
    fn the_oldest_make_room_and_there_is_an_end_to_it() {
        let mut bindings = Bindings::default();
        for turn in 0..6 {
            bindings.bind(at(turn), 3 + turn * SETS as u64, 0);
        }
        let known = (0..6)
            .filter(|turn| bindings.context_of(at(6), 3 + turn * SETS as u64, u64::MAX).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [2, 3, 4, 5]);
        for flow in 0..100_000 {
            bindings.bind(at(flow), flow, 0);
        }
        assert_eq!(bindings.sets.len(), SETS);
        bindings.clear();
        assert_eq!(bindings.context_of(at(0), 99_999, u64::MAX), None);
    }
}
