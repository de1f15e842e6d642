use super::*;

const MS: u64 = 1_000_000;

/// A path, and messages of 10 kB over it of which a fifth is left when they are compressed in 50 µs.
struct World {
    arms: Arms,
    now: Instant,
    /// Bytes a second, and what everything else takes, in nanoseconds.
    rate: f64,
    other_ns: u64,
    raw: u32,
    sent: u32,
}

impl World {
    fn new(rate: f64) -> Self {
        let now = Instant::from_ns(100 * SECOND_NS);
        Self { arms: Arms::default(), now, rate, other_ns: 100_000, raw: 0, sent: 0 }
    }

    fn carries_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * 1e9 / self.rate) as u64
    }

    /// One message of a connection.
    fn sends(&mut self, connection: u64) -> Advice {
        self.sends_if(connection, true)
    }

    /// The same, which may never be confirmed alone.
    fn sends_if(&mut self, connection: u64, is_confirmed: bool) -> Advice {
        let queue_ns = self.carries_ns(2_000);
        let report = LinkReport { round_trip_ns: 50_000, queue_ns, ..LinkReport::default() };
        let advice = self.arms.begin(self.now, connection, 10_000, &report);
        let (wire_bytes, compress_ns) = if advice.goes_raw { (10_009, 0) } else { (2_000, 50_000) };
        let took_ns = self.other_ns + compress_ns + self.carries_ns(wire_bytes);
        let (begun_len, bytes, round_trip_ns) = (10_000, 10_000, 50_000);
        let message = Confirmed {
            begun_len,
            bytes,
            wire_bytes,
            compress_ns,
            took_ns,
            round_trip_ns,
            unseen: 0,
        };
        self.now = self.now + took_ns;
        if is_confirmed {
            self.arms.confirmed(self.now, connection, &message);
        }
        self.sent += 1;
        self.raw += u32::from(advice.goes_raw);
        advice
    }

    /// Returns how many of so many messages go as they are.
    fn raw_of(&mut self, count: u32) -> u32 {
        let before = self.raw;
        for _ in 0..count {
            self.sends(1);
        }
        self.raw - before
    }
}

#[test]
fn nothing_is_known_of_a_new_path_and_it_is_taken_to_be_slow() {
    let mut arms = Arms::default();
    for len in [10, 2_000, 10_000, 1 << 20] {
        let advice = arms.begin(Instant::from_ns(1), 1, len, &LinkReport::default());
        let expected = Advice { prudent_rate: RATE_MIN, goes_raw: false, is_settled: false };
        assert_eq!(advice, expected);
        assert_eq!(arms.advice(Instant::from_ns(1), len), expected);
    }
}

#[test]
fn over_a_fast_path_messages_go_as_they_are_after_a_trial() {
    let mut world = World::new(1e9);
    assert_eq!(world.raw_of(WAIT_FIRST), 0);
    assert_eq!(world.raw_of(TRIAL_SKIPPED + TRIAL_COUNTED), TRIAL_SKIPPED + TRIAL_COUNTED);
    assert_eq!(world.raw_of(2 * DOUBTED_COUNTED), DOUBTED_COUNTED, "until that is sure");
    // From here on one in some is compressed, for the other's time; that takes half as long again, so few are.
    assert_eq!(world.raw_of(10 * OTHER_EVERY_LATER), 10 * (OTHER_EVERY_LATER - 1));
    assert!(world.arms.advice(world.now, 10_000).goes_raw, "what follows others, too");
    assert!(!world.arms.advice(world.now, 100).goes_raw, "others are of another length");
    // All connections know it.
    assert!(world.sends(2).goes_raw);
}

#[test]
fn what_takes_about_as_long_either_way_is_compared_more_often() {
    let mut world = World::new(1e9);
    world.other_ns = 1_000_000;
    world.raw_of(WAIT_FIRST + TRIAL_SKIPPED + TRIAL_COUNTED + 2 * DOUBTED_COUNTED);
    assert_eq!(world.raw_of(10 * OTHER_EVERY), 10 * (OTHER_EVERY - 1));
}

/// Messages of one length and one connection over any path.
struct Messages {
    arms: Arms,
    now: Instant,
    len: u64,
    round_trip_ns: u64,
    unseen: u32,
}

