//! Streams over a modelled link with modelled codecs, in virtual time: no byte is compressed.

use dwell_base::Instant;

use super::*;
use crate::rate::LinkReport;

const BLOCK_LEN: usize = 64 << 10;
const HOLDS: u32 = 128 << 10;
const QUEUE_LEN: usize = 4;
/// What each byte costs besides compressing: copies and check sums, as the codec choice assumes.
const BESIDES_NS: f64 = 0.4;

/// A codec that takes `cost_ns` for a byte, and leaves `ratio` of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Codec {
    cost_ns: f64,
    ratio: f64,
}

// As lz4, zstd:1 and zstd:6 on prose.
const FAST: Codec = Codec { cost_ns: 2.5, ratio: 0.6 };
const GOOD: Codec = Codec { cost_ns: 6.0, ratio: 0.44 };
const STRONG: Codec = Codec { cost_ns: 28.0, ratio: 0.38 };

/// A prior that is wrong by these factors.
fn prior(codec: Codec, cost: f64, may_refer: bool) -> Prior<Codec> {
    let saving = 0.8 * (1.0 - codec.ratio);
    let refers = if may_refer { Referring::Rereads } else { Referring::Never };
    Prior { codec, cost_ns: cost * codec.cost_ns, saving, refers }
}

/// A full block of a stream that has more.
fn asked(busy: bool) -> Asked {
    Asked { len: BLOCK_LEN, busy, more: true, ..Asked::default() }
}

fn hull() -> Rule<Codec> {
    Rule::Hull(vec![prior(FAST, 1.5, false), prior(GOOD, 1.5, false), prior(STRONG, 1.5, false)])
}

/// What waits, with the bytes of it that are left to write.
#[derive(Clone, Copy)]
enum Waiting {
    /// Could be compressed.
    Open,
    Raw(usize),
    Compressed(usize),
}

/// A stream that always has more to send, and a link that sends `rate` bytes a second of what it
/// holds.
struct World {
    steering: Steering<Codec>,
    rate: f64,
    level: f64,
    now: Instant,
    queue: Vec<Waiting>,
    busy: bool,
    sent_blocks: usize,
    raw_blocks: usize,
}

