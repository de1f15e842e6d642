//! The estimator and the pacer over a modelled bottleneck, in virtual time.

mod bbr;
mod bound;
mod cubic;
mod model;
mod port;

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS, SECOND_NS};
use dwell_testkit::LinkSpec;

use super::{Bottleneck, FORGET_NS, LinkReport, RATE_MIN_BPS};
use model::{Model, Terms};

/// A link that steps 20 → 5 → 12 Mbit/s, ten seconds each.
fn steps() -> LinkSpec {
    LinkSpec::new()
        .with_rate(Rate::from_mbps(20))
        .with_rate_step(10 * SECOND_NS, Rate::from_mbps(5))
        .with_rate_step(20 * SECOND_NS, Rate::from_mbps(12))
        .with_delay_ns(10 * MILLI_NS)
}

/// Runs through the steps; 3 s after each the found rate is within a tenth of the link's, the link
/// is busy, and the queue beyond is short.
fn assert_follows(terms: &Terms, what: &str) {
    for seed in 1..=4 {
        let mut model = Model::new(&Terms { seed, ..terms.clone() });
        model.probe();
        for (phase, mbps) in [20, 5, 12].into_iter().enumerate() {
            let begin = phase as u64 * 10_000;
            let mut seen = model.watch(begin + 3_000, begin + 10_000);
            let link = f64::from(mbps) * 1e6 - terms.cross_bps as f64;
            let off = |bps: f64| bps / link - 1.0;
            let (least, most) = (off(seen.rates_bps[0]), off(*seen.rates_bps.last().unwrap()));
            let came = off(seen.came_bps);
            let queue_ms = seen.queue_ns(0.95) / MILLI_NS;
            assert!(least > -0.1 && most < 0.1, "{what}, seed {seed}: {least:+.3} .. {most:+.3}");
            assert!(queue_ms < 50, "{what}, seed {seed}: {queue_ms} ms stand beyond");
            assert!(
                came > -0.08 - terms.link.loss,
                "{what}, seed {seed}: {came:+.3} of the link used"
            );
        }
    }
}

#[test]
fn a_link_beyond_is_found_and_followed() {
    let terms = Terms { link: steps(), ..Terms::default() };
    assert_follows(&terms, "plain");
    // Without reports the same link has a queue that nobody compresses.
    let mut deaf = Model::new(&Terms { listens: false, ..terms });
    assert!(deaf.watch(3_000, 10_000).queue_ns(0.5) > 50 * MILLI_NS);
}

fn bbr(delay_ns: u64, flows: usize) -> Terms {
    let (link, back) = (steps().with_delay_ns(delay_ns), LinkSpec::new().with_delay_ns(delay_ns));
    Terms { link, back, is_bbr: true, flows, ..Terms::default() }
}

/// Connections that keep queues short leave next to none.
#[test]
fn a_link_beyond_is_found_without_a_queue() {
    for delay_ns in [100 * MICRO_NS, 20 * MILLI_NS] {
        for flows in [1, 4] {
            assert_follows(&bbr(delay_ns, flows), &format!("BBR, {flows}, {delay_ns} ns"));
        }
    }
    // A peer of an earlier version says nothing of single datagrams, and there is no queue to be seen.
    let earlier = Terms { tells_arrivals: false, ..bbr(100 * MICRO_NS, 1) };
    assert_eq!(Model::new(&earlier).watch(3_000, 10_000).held, 0.0);
}

/// Far away they take many seconds to grow, and to give up what they began with.
#[test]
fn a_link_far_beyond_is_found_without_a_queue() {
    for (flows, seed) in [(1, 1), (1, 2), (4, 1), (4, 2)] {
        let mut model = Model::new(&Terms { seed, ..bbr(150 * MILLI_NS, flows) });
        for (from_ms, to_ms, link_bps) in [(5_000, 10_000, 20e6), (14_000, 20_000, 5e6)] {
            let mut seen = model.watch(from_ms, to_ms);
            let what = format!("{flows} flows, seed {seed}, {link_bps}");
            let off = |bps: f64| (bps / link_bps - 1.0).abs();
            assert!(seen.held > 0.95, "{what}: known for {} of the time", seen.held);
            assert!(seen.rates_bps.iter().all(|&bps| off(bps) < 0.1), "{what}");
            assert!(seen.queue_ns(0.5) < 50 * MILLI_NS, "{what}: {}", seen.queue_ns(0.5));
            assert!(off(seen.came_bps) < 0.08, "{what}: {} came", seen.came_bps);
        }
    }
}

