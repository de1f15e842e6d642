use super::super::codecs::Referring;
use super::*;

mod running;
mod short;

/// The codecs are called by their places.
type Codec = usize;

/// The steering for codecs of these costs in nanoseconds a byte, and savings.
fn hull(codecs: &[(f64, f64)]) -> Hull<Codec> {
    let prior =
        |(codec, &(cost_ns, saving))| Prior { codec, cost_ns, saving, refers: Referring::Never };
    Hull::new(&codecs.iter().enumerate().map(prior).collect::<Vec<_>>())
}

/// The same with these shares.
fn planned(codecs: &[(f64, f64)], raw: f64, shares: &[f64]) -> Hull<Codec> {
    Hull { shares: Shares { raw, codecs: shares.to_vec() }, ..hull(codecs) }
}

/// The slowdown after one block that took this many times longer than estimated.
fn slower(factor: f64) -> Slowdown {
    let mut slowdown = Slowdown::default();
    slowdown.measured(100.0 * factor, 100.0);
    slowdown
}

/// A link that sends `rate` bytes a second, and has so many to send.
fn link_of(rate: f64, level: u32) -> LinkRate {
    let mut link = LinkRate::new(level);
    link.expect(Instant::ZERO, rate);
    link
}

/// A link that sends a byte in each nanosecond, and has something to send for this long.
fn link(drain_ns: u32) -> LinkRate {
    link_of(1e9, drain_ns)
}

/// A link that is slow enough for any codec.
fn slow_link() -> LinkRate {
    link_of(1e5, 1 << 30)
}

/// A link that is faster than all else.
fn fast_link() -> LinkRate {
    link_of(1e10, 1 << 30)
}

const FULL: Offer = Offer { len: 100, history_len: 0, is_full: true, more: true };
const BLOCK: Block =
    Block { len: 100, history_len: 0, looks_random: false, more: true, probing: false, busy: true };

fn next(hull: &mut Hull<Codec>, link: &LinkRate, block: Block) -> Option<Codec> {
    hull.codec(Instant::ZERO, (link, WriteCost::new()), block).map(|choice| choice.codec)
}

fn next_at(hull: &mut Hull<Codec>, now: Instant, link: &LinkRate) -> Option<Codec> {
    hull.codec(now, (link, WriteCost::new()), BLOCK).map(|choice| choice.codec)
}

/// Measures a codec to be what it was believed to be.
fn confirm(hull: &mut Hull<Codec>, at: usize) {
    let codec = hull.estimates.all()[at];
    let len = 1_000_000.0;
    hull.compressed(&Measured {
        choice: codec.choice,
        original_len: len as usize,
        history_len: 2 * len as usize,
        used_len: (codec.point().ratio * len).round() as usize,
        took_ns: (codec.cost_ns * len).round() as u64,
        away_ns: 0,
        is_first: false,
    });
}

/// Fails unless these are the same but for rounding.
#[track_caller]
fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs());
    assert!(near, "{found:?} instead of {expected:?}");
}

/// A busy moment makes no codec seem slow, and is forgotten, also while nothing is compressed.
#[test]
fn what_comes_now_and_then_is_compressed_to_save_bytes_whatever_the_link() {
    let idle = [LinkRate::new(0), link_of(1e10, 0), link_of(1e5, 0)];
    let offer = Offer { len: 10_000, more: false, ..FULL };
    let raw = |saves: bool| {
        let mut hull = hull(&[(5.0, 0.5)]);
        if saves {
            hull.save_bytes();
        }
        idle.each_ref().map(|link| hull.lets_raw_go(Instant::ZERO, offer, link))
    };
    assert_eq!(raw(false), [true, true, false]);
    assert_eq!(raw(true), [false; 3]);
    // A few bytes become no fewer.
    let mut hull = hull(&[(5.0, 0.5)]);
    hull.save_bytes();
    assert!(hull.lets_raw_go(Instant::ZERO, Offer { len: 20, more: false, ..FULL }, &idle[1]));
}

#[test]
fn what_a_thread_was_waited_for_is_no_codecs_cost() {
    let mut hull = hull(&[(10.0, 0.5)]);
    let (original_len, used_len) = (100_000, 50_000);
    hull.compressed(&Measured {
        choice: hull.estimates.all()[0].choice,
        original_len,
        history_len: 0,
        used_len,
        took_ns: 1_000_000,
        away_ns: 3_000_000,
        is_first: false,
    });
    assert_near(&[hull.estimates.all()[0].cost_ns, hull.slowdown.factor()], &[10.0, 3.0]);
    (0..200).for_each(|_| hull.goes_alone(&link(0)));
    assert!(hull.slowdown.factor() < 1.05, "{:?}", hull.slowdown);
}

