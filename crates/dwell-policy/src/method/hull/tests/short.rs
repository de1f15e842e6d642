//! Short blocks: requests.

use super::*;

/// A short block alone, after so many bytes.
fn request(history_len: usize) -> Block {
    Block { len: 200, history_len, more: false, busy: false, ..BLOCK }
}

/// The steering for one codec that may refer to earlier blocks, which takes longer then.
fn referring() -> Hull<Codec> {
    Hull::new(&[Prior { codec: 0, cost_ns: 10.0, saving: 0.5, refers: Referring::Rereads }])
}

/// Chooses, and measures that so many bytes are left of a short block. Returns true if it refers to others.
fn sends(hull: &mut Hull<Codec>, history_len: usize, left: [usize; 2]) -> bool {
    let link = link_of(1e6, 0);
    let choice = hull
        .codec(Instant::ZERO, (&link, WriteCost::new()), request(history_len))
        .expect("there is always one for what is alone");
    hull.compressed(&Measured {
        choice,
        original_len: 200,
        history_len,
        used_len: left[usize::from(choice.refers)],
        took_ns: 5_000,
        away_ns: 0,
        is_first: false,
    });
    choice.refers
}

#[test]
fn requests_refer_to_those_before_them_if_they_are_alike() {
    let mut hull = referring();
    assert!((0..100).all(|_| sends(&mut hull, 8_000, [180, 12])));
    // Where there is nothing to refer to, that says nothing of those that refer.
    for _ in 0..20 {
        sends(&mut hull, 0, [180; 2]);
    }
    assert!(sends(&mut hull, 8_000, [180, 12]));
}

#[test]
fn requests_that_are_not_alike_stand_alone_until_that_may_have_changed() {
    let mut hull = referring();
    let referring = (0..100).filter(|_| sends(&mut hull, 8_000, [150, 150])).count();
    assert!((1..50).contains(&referring), "{referring}");
    let soon = (0..200).position(|_| sends(&mut hull, 8_000, [150, 12]));
    assert!(soon.is_some(), "tried again");
    assert!((0..20).all(|_| sends(&mut hull, 8_000, [150, 12])));
}

/// Each would have no other length than the one before it.
#[test]
fn short_blocks_try_nothing() {
    let mut hull = hull(&[(10.0, 0.5), (11.0, 0.5), (12.0, 0.5)]);
    let link = link_of(1e6, 0);
    let first = next(&mut hull, &link, request(0));
    assert!((0..100).all(|_| next(&mut hull, &link, request(0)) == first));
}

/// What is measured to be better than expected is found, although another one is believed to leave less.
#[test]
fn messages_try_what_is_about_as_soon() {
    let mut hull = hull(&[(5.0, 0.5), (30.0, 0.6)]);
    let link = link_of(6e5, 0);
    let message = Block { len: 10_000, more: false, busy: false, ..BLOCK };
    let mut sends = || {
        let choice = hull.codec(Instant::ZERO, (&link, WriteCost::new()), message).unwrap();
        hull.compressed(&Measured {
            choice,
            original_len: 10_000,
            history_len: 0,
            used_len: [2_000, 1_900][choice.codec],
            took_ns: [50_000, 300_000][choice.codec],
            away_ns: 0,
            is_first: false,
        });
        choice.codec
    };
    let chosen: Vec<_> = (0..20).map(|_| sends()).collect();
    assert_eq!(chosen[0], 1, "as expected");
    assert!(chosen[12..].iter().all(|&codec| codec == 0), "{chosen:?}");
}

/// Each of many streams of a few messages would try all of them again.
#[test]
fn what_a_stream_has_learned_spares_another_one_its_tries() {
    let codecs = [(5.0, 0.5), (6.0, 0.52), (7.0, 0.54)];
    let link = link_of(6e5, 0);
    let message = Block { len: 10_000, more: false, busy: false, ..BLOCK };
    let tries = |hull: &mut Hull<Codec>| {
        let sends = |_| {
            let choice = hull.codec(Instant::ZERO, (&link, WriteCost::new()), message).unwrap();
            hull.compressed(&Measured {
                choice,
                original_len: 10_000,
                history_len: 0,
                used_len: [3_000, 2_900, 2_800][choice.codec],
                took_ns: [50_000, 60_000, 70_000][choice.codec],
                away_ns: 0,
                is_first: false,
            });
            choice.codec
        };
        (0..20).map(sends).filter(|&codec| codec != 2).count()
    };
    let mut first = hull(&codecs);
    assert!(first.learned().is_none(), "nothing yet");
    assert!(tries(&mut first) > 0);
    let mut second = hull(&codecs);
    second.learn(&first.learned().unwrap());
    assert_eq!(tries(&mut second), 0);
    let mut other = hull(&codecs[..2]);
    other.learn(&first.learned().unwrap());
    assert_eq!(other.estimates.all().len(), 2, "that has other codecs");
}

/// Beside a round trip of 20 ms nobody notices .1 ms, but whoever else is on the link the bytes.
#[test]
fn messages_leave_less_where_that_is_hardly_later() {
    let message = Block { len: 10_000, more: false, busy: false, ..BLOCK };
    let chosen = |rate, round_trip_ns| {
        let mut hull = hull(&[(5.0, 0.75), (30.0, 0.77)]);
        let report = LinkReport { round_trip_ns, ..LinkReport::default() };
        hull.reported(Instant::ZERO, &report);
        next(&mut hull, &link_of(rate, 0), message)
    };
    // Compressing takes .25 ms more, and .2 kB less are .1 ms of the link.
    assert_eq!(chosen(2e6, 0), Some(0));
    assert_eq!(chosen(2e6, 20_000_000), Some(1));
    assert_eq!(chosen(2e6, 5_000_000), Some(0), "too late");
    assert_eq!(chosen(12.5e6, 20_000_000), Some(0), "the bytes are next to nothing");
}

/// The plan is for what fills a link: a message may refer though no block of it does.
#[test]
fn what_messages_may_refer_to_is_kept_for_them() {
    let mut hull = referring();
    let (link, message) = (link_of(1e6, 0), Block { len: 10_000, ..request(0) });
    hull.keeps_for(0, message);
    assert!(!hull.keeps_history(), "the first stands alone");
    hull.keeps_for(1, Block { more: true, ..message });
    assert!(!hull.keeps_history(), "no message");
    let choice = hull.codec(Instant::ZERO, (&link, WriteCost::new()), message).unwrap();
    assert!(choice.refers && hull.keeps_history());
}
