//! The order in which routes change, so that nothing leaves past a closed tunnel meanwhile.

use crate::io::route::Route;

/// One step from the present routes to the wanted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteChange {
    Add(Route),
    Remove(Route),
}

/// The steps from `present` to `wanted`, of which those that refuse stand first.
///
/// Returns the changes that lead from the present routes to the wanted ones. Missing routes are
/// added before anything is removed, and routes that refuse are removed last. A prefix has one
/// route of a metric: if another one is to go, that happens right before, when everything else is
/// there.
pub(super) fn changes(present: &[Route], wanted: &[Route]) -> Vec<RouteChange> {
    let place = |route: &Route| (route.prefix, route.metric);
    let mut stale: Vec<Route> =
        present.iter().filter(|route| !wanted.contains(route)).copied().collect();
    let missing = || wanted.iter().filter(|route| !present.contains(route));
    let is_taken =
        |stale: &[Route], route: &Route| stale.iter().any(|it| place(it) == place(route));
    let (taken, free): (Vec<Route>, Vec<Route>) =
        missing().partition(|route| is_taken(&stale, route));
    let mut changes: Vec<_> = free.into_iter().map(RouteChange::Add).collect();
    for route in taken {
        let (before, others) = stale.iter().partition(|it| place(it) == place(&route));
        let before: Vec<Route> = before;
        stale = others;
        changes.extend(before.into_iter().map(RouteChange::Remove));
        changes.push(RouteChange::Add(route));
    }
    stale.sort_by_key(|route| !route.is_interface());
    changes.extend(stale.into_iter().map(RouteChange::Remove));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::route::Target;

    const TUN: u32 = 7;

    /// The routes of a closed peer.
    fn closed(prefixes: &[&str], metric: u32) -> Vec<Route> {
        let of = |metric: u32, target: Target| {
            let route = move |prefix: &&str| Route::new(prefix.parse().unwrap(), metric, target);
            prefixes.iter().map(route).collect::<Vec<_>>()
        };
        [of(metric + 1, Target::Unreachable { owner: 1 }), of(metric, Target::Interface(TUN))]
            .concat()
    }

    /// Takes the steps as the kernel does. At each moment packets for `kept` are taken or refused.
    fn apply(present: &[Route], wanted: &[Route], kept: &[&str]) {
        let mut table = present.to_vec();
        for change in changes(present, wanted) {
            match change {
                RouteChange::Add(route) => {
                    let is_free = table
                        .iter()
                        .all(|it| (it.prefix, it.metric) != (route.prefix, route.metric));
                    assert!(is_free, "the kernel has {route:?} already: {table:?}");
                    table.push(route);
                }
                RouteChange::Remove(route) => {
                    assert!(table.contains(&route), "{route:?} was never there: {table:?}");
                    table.retain(|it| *it != route);
                }
            }
            for prefix in kept {
                // A more general one that is there holds as well.
                let prefix: ipnet::IpNet = prefix.parse().unwrap();
                assert!(table.iter().any(|it| it.prefix.contains(&prefix)), "{prefix}: {change:?}");
            }
        }
        let sorted = |routes: &[Route]| {
            let mut routes: Vec<_> = routes.iter().map(|it| format!("{it:?}")).collect();
            routes.sort();
            routes
        };
        assert_eq!(sorted(&table), sorted(wanted));
    }

    #[test]
    fn a_closed_prefix_is_never_without_a_route() {
        let net = ["10.2.0.0/24", "fd00:2::/64"];
        let halves = ["10.2.0.0/25", "10.2.0.128/25", "fd00:2::/65", "fd00:2:0:0:8000::/65"];
        for before in 48..=52 {
            for after in 48..=52 {
                apply(&closed(&net, before), &closed(&net, after), &net);
                // Narrower and wider.
                apply(&closed(&net, before), &closed(&halves, after), &halves);
                apply(&closed(&halves, before), &closed(&net, after), &halves);
            }
        }
        apply(&closed(&net, 50), &[], &[]);
        apply(&[], &closed(&net, 50), &[]);
    }

    #[test]
    fn routes_that_refuse_go_last() {
        let present = closed(&["10.2.0.0/24", "10.3.0.0/24"], 50);
        let changes = changes(&present, &[]);
        let is_interface = |change: &RouteChange| matches!(change, RouteChange::Remove(route) if route.is_interface());
        assert_eq!(changes.iter().position(|it| !is_interface(it)), Some(2), "{changes:?}");
        assert_eq!(changes.len(), 4);
    }
}
