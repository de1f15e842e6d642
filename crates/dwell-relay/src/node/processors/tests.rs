//! What is learned of processors, and planned with them.

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLI_NS)
}

/// Peers for which compressing takes so much of a processor.
fn processors(threads: f64, loads: &[f64]) -> Processors {
    let load = |&processors: &f64| Load { processors, ..Load::default() };
    Processors { threads, loads: loads.iter().map(load).collect(), ..Processors::new() }
}

fn shares(threads: f64, loads: &[f64]) -> Vec<f64> {
    let all = processors(threads, loads);
    (0..loads.len()).map(|index| (100.0 * all.of_peer(at(1), index).share).round()).collect()
}

#[test]
fn who_shares_threads_plans_with_what_the_others_leave_and_at_least_as_much_as_they_have() {
    assert_eq!(shares(1.0, &[0.7]), [70.0]);
    assert_eq!(shares(1.0, &[0.7, 0.0]), [70.0, 35.0]);
    assert_eq!(shares(1.0, &[0.35, 0.35]), [35.0, 35.0]);
    assert_eq!(shares(1.0, &[0.1, 0.6]), [35.0, 60.0]);
    assert_eq!(shares(2.0, &[0.7, 0.7, 0.7]), [47.0; 3]);
    assert_eq!(shares(4.0, &[0.7, 0.7, 0.7, 0.0]), [70.0; 4]);
    // One of which nothing is known yet.
    assert_eq!(processors(1.0, &[]).of_peer(at(1), 7), Processor::default());
}

/// A second in which so many bytes were read and sent, with so much of a processor that was not for codecs.
fn look(all: &mut Processors, quota: Option<f64>, (used, withheld): (f64, f64), bytes: f64) {
    let before = all.times.unwrap_or_default();
    let more = |ns: u64, part: f64| ns + (part * SECOND_NS as f64) as u64;
    let (used_ns, withheld_ns) = (more(before.used_ns, used), more(before.withheld_ns, withheld));
    let times = CpuTimes { used_ns, withheld_ns, quota };
    let bytes =
        Bytes { read: bytes, kept: bytes, departed: bytes, sent: bytes, ..Bytes::default() };
    all.measure((before, times), SECOND_NS, (bytes, Compressed::default()));
    all.times = Some(times);
}

#[test]
fn a_quota_is_planned_with_and_what_a_byte_costs_is_learned() {
    let mut all = processors(2.0, &[0.0]);
    for _ in 0..20 {
        look(&mut all, Some(0.25), (0.25, 0.4), 12.5e6);
    }
    let Processor { budget, .. } = all.of_peer(at(1), 0);
    let Budget { processors, in_ns, out_ns } = budget.unwrap();
    assert!((0.23..0.25).contains(&processors), "{processors}");
    assert!((3.9..4.1).contains(&in_ns) && (15.9..16.1).contains(&out_ns), "{in_ns} {out_ns}");
    // Another in the group uses half of it.
    for _ in 0..20 {
        look(&mut all, Some(0.25), (0.12, 0.4), 6e6);
    }
    let half = all.of_peer(at(1), 0).budget.unwrap().processors;
    assert!((0.11..0.125).contains(&half), "{half}");
    for _ in 0..20 {
        look(&mut all, Some(0.25), (0.05, 0.0), 2.5e6);
    }
    assert!(all.of_peer(at(1), 0).budget.unwrap().processors > 0.23);
    // Nobody limits it any more; or a group above, which only shows by what it withholds.
    look(&mut all, None, (0.05, 0.0), 2.5e6);
    assert_eq!(all.of_peer(at(1), 0).budget, None);
    look(&mut all, None, (0.05, 0.5), 2.5e6);
    assert!(all.of_peer(at(1), 0).budget.unwrap().processors < 0.051);
}

/// Raw, a byte takes 20 ns; compressed to .4, with a codec of 8 ns, more or less than that.
#[test]
fn what_compressing_saves_elsewhere_is_measured() {
    for (compressed_ns, is_worth_it) in [(14.0, true), (26.0, false)] {
        let mut all = processors(1.0, &[0.0]);
        look(&mut all, Some(0.25), (0.25, 0.0), 12.5e6);
        for _ in 0..10 {
            let compressed = Compressed { original: 9e6, left: 3.6e6, took_ns: 72e6 };
            all.learn_costs(10e6, 20.0 * 1e6 + compressed_ns * 9e6, compressed);
        }
        let processor = all.of_peer(at(1), 0);
        let carried = processor.carried(25e6, CodecPoint::new(8.0, 0.4));
        assert_eq!(carried.compressed > 0.0, is_worth_it, "{compressed_ns}: {carried:?}");
    }
}

