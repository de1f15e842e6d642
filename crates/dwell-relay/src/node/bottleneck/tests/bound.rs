//! One connection over a link that steps 20 → 5 → 12 Mbit/s, with a rate that is found and with one that is known at each
//! moment: what connections do over the latter is the bound.

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::{LinkSpec, extent};

use super::model::{Model, Terms};

/// Each rate lasts so long, and its second half counts.
const PHASE_MS: u64 = 20_000;
const TICK_MS: u64 = 100;
/// A link is in use once nine tenths of it were for so many ticks.
const USED_TICKS: usize = 5;

/// While the link had one rate.
struct Phase {
    bps: f64,
    /// From the change of the rate until the link was in use, and until the rate that was found was within a tenth of it to
    /// stay.
    used_ms: Option<u64>,
    found_ms: Option<u64>,
    /// The part of the link that is used in the end, and the queue beyond.
    part: f64,
    queues_ns: Vec<u64>,
}

impl Phase {
    fn watch(model: &mut Model, begin_ms: u64, bps: f64) -> Self {
        let mut phase =
            Self { bps, used_ms: None, found_ms: None, part: 0.0, queues_ns: Vec::new() };
        let mut parts = Vec::new();
        for at_ms in (0..PHASE_MS).step_by(TICK_MS as usize) {
            let mut seen = model.watch(begin_ms + at_ms, begin_ms + at_ms + TICK_MS);
            parts.push(seen.came_bps / bps);
            let latest = parts.iter().rev().take(USED_TICKS);
            if parts.len() > USED_TICKS && latest.sum::<f64>() >= 0.9 * USED_TICKS as f64 {
                phase.used_ms.get_or_insert(at_ms + TICK_MS - USED_TICKS as u64 * TICK_MS);
            }
            let found_bps = seen.rates_bps[seen.rates_bps.len() / 2];
            let is_near = seen.held > 0.5 && (found_bps / bps - 1.0).abs() < 0.1;
            phase.found_ms = is_near.then(|| phase.found_ms.unwrap_or(at_ms));
            if at_ms >= PHASE_MS / 2 {
                phase.queues_ns.append(&mut seen.queues_ns);
            }
        }
        let counted = &parts[parts.len() / 2..];
        phase.part = counted.iter().sum::<f64>() / counted.len() as f64;
        phase.queues_ns.sort_unstable();
        phase
    }

    fn queue_ns(&self, share: f64) -> u64 {
        self.queues_ns[((self.queues_ns.len() - 1) as f64 * share) as usize]
    }
}

/// One connection, compressed to .4, through the relay's own queues, over a path with this round trip.
fn terms(is_bbr: bool, trip_us: u64) -> Terms {
    let delay_ns = trip_us * MICRO_NS / 2;
    let link = LinkSpec::new()
        .with_rate(Rate::from_mbps(20))
        .with_rate_step(PHASE_MS * MILLI_NS, Rate::from_mbps(5))
        .with_rate_step(2 * PHASE_MS * MILLI_NS, Rate::from_mbps(12))
        .with_delay_ns(delay_ns);
    let back = LinkSpec::new().with_delay_ns(delay_ns);
    Terms {
        link,
        back,
        flows: 1,
        is_bbr,
        is_cubic: !is_bbr,
        has_flows: true,
        left_percent: 40,
        ..Terms::default()
    }
}

fn phases(terms: &Terms) -> [Phase; 3] {
    let mut model = Model::new(terms);
    model.probe();
    let mut begin_ms = 0;
    [20e6, 5e6, 12e6].map(|bps| {
        let phase = Phase::watch(&mut model, begin_ms, bps);
        begin_ms += PHASE_MS;
        phase
    })
}

/// On a short path the queue by which the rate is seen is no longer than it must be, and all of the link is used.
#[test]
fn a_short_path_needs_a_short_queue() {
    for (is_bbr, seed) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        for phase in phases(&Terms { seed, ..terms(is_bbr, 200) }) {
            let Phase { bps, part, .. } = phase;
            let packet_ns = (1_450.0 * 8e9 / bps) as u64;
            let what = format!("BBR: {is_bbr}, seed {seed}, {bps}");
            let queue_ns = [phase.queue_ns(0.5), phase.queue_ns(0.99)];
            assert!(queue_ns[0] < 2 * MILLI_NS.max(packet_ns), "{what}: {queue_ns:?}");
            assert!(queue_ns[1] < 4 * MILLI_NS.max(packet_ns), "{what}: {queue_ns:?}");
            assert!(part > 0.99, "{what}: {part} used");
            assert!(phase.found_ms.is_some_and(|ms| ms <= 1_500), "{what}: {:?}", phase.found_ms);
        }
    }
}

