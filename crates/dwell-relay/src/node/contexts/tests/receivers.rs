//! What a receiver does, whatever it is sent.

use super::*;

#[test]
fn a_path_keeps_order_by_contexts_only_while_they_run() {
    let mut pair = Pair::new(9);
    let sent = pair.batch(0).expect("a context");
    pair.come(&sent);
    assert!(pair.incoming.keeps_order());
    pair.outgoing.set_takes_alone(true);
    pair.outgoing.want(Mode::Acknowledged);
    pair.now = pair.now + 5 * SECOND_NS;
    let sent = pair.batch(1).expect("another context");
    pair.come(&sent);
    assert!(!pair.incoming.keeps_order(), "the first one may run yet, but nothing came of it");
}

/// Batches that are in no context have no place among those that are: datagrams keep them in order.
#[test]
fn beside_batches_of_no_context_a_path_does_not_leave_order_to_contexts() {
    let mut pair = Pair::new(9);
    let sent = pair.batch(0).expect("a context");
    pair.incoming.came(pair.now);
    pair.come(&sent);
    assert!(pair.incoming.keeps_all_in_order());
    pair.incoming.came_outside();
    assert!(pair.incoming.keeps_order() && !pair.incoming.keeps_all_in_order());
    pair.now = pair.now + 3 * SECOND_NS;
    pair.incoming.came(pair.now);
    assert!(pair.incoming.keeps_all_in_order());
}

#[test]
fn a_receiver_gives_back_what_nobody_uses_and_begins_again() {
    for mode in [Mode::Running, Mode::Acknowledged] {
        let mut pair = Pair::new(9);
        pair.outgoing.set_takes_alone(true);
        pair.outgoing.want(mode);
        let come = |pair: &mut Pair| {
            let sent = pair.batch(0).expect("a context");
            pair.come(&sent);
            let came = pair.delivered.last() == Some(&sent.original);
            pair.now = pair.now + SECOND_NS;
            pair.tend(0.0);
            came
        };
        (0..4).for_each(|_| assert!(come(&mut pair)));
        let used_bytes = pair.incoming.status().memory_bytes;
        // A sender that remembers for longer tries the same base twice, and begins from nothing then.
        pair.now = pair.now + 301 * SECOND_NS;
        pair.tend(0.0);
        let idle_bytes = pair.incoming.status().memory_bytes;
        assert!(idle_bytes < used_bytes / 10, "{idle_bytes} of {used_bytes}");
        let came: Vec<_> = (0..4).map(|_| come(&mut pair)).collect();
        assert_eq!(came[2..], [true; 2], "{mode:?}");
    }
}

/// A record that was sent before the dictionary changed.
#[test]
fn what_begins_from_the_dictionary_of_before_is_not_decoded_with_that_of_now() {
    let mut pair = Pair::new(12);
    pair.outgoing.share(Some(dictionary()));
    let first = pair.batch(0).expect("a context");
    // The same length, so that only the name differs.
    let bytes = vec![b'x'; dictionary().len() as usize];
    pair.incoming.share(ContextDictionary::new(bytes).map(Arc::new));
    pair.come(&first);
    assert_eq!((pair.delivered.len(), pair.incoming.counts.no_base), (0, 1));
}

/// A beginning that is said again, with another codec, is no beginning: what follows is decoded by the model that is there, and takes
/// as long as that.
#[test]
fn a_beginning_that_is_said_again_does_not_make_a_batch_of_a_model_cheaper() {
    let mut pair = Pair::new(10);
    let first = pair.batch(0).expect("a context");
    assert!(first.start.is_some());
    pair.come(&first);
    let mut goes_on = pair.batch(0).expect("a context");
    goes_on.start = None;
    let worth = pair.incoming.bytes_worth(&goes_on.record());
    assert!(worth > 8 * goes_on.original.len() as u64, "it has a model");
    let said_again = |start: Start| Start { codec: CodecId::Zstd as u8, ..start };
    goes_on.position.is_confirmed = false;
    goes_on.start = first.start.map(said_again);
    assert_eq!(pair.incoming.bytes_worth(&goes_on.record()), worth);
}

