//! Both ends together, over paths that lose.

use super::*;

#[test]
fn without_loss_all_comes_in_order() {
    let (pair, sent) = run(1, 0.0, 0.0);
    assert_eq!(pair.delivered.len(), sent.len());
    assert_eq!(pair.incoming.counts.given_up, 0);
    assert!(pair.outgoing.counts.evicted > 0, "three groups share two contexts");
    let (tx, rx) = (pair.outgoing.status(), pair.incoming.status());
    assert!(tx.dictionary_starts > 3 && tx.cold_starts == 0, "{tx:?}");
    assert_eq!(tx.dictionary_starts, rx.dictionary_starts);
}

#[test]
fn what_is_lost_is_waited_for_and_nothing_is_decoded_wrongly() {
    for seed in 0..20 {
        let (pair, sent) = run(seed, 0.05, 0.0);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        assert!(pair.incoming.counts.gaps > 10, "seed {seed}");
        let (pair, sent) = run(seed, 0.1, 0.2);
        let counts = &pair.incoming.counts;
        assert!(counts.lost > 0 && counts.damaged == 0, "seed {seed}: {counts:?}");
        let shares = (pair.delivered.len(), sent.len());
        assert!(shares.0 > shares.1 / 3, "seed {seed}: {shares:?}");
        // When nothing is lost any more all comes.
        let came: std::collections::HashSet<_> = pair.delivered.iter().collect();
        assert!(sent.iter().rev().take(50).all(|it| came.contains(it)), "seed {seed}");
    }
}

const ACKNOWLEDGED: fn(u64) -> Mode = |_| Mode::Acknowledged;

#[test]
fn what_stands_alone_is_delivered_whatever_is_missing() {
    // What is lost comes again after 60 ms at most. In this time come up to 35 kB, which is more than the
    // smallest ring has.
    let limits = Limits { ring_log: 16, ..LIMITS };
    for seed in 0..20 {
        let (pair, sent) = run_with(Pair::with(seed, limits), (0.05, 0.0), ACKNOWLEDGED);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        let counts = &pair.incoming.counts;
        assert_eq!(
            (counts.gaps, counts.lost, counts.damaged),
            (0, 0, 0),
            "seed {seed}: {counts:?}"
        );
        assert!(counts.acknowledged > 50, "seed {seed}: {counts:?}");
        // It refers to what went before: the same words come again and again.
        let out = &pair.outgoing.counts;
        assert!(out.cold <= 4 + out.evicted, "seed {seed}: {out:?}");
        // What never comes costs itself only, and what refers to it is not sent.
        let (pair, sent) = run_with(Pair::new(seed), (0.1, 0.2), ACKNOWLEDGED);
        let counts = &pair.incoming.counts;
        assert!(counts.lost > 0 && counts.damaged == 0 && counts.gaps == 0, "{seed}: {counts:?}");
        let shares = (pair.delivered.len(), sent.len());
        assert!(shares.0 > shares.1 * 97 / 100, "seed {seed}: {shares:?}, {counts:?}");
    }
}

#[test]
fn what_was_sent_before_a_change_of_the_mode_is_not_lost_by_it() {
    let modes = |step: u64| match step / 170 % 2 {
        0 => Mode::Running,
        _ => Mode::Acknowledged,
    };
    for seed in 0..20 {
        let (pair, sent) = run_with(Pair::new(seed), (0.0, 0.0), modes);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        assert!(pair.incoming.counts.alone > 500, "seed {seed}");
        let (pair, sent) = run_with(Pair::new(seed), (0.03, 0.0), modes);
        let (counts, shares) = (&pair.incoming.counts, (pair.delivered.len(), sent.len()));
        // Pauses of two seconds are longer than a kind is kept that is not of use any more.
        assert!(shares.0 > shares.1 * 995 / 1_000, "seed {seed}: {shares:?} {counts:?}");
        assert_eq!(counts.damaged, 0, "seed {seed}: {counts:?}");
        let (pair, _) = run_with(Pair::new(seed), (0.1, 0.2), modes);
        assert_eq!(pair.incoming.counts.damaged, 0, "seed {seed}");
    }
}

#[test]
fn a_peer_that_has_forgotten_all_is_sent_a_cold_start_if_batches_stand_alone() {
    let mut pair = Pair::new(6);
    pair.outgoing.set_takes_alone(true);
    pair.outgoing.want(Mode::Acknowledged);
    for _ in 0..5 {
        // One that is too short to become smaller goes without.
        if let Some(sent) = pair.batch(0) {
            pair.come(&sent);
        }
        pair.now = pair.now + 100 * MILLI_NS;
        pair.tend(0.0);
    }
    let before = pair.delivered.len();
    assert!(before >= 3, "{before}");
    pair.incoming = Incoming::new(LIMITS);
    for _ in 0..200 {
        pair.now = pair.now + 100 * MILLI_NS;
        if let Some(sent) = pair.batch(0) {
            pair.come(&sent);
        }
        pair.tend(0.0);
    }
    assert!(pair.delivered.len() > before + 100, "{}", pair.delivered.len());
}

