//! Finds the links that need no events.

use crate::plan::{Plan, Queue, Ties, Traffic};
use crate::world::link::{LinkKind, LinkState};

/// Finds the links after which nothing can happen to a packet any more: its packets reach their
/// receivers, or links without limit that nothing else feeds.
///
/// With ns-2's order there are none: it follows from when ns-2 would have put each event onto its agenda.
pub(crate) fn mark_known_paths(plan: &Plan, links: &mut [LinkState]) {
    if plan.ties == Ties::Ns2 {
        return;
    }
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
            LinkKind::Served(_) => false,
        };
    }
    for (n, link) in links.iter_mut().enumerate() {
        link.leads_on = !link.path_is_known && paths.leads_on(n);
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
    /// True if packets leave it for their receivers.
    to_receiver: bool,
    /// True if connections use it.
    tcp: bool,
    /// The links before and behind it on any path.
    before: Vec<usize>,
    behind: Vec<usize>,
}

/// Returns true if a link only takes its time: it loses nothing, its rate is always the same and its queue knows
/// in advance when a packet leaves.
fn is_steady(link: &crate::plan::Link) -> bool {
    let medium = &link.medium;
    let is_known = !matches!(link.queue, Queue::Managed(_));
    is_known && medium.loss.is_none() && medium.variation.is_none() && !medium.is_observed
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
                    match path.get(at + 1) {
                        Some(&next) => remember(&mut link.behind, next),
                        None => link.to_receiver = true,
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
            && self.plan.links[n].medium.loss.is_none()
            && self.uses[n].behind.iter().all(|&next| {
                let fed = &self.uses[next];
                matches!(self.plan.links[next].queue, Queue::Unlimited)
                    && is_steady(&self.plan.links[next])
                    && !fed.from_source
                    && fed.before == [n]
                    && self.is_known(next, answers)
            });
        answers[n] = Answer::Found(known);
        known
    }

    /// Returns true if link `n` has a queue that is known in advance, and so have all behind it, which
    /// nothing else feeds: an arrival there is no business of anybody else.
    fn leads_on(&self, n: usize) -> bool {
        let is_plain = |n: usize| {
            let link = &self.plan.links[n];
            !matches!(link.queue, Queue::Port(_)) && is_steady(link)
        };
        let Use { to_receiver, behind, .. } = &self.uses[n];
        let is_fed_by_it = |&next: &usize| {
            let fed = &self.uses[next];
            is_plain(next) && !fed.from_source && fed.before == [n]
        };
        is_plain(n) && !to_receiver && behind.iter().all(is_fed_by_it)
    }
}

/// Returns true if packets of flow `n` can be received as soon as they enter the last link of their path,
/// at a time in the future: nobody else is concerned, and what answers them is alone on its first link.
/// `uses` has for each link the number of its places on paths.
pub(crate) fn is_received_ahead(plan: &Plan, uses: &[usize], n: usize) -> bool {
    let flow = &plan.flows[n];
    let is_plain = |&link: &usize| {
        let link = &plan.links[link];
        !matches!(link.queue, Queue::Port(_)) && is_steady(link)
    };
    let Some(last) = flow.route.last().filter(|last| is_plain(last)) else { return false };
    if plan.ties == Ties::Ns2 {
        return false;
    }
    // Units are opened at the end of a path, if not before.
    let is_alone = plan.links[*last].restored || flow.route.iter().all(is_plain);
    let answers = match &flow.traffic {
        Traffic::Tcp(config, _) => {
            let is_own = |link: &usize| is_plain(link) && uses[*link] == 1;
            let has_timer = config.delayed_ack_ns.is_some() || config.reading.is_some();
            !has_timer && flow.back.first().is_some_and(is_own)
        }
        _ => true,
    };
    is_alone && answers
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
    if plan.ties == Ties::Ns2 {
        return 0;
    }
    let flow = &plan.flows[n];
    let is_own = |&&link: &&usize| {
        let at = &plan.links[link];
        // A link that the flow passes twice is not its own: it meets itself there.
        matches!(at.queue, Queue::Unlimited) && is_steady(at) && !at.restored && uses[link] == 1
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
