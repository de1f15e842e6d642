use super::*;
use dwell_base::time::SECOND_NS;

/// A peer of the model: how it sends, and what waits for it.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// It is offered so much, in bits per second.
    offered_bps: f64,
    /// Something else than the link limits it to this.
    limit_bps: f64,
    own: Option<Rate>,
    waiting_bytes: f64,
    sent_bytes: f64,
    free_at: Instant,
    share: Option<Rate>,
}

impl Source {
    fn of(offered_bps: f64) -> Self {
        Self {
            offered_bps,
            limit_bps: f64::INFINITY,
            own: None,
            waiting_bytes: 0.0,
            sent_bytes: 0.0,
            free_at: Instant::ZERO,
            share: None,
        }
    }

    /// Sends what its share and its limit allow in `ns` until `now`.
    fn run(&mut self, now: Instant, ns: f64) {
        self.waiting_bytes += self.offered_bps * ns / 8e9;
        let share_bps = self.share.expect("it was divided before").as_bps() as f64;
        let own_bps = self.own.map_or(f64::INFINITY, |rate| rate.as_bps() as f64);
        let paced_bps = share_bps.min(own_bps);
        let bytes = (paced_bps.min(self.limit_bps) * ns / 8e9).min(self.waiting_bytes);
        self.waiting_bytes -= bytes;
        self.sent_bytes += bytes;
        // The share idles for the part of the time for which less was sent than it allows.
        let idled_ns = ns - bytes * 8e9 / paced_bps;
        self.free_at = now.before_ns(idled_ns as u64);
    }
}

const STEP_NS: u64 = 500 * MICRO_NS;

/// Runs sources over a link for a while, and returns what each sent meanwhile, in bits per second, and for how long the
/// link's queue was at most.
fn run(uplink: &mut Uplink, at: &mut Instant, sources: &mut [Source], ns: u64) -> (Vec<f64>, f64) {
    let before: Vec<f64> = sources.iter().map(|source| source.sent_bytes).collect();
    let rate_bps = uplink.rate.unwrap().as_bps() as f64;
    sources.iter_mut().for_each(|source| source.share = source.share.or(uplink.rate));
    let (mut queue_bytes, mut queue_max_bytes) = (0.0_f64, 0.0_f64);
    for _ in 0..ns / STEP_NS {
        *at = *at + STEP_NS;
        let sum = |sources: &[Source]| sources.iter().map(|source| source.sent_bytes).sum::<f64>();
        let sent_bytes = sum(sources);
        sources.iter_mut().for_each(|source| source.run(*at, STEP_NS as f64));
        let more_bytes = sum(sources) - sent_bytes - rate_bps * STEP_NS as f64 / 8e9;
        queue_bytes = (queue_bytes + more_bytes).max(0.0);
        queue_max_bytes = queue_max_bytes.max(queue_bytes);
        let waits = |source: &Source| source.waiting_bytes > 1.0;
        if (0..sources.len()).any(|index| uplink.is_due(*at, index, || waits(&sources[index]))) {
            let want = |source: &Source| Want {
                sent_bytes: source.sent_bytes as u64,
                is_waiting: waits(source),
                free_at: source.free_at,
                own: source.own,
            };
            uplink.divide(*at, sources.iter().map(want));
            for (index, source) in sources.iter_mut().enumerate() {
                source.share = uplink.share(index);
            }
        }
    }
    let sent = sources.iter().zip(before);
    let sent = sent.map(|(source, before)| (source.sent_bytes - before) * 8e9 / ns as f64);
    (sent.collect(), queue_max_bytes * 8e9 / rate_bps)
}

fn of_rate(mbps: u64) -> Uplink {
    let mut uplink = Uplink::default();
    uplink.set_rate(Some(Rate::from_mbps(mbps)));
    uplink
}

fn is_about(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.03
}

#[test]
fn without_a_rate_nothing_is_divided() {
    let uplink = Uplink::default();
    assert!(!uplink.is_due(Instant::ZERO, 0, || true));
    assert_eq!(uplink.share(0), None);
}

#[test]
fn a_peer_that_was_not_there_yet_begins_with_all_of_it() {
    assert_eq!(of_rate(20).share(7), Some(Rate::from_mbps(20)));
}

#[test]
fn those_that_take_all_get_the_same_and_the_others_what_they_want() {
    let (mut uplink, mut at) = (of_rate(20), Instant::ZERO);
    let mut sources = [Source::of(1e9), Source::of(1e6), Source::of(1e9), Source::of(0.0)];
    run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    let (sent, queue_ns) = run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    assert!(is_about(sent[1], 1e6), "{sent:?}");
    assert!(is_about(sent[0], 9.45e6) && is_about(sent[2], 9.45e6), "{sent:?}");
    assert!(is_about(sent.iter().sum(), 19.9e6), "{sent:?}");
    assert!(queue_ns < 3e6, "{queue_ns}");
}

#[test]
fn what_one_can_t_use_the_others_get() {
    let (mut uplink, mut at) = (of_rate(20), Instant::ZERO);
    let limited = Source { limit_bps: 2e6, ..Source::of(1e9) };
    let slow = Source { own: Some(Rate::from_mbps(3)), ..Source::of(1e9) };
    let mut sources = [limited, slow, Source::of(1e9)];
    run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    let (sent, _) = run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    assert!(is_about(sent[0], 2e6) && is_about(sent[1], 3e6), "{sent:?}");
    // What limits the first is seen by what it sends, so that some room is kept for it.
    assert!((14.0e6..15.1e6).contains(&sent[2]), "{sent:?}");
    // It is seen as well when it can take more.
    sources[0].limit_bps = f64::INFINITY;
    run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    let (sent, _) = run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    assert!(is_about(sent[0], 8.5e6) && is_about(sent[2], 8.5e6), "{sent:?}");
}