impl World {
    fn new(rule: Rule<Codec>, rate: f64) -> Self {
        Self {
            steering: Steering::new(rule, HOLDS),
            rate,
            level: 0.0,
            now: Instant::ZERO,
            queue: Vec::new(),
            busy: false,
            sent_blocks: 0,
            raw_blocks: 0,
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now = self.now + ns;
        self.level = (self.level - self.rate * ns as f64 / 1e9).max(0.0);
    }

    fn fill(&mut self) {
        while self.queue.len() < QUEUE_LEN {
            let admitted = self.steering.admits(false);
            self.queue.push(if admitted { Waiting::Open } else { Waiting::Raw(BLOCK_LEN) });
            self.pass((BESIDES_NS * BLOCK_LEN as f64) as u64);
        }
    }

    /// Writes what may go until the transport refuses, or nothing may go.
    fn write(&mut self) {
        self.fill();
        let offer = Offer { len: BLOCK_LEN, history_len: 0, is_full: true, more: true };
        while let Some(front) = self.queue.first_mut() {
            let room = (f64::from(HOLDS) - self.level).max(0.0) as usize;
            if matches!(front, Waiting::Open) {
                if !self.steering.lets_raw_go(self.now, offer) {
                    return;
                }
                if room == 0 {
                    return self.refuse();
                }
                self.steering.went_raw(false);
                *front = Waiting::Raw(BLOCK_LEN);
            }
            let (Waiting::Raw(left) | Waiting::Compressed(left)) = front else { return };
            let taken = room.min(*left);
            *left -= taken;
            let is_done = *left == 0;
            self.steering.link.offered(self.now);
            self.steering.works(self.now, true);
            if taken > 0 {
                self.busy = false;
                self.level += taken as f64;
                self.steering.link.wrote(self.now, taken);
                self.steering.writing.measured(taken, 0);
            }
            if !is_done {
                return self.refuse();
            }
            let block = self.queue.remove(0);
            self.sent_blocks += 1;
            self.raw_blocks += usize::from(matches!(block, Waiting::Raw(_)));
            self.fill();
        }
    }

    fn refuse(&mut self) {
        self.busy = true;
        self.steering.blocked(self.now);
    }

    /// Compresses a block, or waits for the link.
    fn compress(&mut self) {
        let open = self.queue.iter().position(|block| matches!(block, Waiting::Open));
        let choice = open.and_then(|_| self.steering.codec(self.now, asked(self.busy)));
        let (Some(at), Some(choice)) = (open, choice) else {
            assert!(self.busy, "the link is idle, and nothing is done for it");
            if self.queue.iter().all(|block| matches!(block, Waiting::Compressed(_))) {
                self.steering.waits(self.now);
            }
            let third_ns = f64::from(HOLDS) / 3.0 / self.rate * 1e9;
            return self.pass(third_ns as u64 + 1);
        };
        self.steering.works(self.now, true);
        let took_ns = (choice.codec.cost_ns * BLOCK_LEN as f64) as u64;
        self.pass(took_ns);
        let used_len = (choice.codec.ratio * BLOCK_LEN as f64) as usize;
        let result = Measured {
            choice,
            original_len: BLOCK_LEN,
            history_len: 0,
            used_len,
            took_ns,
            away_ns: 0,
            is_first: false,
        };
        self.steering.compressed(&result, false);
        self.queue[at] = Waiting::Compressed(used_len);
    }

    /// Runs for this long, and returns the original bytes a second of its second half.
    fn run(&mut self, seconds: u64) -> f64 {
        let half = Instant::from_ns(seconds * 500_000_000);
        let end = Instant::from_ns(seconds * 1_000_000_000);
        let mut before = None;
        while self.now < end {
            if self.now >= half && before.is_none() {
                (self.raw_blocks, before) = (0, Some((self.sent_blocks, self.now)));
            }
            self.write();
            self.compress();
        }
        let (blocks, since) = before.expect("half of the time passes");
        self.sent_blocks -= blocks;
        (self.sent_blocks * BLOCK_LEN) as f64 * 1e9 / self.now.since_ns(since) as f64
    }

    fn raw_share(&self) -> f64 {
        self.raw_blocks as f64 / self.sent_blocks as f64
    }
}

fn bound(rate: f64, codecs: &[Codec]) -> Bound {
    let mut points = vec![CodecPoint::new(BESIDES_NS, 1.0)];
    let point = |codec: &Codec| CodecPoint::new(codec.cost_ns + BESIDES_NS, codec.ratio);
    points.extend(codecs.iter().map(point));
    Bound::of(rate, &points)
}

#[test]
fn the_codec_choice_comes_close_to_the_bound_over_any_link() {
    for rate in [1e6, 5e6, 20e6, 60e6, 120e6, 240e6, 400e6] {
        let mut world = World::new(hull(), rate);
        let reached = world.run(4);
        let bound = bound(rate, &[FAST, GOOD, STRONG]);
        let report = format!("{:.1} of {:.1} MB/s, {bound:?}", reached / 1e6, bound.rate / 1e6);
        // One block in twenty-four explores a neighbour of the best codec.
        assert!(reached > 0.9 * bound.rate && reached < 1.03 * bound.rate, "{report}");
        let raw_share = world.raw_share();
        assert!((raw_share - bound.shares[0]).abs() < 0.1, "{raw_share:.2} raw: {report}");
    }
}

/// To save bytes everything is compressed, over any link, with what leaves least as long as that carries a fourth of the most.
#[test]
fn bytes_are_saved_over_any_link_and_it_takes_four_times_as_long_at_most() {
    for rate in [1e6, 5e6, 20e6, 60e6, 120e6, 400e6] {
        let mut world = World::new(hull(), rate);
        world.steering.save_bytes();
        // A link that idles refuses nothing: its rate is what TCP says.
        world.steering.expect(Instant::ZERO, rate);
        let reached = world.run(4);
        let (best, codecs) = (bound(rate, &[FAST, GOOD, STRONG]).rate, [FAST, GOOD, STRONG]);
        assert!(reached > 0.9 * best / 4.0, "{:.1} of {:.1} MB/s", reached / 1e6, best / 1e6);
        assert_eq!(world.raw_blocks, 0, "{rate}");
        let choices = (0..48).filter_map(|_| world.steering.codec(world.now, asked(true)));
        let left = choices.map(|it| it.codec.ratio).sum::<f64>() / 48.0;
        let planned = bound(rate, &codecs);
        let most = planned.shares[1..].iter().zip(codecs).map(|(share, it)| share * it.ratio);
        let most = planned.shares[0] + most.sum::<f64>();
        assert!(left < most + 0.02, "{left:.3} are left, and {most:.3} to save time: {rate}");
        if [60e6, 120e6].contains(&rate) {
            // Not only since nothing goes uncompressed: it is the stronger ones that are used.
            let point = |codec: &Codec| CodecPoint::new(codec.cost_ns + BESIDES_NS, codec.ratio);
            let hasty = Bound::of(rate, &codecs.each_ref().map(point));
            let hasty: f64 = hasty.shares.iter().zip(codecs).map(|(f, it)| f * it.ratio).sum();
            assert!(left < hasty - 0.03, "{left:.3} are left, and {hasty:.3} in haste: {rate}");
        }
    }
}

#[test]
fn mixing_comes_close_to_the_bound_of_one_codec() {
    for rate in [5e6, 60e6, 200e6] {
        let reached = World::new(Rule::Mix(GOOD), rate).run(4);
        let bound = bound(rate, &[GOOD]).rate;
        assert!((0.95 * bound..1.03 * bound).contains(&reached), "{reached:.0} of {bound:.0}");
    }
}

#[test]
fn switching_compresses_on_slow_links_only() {
    let share = |rate| {
        let mut world = World::new(Rule::Switch(GOOD), rate);
        world.run(4);
        let planned = world.steering.raw_share();
        assert_eq!(planned.round(), world.raw_share().round(), "of {rate}");
        world.raw_share()
    };
    assert!(share(10e6) < 0.02, "the link is full: there is nothing to probe");
    assert!((0.02..0.1).contains(&share(40e6)), "one block in twenty is a probe");
    assert!(share(400e6) > 0.9, "the codec's 167 MB/s are less");
}

#[test]
fn all_and_nothing_are_what_they_are_called() {
    let share = |rule| {
        let mut world = World::new(rule, 20e6);
        world.run(1);
        (world.raw_share(), world.steering.raw_share(), world.steering.depends_on_content())
    };
    assert_eq!(share(Rule::All(FAST)), (0.0, 0.0, true));
    assert_eq!(share(Rule::Raw), (1.0, 1.0, false));
}

/// A block that the fast codec leaves so long.
fn left(original_len: usize, used_len: usize) -> Measured<Codec> {
    Measured {
        choice: Choice::alone(FAST),
        original_len,
        history_len: 0,
        used_len,
        took_ns: 2_500,
        away_ns: 0,
        is_first: false,
    }
}

#[test]
fn random_blocks_do_not_keep_uneven_ones_from_being_tried() {
    let mut steering = Steering::new(Rule::Mix(FAST), HOLDS);
    let poor = left(1000, 971);
    for _ in 0..4 {
        assert!(steering.admits(true));
        steering.compressed(&poor, true);
    }
    assert!(!steering.admits(true));
    assert!(steering.admits(false));
    // Two per cent less are not poor.
    (0..9).for_each(|_| steering.compressed(&Measured { used_len: 970, ..poor }, false));
    assert!(steering.admits(false));
}

#[test]
fn a_try_that_did_not_take_place_is_repeated() {
    let poor = left(1000, 1000);
    for did_not in [Steering::went_raw, Steering::reopened] {
        let mut steering = Steering::new(Rule::Mix(FAST), HOLDS);
        (0..4).for_each(|_| steering.compressed(&poor, true));
        (0..4).for_each(|_| assert!(!steering.admits(true)));
        assert!(steering.admits(true), "this is the try");
        assert!(!steering.admits(true), "one at a time");
        did_not(&mut steering, true);
        assert!(steering.admits(true));
    }
}

#[test]
fn short_blocks_do_not_keep_others_from_being_tried() {
    let poor = left(999, 999);
    let mut steering = Steering::new(Rule::Mix(FAST), HOLDS);
    (0..100).for_each(|_| steering.compressed(&poor, false));
    assert!(steering.admits(false));
}

/// Who waits for the link takes it to be slower than measured, and who is never refused to be
/// faster.
#[test]
fn what_is_idle_changes_the_planned_shares() {
    const fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }
    let raw_share = |happens: fn(&mut Steering<Codec>)| {
        let mut steering = Steering::new(hull(), HOLDS);
        steering.expect(at(0), 300e6);
        happens(&mut steering);
        steering.codec(at(80), asked(false));
        steering.raw_share()
    };
    let busy = raw_share(|_| {});
    let slower = raw_share(|steering| {
        steering.waits(at(50));
        steering.works(at(70), false);
    });
    let faster = raw_share(|steering| {
        [0, 20, 40].iter().for_each(|&ms| steering.works(at(ms), true));
    });
    assert!(slower + 0.05 < busy && busy + 0.05 < faster, "{slower} {busy} {faster}");
}

