//! The routes to the peers: setting them, keeping them, and refusing what has no tunnel.
//!
//! A peer that is `closed` has two routes for each prefix: one into the interface, and behind it,
//! with a metric one larger, one that refuses. The second one holds whenever the first one is
//! missing: the interface was deleted or taken down, or the relay died.

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};

use super::{Engine, RunError};
use crate::config::{FailMode, NodeConfig};
use crate::io::clock::Clock;
use crate::io::route::{PROTOCOL, Route, RouteEvent, RouteGuard, RouteKind, Target};
use crate::io::tun::Tun;

/// Routes that others remove come back after this long at first; if they are removed again and
/// again, the time doubles up to the maximum.
const RESTORE_NS_MIN: u64 = 50 * MILLI_NS;
const RESTORE_NS_MAX: u64 = 10 * SECOND_NS;
/// Whoever removed routes has stopped doing so if nothing was missing for this long.
const CALM_NS: u64 = 60 * SECOND_NS;

/// When the routes are looked at.
#[derive(Debug)]
pub(super) struct RouteCare {
    /// Routes of ours may be missing: they are restored then.
    restore_at: Instant,
    restore_ns: u64,
    restored_at: Instant,
}

impl Default for RouteCare {
    fn default() -> Self {
        Self {
            restore_at: Instant::FAR_FUTURE,
            restore_ns: RESTORE_NS_MIN,
            restored_at: Instant::ZERO,
        }
    }
}

impl RouteCare {
    pub(super) fn due(&self) -> Instant {
        self.restore_at
    }

    /// Routes may be missing.
    fn restore_soon(&mut self, now: Instant) {
        if now.since_ns(self.restored_at) > CALM_NS {
            self.restore_ns = RESTORE_NS_MIN;
        }
        self.restore_at = self.restore_at.min(now + self.restore_ns);
    }

    /// Routes were missing, and are back.
    fn restored(&mut self, now: Instant) {
        self.restored_at = now;
        self.restore_ns = (2 * self.restore_ns).min(RESTORE_NS_MAX);
    }
}

/// Takes over the unreachable routes of an earlier run of this relay that did not end in an
/// orderly way.
pub(super) fn adopt_routes(routes: &mut RouteGuard, node: &NodeConfig) -> Result<(), RunError> {
    let count = routes.adopt(owner(node))?;
    if count > 0 {
        tracing::info!(
            "an earlier run left {count} unreachable routes behind (ip route show proto \
             {PROTOCOL}): this one looks after them now"
        );
    }
    Ok(())
}

/// The mark of a relay's unreachable routes: no two relays of a machine have an interface of the
/// same name. (FNV-1a, which never changes.)
fn owner(node: &NodeConfig) -> u32 {
    let hash = node
        .tun
        .bytes()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

impl Engine {
    /// Makes the routes what the peers' states ask for.
    pub(super) fn sync_routes(&mut self) -> Result<(), RunError> {
        let wanted = self.wanted_routes();
        let stale: Vec<Route> =
            self.routes.added().iter().filter(|route| !wanted.contains(route)).copied().collect();
        for route in stale {
            if let Err(error) = self.routes.remove(route) {
                tracing::warn!("{error}");
            }
        }
        // One that can't be set must not keep the others from being set.
        let mut result = Ok(());
        for route in wanted {
            if !self.routes.added().contains(&route)
                && let Err(error) = self.routes.add(route)
            {
                result = result.and(Err(error.into()));
            }
        }
        result
    }

    /// The routes that are to be there now, those that refuse first: nothing may slip through
    /// while they are set.
    fn wanted_routes(&self) -> Vec<Route> {
        if self.stopping {
            return Vec::new();
        }
        let peers =
            || (0..self.node.peer_count()).filter_map(|p| Some((p, self.node.peer_config(p)?)));
        let target = Target::Unreachable { owner: owner(&self.config.node) };
        let closed = peers().filter(|(_, config)| config.on_dead == FailMode::Closed);
        let mut wanted: Vec<Route> = closed
            .flat_map(|(_, config)| {
                let behind = config.metric.saturating_add(1);
                config.prefixes.iter().map(move |&prefix| Route::new(prefix, behind, target))
            })
            .collect();
        let Some(tun) = &self.world.tun else { return wanted };
        let target = Target::Interface(tun.ifindex());
        let open = peers().filter(|(peer, _)| self.node.wants_routes(*peer));
        wanted.extend(open.flat_map(|(_, config)| {
            let metric = config.metric;
            config.prefixes.iter().map(move |&prefix| Route::new(prefix, metric, target))
        }));
        wanted
    }

    /// Others changed routes, or this relay did.
    pub(super) fn on_route_events(&mut self) {
        let now = Clock::now();
        let ours = self.world.tun.as_ref().map(Tun::ifindex);
        let (routes, care) = (&self.routes, &mut self.route_care);
        let result = self.route_watch.read(|event| match event {
            RouteEvent::Removed(gone) if gone.is_in_main_table() => {
                let is_gone = |route: &Route| {
                    (route.prefix, route.metric) == (gone.prefix, gone.metric)
                        && match route.target {
                            Target::Interface(index) => gone.ifindex == Some(index),
                            Target::Unreachable { .. } => gone.kind == RouteKind::Refusing,
                        }
                };
                if routes.added().iter().any(is_gone) {
                    care.restore_soon(now);
                }
            }
            // The kernel drops the routes of an interface that is down, and says nothing.
            RouteEvent::Link { ifindex, is_up: true } if Some(ifindex) == ours => {
                care.restore_soon(now);
            }
            RouteEvent::Missed => care.restore_soon(now),
            _ => {}
        });
        if let Err(error) = result {
            tracing::error!("routes can't be watched any more: {error}");
            let _ = self.poller.deregister(&self.route_watch, super::ROUTES);
        }
    }

    pub(super) fn care_for_routes(&mut self, now: Instant) {
        if now >= self.route_care.restore_at {
            self.route_care.restore_at = Instant::FAR_FUTURE;
            self.restore_routes(now);
        }
    }

    /// Sets what is missing again.
    fn restore_routes(&mut self, now: Instant) {
        let (mut restored, mut is_any) = (Vec::new(), false);
        for &route in self.routes.added() {
            match self.routes.restore(route) {
                Ok(true) => {
                    is_any = true;
                    if route.is_interface() {
                        restored.push(route.prefix.to_string());
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::debug!("a route is not back yet: {error}"),
            }
        }
        if is_any {
            self.route_care.restored(now);
        }
        if !restored.is_empty() {
            tracing::warn!(
                "something removed the routes to {}: they are set again. If another program looks \
                 after routes, let it leave those of proto {PROTOCOL} alone",
                restored.join(", ")
            );
        }
    }

    /// This relay can't go on. What it leaves behind keeps packets from going another way.
    pub(super) fn report_routes_left(&self) {
        let left = self.routes.added().iter().filter(|route| !route.is_interface()).count();
        if left > 0 {
            tracing::warn!(
                "{left} unreachable routes stay, so that nothing leaves unprotected: start the relay \
                 again, or remove them (ip route flush proto {PROTOCOL}; ip -6 route flush proto \
                 {PROTOCOL})"
            );
        }
    }
}
