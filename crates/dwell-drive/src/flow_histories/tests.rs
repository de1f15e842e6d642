//! Which flows have a history of their own, and when.

use super::*;

const SHARED: u64 = 7;
const CODEC: u64 = 6;

/// A batch that takes no time.
fn passed(codec: u64, (from_bytes, to_bytes): (u64, u64)) -> Passed {
    Passed { codec, from_bytes, to_bytes, took_ns: 0 }
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLI_NS)
}

/// Sends packets of each flow in turn for so many milliseconds, one each a millisecond, and compresses
/// them; `ratio` says to how many percent, of a flow with its own history or without. Returns the
/// flows that had their own at the end.
fn run(
    histories: &mut FlowHistories,
    (from_ms, ms): (u64, u64),
    flows: &[u64],
    percent: impl Fn(bool) -> u64,
) -> Vec<u64> {
    let mut own = Vec::new();
    for now in from_ms..from_ms + ms {
        own.clear();
        for &flow in flows {
            let group = histories.group_of(at(now), SHARED, flow, 1_400);
            let is_own = group != SHARED;
            let bytes = (1_400, 14 * percent(is_own));
            histories.compressed(at(now), (group, flow), passed(CODEC, bytes), 1 << 20);
            if is_own {
                own.push(flow);
            }
        }
    }
    own
}

#[test]
fn one_transfer_alone_stays_where_it_is() {
    let mut histories = FlowHistories::new(11);
    assert_eq!(run(&mut histories, (0, 2_000), &[1], |_| 40), [0; 0]);
    // Short ones beside it change nothing.
    for flow in 100..200 {
        let flows = [1, flow];
        assert_eq!(run(&mut histories, (2_000 + flow * 10, 10), &flows, |_| 40), [0; 0]);
    }
}

#[test]
fn one_tries_and_the_others_follow_if_it_gains() {
    let mut histories = FlowHistories::new(11);
    let flows = [1, 2, 3, 4];
    let gains = |is_own| if is_own { 30 } else { 40 };
    let trying = run(&mut histories, (0, 300), &flows, gains);
    assert_eq!(trying.len(), 1, "{trying:?}");
    let all = run(&mut histories, (300, 1_000), &flows, gains);
    // The last one has nobody beside it.
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(histories.own(), 3);
}

/// Of ten, three try: one of them carries what shrinks less just then.
#[test]
fn what_one_flow_happens_to_carry_does_not_decide_for_all() {
    for unlucky in 1..=10 {
        let mut histories = FlowHistories::new(16);
        let mut trying = 0;
        for now in 0..3_000 {
            for flow in 1..=10 {
                let group = histories.group_of(at(now), SHARED, flow, 1_400);
                let to = match (group == SHARED, flow == unlucky) {
                    (true, _) => 400,
                    (false, true) => 401,
                    (false, false) => 340,
                };
                histories.compressed(at(now), (group, flow), passed(CODEC, (1_400, to)), 1 << 20);
            }
            trying = if now < 700 { histories.own() } else { trying };
        }
        assert_eq!(trying, 3, "with {unlucky}");
        // One alone has nobody beside it; the unlucky one may have gone back.
        assert!(histories.own() >= 8, "with {unlucky}: {}", histories.own());
    }
}

#[test]
fn who_ends_or_lags_in_a_trial_does_not_hold_up_the_others() {
    let gains = |is_own| if is_own { 30 } else { 40 };
    let flows = [1, 2, 3, 4, 5, 6];
    for lags in [false, true] {
        let mut histories = FlowHistories::new(16);
        let trying = run(&mut histories, (0, 400), &flows, gains);
        assert_eq!(trying.len(), 2, "{trying:?}");
        // The second one sends nothing more, or next to nothing.
        let rest: Vec<u64> = flows.into_iter().filter(|it| *it != trying[1]).collect();
        let mut own = Vec::new();
        for second in 0..16 {
            let from_ms = 400 + 1_000 * second;
            own = run(&mut histories, (from_ms, 999), &rest, gains);
            if lags {
                run(&mut histories, (from_ms + 999, 1), &[trying[1]], gains);
            }
        }
        assert!(own.len() >= 4, "{own:?}");
    }
}

#[test]
fn who_does_not_gain_goes_back_and_the_next_try_comes_later() {
    let mut histories = FlowHistories::new(11);
    let flows = [1, 2, 3, 4];
    let loses = |is_own| if is_own { 39 } else { 40 };
    assert_eq!(run(&mut histories, (0, 300), &flows, loses).len(), 1);
    assert_eq!(run(&mut histories, (300, 9_000), &flows, loses), [0; 0]);
    // Ten seconds later one tries again, and then twenty.
    assert_eq!(run(&mut histories, (9_300, 1_800), &flows, loses).len(), 1);
    assert_eq!(run(&mut histories, (11_100, 18_000), &flows, loses), [0; 0]);
}

