use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

#[test]
fn the_rate_is_what_fits_between_two_refusals() {
    let mut link = LinkRate::new(200_000);
    link.wrote(at(0), 200_000);
    link.blocked(at(0));
    assert_eq!(link.rate(), None);
    for tick in 1..=20 {
        link.wrote(at(10 * tick), 20_000);
        link.blocked(at(10 * tick));
    }
    let rate = link.measured_rate().unwrap();
    assert!((rate - 2e6).abs() < 1.0, "{rate}");
    // 200 kB wait, for 100 ms.
    assert!((link.drain_ns(at(200)) - 1e8).abs() < 2e7, "{}", link.drain_ns(at(200)));
    assert_eq!(link.drain_ns(at(400)), 0.0);
}

#[test]
fn what_is_expected_holds_until_something_is_measured() {
    let mut link = LinkRate::new(200_000);
    link.expect(at(0), 1e6);
    assert_eq!((link.rate(), link.measured_rate()), (Some(1e6), None));
    assert!((link.drain_ns(at(0)) - 2e8).abs() < 1.0);
    link.blocked(at(0));
    for tick in 1..=20 {
        link.wrote(at(10 * tick), 20_000);
        link.blocked(at(10 * tick));
    }
    assert!((link.measured_rate().unwrap() - 2e6).abs() < 1.0);
    // What is known is not replaced.
    link.expect(at(210), 1e3);
    assert!((link.measured_rate().unwrap() - 2e6).abs() < 1.0);
}

#[test]
fn a_link_that_never_refuses_seems_faster_and_faster() {
    let mut link = LinkRate::new(131_072);
    for tick in 0..10 {
        link.wrote(at(10 * tick), 50_000);
    }
    let rate = link.rate().unwrap();
    assert!(rate > 5e6 && link.measured_rate().is_none(), "{rate}");
}

/// TCP's window grows, or a shaper's queue takes a burst.
#[test]
fn what_the_transport_takes_at_once_was_not_carried_at_once() {
    let mut link = LinkRate::new(131_072);
    link.wrote(at(0), 20_000);
    link.blocked(at(0));
    link.wrote(at(0) + 100_000, 400_000);
    link.blocked(at(0) + 100_000);
    for tick in 1..=20 {
        link.wrote(at(10 * tick), 20_000);
        link.blocked(at(10 * tick));
        assert!(link.rate().is_none_or(|rate| rate < 1e8), "{link:?}");
    }
}

/// A thread that shares its processor finds the transport empty each time that it runs.
#[test]
fn a_rate_that_nothing_confirms_is_given_up() {
    let mut link = LinkRate::new(100_000);
    link.wrote(at(0), 100_000);
    link.blocked(at(0));
    for tick in 1..=5 {
        link.wrote(at(2 * tick), 50_000);
        link.blocked(at(2 * tick));
    }
    assert!((link.measured_rate().unwrap() - 25e6).abs() < 1e6, "{link:?}");
    for tick in 1..=100 {
        link.wrote(at(100 + 10 * tick), 100_000);
        link.blocked(at(100 + 10 * tick));
    }
    let rate = link.rate().unwrap();
    assert!(rate < 16e6 && link.measured_rate().is_none(), "{link:?}");
}

/// TCP over a shaper: its window grows in bursts at first, then it takes two large segments
/// each time that two have left, and refuses in between.
#[test]
fn bursts_at_the_beginning_are_soon_forgotten() {
    let us = |us: u64| Instant::from_ns(us * 1_000);
    let mut link = LinkRate::new(131_072);
    for (at_us, len) in [(500, 85_432), (1_300, 156_384), (3_800, 144_800), (6_000, 65_160)] {
        link.wrote(us(at_us), len);
        for refused in 1..4 {
            link.blocked(us(at_us + 200 * refused));
        }
    }
    for tick in 2..60 {
        link.wrote(us(5_200 * tick), 130_320);
        for refused in 0..4 {
            link.blocked(us(5_200 * tick + 300 * refused));
        }
    }
    let rate = link.rate().unwrap_or_default();
    assert!((24e6..40e6).contains(&rate), "{link:?}");
}

