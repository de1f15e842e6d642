//! Which codec is picked, and when.

use super::*;
use crate::method::Budget;
use proptest::prelude::*;

fn carried(link: f64, point: CodecPoint) -> f64 {
    Processor::default().carried(link, point).rate
}

/// Levels of growing cost and falling ratio: 0 to 4.
const COSTS: [f64; 5] = [4.0, 12.0, 25.0, 80.0, 250.0];
const RATIOS: [f64; 5] = [0.45, 0.38, 0.36, 0.34, 0.28];
const MBIT: f64 = 125_000.0;

fn pick() -> CodecPick<usize> {
    // The strongest is one that takes the receiver as long.
    let of = |(codec, &cost_ns)| Assumed { codec, cost_ns, receiver_bytes: f64::from(codec == 4) };
    let assumed: Vec<_> = COSTS.iter().enumerate().map(of).collect();
    CodecPick::new(&assumed, 0)
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// Traffic, trials and reviews for so long; a codec takes `slow` times longer than in trials, and leaves
/// `hard` times more. Returns the codecs in use, each time that there was another.
fn run(
    pick: &mut CodecPick<usize>,
    (from_ms, to_ms): (u64, u64),
    link: f64,
    (slow, hard): (f64, f64),
) -> Vec<(u64, usize)> {
    run_each(pick, (from_ms, to_ms), link, |_| (slow, hard))
}

/// The same with another factor for each codec.
fn run_each(
    pick: &mut CodecPick<usize>,
    (from_ms, to_ms): (u64, u64),
    link: f64,
    factors: impl Fn(usize) -> (f64, f64),
) -> Vec<(u64, usize)> {
    let mut used = vec![(from_ms, pick.present().unwrap())];
    for ms in (from_ms..to_ms).step_by(10) {
        let codec = pick.present().unwrap();
        let (slow, hard) = factors(codec);
        let left = 10_000.0 * (hard * RATIOS[codec]).min(1.0);
        pick.compressed(10_000, left as u64, (slow * COSTS[codec] * 10_000.0) as u64);
        let list = pick.due_trial(at(ms), Some(link), |_| true);
        let results: Vec<_> = list
            .iter()
            .map(|&codec| Tried { codec, point: CodecPoint::new(COSTS[codec], RATIOS[codec]) })
            .collect();
        if !results.is_empty() {
            pick.tried(at(ms), &results, 30_000_000);
        }
        let now = pick.review(at(ms), Some(link), |_| true).unwrap();
        if now != used.last().unwrap().1 {
            used.push((ms, now));
        }
    }
    used
}

/// Other traffic has zstd's tables out of the caches, so that each level takes twice as long as in trials. A model does not.
#[test]
fn what_takes_zstd_longer_says_nothing_of_models() {
    let link = 5.0 * MBIT;
    let used = |model: f64| {
        let slow = |codec: usize| (if codec == 4 { model } else { 2.0 }, 1.0);
        run_each(&mut pick(), (1, 20_000), link, slow)
    };
    let found = used(1.0);
    assert_eq!(found.last().unwrap().1, 4, "{found:?}");
    // One that does is used once, which shows it.
    let found = used(2.0);
    assert_eq!(found.last().unwrap().1, 3, "{found:?}");
    assert!(found.len() <= 4, "{found:?}");
}

/// The codec that the linear programme has beside raw.
fn best(link: f64, slow: f64) -> usize {
    let of = |&at: &usize| carried(link, CodecPoint::new(slow * COSTS[at], RATIOS[at]));
    (0..5).max_by(|a, b| of(a).total_cmp(&of(b))).unwrap()
}

#[test]
fn each_rate_has_its_codec_within_a_second() {
    let mut found = Vec::new();
    for mbit in [1.0, 10.0, 50.0, 200.0, 1_000.0, 10_000.0] {
        let used = run(&mut pick(), (1, 20_000), mbit * MBIT, (1.0, 1.0));
        assert!(used.len() <= 2 && used.iter().all(|it| it.0 < 1_000), "{mbit}: {used:?}");
        let last = used.last().unwrap().1;
        let is = carried(mbit * MBIT, CodecPoint::new(COSTS[last], RATIOS[last]));
        let bound = best(mbit * MBIT, 1.0);
        let most = carried(mbit * MBIT, CodecPoint::new(COSTS[bound], RATIOS[bound]));
        assert!(GAIN_MIN * is >= most, "{mbit}: {last} {bound}");
        found.push(last);
    }
    assert!(found.is_sorted_by(|a, b| a >= b) && found[0] == 4 && found[5] == 0, "{found:?}");
}

#[test]
fn it_follows_the_rate_and_what_compressing_really_takes() {
    let mut pick = pick();
    run(&mut pick, (1, 5_000), 5.0 * MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(4));
    let used = run(&mut pick, (5_000, 10_000), 500.0 * MBIT, (1.0, 1.0));
    assert!(used.len() == 2 && used[1].0 < 6_000, "{used:?}");
    assert_eq!(pick.present(), Some(best(500.0 * MBIT, 1.0)));
    run(&mut pick, (10_000, 15_000), 5.0 * MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(4));
    // A processor that is three times as slow as in trials.
    run(&mut pick, (15_000, 20_000), 5.0 * MBIT, (3.0, 1.0));
    assert_eq!(pick.present(), Some(best(5.0 * MBIT, 3.0)));
    // A quota: the same processor time, ten times the time.
    pick.set_processor(Processor::slowed(10.0));
    run(&mut pick, (20_000, 25_000), 5.0 * MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(best(5.0 * MBIT, 10.0)));
}

/// What may be had of the processor, or the link's rate, alternates each half minute. Returns the least that is carried
/// of what the best codec would, in a turn after the first few.
fn least_of_turns(turns: [(f64, f64); 2]) -> f64 {
    let (mut pick, mut least) = (pick(), f64::INFINITY);
    for turn in 0..24_u64 {
        let (mbit, slowdown) = turns[turn as usize % 2];
        pick.set_processor(Processor::slowed(slowdown));
        let of = |codec: usize| {
            carried(mbit * MBIT, CodecPoint::new(slowdown * COSTS[codec], RATIOS[codec]))
        };
        let (mut sum, from_ms) = (0.0, 30_000 * turn);
        for ms in (from_ms..from_ms + 30_000).step_by(50) {
            run(&mut pick, (ms + 1, ms + 51), mbit * MBIT, (1.0, 1.0));
            sum += of(pick.present().unwrap());
        }
        if turn >= 4 {
            least = least.min(sum / 600.0 / of(best(mbit * MBIT, slowdown)));
        }
    }
    least
}

#[test]
fn what_alternates_is_followed_each_time() {
    let least = [
        [(5.0, 1.0), (5.0, 20.0)],
        [(40.0, 1.0), (40.0, 8.0)],
        [(20.0, 1.0), (30.0, 1.0)],
        [(60.0, 1.0), (100.0, 1.0)],
    ]
    .map(least_of_turns);
    assert!(least.iter().all(|&least| least > 0.93), "{least:?}");
}

/// Two codecs that are better by turns in what is measured, every second, for ten minutes; then one of them for longer.
#[test]
fn holds_grow_where_codecs_take_turns_and_shrink_where_it_is_calm() {
    let mut pick = pick();
    let mut changes = Vec::new();
    for turn in 0..600 {
        let slow = if turn % 2 == 0 { 1.0 } else { 1.9 };
        let from_ms = 1_000 * turn + 1;
        let used = run(&mut pick, (from_ms, from_ms + 1_000), 60.0 * MBIT, (slow, 1.0));
        changes.extend(used.into_iter().skip(1));
    }
    assert!((2..10).contains(&changes.len()), "{changes:?}");
    // What is carried in the mean of two turns says which is better, so that there are no more changes.
    let grown = pick.used_ns_min;
    assert!(grown > 2 * USED_NS_MIN, "{grown}");
    run(&mut pick, (600_001, 1_800_000), 60.0 * MBIT, (1.0, 1.0));
    assert!(pick.used_ns_min < 2 * USED_NS_MIN);
}

/// A codec was used while the content was easy, and then one that leaves a fifth less while it is harder.
#[test]
fn other_content_is_not_taken_for_another_ratio_of_the_codec() {
    let mut pick = pick();
    let point = |codec: usize| CodecPoint::new(COSTS[codec], RATIOS[codec]);
    let results = |of: &[usize]| -> Vec<_> {
        of.iter().map(|&codec| Tried { codec, point: point(codec) }).collect()
    };
    let use_for = |pick: &mut CodecPick<usize>, (from_ms, to_ms), most, hard: f64| {
        for ms in (from_ms..to_ms).step_by(10) {
            let codec = pick.present().unwrap();
            let left = 10_000.0 * (hard * RATIOS[codec]).min(1.0);
            pick.compressed(10_000, left as u64, (COSTS[codec] * 10_000.0) as u64);
            pick.review(at(ms), Some(MBIT), |codec| codec <= most);
        }
        pick.present()
    };
    pick.tried(at(1), &results(&[0, 1, 2, 3]), 1);
    assert_eq!(use_for(&mut pick, (10, 2_000), 3, 1.0), Some(3));
    pick.tried(at(2_000), &results(&[4]), 1);
    assert_eq!(use_for(&mut pick, (2_000, 4_000), 4, 1.0), Some(4));
    assert_eq!(use_for(&mut pick, (4_000, 12_000), 4, 1.5), Some(4));
}

/// Traffic of which codecs leave so much in use and in trials. Returns the codecs in use, each time that there was another.
fn run_biased(
    pick: &mut CodecPick<usize>,
    (from_ms, to_ms): (u64, u64),
    in_use: [f64; 5],
    in_trials: [f64; 5],
) -> Vec<(u64, usize)> {
    let mut used = vec![(from_ms, pick.present().unwrap())];
    for ms in (from_ms..to_ms).step_by(20) {
        let codec = pick.present().unwrap();
        let left = 20_000.0 * in_use[codec];
        pick.compressed(20_000, left as u64, (COSTS[codec] * 20_000.0) as u64);
        let list = pick.due_trial(at(ms), Some(MBIT), |_| true);
        let point = |codec: usize| CodecPoint::new(COSTS[codec], in_trials[codec]);
        let results: Vec<_> =
            list.into_iter().map(|codec| Tried { codec, point: point(codec) }).collect();
        if !results.is_empty() {
            pick.tried(at(ms), &results, 30_000_000);
        }
        let now = pick.review(at(ms), Some(MBIT), |_| true).unwrap();
        if now != used.last().unwrap().1 {
            used.push((ms, now));
        }
    }
    used
}

/// Two that are nearly alike in trials, of which the one or the other leaves a tenth more or less in use.
#[test]
fn what_trials_do_not_see_is_learned_in_use() {
    let trials = [0.45, 0.38, 0.36, 0.34, 0.345];
    for (of_last, wanted) in [(0.31, 4), (0.38, 3)] {
        let mut pick = pick();
        let mut in_use = trials;
        in_use[4] = of_last;
        let used = run_biased(&mut pick, (1, 20_000), in_use, trials);
        let codecs: Vec<_> = used.iter().map(|it| it.1).collect();
        assert!(codecs.contains(&3) && codecs.contains(&4), "{used:?}");
        assert_eq!(*codecs.last().unwrap(), wanted, "{used:?}");
        // What is predicted of either is what use has shown.
        for codec in [3, 4] {
            let believed = pick.believed(at(20_000), codec).unwrap().ratio;
            assert!((believed / in_use[codec] - 1.0).abs() < 0.02, "{codec}: {believed}");
        }
        // It is known for most of an hour, through another content and back, and for the next context.
        let half = |of: [f64; 5]| of.map(|ratio| ratio / 3.0);
        run_biased(&mut pick, (20_000, 40_000), half(trials), half(trials));
        let later = run_biased(&mut pick, (60_000, 1_000_000), in_use, trials);
        assert!(later.len() <= 3 && later.last().unwrap().1 == wanted, "{later:?}");
        assert_eq!(pick.used_ns_min, USED_NS_MIN);
        let next = run_biased(&mut pick.for_another(), (1_000_000, 1_010_000), in_use, trials);
        assert!(next.iter().all(|it| it.1 == wanted), "{next:?}");
    }
}

#[test]
fn the_receiver_has_to_have_the_time_too() {
    let mut pick = pick();
    run(&mut pick, (1, 5_000), 5.0 * MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(4));
    // 5 Mbit/s carry 17.9 with it; the receiver has time for 8.
    pick.set_receiver(Some(8.0 * MBIT));
    let used = run(&mut pick, (5_000, 8_000), 5.0 * MBIT, (1.0, 1.0));
    assert!(used.len() == 2 && used[1].1 == 3 && used[1].0 < 6_000, "{used:?}");
    // It is slow, and this link is slower.
    run(&mut pick, (8_000, 12_000), MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(4));
}

/// If nothing is learned from use, no codec is used for once over and over again.
#[test]
fn codecs_are_used_for_once_rarely() {
    let ratios = [0.345, 0.344, 0.343, 0.342, 0.341];
    let used = run_biased(&mut pick(), (1, 3_600_000), ratios, ratios);
    assert!(used.len() <= 12, "{used:?}");
}

/// Where a few bytes come a minute, what is believed goes to and fro, and nothing is gained by any of them.
#[test]
fn few_bytes_are_no_reason_for_another_codec() {
    let mut pick = pick();
    run(&mut pick, (0, 5_000), 20.0 * MBIT, (1.0, 1.0));
    let (mut present, mut changes) = (pick.present(), 0);
    for ms in (5_000..300_000).step_by(10) {
        let is_fast = ms / 3_000 % 2 == 0;
        pick.compressed(10 * u64::from(ms % 1_000 == 0), 4, 1_000);
        let link = MBIT * if is_fast { 400.0 } else { 0.5 };
        let before = std::mem::replace(&mut present, pick.review(at(ms), Some(link), |_| true));
        changes += u32::from(present != before);
    }
    // Of the one before, enough was used.
    assert!(changes <= 1, "{changes}");
    // As soon as it is worth it there is the best one again.
    run(&mut pick, (300_000, 303_000), 20.0 * MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(best(20.0 * MBIT, 1.0)));
}

/// With a quota and a codec that takes too long all goes raw, and nothing would be learned of it any more.
#[test]
fn a_codec_that_is_of_no_use_is_left_though_nothing_passes() {
    let mut pick = pick();
    run(&mut pick, (0, 20_000), 0.5 * MBIT, (1.0, 1.0));
    assert_eq!(pick.present(), Some(4));
    // It was picked just now.
    (pick.own, pick.since) = (Own::default(), at(20_000));
    let budget = Budget { processors: 0.1, in_ns: 1.0, out_ns: 4.0 };
    pick.set_processor(Processor { budget: Some(budget), ..Processor::default() });
    let used: Vec<_> = (20_000..25_000)
        .step_by(10)
        .map(|ms| pick.review(at(ms), Some(100.0 * MBIT), |_| true).unwrap())
        .collect();
    assert!(*used.last().unwrap() <= 1, "{used:?}");
}

#[test]
fn what_carries_much_more_is_used_soon() {
    let mut pick = pick();
    run(&mut pick, (1, 5_000), 500.0 * MBIT, (1.0, 1.0));
    let used = run(&mut pick, (5_000, 8_000), 2.0 * MBIT, (1.0, 1.0));
    assert!(used[1].0 <= 5_000 + 120 && used.last().unwrap().1 == 4, "{used:?}");
}

#[test]
fn trials_take_a_small_part_of_the_time_and_come_again_for_other_content() {
    let mut pick = pick();
    let trials = |pick: &mut CodecPick<usize>, from: u64, to: u64, hard: f64| {
        let mut trials = Vec::new();
        for ms in (from..to).step_by(10) {
            let codec = pick.present().unwrap();
            let left = 10_000.0 * (hard * RATIOS[codec]).min(1.0);
            pick.compressed(10_000, left as u64, (COSTS[codec] * 10_000.0) as u64);
            if !pick.due_trial(at(ms), Some(10.0 * MBIT), |_| true).is_empty() {
                pick.tried(at(ms), &[], 40_000_000);
                trials.push(ms);
            }
        }
        trials
    };
    let first = trials(&mut pick, 1, 120_000, 1.0);
    assert!((6..12).contains(&first.len()), "{first:?}");
    let last = *first.last().unwrap();
    let next = trials(&mut pick, last + 10_000, last + 13_000, 2.0);
    // As long as the ratio goes on moving, by what was saved up; each is of more that is new.
    assert!((1..=4).contains(&next.len()), "{next:?}");
    // Where it goes up and down all the time, trials have their part of it and no more.
    let (mut at_ms, mut restless) = (last + 13_000, 0);
    for turn in 0..200 {
        restless += trials(&mut pick, at_ms, at_ms + 500, 1.0 + f64::from(turn % 2)).len();
        at_ms += 500;
    }
    let most = (100_000 / TRIAL_PART + TRIAL_SAVED_NS_MAX / 1_000_000) / 40 + 1;
    assert!(restless as u64 <= most, "{restless} of {most}");
}

#[test]
fn what_can_not_be_better_is_not_tried_nor_what_is_impossible_used() {
    let mut pick = pick();
    pick.compressed(200_000, 90_000, 800_000);
    let list = pick.due_trial(at(1), Some(200.0 * MBIT), |_| true);
    assert_eq!(list, [0, 1], "there is no time for the others");
    pick.tried(at(2), &[], 1);
    pick.compressed(200_000, 90_000, 800_000);
    assert_eq!(pick.due_trial(at(9_000), None, |_| true), [], "no rate is known");
    assert_eq!(pick.due_trial(at(9_000), Some(MBIT), |codec| codec < 2), [0, 1]);
    let results =
        [0, 1, 4].map(|codec| Tried { codec, point: CodecPoint::new(COSTS[codec], RATIOS[codec]) });
    pick.tried(at(9_001), &results, 1);
    assert_eq!(pick.review(at(9_002), Some(MBIT), |codec| codec < 4), Some(1));
    // What is in use is not possible any more.
    assert_eq!(pick.review(at(9_003), Some(MBIT), |codec| codec == 0), Some(0));
    assert_eq!(CodecPick::<usize>::new(&[], 0).review(at(1), Some(1.0), |_| true), None);
}

proptest! {
    /// Whatever is measured, it neither panics nor leaves the list, nor changes more than eight times a second.
    #[test]
    fn nothing_measured_does_harm(
        events in prop::collection::vec((0..5_u8, 0..200_000_u64, 0..200_000_u64, any::<u32>(), 0.0..1e9), 0..300),
    ) {
        let mut pick = pick();
        let (mut now, mut changed_at) = (at(1), None);
        for (kind, a, b, took_ns, x) in events {
            now = now + u64::from(took_ns) / 8;
            let before = pick.present();
            match kind {
                0 | 1 => pick.compressed(a, b, took_ns.into()),
                2 => {
                    let list = pick.due_trial(now, Some(x), |codec| codec != 3);
                    let point = CodecPoint::new(x / 1e6, a as f64 / 1e5);
                    let results: Vec<_> =
                        list.into_iter().map(|codec| Tried { codec, point }).collect();
                    pick.tried(now, &results, took_ns.into());
                }
                3 => pick.set_processor(Processor::slowed(x / 1e8)),
                _ => {
                    pick.review(now, Some(x), |codec| codec != 3);
                }
            }
            let present = pick.present();
            prop_assert!(present.is_some() && present != Some(3));
            if present != before {
                let was = changed_at.replace(now);
                prop_assert!(was.is_none_or(|was| now.since_ns(was) >= USED_NS_MIN / 2));
            }
        }
    }
}

/// Others were first by the time that it is asked for: what it did not say is asked for again, and that it took no time
/// is no reason to ask for the next one sooner.
#[test]
fn a_trial_that_is_refused_is_due_as_it_was() {
    let (mut pick, link) = (pick(), Some(5.0 * MBIT));
    let use_it = |pick: &mut CodecPick<usize>| pick.compressed(200_000, 90_000, 800_000);
    use_it(&mut pick);
    let first = pick.due_trial(at(1), link, |_| true);
    assert!(first.len() > 1 && pick.due_trial(at(2), link, |_| true).is_empty());
    pick.refused();
    assert_eq!(pick.due_trial(at(3), link, |_| true), first);
    let point = |codec: usize| CodecPoint::new(COSTS[codec], RATIOS[codec]);
    let results: Vec<_> = first.iter().map(|&codec| Tried { codec, point: point(codec) }).collect();
    pick.tried(at(4), &results, 30_000_000);
    pick.refused();
    // So is the next, and what the first took is known yet; nor does one say anything of that which nobody could make.
    use_it(&mut pick);
    for ms in [20_005, 20_010, 20_015] {
        assert!(!pick.due_trial(at(ms), link, |_| true).is_empty());
        pick.refused();
        assert_eq!(pick.trial_ns, 30_000_000);
    }
    assert!(!pick.due_trial(at(20_020), link, |_| true).is_empty());
    pick.tried(at(20_021), &[], 0);
    assert_eq!(pick.trial_ns, 30_000_000);
}

/// A trial with the first few bytes, which a model has learned nothing from, and content that shrinks more or less from then on.
#[test]
fn what_a_trial_of_other_bytes_has_found_is_not_believed_for_ever() {
    let (link, ms) = (10.0 * MBIT, |bytes: u64| bytes / 10_000 * 10);
    for (first, first_model) in [((24_000, 0.5), 0.9), ((400_000, 0.9), 0.95)] {
        let mut pick = pick();
        // A model takes as long as there is left.
        let cost =
            |codec: usize, ratio: f64| if codec == 4 { 900.0 * ratio } else { COSTS[codec] / 4.0 };
        let mut used = Vec::new();
        for bytes in (0..60_000_000).step_by(10_000) {
            let is_first = bytes < first.0;
            let ratio = |codec: usize| match (is_first, codec) {
                (true, 4) => first_model,
                (true, _) => first.1,
                (false, 4) => 0.1,
                (false, _) => 0.2,
            };
            let now = at(1 + ms(bytes));
            let codec = pick.present().unwrap();
            let took_ns = cost(codec, ratio(codec)) * 10_000.0;
            pick.compressed(10_000, (ratio(codec) * 10_000.0) as u64, took_ns as u64);
            let point = |codec| CodecPoint::new(cost(codec, ratio(codec)), ratio(codec));
            let list = pick.due_trial(now, Some(link), |_| true);
            let results: Vec<_> =
                list.into_iter().map(|codec| Tried { codec, point: point(codec) }).collect();
            if !results.is_empty() {
                pick.tried(now, &results, 30_000_000);
            }
            used.push(pick.review(now, Some(link), |_| true).unwrap());
        }
        let part = used.iter().filter(|&&codec| codec == 4).count() as f64 / used.len() as f64;
        assert!(part > 0.9, "{first:?}: {part}");
    }
}
