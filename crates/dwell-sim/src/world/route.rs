//! Which links need no events.

use crate::plan::{Link, Plan, Queue, Traffic};
use crate::world::link::{LinkKind, LinkState};

/// Finds the links after which nothing can happen to a packet any more: what leaves them goes
/// home, or over links without limit that nothing else feeds.
pub(crate) fn mark_known_ways(plan: &Plan, links: &mut [LinkState]) {
    let known: Vec<bool> = (0..plan.links.len()).map(|n| is_known(plan, n, 0)).collect();
    for (n, (link, known_way)) in links.iter_mut().zip(known.clone()).enumerate() {
        // A plain link is passed over only if the link before it is: then nothing is scheduled
        // for it. A port's link begins such a way.
        let fed_ahead = feeders(plan, n).iter().all(|&feeder| known[feeder]);
        let first = feeders(plan, n).is_empty();
        link.way_is_known = match link.kind {
            LinkKind::Port(_) => known_way,
            LinkKind::Fifo(_) => known_way && fed_ahead && !first,
        };
    }
}

fn is_known(plan: &Plan, n: usize, depth: usize) -> bool {
    if depth > plan.links.len() {
        return false; // a ring
    }
    plan.flows.iter().all(|flow| {
        if matches!(flow.traffic, Traffic::Tcp(..)) {
            return !flow.route.contains(&n) && !flow.back.contains(&n);
        }
        let Some(at) = flow.route.iter().position(|&link| link == n) else { return true };
        let Some(&next) = flow.route.get(at + 1) else { return true };
        matches!(plan.links[next].queue, Queue::Unlimited)
            && feeders(plan, next) == [n]
            && is_known(plan, next, depth + 1)
    })
}

/// The links before link `n`; none if packets come to it from sources.
fn feeders(plan: &Plan, n: usize) -> Vec<usize> {
    let mut feeders = Vec::new();
    for way in plan.flows.iter().flat_map(|flow| [&flow.route, &flow.back]) {
        match way.iter().position(|&link| link == n) {
            None => {}
            Some(0) => return Vec::new(),
            Some(at) if feeders.contains(&way[at - 1]) => {}
            Some(at) => feeders.push(way[at - 1]),
        }
    }
    feeders
}

/// How many of a flow's first links are its own and without limit: what leaves the source
/// arrives behind them at a time that is known beforehand.
pub(crate) fn own_links(plan: &Plan, n: usize) -> usize {
    let flow = &plan.flows[n];
    let is_own = |&&link: &&usize| {
        let Link { queue, restored, .. } = &plan.links[link];
        matches!(queue, Queue::Unlimited)
            && !restored
            && plan.flows.iter().enumerate().all(|(other, flow)| {
                let ways = flow.route.iter().chain(&flow.back);
                other == n || !ways.clone().any(|&l| l == link)
            })
    };
    let own = flow.route.iter().take_while(is_own).count();
    own.min(flow.route.len() - 1)
}