#[test]
fn decoding_has_its_part_of_a_quota_and_each_peer_its_part_of_that() {
    let mut all = processors(4.0, &[0.0]);
    let parts = |all: &Processors| [1, 2, 4, 8].map(|peers| all.for_decoding(peers));
    assert_eq!(parts(&all), [0.7, 0.7, 0.7, 0.35]);
    all.available = Some(0.2);
    assert!(parts(&all)[0] < 0.1 && parts(&all)[0] == 8.0 * parts(&all)[3]);
}

/// Where the quota does not even suffice for raw bytes, contexts are left alone, but for a probe now and then.
#[test]
fn where_raw_carries_most_nothing_is_compressed_but_for_probes() {
    // Two windows each, as what compressing costs with all that it saves was never seen: at 12, 60, 156, 348 and 732 if
    // something went in them; otherwise nothing is confirmed, and it is five each 48 windows.
    for (has_gone, expected) in [(true, 10), (false, 105)] {
        let mut all = processors(1.0, &[0.0]);
        for _ in 0..20 {
            look(&mut all, Some(0.1), (0.1, 0.5), 12.5e6);
        }
        all.loads[0].compressed = Compressed { original: 1e6, left: 0.4e6, took_ns: 20e6 };
        let mut limit = |_: usize| {
            if has_gone {
                all.probes.saw(false);
            }
            all.plan(at(1), &[Some(25e6)]);
            all.loads[0].limit
        };
        let limits: Vec<_> = (0..1_000).map(&mut limit).collect();
        assert_eq!(limits.iter().filter(|it| it.is_none()).count(), expected);
        assert!(limits.iter().flatten().all(|it| *it == CpuLimit::NOTHING));
        // A link that is thin enough for the quota has all compressed.
        assert_eq!(all.limit_of(all.of_peer(at(1), 0), 0, 0.1e6), None);
    }
}

/// However little of the quota that takes.
#[test]
fn a_thin_link_with_a_cheap_codec_has_all_compressed() {
    for (quota, link, ns) in
        [(0.1, 8e3, 7.0), (1.0, 125e3, 7.0), (4.0, 1e6, 4.0), (4.0, 8e3, 180.0)]
    {
        let mut all = processors(4.0, &[0.0]);
        for _ in 0..20 {
            look(&mut all, Some(quota), (0.01 * quota, 0.0), link);
        }
        all.loads[0].compressed = Compressed { original: 1e6, left: 0.4e6, took_ns: ns * 1e6 };
        assert!(!all.probes.are_on(true));
        assert_eq!(all.limit_of(all.of_peer(at(1), 0), 0, link), None, "{quota} {link} {ns}");
    }
}

/// One peer is sent prose and the other what hardly shrinks: what is worth it for the one is not for the other, whichever
/// of them was compressed last.
#[test]
fn each_peer_is_planned_with_what_is_left_of_its_own() {
    let (prose, noise) = (CodecPoint::new(8.0, 0.4), CodecPoint::new(8.0, 0.95));
    for latest in [prose, noise] {
        let mut all = processors(1.0, &[0.0, 0.0]);
        for _ in 0..20 {
            look(&mut all, Some(0.25), (0.25, 0.0), 12.5e6);
        }
        for (load, codec) in all.loads.iter_mut().zip([prose, noise]) {
            let (original, left, took_ns) = (1e6, codec.ratio * 1e6, codec.cost_ns * 1e6);
            load.compressed = Compressed { original, left, took_ns };
        }
        let window = Compressed { original: 1e7, left: latest.ratio * 1e7, took_ns: 8e7 };
        all.learn_costs(1e7, 20e7 - 16e7 * (1.0 - latest.ratio) + 8e7, window);
        all.plan(at(1), &[Some(25e6); 2]);
        let limits = [0, 1].map(|index| all.limit(index));
        assert_ne!(limits[0], Some(CpuLimit::NOTHING), "{latest:?}");
        assert_eq!(limits[1], Some(CpuLimit::NOTHING), "{latest:?}");
    }
}

