//! The I/O modules against a real kernel, each test in a network namespace of its own.
//!
//! They need CAP_SYS_ADMIN and CAP_NET_ADMIN (and /dev/net/tun, and `tc` for some); without
//! these a test says so and passes. An ordinary user has them under `unshare -rn`, where
//! /dev/net/tun may be opened.

#![allow(clippy::unwrap_used, reason = "here a panic is how a failure is reported")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;
use std::thread;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_relay::io::clock::Clock;
use dwell_relay::io::poller::{Interest, Poller, Token};
use dwell_relay::io::route::{
    LinkSettings, Route, RouteError, RouteEvent, RouteGuard, RouteWatch, Routes, Target,
};
use dwell_relay::io::tun::{BATCH_MAX, PacketBatch, Tun, TunError, TunOptions, TunWriteBatch};
use dwell_relay::io::udp::{RecvBatch, SendOutcome, UdpPort};
use ipnet::IpNet;
use rustix::thread::UnshareFlags;
use socket2::{Domain, Socket, Type};

/// Gives the calling thread a network namespace of its own.
#[allow(unsafe_code, reason = "no safe wrapper of unshare is at hand")]
fn unshare() -> rustix::io::Result<()> {
    // SAFETY: only descriptor tables and memory that are unshared endanger safety.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Runs a test on a thread with a fresh namespace, whose loopback interface is up.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        if let Err(errno) = unshare() {
            eprintln!("skipped: cannot make a network namespace: {errno}");
            return;
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("skipped: there is no /dev/net/tun");
            return;
        }
        raise("lo");
        test();
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

fn raise(name: &str) {
    let routes = Routes::new().unwrap();
    let up = LinkSettings { up: Some(true), ..LinkSettings::default() };
    routes.set_link(routes.link_index(name).unwrap(), &up).unwrap();
}

fn tun(name: &str, addresses: &[&str], offload: bool) -> Tun {
    let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
    Tun::open(&TunOptions { name: name.into(), mtu: 1400, addresses, offload }).unwrap()
}

