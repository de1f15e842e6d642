use super::*;
use crate::capture::LinkType;
use crate::replay::samples::udp_v4;

const HUB: Station = 0x02_00_00_00_00_01;

fn packet(from: [u8; 4], to: [u8; 4], ports: (u16, u16), bytes: usize) -> PacketInfo {
    let bytes = vec![0; bytes];
    let info = PacketInfo::parse(&udp_v4(ports.0, ports.1, &bytes), 0).unwrap();
    PacketInfo { src: IpAddr::from(from), dst: IpAddr::from(to), ..info }
}

fn learned(packets: &[(Ends, PacketInfo)]) -> Sides {
    let mut learner = Learner::default();
    packets.iter().for_each(|(ends, info)| learner.observe(ends, info));
    learner.finish()
}

fn stations(from: Station, to: Station) -> Ends {
    Ends { mark: None, stations: Some((from, to)) }
}

fn there_and_back(
    ends: impl Fn(u8) -> (Ends, Ends),
    address: impl Fn(u8) -> ([u8; 4], [u8; 4]),
) -> Vec<(Ends, PacketInfo)> {
    (0..10u8)
        .flat_map(|n| {
            let ((near, far), (there, back)) = (address(n), ends(n));
            let port = 40_000 + u16::from(n);
            [
                (there, packet(near, far, (port, 80), 100)),
                (back, packet(far, near, (80, port), 1000)),
            ]
        })
        .collect()
}

/// Asserts that each packet from a client is forward, each to it backward.
fn assert_distinguished(packets: &[(Ends, PacketInfo)], sides: &Sides) {
    for (ends, info) in packets {
        let expected = if info.dst_port == 80 { Direction::Forward } else { Direction::Backward };
        assert_eq!(sides.direction(ends, info), expected, "{info:?}");
    }
}

#[test]
fn marks_come_first() {
    let marked = |mark| Ends { mark: Some(mark), stations: None };
    let packets = there_and_back(
        |_| (marked(Mark::Out), marked(Mark::In)),
        |n| ([10, 0, 0, n], [10, 0, 1, n]),
    );
    let sides = learned(&packets);
    assert_eq!((sides.rule(), sides.agreed()), (Rule::Marks, 1.0));
    assert_distinguished(&packets, &sides);
}

/// A host and its router, many networks behind either.
#[test]
fn frames_have_stations_on_two_sides() {
    let packets = there_and_back(
        |n| (stations(0x20 + u64::from(n), HUB), stations(HUB, 0x20 + u64::from(n))),
        |n| ([10, 0, 0, n], [10, 0, 0, 100 + n % 3]),
    );
    let sides = learned(&packets);
    assert_eq!((sides.rule(), sides.agreed()), (Rule::Frames, 1.0));
    assert_distinguished(&packets, &sides);
}

/// A capture of a loopback device beside one of an Ethernet.
#[test]
fn links_without_stations_are_parted_by_addresses() {
    let frames = there_and_back(
        |n| (stations(0x20 + u64::from(n), HUB), stations(HUB, 0x20 + u64::from(n))),
        |n| ([10, 0, 0, n], [10, 0, 0, 100]),
    );
    let none = |_| (Ends::default(), Ends::default());
    let bare = &there_and_back(none, |_| ([127, 0, 0, 1], [127, 0, 0, 1]))[..2];
    let packets = [&frames[..], bare].concat();
    let sides = learned(&packets);
    assert_eq!((sides.rule(), sides.agreed()), (Rule::Frames, 1.0));
    assert_distinguished(&packets, &sides);
}

/// Frames whose addresses were rewritten say the same of both directions, and are not believed.
#[test]
fn frames_that_contradict_what_hosts_do_are_not_believed() {
    let packets =
        there_and_back(|_| (stations(1, 2), stations(1, 2)), |n| ([10, 0, 0, n], [93, 184, 0, n]));
    let sides = learned(&packets);
    assert_eq!(sides.rule(), Rule::Prefixes);
    assert_distinguished(&packets, &sides);
}

/// Public addresses on both sides.
#[test]
fn addresses_that_talk_to_each_other_are_on_two_sides() {
    let none = |_| (Ends::default(), Ends::default());
    let packets = there_and_back(none, |n| ([130, 0, 0, n], [150, 0, 0, n / 2]));
    let sides = learned(&packets);
    assert_eq!((sides.rule(), sides.agreed()), (Rule::Addresses, 1.0));
    assert_distinguished(&packets, &sides);
    assert!(sides.names()[1].ends_with("and 4 others"), "{:?}", sides.names());
}