/// Then what is behind a hole can't be kept, and the next generation begins before it.
#[test]
fn a_ring_that_is_shorter_than_what_comes_in_a_round_trip_costs_generations_and_no_packet() {
    let mut lost = 0;
    for seed in 0..20 {
        let (pair, sent) = run_with(Pair::new(seed), (0.05, 0.0), ACKNOWLEDGED);
        assert_eq!(pair.delivered.len(), sent.len(), "seed {seed}");
        let counts = &pair.incoming.counts;
        assert_eq!((counts.gaps, counts.damaged), (0, 0), "seed {seed}: {counts:?}");
        lost += counts.lost;
    }
    assert!((1..5).contains(&lost), "{lost}");
}

#[test]
fn a_start_that_is_lost_does_not_end_the_context() {
    let mut pair = Pair::new(3);
    let first = pair.batch(0).expect("a context");
    let second = pair.batch(0).expect("a context");
    pair.come(&second);
    pair.now = pair.now + 3 * SECOND_NS;
    pair.tend(0.0);
    assert_eq!(pair.delivered.len(), 0);
    // It is known that the generation is lost: the next one begins.
    let third = pair.batch(0).or_else(|| {
        pair.now = pair.now + SECOND_NS;
        pair.batch(0)
    });
    let third = third.expect("a context");
    assert!(third.start.is_some());
    pair.come(&third);
    assert_eq!(pair.delivered.len(), 1);
    assert_eq!(pair.delivered[0], third.original);
    pair.come(&first);
    assert_eq!((pair.delivered.len(), pair.incoming.counts.late), (1, 1));
}

/// By a fault: the peer named one that it does not have, or another one by the same name.
#[test]
fn a_peer_that_cannot_begin_from_the_dictionary_is_sent_a_beginning_from_nothing() {
    let other = ContextDictionary::new(vec![7; 5_000]).map(Arc::new);
    for theirs in [None, other] {
        let mut pair = Pair::new(12);
        pair.outgoing.share(Some(dictionary()));
        pair.incoming.share(theirs);
        let mut begun = Vec::new();
        for _ in 0..100 {
            pair.now = pair.now + 100 * MILLI_NS;
            if let Some(sent) = pair.batch(0) {
                begun.extend(sent.start.map(|_| is_of_dictionary(&sent)));
                pair.come(&sent);
            }
            pair.tend(0.0);
        }
        assert_eq!(begun, [true, true, false], "once more, since it may have been lost");
        assert!(pair.delivered.len() > 80, "{}", pair.delivered.len());
        // Another session, another try.
        pair.outgoing.share(Some(dictionary()));
        pair.outgoing.dropped(pair.now);
        pair.now = pair.now + SECOND_NS;
        assert!(!is_of_dictionary(&pair.batch(0).expect("a context")), "the ring has more");
        assert!(is_of_dictionary(&pair.batch(1).expect("a context")));
    }
}

#[test]
fn a_peer_that_has_forgotten_all_is_sent_a_cold_start() {
    let mut pair = Pair::new(6);
    for _ in 0..5 {
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
        pair.now = pair.now + 100 * MILLI_NS;
        pair.tend(0.0);
    }
    // Without another incarnation, as if by a fault.
    pair.incoming = Incoming::new(LIMITS);
    let before = pair.delivered.len();
    for _ in 0..200 {
        pair.now = pair.now + 100 * MILLI_NS;
        if let Some(sent) = pair.batch(0) {
            pair.come(&sent);
        }
        pair.tend(0.0);
    }
    assert!(pair.delivered.len() > before + 100, "{}", pair.delivered.len());
}

/// What is lost with a generation is encoded again, unless it was before; none comes twice (see [`run_with`]).
#[test]
fn what_is_lost_with_a_generation_comes_with_the_next() {
    for seed in 0..20 {
        let (pair, sent) = run(seed, 0.1, 0.2);
        let shares = (pair.delivered.len(), sent.len(), pair.again);
        // What is yet lost was lost twice, or its generation had given way to another before the peer gave it up.
        assert!(pair.again > 50 && shares.0 > shares.1 * 87 / 100, "seed {seed}: {shares:?}");
    }
}

/// No report comes, and so many generations or batches are sent that nothing more can be: then both ends begin
/// from nothing.
#[test]
fn a_context_without_reports_for_long_does_not_stay_without_batches() {
    for ends in [true, false] {
        let mut pair = Pair::new(16);
        let mut refused_ms = 0;
        while !pair.outgoing.take_stuck() {
            pair.now = pair.now + 50 * MILLI_NS;
            match pair.batch(0) {
                Some(sent) => pair.come(&sent),
                None => refused_ms += 50,
            }
            if ends && pair.datagrams.is_multiple_of(40) {
                pair.outgoing.dropped(pair.now);
            }
            assert!(pair.now < at(10_000_000), "it would never be known");
        }
        assert!(refused_ms > 4_000 && pair.delivered.len() > 5_000, "{}", pair.delivered.len());
        assert!(pair.batch(0).is_none());
        // Nothing else changes that, but a report does.
        let mut due = Vec::new();
        pair.incoming.reports(pair.now, 1, &mut due);
        if ends {
            pair.outgoing.begin_session(pair.now, Some(LIMITS), false);
            pair.incoming.begin_session(LIMITS, false);
        } else {
            due.iter().for_each(|report| pair.outgoing.report(pair.now, report));
        }
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
        assert_eq!(pair.delivered.last(), Some(&sent.original));
    }
}
