//! Journals of relays in virtual networks, repeated on ports of their own.

use dwell_base::time::MICRO_NS;
use dwell_drive::repeat;

use super::harness::{Net, Traffic, config_with, good_link};
use crate::config::SCHEMES;

#[test]
fn a_core_does_the_same_again() {
    for scheme in SCHEMES {
        let is_gathered = ["flow", "service", "host-pair", "edge"].contains(&scheme);
        for more in ["", if is_gathered { "block_packets = 5" } else { "chunk_compress = false" }] {
            let classes =
                "[[class]]\nname = \"fast\"\nports = [\"udp/1000-1003\"]\nmax_wait = \"20ms\"";
            let lines = format!("scheme = \"{scheme}\"\n{more}\n{classes}");
            let configs = [0, 1].map(|side| config_with(side, true, "10mbit", &lines));
            let mut net = Net::new(&configs, &good_link().with_loss(0.01), 21);
            for id in net.ends {
                net.net.with_node(id, |end, _, _| {
                    end.node.keep_journal(0);
                    end.traffic = Traffic { flows: 8, six: true, payload_max: 1_200, random: 0.4 };
                });
            }
            net.run_to(200);
            net.start_sources(200, 3_000, 300 * MICRO_NS);
            net.run_to(2_000);
            for id in net.ends {
                net.net.with_node(id, |end, _, _| {
                    let entries = end.node.take_journal(0);
                    let lines: Vec<String> =
                        entries.iter().map(dwell_drive::Entry::to_line).collect();
                    let read = lines.iter().enumerate();
                    let read = read.map(|(n, line)| dwell_drive::Entry::from_line(line, n + 1));
                    let (port, actions) = repeat(read).unwrap_or_else(|error| {
                        panic!("{scheme}, {more}: {error}");
                    });
                    assert!(actions > 1_000, "{scheme}: {actions}");
                    assert_eq!(port.accounts(), end.node.peers[0].port.accounts(), "{scheme}");
                });
            }
        }
    }
}
