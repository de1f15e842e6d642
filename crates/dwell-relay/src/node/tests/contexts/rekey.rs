//! New keys on paths that lose some: what was lost in the last round trip of a session comes again after it.

use super::super::keys::keyed_of;
use super::*;

const RUNNING: &str = "scheme = \"host-pair\"\ncodec = \"zstd:3\"\nhistory = \"host-pair\"\n\
                       history_mode = \"running\"";

const EDGE: &str = "scheme = \"edge\"\ncodec = \"lz4\"";

/// Of both directions together.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    sessions: u64,
    lost_generations: u64,
    /// Packets that did not come, of a million.
    lost_ppm: u64,
    /// The longest that a packet took.
    longest_ns: u64,
}

/// Batches flow for so long over a path of 10 Mbit/s that loses one datagram of a hundred, and keys are renewed so often.
fn run_renewing(
    has_keys: bool,
    delay_ms: u64,
    (for_ms, every_ms): (u64, u64),
    seed: u64,
) -> Outcome {
    let link = good_link().with_delay_ns(delay_ms * MILLI_NS).with_loss(0.01);
    let configs = [0, 1].map(|side| match has_keys {
        true => keyed_of(side, NINE_MBIT, RUNNING),
        false => config_of(side, true, NINE_MBIT, RUNNING),
    });
    let mut net = Net::new(&configs, &link, seed);
    net.set_traffic(TEXT);
    net.run_to(10_000);
    net.start_sources(10_000, 2 * for_ms, 500 * MICRO_NS);
    let mut sessions = 0;
    for ms in (12_000..10_000 + for_ms).step_by(every_ms as usize) {
        net.run_to(ms);
        sessions += 1;
        net.net.with_node(net.ends[(sessions % 2) as usize], |end, now, out| {
            end.node.peers[0].handshake.renew();
            changes::virtual_timers(end, now, out);
        });
    }
    net.run_to(10_000 + for_ms + 6_000);
    assert_sound(&net);
    let lost_generations = peers(&net).iter().map(|peer| peer.rx.contexts.lost_generations).sum();
    let made: usize = [0, 1].iter().map(|&side| net.end(side).made.len()).sum();
    let came: usize = [0, 1].iter().map(|&side| net.end(side).env.delivered.len()).sum();
    let longest = [0, 1].map(|side| net.delays_ns(side, 0..=u16::MAX).1);
    let lost_ppm = (made - came) as u64 * 1_000_000 / made as u64;
    Outcome { sessions, lost_generations, lost_ppm, longest_ns: longest[0].max(longest[1]) }
}

/// A generation ends with new keys no more often than without them.
#[test]
fn generations_outlive_new_keys_on_paths_that_lose_some() {
    for (has_keys, delay_ms, times) in
        [(false, 20, (24_000, 1_500)), (true, 20, (24_000, 1_000)), (false, 300, (40_000, 2_000))]
    {
        let [mut sessions, mut lost_generations, mut most, mut lost_ppm, mut most_ppm] = [0; 5];
        let seeds = extent::seeds(1, 4);
        let runs = seeds.end;
        for seed in seeds {
            let renewing = run_renewing(has_keys, delay_ms, times, seed + 1);
            let without = run_renewing(has_keys, delay_ms, (times.0, 1_000_000), seed + 1);
            sessions += renewing.sessions;
            lost_generations += renewing.lost_generations;
            most += without.lost_generations;
            // What is lost with a generation is compressed again; nobody waits longer than without new keys, but for what the
            // other end can't open yet, as it does not know that there is a session.
            lost_ppm += renewing.lost_ppm;
            most_ppm += without.lost_ppm + 100;
            let longest_ns = without.longest_ns + 4 * delay_ms * MILLI_NS + 200 * MILLI_NS;
            assert!(renewing.longest_ns <= longest_ns, "{renewing:?}, {without:?}");
        }
        assert!(sessions >= runs * 14, "{sessions}");
        assert!(lost_generations <= most + sessions / 20, "{delay_ms} ms: {lost_generations}");
        assert!(lost_ppm <= most_ppm, "{delay_ms} ms: {lost_ppm} of {most_ppm}");
    }
}

/// The final hello is lost with all that is sent beside it.
#[test]
fn a_session_of_which_the_other_end_does_not_know_is_soon_known() {
    let link = good_link().with_delay_ns(20 * MILLI_NS);
    let mut net = pair_of([RUNNING; 2], &link, 5);
    net.run_to(2_000);
    for id in net.ends {
        net.net.with_node(id, |end, _, _| end.source(at_ms(2_000), 8_000, 500 * MICRO_NS));
    }
    net.run_to(3_000);
    net.net.with_node(net.ends[0], |end, now, out| {
        end.node.peers[0].handshake.renew();
        changes::virtual_timers(end, now, out);
    });
    net.run_to(3_035);
    net.net.set_link(net.links[0], link.clone().with_loss(1.0));
    net.run_to(3_060);
    net.net.set_link(net.links[0], link);
    net.run_to(10_000);
    assert_sound(&net);
    let refused = net.end(1).peer().rx.auth_failed;
    assert!(refused > 20, "{refused}: the other end knew of it");
    assert!(refused < 600, "{refused}: for longer than a fifth of a second and what was under way");
    assert!(lost_of_thousand(&net) <= 3, "{}", lost_of_thousand(&net));
}

/// Without contexts nobody asks for what a session before has lost; who sent it again by then does not send it twice.
#[test]
fn nothing_comes_twice_by_a_session_that_is_over() {
    for (seed, lines) in (1..=6).flat_map(|seed| [(seed, EDGE), (seed, RUNNING)]) {
        let mut link = good_link().with_delay_ns(60 * MILLI_NS).with_loss(0.05).with_reorder(0.1);
        link.reorder_by_ns = Some(30 * MILLI_NS);
        let configs = [0, 1].map(|side| keyed_of(side, "1mbit", lines));
        let mut net = Net::new(&configs, &link, seed);
        net.set_traffic(Traffic { random: 0.5, ..TEXT });
        net.run_to(3_000);
        net.start_sources(3_000, 5_000, 2 * MILLI_NS);
        for ms in (3_500..13_000).step_by(700) {
            net.run_to(ms);
            net.net.with_node(net.ends[0], |end, now, out| {
                end.node.peers[0].handshake.renew();
                changes::virtual_timers(end, now, out);
            });
        }
        net.run_to(20_000);
        assert_sound(&net);
    }
}