#[test]
fn an_interruption_slows_down_for_some_tens_of_blocks() {
    let mut slowdown = Slowdown::default();
    assert_eq!(slowdown.factor(), 1.0, "nothing is known");
    slowdown.measured(300.0, 100.0);
    assert_near(&[slowdown.factor()], &[3.0]);
    slowdown.measured(100.0, 100.0);
    assert_near(&[slowdown.factor()], &[(0.98 * 300.0 + 100.0) / 198.0]);
    // A block that is not compressed: what the interruption took more is forgotten.
    slowdown.passed_by();
    assert_near(&[slowdown.factor()], &[(198.0 + 0.98 * 196.0) / 198.0]);
    (0..2_000).for_each(|_| slowdown.passed_by());
    assert_near(&[slowdown.factor()], &[1.0]);
}

#[test]
fn compression_is_never_faster_than_estimated_and_at_most_twenty_times_slower() {
    assert_eq!(slower(0.5).factor(), 1.0);
    assert_near(&[slower(19.0).factor()], &[19.0]);
    assert_eq!(slower(21.0).factor(), 20.0);
}

#[test]
fn blocks_that_are_sent_uncompressed_against_the_plan_ask_for_more() {
    for (raw, correction) in [(0.0, 1.02), (0.005, 1.02), (0.006, 1.0), (1.0, 1.0)] {
        let mut hull = planned(&[(2.0, 0.5)], raw, &[1.0 - raw]);
        hull.went_raw();
        assert_eq!(hull.balance.correction(), correction, "{raw}");
    }
}

#[test]
fn counts_are_forgotten_by_a_twentieth_at_each_block() {
    let mut hull = hull(&[(2.0, 0.3), (20.0, 0.6)]);
    hull.went_raw();
    assert_near(&[hull.raw_count], &[1.0]);
    hull.went_raw();
    assert_near(&[hull.raw_count], &[1.95]);
    // The stronger one, as planned.
    assert_eq!(next(&mut hull, &slow_link(), BLOCK), Some(1));
    assert_near(&hull.counts, &[0.0, 1.0]);
    assert_near(&[hull.raw_count], &[0.95 * 1.95]);
    assert_eq!(next(&mut hull, &slow_link(), BLOCK), Some(1));
    assert_near(&hull.counts, &[0.0, 1.95]);
    hull.went_raw();
    assert_near(&hull.counts, &[0.0, 0.95 * 1.95]);
    // The cheaper one, because the link must not become idle.
    let idle = Block { busy: false, ..BLOCK };
    assert_eq!(next(&mut hull, &fast_link(), idle), Some(0));
    assert_eq!(next(&mut hull, &fast_link(), idle), Some(0));
    assert_near(&hull.counts, &[1.95, 0.95f64.powi(3) * 1.95]);
}

#[test]
fn fewer_are_sent_uncompressed_than_planned_if_the_next_one_keeps_to_the_share() {
    let mut hull = planned(&[(2.0, 0.5), (4.0, 0.6)], 0.0, &[1.0, 0.0]);
    assert!(!hull.wants_raw(0.0), "none is planned");
    (hull.counts, hull.raw_count) = (vec![2.0, 1.0], 3.0);
    // Three of seven are 0.4286.
    assert!(hull.wants_raw(0.43));
    assert!(!hull.wants_raw(0.42));
    hull.raw_count = 4.0;
    assert!(!hull.wants_raw(0.5), "four of eight");
}

