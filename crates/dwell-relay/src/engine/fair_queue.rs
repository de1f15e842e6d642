//! What waits for a processor, by peer: the next job is of the peer that was given the least time.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996), with processor time in the place of bytes. A
//! peer that had nothing to do saves nothing: it begins where those are that had. So a peer with one job
//! waits for at most one job of each other, however many these have.

use std::collections::{BTreeMap, VecDeque};

/// The jobs of peers that wait.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    lanes: BTreeMap<usize, Lane<T>>,
    /// The number of jobs that wait, and of those that were taken and are not done.
    len: usize,
    running: usize,
    /// How far the peer had come whose job was taken last, in nanoseconds.
    now_ns: u64,
}

/// One peer's.
#[derive(Debug)]
struct Lane<T> {
    /// The expected time of each, in nanoseconds.
    waiting: VecDeque<(u64, T)>,
    /// The time that it was given, or that others were while it had nothing to do, in nanoseconds.
    given_ns: u64,
}

/// A job that was taken, of a peer, which was charged so many nanoseconds for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charged<T> {
    pub(super) job: T,
    pub(super) peer: usize,
    pub(super) charged_ns: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { lanes: BTreeMap::new(), len: 0, running: 0, now_ns: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a job that is expected to take so long, behind the peer's others.
    pub(super) fn push(&mut self, peer: usize, cost_ns: u64, job: T) {
        let now_ns = self.now_ns;
        let lane = self
            .lanes
            .entry(peer)
            .or_insert_with(|| Lane { waiting: VecDeque::new(), given_ns: now_ns });
        if lane.waiting.is_empty() {
            lane.given_ns = lane.given_ns.max(now_ns);
        }
        lane.waiting.push_back((cost_ns, job));
        self.len += 1;
    }

    /// Takes the next job.
    pub(super) fn pop(&mut self) -> Option<Charged<T>> {
        let waiting = self.lanes.iter_mut().filter(|(_, lane)| !lane.waiting.is_empty());
        let (&peer, lane) = waiting.min_by_key(|(_, lane)| lane.given_ns)?;
        let (charged_ns, job) = lane.waiting.pop_front()?;
        self.len -= 1;
        self.running += 1;
        self.now_ns = self.now_ns.max(lane.given_ns);
        lane.given_ns = lane.given_ns.saturating_add(charged_ns);
        Some(Charged { job, peer, charged_ns })
    }

    /// A job that was taken is done: it took `took_ns`, for which its peer was charged something else.
    pub(super) fn done(&mut self, peer: usize, charged_ns: u64, took_ns: u64) {
        self.running = self.running.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(&peer) {
            lane.given_ns = lane.given_ns.saturating_sub(charged_ns).saturating_add(took_ns);
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

    /// Takes jobs one after another, each of which takes `took(peer)`; returns what each peer got.
    fn serve(
        queue: &mut FairQueue<u32>,
        jobs: usize,
        took: impl Fn(usize) -> u64,
    ) -> BTreeMap<usize, u64> {
        let mut got = BTreeMap::new();
        for _ in 0..jobs {
            let Some(Charged { peer, charged_ns, .. }) = queue.pop() else { break };
            *got.entry(peer).or_default() += took(peer);
            queue.done(peer, charged_ns, took(peer));
        }
        got
    }

    #[test]
    fn jobs_of_one_peer_keep_their_order() {
        let mut queue = FairQueue::default();
        (0..10).for_each(|n| queue.push(3, 100, n));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|it| it.job).collect();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn time_is_shared_and_not_jobs() {
        let mut queue = FairQueue::default();
        for n in 0..1_000 {
            queue.push(1, 1_000, n);
            queue.push(2, 1_000, n);
        }
        // Those of the second take ten times longer than expected.
        let got = serve(&mut queue, 550, |peer| if peer == 1 { 1_000 } else { 10_000 });
        let (first, second) = (got[&1], got[&2]);
        assert!(first.abs_diff(second) <= 10_000, "{first} and {second} ns");
    }

    #[test]
    fn a_peer_that_comes_waits_for_one_job_of_each_other() {
        let mut queue = FairQueue::default();
        for peer in 1..=5 {
            (0..100).for_each(|n| queue.push(peer, 1_000, n));
        }
        serve(&mut queue, 123, |_| 1_000);
        queue.push(9, 1_000, 0);
        let before = std::iter::from_fn(|| queue.pop()).take_while(|it| it.peer != 9).count();
        assert!(before <= 5, "{before} jobs of others came first");
    }

    #[test]
    fn a_peer_that_was_idle_saved_nothing() {
        let mut queue = FairQueue::default();
        queue.push(1, 1_000, 0);
        (0..1_000).for_each(|n| queue.push(2, 1_000, n));
        serve(&mut queue, 500, |_| 1_000);
        (0..1_000).for_each(|n| queue.push(1, 1_000, n));
        let got = serve(&mut queue, 100, |_| 1_000);
        assert!(got[&1].abs_diff(got[&2]) <= 2_000, "{got:?}");
    }

    #[test]
    fn peers_that_went_are_forgotten() {
        let mut queue = FairQueue::default();
        for peer in 0..1_000 {
            queue.push(peer, 1_000, 0);
            serve(&mut queue, 1, |_| 1_000);
        }
        assert!(queue.lanes.is_empty(), "{} are kept", queue.lanes.len());
    }

    proptest! {
        /// Whatever is expected and happens: nothing is lost, and while two peers have jobs neither gets
        /// more than the other by over two of the longest jobs.
        #[test]
        fn who_has_jobs_gets_its_share(
            jobs in prop::collection::vec((0_usize..4, 1_u64..5_000, 1_u64..5_000), 1..200)
        ) {
            let mut queue = FairQueue::default();
            let mut left = [0_u32; 4];
            for &(peer, cost_ns, took_ns) in &jobs {
                queue.push(peer, cost_ns, took_ns);
                left[peer] += 1;
            }
            let mut got = [0_u64; 4];
            while let Some(Charged { job: took_ns, peer, charged_ns }) = queue.pop() {
                queue.done(peer, charged_ns, took_ns);
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