fn run(command: &str) -> Option<String> {
    let mut words = command.split(' ');
    let output = Command::new(words.next()?).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ten_seconds() -> Instant {
    Clock::now() + 10 * SECOND_NS
}

// --- interface -------------------------------------------------------------------------

#[test]
fn an_interface_comes_as_ordered_and_goes() {
    in_namespace(|| {
        let tun = tun("dwell%d", &["10.9.0.1/24", "fd09::1/64"], true);
        assert_eq!(tun.name(), "dwell0");
        assert_eq!(tun.mtu().unwrap(), 1400);
        let routes = Routes::new().unwrap();
        assert_eq!(routes.link_index("dwell0").unwrap(), tun.ifindex());
        // Bound at once: no duplicate address detection.
        for local in ["10.9.0.1:0", "[fd09::1]:0"] {
            UdpPort::bind(addr(local), None, None).unwrap();
        }
        tun.set_mtu(1300).unwrap();
        assert_eq!(tun.mtu().unwrap(), 1300);
        // No router solicitation, no multicast report but ours: nothing waits.
        let mut batch = PacketBatch::new(0, 1400);
        assert_eq!(tun.recv(&mut batch).unwrap(), 0);
        let options =
            TunOptions { name: "dwell0".into(), mtu: 1400, addresses: Vec::new(), offload: true };
        assert!(matches!(Tun::open(&options), Err(TunError::Busy { .. })));
        drop(tun);
        assert!(matches!(routes.link_index("dwell0"), Err(RouteError::NoInterface { .. })));
    });
}

#[test]
fn a_deleted_interface_is_gone_and_one_that_is_down_refuses() {
    in_namespace(|| {
        let tun = tun("t0", &["10.9.0.1/24"], true);
        let mut batch = TunWriteBatch::new();
        let routes = Routes::new().unwrap();
        let down = LinkSettings { up: Some(false), ..LinkSettings::default() };
        routes.set_link(tun.ifindex(), &down).unwrap();
        let packets: Vec<_> = (0..3).map(|i| tcp(&Flow::v4(1), i * 100, 100)).collect();
        packets.iter().for_each(|packet| assert!(batch.push(packet)));
        let flushed = batch.flush(&tun).unwrap();
        assert_eq!((flushed.written, flushed.refused), (0, 3));
        assert_eq!(flushed.error, Some(rustix::io::Errno::IO));
        if run("ip link del t0").is_none() {
            eprintln!("skipped in part: cannot run ip");
            return;
        }
        assert!(batch.push(&packets[0]));
        assert!(matches!(batch.flush(&tun), Err(TunError::Gone { .. })));
        let mut batch = PacketBatch::new(0, 1400);
        assert!(matches!(tun.recv(&mut batch), Err(TunError::Gone { .. })));
    });
}

// --- routes ----------------------------------------------------------------------------

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

#[test]
fn an_interface_of_another_kind_is_named() {
    in_namespace(|| {
        if run("ip link add dwell0 type veth peer name other").is_none() {
            eprintln!("skipped: cannot make a veth with ip");
            return;
        }
        let options =
            TunOptions { name: "dwell0".into(), mtu: 1400, addresses: Vec::new(), offload: true };
        let message = Tun::open(&options).unwrap_err().to_string();
        assert!(message.contains("of kind veth"), "{message}");
        assert!(message.contains("ip link delete dwell0"), "{message}");
    });
}

// --- UDP -------------------------------------------------------------------------------

fn receive(port: &UdpPort, want: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut poller = Poller::new().unwrap();
    poller.register(port, Token(0), Interest::Read).unwrap();
    let (mut batch, mut events, mut got) = (RecvBatch::new(4), Vec::new(), Vec::new());
    let deadline = ten_seconds();
    while got.len() < want && Clock::now() < deadline {
        poller.wait(Some(deadline), Clock::now(), &mut events).unwrap();
        let count = port.recv(&mut batch).unwrap();
        let before = got.len();
        got.extend(batch.datagrams().map(|(from, datagram)| (from, datagram.to_vec())));
        assert_eq!(got.len() - before, count);
    }
    got
}

#[test]
fn datagrams_keep_their_boundaries_and_content() {
    in_namespace(|| {
        for (local, peer) in [("127.0.0.1:7001", "127.0.0.1:7002"), ("[::1]:7001", "[::1]:7002")]
            .map(|(a, b)| (addr(a), addr(b)))
        {
            let sender = UdpPort::connect(local, peer, None, None).unwrap();
            let receiver = UdpPort::bind(peer, None, Some(8 << 20)).unwrap();
            assert!(receiver.recv(&mut RecvBatch::new(1)).unwrap() == 0);
            // 300 segments of 500 bytes are several system calls; the last is shorter.
            let contents: Vec<u8> = (0..300 * 500 - 123).map(|i| (i / 500 + i) as u8).collect();
            assert!(sender.send(&contents, Some(500)).is_sent());
            assert!(sender.send(&contents[..700], None).is_sent());
            assert!(sender.send_to(&contents[..9], Some(500), peer).is_sent());
            let got = receive(&receiver, 302);
            assert!(got.iter().all(|(from, _)| *from == local));
            let want: Vec<&[u8]> =
                contents.chunks(500).chain([&contents[..700], &contents[..9]]).collect();
            assert_eq!(got.len(), want.len());
            assert!(got.iter().zip(want).all(|((_, got), want)| got == want));
        }
    });
}

#[test]
fn a_listener_and_connected_ports_share_an_address() {
    in_namespace(|| {
        let hub = addr("127.0.0.1:7000");
        let [a, b, c] = ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"].map(addr);
        let listener = UdpPort::bind(hub, None, None).unwrap();
        let to_a = UdpPort::connect(hub, a, None, None).unwrap();
        let to_b = UdpPort::connect(hub, b, None, None).unwrap();
        assert_eq!((to_a.local_addr().unwrap(), to_a.peer_addr().unwrap()), (hub, a));
        for from in [a, b, c] {
            let port = UdpPort::bind(from, None, None).unwrap();
            assert!(port.send_to(from.to_string().as_bytes(), None, hub).is_sent());
        }
        for (port, from) in [(&to_a, a), (&to_b, b), (&listener, c)] {
            assert_eq!(receive(port, 1), [(from, from.to_string().into_bytes())]);
        }
    });
}

#[test]
fn only_sockets_of_the_same_user_share_a_port() {
    in_namespace(|| {
        for (hub, peer) in [("127.0.0.1:7000", "127.0.0.1:7001"), ("[::1]:7000", "[::1]:7001")] {
            let (hub, peer) = (addr(hub), addr(peer));
            let listener = UdpPort::bind(hub, None, None).unwrap();
            let _to_peer = UdpPort::connect(hub, peer, None, None).unwrap();
            // Only this thread becomes somebody else. It is in the same network namespace.
            let steal = move || {
                let user = rustix::process::Uid::from_raw(65_534);
                if let Err(error) = rustix::thread::set_thread_res_uid(user, user, user) {
                    eprintln!("skipped in part: cannot become another user: {error}");
                    return;
                }
                for share in 0..4 {
                    let socket = Socket::new(Domain::for_address(hub), Type::DGRAM, None).unwrap();
                    socket.set_reuse_address(share & 1 != 0).unwrap();
                    socket.set_reuse_port(share & 2 != 0).unwrap();
                    let kind = socket.bind(&hub.into()).map_err(|error| error.kind());
                    assert_eq!(kind, Err(ErrorKind::AddrInUse), "{hub}, options {share}");
                }
            };
            if let Err(panic) = thread::spawn(steal).join() {
                std::panic::resume_unwind(panic);
            }
            drop(listener);
        }
    });
}

#[test]
fn nobody_listening_is_reported_and_survived() {
    in_namespace(|| {
        let (local, peer) = (addr("127.0.0.1:7001"), addr("127.0.0.1:7002"));
        let port = UdpPort::connect(local, peer, None, None).unwrap();
        assert!(port.send(b"one", None).is_sent());
        assert!(matches!(port.send(b"two", None), SendOutcome::Refused(_)));
        assert!(port.send(b"three", None).is_sent());
        assert_eq!(port.recv(&mut RecvBatch::new(1)).unwrap(), 0);
        let receiver = UdpPort::bind(peer, None, None).unwrap();
        assert!(port.send(b"four", None).is_sent());
        assert_eq!(receive(&receiver, 1), [(local, b"four".to_vec())]);
        let nowhere = receiver.send_to(b"five", None, addr("203.0.113.1:9"));
        assert!(matches!(nowhere, SendOutcome::Refused(_)), "{nowhere:?}");
    });
}

#[test]
fn the_path_mtu_is_known_and_learned() {
    in_namespace(|| {
        let tun = tun("t0", &["10.9.0.1/24", "fd09::1/64"], false);
        let mut batch = PacketBatch::new(0, 1400);
        for (local, peer, headers) in
            [("10.9.0.1:7", "10.9.0.2:7", 28), ("[fd09::1]:7", "[fd09::2]:7", 48)]
        {
            let port = UdpPort::connect(addr(local), addr(peer), None, None).unwrap();
            assert_eq!(port.path_mtu().unwrap(), 1400);
            assert_eq!(port.datagram_max().unwrap(), 1400 - headers);
            let contents = [7; 8000];
            for segment in [None, Some(1401 - headers)] {
                let outcome = port.send(&contents, segment);
                let SendOutcome::TooBig { accepted: 0, mtu: Some(1400) } = outcome else {
                    panic!("{outcome:?}");
                };
            }
            assert!(port.offload());
            assert!(port.send(&contents, Some(1400 - headers)).is_sent());
            let mut lens = Vec::new();
            while tun.recv(&mut batch).unwrap() > 0 {
                lens.extend(batch.packets().map(|packet| packet.len()));
            }
            assert_eq!(lens[..lens.len() - 1], vec![1400; lens.len() - 1]);
        }
        // A router says that the path takes less.
        let port = UdpPort::connect(addr("10.9.0.1:8"), addr("10.9.0.2:8"), None, None).unwrap();
        assert!(port.send(&[7; 1300], None).is_sent());
        assert_eq!(tun.recv(&mut batch).unwrap(), 1);
        let complaint = too_big(batch.packets().next().unwrap(), 1000);
        let mut answers = TunWriteBatch::new();
        assert!(answers.push(&complaint));
        assert_eq!(answers.flush(&tun).unwrap().written, 1);
        assert_eq!(port.path_mtu().unwrap(), 1000);
        // What fits is sent, although the answer is reported to the first who asks.
        assert!(port.send(&[7; 972], None).is_sent());
        let outcome = port.send(&[7; 973], None);
        assert!(matches!(outcome, SendOutcome::TooBig { accepted: 0, mtu: Some(1000) }));
    });
}

/// ICMP "fragmentation needed" about `packet`.
fn too_big(packet: &[u8], mtu: u16) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(&packet[..28]);
    let sum = !sum_words(&icmp, 0);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut answer = vec![0x45, 0, 0, 20 + icmp.len() as u8, 0, 0, 0, 0, 64, 1, 0, 0];
    answer.extend([10, 9, 0, 2]);
    answer.extend([10, 9, 0, 1]);
    let sum = !sum_words(&answer, 0);
    answer[10..12].copy_from_slice(&sum.to_be_bytes());
    answer.extend(icmp);
    answer
}