/// TCP wakes a writer when half of what may wait has drained, which takes a while here.
#[test]
fn a_link_that_becomes_slow_is_measured_although_it_seldom_asks() {
    let mut link = LinkRate::new(131_072);
    link.wrote(at(0), 160_000);
    link.blocked(at(0));
    for tick in 1..=50 {
        link.wrote(at(2 * tick), 50_000);
        link.blocked(at(2 * tick));
    }
    assert!((link.measured_rate().unwrap() - 25e6).abs() < 1e6, "{link:?}");
    let measurements = link.measurements();
    for tick in 1..=40 {
        link.wrote(at(100 + 50 * tick), 64_000);
        link.blocked(at(100 + 50 * tick));
    }
    assert!((link.measured_rate().unwrap() - 1.28e6).abs() < 1e5, "{link:?}");
    assert!(link.measurements() > measurements + 30, "{link:?}");
}

/// The same if nothing was known before.
#[test]
fn a_link_that_is_slow_from_the_beginning_is_measured() {
    let mut link = LinkRate::new(131_072);
    link.wrote(at(0), 160_000);
    link.blocked(at(0));
    for tick in 1..=10 {
        link.wrote(at(50 * tick), 64_000);
        link.blocked(at(50 * tick));
    }
    assert!((link.measured_rate().unwrap() - 1.28e6).abs() < 1e3, "{link:?}");
}

/// A writer whose every piece is taken at once, except during pauses of the reader at the other
/// end.
#[test]
fn seldom_refusals_do_not_hide_how_fast_a_link_is() {
    let us = |us: u64| Instant::from_ns(us * 1_000);
    let mut link = LinkRate::new(131_072);
    for piece in 0..20_000 {
        let now = 100 * piece;
        link.offered(us(now));
        link.wrote(us(now + 90), 64_000);
        match piece % 30 {
            28 => link.blocked(us(now + 92)),
            29 => link.blocked(us(now + 95)),
            _ => link.starved(us(now + 90)),
        }
    }
    // 640 MB/s are seen; it may be more.
    assert!((6e8..2e9).contains(&link.rate().unwrap()), "{link:?}");
    assert!((5e8..7e8).contains(&link.shown_rate()), "{link:?}");
}

/// An application that writes little at a time does not show the speed of the link.
#[test]
fn a_trickle_is_no_slow_link() {
    let mut link = LinkRate::new(131_072);
    for piece in 0..10_000 {
        let now = Instant::from_ns(50_000 * piece);
        link.offered(now);
        link.wrote(now + 1_000, 1_000);
        link.starved(now + 1_000);
    }
    assert_eq!(link.rate(), None);
}

#[test]
fn what_a_deeper_transport_takes_more_is_not_carried() {
    let mut link = LinkRate::new(100_000);
    for (tick, len) in [(0, 100_000), (10, 20_000), (20, 20_000), (30, 20_000)] {
        link.wrote(at(tick), len);
        link.blocked(at(tick));
    }
    link.holds(400_000);
    link.wrote(at(40), 320_000);
    link.blocked(at(40));
    link.wrote(at(50), 20_000);
    link.blocked(at(50));
    assert!((link.measured_rate().unwrap() - 2e6).abs() < 1e3, "{link:?}");
    assert!((link.shown_rate() - 2e6).abs() < 1e6, "{link:?}");
    link.holds(100_000);
    // It gives 300 kB before it takes anything.
    link.wrote(at(210), 20_000);
    link.blocked(at(210));
    let rate = link.measured_rate().unwrap();
    assert!((2e6..2.3e6).contains(&rate), "{link:?}");
}

/// A link that stops for long and continues slowly is not the fast link that it was.
#[test]
fn a_long_window_counts_for_more() {
    let mut link = LinkRate::new(4 << 20);
    for tick in 0..100 {
        link.wrote(at(4 * tick), 2_000_000);
        link.blocked(at(4 * tick));
    }
    assert!(link.measured_rate().unwrap() > 4e8, "{link:?}");
    link.wrote(at(2400), 2_000_000);
    link.blocked(at(2400));
    assert!(link.rate().unwrap() < 2e7, "{link:?}");
}

#[test]
fn pauses_of_the_application_are_not_the_links() {
    let mut link = LinkRate::new(131_072);
    link.wrote(at(0), 100_000);
    for tick in [0, 10, 20, 30] {
        link.wrote(at(tick), 20_000);
        link.blocked(at(tick));
    }
    link.starved(at(30));
    link.offered(at(5000));
    link.wrote(at(5000), 20_000);
    link.blocked(at(5000));
    assert!((link.rate().unwrap() - 2e6).abs() < 1.0);
}