#[test]
fn time_that_is_withheld_is_not_time_that_others_take() {
    let mut all = processors(1.0, &[0.0]);
    for ms in 0..2_000 {
        all.slowdown.worked(at(ms), 250_000, 1_000_000);
    }
    let slowed = all.of_peer(at(2_000), 0).share;
    for _ in 0..20 {
        look(&mut all, Some(0.25), (0.25, 0.75), 1e6);
    }
    let share = all.of_peer(at(2_000), 0).share;
    assert!(slowed < 0.2 && share > 0.65, "{slowed} {share}");
}

#[test]
fn few_trials_are_made_at_a_time_and_in_a_small_part_of_it() {
    let mut all = processors(1.0, &[0.0]);
    let (mut made, mut began) = (0_u64, 0);
    for ms in 1..100_000 {
        while all.may_try(at(ms)) {
            all.trial_began(at(ms));
            began += 1;
        }
        assert!(all.trials_began.len() <= TRIALS_MAX);
        if ms % 50 == 0 && began > made {
            all.trial_ended(at(ms), 50 * MILLI_NS, Processor::default());
            made += 1;
        }
    }
    let most = (100 * SECOND_NS / TRIALS_PART + TRIALS_SAVED_NS_MAX) / (50 * MILLI_NS) + 2;
    assert!(made > most / 2 && made <= most, "{made} of {most}");
    // Of those of which nothing is heard others do not wait for ever.
    all.trials_began = vec![at(100_000); TRIALS_MAX];
    assert!(!all.may_try(at(150_000)) && all.may_try(at(161_000)));
}

/// Raw, a byte takes 45 ns; compressed to .4, 35: as on a slow link with a packet in each datagram.
#[test]
fn windows_with_some_of_both_show_what_either_costs() {
    let mut all = processors(1.0, &[0.0]);
    for part in [0.98, 0.7, 0.6, 0.55].into_iter().cycle().take(100) {
        let original = 1e6 * part;
        let compressed = Compressed { original, left: 0.4 * original, took_ns: 22.0 * original };
        all.learn_costs(1e6, 45.0 * (1e6 - original) + 35.0 * original, compressed);
    }
    let (raw_ns, compressed_ns) = (all.raw_ns.unwrap(), all.compressed_ns.unwrap());
    assert!((44.0..46.0).contains(&raw_ns), "{raw_ns}");
    assert!((34.5..35.5).contains(&compressed_ns), "{compressed_ns}");
}

#[test]
fn what_was_learned_long_ago_gives_way_to_a_single_window() {
    let mut all = processors(1.0, &[0.0]);
    let compressed =
        |codec_ns: f64| Compressed { original: 1e6, left: 4e5, took_ns: 1e6 * codec_ns };
    all.learn_costs(1e6, 90e6, compressed(80.0));
    all.learn_costs(1e6, 35e6, compressed(22.0));
    assert!((67.0..69.0).contains(&all.compressed_ns.unwrap()), "{:?}", all.compressed_ns);
    (0..48).for_each(|_| all.learn_costs(1e6, 40e6, Compressed::default()));
    all.learn_costs(1e6, 35e6, compressed(22.0));
    assert!((40.0..43.0).contains(&all.compressed_ns.unwrap()), "{:?}", all.compressed_ns);
}

#[test]
fn nothing_is_learned_of_bytes_while_codecs_are_tried() {
    let mut all = processors(1.0, &[]);
    all.trial_began(at(10));
    look(&mut all, Some(0.25), (0.25, 0.4), 12.5e6);
    assert_eq!(all.raw_ns, None, "it has not ended");
    all.trial_ended(at(1_500), 1_000, Processor::default());
    look(&mut all, Some(0.25), (0.25, 0.4), 12.5e6);
    assert_eq!(all.raw_ns, None, "it ended in this window");
    look(&mut all, Some(0.25), (0.25, 0.4), 12.5e6);
    assert!(all.raw_ns.is_some_and(|ns| (ns - 20.0).abs() < 1e-6), "{:?}", all.raw_ns);
}