impl Messages {
    fn new(len: u64, round_trip_ns: u64, unseen: u32) -> Self {
        let (arms, now) = (Arms::default(), Instant::from_ns(100 * SECOND_NS));
        Self { arms, now, len, round_trip_ns, unseen }
    }

    /// Sends one, of which `outcome` gives the bytes on the link, and the times of compressing and of all of it, if it goes as it is or not.
    /// Returns whether it does.
    fn sends(&mut self, outcome: impl FnOnce(bool) -> (u64, u64, u64)) -> bool {
        let &mut Self { len: bytes, round_trip_ns, unseen, .. } = self;
        let (begun_len, report) =
            (bytes as usize, LinkReport { round_trip_ns, ..LinkReport::default() });
        let goes_raw = self.arms.begin(self.now, 1, begun_len, &report).goes_raw;
        let (wire_bytes, compress_ns, took_ns) = outcome(goes_raw);
        self.now = self.now + took_ns;
        let message =
            Confirmed { begun_len, bytes, wire_bytes, compress_ns, took_ns, round_trip_ns, unseen };
        self.arms.confirmed(self.now, 1, &message);
        goes_raw
    }
}

/// Eight messages of each way that vary by half say as often as not that one of two equal ways is later, and then nothing was tried for
/// hundreds of messages more.
#[test]
fn messages_of_many_lengths_of_time_are_compared_until_it_is_known() {
    let raw_of = |seed: u64, slower: f64| {
        let mut rng = dwell_base::Rng::from_seed(seed);
        let mut messages = Messages::new(1_728, 100_000, 0);
        let mut outcome = |goes_raw: bool| {
            let usual_ns = 500_000 + rng.below(1_000_000);
            match goes_raw {
                true => (1_737, 0, (usual_ns as f64 * slower) as u64),
                false => (480, 40_000, usual_ns),
            }
        };
        (0..500).filter(|_| messages.sends(&mut outcome)).count()
    };
    let most = |slower: f64| (0..200).filter(|&seed| raw_of(seed, slower) > 250).count();
    let (equal, slower, far_slower) = (most(1.0), most(1.5), most(2.0));
    assert!(equal >= 170, "equal ways: {equal} of 200 go as they are");
    assert!(slower <= 2 && far_slower == 0, "{slower} and {far_slower} of 200 though it is later");
}

/// The number of the first message that goes as it is, if all take 1.2 ms.
fn first_tried(round_trip_ns: u64, unseen: u32) -> Option<u32> {
    let mut messages = Messages::new(1_728, round_trip_ns, unseen);
    (0..2_000).find(|_| messages.sends(|_| (480, 40_000, 1_200_000)))
}

/// Messages that nobody looked at count for the patience with which trials are put off.
#[test]
fn messages_that_nobody_looked_at_count() {
    let (all, one_in_eight) = (first_tried(600_000, 0).unwrap(), first_tried(600_000, 7).unwrap());
    assert!((all / 8..all / 8 + 2).contains(&one_in_eight), "{all} and {one_in_eight}");
}

/// Ten kilobytes that take a fifth longer as they are: never tried with less patience, and hardly ever won.
#[test]
fn a_bold_trial_is_not_won_by_chance() {
    let raw_of = |seed: u64| {
        let mut rng = dwell_base::Rng::from_seed(seed);
        let mut messages = Messages::new(10_000, 2_300_000, 7);
        let mut outcome = |goes_raw: bool| {
            let chance = 0.4 + 1.2 * (rng.below(1_000_000) as f64 / 1e6);
            match goes_raw {
                true => (10_009, 0, (2_820_000.0 * chance) as u64),
                false => (2_500, 60_000, (2_350_000.0 * chance) as u64),
            }
        };
        (0..20_000).filter(|_| messages.sends(&mut outcome)).count()
    };
    let raw: usize = (0..20).map(raw_of).sum();
    assert!((1..20 * 20_000 / 20).contains(&raw), "{raw} of 400,000");
}

#[test]
fn slow_paths_are_hardly_ever_tried_and_faster_ones_less_and_less() {
    for (mbit, raw_max) in [(1.0, 0), (5.0, 0), (20.0, 12)] {
        let mut world = World::new(mbit * 125_000.0);
        let raw = world.raw_of(10_000);
        assert!(raw <= raw_max, "{mbit} Mbit/s: {raw} of 10,000");
    }
    let mut world = World::new(12.5e6);
    let raw = world.raw_of(20_000);
    assert!((1..60).contains(&raw), "100 Mbit/s: {raw} of 20,000");
}