#[test]
fn a_planned_share_of_uncompressed_blocks_is_exceeded_only_so_that_the_link_is_not_idle() {
    const CODECS: [(f64, f64); 2] = [(2.0, 0.5), (10.0, 0.7)];
    // A block takes 200 or 1000 ns.
    let lets = |shares, raw_count, drain_ns, slowdown| {
        let mut hull = planned(&CODECS, 0.4, shares);
        (hull.counts, hull.raw_count, hull.slowdown) = (vec![6.0, 0.0], raw_count, slowdown);
        hull.lets_raw_go(Instant::ZERO, FULL, &link(drain_ns))
    };
    let cheap: &[f64] = &[0.6, 0.0];
    let on_time = Slowdown::default();
    // Planned are four of ten, six of ten at most.
    assert!(lets(cheap, 4.5, 250, on_time));
    assert!(!lets(cheap, 4.8, 250, on_time), "a block is compressed meanwhile");
    assert!(lets(cheap, 4.8, 150, on_time), "the link would be idle");
    assert!(lets(cheap, 10.0, 150, on_time));
    assert!(!lets(cheap, 11.0, 150, on_time), "it only seems to be idle");
    assert!(lets(cheap, 4.8, 350, slower(2.0)), "it takes 400 ns");
    assert!(!lets(cheap, 4.8, 450, slower(2.0)));
    assert!(lets(&[0.0, 0.6], 4.8, 250, on_time), "the cheaper one is not planned");
}

/// Equation (2) of Shimamura et al. for a block that waits for nothing: C < (1 − R)·S/B.
#[test]
fn over_an_idle_link_what_waits_for_nothing_is_compressed_if_it_arrives_sooner() {
    // Fewer uncompressed blocks than planned, or more.
    let lets = |cost_ns, raw, raw_count, offer| {
        let mut hull = planned(&[(cost_ns, 0.5)], raw, &[1.0 - raw]);
        hull.raw_count = raw_count;
        hull.lets_raw_go(Instant::ZERO, offer, &link(0))
    };
    let full = Offer { len: 1000, ..FULL };
    let last = Offer { more: false, ..full };
    let open = Offer { is_full: false, ..full };
    assert!(lets(0.1, 0.4, 0.0, full) && !lets(0.1, 0.4, 100.0, full), "the plan decides");
    // Compressed it takes 600 ns, or 1100, and 1000 as it is, whatever is planned.
    for (raw, raw_count) in [(0.0, 0.0), (0.4, 0.0), (0.4, 100.0), (1.0, 0.0)] {
        for offer in [last, open] {
            assert!(!lets(0.1, raw, raw_count, offer), "{raw}, {offer:?}");
            assert!(lets(0.6, raw, raw_count, offer), "{raw}, {offer:?}");
        }
    }
    assert!(lets(0.1, 0.0, 0.0, Offer { len: 63, ..last }), "too short");
}

#[test]
fn short_blocks_have_a_ratio_of_their_own() {
    let mut hull = hull(&[(1.0, 0.5)]);
    let short = Offer { len: 400, is_full: false, more: false, ..FULL };
    let lets = |hull: &Hull<Codec>| hull.lets_raw_go(Instant::ZERO, short, &link_of(1e7, 0));
    // 40 µs as it is, and 400 ns, 10 µs besides and 32 µs if it is compressed to the usual share.
    assert!(lets(&hull));
    let before = hull.estimates.all()[0].point();
    let small = |used_len| Measured {
        choice: Choice::alone(0),
        original_len: 400,
        history_len: 0,
        used_len,
        took_ns: 10_000,
        away_ns: 0,
        is_first: false,
    };
    (0..10).for_each(|_| hull.compressed(&small(100)));
    assert!(!lets(&hull), "they refer to each other");
    (0..20).for_each(|_| hull.compressed(&small(400)));
    assert!(lets(&hull));
    assert_eq!(hull.estimates.all()[0].point(), before, "long ones are as they were");
    (0..1000).for_each(|_| hull.went_raw());
    assert_near(&[(hull.short.any * 1e3).round()], &[800.0]);
}

#[test]
fn what_waits_for_nothing_is_compressed_with_the_codec_that_is_done_first() {
    let codecs = [(0.1, 0.3), (0.2, 0.5), (0.5, 0.6)];
    let next = |rate, more| {
        let mut hull = planned(&codecs, 0.5, &[0.5, 0.0, 0.0]);
        next(&mut hull, &link_of(rate, 0), Block { len: 1000, busy: false, more, ..BLOCK })
    };
    assert_eq!(next(1e9, false), Some(1), "200 and 500 ns");
    assert_eq!(next(1e8, false), Some(2), "500 and 4000 ns");
    assert_eq!(next(1e10, false), Some(0));
    assert_eq!(next(1e10, true), Some(0));
    // What looks random is given no time.
    let random = Block { len: 1000, busy: false, more: false, looks_random: true, ..BLOCK };
    assert_eq!(super::tests::next(&mut hull(&codecs), &link_of(1e8, 0), random), Some(0));
}