/// A poor result for a random block says nothing of the codec on other blocks.
#[test]
fn random_blocks_do_not_spoil_the_estimates() {
    let strong_of_twenty = |looks_random| {
        let mut world = World::new(hull(), 5e6);
        world.run(1);
        let choice = Choice::alone(STRONG);
        let poor = Measured {
            choice,
            original_len: 1000,
            history_len: 0,
            used_len: 1000,
            took_ns: 28_000,
            away_ns: 0,
            is_first: false,
        };
        (0..20).for_each(|_| world.steering.compressed(&poor, looks_random));
        let choices = (0..20).map(|_| world.steering.codec(world.now, asked(true)));
        choices.filter(|&choice| choice == Some(Choice::alone(STRONG))).count()
    };
    assert!(strong_of_twenty(true) > 15);
    assert!(strong_of_twenty(false) < 5);
}

#[test]
fn blocks_are_kept_while_later_ones_refer_to_them() {
    let rule = |may_refer| Rule::Hull(vec![prior(GOOD, 1.0, may_refer)]);
    let keeps = |may_refer, rate| {
        let mut steering = Steering::new(rule(may_refer), HOLDS);
        steering.expect(Instant::ZERO, rate);
        steering.keeps_history()
    };
    assert!(keeps(true, 1e6));
    assert!(!keeps(false, 1e6));
    assert!(!keeps(true, 5e9), "the link is faster than any codec");
    let mut steering = Steering::new(rule(true), HOLDS);
    steering.expect(Instant::ZERO, 1e6);
    let choice = steering.codec(Instant::ZERO, asked(true));
    assert_eq!(choice, Some(Choice { codec: GOOD, refers: true }));
}