#[test]
fn a_busy_link_blocks_and_becomes_writable_again() {
    in_namespace(|| {
        if run("tc qdisc add dev lo root tbf rate 8mbit burst 4000 limit 1000000").is_none() {
            eprintln!("skipped: cannot shape the loopback interface with tc");
            return;
        }
        let (local, peer) = (addr("127.0.0.1:7001"), addr("127.0.0.1:7002"));
        let receiver = UdpPort::bind(peer, None, Some(4 << 20)).unwrap();
        let port = UdpPort::connect(local, peer, Some(8192), None).unwrap();
        assert_eq!(port.outq_bytes().unwrap(), 0);
        let mut sent = 0;
        let accepted = loop {
            match port.send(&[sent as u8; 1000], None) {
                SendOutcome::Sent => sent += 1,
                SendOutcome::WouldBlock { accepted } => break accepted,
                other => panic!("{other:?}"),
            }
            assert!(sent < 100, "never blocks");
        };
        assert_eq!(accepted, 0);
        assert!(port.outq_bytes().unwrap() > 1000);
        let mut poller = Poller::new().unwrap();
        let mut events = Vec::new();
        poller.register(&port, Token(9), Interest::Write).unwrap();
        poller.wait(Some(ten_seconds()), Clock::now(), &mut events).unwrap();
        assert!(events[0].writable && events[0].token == Token(9));
        assert!(port.send(&[0; 1000], None).is_sent());
        assert_eq!(receive(&receiver, sent + 1).len(), sent + 1);
        assert_eq!(port.outq_bytes().unwrap(), 0);
        assert!(port.set_send_buffer(1 << 20).unwrap() >= 1 << 20);
    });
}