#[test]
fn a_window_is_long_enough_by_time_and_bytes() {
    let kept_full = Mark { at: at(0), written: 0, full: true, broken: false, pieces: 0 };
    let suffices = |bytes, ns| kept_full.is_long_enough(bytes, ns, true);
    assert!(suffices(WINDOW_BYTES, WINDOW_NS));
    assert!(!suffices(WINDOW_BYTES - 1, WINDOW_NS) && !suffices(WINDOW_BYTES, WINDOW_NS - 1));
    assert!(suffices(WINDOW_BYTES_ENOUGH, 1), "whatever the time");
    assert!(!suffices(WINDOW_BYTES_ENOUGH - 1, WINDOW_NS - 1));
    assert!(!suffices(WINDOW_BYTES_ENOUGH, 0), "no time shows no rate");
}

#[test]
fn a_window_with_gaps_must_be_longer() {
    let piecewise = |pieces| Mark { at: at(0), written: 0, full: true, broken: true, pieces };
    let few = |bytes, ns, is_known| {
        piecewise(BROKEN_WINDOW_PIECES - 1).is_long_enough(bytes, ns, is_known)
    };
    let many = |bytes, ns| piecewise(BROKEN_WINDOW_PIECES).is_long_enough(bytes, ns, true);
    let (bytes, ns, ns_enough) = (WINDOW_BYTES, BROKEN_WINDOW_NS, BROKEN_WINDOW_NS_ENOUGH);
    assert!(many(bytes, ns) && !many(bytes - 1, ns) && !many(bytes, ns - 1));
    // With few pieces it takes longer, but for the first guess.
    assert!(!few(bytes, ns, true) && few(bytes, ns, false));
    assert!(few(bytes, ns_enough, true) && !few(bytes, ns_enough - 1, true));
    assert!(!few(bytes - 1, ns_enough, true));
    let bytes_enough = BROKEN_WINDOW_BYTES_ENOUGH;
    assert!(few(bytes_enough, 1, true) && !few(bytes_enough - 1, 1, true));
}

#[test]
fn a_window_weighs_what_its_time_is_worth() {
    let is_near = |ns: f64, weight: f64| (gain(ns) - weight).abs() < 1e-4;
    assert!(
        is_near(2.5e6, 0.15) && is_near(5e6, 0.3) && is_near(10e6, 0.3),
        "by its share of 5 ms"
    );
    // Long ones: all but what is left after half a second each.
    assert!(is_near(5e8, 0.6321) && is_near(1e9, 0.8647));
}

#[test]
fn a_transport_has_drained_when_all_of_it_was_sent() {
    let mut link = LinkRate::new(200_000);
    assert_eq!(link.drained_ns(at(7)), u64::MAX, "nobody knows");
    link.expect(at(0), 1e6);
    assert_eq!((link.drained_ns(at(150)), link.drained_ns(at(200))), (0, 0));
    assert_eq!(link.drained_ns(at(250)), 50_000_000);
}

/// A transport of 100 kB whose link carried 25 MB/s until 10 ms, without gaps.
fn measured() -> LinkRate {
    let mut link = LinkRate::new(100_000);
    link.wrote(at(0), 100_000);
    link.blocked(at(0));
    for tick in 1..=5 {
        link.wrote(at(2 * tick), 50_000);
        link.blocked(at(2 * tick));
    }
    assert_eq!(link.measured_rate(), Some(25e6), "{link:?}");
    link
}

#[test]
fn what_is_written_waits_until_it_is_sent() {
    let mut link = LinkRate::new(200_000);
    link.expect(at(0), 1e6);
    link.wrote(at(150), 100_000);
    assert_eq!(link.drain_ns(at(150)), 150e6, "50 kB were left");
    assert_eq!(link.drain_ns(at(160)), 140e6);
    link.wrote(at(160), 80_000);
    assert_eq!(link.drain_ns(at(160)), 200e6, "it holds no more");
}

/// 16 kB in 20 ms without a refusal are enough to guess, half as much again.
#[test]
fn a_link_that_did_not_refuse_is_guessed() {
    let guess = |ns, len| {
        let mut link = LinkRate::new(131_072);
        link.wrote(at(0), 1_000);
        link.wrote(at(0) + ns, len);
        (link.rate(), link.measured_rate())
    };
    let (bytes, ns) = (WINDOW_BYTES as usize, UNREFUSED_NS);
    assert_eq!(guess(ns, bytes), (Some(16_384.0 * 50.0 * 1.5), None));
    assert_eq!((guess(ns - 1, bytes), guess(ns, bytes - 1)), ((None, None), (None, None)));
    // What was full has room for what has drained: that much shows nothing.
    let mut link = LinkRate::new(100_000);
    link.wrote(at(0), 100_000);
    link.blocked(at(0));
    link.wrote(at(40), 99_999);
    assert_eq!(link.rate(), None);
    link.wrote(at(40), 1);
    assert_eq!(link.rate(), Some(2.5e6 * 1.5));
}

