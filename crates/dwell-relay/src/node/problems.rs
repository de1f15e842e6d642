//! The problems that there are now, with a peer or with the node: at most one of each kind.

use dwell_base::Instant;
use dwell_report::status::{Problem, ProblemStatus};

use super::Node;
use super::env::{Env, NodeEvent};

/// A problem, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub problem: Problem,
    /// The cause, in full sentences.
    pub why: String,
    /// The remedy, in full sentences.
    pub remedy: String,
}

/// Those that there are, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(Vec<(Finding, Instant)>);

impl Problems {
    /// Notes a problem. True if there was none of its kind; otherwise its words are replaced.
    pub(crate) fn set(&mut self, now: Instant, finding: Finding) -> bool {
        match self.0.iter_mut().find(|(known, _)| known.problem == finding.problem) {
            Some((known, _)) => {
                *known = finding;
                false
            }
            None => {
                self.0.push((finding, now));
                true
            }
        }
    }

    /// A problem is over. True if there was one of this kind.
    pub(crate) fn clear(&mut self, problem: Problem) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known.problem != problem);
        self.0.len() < before
    }

    pub(crate) fn has(&self, problem: Problem) -> bool {
        self.0.iter().any(|(known, _)| known.problem == problem)
    }

    pub(crate) fn status(&self, now: Instant) -> Vec<ProblemStatus> {
        let status = |(finding, since): &(Finding, Instant)| ProblemStatus {
            problem: finding.problem.name().to_owned(),
            for_ns: now.since_ns(*since),
            why: finding.why.clone(),
            remedy: finding.remedy.clone(),
        };
        self.0.iter().map(status).collect()
    }
}

impl Node {
    /// There is a problem with a peer (or, without one, with the node) that only the driver can
    /// know of. It may be noted as often as it is seen: the driver is notified of its beginning once, by
    /// [`NodeEvent::Problem`].
    pub fn note_problem(&mut self, env: &mut impl Env, peer: Option<usize>, finding: Finding) {
        let now = env.now();
        let Some(problems) = self.problems_of(peer) else { return };
        if problems.set(now, finding.clone()) {
            env.event(NodeEvent::Problem(peer, finding));
        }
    }

    /// A problem is over, or never was.
    pub fn clear_problem(&mut self, env: &mut impl Env, peer: Option<usize>, problem: Problem) {
        if self.problems_of(peer).is_some_and(|problems| problems.clear(problem)) {
            env.event(NodeEvent::Solved(peer, problem));
        }
    }

    fn problems_of(&mut self, peer: Option<usize>) -> Option<&mut Problems> {
        match peer {
            None => Some(&mut self.problems),
            Some(index) => {
                let peer = self.peers.get_mut(index).filter(|peer| !peer.removed)?;
                Some(&mut peer.problems)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(why: &str) -> Finding {
        Finding { problem: Problem::NoAnswer, why: why.to_owned(), remedy: String::new() }
    }

    #[test]
    fn a_problem_begins_once_and_keeps_its_age() {
        let mut problems = Problems::default();
        let at = |seconds: u64| Instant::from_ns(seconds * 1_000_000_000);
        assert!(problems.set(at(1), finding("first")));
        assert!(!problems.set(at(3), finding("second")));
        let [status] = &problems.status(at(5))[..] else { panic!("one problem") };
        assert_eq!((status.for_ns, &*status.why), (4_000_000_000, "second"));
        assert!(problems.clear(Problem::NoAnswer));
        assert!(!problems.clear(Problem::NoAnswer) && problems.status(at(6)).is_empty());
    }
}