/// Eight at once keep the processors busy, and so the round trips long: a fast path is tried all the same, after more messages.
#[test]
fn round_trips_that_processors_make_long_only_put_a_trial_off() {
    let tried = |round_trip_ns| first_tried(round_trip_ns, 0);
    assert_eq!(tried(100_000), Some(WAIT_FIRST));
    let late = tried(600_000).unwrap();
    assert!(f64::from(late) > PATIENT_AFTER, "{late}");
    assert!(tried(1_200_000) > tried(600_000));
    assert_eq!(tried(3_600_000), None);
}

#[test]
fn where_nothing_is_compressed_nobody_asks_each_time() {
    let (mut arms, mut now) = (Arms::default(), Instant::from_ns(100 * SECOND_NS));
    let mut settled = |is_short: bool| {
        let advice = arms.begin(now, 1, 33, &LinkReport::default());
        let (wire_bytes, compress_ns) = if is_short { (40, 0) } else { (20, 20_000) };
        let (begun_len, bytes, took_ns, round_trip_ns) = (33, 33, 100_000, 50_000);
        now = now + took_ns;
        let message = Confirmed {
            begun_len,
            bytes,
            wire_bytes,
            compress_ns,
            took_ns,
            round_trip_ns,
            unseen: 0,
        };
        arms.confirmed(now, 1, &message);
        assert!(!advice.goes_raw);
        advice.is_settled
    };
    let first = (0..100).find(|_| settled(true));
    assert_eq!(first, Some(SAMPLES));
    settled(false);
    assert!(!settled(true), "one was");
}

#[test]
fn the_rate_is_what_messages_show_at_least() {
    let rate_of = |rate, other_ns| {
        let mut world = World { other_ns, ..World::new(rate) };
        world.raw_of(10);
        world.arms.advice(world.now, 10_000).prudent_rate
    };
    // 2,000 bytes in 150 µs besides the link's 320.
    assert!((rate_of(6.25e6, 100_000) - 2_000.0 / 470e-6).abs() < 1.0);
    assert_eq!(rate_of(625e3, 100_000), RATE_MIN);
    assert_eq!(rate_of(1e9, 10_000), RATE_MAX.min(2_000.0 / 62e-6));
    // Who takes his time says nothing.
    assert_eq!(rate_of(1e9, 50 * MS), RATE_MIN);
}

#[test]
fn a_path_that_becomes_slow_is_noticed_within_some_messages() {
    let mut world = World::new(1e9);
    world.raw_of(1_000);
    world.rate = 625e3;
    let raw = world.raw_of(40);
    assert!(raw <= ROW_MAX + 2 * DOUBTED_COUNTED, "{raw}");
    assert_eq!(world.raw_of(1_000), 0);
    // And one that is fast again.
    world.rate = 1e9;
    world.raw_of(200);
    assert!(world.raw_of(100) > 90);
}

/// Of eight at once each takes longer than one alone that goes as it is.
#[test]
fn compressed_messages_of_before_a_trial_do_not_decide_it() {
    let mut world = World { other_ns: 8 * MS, ..World::new(12.5e6) };
    assert_eq!(world.raw_of(WAIT_FIRST), 0);
    world.other_ns = 100_000;
    let raw = world.raw_of(1_000);
    assert!((TRIAL_COUNTED..100).contains(&raw), "{raw}");
}

#[test]
fn a_peer_that_takes_longer_is_no_slower_path() {
    let mut world = World::new(1e9);
    world.raw_of(200);
    world.other_ns = 1_000_000;
    world.raw_of(60);
    assert!(world.raw_of(100) > 90, "compressed ones take longer, too");
}

#[test]
fn a_trial_that_shows_nothing_ends() {
    let mut world = World::new(1e9);
    world.raw_of(WAIT_FIRST);
    // Its messages are never confirmed alone.
    let tried = (0..100).filter(|_| world.sends_if(1, false).goes_raw).count() as u32;
    assert_eq!(tried, 2 * (TRIAL_SKIPPED + TRIAL_COUNTED));
    // Its connection ends, while others send.
    let mut world = World::new(1e9);
    world.raw_of(WAIT_FIRST + 1);
    let tried = (0..TRIAL_IDLE_MAX + 1).filter(|_| world.sends(2).goes_raw).count();
    assert_eq!(tried, 0);
    assert!(matches!(world.arms.classes[2].way, Way::Compressed));
}

