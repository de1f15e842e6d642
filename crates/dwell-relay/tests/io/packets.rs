//! Packets that are joined and cut as they pass a TUN.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use dwell_base::time::SECOND_NS;
use dwell_relay::io::clock::Clock;
use dwell_relay::io::poller::{Interest, Poller, Token};
use dwell_relay::io::tun::{BATCH_MAX, PacketBatch, Tun, TunWriteBatch};
use dwell_testkit::skips::skipped_in_part;
use socket2::{Domain, Socket, Type};

use super::flow::{Flow, sum_words, tcp, tcp_with, udp};
use super::{addr, in_namespace, ten_seconds, tun, unshare};

/// Returns true if the transport checksum of a packet is right.
fn is_sound(packet: &[u8]) -> bool {
    let (addresses, at, protocol) =
        if packet[0] >> 4 == 6 { (8..40, 40, packet[6]) } else { (12..20, 20, packet[9]) };
    let len = (packet.len() - at) as u32;
    let pseudo = sum_words(&packet[addresses], u32::from(protocol) + len);
    (at == 40 || sum_words(&packet[..20], 0) == 0xffff)
        && sum_words(&packet[at..], u32::from(pseudo)) == 0xffff
}

/// Returns a packet as it is after one router.
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
        skipped_in_part("this kernel has no offload");
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