#[test]
fn a_short_block_waits_for_its_history_to_be_read() {
    let prior = Prior { codec: 0, cost_ns: 1.0, saving: 0.5, refers: Referring::Rereads };
    let hull: Hull<Codec> = Hull::new(&[prior]);
    let [alone, refers] = [0, 1].map(|at| hull.estimates.all()[at]);
    assert_near(&[alone.work_ns(1000, 0), alone.work_ns(1000, 2000)], &[1000.0, 1000.0]);
    assert_near(&[refers.work_ns(1000, 2000)], &[1400.0]);
    assert_near(&[refers.work_ns(100, 2000)], &[1400.0 * 0.4]);
}

#[test]
fn a_block_goes_uncompressed_against_the_plan_if_the_link_finishes_it_sooner_than_with_any_codec() {
    let lets = |codecs: &[(f64, f64)], link: &LinkRate| {
        let shares = vec![0.0; codecs.len()];
        let offer = Offer { len: 1024, ..FULL };
        planned(codecs, 0.0, &shares).lets_raw_go(Instant::ZERO, offer, link)
    };
    // As it is it takes 1024 ns, and compressed half of that besides the codec's time.
    assert!(!lets(&[(0.4, 0.5)], &link(0)));
    assert!(lets(&[(0.6, 0.5)], &link(0)));
    assert!(!lets(&[(0.6, 0.5)], &link(200)), "it begins while the link is busy");
    assert!(!lets(&[(0.4, 0.5), (0.6, 0.5)], &link(0)), "one is enough");
    // A link on which all figures are exact.
    let exact = link_of(f64::from(1 << 30), 0);
    let as_long_ns = 1e9 / f64::from(1 << 30) / 2.0;
    assert!(!lets(&[(as_long_ns, 0.5)], &exact), "not sooner");
}

#[test]
fn a_compressed_block_is_done_when_codec_and_link_are() {
    let hull = hull(&[(2.0, 0.75)]);
    let done = |drain_ns| done_ns(&hull.estimates.all()[0], 600.0, 100.0, drain_ns, 5e8);
    // The codec takes 600 ns, and the link 50 for what it leaves.
    assert_near(&[done(0.0), done(250.0), done(700.0)], &[650.0, 400.0, 50.0]);
}

#[test]
fn the_codec_that_is_furthest_behind_its_share_is_next() {
    const CODECS: [(f64, f64); 2] = [(2.0, 0.5), (10.0, 0.7)];
    let behind = |counts: [f64; 2]| {
        let hull = planned(&CODECS, 0.5, &[0.3, 0.2]);
        Hull { counts: counts.to_vec(), ..hull }.most_behind()
    };
    // Of 5.9 blocks the first one should have 3.54, and of 5.7 it should have 3.42.
    assert_eq!(behind([3.0, 1.9]), Some(0));
    assert_eq!(behind([3.0, 1.7]), Some(1));
    assert_eq!(planned(&CODECS, 1.0, &[0.0, 0.0]).most_behind(), None);
}

#[test]
fn a_cheaper_codec_is_taken_if_the_link_is_done_sooner_with_it() {
    // 100 and 400 ns, and for the link 50 and 25.
    let in_time = |drain_ns, slowdown| {
        let hull = Hull { slowdown, ..planned(&[(1.0, 0.5), (4.0, 0.75)], 0.005, &[0.0, 1.0]) };
        hull.in_time(1, Instant::ZERO, &link(drain_ns), BLOCK)
    };
    let on_time = Slowdown::default();
    assert_eq!(in_time(450, on_time), Some(1));
    assert_eq!(in_time(380, on_time), Some(1), "5 ns sooner, although the link is idle meanwhile");
    assert_eq!(in_time(350, on_time), Some(0), "25 ns sooner");
    assert_eq!(in_time(0, on_time), Some(0));
    // 300 and 1200 ns.
    assert_eq!(in_time(1_000, slower(3.0)), Some(0));
    assert_eq!(in_time(1_300, slower(3.0)), Some(1));
    let unknown = LinkRate::new(1_000);
    let hull = planned(&[(1.0, 0.5), (4.0, 0.75)], 0.0, &[0.0, 1.0]);
    assert_eq!(hull.in_time(1, Instant::ZERO, &unknown, BLOCK), Some(1));
}