#[test]
fn jitter_does_not_mislead() {
    let link = steps().with_jitter_ns(8 * MILLI_NS);
    assert_follows(&Terms { link, ..Terms::default() }, "jitter");
}

#[test]
fn losses_do_not_mislead() {
    for loss in [0.001, 0.01, 0.03] {
        let link = steps().with_loss(loss);
        assert_follows(&Terms { link, flows: 8, ..Terms::default() }, "loss");
    }
}

#[test]
fn reordered_lost_and_late_reports_do_not_mislead() {
    let back = LinkSpec::new()
        .with_delay_ns(10 * MILLI_NS)
        .with_jitter_ns(5 * MILLI_NS)
        .with_loss(0.2)
        .with_reorder(0.2);
    assert_follows(&Terms { link: steps(), back, ..Terms::default() }, "reports");
}

#[test]
fn traffic_beside_takes_its_part() {
    assert_follows(&Terms { link: steps(), cross_bps: 1_000_000, ..Terms::default() }, "cross");
}

#[test]
fn a_long_path_is_followed_too() {
    let link = steps().with_delay_ns(80 * MILLI_NS);
    let back = LinkSpec::new().with_delay_ns(80 * MILLI_NS);
    assert_follows(&Terms { link, back, flows: 8, ..Terms::default() }, "long");
}

/// Over a satellite: reports are of what was sent 0.6 s before, and there was much since. (Few
/// connections would not keep the link busy: after a loss they take minutes to grow again.)
#[test]
fn a_very_long_path_is_followed_too() {
    let link = LinkSpec::new()
        .with_rate(Rate::from_mbps(200))
        .with_rate_step(20 * SECOND_NS, Rate::from_mbps(20))
        .with_delay_ns(300 * MILLI_NS);
    let back = LinkSpec::new().with_delay_ns(300 * MILLI_NS);
    for seed in 1..=3 {
        let (link, back) = (link.clone(), back.clone());
        let terms =
            Terms { link, back, flows: 32, offered_bps: 40_000_000, seed, ..Terms::default() };
        let mut model = Model::new(&terms);
        assert_eq!(model.watch(10_000, 19_000).held, 0.0, "seed {seed}");
        let mut seen = model.watch(30_000, 45_000);
        assert!(seen.held > 0.5, "seed {seed}: known for {} of the time", seen.held);
        let queue_ms = seen.queue_ns(0.5) / MILLI_NS;
        assert!(queue_ms < 60, "seed {seed}: {queue_ms} ms stand beyond");
        assert!(seen.came_bps > 0.7 * 20e6, "seed {seed}: {} came", seen.came_bps);
    }
}

/// The queue beyond is suddenly worth many seconds: it is found, and becomes short.
#[test]
fn a_hard_step_down_is_followed() {
    let link = LinkSpec::new()
        .with_rate(Rate::from_mbps(20))
        .with_rate_step(10 * SECOND_NS, Rate::clamped_bps(500_000))
        .with_delay_ns(10 * MILLI_NS);
    for seed in 1..=4 {
        let mut model = Model::new(&Terms { link: link.clone(), seed, ..Terms::default() });
        let mut seen = model.watch(30_000, 60_000);
        assert!(seen.held > 0.5, "seed {seed}: known for {} of the time", seen.held);
        let queue_ms = seen.queue_ns(0.5) / MILLI_NS;
        assert!(queue_ms < 250, "seed {seed}: {queue_ms} ms stand beyond");
        assert!(seen.came_bps > 0.7 * 500e3, "seed {seed}: {} came", seen.came_bps);
    }
}

#[test]
fn a_path_without_a_bottleneck_is_left_alone() {
    for jitter_ms in [0, 5, 15] {
        for mbps in [1, 20, 200] {
            let link = LinkSpec::new()
                .with_delay_ns(20 * MILLI_NS)
                .with_jitter_ns(jitter_ms * MILLI_NS)
                .with_loss(0.005)
                .with_rate(Rate::from_mbps(1000));
            let offered_bps = mbps * 1_000_000;
            let mut model = Model::new(&Terms { link, offered_bps, ..Terms::default() });
            let seen = model.watch(0, 20_000);
            assert_eq!(seen.held, 0.0, "jitter of {jitter_ms} ms at {mbps} Mbit/s");
        }
    }
}

