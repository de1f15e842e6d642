//! Contexts that begin from a dictionary.

use super::*;

/// A dictionary of text as it is sent, or of something else.
fn dictionary_of(net: &Net, is_right: bool) -> Arc<ContextDictionary> {
    let packets = net.end(0).made.iter().take(40).flatten().copied().collect();
    let bytes = if is_right { packets } else { vec![7; 20_000] };
    Arc::new(ContextDictionary::new(bytes).expect("some bytes"))
}

/// Reloads the configuration of an end with this dictionary.
fn reload(net: &mut Net, side: usize, dictionary: Option<&Arc<ContextDictionary>>) {
    let mut config = config_of(side, true, "9mbit", HOST_PAIR);
    config.peers[0].dictionary = dictionary.cloned();
    net.reconfigure(side, &config);
}

fn of_peers(net: &Net) -> [Option<String>; 2] {
    peers(net).map(|peer| peer.dictionary.map(|it| it.of_peer))
}

fn mismatches(net: &Net) -> [bool; 2] {
    peers(net).map(|peer| peer.problems.iter().any(|it| it.is(Problem::DictionaryMismatch)))
}

/// Both have it, one has it, they have different ones, and it is removed: each time all that is sent
/// comes, and both ends say what is the matter.
#[test]
fn contexts_begin_from_a_dictionary_only_if_both_ends_have_the_same() {
    let same = Some("same".to_owned());
    let cases = [
        ([Some(true), Some(true)], [same.clone(), same], true),
        ([Some(true), None], [Some("none".to_owned()), None], false),
        ([None, Some(true)], [None, Some("none".to_owned())], false),
        ([Some(true), Some(false)], [Some("other".to_owned()), Some("other".to_owned())], false),
    ];
    let sample = run([HOST_PAIR; 2], &good_link(), 31);
    for (has, of_peer, is_used) in cases {
        let mut net = pair_of([HOST_PAIR; 2], &good_link(), 30);
        net.run_to(1_000);
        for side in [0, 1] {
            let dictionary = has[side].map(|is_right| dictionary_of(&sample, is_right));
            reload(&mut net, side, dictionary.as_ref());
        }
        net.run_to(4_000);
        assert_eq!(of_peers(&net), of_peer, "{has:?}");
        let is_wrong = of_peer.clone().map(|it| it.is_some_and(|it| it != "same"));
        assert_eq!(mismatches(&net), is_wrong, "{has:?}");
        net.start_sources(4_000, 4_000, 250 * MICRO_NS);
        net.run_to(10_000);
        assert_sound(&net);
        assert_eq!(lost_of_thousand(&net), 0);
        for peer in peers(&net) {
            let (tx, rx) = (&peer.tx.contexts, &peer.rx.contexts);
            let begun: u64 = tx.generations.values().sum();
            let wanted = if is_used { (begun, 0) } else { (0, begun) };
            assert_eq!((tx.dictionary_starts, tx.cold_starts), wanted, "{has:?}: {tx:?}");
            assert_eq!(rx.dictionary_starts, wanted.0, "{has:?}: {rx:?}");
            assert_eq!((rx.lost_generations, rx.dropped["no_base"]), (0, 0), "{has:?}: {rx:?}");
        }
        // It is removed at both ends: nobody complains any more, and contexts go on.
        reload(&mut net, 0, None);
        reload(&mut net, 1, None);
        net.run_to(14_000);
        assert_eq!((of_peers(&net), mismatches(&net)), ([None, None], [false; 2]), "{has:?}");
        net.start_sources(14_000, 2_000, 250 * MICRO_NS);
        net.run_to(18_000);
        assert_sound(&net);
        assert_eq!(lost_of_thousand(&net), 0);
    }
}

#[test]
fn an_end_that_was_restarted_begins_from_the_dictionary() {
    let sample = run([HOST_PAIR; 2], &good_link(), 31);
    let dictionary = dictionary_of(&sample, true);
    for side in [0, 1] {
        let mut net = pair_of([HOST_PAIR; 2], &good_link().with_loss(0.01), 32);
        net.run_to(1_000);
        reload(&mut net, 0, Some(&dictionary));
        reload(&mut net, 1, Some(&dictionary));
        net.run_to(4_000);
        net.start_sources(4_000, 24_000, 250 * MICRO_NS);
        net.run_to(5_000);
        let mut config = config_of(side, true, "9mbit", HOST_PAIR);
        config.peers[0].dictionary = Some(Arc::clone(&dictionary));
        net.net.with_node(net.ends[side], |end, now, _| {
            let mut other = End::new(side, &config, 1_000);
            other.env.now.set(now);
            std::mem::swap(&mut end.node, &mut other.node);
        });
        net.run_to(9_000);
        assert_nothing_altered(&net);
        for peer in peers(&net) {
            let tx = &peer.tx.contexts;
            assert!(tx.dictionary_starts >= 2 && tx.cold_starts == 0, "{side}: {tx:?}");
            assert!(!is_damaged(&peer), "{side}: {:?}", peer.rx.contexts);
        }
    }
}