/// Most of what it takes to begin a model is new memory: a peer that lets models take turns has that counted each time.
#[test]
fn a_beginning_in_new_memory_costs_more_than_one_in_that_of_before() {
    let mut pair = Pair::new(10);
    let first = pair.batch(0).expect("a context");
    let worth = |pair: &Pair, sent: &Sent| pair.incoming.bytes_worth(&sent.record());
    let at_first = worth(&pair, &first);
    pair.come(&first);
    // The same again, in the memory that is there.
    let mut again = first;
    again.position.generation = again.position.generation.wrapping_add(1);
    let in_memory = worth(&pair, &again);
    // Half a millisecond, by four nanoseconds for each byte.
    assert!(at_first > in_memory + 100_000, "{at_first}, then {in_memory}");
    let other_memory = |start: Start| Start { window_log: start.window_log + 1, ..start };
    again.start = again.start.map(other_memory);
    assert_eq!(worth(&pair, &again), at_first);
}

type AnyRecord =
    (u8, u8, u16, (Option<(u8, u8, u64, u32)>, Option<(u32, bool)>), bool, u16, Vec<u8>);

fn any_record() -> impl Strategy<Value = AnyRecord> {
    let start = prop::option::of((0u8..4, 10u8..24, 0u64..100_000, any::<u32>()));
    let data = prop::collection::vec(any::<u8>(), 1..60);
    let alone = prop::option::of((0u32..200_000, any::<bool>()));
    (0u8..4, any::<u8>(), any::<u16>(), (start, alone), any::<bool>(), 1u16.., data)
}

proptest! {
    /// Whatever a peer sends: no panic, and no more memory than was offered.
    #[test]
    fn what_makes_no_sense_is_dropped(
        records in prop::collection::vec((any_record(), 0u64..30), 1..200),
    ) {
        let mut incoming = Incoming::new(LIMITS);
        incoming.share(Some(dictionary()));
        let mut out = vec![0; 65_535];
        let mut now = at(1);
        for ((context, generation, number, how, is_raw, original_len, data), later_ms) in records {
            let (start, alone) = how;
            let alone = alone.map(|(distance, keeps)| Alone { distance, keeps });
            let start = start.map(|(codec, window_log, offset, len)| {
                let base = match offset % 2 {
                    0 => StartBase::Ring { offset, len },
                    // Its own, or one that it does not have.
                    _ => StartBase::Dictionary {
                        name: if offset % 3 == 0 { offset } else { (dictionary().name() >> 64) as u64 },
                        len: len >> (offset % 32),
                    },
                };
                Start { codec, window_log, base }
            });
            let body = match is_raw {
                true => ContextBody::Raw(&data),
                false => {
                    let headers = Headers::Plain;
                    ContextBody::Batch { start, alone, headers, original_len, data: &data }
                }
            };
            let record = ContextRecord { context, generation, number, body };
            let origin = Origin { datagram: number.into(), is_present: true };
            if incoming.take(now, &record, origin, &mut Allowance::new(128)) == Taken::Now {
                incoming.open(&record, &mut out);
            }
            while let Some((context, held)) = incoming.ready(now) {
                incoming.open(&held.record(context), &mut out);
            }
            now = now + later_ms * MILLI_NS;
            let waits = GapWaits::of(Some(RTT_NS));
            incoming.expire(now, waits, |datagram| datagram % 2 == 0);
            let mut due = Vec::new();
            incoming.reports(now, waits.report_ns, &mut due);
            prop_assert!(due.len() <= 2);
            prop_assert!(incoming.deadline(waits, |_| true) >= Instant::ZERO);
            let memory = incoming.status().memory_bytes;
            prop_assert!(memory < 2 * (4 << 20), "{memory}");
        }
    }
}

/// Nothing that waits takes more than its limit, and what is too much goes on without what is missing.
#[test]
fn what_is_held_is_bounded() {
    let mut incoming = Incoming::new(LIMITS);
    let data = vec![7; 60_000];
    let mut out = vec![0; 65_535];
    for number in 2..2_000u16 {
        let body = ContextBody::Raw(&data);
        let record = ContextRecord { context: 0, generation: 1, number, body };
        let origin = Origin { datagram: 1, is_present: true };
        for _ in 0..2 {
            let taken = incoming.take(at(1), &record, origin, &mut Allowance::new(1));
            assert!(incoming.held().0 <= 4 << 20);
            if taken == Taken::Now {
                incoming.open(&record, &mut out);
            }
            while let Some((context, held)) = incoming.ready(at(1)) {
                incoming.open(&held.record(context), &mut out);
            }
            if taken != Taken::Full {
                break;
            }
        }
    }
    assert_eq!((incoming.counts.raw, incoming.counts.given_up), (1_998, 1));
}

