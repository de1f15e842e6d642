//! What waits for a processor, by peer: the next job is of the peer that was given the least time.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996), with processor time in the place of bytes. A
//! peer that had nothing to do saves nothing: it begins where those are that had. So a peer with one job
//! waits for at most one job of each other, however many these have.
//!
//! What is done for a peer because it sent something is *imposed*: the peer decides how much of it there
//! is, and a hostile one with nothing beside it would have every processor. So only a few of a peer's
//! imposed jobs run at a time.

use std::collections::{BTreeMap, VecDeque};

/// The jobs of peers that wait.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    lanes: BTreeMap<usize, Lane<T>>,
    /// The number of one peer's imposed jobs that run at a time at most, from 1.
    imposed_max: usize,
    /// The number of jobs that wait, and of those that were taken and are not done.
    len: usize,
    running: usize,
    /// How far the peer had come whose job was taken last, in nanoseconds.
    now_ns: u64,
}

/// A job that waits.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) job: T,
    pub(super) peer: usize,
    /// The expected time, in nanoseconds.
    pub(super) cost_ns: u64,
    /// The peer's traffic is the reason, and not what goes to it.
    pub(super) is_imposed: bool,
}

/// One peer's.
#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    imposed_running: usize,
    /// The time that it was given, or that others were while it had nothing to do, in nanoseconds.
    given_ns: u64,
}

/// A job that was taken, of a peer, which was charged so many nanoseconds for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charged<T> {
    pub(super) job: T,
    pub(super) peer: usize,
    pub(super) charged_ns: u64,
    pub(super) is_imposed: bool,
}

impl<T> Charged<T> {
    /// Parts the job, which goes back to whoever wants it, from what is left to be settled.
    pub(super) fn split(self) -> (T, Charged<()>) {
        let Self { job, peer, charged_ns, is_imposed } = self;
        (job, Charged { job: (), peer, charged_ns, is_imposed })
    }
}

impl<T> Lane<T> {
    /// Returns the place of the job that may be taken next.
    fn next(&self, imposed_max: usize) -> Option<usize> {
        let may_impose = self.imposed_running < imposed_max;
        self.waiting.iter().position(|it| may_impose || !it.is_imposed)
    }
}

impl<T> FairQueue<T> {
    /// For jobs of which so many that one peer imposed run at a time; at least one does.
    pub(super) fn new(imposed_max: usize) -> Self {
        let imposed_max = imposed_max.max(1);
        Self { lanes: BTreeMap::new(), imposed_max, len: 0, running: 0, now_ns: 0 }
    }

