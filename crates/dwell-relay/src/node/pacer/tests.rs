use super::*;

const FRAME: u64 = 1_500;

#[test]
fn a_fixed_rate_is_kept_and_late_wake_ups_are_made_up_for() {
    let rate = Rate::from_mbps(10); // a frame takes 1.2 ms
    let mut pacer = Pacer::new(Pacing::Fixed(rate));
    let (mut now, mut frames) = (Instant::from_ns(SECOND_NS), 0);
    let end = now + SECOND_NS;
    while now < end {
        while pacer.ready(now) {
            pacer.sent(now, FRAME, SECOND_NS);
            frames += 1;
        }
        now = pacer.ready_at().max(now + 1) + 300 * MICRO_NS; // always late
    }
    let bytes = rate.bytes_in_ns(SECOND_NS);
    let expected = (bytes - bytes / LEFT_OUT_PART) / FRAME;
    // At the beginning it is as if a wake-up had come late: two more, and one ahead.
    assert!((expected..=expected + 3).contains(&frames), "{frames} of {expected}");
}

#[test]
fn what_a_link_idles_counts_while_the_sender_does_not_sleep_but_for_what_is_made_up_for() {
    // But for the part that is left out 12 Mbit/s: a frame takes 1 ms.
    let mut pacer = Pacer::new(Pacing::Fixed(Rate::clamped_bps(12_030_075)));
    let at = |us: u64| Instant::from_ns(SECOND_NS + us * MICRO_NS);
    pacer.sent(at(0), FRAME, 0);
    pacer.sent(at(5_000), FRAME, 0);
    assert_eq!(pacer.busy_since(Some(at(7_000))), 0, "it slept");
    // Free since 6 ms, awake since 7 ms, nothing waited.
    pacer.sent(at(7_500), FRAME, 0);
    assert_eq!(pacer.busy_since(Some(at(7_000))), 500 * MICRO_NS);
    // Free since 8.5 ms; 2 ms of those for which the frame waited are made up for.
    pacer.sent(at(11_000), FRAME, 4 * MILLI_NS);
    assert_eq!(pacer.busy_since(Some(at(7_000))), 500 * MICRO_NS);
    // Free since 10 ms: it idles for longer than it was busy, and so has little to do.
    pacer.sent(at(100_000), FRAME, 0);
    assert_eq!(pacer.busy_since(Some(at(7_000))), 2 * MILLI_NS);
    pacer.sent(at(102_000), FRAME, 0);
    assert_eq!(pacer.busy_since(None), 0, "it sleeps again");
    pacer.sent(at(110_000), FRAME, 0);
    assert_eq!(pacer.busy_since(Some(at(7_000))), 0, "it slept");
}

#[test]
fn frames_of_a_fast_link_leave_in_bursts_and_it_is_never_idle() {
    let rate = Rate::from_mbps(500); // a frame takes 24 µs
    let mut pacer = Pacer::new(Pacing::Fixed(rate));
    let begin = Instant::from_ns(SECOND_NS);
    let (mut now, mut frames, mut wake_ups) = (begin, 0, 0);
    while now < begin + SECOND_NS {
        wake_ups += 1;
        assert!(wake_ups == 1 || pacer.free_at > now, "idle at {now:?}");
        while pacer.ready(now) {
            pacer.sent(now, FRAME, 0);
            frames += 1;
        }
        // In the middle of a burst none may leave.
        assert!(pacer.ready_at() >= now + 200 * MICRO_NS);
        now = pacer.ready_at() + 200 * MICRO_NS;
    }
    assert!(wake_ups * 18 <= frames, "{wake_ups} wake-ups for {frames} frames");
    let bytes = rate.bytes_in_ns(SECOND_NS);
    let expected = (bytes - bytes / LEFT_OUT_PART) / FRAME;
    assert!((expected..=expected + 25).contains(&frames), "{frames} of {expected}");
}

