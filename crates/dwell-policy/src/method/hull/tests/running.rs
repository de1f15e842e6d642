//! Codecs that go on with a running context.

use super::*;

#[test]
fn where_every_codec_needs_the_context_none_but_the_one_that_has_it_is_taken() {
    let prior =
        |codec, cost_ns, saving| Prior { codec, cost_ns, saving, refers: Referring::OnlyContinues };
    let mut hull: Hull<Codec> = Hull::new(&[prior(0, 1.0, 0.3), prior(1, 4.0, 0.6)]);
    let taken = next(&mut hull, &slow_link(), BLOCK);
    assert_eq!(taken, Some(1), "a slow link is worth the dearer one");
    let probe = Block { probing: true, ..BLOCK };
    let random = Block { looks_random: true, more: false, busy: false, ..BLOCK };
    for block in [probe, probe, random, BLOCK] {
        assert_eq!(next(&mut hull, &slow_link(), block), taken, "{block:?}");
    }
    assert_eq!(next(&mut hull, &link_of(1e5, 0), random), taken);
}

/// A processor that idles although all goes with what leaves the least shows nothing of how slow a link is: the heavier
/// codec, with which it would be busy, carries less.
#[test]
fn a_processor_that_idles_in_vain_does_not_make_a_link_seem_thin() {
    let prior =
        |codec, cost_ns, saving| Prior { codec, cost_ns, saving, refers: Referring::OnlyContinues };
    let mut hull: Hull<Codec> = Hull::new(&[prior(0, 10.0, 0.5), prior(1, 40.0, 0.6)]);
    let link = link_of(2e7, 1 << 30);
    for ms in 0..2_000 {
        let now = Instant::from_ns(ms * 1_000_000);
        if ms % 10 == 0 {
            assert_eq!(next_at(&mut hull, now, &link), Some(0), "after {ms} ms");
            hull.running.went(1 << 20);
            hull.balance.works(now, true, (0, hull.leaves_least()));
        } else {
            hull.balance.waits(now);
        }
    }
    assert!(hull.balance.correction() > 0.8, "half of the rate would be worth it");
    let slower = link_of(1e7, 1 << 30);
    let found = (0..8).map(|_| next(&mut hull, &slower, BLOCK)).last();
    assert_eq!(found, Some(Some(1)), "a link of that rate is");
}
