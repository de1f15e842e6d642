//! What a sender does, by what is reported to it.

use super::*;

#[test]
fn a_peer_that_does_not_take_what_stands_alone_is_not_sent_it() {
    let mut pair = Pair::new(6);
    pair.outgoing.want(Mode::Acknowledged);
    let sent = pair.batch(0).expect("a context");
    assert_eq!(sent.alone, None);
    pair.come(&sent);
    assert_eq!(pair.delivered.len(), 1);
}

#[test]
fn a_generation_begins_from_what_was_confirmed() {
    let mut pair = Pair::new(4);
    for _ in 0..5 {
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
    }
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    let bytes: usize = pair.delivered.iter().map(Vec::len).sum();
    let lost = pair.batch(0).expect("a context");
    pair.outgoing.gone(pair.now, lost.datagram);
    let next = pair.batch(0).expect("the one before lasted long enough");
    let start = next.start.expect("another generation");
    assert_eq!(start.base, StartBase::Ring { offset: bytes as u64, len: bytes as u32 });
    pair.come(&next);
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    assert_eq!(pair.delivered.last(), Some(&next.original));
    assert_eq!(pair.incoming.counts.generations, 2);
}

#[test]
fn what_is_missed_of_a_generation_that_has_ended_does_not_end_the_next() {
    let mut pair = Pair::new(7);
    let lost = [pair.batch(0).expect("a context"), pair.batch(0).expect("a context")];
    pair.outgoing.gone(pair.now, lost[0].datagram);
    pair.now = pair.now + SECOND_NS;
    let next = pair.batch(0).expect("the one before lasted long enough");
    assert!(next.start.is_some());
    pair.outgoing.gone(pair.now, lost[1].datagram);
    let last = pair.batch(0).expect("a context");
    assert_eq!(last.start, None, "it goes on");
    // But what is missed of itself ends it.
    pair.outgoing.gone(pair.now, last.datagram);
    pair.now = pair.now + SECOND_NS;
    assert!(pair.batch(0).expect("a context").start.is_some());
}

#[test]
fn a_report_that_was_overtaken_changes_nothing() {
    let mut pair = Pair::new(8);
    let mut reports = Vec::new();
    for _ in 0..2 {
        let sent = pair.batch(0).expect("a context");
        pair.come(&sent);
        pair.now = pair.now + SECOND_NS;
        pair.incoming.reports(pair.now, 1, &mut reports);
    }
    assert_eq!(reports.len(), 2);
    let lost = ContextReport { is_lost: true, ..reports[0] };
    pair.outgoing.report(pair.now, &reports[1]);
    pair.outgoing.report(pair.now, &lost);
    assert_eq!(pair.batch(0).expect("a context").start, None);
}

#[test]
fn more_groups_than_contexts_do_not_take_them_from_each_other() {
    let mut pair = Pair::new(9);
    let mut went_without = 0;
    for group in (0..4).cycle().take(400) {
        pair.now = pair.now + MILLI_NS;
        match pair.batch(group) {
            Some(sent) => pair.come(&sent),
            None => went_without += 1,
        }
        pair.tend(0.0);
    }
    assert_eq!(went_without, 200);
    assert_eq!(pair.incoming.counts.generations, 2);
    // What was not used for long is given to another.
    pair.now = pair.now + 3 * SECOND_NS;
    assert!(pair.batch(3).is_some());
}

#[test]
fn generations_of_which_nothing_is_sent_use_no_numbers_up() {
    let mut pair = Pair::new(9);
    for group in 0..300 {
        pair.now = pair.now + 3 * SECOND_NS;
        let entered = pair.outgoing.enter(pair.now, group, pair.wanted).expect("a context");
        let Entered { context, epoch, encoder, .. } = entered;
        let left = left(Made::NotSmaller, false, (0, 0));
        pair.outgoing.leave(pair.now, (context, epoch), encoder, left);
    }
    pair.now = pair.now + 3 * SECOND_NS;
    let sent = pair.batch(1_000).expect("a context");
    pair.come(&sent);
    assert_eq!(pair.delivered, slice::from_ref(&sent.original));
}

#[test]
fn a_context_begins_from_the_dictionary_and_goes_on_from_what_was_confirmed() {
    let mut pair = Pair::new(10);
    pair.outgoing.share(Some(dictionary()));
    pair.incoming.share(Some(dictionary()));
    let first = pair.batch(0).expect("a context");
    let name = (dictionary().name() >> 64) as u64;
    assert_eq!(base_of(&first), Some(StartBase::Dictionary { name, len: dictionary().len() }));
    pair.come(&first);
    assert_eq!(pair.delivered, slice::from_ref(&first.original));
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    let lost = pair.batch(0).expect("a context");
    pair.outgoing.gone(pair.now, lost.datagram);
    let next = pair.batch(0).expect("the one before lasted long enough");
    let len = dictionary().len() + first.original.len() as u32;
    assert_eq!(base_of(&next), Some(StartBase::Ring { offset: len.into(), len }));
    pair.come(&next);
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    assert_eq!(pair.delivered.last(), Some(&next.original));
    let (tx, rx) = (pair.outgoing.status(), pair.incoming.status());
    assert_eq!((tx.dictionary_starts, tx.cold_starts, rx.dictionary_starts), (1, 0, 1));
}

#[test]
fn what_was_idle_for_long_begins_from_the_dictionary_again() {
    let mut pair = Pair::new(13);
    pair.outgoing.share(Some(dictionary()));
    pair.incoming.share(Some(dictionary()));
    for _ in 0..3 {
        let sent = pair.batch(0).expect("a context");
        assert!(is_of_dictionary(&sent));
        pair.come(&sent);
        pair.tend(0.0);
        pair.now = pair.now + 200 * SECOND_NS;
        pair.outgoing.expire(pair.now);
    }
    assert_eq!(pair.delivered.len(), 3);
}