// --- packets ---------------------------------------------------------------------------

#[derive(Clone)]
struct Flow {
    from: IpAddr,
    to: IpAddr,
    port: u16,
}

impl Flow {
    fn v4(port: u16) -> Self {
        Self { from: "10.1.0.2".parse().unwrap(), to: "10.2.0.2".parse().unwrap(), port }
    }

    fn v6(port: u16) -> Self {
        Self { from: "fd01::2".parse().unwrap(), to: "fd02::2".parse().unwrap(), port }
    }

    /// An IP packet; the checksum is at `sum_at` of `transport`.
    fn packet(&self, protocol: u8, id: u16, mut transport: Vec<u8>, sum_at: usize) -> Vec<u8> {
        transport[..2].copy_from_slice(&self.port.to_be_bytes());
        let len = transport.len() as u16;
        let (mut packet, pseudo) = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut head = vec![0x45, 0];
                head.extend((20 + len).to_be_bytes());
                head.extend(id.to_be_bytes());
                head.extend([0, 0, 64, protocol, 0, 0]);
                head.extend(from.octets());
                head.extend(to.octets());
                let sum = !sum_words(&head, 0);
                head[10..12].copy_from_slice(&sum.to_be_bytes());
                let pseudo = sum_words(&head[12..20], u32::from(protocol) + u32::from(len));
                (head, pseudo)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut head = vec![0x60, 0, 0x12, 0x34];
                head.extend(len.to_be_bytes());
                head.extend([protocol, 64]);
                head.extend(from.octets());
                head.extend(to.octets());
                let pseudo = sum_words(&head[8..40], u32::from(protocol) + u32::from(len));
                (head, pseudo)
            }
            _ => unreachable!("one family"),
        };
        let sum = !sum_words(&transport, u32::from(pseudo));
        transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(transport);
        packet
    }
}