/// Batches shrink by a tenth more alone, but of one packet in so many there is no time for any: with histories of
/// their own, or with any.
fn own_after_raw(raw_every: impl Fn(bool) -> u64) -> usize {
    let mut histories = FlowHistories::new(16);
    for now in 0..4_000 {
        for flow in 1..=6 {
            let group = histories.group_of(at(now), SHARED, flow, 1_400);
            let is_own = group != SHARED;
            if now % raw_every(is_own) == 0 {
                histories.passed_raw(flow, 1_400);
            } else {
                let to = if is_own { 450 } else { 500 };
                histories.compressed(at(now), (group, flow), passed(CODEC, (1_400, to)), 1 << 20);
            }
        }
    }
    histories.own()
}

#[test]
fn what_goes_raw_meanwhile_counts() {
    assert_eq!(own_after_raw(|is_own| if is_own { 8 } else { 1_000 }), 0);
    assert_eq!(own_after_raw(|_| 8), 5, "it does without them, too");
    assert_eq!(own_after_raw(|_| 1_000), 5);
}

#[test]
fn there_are_no_more_than_may_be() {
    let mut histories = FlowHistories::new(3);
    let flows = [1, 2, 3, 4, 5, 6];
    let gains = |is_own| if is_own { 30 } else { 40 };
    assert_eq!(run(&mut histories, (0, 3_000), &flows, gains).len(), 2);
    // Those that end make room.
    assert_eq!(run(&mut histories, (3_000, 3_000), &flows[..1], gains).len(), 1);
    let rest = run(&mut histories, (6_000, 3_000), &flows[2..], gains);
    assert_eq!(rest.len(), 2, "{rest:?}");
    let mut none = FlowHistories::new(0);
    assert_eq!(run(&mut none, (0, 3_000), &flows, gains), [0; 0]);
}

/// One of prose and one of something that shrinks less: each is compared with itself.
#[test]
fn a_flow_is_compared_with_itself() {
    let mut histories = FlowHistories::new(11);
    for now in 0..3_000 {
        for (flow, percent) in [(1, 30), (2, 80)] {
            let group = histories.group_of(at(now), SHARED, flow, 1_400);
            histories.compressed(
                at(now),
                (group, flow),
                passed(CODEC, (1_400, 14 * percent)),
                1 << 20,
            );
        }
    }
    assert_eq!(histories.own(), 0);
}

#[test]
fn where_contexts_are_scarce_a_flow_goes_back_and_none_follows_for_a_while() {
    let gains = |is_own| if is_own { 30 } else { 40 };
    let flows = [1, 2, 3, 4];
    for others in [false, true] {
        let mut histories = FlowHistories::new(11);
        assert_eq!(run(&mut histories, (0, 1_300), &flows, gains).len(), 3);
        let (key, _) = histories.own[0];
        histories.crowded_out(at(1_300), if others { 99 } else { key });
        assert_eq!(run(&mut histories, (1_300, 9_900), &flows, gains).len(), 2);
        assert_eq!(run(&mut histories, (11_300, 2_000), &flows, gains).len(), 3);
    }
    FlowHistories::new(11).crowded_out(at(0), 7);
}

#[test]
fn memory_bounds_them_too() {
    let mut histories = FlowHistories::new(11);
    let flows = [1, 2, 3, 4, 5, 6];
    for now in 0..3_000 {
        for flow in flows {
            let group = histories.group_of(at(now), SHARED, flow, 1_400);
            let to = if group == SHARED { 700 } else { 400 };
            histories.compressed(
                at(now),
                (group, flow),
                passed(CODEC, (1_400, to)),
                MEMORY_BYTES_MAX / 3,
            );
        }
    }
    assert_eq!(histories.own(), 3);
}

#[test]
fn ten_thousand_flows_and_groups_are_not_remembered() {
    let mut histories = FlowHistories::new(11);
    for flow in 0..10_000 {
        let now = at(flow / 10);
        let group = histories.group_of(now, flow, flow, 1_400);
        histories.compressed(now, (group, flow), passed(CODEC, (1_400, 500)), 1);
    }
    assert_eq!((histories.sets.len(), histories.groups.len()), (SETS, 0));
    for group in 0..100 {
        for _ in 0..200 {
            histories.group_of(at(2_000), group, group, 1_400);
        }
    }
    assert_eq!(histories.groups.len(), GROUPS_MAX);
    assert_eq!(histories.own(), 0);
}

#[test]
fn a_flow_whose_trial_ends_early_leaves_the_trial_to_another() {
    let mut histories = FlowHistories::new(11);
    let gains = |is_own| if is_own { 30 } else { 40 };
    let trying = run(&mut histories, (0, 300), &[1, 2, 3, 4], gains);
    assert_eq!(trying.len(), 1, "{trying:?}");
    let others: Vec<u64> = [1, 2, 3, 4].into_iter().filter(|it| *it != trying[0]).collect();
    let later = run(&mut histories, (300, 4_000), &others, gains);
    assert_eq!(later.len(), 2, "{later:?}");
}