/// A peer that is short of memory gives a context up again and again, and now and then the start of the next
/// generation is lost: the dictionary is as good as it was.
#[test]
fn a_context_that_is_given_up_again_and_again_begins_from_the_dictionary() {
    let mut pair = Pair::new(16);
    pair.outgoing.share(Some(dictionary()));
    pair.incoming.share(Some(dictionary()));
    for turn in 0..8 {
        pair.now = pair.now + 2 * SECOND_NS;
        let sent = pair.batch(0).expect("a context");
        assert!(is_of_dictionary(&sent), "{turn}: {:?}", base_of(&sent));
        if turn == 3 {
            // Its start is lost: one that came later says so.
            let later = pair.batch(0).expect("a context");
            pair.come(&later);
            pair.now = pair.now + 3 * SECOND_NS;
        } else {
            pair.come(&sent);
            pair.incoming.evict(0);
        }
        pair.tend(0.0);
        assert_eq!(pair.outgoing.status().generations["lost"], turn, "it is known");
    }
    assert_eq!(pair.delivered.len(), 7);
}

#[test]
fn a_peer_that_lets_every_generation_end_gets_few() {
    let mut pair = Pair::new(5);
    let mut began = 0;
    for _ in 0..1_000 {
        pair.now = pair.now + 10 * MILLI_NS;
        let Some(sent) = pair.batch(0) else { continue };
        began += u64::from(sent.start.is_some());
        let report = ContextReport {
            context: 0,
            generation: sent.position.generation,
            is_lost: true,
            is_empty: false,
            next_number: 1,
            ring_offset: 0,
        };
        pair.outgoing.report(pair.now, &report);
    }
    assert!((5..20).contains(&began), "{began} in ten seconds");
}

proptest! {
    /// Whatever a peer reports: what is sent to one that tells the truth afterwards can be decoded.
    #[test]
    fn false_reports_harm_nobody_else(
        reports in prop::collection::vec((0u8..3, 0u8..4, any::<[bool; 2]>(), 0u64..40, 0u64..9_000), 1..60),
    ) {
        let mut pair = Pair::new(9);
        for (context, generation, [is_lost, is_empty], next_number, ring_offset) in reports {
            let report =
                ContextReport { context, generation, is_lost, is_empty, next_number, ring_offset };
            pair.outgoing.report(pair.now, &report);
            pair.now = pair.now + 30 * MILLI_NS;
            if let Some(sent) = pair.batch(0) {
                prop_assert!(sent.data.len() <= sent.original.len() + 10);
            }
        }
    }
}

#[test]
fn what_is_lost_comes_back_once_and_the_encoder_may_be_away_meanwhile() {
    let mut pair = Pair::new(14);
    let first = pair.batch(0).expect("a context");
    pair.come(&first);
    pair.now = pair.now + SECOND_NS;
    pair.tend(0.0);
    let lost: Vec<_> = (0..3).map(|_| pair.batch(0).expect("a context")).collect();
    let entered = pair.outgoing.enter(pair.now, 0, pair.wanted).expect("a context");
    let report = ContextReport {
        context: 0,
        generation: first.position.generation,
        is_lost: true,
        is_empty: false,
        next_number: lost[2].position.number,
        // The first of them came.
        ring_offset: (first.original.len() + lost[0].original.len()) as u64,
    };
    pair.outgoing.report(pair.now, &report);
    assert!(!pair.outgoing.has_lost(), "nobody has the ring");
    let Entered { context, epoch, encoder, .. } = entered;
    let left = left(Made::Done, false, (1, 1));
    assert!(!pair.outgoing.leave(pair.now, (context, epoch), encoder, left));
    let again: Vec<_> =
        std::iter::from_fn(|| pair.outgoing.take_lost()).map(|it| it.bytes).collect();
    assert_eq!(again, lost[1..].iter().map(|it| it.original.clone()).collect::<Vec<_>>());
    // That it is lost is said again and again.
    pair.outgoing.report(pair.now, &report);
    assert!(!pair.outgoing.has_lost());
    // It is the same in the next generation; but there, what is lost was lost before.
    pair.now = pair.now + SECOND_NS;
    let sent = pair.batch_of(0, again[0].clone(), true).expect("a context");
    let generation = sent.position.generation;
    let next_number = sent.position.number;
    pair.outgoing.report(pair.now, &ContextReport { generation, next_number, ..report });
    let lost = pair.outgoing.take_lost().expect("it is lost as well");
    assert!(!lost.is_first_time() && !pair.outgoing.has_lost());
}

/// Two contexts ask at once, and there is time for one: the other asks again as soon as there is, and not seconds later.
#[test]
fn a_trial_that_is_refused_comes_when_there_is_time() {
    let rate = Some(Rate::from_mbps(1));
    let pick = |pair: &mut Pair, may_try: bool| {
        let path = (rate, false, None);
        pair.outgoing.pick(pair.now, path, Processor::default(), may_try)
    };
    // The number of batches before the first.
    let mut pair = Pair::new(2);
    assert!(pick(&mut pair, true).is_none());
    let batches = (1..1_000).find(|_| {
        pair.batch(1);
        pick(&mut pair, true).is_some()
    });
    let batches = batches.expect("a trial");
    let mut pair = Pair::new(2);
    assert!(pick(&mut pair, true).is_none());
    for _ in 0..batches {
        pair.batch(1);
    }
    assert!(pick(&mut pair, false).is_none(), "there is no time");
    pair.batch(1);
    assert!(pick(&mut pair, true).is_none(), "nobody asks while there is none");
    pair.batch(1);
    assert!(pick(&mut pair, true).is_some());
}