#[test]
fn small_writes_over_an_idle_link_go_at_once() {
    let mut steering = Steering::new(hull(), HOLDS);
    let (now, full) =
        (Instant::ZERO, Offer { len: BLOCK_LEN, history_len: 0, is_full: true, more: false });
    let small = Offer { len: 60, history_len: 0, is_full: false, more: false };
    steering.expect(now, 1e6);
    assert!(!steering.lets_raw_go(now, small), "128 kB are before it");
    let idle = now + 1_000_000_000;
    assert!(steering.lets_raw_go(idle, small));
    assert!(!steering.lets_raw_go(idle, full), "it is compressed in less time than it takes");
}

#[test]
fn without_codecs_nothing_is_compressed() {
    let mut steering = Steering::new(Rule::<Codec>::Hull(Vec::new()), HOLDS);
    steering.expect(Instant::ZERO, 1e6);
    assert_eq!(steering.codec(Instant::ZERO, asked(false)), None);
    (0..8).for_each(|_| assert!(steering.admits(false)));
    assert_eq!(steering.raw_share(), 1.0);
}

#[test]
fn what_the_back_off_refuses_is_sent_uncompressed_beside_the_planned_share() {
    let mut steering = Steering::new(hull(), HOLDS);
    steering.expect(Instant::ZERO, 1e6);
    assert_eq!(steering.raw_share(), 0.0);
    let poor = Measured {
        choice: Choice::alone(FAST),
        original_len: 1_000,
        history_len: 0,
        used_len: 1_000,
        took_ns: 2_500,
        away_ns: 0,
        is_first: false,
    };
    for _ in 0..4 {
        assert!(steering.admits(true));
        steering.compressed(&poor, true);
    }
    assert!(!steering.admits(true));
    assert_eq!(steering.raw_share(), 1.0 / 16.0, "one block counts for a sixteenth");
}

/// Who saves bytes fills no link, and so never shows that it carries more than he believes.
#[test]
fn who_saves_bytes_believes_what_the_window_allows_behind_what_was_presumed() {
    let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
    let report = LinkReport { is_least: true, window_rate: 2.3e8, ..LinkReport::default() };
    let rate_if = |saves_bytes: bool| {
        let mut steering = Steering::new(hull(), 1 << 20);
        if saves_bytes {
            steering.save_bytes();
        }
        steering.presume(at(0), 12.5e6, 64 << 10);
        for ms in 1..100 {
            steering.link.wrote(at(ms), 3_000);
            steering.reported(at(ms), &report);
        }
        steering.link.rate()
    };
    assert_eq!(rate_if(true), Some(2.3e8));
    assert_eq!(rate_if(false), Some(12.5e6));
}
