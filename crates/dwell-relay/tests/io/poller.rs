//! Waiting for descriptors and deadlines.

use std::io::ErrorKind;

use dwell_relay::io::clock::Clock;
use dwell_relay::io::poller::{Interest, Poller, Token};
use dwell_relay::io::udp::UdpPort;

use super::{addr, in_namespace, ten_seconds};

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