/// 2 MB/s were measured; then 30 ms pass without a refusal.
#[test]
fn a_measured_rate_grows_by_small_steps_if_it_was_used() {
    let after = |len| {
        let mut link = LinkRate::new(20_000);
        link.wrote(at(0), 20_000);
        link.blocked(at(0));
        link.wrote(at(8), 16_000);
        link.blocked(at(8));
        link.wrote(at(18), 16_000);
        link.blocked(at(18));
        link.expect(at(18), 1.0);
        let before = link.measured_rate();
        link.wrote(at(48), len);
        (before, link.rate(), link.measured_rate().is_some())
    };
    let (before, ..) = after(0);
    let rate = before.expect("a measured rate");
    let of = |factor: f64| (factor * rate * 0.03).round() as usize;
    let shown = |len: usize| len as f64 * 1e9 / 3e7;
    assert_eq!(after(of(0.8)), (before, before, true), "it was idle in between");
    assert_eq!(after(of(0.91)), (before, before, true));
    assert_eq!(after(of(0.95)), (before, Some(shown(of(0.95)) * 1.1), true));
    assert_eq!(after(of(1.4)), (before, Some(shown(of(1.4)) * 1.1), true));
    // So much more is another link.
    assert_eq!(after(of(1.6)), (before, Some(shown(of(1.6)) * 1.5), false));
}

/// More than four fifths of what it holds: it may have been empty.
#[test]
fn a_window_with_a_gap_shows_the_least_only() {
    let rates = |len| {
        let mut link = LinkRate::new(100_000);
        link.wrote(at(0), 100_000);
        link.blocked(at(0));
        link.wrote(at(10), len);
        link.blocked(at(10));
        (link.rate(), link.measured_rate(), link.measurements())
    };
    assert_eq!(rates(80_000), (Some(8e6), Some(8e6), 1));
    assert_eq!(rates(90_000), (Some(9e6 * 1.5), None, 0));
}

#[test]
fn only_pieces_that_were_taken_make_a_window_with_gaps() {
    let mut link = measured();
    for tick in 1..=8 {
        assert_eq!(link.measured_rate(), Some(25e6), "{tick}");
        link.wrote(at(10 + tick), 90_000);
        // The writer asks again, and nothing is taken.
        (0..3).for_each(|_| link.blocked(at(10 + tick)));
    }
    // It is faster than measured; no guess is added to that.
    assert_eq!(link.measured_rate(), Some(90e6), "{link:?}");
    assert_eq!(link.measurements(), 5);
}

/// In windows with gaps hardly 2 MB/s are seen: half a second later nobody believes in 25 MB/s.
#[test]
fn patience_with_a_measured_rate_ends_after_half_a_second_and_with_a_guess_sooner() {
    let mut link = measured();
    for tick in 1..=10 {
        link.wrote(at(10 + 50 * tick), if tick == 3 { 99_000 } else { 90_000 });
        link.blocked(at(10 + 50 * tick));
        assert_eq!(link.measured_rate(), Some(25e6), "{tick}");
    }
    link.wrote(at(560), 90_000);
    link.blocked(at(560));
    // Half as much again as was seen.
    assert_eq!((link.rate(), link.measured_rate()), (Some(2.97e6), None));
    for (ms, rate) in [(660, 2.97e6), (760, 1.35e6)] {
        link.wrote(at(ms), 90_000);
        link.blocked(at(ms));
        assert_eq!((link.rate(), link.measured_rate()), (Some(rate), None), "{ms}");
    }
}

/// What goes on being sent meanwhile is no pause, and a writer that is back at once had none.
#[test]
fn pauses_count_from_when_all_was_sent() {
    let after = |rate, offered_at: Instant| {
        let mut link = LinkRate::new(100_000);
        link.expect(at(0), rate);
        link.wrote(at(0), 100_000);
        link.blocked(at(0));
        link.starved(at(5));
        link.offered(offered_at);
        link.wrote(at(50), 50_000);
        link.blocked(at(50));
        (link.rate(), link.measured_rate())
    };
    let unknown = 0.0;
    assert_eq!(after(unknown, at(5)), (Some(1e6), Some(1e6)), "no pause");
    assert_eq!(after(unknown, at(6)), (Some(1.5e6), None), "a short one: at least 1 MB/s");
    assert_eq!(after(unknown, at(6) + 1), (None, None), "a pause");
    assert_eq!(
        after(1e6, at(50)),
        (Some(1e6), Some(1e6)),
        "there was something to send until 100 ms"
    );
}

