//! What must hold of `dwell-trace` for any bytes.

use dwell_trace::{Accounts, Batch, Capture, Datagram, Settings};

/// Bytes as a capture: it is refused, or read as far as it goes, twice the same; every IP packet
/// that is found lies in its frame, and all of it adds up.
pub fn capture(bytes: &[u8]) {
    let Ok(mut capture) = Capture::open(bytes) else { return };
    let (mut packets, mut wire_bytes, mut position) = (0, 0, 0);
    while let Some(packet) = capture.next_packet() {
        packets += 1;
        wire_bytes += u64::from(packet.wire_len);
        if let Ok(datagram) = Datagram::find(&packet, 7) {
            assert!(datagram.bytes.len() <= packet.data.len());
            assert!(datagram.bytes.len() <= datagram.info.total_len || !datagram.is_whole());
        }
        assert!(capture.position() > position, "no packet is made of nothing");
        position = capture.position();
    }
    assert!(capture.next_packet().is_none(), "a packet after the end");

    let mut again = Capture::open(bytes).expect("it was one before");
    let mut accounts = Accounts::new(&Settings::default());
    accounts.begin("again", again.format());
    let mut batch = Batch::default();
    while accounts.fill(&mut again, &mut batch) {}
    let analysis = accounts.finish();
    assert_eq!(analysis.files[0].trouble, capture.trouble().map(ToString::to_string));
    assert_eq!((analysis.frames().packets, analysis.frames().bytes), (packets, wire_bytes));
    assert!(analysis.ip().packets <= packets);
}