/// While all goes raw nobody asks for a trial.
#[test]
fn a_trial_of_which_nothing_is_heard_does_not_stop_learning_for_ever() {
    let mut all = processors(1.0, &[]);
    all.trial_began(at(0));
    for s in [30, 59] {
        all.look(at(1_000 * s), &[], SECOND_NS, None);
        look(&mut all, Some(0.25), (0.25, 0.4), 12.5e6);
        assert_eq!(all.raw_ns, None);
    }
    for s in [61, 62] {
        all.look(at(1_000 * s), &[], SECOND_NS, None);
        look(&mut all, Some(0.25), (0.25, 0.4), 12.5e6);
    }
    assert!(all.raw_ns.is_some());
}

/// A look with a quota that is used up, in which so much was read and sent, and compressed to .4 with a codec of 20 ns.
fn open(all: &mut Processors, part: f64) -> Option<CpuLimit> {
    let (bytes, original) = (1e6, part * 1e6);
    let compressed = Compressed { original, left: 0.4 * original, took_ns: 20.0 * original };
    let sent = bytes - original + compressed.left;
    let used_ns = 100.0 * (bytes - original) + 90.0 * original;
    let before = all.times.unwrap_or_default();
    let times = CpuTimes {
        used_ns: before.used_ns + used_ns as u64,
        withheld_ns: before.withheld_ns + SECOND_NS / 2,
        quota: Some(0.1),
    };
    let bytes = Bytes { read: bytes, kept: bytes, departed: bytes, sent, ..Bytes::default() };
    all.loads[0].compressed.add(compressed, 0.6);
    all.measure((before, times), SECOND_NS, (bytes, compressed));
    all.times = Some(times);
    all.plan(at(1), &[Some(1.25e6)]);
    all.loads[0].limit
}

/// Packets of a hundred bytes, whose datagrams are nearly twice as long.
#[test]
fn what_a_byte_costs_is_that_of_packets_and_not_of_headers() {
    let mut all = processors(1.0, &[0.0]);
    let bytes = Bytes { read: 1e6, kept: 1e6, departed: 1e6, sent: 1.8e6, ..Bytes::default() };
    for second in 1..20 {
        let (used_ns, withheld_ns) = (second * SECOND_NS / 10, second * SECOND_NS / 2);
        let times = CpuTimes { used_ns, withheld_ns, quota: Some(0.1) };
        let before = all.times.replace(times).unwrap_or_default();
        all.measure((before, times), SECOND_NS, (bytes, Compressed::default()));
    }
    let raw_ns = all.raw_ns.unwrap();
    assert!((99.0..101.0).contains(&raw_ns), "{raw_ns}");
}

/// A second in which so much came to stay, and left.
fn pass(all: &mut Processors, (kept, departed): (f64, f64)) -> Option<f64> {
    let before = CpuTimes { quota: Some(0.1), ..CpuTimes::default() };
    let now = CpuTimes { used_ns: SECOND_NS / 10, ..before };
    let bytes = Bytes { read: 1e6, kept, departed, sent: departed, ..Bytes::default() };
    all.measure((before, now), SECOND_NS, (bytes, Compressed::default()));
    all.raw_ns
}

/// A queue that fills up, or empties: what came costs something when it leaves.
#[test]
fn a_window_in_which_more_comes_than_leaves_shows_no_cost() {
    let mut all = processors(1.0, &[0.0]);
    assert_eq!(pass(&mut all, (1e6, 0.5e6)), None);
    assert_eq!(pass(&mut all, (1e6, 2e6)), None);
    assert!(pass(&mut all, (1.2e6, 1e6)).is_some());
}

/// Where more comes than a link ever carries, or much is sent again, the queue stays as it is.
#[test]
fn what_is_dropped_or_sent_again_locks_nobody_out() {
    assert!(pass(&mut processors(1.0, &[0.0]), (0.2e6, 0.2e6)).is_some());
    assert!(pass(&mut processors(1.0, &[0.0]), (2e6, 2e6)).is_some());
    let mut all = processors(1.0, &[0.0]);
    let windows = (0..100).take_while(|_| pass(&mut all, (1e6, 0.1e6)).is_none());
    assert_eq!(windows.count(), UNSTEADY_MAX as usize, "it never is");
}