#[test]
fn what_a_late_wake_up_loses_is_what_it_can_t_make_up_for() {
    let now = Instant::from_ns(SECOND_NS);
    let frame_ns = Rate::from_mbps(10).transmission_ns(FRAME);
    let lost = |late_ns, waited_ns| {
        let mut pacer = Pacer::new(Pacing::Fixed(Rate::from_mbps(10)));
        pacer.sent(now, FRAME, 0);
        pacer.sent(pacer.free_at + late_ns, FRAME, waited_ns)
    };
    assert!(frame_ns < 2 * MILLI_NS);
    assert_eq!(lost(MILLI_NS, SECOND_NS), 0, "it is made up for");
    assert_eq!(lost(5 * MILLI_NS, SECOND_NS), 3 * MILLI_NS);
    assert_eq!(lost(5 * MILLI_NS, 4 * MILLI_NS), 2 * MILLI_NS, "it did not wait for longer");
    assert_eq!(lost(SECOND_NS, 0), 0, "nothing waited");
}

#[test]
fn idle_time_is_not_saved_up() {
    let mut pacer = Pacer::new(Pacing::Fixed(Rate::from_mbps(10)));
    pacer.sent(Instant::from_ns(SECOND_NS), FRAME, 0);
    let now = Instant::from_ns(10 * SECOND_NS);
    let burst = |waited_ns| {
        let mut pacer = pacer.clone();
        let sent = (0..100).take_while(|_| {
            let ready = pacer.ready(now);
            pacer.sent(now, FRAME, waited_ns);
            ready
        });
        sent.count()
    };
    // A frame takes 1.2 ms: the second has to wait, but not if they should have gone before.
    assert_eq!((burst(0), burst(SECOND_NS)), (1, 3));
}

/// The tightest deadline bounds what a late wake-up lets go at once.
#[test]
fn the_tightest_deadline_bounds_what_is_made_up_for() {
    let rate = Rate::from_mbps(1000); // a frame takes 12 µs
    let now = Instant::from_ns(SECOND_NS);
    let burst = |deadline_min_ns| {
        let mut pacer = Pacer::new(Pacing::Fixed(rate));
        pacer.set_exact(deadline_min_ns);
        let sent = (0..1_000).take_while(|_| {
            let ready = pacer.ready(now);
            pacer.sent(now, FRAME, SECOND_NS);
            ready
        });
        sent.count() as u64 * rate.transmission_ns(FRAME)
    };
    let (frame_ns, most) = (rate.transmission_ns(FRAME), CATCH_UP_EXACT_NS_MAX + AHEAD_EXACT_NS);
    assert!(burst(None) > CATCH_UP_NS);
    assert!((most..=most + frame_ns).contains(&burst(Some(u64::MAX))));
    assert!(burst(Some(MILLI_NS)) <= 250 * MICRO_NS + AHEAD_EXACT_NS + frame_ns);
    assert!(burst(Some(0)) <= CATCH_UP_EXACT_NS_MIN + AHEAD_EXACT_NS + frame_ns);
}

/// A kernel that takes a buffer of 6 kB and drains it at `bps`.
fn drive(pacer: &mut Pacer, bps: u64, seconds: u64) {
    let (mut now, mut room_at) = (Instant::from_ns(SECOND_NS), Instant::from_ns(SECOND_NS));
    let end = now + seconds * SECOND_NS;
    let rate = Rate::clamped_bps(bps);
    while now < end {
        if rate.bytes_in_ns(room_at.since_ns(now)) > 6_000 {
            pacer.blocked(now);
            now = now + rate.transmission_ns(3_000);
            pacer.writable();
        } else {
            pacer.sent(now, FRAME, SECOND_NS);
            room_at = room_at.max(now) + rate.transmission_ns(FRAME);
        }
    }
}

#[test]
fn back_pressure_tells_the_rate() {
    for bps in [1_000_000, 10_000_000, 500_000_000] {
        let mut pacer = Pacer::new(Pacing::Auto);
        assert_eq!(pacer.rate(), None);
        drive(&mut pacer, bps, 3);
        let measured = pacer.rate().expect("a rate was measured").as_bps();
        assert!(measured.abs_diff(bps) < bps / 20, "{measured} of {bps}");
    }
}

