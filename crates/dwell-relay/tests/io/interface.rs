//! TUN interfaces.

use std::thread;
use std::time::{Duration, Instant};

use dwell_relay::io::route::{LinkSettings, RouteError, Routes};
use dwell_relay::io::tun::{PacketBatch, Tun, TunError, TunOptions, TunWriteBatch};
use dwell_relay::io::udp::UdpPort;
use dwell_testkit::skips::{skipped, skipped_in_part};

use super::flow::{Flow, tcp};
use super::{addr, in_namespace, run, tun};

const MOMENT: Duration = Duration::from_millis(10);
/// What others need to end has ended by then.
const PATIENCE: Duration = Duration::from_secs(5);

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
        // A program that another test is just starting may hold the descriptor until it runs.
        let is_gone = || matches!(routes.link_index("dwell0"), Err(RouteError::NoInterface { .. }));
        let end = Instant::now() + PATIENCE;
        while !is_gone() {
            assert!(Instant::now() < end, "it stays");
            thread::sleep(MOMENT);
        }
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
            skipped_in_part("cannot run ip");
            return;
        }
        assert!(batch.push(&packets[0]));
        assert!(matches!(batch.flush(&tun), Err(TunError::Gone { .. })));
        let mut batch = PacketBatch::new(0, 1400);
        assert!(matches!(tun.recv(&mut batch), Err(TunError::Gone { .. })));
    });
}

#[test]
fn an_interface_of_another_kind_is_named() {
    in_namespace(|| {
        if run("ip link add dwell0 type veth peer name other").is_none() {
            skipped("cannot make a veth with ip");
            return;
        }
        let options =
            TunOptions { name: "dwell0".into(), mtu: 1400, addresses: Vec::new(), offload: true };
        let message = Tun::open(&options).unwrap_err().to_string();
        assert!(message.contains("of kind veth"), "{message}");
        assert!(message.contains("ip link delete dwell0"), "{message}");
    });
}