#[test]
fn beside_uncompressed_blocks_a_codec_has_the_time_that_the_link_is_busy() {
    // 100, 200 and 400 ns.
    const CODECS: [(f64, f64); 3] = [(1.0, 0.5), (2.0, 0.6), (4.0, 0.75)];
    let in_time = |planned_at, drain_ns, slowdown| {
        let hull = Hull { slowdown, ..planned(&CODECS, 0.5, &[0.0, 0.0, 0.5]) };
        hull.in_time(planned_at, Instant::ZERO, &link(drain_ns), BLOCK)
    };
    let on_time = Slowdown::default();
    assert_eq!(in_time(2, 450, on_time), Some(2));
    assert_eq!(in_time(2, 250, on_time), Some(1), "the best of those that are done");
    assert_eq!(in_time(2, 50, on_time), None);
    assert_eq!(in_time(0, 450, on_time), Some(0), "none that costs more than planned");
    // 300, 600 and 1200 ns.
    assert_eq!(in_time(2, 550, slower(3.0)), Some(0));
    assert_eq!(in_time(2, 250, slower(3.0)), None);
}

#[test]
fn the_shares_are_those_of_the_bound_with_all_that_a_byte_costs() {
    let mut hull = Hull { slowdown: slower(2.0), ..hull(&[(2.0, 0.5)]) };
    hull.balance.link_idle();
    hull.plan(&link_of(150e6, 1_000), WriteCost::new());
    // Writing takes half a nanosecond for a byte of what is written, all else 0.4 for any byte, and
    // this and compressing take twice as long. The link is taken to be 2 % faster.
    let points = [CodecPoint::new(0.8 + 0.5, 1.0), CodecPoint::new(4.8 + 0.25, 0.5)];
    let bound = Bound::of(153e6, &points);
    assert!(bound.shares[0] > 0.1 && bound.shares[1] > 0.1, "{bound:?}");
    assert_near(&[hull.shares.raw, hull.shares.codecs[0]], &bound.shares);
    // What is not known changes nothing.
    hull.plan(&LinkRate::new(1_000), WriteCost::new());
    assert_near(&[hull.raw_share()], &bound.shares[..1]);
}

#[test]
fn history_is_kept_for_sixty_four_plans_without_a_reference() {
    let prior = Prior { codec: 0, cost_ns: 2.0, saving: 0.5, refers: Referring::Rereads };
    let mut hull = Hull::new(&[prior]);
    hull.plan(&slow_link(), WriteCost::new());
    for plans in 0..64 {
        assert!(hull.keeps_history(), "{plans}");
        hull.plan(&fast_link(), WriteCost::new());
    }
    assert!(!hull.keeps_history());
}

#[test]
fn a_try_after_others_have_failed_is_of_the_cheapest_and_a_middling_codec_in_turn() {
    let mut hull = hull(&[(1.0, 0.3), (2.0, 0.4), (4.0, 0.5), (8.0, 0.6)]);
    let probe = Block { probing: true, ..BLOCK };
    let tried: Vec<_> = (0..4).map(|_| next(&mut hull, &slow_link(), probe)).collect();
    assert_eq!(tried, [Some(0), Some(2), Some(0), Some(2)]);
    assert_eq!(hull.since_explored, 0, "they are not counted as blocks");
}

/// A running context has one codec: what is tried, looks random or can't be in time leaves it that.
/// A receiver that can't follow makes a link look thin: but what is waited for is known.
#[test]
fn who_is_waited_for_gets_what_is_restored_sooner() {
    let prior = |codec, cost_ns, saving, refers| Prior { codec, cost_ns, saving, refers };
    let mut hull: Hull<Codec> = Hull::new(&[
        prior(0, 20.0, 0.6, Referring::OnlyContinues),
        prior(1, 50.0, 0.7, Referring::Predicts),
    ]);
    // Four million bytes a second are what the model takes, and what the link seems to carry of them.
    let link = link_of(4e6 * 0.3, 1 << 30);
    let len = 1 << 20;
    let mut used = Vec::new();
    for ms in 0..8_000 {
        let now = Instant::from_ns(ms * 1_000_000);
        let waited_ns = if used.last() == Some(&1) { ms * 1_000_000 } else { 0 };
        let (receiver_wait_ns, queue_ns) = (waited_ns, 2_000_000);
        hull.reported(now, &LinkReport { receiver_wait_ns, queue_ns, ..LinkReport::default() });
        if ms % 100 == 0 {
            let choice = hull.codec(now, (&link, WriteCost::new()), BLOCK).unwrap();
            hull.running.went(len);
            used.push(choice.codec);
        }
    }
    assert!(used[..8].contains(&1), "{used:?}");
    assert_eq!(used.last(), Some(&0), "{used:?}");
}