/// A host that talks to everybody can be on no side: then it is a guess by clients and servers.
#[test]
fn where_everybody_talks_to_everybody_it_is_a_guess() {
    let all = (0..6u8).flat_map(|a| (0..6u8).map(move |b| (a, b))).filter(|(a, b)| a < b);
    let packets: Vec<_> = all
        .flat_map(|(a, b)| {
            let (near, far) = ([130, 0, 0, a], [130, 0, 0, b]);
            [packet(near, far, (50_000, 80), 500), packet(far, near, (80, 50_000), 500)]
        })
        .map(|info| (Ends::default(), info))
        .collect();
    let sides = learned(&packets);
    assert_eq!(sides.rule(), Rule::Ports);
    assert_distinguished(&packets, &sides);
}

/// A loopback device, where both ends have the same address.
#[test]
fn within_a_host_ports_decide() {
    let packets = there_and_back(
        |_| (Ends::default(), Ends::default()),
        |_| ([127, 0, 0, 1], [127, 0, 0, 1]),
    );
    let sides = learned(&packets);
    assert_eq!((sides.rule(), sides.agreed()), (Rule::Addresses, 1.0));
    assert_distinguished(&packets, &sides);
    assert_eq!(sides.names()[1], "127.0.0.1 (servers)");
}

#[test]
fn what_was_stated_is_believed() {
    let sides = Sides::inside(vec!["10.1.0.0/16".parse().unwrap()]);
    let of = |from, to| sides.direction(&Ends::default(), &packet(from, to, (1, 2), 10));
    assert_eq!(of([10, 1, 0, 1], [10, 2, 0, 1]), Direction::Forward);
    assert_eq!(of([10, 2, 0, 1], [10, 1, 0, 1]), Direction::Backward);
    assert_eq!(of([10, 1, 0, 1], [10, 1, 0, 2]), Direction::Neither);
    assert_eq!(of([10, 2, 0, 1], [10, 3, 0, 2]), Direction::Neither);
    assert_eq!(of([10, 1, 0, 1], [239, 0, 0, 1]), Direction::Forward);
}

/// Announcements to everybody don't show where a host is, and go away from their sender.
#[test]
fn packets_to_many_go_away_from_their_sender() {
    let group = [239, 255, 255, 250];
    let many = |from| (Ends::default(), packet(from, group, (1900, 1900), 3000));
    let none = |_| (Ends::default(), Ends::default());
    let talk = there_and_back(none, |n| ([130, 0, 0, n], [150, 0, 0, 1]));
    let all = [&talk[..], &[many([130, 0, 0, 1]), many([150, 0, 0, 1])]].concat();
    let sides = learned(&all);
    assert_eq!((sides.rule(), sides.agreed()), (Rule::Addresses, 1.0));
    assert_distinguished(&talk, &sides);
    let of = |(ends, info): (Ends, PacketInfo)| sides.direction(&ends, &info);
    assert_eq!(of(many([130, 0, 0, 1])), Direction::Forward);
    assert_eq!(of(many([150, 0, 0, 1])), Direction::Backward);
    let only = [many([130, 0, 0, 1])];
    assert_eq!(learned(&only).direction(&only[0].0, &only[0].1), Direction::Forward);
}

#[test]
fn frames_are_read() {
    let of = |link, data: &[u8], mark| {
        let link = LinkType(link);
        Ends::of(&Packet { timestamp_ns: None, link, data, wire_len: 0, mark })
    };
    let ethernet = [1, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 8, 0];
    let ends = of(1, &ethernet, Some(Mark::In));
    assert_eq!(ends.stations, Some((0x02_00_00_00_00_03, 0x01_00_00_00_00_02)));
    assert!(ends.mark == Some(Mark::In) && ends.is_to_many());
    assert_eq!(of(1, &[0; 14], None), Ends::default());
    assert_eq!(of(113, &[0, 4], None).mark, Some(Mark::Out));
    assert_eq!(of(113, &[0, 3], None).mark, None);
    assert_eq!(of(276, &[0; 20], None).mark, Some(Mark::In));
    assert_eq!(of(204, &[1], None).mark, Some(Mark::Out));
    for link in [1, 113, 276, 204] {
        assert_eq!(of(link, &[], None), Ends::default());
    }
}
