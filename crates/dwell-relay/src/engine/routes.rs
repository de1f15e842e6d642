//! The routes to the peers: setting them, keeping them, and refusing what has no tunnel.
//!
//! A peer that is `closed` has two routes for each prefix: one into the interface, and behind it,
//! with a metric one larger, one that refuses. The second one holds whenever the first one is
//! missing: the interface was deleted or taken down, or the relay died.

use std::collections::BTreeMap;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_report::status::Problem;
use ipnet::IpNet;

use super::detours::{Detour, circle, detour, displaced};
use super::route_plan::{RouteChange, changes};
use super::{Engine, RunError};
use crate::config::{FailMode, NodeConfig};
use crate::io::clock::Clock;
use crate::io::route::{FoundRoute, PROTOCOL, Route, RouteEvent, RouteGuard, Target};
use crate::io::tun::Tun;
use crate::node::{Finding, Node};

/// Routes that others remove come back after this long at first; if they are removed again and
/// again, the time doubles up to the maximum.
const RESTORE_NS_MIN: u64 = 50 * MILLI_NS;
const RESTORE_NS_MAX: u64 = 10 * SECOND_NS;
/// Whoever removed routes has stopped doing so if nothing was missing for this long.
const CALM_NS: u64 = 60 * SECOND_NS;
/// Changes often come several at a time: where packets go is asked this long after the first, and
/// this often at most.
const VERIFY_AFTER_NS: u64 = 100 * MILLI_NS;
const VERIFY_NS: u64 = SECOND_NS;
/// At most this many prefixes are looked up before packets get their turn.
const PREFIXES_IN_A_ROW: usize = 8;
/// At most this many detours of a peer are logged in full.
const DETOURS_MAX: usize = 3;

/// The times at which the routes are checked.
#[derive(Debug)]
pub(super) struct RouteCare {
    /// Routes of ours may be missing: they are restored then.
    restore_at: Instant,
    restore_ns: u64,
    restored_at: Instant,
    /// The time at which the routes of packets for the peers are looked up.
    verify_at: Instant,
    verified_at: Instant,
    /// The prefixes that are still to be asked for, and what was found so far.
    left: Vec<(usize, IpNet)>,
    found: BTreeMap<usize, Vec<Detour>>,
    /// Routes of others in the place of our unreachable ones.
    displaced: Vec<FoundRoute>,
}

impl Default for RouteCare {
    fn default() -> Self {
        Self {
            restore_at: Instant::FAR_FUTURE,
            restore_ns: RESTORE_NS_MIN,
            restored_at: Instant::ZERO,
            verify_at: Instant::ZERO,
            verified_at: Instant::ZERO,
            left: Vec::new(),
            found: BTreeMap::new(),
            displaced: Vec::new(),
        }
    }
}

impl RouteCare {
    pub(super) fn due(&self) -> Instant {
        self.restore_at.min(self.verify_at)
    }