/// A busy machine at this end says nothing of the other one.
#[test]
fn waiting_for_threads_here_is_not_charged_to_the_other_end() {
    let prior = |codec, cost_ns, saving, refers| Prior { codec, cost_ns, saving, refers };
    let mut hull: Hull<Codec> = Hull::new(&[
        prior(0, 20.0, 0.6, Referring::OnlyContinues),
        prior(1, 50.0, 0.7, Referring::Predicts),
    ]);
    let [of_zstd, model] = [0, 1].map(|at| hull.estimates.all()[at]);
    let restoring = hull.restoring.factor();
    assert!(restoring > 1.0);
    for here in [1.0, 3.0, 9.0] {
        hull.slowdown = slower(here);
        assert_near(&[hull.slower(&of_zstd), hull.slower(&model)], &[here, here.max(restoring)]);
        let alone = hull.restoring_ns(&model, (1_000, 0));
        assert_near(&[alone], &[1_000.0 * restoring * model.cost_ns]);
    }
    // It is waited for the other end: that is what the link waits for then, unless this one is slower still.
    for ms in 0..20_000 {
        hull.running.choose([1].into_iter(), (true, 1.0), |_| 1.0);
        let report = LinkReport { receiver_wait_ns: ms * 1_000_000, ..LinkReport::default() };
        hull.reported(Instant::from_ns(ms * 1_000_000), &report);
    }
    let restoring = hull.restoring.factor();
    assert!((4.0..9.0).contains(&restoring));
    for here in [1.0, 3.0, 9.0] {
        hull.slowdown = slower(here);
        assert_near(&[hull.slower(&of_zstd), hull.slower(&model)], &[here, here.max(restoring)]);
    }
}

/// Where there is nothing but a model, what comes before the link is known to be full goes as it is.
#[test]
fn a_model_alone_waits_until_the_link_is_known_to_be_full() {
    let mut hull: Hull<Codec> =
        Hull::new(&[Prior { codec: 0, cost_ns: 50.0, saving: 0.7, refers: Referring::Predicts }]);
    let idle = Block { busy: false, more: false, ..BLOCK };
    let blocks = [
        BLOCK,
        idle,
        Block { probing: true, ..BLOCK },
        Block { probing: true, ..BLOCK },
        Block { looks_random: true, ..idle },
        Block { busy: false, ..BLOCK },
    ];
    // Also as long as no rate is known.
    for link in [LinkRate::new(1 << 30), slow_link(), fast_link()] {
        for block in blocks {
            assert_eq!(next(&mut hull, &link, block), None, "{block:?}");
            assert!(hull.lets_raw_go(Instant::ZERO, FULL, &link));
        }
    }
    for ms in [0, 300] {
        let now = Instant::from_ns(ms * 1_000_000);
        let report = LinkReport { queue_ns: 3_000_000, ..LinkReport::default() };
        hull.reported(now, &report);
        let expected = (ms > 0).then_some(0);
        assert_eq!(next_at(&mut hull, now, &slow_link()), expected);
    }
}

/// To save bytes nothing goes as it is: then a model alone is used at once.
#[test]
fn a_model_alone_is_used_at_once_to_save_bytes() {
    let mut hull: Hull<Codec> =
        Hull::new(&[Prior { codec: 0, cost_ns: 50.0, saving: 0.7, refers: Referring::Predicts }]);
    hull.save_bytes();
    let idle = Block { busy: false, more: false, ..BLOCK };
    for block in
        [idle, BLOCK, Block { probing: true, ..idle }, Block { looks_random: true, ..idle }]
    {
        let link = LinkRate::new(1 << 30);
        assert!(!hull.lets_raw_go(Instant::ZERO, FULL, &link));
        assert_eq!(next(&mut hull, &link, block), Some(0), "{block:?}");
    }
}