#[test]
fn a_doubt_without_an_answer_ends() {
    let mut world = World::new(1e9);
    world.raw_of(200);
    world.rate = 625e3;
    while !matches!(world.arms.classes[2].way, Way::Doubted { .. }) {
        world.sends(1);
    }
    for _ in 0..2 * DOUBTED_SENT_MAX {
        world.sends_if(1, false);
    }
    assert!(matches!(world.arms.classes[2].way, Way::Compressed));
}

/// Messages of which a quarter is left, over a path of so many bytes a second whose transport has no queue: how many of them go as
/// they are.
fn raw_of_long(lens: impl Iterator<Item = u64>, rate: f64, path_rate: f64) -> u32 {
    let round_trip_ns = 50_000;
    let (mut arms, mut now, mut raw) = (Arms::default(), Instant::from_ns(100 * SECOND_NS), 0);
    for len in lens {
        let begun_len = len.min(64 << 10) as usize;
        let report = LinkReport { round_trip_ns, path_rate, ..LinkReport::default() };
        let advice = arms.begin(now, 1, begun_len, &report);
        let (wire_bytes, compress_ns) =
            if advice.goes_raw { (len + 9, 0) } else { (len / 4, 8 * len) };
        let took_ns =
            50_000 + round_trip_ns + compress_ns + (wire_bytes as f64 * 1e9 / rate) as u64;
        now = now + took_ns;
        let bytes = len;
        let message = Confirmed {
            begun_len,
            bytes,
            wire_bytes,
            compress_ns,
            took_ns,
            round_trip_ns,
            unseen: 0,
        };
        arms.confirmed(now, 1, &message);
        raw += u32::from(advice.goes_raw);
    }
    raw
}

#[test]
fn long_messages_are_compared_by_their_bytes() {
    // Those of 100 kB take half as long as they are as ten times as much takes compressed.
    let lens = || (0..200).map(|at| if at < 100 { 1_000_000 } else { 100_000 });
    assert_eq!(raw_of_long(lens(), 2.5e6, 0.0), 0);
    let fast = raw_of_long(lens(), 1e9, 0.0);
    assert!(fast > 100, "{fast}");
}

/// A round trip of 20 ms is most of what 70 kB take, and little of a megabyte's time: by their bytes a megabyte as it is seemed to be
/// three times as fast.
#[test]
fn a_round_trip_does_not_make_longer_messages_faster() {
    let (mut arms, mut now) = (Arms::default(), Instant::from_ns(100 * SECOND_NS));
    let (rate, round_trip_ns, begun_len) = (12.5e6, 20 * MS, 64 << 10);
    arms.advice(now, begun_len);
    arms.classes[CLASSES - 1].way =
        Way::Doubted { sent: 0, is_trial: true, needed: DOUBTED_COUNTED };
    for at in 0..2 * SAMPLES as u64 {
        let (bytes, wire_bytes) =
            if at % 2 == 0 { (1_000_000, 1_000_009) } else { (70_000, 17_000) };
        let compress_ns = if wire_bytes < bytes { 8 * bytes } else { 0 };
        let took_ns = round_trip_ns + compress_ns + (wire_bytes as f64 * 1e9 / rate) as u64;
        now = now + took_ns;
        let message = Confirmed {
            begun_len,
            bytes,
            wire_bytes,
            compress_ns,
            took_ns,
            round_trip_ns,
            unseen: 0,
        };
        arms.confirmed(now, 1, &message);
    }
    assert!(matches!(arms.classes[CLASSES - 1].way, Way::Compressed));
}