/// A TCP beside the tunnel fills the queue whatever we do; it does not get all of the link.
#[test]
fn a_queue_that_others_fill_is_left_to_them() {
    for seed in 1..=4 {
        let link = LinkSpec::new().with_rate(Rate::from_mbps(10)).with_delay_ns(10 * MILLI_NS);
        let terms = Terms { link, cross_flows: 1, flows: 1, seed, ..Terms::default() };
        let listening = Model::new(&terms).watch(5_000, 60_000);
        let deaf = Model::new(&Terms { listens: false, ..terms }).watch(5_000, 60_000);
        assert!(listening.came_bps > 0.5 * deaf.came_bps, "seed {seed}");
    }
}

/// The path becomes longer, by another route: the relay finds out that no queue is the reason.
#[test]
fn a_longer_way_is_no_queue() {
    let link = LinkSpec::new().with_delay_ns(10 * MILLI_NS).with_rate(Rate::from_mbps(100));
    let terms = Terms { link, offered_bps: 10_000_000, ..Terms::default() };
    let mut model = Model::new(&terms);
    assert_eq!(model.watch(0, 5_000).held, 0.0);
    model.set_delay_ns(60 * MILLI_NS);
    model.watch(5_000, 9_000);
    assert_eq!(model.watch(9_000, 20_000).held, 0.0);
}

/// Whatever a peer says, some traffic passes, and the pace moves by bounded steps.
#[test]
fn a_peer_that_lies_harms_little() {
    let lies: [fn(&mut LinkReport); 7] = [
        |report| report.bytes = 0,
        |report| report.bytes = report.bytes.wrapping_mul(1 << 40),
        |report| report.highest_at_ns *= 3,
        |report| report.highest_at_ns = report.highest_at_ns.wrapping_add(1 << 63),
        // Delays at the very end of what there is: the model's peer is 77 s ahead, 10 ms away.
        |report| {
            let end = (1 << 63) - 77 * SECOND_NS - 10 * MILLI_NS;
            report.highest_at_ns = report.highest_at_ns.wrapping_add(end);
        },
        |report| report.highest = u64::MAX,
        |report| {
            (report.bytes, report.highest_at_ns) = (report.bytes / 1_000, report.highest_at_ns * 2);
        },
    ];
    for lie in lies {
        let link = LinkSpec::new().with_delay_ns(10 * MILLI_NS).with_rate(Rate::from_mbps(20));
        let mut model = Model::new(&Terms { link, ..Terms::default() });
        model.lie = Some(lie);
        let seen = model.watch(0, 20_000);
        assert!(seen.came_bps > RATE_MIN_BPS / 2.0);
    }
}

/// Sessions with keys are renewed every two minutes.
#[test]
fn a_new_session_changes_nothing() {
    let link = LinkSpec::new().with_delay_ns(10 * MILLI_NS).with_rate(Rate::from_mbps(5));
    let mut model = Model::new(&Terms { link, ..Terms::default() });
    for second in 3..12 {
        let mut seen = model.watch(second * 1_000, second * 1_000 + 900);
        assert_eq!(seen.held, 1.0);
        assert!(seen.queue_ns(0.9) < 50 * MILLI_NS);
        model.renew();
    }
}

#[test]
fn what_was_found_is_forgotten_if_nothing_of_what_is_sent_is_reported() {
    let link = LinkSpec::new().with_delay_ns(10 * MILLI_NS).with_rate(Rate::from_mbps(5));
    let mut model = Model::new(&Terms { link, ..Terms::default() });
    assert!(model.watch(2_000, 3_000).held > 0.9);
    model.set_offered_bps(0);
    model.watch(3_000, 4_000);
    let now = model.now;
    let bottleneck = &mut model.bottleneck;
    // Signs of life for an hour.
    for number in 0..180 {
        bottleneck.sent(now, 1_000_000 + number, (110, 0));
    }
    bottleneck.forget_old(now + 360 * FORGET_NS);
    assert!(bottleneck.found().is_some());
    // Probes of the path's length, which nobody reports either, and a last datagram of which the report is lost.
    for number in 0..60 {
        bottleneck.sent(now, 1_001_000 + number, (1_400, 0));
    }
    bottleneck.sent_packets(now, 1_400);
    // A minute later more comes than the first report of it is waited for.
    let woken = now + 6 * FORGET_NS;
    let send = |bottleneck: &mut Bottleneck, ms: u64| {
        for number in 0..20 {
            bottleneck.sent(woken, 1_002_000 + 20 * ms + number, (1_000, 0));
            bottleneck.sent_packets(woken + ms * MILLI_NS, 1_000);
        }
    };
    send(bottleneck, 0);
    bottleneck.forget_old(woken + FORGET_NS / 2);
    assert!(bottleneck.found().is_some());
    // It goes on, and nothing is said.
    for ms in (0..12_000).step_by(500) {
        send(bottleneck, ms);
    }
    bottleneck.forget_old(woken + 2 * FORGET_NS);
    assert!(bottleneck.found().is_none());
}

