//! The link's own rate, written: it is used up, and no queue stands in front of the link.

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{Instant, Rate};
use dwell_testkit::LinkSpec;

use super::harness::{Net, Traffic, at_ms, config_with};

/// IPv4 and UDP.
const HEADERS_BYTES: u64 = 28;

/// The bytes that a link counts for an IP packet of so many.
type Counted = fn(u64) -> u64;

/// What a link does with what it was given, from a time on.
#[derive(Debug, Default)]
struct Link {
    free_at: Instant,
    /// The bytes that it took, as it counts them.
    bytes: u64,
    /// The longest that a frame waited for those before it.
    waited_ns_max: u64,
}

/// Ten seconds of noise, more than the link carries, through a relay that has the link's own rate in its
/// configuration; with a link that counts `counted` bytes for a datagram with IP and UDP headers.
fn saturated(rate: &str, overhead: &str, payload_max: u64, counted: Counted) -> (Link, f64) {
    let lines = format!("scheme = \"auto\"\nlink_overhead = {overhead}");
    let configs = [0, 1].map(|end| config_with(end, true, rate, &lines));
    let mut net = Net::new(&configs, &LinkSpec::new().with_delay_ns(MILLI_NS), 1);
    net.set_traffic(Traffic { payload_max, random: 1.0, ..Traffic::default() });
    net.run_to(1_000);
    let rate: Rate = rate.parse().expect("a rate");
    let spacing_ns = rate.transmission_ns(counted(payload_max / 2 + HEADERS_BYTES)) / 2;
    net.net.with_node(net.ends[0], |end, _, _| {
        end.log = Some(Vec::new());
        end.source(at_ms(1_000), u64::MAX, spacing_ns);
    });
    net.run_to(12_000);
    let log = net.net.with_node(net.ends[0], |end, _, _| end.log.take().expect("it is kept"));
    let (begin, mut link) = (at_ms(2_000), Link::default());
    for (at, datagram) in log {
        let bytes = counted(datagram.len() as u64 + HEADERS_BYTES);
        link.waited_ns_max = link.waited_ns_max.max(link.free_at.since_ns(at));
        link.free_at = link.free_at.max(at) + rate.transmission_ns(bytes);
        link.bytes += if at >= begin { bytes } else { 0 };
    }
    let used = link.bytes as f64 / rate.bytes_in_ns(10 * SECOND_NS) as f64;
    (link, used)
}

#[test]
fn the_own_rate_of_a_link_is_used_up_without_a_queue_in_front_of_it() {
    let atm = |ip_bytes: u64| (ip_bytes + 40).div_ceil(48) * 53;
    let links: [(&str, Counted); 4] = [
        ("0", |ip_bytes| ip_bytes),
        ("14", |ip_bytes| ip_bytes + 14),
        ("\"ethernet\"", |ip_bytes| (ip_bytes + 38).max(84)),
        ("\"pppoe-llcsnap\"", atm),
    ];
    for (overhead, counted) in links {
        for (rate, payload_max) in [("2mbit", 1_308), ("10mbit", 1_308), ("2mbit", 60)] {
            let (link, used) = saturated(rate, overhead, payload_max, counted);
            let what = format!("{overhead}, {rate}, {payload_max}: {used:.4} used, {link:?}");
            assert!((0.995..=1.0).contains(&used), "{what}");
            // Ahead of its time; or a report, which waits for nothing, met frames that were just begun.
            let frame_ns = rate.parse::<Rate>().expect("a rate").transmission_ns(counted(1_500));
            assert!(link.waited_ns_max <= 2 * frame_ns + MILLI_NS, "{what}");
        }
    }
}

/// A link that counts more than is written has a queue that only its end bounds.
#[test]
fn a_link_that_counts_more_than_is_written_has_a_queue() {
    let (link, used) = saturated("2mbit", "0", 1_308, |ip_bytes| ip_bytes + 14);
    assert!(used > 1.005 && link.waited_ns_max > 50 * MILLI_NS, "{used}, {link:?}");
}