/// Nothing runs for some milliseconds again and again: the rate is kept, and found again after each step; and that delays
/// change is no reason for a long queue, as the rate is seen without.
#[test]
fn a_busy_machine_finds_the_rate_too() {
    for (is_bbr, trip_us, late_ms) in
        [(false, 200, 1_500), (true, 200, 1_500), (true, 45_000, 3_000)]
    {
        for seed in extent::seeds(1, 2).map(|seed| seed + 1) {
            let terms = Terms { stalls: true, seed, ..terms(is_bbr, trip_us) };
            let known = phases(&Terms { knows: true, ..terms.clone() });
            for (phase, known) in phases(&terms).into_iter().zip(known) {
                let what = format!("BBR: {is_bbr}, {trip_us} µs, seed {seed}, {}", phase.bps);
                let parts = [phase.part, known.part];
                assert!(parts[0] > parts[1] - 0.02, "{what}: {parts:?} used, found and known");
                if trip_us < 1_000 {
                    let packet_ns = (1_450.0 * 8e9 / phase.bps) as u64;
                    let queues_ns = [phase.queue_ns(0.5), known.queue_ns(0.5)];
                    let is_short = queues_ns[0] < queues_ns[1] + packet_ns.max(2 * MILLI_NS);
                    assert!(is_short, "{what}: {queues_ns:?} stand, found and known");
                }
                assert!(phase.found_ms.is_some_and(|ms| ms <= late_ms), "{what}");
            }
        }
    }
}

/// Far away it is the connection that has nothing to offer after a step upwards, for as long if the rate is known at once.
#[test]
fn after_a_step_upwards_a_rate_that_is_known_brings_little() {
    for (is_bbr, trip_us) in [(false, 45_000), (true, 45_000), (true, 300_000)] {
        for seed in extent::seeds(1, 2).map(|seed| seed + 1) {
            let terms = Terms { seed, ..terms(is_bbr, trip_us) };
            let [_, _, found] = phases(&terms);
            let [_, _, known] = phases(&Terms { knows: true, ..terms });
            let what = format!("BBR: {is_bbr}, {trip_us} µs, seed {seed}");
            let used_ms = [found.used_ms, known.used_ms].map(|ms| ms.expect("it is used"));
            println!(
                "{what}: {used_ms:?} ms until it is in use, with a rate that is found and with one that is known"
            );
            assert!(used_ms[0] <= used_ms[1] + used_ms[1] / 5 + 1_000, "{what}: {used_ms:?}");
            assert!(found.part > known.part - 0.02, "{what}: {} {}", found.part, known.part);
        }
    }
}

/// A connection that measures keeps for a while to the rate at which raw packets filled the link: so they are compressed before it
/// was found. (Linux's BBR keeps to it for much longer than this one.)
#[test]
fn what_is_found_late_is_compressed_before() {
    for seed in extent::seeds(1, 2).map(|seed| seed + 1) {
        let terms = Terms { seed, compresses_late: true, ..terms(true, 300_000) };
        let packets = |terms: Terms| {
            let mut model = Model::new(&terms);
            model.probe();
            model.watch(0, PHASE_MS);
            model.delivered
        };
        let known = packets(Terms { knows: true, ..terms.clone() });
        let late = packets(Terms { assumes: false, ..terms.clone() });
        let found = packets(terms);
        println!("seed {seed}: {late} and {found} packets in 20 s, with a known rate {known}");
        assert!(found > known - known / 10 && found > late, "seed {seed}: {late} {found} {known}");
    }
}

/// With a connection of the usual kind and a round trip of 300 ms nobody gets there in 20 s, and what was found costs nothing.
#[test]
fn very_far_away_the_usual_connection_is_slower_than_any_relay() {
    for seed in extent::seeds(1, 2).map(|seed| seed + 1) {
        let terms = Terms { seed, ..terms(false, 300_000) };
        let known = phases(&Terms { knows: true, ..terms.clone() });
        assert_eq!(known[2].used_ms, None, "seed {seed}");
        let used = |phases: [Phase; 3]| phases.map(|phase| phase.part);
        let [found, known] = [used(phases(&terms)), used(known)];
        let sum = |parts: [f64; 3]| parts.iter().sum::<f64>();
        assert!(sum(found) > sum(known) - 0.1, "seed {seed}: {found:?} {known:?}");
    }
}

/// A slow device of our own is found by reports if that needs no longer queue than the kernel's.
#[test]
fn a_device_that_pushes_back_is_found_if_the_path_is_short() {
    for (trip_us, is_found) in [(200, true), (10_000, true), (40_000, false), (300_000, false)] {
        for is_bbr in [false, true] {
            let mut model = Model::new(&Terms { is_local: true, ..terms(is_bbr, trip_us) });
            model.probe();
            let seen = model.watch(4_000, 9_000);
            let what = format!("BBR: {is_bbr}, {trip_us} µs: {} of the time", seen.held);
            assert!(if is_found { seen.held > 0.9 } else { seen.held == 0.0 }, "{what}");
        }
    }
}