/// Where there is no room the context that holds most goes on without what is missing; the others wait on.
#[test]
fn one_gap_too_long_does_not_end_what_other_contexts_wait_for() {
    let mut incoming = Incoming::new(LIMITS);
    let (large, small) = (vec![7; 60_000], vec![7; 100]);
    let mut out = vec![0; 65_535];
    let mut come = |incoming: &mut Incoming, context, number, data: &[u8]| {
        let body = ContextBody::Raw(data);
        let record = ContextRecord { context, generation: 1, number, body };
        let origin = Origin { datagram: 1, is_present: true };
        let taken = incoming.take(at(1), &record, origin, &mut Allowance::new(1));
        while let Some((context, held)) = incoming.ready(at(1)) {
            incoming.open(&held.record(context), &mut out);
        }
        taken
    };
    for number in 2..20 {
        assert_eq!(come(&mut incoming, 1, number, &small), Taken::Held);
    }
    let full = (2..200).find(|&number| come(&mut incoming, 0, number, &large) == Taken::Full);
    assert!(full.is_some_and(|number| number > 60), "{full:?}");
    assert_eq!((incoming.counts.given_up, incoming.held().1), (1, 18), "those of the other wait");
    // It gets what it waited for.
    assert_eq!(come(&mut incoming, 1, 1, &small), Taken::Now);
}

/// A peer lets a generation end with each of its datagrams. The reports are together, and few; the first
/// one is sent at once.
#[test]
fn lost_generations_are_reported_at_once_but_not_for_each_datagram() {
    lose_with_each_datagram(None);
    lose_with_each_datagram(Some(Alone { distance: 0, keeps: false }));
}

fn lose_with_each_datagram(alone: Option<Alone>) {
    let mut incoming = Incoming::new(LIMITS);
    let mut out = vec![0; 65_535];
    let codec = CodecId::Zstd as u8;
    let base = StartBase::Ring { offset: 0, len: 0 };
    let start = Start { codec, window_log: LIMITS.ring_log, base };
    let waits = GapWaits::of(Some(RTT_NS));
    let mut times = Vec::new();
    for turn in 0..5_000_u16 {
        let now = Instant::from_ns(SECOND_NS + u64::from(turn) * SECOND_NS / 5_000);
        let body = ContextBody::Batch {
            start: Some(start),
            alone,
            headers: Headers::Plain,
            original_len: 1,
            data: &[0xff],
        };
        let (context, generation) = ((turn % 2) as u8, ((turn / 2) as u8).wrapping_add(1));
        let record = ContextRecord { context, generation, number: turn / 2 + 1, body };
        let origin = Origin { datagram: turn.into(), is_present: true };
        assert_eq!(incoming.take(now, &record, origin, &mut Allowance::new(128)), Taken::Now);
        assert_eq!(incoming.open(&record, &mut out), Opened::Nothing);
        let mut due = Vec::new();
        if now >= incoming.deadline(waits, |_| false) {
            incoming.reports(now, waits.report_ns, &mut due);
        }
        assert!(due.iter().all(|report| report.is_lost));
        times.extend((!due.is_empty()).then_some((turn, due.len())));
    }
    assert_eq!(times[0], (0, 1), "at once");
    assert!((45..=55).contains(&times.len()), "{} times in a second", times.len());
    assert!(times[1..].iter().all(|&(_, together)| together == 2), "{times:?}");
}

/// Twelve contexts that come over a faster link, and whose reports go by one of 64 kbit/s: a report takes 12 ms there.
#[test]
fn reports_leave_a_thin_link_to_what_is_sent() {
    let usual = GapWaits::of(Some(RTT_NS));
    let over = |bps, contexts| usual.over(Rate::from_bps(bps), contexts).report_ns;
    let report_ns = Rate::from_bps(64_000).unwrap().transmission_ns(96);
    // In an eighth of the link they would come 1.15 s apart: they come each second.
    assert_eq!((report_ns, over(64_000, 12)), (12_000_000, SECOND_NS));
    assert_eq!(over(128_000, 12), 8 * 12 * report_ns / 2);
    assert_eq!(over(64_000, 1), (8 * report_ns).max(usual.report_ns));
    // A faster link has room for all that are due.
    assert_eq!(over(100_000_000, 12), usual.report_ns);
    assert_eq!(usual.over(None, 12).report_ns, usual.report_ns);
}
