//! Routes that live as long as a relay, and those that outlive it.

use super::{FoundRoute, PROTOCOL, Route, RouteError, RouteKind, Routes, Target};

/// The routes of a relay: what it added, it removes when it is dropped, and unreachable routes
/// only then if the relay never came to run ([`outlive`](Self::outlive)) or was asked to end.
#[derive(Debug)]
pub struct RouteGuard {
    routes: Routes,
    added: Vec<Route>,
    /// Of those, the ones that an earlier run of this relay left behind.
    adopted: Vec<Route>,
    /// Of those, the ones in whose place somebody else's route refuses the same.
    foreign: Vec<Route>,
    outlives: bool,
}

impl RouteGuard {
    /// A guard of no routes yet.
    pub fn new(routes: Routes) -> Self {
        Self {
            routes,
            added: Vec::new(),
            adopted: Vec::new(),
            foreign: Vec::new(),
            outlives: false,
        }
    }

    /// Takes over the unreachable routes that a relay of the same owner left behind when it died.
    /// Returns how many there are.
    ///
    /// # Errors
    /// The kernel doesn't list its routes.
    pub fn adopt(&mut self, owner: u32) -> Result<usize, RouteError> {
        let mut adopted = Vec::new();
        self.routes.list(|found| {
            let is_ours = found.protocol == PROTOCOL
                && found.kind == RouteKind::Refusing
                && found.owner == Some(owner)
                && found.is_in_main_table();
            if is_ours {
                let target = Target::Unreachable { owner };
                adopted.push(Route::new(found.prefix, found.metric, target));
            }
        })?;
        let count = adopted.len();
        self.added.extend(&adopted);
        self.adopted.extend(adopted);
        Ok(count)
    }

    /// From now on unreachable routes stay when the guard is dropped.
    pub fn outlive(&mut self) {
        self.outlives = true;
    }

    /// As [`Routes::add_route`], remembered. Somebody else's route of the same metric that refuses
    /// the same packets stands for an unreachable route; it is never removed here, and
    /// [`restore`](Self::restore) adds ours when it is gone.
    ///
    /// # Errors
    /// As [`Routes::add_route`].
    pub fn add(&mut self, route: Route) -> Result<(), RouteError> {
        match self.routes.add_route(route) {
            Err(RouteError::RouteExists { .. })
                if !route.is_interface() && self.displaced(&[route])?.is_empty() =>
            {
                self.foreign.push(route);
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        self.added.push(route);
        Ok(())
    }

    /// Adds a route again that should be there; false if one of its prefix and metric is.
    ///
    /// # Errors
    /// As [`Routes::add_route`].
    pub fn restore(&mut self, route: Route) -> Result<bool, RouteError> {
        match self.routes.add_route(route) {
            Ok(()) => {
                self.foreign.retain(|present| *present != route);
                Ok(true)
            }
            Err(RouteError::RouteExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The routes that stand in the place of one of `expected`, by prefix and metric, and neither
    /// lead where it leads nor refuse what it refuses. This lists all routes of the machine.
    ///
    /// # Errors
    /// The kernel doesn't list its routes.
    pub fn displaced(&self, expected: &[Route]) -> Result<Vec<FoundRoute>, RouteError> {
        let mut displaced = Vec::new();
        if expected.is_empty() {
            return Ok(displaced);
        }
        self.routes.list(|found| {
            let is_other = |route: &Route| found.takes_place_of(route) && !found.serves_as(route);
            if expected.iter().any(is_other) {
                displaced.push(found);
            }
        })?;
        Ok(displaced)
    }

    /// Removes a route now. Routes that this guard did not add are left alone.
    ///
    /// # Errors
    /// As [`Routes::delete_route`]; the route is then still remembered.
    pub fn remove(&mut self, route: Route) -> Result<(), RouteError> {
        if self.added.contains(&route) {
            if !self.foreign.contains(&route) {
                self.routes.delete_route(route)?;
            }
            for list in [&mut self.added, &mut self.adopted, &mut self.foreign] {
                list.retain(|present| *present != route);
            }
        }
        Ok(())
    }

    /// The routes that are to be there now.
    pub fn added(&self) -> &[Route] {
        &self.added
    }

    /// For other changes over the same connection.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The interface has gone, and its routes with it.
    pub fn forget_interface(&mut self) {
        self.added.retain(|route| !route.is_interface());
    }
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        let outlives = self.outlives || std::thread::panicking();
        for route in self.added.drain(..).rev() {
            if self.foreign.contains(&route) {
                continue;
            }
            if route.is_interface() || !(outlives || self.adopted.contains(&route)) {
                // Nobody is left to report to. Routes into a TUN interface go with it anyway.
                let _ = self.routes.delete_route(route);
            }
        }
    }
}