#[test]
fn late_wake_ups_neither_starve_the_link_nor_spoil_the_rate() {
    let rate = Rate::from_mbps(200);
    let late_ns = 3 * MILLI_NS;
    let mut pacer = Pacer::new(Pacing::Auto);
    let (mut now, mut drained_at) = (Instant::from_ns(SECOND_NS), Instant::from_ns(SECOND_NS));
    let (mut sent, end) = (0, now + 10 * SECOND_NS);
    while now < end {
        let buffer = pacer.buffer_bytes().expect("the rate is found by back-pressure");
        while rate.bytes_in_ns(drained_at.since_ns(now)) < buffer {
            pacer.sent(now, FRAME, SECOND_NS);
            sent += FRAME;
            drained_at = drained_at.max(now) + rate.transmission_ns(FRAME);
        }
        pacer.blocked(now);
        let half = rate.transmission_ns(buffer / 2);
        now = drained_at.before_ns(half).max(now) + late_ns;
        if now >= drained_at {
            pacer.ran_dry(now);
        }
        pacer.writable();
    }
    let used = sent * 8 / 10 * 100 / rate.as_bps();
    assert!(used >= 90, "{used} % of the link's time was used");
    let measured = pacer.rate().expect("a rate was measured").as_bps();
    assert!(measured.abs_diff(rate.as_bps()) < rate.as_bps() / 10, "{measured}");
}

#[test]
fn a_link_that_refuses_nothing_keeps_its_rate_until_it_takes_more() {
    let mut pacer = Pacer::new(Pacing::Auto);
    drive(&mut pacer, 10_000_000, 1);
    let measured = pacer.rate();
    assert!(measured.is_some());
    let since = Instant::from_ns(10 * SECOND_NS);
    pacer.idle(since);
    assert_eq!(pacer.burst_bytes(), BURST_BYTES_MAX);
    let send = |pacer: &mut Pacer, from: Instant, bps: u64| {
        for step in 0..1_000 {
            pacer.sent(from + step * MILLI_NS, bps / 8 / 1_000, 0);
        }
        pacer.rate().expect("a rate").as_bps()
    };
    assert_eq!(Some(send(&mut pacer, since, 8_000_000)), measured.map(Rate::as_bps));
    let more = send(&mut pacer, since + 2 * SECOND_NS, 100_000_000);
    assert!(more.abs_diff(100_000_000) < 10_000_000, "{more}");
}

/// Wake-ups that come late before any rate is known have the kernel hold ever more. A TCP that keeps five milliseconds of queue
/// is refused nothing then, and the link would pass for one that is never busy.
#[test]
fn a_link_that_was_late_at_first_is_measured_without_a_long_queue() {
    let rate = Rate::from_mbps(200);
    let mut pacer = Pacer::new(Pacing::Auto);
    let mut now = Instant::from_ns(SECOND_NS);
    for _ in 0..10 {
        pacer.blocked(now);
        now = now + 5 * MILLI_NS;
        pacer.ran_dry(now);
        pacer.writable();
    }
    assert_eq!(pacer.buffer_bytes(), Some(BUFFER_BYTES_MAX));
    // The link is always busy, and more is not sent than it takes but for five milliseconds.
    let queue_ns = 5 * MILLI_NS;
    let (end, mut drained_at) = (now + 2 * SECOND_NS, now);
    while now < end {
        let buffer = pacer.buffer_bytes().expect("the rate is found by back-pressure");
        while !pacer.is_blocked() && drained_at.since_ns(now) < queue_ns {
            pacer.sent(now, FRAME, 0);
            drained_at = drained_at.max(now) + rate.transmission_ns(FRAME);
            if rate.bytes_in_ns(drained_at.since_ns(now)) >= buffer {
                pacer.blocked(now);
            }
        }
        now = now + MILLI_NS;
        if pacer.is_blocked() && rate.bytes_in_ns(drained_at.since_ns(now)) < buffer / 2 {
            if now >= drained_at {
                pacer.ran_dry(now);
            }
            pacer.writable();
        }
    }
    let measured = pacer.rate().expect("a rate was measured").as_bps();
    assert!(measured.abs_diff(rate.as_bps()) < rate.as_bps() / 10, "{measured}");
}
