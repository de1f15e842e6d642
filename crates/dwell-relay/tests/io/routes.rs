//! Routes.

use std::net::IpAddr;

use dwell_relay::io::route::{
    Route, RouteError, RouteEvent, RouteGuard, RouteWatch, Routes, Target,
};

use super::{in_namespace, net, run, tun};

#[test]
fn routes_are_added_once_and_removed_by_their_guard() {
    in_namespace(|| {
        let tun = tun("t0", &["10.9.0.1/24", "fd09::1/64"], false);
        let routes = Routes::new().unwrap();
        let shown = || {
            let v4 = run("ip -4 route show").unwrap_or_default();
            v4 + &run("ip -6 route show").unwrap_or_default()
        };
        let into =
            |prefix, metric| Route::new(net(prefix), metric, Target::Interface(tun.ifindex()));
        let mut guard = RouteGuard::new(Routes::new().unwrap());
        for (prefix, metric) in [("10.50.1.7/16", 77), ("fd50::/32", 77), ("0.0.0.0/0", 0)] {
            guard.add(into(prefix, metric)).unwrap();
            let twice = guard.add(into(prefix, metric));
            assert!(matches!(twice, Err(RouteError::RouteExists { .. })), "{twice:?}");
        }
        assert_eq!(guard.added().len(), 3);
        routes.add_route(into("10.50.0.0/16", 78)).unwrap();
        if !shown().is_empty() {
            assert!(shown().contains("10.50.0.0/16 dev t0"), "{}", shown());
            assert!(shown().contains("fd50::/32 dev t0"), "{}", shown());
        }
        // Not one of the guard's: left alone.
        guard.remove(into("10.50.0.0/16", 78)).unwrap();
        guard.remove(into("0.0.0.0/0", 0)).unwrap();
        drop(guard);
        for (prefix, metric) in [("10.50.0.0/16", 77), ("fd50::/32", 77), ("0.0.0.0/0", 0)] {
            routes.add_route(into(prefix, metric)).unwrap();
            routes.delete_route(into(prefix, metric)).unwrap();
            routes.delete_route(into(prefix, metric)).unwrap();
        }
        let again = routes.add_route(into("10.50.0.0/16", 78));
        let message = again.unwrap_err().to_string();
        assert!(message.starts_with("there is already a route to 10.50.0.0/16"), "{message}");
        let nowhere = routes.add_route(Route::new(net("10.60.0.0/16"), 1, Target::Interface(9999)));
        assert!(matches!(nowhere, Err(RouteError::NoInterface { .. })), "{nowhere:?}");
    });
}

/// The unreachable routes that there are for a relay.
fn left_behind(owner: u32) -> usize {
    RouteGuard::new(Routes::new().unwrap()).adopt(owner).unwrap()
}

#[test]
fn unreachable_routes_outlive_a_relay_that_dies_and_only_that() {
    in_namespace(|| {
        let (ours, theirs) = (Target::Unreachable { owner: 7 }, Target::Unreachable { owner: 8 });
        let wanted = ["10.50.0.0/16", "fd50::/32"].map(|p| Route::new(net(p), 51, ours));
        let add = |guard: &mut RouteGuard| wanted.iter().for_each(|r| guard.add(*r).unwrap());
        // One that never came to run leaves nothing.
        let mut guard = RouteGuard::new(Routes::new().unwrap());
        add(&mut guard);
        drop(guard);
        assert_eq!(left_behind(7), 0);
        // One that dies while it runs leaves them, and not another relay but itself finds them.
        let mut guard = RouteGuard::new(Routes::new().unwrap());
        add(&mut guard);
        guard.outlive();
        drop(guard);
        assert_eq!((left_behind(7), left_behind(8)), (2, 0));
        // The next one takes them over, even if it does not come to run.
        let mut guard = RouteGuard::new(Routes::new().unwrap());
        assert_eq!(guard.adopt(7).unwrap(), 2);
        assert!(wanted.iter().all(|route| guard.added().contains(route)));
        drop(guard);
        assert_eq!(left_behind(7), 2);
        // What refuses already need not be refused twice, and is nobody else's to remove.
        let same = Route::new(net("10.50.0.0/16"), 51, theirs);
        let mut other = RouteGuard::new(Routes::new().unwrap());
        other.add(same).unwrap();
        assert!(other.displaced(&[same]).unwrap().is_empty() && other.added() == [same]);
        other.remove(same).unwrap();
        assert!(other.added().is_empty());
        other.add(same).unwrap();
        drop(other);
        assert_eq!((left_behind(7), left_behind(8)), (2, 0));
        let mut other = RouteGuard::new(Routes::new().unwrap());
        other.add(same).unwrap();
        assert!(!other.restore(same).unwrap());
        // In an orderly way.
        let mut guard = RouteGuard::new(Routes::new().unwrap());
        guard.adopt(7).unwrap();
        guard.outlive();
        wanted.iter().for_each(|route| guard.remove(*route).unwrap());
        drop(guard);
        assert_eq!(left_behind(7), 0);
        // Whoever relied on one sets its own then.
        assert!(other.restore(same).unwrap());
        assert_eq!(left_behind(8), 1);
        drop(other);
        assert_eq!(left_behind(8), 0);
    });
}

#[test]
fn a_watch_sees_routes_that_others_remove() {
    in_namespace(|| {
        let tun = tun("t0", &["10.9.0.1/24", "fd09::1/64"], false);
        let mut watch = RouteWatch::new().unwrap();
        let routes = Routes::new().unwrap();
        for prefix in ["10.50.0.0/16", "fd50::/32"] {
            let route = Route::new(net(prefix), 50, Target::Interface(tun.ifindex()));
            routes.add_route(route).unwrap();
            routes.delete_route(route).unwrap();
            let mut seen = Vec::new();
            watch.read(|event| seen.push(event)).unwrap();
            let of_ours = |event: &RouteEvent| match event {
                RouteEvent::Added(route) => (route.prefix == net(prefix)).then_some('+'),
                RouteEvent::Removed(route) => {
                    assert_eq!((route.metric, route.ifindex), (50, Some(tun.ifindex())));
                    Some('-')
                }
                _ => None,
            };
            assert_eq!(seen.iter().filter_map(of_ours).collect::<String>(), "+-", "{seen:?}");
        }
    });
}

#[test]
fn the_kernel_tells_which_route_it_takes() {
    in_namespace(|| {
        let tun = tun("t0", &["10.9.0.1/24", "fd09::1/64"], false);
        let routes = Routes::new().unwrap();
        let into =
            |prefix, metric| Route::new(net(prefix), metric, Target::Interface(tun.ifindex()));
        for (prefix, host) in [("10.50.0.0/16", "10.50.1.2"), ("fd50::/32", "fd50::1")] {
            let host: IpAddr = host.parse().unwrap();
            assert_eq!(routes.lookup(host).unwrap(), None);
            routes.add_route(into(prefix, 50)).unwrap();
            let found = routes.lookup(host).unwrap().unwrap();
            assert_eq!((found.prefix, found.metric), (net(prefix), 50));
            assert!(found.ifindex == Some(tun.ifindex()) && found.is_in_main_table(), "{found:?}");
            let refuse = Route::new(net(prefix), 49, Target::Unreachable { owner: 1 });
            routes.add_route(refuse).unwrap();
            assert_eq!(routes.lookup(host).unwrap(), None);
        }
        let own = routes.lookup("10.9.0.7".parse().unwrap()).unwrap().unwrap();
        assert!(own.is_own_network(), "{own:?}");
    });
}