/// While a transport begins slowly the link seems to be thin.
#[test]
fn a_link_that_is_not_full_yet_is_not_taken_to_be_thin() {
    let prior = |codec, cost_ns, saving, refers| Prior { codec, cost_ns, saving, refers };
    let mut hull: Hull<Codec> = Hull::new(&[
        prior(0, 20.0, 0.6, Referring::OnlyContinues),
        prior(1, 50.0, 0.7, Referring::Predicts),
    ]);
    let mut codec_at = |ms: u64, queue_ns, rate| {
        let now = Instant::from_ns(ms * 1_000_000);
        let report = LinkReport { round_trip_ns: 8_000_000, queue_ns, ..LinkReport::default() };
        hull.reported(now, &report);
        next_at(&mut hull, now, &link_of(rate, 1 << 30))
    };
    assert_eq!(codec_at(1, 3_000_000, 1e6), Some(0));
    assert_eq!(codec_at(249, 3_000_000, 1e6), Some(0));
    assert_eq!(codec_at(251, 3_000_000, 1e6), Some(1));
    // It becomes faster: nobody waits until a megabyte has gone through.
    let soon = (252..270).map(|ms| codec_at(ms, 3_000_000, 2e7)).collect::<Vec<_>>();
    assert!(soon.contains(&Some(0)), "{soon:?}");
}

#[test]
fn after_two_hundred_blocks_that_were_not_compressed_one_is() {
    let mut hull = hull(&[(100.0, 0.5), (200.0, 0.6)]);
    hull.slowdown = slower(2.0);
    let compressed: Vec<_> =
        (1..=402).filter(|_| next(&mut hull, &fast_link(), BLOCK).is_some()).collect();
    assert_eq!(compressed, [201, 402]);
    assert_near(&hull.counts, &[1.95, 0.0]);
    assert!(hull.slowdown.factor() < 1.001, "the last interruption is forgotten: {hull:?}");
    // While the link has nothing to do, each block is.
    let idle = Block { busy: false, ..BLOCK };
    assert!((0..402).all(|_| next(&mut hull, &fast_link(), idle) == Some(0)));
}

#[test]
fn one_block_in_twenty_four_is_tried_with_the_cheaper_and_the_better_neighbour_in_turn() {
    // Only the last one is worth its time. The others leave too much to be tried for their age.
    let mut best = hull(&[(1.0, 0.3), (2.0, 0.5), (4.0, 0.7)]);
    let tried: Vec<_> = (1..=72).map(|_| next(&mut best, &slow_link(), BLOCK)).collect();
    let others = (1..=72).zip(&tried).filter(|(_, at)| **at != Some(2));
    assert_eq!(others.collect::<Vec<_>>(), [(24, &Some(1)), (72, &Some(1))]);

    let mut middle = hull(&[(1.0, 0.3), (2.0, 0.5), (10.0, 0.7), (14.0, 0.8), (61.0, 0.9)]);
    let mut neighbour = |planned| {
        middle.since_explored = 23;
        assert_eq!(middle.neighbour(planned), None, "not yet");
        middle.since_explored = 24;
        let neighbour = middle.neighbour(planned);
        assert_eq!(middle.since_explored, 0);
        neighbour
    };
    assert_eq!(neighbour(1), Some(0));
    assert_eq!(neighbour(1), Some(2), "five times as long");
    assert_eq!(neighbour(0), None, "there is nothing cheaper");
    assert_eq!(neighbour(0), Some(1));
    assert_eq!(neighbour(2), Some(1));
    assert_eq!(neighbour(4), None, "there is nothing better");
    assert_eq!(neighbour(4), Some(3));
    let mut dear = hull(&[(1.0, 0.3), (6.5, 0.5)]);
    (dear.since_explored, dear.explore_heavier) = (24, false);
    assert_eq!(dear.neighbour(0), None, "more than six times as long");
}

#[test]
fn one_block_in_eight_is_compressed_with_a_codec_that_was_never_measured() {
    let mut hull = hull(&[(10.0, 0.5), (12.0, 0.45)]);
    let tried: Vec<_> = (1..=16).map(|_| next(&mut hull, &slow_link(), BLOCK)).collect();
    let others = (1..=16).zip(&tried).filter(|(_, at)| **at != Some(0));
    assert_eq!(others.collect::<Vec<_>>(), [(8, &Some(1)), (16, &Some(1))]);
}

/// Asks for a codec that was not measured for long, when it is time for one.
fn stale(hull: &mut Hull<Codec>) -> Option<usize> {
    hull.since_stale = 7;
    assert_eq!(hull.stale(0, None), None, "not yet");
    hull.since_stale = 8;
    let stale = hull.stale(0, None);
    assert_eq!(hull.since_stale, 0);
    stale
}

