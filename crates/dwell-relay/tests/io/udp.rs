//! UDP sockets.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::thread;

use dwell_relay::io::clock::Clock;
use dwell_relay::io::poller::{Interest, Poller, Token};
use dwell_relay::io::tun::{PacketBatch, TunWriteBatch};
use dwell_relay::io::udp::{RecvBatch, SendOutcome, UdpPort};
use dwell_testkit::skips::{skipped, skipped_in_part};
use socket2::{Domain, Socket, Type};

use super::flow::sum_words;
use super::{addr, in_namespace, run, ten_seconds, tun};

fn receive(port: &UdpPort, want: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut poller = Poller::new().unwrap();
    poller.register(port, Token(0), Interest::Read).unwrap();
    let (mut batch, mut events, mut got) = (RecvBatch::new(4), Vec::new(), Vec::new());
    let deadline = ten_seconds();
    while got.len() < want && Clock::now() < deadline {
        poller.wait(Some(deadline), Clock::now(), &mut events).unwrap();
        let count = port.recv(&mut batch).unwrap();
        let before = got.len();
        got.extend(batch.datagrams().map(|it| (it.source, it.bytes.to_vec())));
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
                    skipped_in_part(format_args!("cannot become another user: {error}"));
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
            skipped("cannot shape the loopback interface with tc");
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