    /// Packets may take another route than before.
    pub(super) fn verify_soon(&mut self, now: Instant) {
        let at = (now + VERIFY_AFTER_NS).max(self.verified_at + VERIFY_NS);
        self.verify_at = self.verify_at.min(at);
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

/// Returns true if a route may change where packets for a peer go, or the datagrams to it.
fn concerns(node: &Node, prefix: IpNet) -> bool {
    let overlaps = |wanted: &IpNet| wanted.contains(&prefix) || prefix.contains(wanted);
    (0..node.peer_count()).any(|peer| {
        node.peer_config(peer).is_some_and(|config| config.prefixes.iter().any(overlaps))
            || node.endpoint(peer).is_some_and(|endpoint| prefix.contains(&endpoint.ip()))
    })
}

/// Joins the detours of a peer's prefixes in one: the first ones in full, then the number of the
/// rest.
fn join(detours: Vec<Detour>) -> Option<Detour> {
    let more = detours.len().saturating_sub(DETOURS_MAX);
    let mut detours = detours.into_iter().take(DETOURS_MAX);
    let mut all = detours.next()?;
    for Detour { why, remedy, .. } in detours {
        all.why = format!("{} {why}", all.why);
        if !all.remedy.contains(&remedy) {
            all.remedy = format!("{} {remedy}", all.remedy);
        }
    }
    if more > 0 {
        all.why = format!("{} So do those for {more} more prefixes.", all.why);
    }
    Some(all)
}

impl Engine {
    /// Makes the routes what the peers' states ask for.
    pub(super) fn sync_routes(&mut self) -> Result<(), RunError> {
        // One that can't be set must not keep the others from being set.
        let mut result = Ok(());
        for change in changes(self.routes.added(), &self.wanted_routes()) {
            match change {
                RouteChange::Add(route) => {
                    if let Err(error) = self.routes.add(route) {
                        result = result.and(Err(error.into()));
                    }
                }
                RouteChange::Remove(route) => {
                    if let Err(error) = self.routes.remove(route) {
                        tracing::warn!("{error}");
                    }
                }
            }
        }
        // Indices of peers may be others now.
        self.route_care.left.clear();
        self.route_care.verify_soon(Clock::now());
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
        let Some(tun) = &self.env.tun else { return wanted };
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
        let ours = self.env.tun.as_ref().map(Tun::ifindex);
        let (routes, node, care) = (&self.routes, &self.node, &mut self.route_care);
        let result = self.route_watch.read(|event| match event {
            RouteEvent::Added(found) | RouteEvent::Removed(found) => {
                let is_foreign = found.protocol != PROTOCOL;
                // One of another program may have replaced ours, which is reported as its addition
                // only; what is removed then is not ours either.
                if (is_foreign || matches!(event, RouteEvent::Removed(_)))
                    && routes.added().iter().any(|route| found.takes_place_of(route))
                {
                    care.restore_soon(now);
                }
                if is_foreign && concerns(node, found.prefix) {
                    care.verify_soon(now);
                }
            }
            // The kernel drops the routes of an interface that is down, and says nothing.
            RouteEvent::Link { ifindex, is_up } if Some(ifindex) == ours => {
                if is_up {
                    care.restore_soon(now);
                }
                care.verify_soon(now);
            }
            RouteEvent::Missed => {
                care.restore_soon(now);
                care.verify_soon(now);
            }
            RouteEvent::Rule => care.verify_soon(now),
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
        if now >= self.route_care.verify_at {
            self.route_care.verify_at = Instant::FAR_FUTURE;
            self.verify_routes(now);
        }
    }

    /// Asks the kernel where packets for the peers go, a part of them at a time.
    fn verify_routes(&mut self, now: Instant) {
        let Some(interface) = self.env.tun.as_ref().map(Tun::ifindex) else { return };
        if self.route_care.left.is_empty() {
            self.route_care.found.clear();
            if self.is_interface_up(interface) {
                self.route_care.left = self.prefixes_to_verify();
            }
        }
        for _ in 0..PREFIXES_IN_A_ROW {
            let Some((peer, prefix)) = self.route_care.left.pop() else { break };
            let Some(config) = self.node.peer_config(peer) else { continue };
            match detour(self.routes.routes(), config, prefix, Some(interface)) {
                Ok(Some(detour)) => {
                    if detour.is_ours_missing {
                        self.route_care.restore_soon(now);
                    }
                    self.route_care.found.entry(peer).or_default().push(detour);
                }
                Ok(None) => {}
                Err(error) => tracing::debug!("{error}"),
            }
        }
        if !self.route_care.left.is_empty() {
            self.route_care.verify_at = now; // goes on when others had their turn
            return;
        }
        self.route_care.verified_at = now;
        for peer in 0..self.node.peer_count() {
            let mut detours = self.route_care.found.remove(&peer).unwrap_or_default();
            detours.extend(self.displaced_of(peer));
            self.report_detour(peer, Problem::Bypassed, join(detours));
            let circle = self.circle_of(peer, interface);
            self.report_detour(peer, Problem::EndpointInTunnel, circle);
        }
    }

    /// The prefixes whose packets are to go into the interface now.
    fn prefixes_to_verify(&self) -> Vec<(usize, IpNet)> {
        let peers = (0..self.node.peer_count()).filter(|peer| self.node.wants_routes(*peer));
        let of_peer = |peer: usize| {
            let prefixes = self.node.peer_config(peer).map(|config| config.prefixes.clone());
            prefixes.unwrap_or_default().into_iter().map(move |prefix| (peer, prefix))
        };
        peers.flat_map(of_peer).collect()
    }

    /// Other routes in the place of those that refuse what a dead tunnel should carry.
    fn displaced_of(&self, peer: usize) -> Vec<Detour> {
        let Some(config) = self.node.peer_config(peer) else { return Vec::new() };
        let of_peer = |found: &&FoundRoute| {
            config.on_dead == FailMode::Closed
                && found.metric == config.metric.saturating_add(1)
                && config.prefixes.iter().any(|prefix| prefix.trunc() == found.prefix)
        };
        self.route_care.displaced.iter().filter(of_peer).map(displaced).collect()
    }

    fn circle_of(&self, peer: usize, interface: u32) -> Option<Detour> {
        let (config, endpoint) = (self.node.peer_config(peer)?, self.node.endpoint(peer)?);
        circle(self.routes.routes(), config, endpoint, interface).ok().flatten()
    }

    /// Looks whether somebody has taken the interface down, and reports it.
    fn is_interface_up(&mut self, interface: u32) -> bool {
        let Ok((name, is_up)) = self.routes.routes().link_name(interface) else { return false };
        if is_up {
            self.node.clear_problem(&mut self.env, None, Problem::InterfaceDown);
            return true;
        }
        let finding = Finding {
            problem: Problem::InterfaceDown,
            why: format!("The interface {name} was taken down: nothing enters the tunnel."),
            remedy: format!("Bring it up again: ip link set {name} up"),
        };
        self.node.note_problem(&mut self.env, None, finding);
        false
    }

    fn report_detour(&mut self, peer: usize, problem: Problem, detour: Option<Detour>) {
        match detour {
            Some(Detour { why, remedy, .. }) => {
                let finding = Finding { problem, why, remedy };
                self.node.note_problem(&mut self.env, Some(peer), finding);
            }
            None => self.node.clear_problem(&mut self.env, Some(peer), problem),
        }
    }

    /// Sets what is missing again.
    fn restore_routes(&mut self, now: Instant) {
        let (mut restored, mut is_any, mut failed) = (Vec::new(), false, false);
        let mut refusing = Vec::new();
        for route in self.routes.added().to_vec() {
            match self.routes.restore(route) {
                Ok(true) => {
                    is_any = true;
                    if route.is_interface() {
                        restored.push(route.prefix.to_string());
                    }
                }
                Ok(false) if !route.is_interface() => refusing.push(route),
                // Where packets really go is found out when that is verified.
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!("a route is not back yet: {error}");
                    failed = true;
                }
            }
        }
        if is_any {
            self.route_care.restored(now);
            self.route_care.verify_soon(now);
        }
        match self.routes.displaced(&refusing) {
            Ok(displaced) if displaced != self.route_care.displaced => {
                self.route_care.displaced = displaced;
                self.route_care.verify_soon(now);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!("{error}"),
        }
        if failed {
            self.route_care.restore_at = now + RESTORE_NS_MAX;
        }
        if !restored.is_empty() {
            tracing::warn!(
                "something removed the routes to {}: they are set again. If another program looks \
                 after routes, let it leave those of proto {PROTOCOL} alone",
                restored.join(", ")
            );
        }
    }

    /// This relay can't go on. What it leaves behind keeps packets from taking another route.
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