/// The shared history has another codec after a second, which leaves a fifth less of anything; so have those of flows that
/// begin later. What a trial compares is the histories.
#[test]
fn another_codec_is_not_taken_for_a_better_history() {
    // Of the bytes that the first codec leaves, what an own history leaves more or less; one may be trying again at the end.
    for (percent, own) in [(110, 0..=1), (101, 0..=1), (90, 3..=3)] {
        for begins_ms in [200, 350, 500, 700, 1_000, 1_500] {
            let mut histories = FlowHistories::new(11);
            for now in 0..6_000 {
                for flow in [1, 2, 3, 4] {
                    let group = histories.group_of(at(now), SHARED, flow, 1_400);
                    let (codec, usual) = if now < begins_ms { (6, 600) } else { (12, 480) };
                    let to = if group == SHARED { usual } else { usual * percent / 100 };
                    let bytes = passed(codec, (1_400, to));
                    histories.compressed(at(now), (group, flow), bytes, 1 << 20);
                }
            }
            assert!(own.contains(&histories.own()), "{percent} % after {begins_ms} ms");
        }
    }
}

/// Each history has the codec that is best for it, and none of the other's.
#[test]
fn histories_that_never_have_the_same_codec_are_compared_in_the_end() {
    for (percent, own) in [(110, 0), (90, 3)] {
        let mut histories = FlowHistories::new(11);
        for now in 0..8_000 {
            for flow in [1, 2, 3, 4] {
                let group = histories.group_of(at(now), SHARED, flow, 1_400);
                let (codec, to) = if group == SHARED { (6, 600) } else { (4, 6 * percent) };
                histories.compressed(at(now), (group, flow), passed(codec, (1_400, to)), 1 << 20);
            }
        }
        assert_eq!(histories.own(), own, "{percent} %");
    }
}

/// The flows with a history of their own after six seconds, where it leaves a tenth less and takes three times as long.
fn own_at(link: Option<(f64, Processor)>) -> usize {
    let mut histories = FlowHistories::new(11);
    for now in 0..6_000 {
        histories.set_link(link);
        for flow in [1, 2, 3, 4] {
            let group = histories.group_of(at(now), SHARED, flow, 1_400);
            let (to_bytes, took_ns) = if group == SHARED { (350, 7_000) } else { (315, 21_000) };
            let passed = Passed { codec: CODEC, from_bytes: 1_400, to_bytes, took_ns };
            histories.compressed(at(now), (group, flow), passed, 1 << 20);
        }
    }
    histories.own()
}

#[test]
fn what_leaves_less_and_takes_longer_is_for_links_that_leave_the_time() {
    let processor = Processor::default();
    // Of 15 ns a byte there is time for 47 MB a second: enough for what a link of 10.5 MB/s carries.
    assert_eq!(own_at(Some((10e6, processor))), 3);
    assert_eq!(own_at(Some((25e6, processor))), 0);
    // Others have most of the processor.
    assert_eq!(own_at(Some((10e6, Processor::slowed(3.0)))), 0);
    // As long as nothing is known of the link, what is left counts.
    assert_eq!(own_at(None), 3);
    assert_eq!(own_at(Some((0.0, processor))), 3);
}

/// The trials that begin within so many seconds, of flows whose own histories leave a tenth more than the shared one.
fn trials_in_vain(seconds: u64, packet_every_ms: usize) -> Vec<u64> {
    let mut histories = FlowHistories::new(11);
    let (mut begun_ms, mut before) = (Vec::new(), 0);
    for now in (0..1_000 * seconds).step_by(packet_every_ms) {
        let loses = |is_own| if is_own { 44 } else { 40 };
        run(&mut histories, (now, 1), &[1, 2, 3, 4], loses);
        if histories.own() > before {
            begun_ms.push(now);
        }
        before = histories.own();
    }
    begun_ms
}

#[test]
fn trials_in_vain_become_rare_and_on_a_slow_link_are_so_from_the_first() {
    let pauses = |begun: &[u64]| begun.windows(2).map(|it| it[1] - it[0]).collect::<Vec<_>>();
    // 1,400 bytes each millisecond: a trial takes .75 s.
    let fast = pauses(&trials_in_vain(200, 1));
    assert!((1_000..6_000).contains(&fast[0]), "{fast:?}");
    assert!(fast.windows(2).all(|it| it[1] > it[0]), "{fast:?}");
    assert!(fast.len() < 7, "{fast:?}");
    // Each 20 ms: it takes 15 s, and the next comes 10 s after it.
    let slow = pauses(&trials_in_vain(200, 20));
    assert!(slow[0] >= 24_000, "{slow:?}");
}

/// In the first second half of what an own history gets goes raw beside it.
#[test]
fn a_trial_that_was_lost_at_the_beginning_is_made_up_for_soon() {
    let mut histories = FlowHistories::new(11);
    for now in 0..6_000 {
        for flow in [1, 2, 3, 4] {
            let group = histories.group_of(at(now), SHARED, flow, 1_400);
            let to_bytes = if group == SHARED { 560 } else { 420 };
            if group != SHARED && now < 1_000 {
                histories.passed_raw(flow, 1_400);
            }
            histories.compressed(at(now), (group, flow), passed(CODEC, (1_400, to_bytes)), 1 << 20);
        }
        assert!(now != 1_500 || histories.own() == 0, "the first trial is not lost");
    }
    assert_eq!(histories.own(), 3);
}
