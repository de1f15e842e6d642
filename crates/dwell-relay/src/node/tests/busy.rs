//! A link that is faster than the thread which compresses for it.

use dwell_base::time::{MICRO_NS, SECOND_NS};

use super::harness::*;

/// Sends bursts of packets, each as soon as the one before is dealt with, for half a second, to a link of 1
/// Gbit/s over which they take 0.5 ms. To fetch one takes 0.4 ms, and to compress a packet 0.02. Returns the
/// packets that were tried.
fn tried(sleeps: bool) -> u64 {
    let configs = [0, 1].map(|side| config_with(side, true, "1gbit", "scheme = \"packet\""));
    let mut net = Net::new(&configs, &good_link(), 5);
    net.run_to(200);
    let mut tried = 0;
    net.net.with_node(net.ends[0], |end, _, _| {
        end.traffic = Traffic { flows: 4, six: false, payload_max: 1_300, random: 0.0 };
        end.env.compress_byte_ns = 15;
        let until = end.env.now.get() + SECOND_NS / 2;
        let mut is_first = true;
        while end.env.now.get() < until {
            let from = end.env.now.get();
            end.env.now.set(from + 400 * MICRO_NS);
            if sleeps || is_first {
                end.node.slept(from, end.env.now.get());
            }
            is_first = false;
            for _ in 0..45 {
                let mut packet = end.make_packet();
                end.node.packet(&mut end.env, &mut packet);
                end.node.pump(&mut end.env, 0);
            }
            end.env.sent.clear();
        }
        tried = end.node.peers[0].port.accounts().compress.tried;
    });
    tried
}

#[test]
fn a_thread_without_rest_compresses_less_for_a_link_that_idles() {
    let [rested, busy] = [true, false].map(tried);
    assert!(rested > 5_000, "{rested}");
    assert!(busy * 20 < rested * 19, "{busy} of {rested}");
    assert!(busy > 0);
}