#[test]
fn who_is_alone_gets_all_of_it_soon() {
    let (mut uplink, mut at) = (of_rate(20), Instant::ZERO);
    let mut sources = [Source::of(1e9); 8];
    run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    for source in &mut sources[1..] {
        (source.offered_bps, source.waiting_bytes) = (0.0, 0.0);
    }
    run(&mut uplink, &mut at, &mut sources, 200 * MILLI_NS);
    let (sent, _) = run(&mut uplink, &mut at, &mut sources, 100 * MILLI_NS);
    assert!(sent[0] > 19e6, "{sent:?}");
}

#[test]
fn bursts_in_turns_leave_the_link_full() {
    let (mut uplink, mut at) = (of_rate(20), Instant::ZERO);
    let mut sources = [Source::of(0.0); 8];
    let (mut sent_bytes, mut queue_ns_max) = (0.0_f64, 0.0_f64);
    for turn in 0..200 {
        // 20 kB each 8 ms: all that the link can carry, to one after another.
        sources[turn % 8].waiting_bytes += 20_000.0;
        let (sent, queue_ns) = run(&mut uplink, &mut at, &mut sources, 8 * MILLI_NS);
        queue_ns_max = queue_ns_max.max(queue_ns);
        if turn >= 100 {
            sent_bytes += sent.iter().sum::<f64>() * 8e-3 / 8.0;
        }
    }
    assert!(sent_bytes > 0.95 * 100.0 * 20_000.0, "{sent_bytes}");
    assert!(queue_ns_max < 20e6, "{queue_ns_max}");
}

#[test]
fn what_was_sent_beyond_the_rate_is_taken_off_again() {
    let (mut uplink, mut at) = (of_rate(20), Instant::ZERO);
    let mut sources = [Source::of(1e9); 8];
    // All wake up at once, each with the whole link.
    let (_, queue_ns) = run(&mut uplink, &mut at, &mut sources, 20 * MILLI_NS);
    assert!(queue_ns < 10e6, "{queue_ns}");
    run(&mut uplink, &mut at, &mut sources, SECOND_NS);
    assert!(uplink.owed_bytes * 8e9 / 20e6 < 1e6, "{}", uplink.owed_bytes);
}

#[test]
fn what_is_owed_has_a_bound_and_every_share_is_within_the_link() {
    let mut uplink = of_rate(1);
    let mut at = Instant::ZERO;
    // Two hundred peers send ten times what the link takes, whatever their shares are.
    for turn in 0..2_000 {
        at = at + EVERY_NS;
        let sent_bytes = turn * 12;
        let want = Want { sent_bytes, is_waiting: true, free_at: at + MILLI_NS, own: None };
        uplink.divide(at, std::iter::repeat_n(want, 200));
    }
    let owed_ns = uplink.owed_bytes * 8e9 / 1e6;
    assert!((0.9..1.01).contains(&(owed_ns / OWED_NS_MAX)), "{owed_ns}");
    let sum: u64 = (0..200).map(|peer| uplink.share(peer).unwrap().as_bps()).sum();
    assert!(sum <= 1_000_000, "{sum}");
    // It is paid soon after they have ended.
    for _ in 0..1_000 {
        at = at + EVERY_NS;
        let want = Want { sent_bytes: 24_000, is_waiting: false, free_at: at, own: None };
        uplink.divide(at, std::iter::repeat_n(want, 200));
    }
    assert_eq!(uplink.owed_bytes, 0.0);
}

#[test]
fn a_share_that_comes_and_goes_lasts_on_the_average() {
    let (mut uplink, mut at) = (of_rate(20), Instant::ZERO);
    let mut sources = [Source::of(1e9), Source::of(0.0)];
    let mut lasting = Vec::new();
    for turn in 0..80 {
        // The second sends in each other tenth of a second.
        sources[1].offered_bps = if turn % 2 == 0 { 1e9 } else { 0.0 };
        if turn % 2 == 1 {
            sources[1].waiting_bytes = 0.0;
        }
        run(&mut uplink, &mut at, &mut sources, 100 * MILLI_NS);
        lasting.push(uplink.lasting_share(0).unwrap().as_bps() as f64);
    }
    let late = &lasting[40..];
    let (least, most) = late.iter().fold((f64::MAX, 0.0_f64), |(a, b), &it| (a.min(it), b.max(it)));
    assert!(most < 1.25 * least && least > 10e6 && most < 20e6, "{least} to {most}");
}

#[test]
fn shares_add_up_to_the_link_for_any_wants() {
    let mut wants = vec![0.5e6, 1e6, 4e6, f64::INFINITY, f64::INFINITY];
    for more in 0..3 {
        let level_bps = level(20e6, &wants, more);
        let sum: f64 = wants.iter().map(|&want| want.min(level_bps)).sum();
        assert!((sum + more as f64 * level_bps - 20e6).abs() < 1.0);
    }
    wants.truncate(3);
    assert_eq!(level(20e6, &wants, 0), f64::INFINITY);
    assert_eq!(level(20e6, &[], 1), 20e6);
}