/// Messages of a megabyte over 300 ms take 1.6 times as long as they are: compared as 128 KiB, with the round trip that these have, it would be a
/// tenth.
#[test]
fn a_long_round_trip_does_not_hide_what_long_messages_take() {
    let (mut arms, mut now) = (Arms::default(), Instant::from_ns(100 * SECOND_NS));
    let (rate, round_trip_ns, begun_len, bytes) = (4.2e6, 150 * MS, 64 << 10, 1_000_000);
    let mut confirm = |arms: &mut Arms, is_raw: bool| {
        let (wire_bytes, compress_ns) = if is_raw { (bytes + 9, 0) } else { (bytes / 4, 40 * MS) };
        let took_ns = round_trip_ns + compress_ns + (wire_bytes as f64 * 1e9 / rate) as u64;
        now = now + took_ns;
        let message = Confirmed {
            begun_len,
            bytes,
            wire_bytes,
            compress_ns,
            took_ns,
            round_trip_ns,
            unseen: 0,
        };
        arms.confirmed(now, 1, &message);
    };
    arms.advice(Instant::from_ns(100 * SECOND_NS), begun_len);
    arms.classes[CLASSES - 1].way =
        Way::Doubted { sent: 0, is_trial: true, needed: DOUBTED_COUNTED };
    (0..2 * DOUBTED_COUNTED).for_each(|at| confirm(&mut arms, at % 2 == 0));
    assert!(matches!(arms.classes[CLASSES - 1].way, Way::Compressed));
    // Nor where the path has become slower since they go as they are.
    arms.classes[CLASSES - 1].way = Way::Raw { sent: 0, row: 0 };
    (0..16).for_each(|_| confirm(&mut arms, true));
    assert!(matches!(arms.classes[CLASSES - 1].way, Way::Doubted { is_trial: false, .. }));
}

#[test]
fn what_others_have_found_of_the_path_spares_a_trial() {
    let lens = || std::iter::repeat_n(10_000, 200);
    assert!(raw_of_long(lens(), 4e6, 0.0) > 0, "nothing else shows it here");
    assert_eq!(raw_of_long(lens(), 4e6, 4e6), 0);
    assert!(raw_of_long(lens(), 1e9, 1e9) > 100);
}

#[test]
fn what_is_old_is_forgotten() {
    let mut world = World::new(1e9);
    world.raw_of(1_000);
    world.now = world.now + FORGOTTEN_NS;
    assert_eq!(world.raw_of(WAIT_FIRST), 0);
}

#[test]
fn what_cannot_be_compressed_says_nothing() {
    let mut world = World::new(1e9);
    let noise = Confirmed {
        begun_len: 10_000,
        bytes: 10_000,
        wire_bytes: 10_009,
        took_ns: MS,
        compress_ns: 0,
        round_trip_ns: 50_000,
        unseen: 0,
    };
    for _ in 0..1_000 {
        world.arms.confirmed(world.now, 1, &noise);
    }
    assert_eq!(world.raw_of(WAIT_FIRST), 0);
    assert!(world.sends(1).goes_raw);
}

mod times {
    use super::*;

    #[test]
    fn the_median_is_of_the_latest() {
        let mut times = Times::default();
        assert_eq!((times.took_ns(), times.wire_bytes()), (0.0, 0.0));
        let sent = |took_ns| Confirmed {
            took_ns,
            wire_bytes: took_ns.saturating_mul(2),
            ..Confirmed::default()
        };
        [5, 900, 7].iter().for_each(|&took_ns| times.push(&sent(took_ns), took_ns));
        assert_eq!(times.took_ns(), 7.0);
        (0..SAMPLES as u64 + 1).for_each(|_| times.push(&sent(3), 3));
        assert_eq!((times.took_ns(), times.wire_bytes()), (3.0, 6.0));
        (0..SAMPLES).for_each(|_| times.push(&sent(u64::MAX), u64::MAX));
        assert_eq!(times.took_ns(), f64::from(u32::MAX));
        times.count = u32::MAX;
        times.push(&sent(3), 3);
        assert_eq!(times.count, SAMPLES as u32);
    }
}

/// Where there are more at once before a trial than in it, a trial passes and is refuted each time.
#[test]
fn a_trial_that_is_refuted_comes_later_the_next_time() {
    let mut world = World::new(1e9);
    let mut raw = Vec::new();
    for _ in 0..4_000 {
        world.other_ns = match world.arms.classes[2].way {
            Way::Compressed => 20 * MS,
            // The next one goes as it is.
            Way::Doubted { sent, .. } if (sent + 1).is_multiple_of(2) => MS,
            _ => MS / 10,
        };
        raw.push(world.sends(1).goes_raw);
    }
    let first = raw[..100].iter().filter(|&&raw| raw).count();
    let late = raw[1_000..].iter().filter(|&&raw| raw).count();
    assert!(first > 10 && late < 150, "{first} of 100, then {late} of 3,000");
}
