//! Finds the links that need no events.

use crate::plan::{Plan, Queue, Traffic};
use crate::world::link::{LinkKind, LinkState};

/// Finds the links after which nothing can happen to a packet any more: its packets reach their
/// receivers, or links without limit that nothing else feeds.
pub(crate) fn mark_known_paths(plan: &Plan, links: &mut [LinkState]) {
    let paths = Paths::new(plan);
    let mut answers = vec![Answer::Open; plan.links.len()];
    let known: Vec<bool> = (0..plan.links.len()).map(|n| paths.is_known(n, &mut answers)).collect();
    for (n, (link, &known_path)) in links.iter_mut().zip(&known).enumerate() {
        // A plain link is passed over only if the link before it is: then nothing is scheduled for
        // it. A port's link begins such a path.
        let uses = &paths.uses[n];
        let fed_ahead = !uses.from_source && uses.before.iter().all(|&feeder| known[feeder]);
        link.path_is_known = match link.kind {
            LinkKind::Port(_) => known_path,
            LinkKind::Fifo(_) => known_path && fed_ahead && !uses.before.is_empty(),
        };
    }
}

/// The state of the search for a link's further path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Open,
    /// The search is under way. A path that comes back to the link is a ring.
    Asked,
    Found(bool),
}

/// The uses of the links of a plan.
#[derive(Debug)]
struct Paths<'p> {
    plan: &'p Plan,
    uses: Vec<Use>,
}

/// The uses of one link.
#[derive(Clone, Debug, Default)]
struct Use {
    /// True if packets come to it from their sources.
    from_source: bool,
    /// True if connections use it.
    tcp: bool,
    /// The links before and behind it on any path.
    before: Vec<usize>,
    behind: Vec<usize>,
}

impl<'p> Paths<'p> {
    fn new(plan: &'p Plan) -> Self {
        let mut uses = vec![Use::default(); plan.links.len()];
        for flow in &plan.flows {
            let is_tcp = matches!(flow.traffic, Traffic::Tcp(..));
            for path in [&flow.route, &flow.back] {
                for (at, &link) in path.iter().enumerate() {
                    let link = &mut uses[link];
                    link.tcp |= is_tcp;
                    match at {
                        0 => link.from_source = true,
                        at => remember(&mut link.before, path[at - 1]),
                    }
                    if let Some(&next) = path.get(at + 1) {
                        remember(&mut link.behind, next);
                    }
                }
            }
        }
        Self { plan, uses }
    }

    fn is_known(&self, n: usize, answers: &mut [Answer]) -> bool {
        match answers[n] {
            Answer::Found(known) => return known,
            Answer::Asked => return false,
            Answer::Open => answers[n] = Answer::Asked,
        }
        let known = !self.uses[n].tcp
            && self.uses[n].behind.iter().all(|&next| {
                let fed = &self.uses[next];
                matches!(self.plan.links[next].queue, Queue::Unlimited)
                    && !fed.from_source
                    && fed.before == [n]
                    && self.is_known(next, answers)
            });
        answers[n] = Answer::Found(known);
        known
    }
}

fn remember(links: &mut Vec<usize>, link: usize) {
    if !links.contains(&link) {
        links.push(link);
    }
}

/// Returns the number of a flow's first links that are its own and without limit: a packet arrives
/// behind them at a time that is known when it leaves the source. `uses` has for each link the
/// number of its places on paths.
pub(crate) fn own_links(plan: &Plan, uses: &[usize], n: usize) -> usize {
    let flow = &plan.flows[n];
    let is_own = |&&link: &&usize| {
        let at = &plan.links[link];
        // A link that the flow passes twice is not its own: it meets itself there.
        matches!(at.queue, Queue::Unlimited) && !at.restored && uses[link] == 1
    };
    let own = flow.route.iter().take_while(is_own).count();
    own.min(flow.route.len() - 1)
}

/// Returns the number of places that each link has on paths.
pub(crate) fn uses(plan: &Plan) -> Vec<usize> {
    let mut uses = vec![0; plan.links.len()];
    for &link in plan.flows.iter().flat_map(|flow| flow.route.iter().chain(&flow.back)) {
        uses[link] += 1;
    }
    uses
}