/// While all goes raw nothing else would show that it was wrong.
#[test]
fn what_compressing_seemed_to_cost_is_doubted_while_nothing_is_compressed() {
    let mut all = processors(1.0, &[0.0]);
    all.codec = Some(CodecPoint::new(16.0, 0.5));
    (all.compressed_ns, all.has_seen_compressed) = (Some(300.0), true);
    for _ in 0..100 {
        look(&mut all, Some(0.1), (0.1, 0.5), 1e6);
    }
    // A fifth of what a raw byte costs, half of the rest, and the codec: 20 + 40 + 16.
    let compressed_ns = all.compressed_ns.unwrap();
    assert!((76.0..78.0).contains(&compressed_ns), "{compressed_ns}");
}

/// Before anything is planned, or any codec tried.
#[test]
fn where_the_processor_is_short_both_ways_are_seen_first() {
    let mut all = processors(1.0, &[0.0]);
    assert_eq!(open(&mut all, 0.7), None, "neither was seen");
    assert!(!all.may_try(at(1)));
    assert_eq!(open(&mut all, 1.0), Some(CpuLimit::NOTHING), "compressing was");
    assert_eq!(open(&mut all, 0.2), Some(CpuLimit::NOTHING), "what was compressed leaves first");
    assert!(!all.may_try(at(1)));
    assert_eq!(open(&mut all, 0.0), None, "what saves a tenth is worth it");
    assert!(all.may_try(at(1)));
    let (raw_ns, compressed_ns) = (all.raw_ns.unwrap(), all.compressed_ns.unwrap());
    assert!((99.0..101.0).contains(&raw_ns), "{raw_ns}");
    assert!((89.0..91.0).contains(&compressed_ns), "{compressed_ns}");
    // What never is compressed as a whole is not waited for.
    let mut all = processors(1.0, &[0.0]);
    let waits = (0..100).take_while(|_| {
        open(&mut all, 0.5);
        !all.may_try(at(1))
    });
    assert_eq!(waits.count(), OPENING_WINDOWS as usize - 1);
}

/// Over a link on which so little goes raw that nothing can be learned from it, or goes at all.
#[test]
fn where_the_processor_is_short_little_traffic_locks_nobody_out() {
    for read_raw in [50e3, 100.0] {
        let mut all = processors(1.0, &[0.0]);
        open(&mut all, 1.0);
        assert_eq!(open(&mut all, 1.0), Some(CpuLimit::NOTHING));
        let waits = (0..100).take_while(|_| {
            let before = all.times.unwrap();
            let withheld_ns = before.withheld_ns + SECOND_NS / 2;
            let times = CpuTimes { used_ns: before.used_ns + 5_000_000, withheld_ns, ..before };
            let bytes =
                Bytes { read: read_raw, departed: read_raw, sent: read_raw, ..Bytes::default() };
            all.measure((before, times), SECOND_NS, (bytes, Compressed::default()));
            all.times = Some(times);
            all.plan(at(1), &[Some(0.25e6)]);
            !all.may_try(at(1))
        });
        let waits = waits.count();
        assert!(waits < OPENING_WINDOWS as usize, "{read_raw}: {waits}");
        assert_eq!(all.loads[0].limit, None, "{read_raw}: compressing carries more");
    }
}

#[test]
fn with_a_quota_that_is_known_first_something_can_be_planned() {
    let mut all = processors(1.0, &[0.0]);
    let times = CpuTimes { quota: Some(0.5), ..CpuTimes::default() };
    all.look(at(1), &[], SECOND_NS, Some(times));
    let budget = all.of_peer(at(1), 0).budget.unwrap();
    assert!((0.25..=0.5).contains(&budget.processors), "{}", budget.processors);
}

#[test]
fn where_the_processor_is_short_a_trial_is_paid_for_before_the_next() {
    let mut all = processors(1.0, &[0.0]);
    for part in [1.0, 1.0, 0.0, 0.0] {
        open(&mut all, part);
    }
    assert!(all.may_try(at(1)));
    all.trial_began(at(1));
    // 20 ms of a tenth of a processor.
    let weak = all.of_peer(at(1), 0);
    all.trial_ended(at(200), 20 * MILLI_NS, weak);
    assert!(!all.may_try(at(1_000)) && all.may_try(at(6_000)));
}