#[test]
fn no_more_than_was_presumed_is_believed_at_first() {
    let mut link = LinkRate::new(32_768);
    link.presume(at(0), 1e6, 100_000);
    let window = LinkReport { window_rate: 1e8, ..LinkReport::default() };
    link.reported(at(0), &window);
    assert_eq!((link.rate(), link.is_presumed()), (Some(1e6), true));
    // The transport takes much at once.
    link.wrote(at(1), 32_768);
    link.blocked(at(1));
    link.wrote(at(2), 32_768);
    link.blocked(at(2));
    assert_eq!((link.rate(), link.measured_rate()), (Some(1e6), None));
    // Less is believed.
    let slow = LinkReport { window_rate: 1e5, ..LinkReport::default() };
    link.reported(at(3), &slow);
    assert_eq!(link.rate(), Some(1e5));
    link.reported(at(4), &window);
    assert_eq!(link.rate(), Some(1e6));
    link.wrote(at(5), 40_000);
    link.reported(at(6), &window);
    link.blocked(at(6));
    link.reported(at(7), &window);
    assert!(!link.is_presumed() && link.rate().is_some_and(|rate| rate > 5e6), "{link:?}");
}

/// 15 kB each millisecond pass a shaper of 12.5 MB/s at once for some time, and the window is of all that the processor could send.
#[test]
fn what_a_window_allows_is_believed_as_far_as_the_link_has_carried_it() {
    let mut link = LinkRate::new(1 << 20);
    link.presume(at(0), 12.5e6, 64 << 10);
    let report = LinkReport {
        delivered_rate: 1.8e8,
        is_least: true,
        window_rate: 2.3e8,
        pending_bytes: 1_448,
        ..LinkReport::default()
    };
    for ms in 1..20 {
        link.wrote(at(ms), 15_000);
        if ms == 3 {
            // What a burst shows is not believed.
            link.blocked(at(ms));
            link.wrote(at(ms) + 1_000, 40_000);
            link.blocked(at(ms) + 2_000);
        }
        link.reported(
            at(ms),
            &LinkReport { pending_bytes: if ms < 3 { 1_448 } else { 41_448 }, ..report },
        );
        let rate = link.rate().unwrap();
        assert!((12.5e6..=3.1e7).contains(&rate), "{ms} ms: {rate}");
    }
    // What was written and not confirmed shows nothing.
    for ms in 20..30 {
        link.wrote(at(ms), 100_000);
        let pending_bytes = 41_448 + (ms - 19) * 100_000;
        link.reported(at(ms), &LinkReport { pending_bytes, ..report });
        assert!(link.rate().unwrap() <= 3.1e7, "{ms} ms: {link:?}");
    }
    // What the transport knows is believed at once.
    link.reported(at(30), &LinkReport { is_least: false, ..report });
    assert_eq!(link.rate(), Some(1.8e8));
    // And who fills no link would never know more.
    let mut link = LinkRate::new(1 << 20);
    link.presume(at(0), 12.5e6, 64 << 10);
    link.believes_windows();
    link.wrote(at(1), 64 << 10);
    link.reported(at(2), &report);
    assert_eq!(link.rate(), Some(2.3e8));
}

/// Also where the transport never refuses, and says nothing.
#[test]
fn what_was_presumed_ends_with_the_bytes_that_were_written() {
    let mut link = LinkRate::new(1 << 20);
    link.presume(at(0), 1e6, 100_000);
    link.wrote(at(1), 99_999);
    assert!(link.is_presumed());
    link.wrote(at(2), 1);
    assert!(!link.is_presumed());
}

#[test]
fn a_sender_slower_than_its_link_measures_the_link() {
    let measured = |busy_part: u64| {
        let mut link = LinkRate::new(512 << 10);
        for ms in 1..1000 {
            let now = Instant::from_ns(ms * 1_000_000);
            link.wrote(now, 90_000);
            link.blocked(now);
            let busy_ns = ms * 10_000 * busy_part;
            link.reported(now, &LinkReport { busy_ns, ..LinkReport::default() });
        }
        link.measured_rate().unwrap()
    };
    assert!((85e6..95e6).contains(&measured(100)), "{}", measured(100));
    assert!((340e6..380e6).contains(&measured(25)), "{}", measured(25));
}