/// One's complement sum, the plain way.
fn sum_words(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn tcp_with(flow: &Flow, sequence: u32, payload: usize, id: u16, flags: u8) -> Vec<u8> {
    let mut tcp = vec![0, 0, 0, 80];
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 0x80, flags, 0x10, 0, 0, 0, 0, 0]);
    tcp.extend([1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    tcp.extend((0..payload).map(|i| (i as u32 + sequence) as u8));
    flow.packet(6, id, tcp, 16)
}

fn tcp(flow: &Flow, sequence: u32, payload: usize) -> Vec<u8> {
    tcp_with(flow, sequence, payload, (sequence / 1000) as u16, 0x10)
}

fn udp(flow: &Flow, id: u16, payload: usize) -> Vec<u8> {
    let mut udp = vec![0, 0, 0, 53];
    udp.extend((8 + payload as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend((0..payload).map(|i| (i as u16 + id) as u8));
    flow.packet(17, id, udp, 6)
}

/// Whether the transport checksum of a packet is right.
fn is_sound(packet: &[u8]) -> bool {
    let (addresses, at, protocol) =
        if packet[0] >> 4 == 6 { (8..40, 40, packet[6]) } else { (12..20, 20, packet[9]) };
    let len = (packet.len() - at) as u32;
    let pseudo = sum_words(&packet[addresses], u32::from(protocol) + len);
    (at == 40 || sum_words(&packet[..20], 0) == 0xffff)
        && sum_words(&packet[at..], u32::from(pseudo)) == 0xffff
}

/// What a packet is after one router.
fn forwarded(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
    } else {
        packet[8] -= 1;
        packet[10..12].fill(0);
        let sum = !sum_words(&packet[..20], 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// A namespace that forwards between an interface with offload and one without.
fn router() -> (Tun, Tun) {
    let joined = tun("t0", &["10.1.0.1/24", "fd01::1/64"], true);
    let plain = tun("t1", &["10.2.0.1/24", "fd02::1/64"], false);
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    (joined, plain)
}

fn drain(tun: &Tun) -> Vec<Vec<u8>> {
    let (mut batch, mut packets) = (PacketBatch::new(0, 1400), Vec::new());
    while tun.recv(&mut batch).unwrap() > 0 {
        packets.extend(batch.packets().map(|packet| packet.to_vec()));
    }
    // Of the kernel's own accord come multicast reports.
    packets.retain(|packet| packet[0] >> 4 == 4 || packet[6] != 0 && packet[6] != 58);
    packets
}

/// Writes packets into the router, and checks that what comes out is what went in.
fn check_route(joined: &Tun, plain: &Tun, packets: &[Vec<u8>], writes: usize) {
    let mut batch = TunWriteBatch::new();
    packets.iter().for_each(|packet| assert!(batch.push(packet)));
    let flushed = batch.flush(joined).unwrap();
    assert_eq!((flushed.written, flushed.refused), (packets.len(), 0));
    if joined.offload() && joined.udp_offload() {
        assert_eq!(flushed.writes, writes);
    } else {
        eprintln!("skipped in part: this kernel has no offload");
    }
    let (mut got, mut want) =
        (drain(plain), packets.iter().map(|packet| forwarded(packet)).collect::<Vec<_>>());
    // Flows may overtake each other; a flow's packets may not.
    let flow =
        |packet: &Vec<u8>| packet[if packet[0] >> 4 == 6 { 40..42 } else { 20..22 }].to_vec();
    got.sort_by_key(flow);
    want.sort_by_key(flow);
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!(got, want, "packet {i}");
    }
}

#[test]
fn joined_packets_are_cut_into_what_they_were() {
    in_namespace(|| {
        let (joined, plain) = router();
        for flow in [Flow::v4, Flow::v6] {
            // One train of TCP, the last packet shorter; beside it, two of UDP.
            let mut packets = Vec::new();
            for i in 0..40 {
                packets.push(tcp(&flow(1), i * 1000, if i == 39 { 500 } else { 1000 }));
                packets.push(udp(&flow(2), i as u16, if i == 20 { 299 } else { 300 }));
            }
            check_route(&joined, &plain, &packets, 3);
            // More than one IP packet can be: 51 of 1280 bytes are too many.
            let bulk: Vec<_> =
                (0..BATCH_MAX as u32).map(|i| tcp(&flow(1), i * 1000, 1000)).collect();
            check_route(&joined, &plain, &bulk, 2);
        }
    });
}

#[test]
fn what_cutting_would_not_restore_is_not_joined() {
    in_namespace(|| {
        let (joined, plain) = router();
        let flow = Flow::v4(1);
        let ack = |i: u32, flags| tcp_with(&flow, i * 100, 100, i as u16, flags);
        let with_push = [ack(0, 0x10), ack(1, 0x18), ack(2, 0x10), ack(3, 0x10)];
        check_route(&joined, &plain, &with_push, 2);
        check_route(&joined, &plain, &[ack(0, 0x10), ack(1, 0x11), ack(2, 0x10)], 3);
        check_route(&joined, &plain, &[ack(0, 0x10), ack(2, 0x10), ack(1, 0x10)], 3);
        let longer = [ack(0, 0x10), tcp_with(&flow, 100, 200, 1, 0x10)];
        check_route(&joined, &plain, &longer, 2);
        // Another identification, of packets that may be fragmented.
        check_route(&joined, &plain, &[ack(0, 0x10), tcp_with(&flow, 100, 100, 7, 0x10)], 2);
        // An acknowledgement without data keeps its place.
        let bare = tcp_with(&flow, 100, 0, 1, 0x10);
        check_route(&joined, &plain, &[ack(0, 0x10), bare, ack(1, 0x10), ack(2, 0x10)], 3);
        // Damaged packets stay damaged.
        for damaged in 0..3 {
            let mut packets = vec![ack(0, 0x10), ack(1, 0x10), ack(2, 0x10)];
            packets[damaged][70] ^= 1;
            assert!(!is_sound(&packets[damaged]));
            check_route(&joined, &plain, &packets, if damaged == 1 { 3 } else { 2 });
        }
        let mut no_checksum = udp(&flow, 1, 100);
        no_checksum[26..28].fill(0);
        let empty = udp(&flow, 1, 0);
        check_route(&joined, &plain, &[udp(&flow, 0, 100), no_checksum, udp(&flow, 2, 100)], 3);
        check_route(&joined, &plain, &[udp(&flow, 0, 100), empty, udp(&flow, 2, 100)], 3);
    });
}

#[test]
fn a_full_batch_says_so_and_rubbish_is_refused() {
    in_namespace(|| {
        let tun = tun("t0", &["10.1.0.1/24"], true);
        let mut batch = TunWriteBatch::new();
        for i in 0..BATCH_MAX as u32 {
            assert!(batch.push(&tcp(&Flow::v4(1), i, 1)));
        }
        assert!(!batch.push(&[0x45]));
        batch.clear();
        assert!(batch.push(&vec![0; 65_535]) && batch.len() == 1);
        batch.clear();
        assert!(batch.push_with(1400, |_| 0) && batch.is_empty());
        assert!(batch.push_with(1400, |buffer| {
            buffer[..3].copy_from_slice(&[0x15, 1, 2]);
            3
        }));
        let flushed = batch.flush(&tun).unwrap();
        assert_eq!((flushed.written, flushed.refused, batch.len()), (0, 1, 0));
        assert_eq!(flushed.error, Some(rustix::io::Errno::INVAL));
    });
}

/// A TCP stream over two interfaces in two namespaces, each read and written as the relay
/// does.
#[test]
fn tcp_flows_through_and_every_packet_is_sound() {
    for (ours, theirs, server, offload) in [
        ("10.7.0.1/24", "10.7.0.2/24", "10.7.0.1:5000", true),
        ("fd07::1/64", "fd07::2/64", "[fd07::1]:5000", true),
        ("10.7.0.1/24", "10.7.0.2/24", "10.7.0.1:5000", false),
    ] {
        in_namespace(move || {
            let near = tun("t0", &[ours], offload);
            let listener = TcpListener::bind(server).unwrap();
            unshare().unwrap();
            let far = tun("t0", &[theirs], offload);
            let client =
                Socket::new(Domain::for_address(addr(server)), Type::STREAM, None).unwrap();
            let total = 8_000_000;
            let sending = thread::spawn(move || {
                client.connect(&addr(server).into()).unwrap();
                let bytes: Vec<u8> = (0..total).map(|i| (i % 251) as u8).collect();
                (&client).write_all(&bytes).unwrap();
            });
            let receiving = thread::spawn(move || {
                let mut bytes = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
                bytes
            });
            let (split, joined) = relay_until(&near, &far, || receiving.is_finished());
            sending.join().unwrap();
            let bytes = receiving.join().unwrap();
            assert_eq!(bytes.len(), total);
            assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
            if near.offload() {
                assert!(split > 2.0, "{split:.1} packets a read");
                assert!(joined > 2.0, "{joined:.1} packets a write");
            }
        });
    }
}

/// Carries packets between two interfaces; returns the packets of a read and of a write.
fn relay_until(near: &Tun, far: &Tun, done: impl Fn() -> bool) -> (f64, f64) {
    let mut poller = Poller::new().unwrap();
    poller.register(near, Token(0), Interest::Read).unwrap();
    poller.register(far, Token(1), Interest::Read).unwrap();
    let (mut events, mut read, mut write) =
        (Vec::new(), PacketBatch::new(32, 1400), TunWriteBatch::new());
    let (mut packets, mut reads, mut written, mut writes) = (0, 0, 0, 0);
    let deadline = ten_seconds() + 20 * SECOND_NS;
    while !done() {
        assert!(Clock::now() < deadline, "the stream is stuck");
        let now = Clock::now();
        poller.wait(Some(now + SECOND_NS / 20), now, &mut events).unwrap();
        for (from, to) in [(near, far), (far, near)] {
            let count = from.recv(&mut read).unwrap();
            packets += count;
            reads += usize::from(count > 0);
            for packet in read.packets() {
                assert!(packet.len() <= 1400 && is_sound(packet), "{:?}", &packet[..60]);
                assert!(write.push(packet));
            }
            let flushed = write.flush(to).unwrap();
            assert_eq!(flushed.refused, 0);
            written += flushed.written;
            writes += flushed.writes;
        }
    }
    assert_eq!(read.skipped(), 0);
    (packets as f64 / reads as f64, written as f64 / writes as f64)
}

// --- poller ----------------------------------------------------------------------------

#[test]
fn events_come_before_a_later_deadline_and_deadlines_in_order() {
    in_namespace(|| {
        let mut poller = Poller::new().unwrap();
        let port = UdpPort::bind(addr("127.0.0.1:0"), None, None).unwrap();
        poller.register(&port, Token(1), Interest::Read).unwrap();
        let mut events = Vec::new();
        let start = Clock::now();
        let mut previous = start;
        for ns in [200_000, 300_000, 1_500_000] {
            poller.wait(Some(start + ns), Clock::now(), &mut events).unwrap();
            let now = Clock::now();
            assert!(events.is_empty() && now >= start + ns && now >= previous);
            previous = now;
        }
        assert!(port.send_to(b"now", None, port.local_addr().unwrap()).is_sent());
        poller.wait(Some(ten_seconds()), Clock::now(), &mut events).unwrap();
        assert_eq!(events.len(), 1);
        assert!(events[0].readable);
        // A regular file can be read at any time: there is nothing to wait for.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let error = poller.register(&file, Token(2), Interest::Read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
}