/// What wakes an idle link up is sent at the rate that was found, and none of it is lost beyond; if the link is
/// faster by then, that is found.
#[test]
fn an_idle_link_that_wakes_up_loses_nothing() {
    for (is_bbr, then_mbps) in [(false, 5), (true, 5), (false, 20), (true, 20)] {
        let link = LinkSpec::new()
            .with_delay_ns(10 * MILLI_NS)
            .with_rate(Rate::from_mbps(5))
            .with_rate_step(30 * SECOND_NS, Rate::from_mbps(then_mbps));
        let mut model = Model::new(&Terms { link, is_bbr, ..Terms::default() });
        model.probe();
        assert_eq!(model.watch(3_000, 5_000).held, 1.0);
        model.set_offered_bps(0);
        let what = format!("BBR: {is_bbr}, {then_mbps} Mbit/s then");
        assert_eq!(model.watch(6_000, 66_000).held, 1.0, "{what}");
        let dropped = model.dropped();
        model.connect(16);
        model.set_offered_bps(u64::MAX);
        let mut seen = model.watch(66_000, 69_000);
        assert_eq!(model.dropped(), dropped, "{what}");
        assert!(seen.held == 1.0 && seen.queue_ns(1.0) < 80 * MILLI_NS, "{what}");
        let seen = model.watch(69_000, 74_000);
        assert!(
            seen.came_bps > 0.9 * f64::from(then_mbps as u32) * 1e6,
            "{what}: {}",
            seen.came_bps
        );
    }
}

/// One connection of the usual kind, far away: its packets are compressed to .4, and CoDel watches over them. Returns the parts
/// of 20, 5 and 12 Mbit/s that are used, once it has had three seconds, and the time for which less than .9 of the last were.
fn one_cubic(delay_ms: u64, (grants, knows): (bool, bool), seed: u64) -> ([f64; 3], u64) {
    let delay_ns = delay_ms * MILLI_NS;
    let (link, back) = (steps().with_delay_ns(delay_ns), LinkSpec::new().with_delay_ns(delay_ns));
    let (flows, is_cubic, has_flows, left_percent) = (1, true, true, 40);
    let terms = Terms {
        link,
        back,
        flows,
        is_cubic,
        has_flows,
        grants,
        left_percent,
        knows,
        seed,
        ..Terms::default()
    };
    let mut model = Model::new(&terms);
    model.probe();
    let (mut used, mut late_ms) = ([0.0; 3], 0);
    for tick in 0..300 {
        let came_bps = model.watch(100 * tick, 100 * (tick + 1)).came_bps;
        let (phase, at) = ((tick / 100) as usize, tick % 100);
        let part = came_bps / [20e6, 5e6, 12e6][phase];
        used[phase] += if at >= 30 { part / 70.0 } else { 0.0 };
        late_ms += if phase == 2 && part < 0.9 { 100 } else { 0 };
    }
    (used, late_ms)
}

/// The queue beyond is emptied every four seconds, and what waits here meanwhile is nothing that a connection has to
/// slow down for: it carries as much as over a rate that is known, and is no later when the link becomes faster.
#[test]
fn emptying_the_queue_beyond_slows_no_connection_down() {
    for seed in 1..=3 {
        let [(known, known_late_ms), (found, late_ms)] =
            [true, false].map(|knows| one_cubic(21, (true, knows), seed));
        let what = format!("seed {seed}: {known:?} {known_late_ms} ms, {found:?} {late_ms} ms");
        assert!(found[..2].iter().all(|&part| part > 0.985), "{what}");
        assert!(late_ms <= known_late_ms + 500, "{what}");
        // With a round trip of 160 ms.
        let [(known, _), (found, _), (blamed, _)] = [(true, true), (true, false), (false, false)]
            .map(|grants_knows| one_cubic(80, grants_knows, seed));
        let what = format!("seed {seed}, far away: {known:?}, {found:?}, {blamed:?}");
        assert!(found.iter().zip(known).all(|(found, known)| *found > known - 0.02), "{what}");
        assert!(found[1] > blamed[1] + 0.03, "what waits is granted: {what}");
    }
}