#[test]
fn codecs_that_were_never_measured_are_tried_one_after_the_other() {
    let mut hull = hull(&[(10.0, 0.5), (11.0, 0.5), (12.0, 0.5), (13.0, 0.5)]);
    let tried: Vec<_> = (0..4).map(|_| stale(&mut hull)).collect();
    assert_eq!(tried, [Some(1), Some(2), Some(3), Some(1)]);
    confirm(&mut hull, 2);
    assert_eq!([stale(&mut hull), stale(&mut hull)], [Some(3), Some(1)]);
}

#[test]
fn codecs_are_tried_again_after_a_thousand_blocks() {
    let mut hull = hull(&[(10.0, 0.5), (11.0, 0.5)]);
    confirm(&mut hull, 1);
    (0..999).for_each(|_| confirm(&mut hull, 0));
    assert_eq!(stale(&mut hull), None);
    confirm(&mut hull, 0);
    assert_eq!(stale(&mut hull), Some(1));
}

#[test]
fn what_is_much_worse_is_not_tried_for_its_age() {
    let worse = |cost_ns, saving| stale(&mut hull(&[(10.0, 0.5), (cost_ns, saving)]));
    assert_eq!(worse(14.0, 0.5), Some(1), "less than half as much again");
    assert_eq!(worse(16.0, 0.5), None);
    assert_eq!(worse(16.0, 0.3), None, "neither");
    assert_eq!(worse(11.0, 0.42), Some(1), "0.58 are less than a fifth above 0.5");
    assert_eq!(worse(11.0, 0.38), None);
}

#[test]
fn what_refers_to_earlier_blocks_has_them_kept_first() {
    let prior = Prior { codec: 0, cost_ns: 10.0, saving: 0.5, refers: Referring::Rereads };
    let mut hull = Hull::new(&[prior]);
    assert_eq!(stale(&mut hull), None);
    assert!(hull.keeps_history());
    assert_eq!(stale(&mut hull), Some(1));
    assert!(hull.estimates.all()[1].choice.refers);
}

/// A block alone has to be restored before anybody has it; of several the other end restores one while the next comes.
#[test]
fn a_block_alone_has_to_be_restored_too() {
    // 10 kB, 100 us for the link: compressed in 60 us to four tenths, that is 100; restoring takes 18 more.
    let lets = |cost_ns, more| {
        let offer = Offer { len: 10_000, history_len: 0, is_full: false, more };
        planned(&[(cost_ns, 0.6)], 0.0, &[1.0]).lets_raw_go(Instant::ZERO, offer, &link_of(1e8, 0))
    };
    assert!(!lets(5.9, true) && lets(6.1, true));
    assert!(!lets(4.6, false) && lets(4.7, false) && lets(5.9, false));
    // Heavy ones are restored no slower than fast ones.
    assert_eq!(restoring_ns(1e6, 10_000), 20_000.0);
    assert_eq!(restoring_ns(30_000.0, 10_000), 9_000.0);
}

/// What has nothing behind it is decided by a rate of its own, and does not move the correction of the link's.
#[test]
fn what_is_alone_has_a_rate_of_its_own() {
    let codecs = [(1.0, 0.5)];
    let link = |prudent_rate, goes_raw| {
        let mut link = LinkRate::new(1 << 17);
        let report =
            LinkReport { window_rate: 1e8, prudent_rate, goes_raw, ..LinkReport::default() };
        link.reported(Instant::ZERO, &report);
        link
    };
    let offer = |more| Offer { len: 10_000, history_len: 0, is_full: false, more };
    let lets = |link: &LinkRate, more| hull(&codecs).lets_raw_go(Instant::ZERO, offer(more), link);
    assert!(!lets(&link(1e6, false), false) && lets(&link(0.0, true), false));
    let block = Block { len: 10_000, more: false, busy: false, ..BLOCK };
    let mut hull = hull(&[(1.0, 0.5), (50.0, 0.9)]);
    assert_eq!(next(&mut hull, &link(1e6, false), block), Some(1), "it leaves least");
    assert_eq!(next(&mut hull, &link(0.0, false), block), Some(0), "as the window has it");
    let before = hull.balance.correction();
    for _ in 0..10 {
        let link = link(0.0, true);
        assert!(hull.lets_raw_go(Instant::ZERO, offer(false), &link));
        hull.goes_alone(&link);
        hull.went_raw();
    }
    assert_eq!(hull.balance.correction(), before);
}