    /// Adds a job, behind the peer's others.
    pub(super) fn push(&mut self, waiting: Waiting<T>) {
        let now_ns = self.now_ns;
        let lane = self.lanes.entry(waiting.peer).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            imposed_running: 0,
            given_ns: now_ns,
        });
        if lane.waiting.is_empty() {
            lane.given_ns = lane.given_ns.max(now_ns);
        }
        lane.waiting.push_back(waiting);
        self.len += 1;
    }

    /// Takes the next job that may run.
    pub(super) fn pop(&mut self) -> Option<Charged<T>> {
        let imposed_max = self.imposed_max;
        let ready =
            self.lanes.values_mut().filter_map(|lane| Some((lane.next(imposed_max)?, lane)));
        let (at, lane) = ready.min_by_key(|(_, lane)| lane.given_ns)?;
        let Waiting { job, peer, cost_ns: charged_ns, is_imposed } = lane.waiting.remove(at)?;
        self.len -= 1;
        self.running += 1;
        self.now_ns = self.now_ns.max(lane.given_ns);
        lane.given_ns = lane.given_ns.saturating_add(charged_ns);
        lane.imposed_running += usize::from(is_imposed);
        Some(Charged { job, peer, charged_ns, is_imposed })
    }

    /// A job that was taken is done: it took `took_ns`, for which its peer was charged something else.
    pub(super) fn done<U>(&mut self, charged: &Charged<U>, took_ns: u64) {
        self.running = self.running.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(&charged.peer) {
            lane.given_ns =
                lane.given_ns.saturating_sub(charged.charged_ns).saturating_add(took_ns);
            lane.imposed_running =
                lane.imposed_running.saturating_sub(usize::from(charged.is_imposed));
        }
        // With nothing left to do nobody has an advantage, and peers that went are forgotten.
        if self.len == 0 && self.running == 0 {
            self.lanes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ours(peer: usize, cost_ns: u64, job: u32) -> Waiting<u32> {
        Waiting { job, peer, cost_ns, is_imposed: false }
    }

    fn imposed(peer: usize, cost_ns: u64, job: u32) -> Waiting<u32> {
        Waiting { is_imposed: true, ..ours(peer, cost_ns, job) }
    }

    /// Takes jobs one after another, each of which takes `took(peer)`; returns what each peer got.
    fn serve(
        queue: &mut FairQueue<u32>,
        jobs: usize,
        took: impl Fn(usize) -> u64,
    ) -> BTreeMap<usize, u64> {
        let mut got = BTreeMap::new();
        for _ in 0..jobs {
            let Some(it) = queue.pop() else { break };
            *got.entry(it.peer).or_default() += took(it.peer);
            queue.done(&it, took(it.peer));
        }
        got
    }

    #[test]
    fn jobs_of_one_peer_keep_their_order() {
        let mut queue = FairQueue::new(1);
        (0..10).for_each(|n| queue.push(ours(3, 100, n)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|it| it.job).collect();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn time_is_shared_and_not_jobs() {
        let mut queue = FairQueue::new(1);
        for n in 0..1_000 {
            queue.push(ours(1, 1_000, n));
            queue.push(ours(2, 1_000, n));
        }
        // Those of the second take ten times longer than expected.
        let got = serve(&mut queue, 550, |peer| if peer == 1 { 1_000 } else { 10_000 });
        let (first, second) = (got[&1], got[&2]);
        assert!(first.abs_diff(second) <= 10_000, "{first} and {second} ns");
    }

    #[test]
    fn a_peer_that_comes_waits_for_one_job_of_each_other() {
        let mut queue = FairQueue::new(1);
        for peer in 1..=5 {
            (0..100).for_each(|n| queue.push(ours(peer, 1_000, n)));
        }
        serve(&mut queue, 123, |_| 1_000);
        queue.push(ours(9, 1_000, 0));
        let before = std::iter::from_fn(|| queue.pop()).take_while(|it| it.peer != 9).count();
        assert!(before <= 5, "{before} jobs of others came first");
    }

    #[test]
    fn a_peer_that_was_idle_saved_nothing() {
        let mut queue = FairQueue::new(1);
        queue.push(ours(1, 1_000, 0));
        (0..1_000).for_each(|n| queue.push(ours(2, 1_000, n)));
        serve(&mut queue, 500, |_| 1_000);
        (0..1_000).for_each(|n| queue.push(ours(1, 1_000, n)));
        let got = serve(&mut queue, 100, |_| 1_000);
        assert!(got[&1].abs_diff(got[&2]) <= 2_000, "{got:?}");
    }

    #[test]
    fn what_a_peer_imposes_has_some_of_the_threads_only() {
        let mut queue = FairQueue::new(2);
        (0..10).for_each(|n| queue.push(imposed(1, 1_000, n)));
        (10..12).for_each(|n| queue.push(ours(1, 1_000, n)));
        (20..22).for_each(|n| queue.push(imposed(2, 1_000, n)));
        let first: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let mut taken: Vec<_> = first.iter().map(|it| it.job).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 10, 11, 20, 21], "the other eight wait, and nothing behind them");
        let of_another = first.iter().find(|it| it.job == 20);
        queue.done(of_another.unwrap(), 1_000);
        assert_eq!(queue.pop(), None, "that was another peer's");
        let of_the_first = first.iter().find(|it| it.job == 0);
        queue.done(of_the_first.unwrap(), 1_000);
        assert_eq!(queue.pop().map(|it| it.job), Some(2));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn peers_that_went_are_forgotten() {
        let mut queue = FairQueue::new(1);
        for peer in 0..1_000 {
            queue.push(ours(peer, 1_000, 0));
            serve(&mut queue, 1, |_| 1_000);
        }
        assert!(queue.lanes.is_empty(), "{} are kept", queue.lanes.len());
    }

    proptest! {
        /// Whatever is expected and happens: nothing is lost, and while two peers have jobs neither gets
        /// more than the other by over two of the longest jobs.
        #[test]
        fn who_has_jobs_gets_its_share(
            jobs in prop::collection::vec(
                (0_usize..4, 1_u64..5_000, 1_u32..5_000, any::<bool>()),
                1..200,
            )
        ) {
            let mut queue = FairQueue::new(1);
            let mut left = [0_u32; 4];
            for &(peer, cost_ns, took_ns, is_imposed) in &jobs {
                queue.push(Waiting { job: took_ns, peer, cost_ns, is_imposed });
                left[peer] += 1;
            }
            let mut got = [0_u64; 4];
            while let Some(it) = queue.pop() {
                let (took_ns, peer) = (u64::from(it.job), it.peer);
                queue.done(&it, took_ns);
                got[peer] += took_ns;
                left[peer] -= 1;
                let busy = |at: &usize| left[*at] > 0;
                let (most, least) = (
                    (0..4).filter(busy).map(|at| got[at]).max().unwrap_or(0),
                    (0..4).filter(busy).map(|at| got[at]).min().unwrap_or(0),
                );
                prop_assert!(most - least <= 10_000, "{got:?}");
            }
            prop_assert_eq!(left, [0; 4]);
        }
    }
}
