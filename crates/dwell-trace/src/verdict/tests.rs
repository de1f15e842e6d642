//! Replays of made-up captures, and their verdicts.

use dwell_base::{Rate, Rng};

use super::*;
use crate::replay::compress::{Cost, GivenCost};
use crate::replay::input::Input;
use crate::replay::link::Link;
use crate::replay::samples::tcp_v4;
use crate::replay::{Replay, Settings};
use crate::sides::{Ends, Sides};

/// `bps` of packets of `bytes` for 12 seconds over a link of 2 Mbit/s.
fn replay(bps: u64, bytes: usize, port: u16, captured: usize, noise: bool) -> ReplayReport {
    let mut rng = Rng::from_seed(1);
    let text = "it was the best of times, it was the worst of times, ".repeat(40);
    let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let mut replay = Replay::new(settings, cost).unwrap();
    let mean_ns = bytes as f64 * 8e9 / bps as f64;
    let (mut at_ns, ends) = (0, Ends::default());
    while at_ns < 12_000_000_000 {
        at_ns += rng.exponential(mean_ns) as u64;
        let payload = bytes - 40;
        let mut body = text.as_bytes()[..payload].to_vec();
        if noise {
            rng.fill(&mut body);
        } else {
            let word = rng.next_u64().to_le_bytes();
            body[..8].copy_from_slice(&word);
        }
        let packet = tcp_v4(port, 5000 + rng.below(4) as u16, 1, &body);
        let packet = &packet[..packet.len().min(captured)];
        replay.packet(Input { at_ns: Some(at_ns), packet, wire_len: Some(bytes as u32), ends });
    }
    replay.finish("test")
}

fn asked(report: &ReplayReport) -> Verdict {
    judge(report, &Question { cost_per_mb: Some(0.1), ..Question::default() })
}

#[test]
fn text_over_a_link_that_is_too_slow_is_a_yes() {
    let verdict = asked(&replay(2_600_000, 1200, 80, 9999, false));
    let said = verdict.to_text();
    assert_eq!(verdict.answer, Answer::Yes, "{said}");
    assert_eq!(
        (verdict.metered.answer, verdict.congested.answer),
        (PartAnswer::Yes, PartAnswer::Yes)
    );
    assert_eq!(verdict.idle.answer, PartAnswer::DoesNotApply);
    let best = verdict.best.as_ref().unwrap();
    assert!(best.goodput > 0.1 && best.drops.0 > 0.1 && best.drops.1 < 0.01, "{best:?}");
    // The cost is that in the table, not that of the delivered packets.
    let (without, with) = best.cost_month.unwrap();
    let (bytes, fewer) = best.link_bytes;
    assert!((with / without - fewer as f64 / bytes as f64).abs() < 1e-9, "{best:?}");
    assert!(
        said.contains("Next to nothing is encrypted") && said.contains("get through"),
        "{said}"
    );
    assert!(verdict.to_table().unwrap().to_text().contains("cost of 30 days"));
}

/// A link stays full: fewer bytes on it would be false, and more gets through.
#[test]
fn on_a_full_link_more_gets_through_for_the_same_bytes() {
    // Half of each packet is noise, and the link is asked for ten times what it carries.
    let mut rng = Rng::from_seed(2);
    let settings = Settings::new(Link::ethernet(Rate::clamped_bps(500_000)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let mut replay = Replay::new(settings, cost).unwrap();
    for n in 0..6000u64 {
        let mut body = b"it was the best of times ".repeat(48);
        rng.fill(&mut body[..600]);
        let packet = &tcp_v4(80, 5000, n as u32, &body);
        let (at_ns, ends) = (Some(n * 2_000_000), Ends::default());
        replay.packet(Input { at_ns, packet, wire_len: None, ends });
    }
    let verdict = asked(&replay.finish("test"));
    let (said, best) = (verdict.to_text(), verdict.best.as_ref().unwrap());
    assert!(best.drops.1 > 0.1 && best.goodput > 0.5, "{best:?}");
    assert!(best.saving.abs() < 0.05, "{best:?}");
    let (without, with) = best.cost_month.unwrap();
    assert!((with / without - 1.0).abs() < 0.05, "{without} {with}");
    assert_eq!((verdict.answer, verdict.metered.answer), (Answer::Yes, PartAnswer::No), "{said}");
    assert!(said.contains("more of the user's bytes get through"), "{said}");
    assert!(!said.contains("fewer bytes"), "{said}");
}

/// On an idle link there are bytes to save, and nothing else, so that it depends on their cost.
#[test]
fn an_idle_link_has_bytes_to_save_and_nothing_else() {
    let report = replay(200_000, 1200, 80, 9999, false);
    let verdict = judge(&report, &Question::default());
    assert_eq!(verdict.answer, Answer::Depends, "{}", verdict.to_text());
    assert_eq!((verdict.metered.answer, verdict.idle.answer), (PartAnswer::Yes, PartAnswer::No));
    assert_eq!(verdict.congested.answer, PartAnswer::DoesNotApply);
    assert_eq!(asked(&report).answer, Answer::Yes, "bytes cost");
    let noise = judge(&replay(200_000, 1200, 80, 9999, true), &Question::default());
    assert_eq!(noise.answer, Answer::No, "{}", noise.to_text());
}

#[test]
fn a_few_packets_show_nothing() {
    let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let verdict = |packets: u64, noise: bool| {
        let mut rng = Rng::from_seed(1);
        let mut replay = Replay::new(settings.clone(), cost).unwrap();
        for n in 0..packets {
            let mut body = [b'x'; 1200];
            if noise {
                rng.fill(&mut body);
            }
            let packet = &tcp_v4(80, 5000, n as u32, &body);
            let (at_ns, ends) = (Some(n * 1_000_000), Ends::default());
            replay.packet(Input { at_ns, packet, wire_len: None, ends });
        }
        asked(&replay.finish("test"))
    };
    // Neither a gain, nor that there is none.
    for noise in [false, true] {
        let few = verdict(20, noise);
        assert_eq!(few.answer, Answer::Unknown, "{}", few.to_text());
        let parts = [few.metered.answer, few.congested.answer];
        assert!(!parts.contains(&PartAnswer::Yes) && !parts.contains(&PartAnswer::No));
        assert!(few.to_text().contains("20 packets") && few.to_text().contains("too few"));
    }
    assert_eq!(verdict(2000, false).answer, Answer::Yes);
    assert_eq!(verdict(2000, true).answer, Answer::No);
}

#[test]
fn time_stamps_that_go_back_are_not_judged() {
    let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let verdict = |back_ns: u64| {
        let mut replay = Replay::new(settings.clone(), cost).unwrap();
        for n in 0..2000u64 {
            let packet = &tcp_v4(80, 5000, n as u32, &[b'x'; 1000]);
            let at_ns = 10_000_000_000 + n * 10_000_000 - if n == 1000 { back_ns } else { 0 };
            let ends = Ends::default();
            replay.packet(Input { at_ns: Some(at_ns), packet, wire_len: None, ends });
        }
        asked(&replay.finish("test"))
    };
    let verdict_back = verdict(5_000_000_000);
    let said = verdict_back.to_text();
    assert_eq!((verdict_back.answer, &verdict_back.best), (Answer::Unknown, &None), "{said}");
    assert!(said.contains("reordercap") && said.contains("mergecap"), "{said}");
    assert!(!said.contains("month") && !said.contains("Metered"), "{said}");
    // The jitter of several queues of a network card is no disorder.
    assert_eq!(verdict(10_900_000).answer, Answer::Yes);
}

/// Handshakes and certificates are the only compressible part of TLS, and no reason for relays.
#[test]
fn nothing_but_tls_is_a_no_whatever_its_handshakes_save() {
    let mut rng = Rng::from_seed(4);
    let settings = Settings::new(Link::ethernet(Rate::clamped_bps(500_000)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let mut replay = Replay::new(settings, cost).unwrap();
    let certificate = b"CN=example.org, O=Nobody in particular, C=XX; ".repeat(28);
    for n in 0..3000u64 {
        let mut body = [&[22, 3, 3, 4, 0, 2][..], &certificate].concat();
        if n % 3 > 0 {
            rng.fill(&mut body);
            body[..5].copy_from_slice(&[23, 3, 3, 4, 0]);
        }
        let packet = &tcp_v4(9443, 5000, n as u32, &body);
        let (at_ns, ends) = (Some(n * 10_000_000), Ends::default());
        replay.packet(Input { at_ns, packet, wire_len: None, ends });
    }
    let verdict = asked(&replay.finish("test"));
    assert_eq!(verdict.answer, Answer::No, "{}", verdict.to_text());
    assert!(verdict.best.unwrap().goodput > 0.2, "there is something that shrinks");
}

/// Text one way and ciphers the other: the busier direction decides, whichever it is, and the two
/// have a queue each.
#[test]
fn each_direction_is_judged_alone_and_the_busier_one_decides() {
    let mut rng = Rng::from_seed(4);
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let text = "it was the best of times, it was the worst of times, ".repeat(40);
    let near = "10.0.0.1/32".parse().unwrap();
    let sides = std::sync::Arc::new(Sides::inside(vec![near]));
    let mut judged = |text_bytes: usize, noise_bytes: usize| {
        let settings = Settings {
            sides: std::sync::Arc::clone(&sides),
            ..Settings::new(Link::ethernet(Rate::from_mbps(1)))
        };
        let mut replay = Replay::new(settings, cost).unwrap();
        for n in 0..4000u64 {
            let mut noise = vec![0; noise_bytes];
            rng.fill(&mut noise);
            let there = tcp_v4(80, 5000, n as u32, &text.as_bytes()[..text_bytes]);
            let mut back = tcp_v4(5000, 80, n as u32, &noise);
            // From the second host to the first.
            (back[15], back[19]) = (2, 1);
            for packet in [&there, &back] {
                let (at_ns, ends) = (Some(n * 8_000_000), Ends::default());
                replay.packet(Input { at_ns, packet, wire_len: None, ends });
            }
        }
        let report = replay.finish("test");
        let other = asked(report.other_direction.as_deref().unwrap());
        (report.direction.words(), asked(&report).answer, other.answer)
    };
    let there = "from 10.0.0.1/32 to elsewhere".to_owned();
    assert_eq!(judged(1200, 900), (there, Answer::Yes, Answer::No));
    let back = "from elsewhere to 10.0.0.1/32".to_owned();
    assert_eq!(judged(900, 1200), (back, Answer::No, Answer::Yes));
}

/// A scheme that no relay has yet is named, and does not count; one that relays have does.
#[test]
fn dictionaries_count_where_relays_have_them() {
    use crate::replay::compress::Dictionaries;
    use dwell_codec::{ContextDictionary, Dictionary};
    use dwell_policy::ClassKey;

    let message = |n: u64| format!("{{\"pump\":\"north-{}\",\"bar\":{n},\"ok\":true}}", n % 9);
    let samples: String = (0..40).map(message).collect();
    let dictionary = Dictionary::new(1, samples.clone().into_bytes()).unwrap();
    let with = Dictionaries {
        by_class: vec![(ClassKey::new(17, 5683), std::sync::Arc::new(dictionary))],
        of_contexts: ContextDictionary::new(samples.into_bytes()).map(std::sync::Arc::new),
    };
    let answer = |scheme: &str, counted: &[&str], dictionaries: &Dictionaries| {
        let settings = Settings {
            dictionaries: dictionaries.clone(),
            schemes: vec![(scheme.to_owned(), dwell_policy::Scheme::preset(scheme).unwrap())],
            ..Settings::new(Link::ethernet(Rate::clamped_bps(100_000)))
        };
        let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
        let mut replay = Replay::new(settings, cost).unwrap();
        for n in 0..3000u64 {
            let packet = &crate::replay::samples::udp_v4(40_000, 5683, message(n * 7).as_bytes());
            let (at_ns, ends) = (Some(n * 5_000_000), Ends::default());
            replay.packet(Input { at_ns, packet, wire_len: None, ends });
        }
        let report = replay.finish("test");
        let schemes = counted.iter().map(|&name| name.to_owned()).collect();
        let link_bytes: Vec<u64> =
            report.lanes.iter().map(|lane| lane.peer.tx.link_bytes).collect();
        (judge(&report, &Question { cost_per_mb: None, schemes }), link_bytes)
    };
    let none = Dictionaries::default();
    let (plain, lanes) = answer("packet", &["packet"], &none);
    let (other, more_lanes) = answer("packet", &["packet"], &with);
    assert_eq!((lanes.len(), more_lanes.len()), (2, 3));
    assert_eq!((plain.answer, &plain.best), (other.answer, &other.best));
    let said = other.to_text();
    assert!(
        said.contains("packet+dictionaries` would do better") && said.contains("does not count")
    );
    let other = answer("auto", &["auto+dictionaries"], &with);
    assert_eq!(other.0.best.unwrap().scheme, "auto+dictionaries");
    let [_, auto, with_dictionaries] = other.1[..] else { panic!("{:?}", other.1) };
    assert!(with_dictionaries < auto, "{with_dictionaries} of {auto}");
}

#[test]
fn tls_is_a_no_and_says_why() {
    let verdict = asked(&replay(2_600_000, 1200, 443, 9999, true));
    assert_eq!(verdict.answer, Answer::No, "{}", verdict.to_text());
    assert!(
        verdict.to_text().contains("100 % of what the packets carry is of sessions"),
        "{}",
        verdict.to_text()
    );
}

/// Where connections are short, handshakes are much of the traffic: the answer stays, and says so.
#[test]
fn a_no_tells_of_handshakes_that_weigh_much() {
    let composed = |tls: u64, handshake: u64, bare: u64| {
        let mut composition = Composition::default();
        composition.add(ContentClass::Tls, tls);
        composition.add(ContentClass::Handshake, handshake);
        composition.add(ContentClass::Bare, bare);
        clear_part(&composition)
    };
    for quiet in [composed(1000, 0, 0), composed(700, 200, 100), composed(300, 10, 690)] {
        assert_eq!(quiet, "");
    }
    assert!(composed(400, 400, 200).contains("handshakes are 40"), "{}", composed(400, 400, 200));
}

#[test]
fn what_is_compressed_already_is_a_no() {
    let verdict = asked(&replay(1_500_000, 1200, 80, 9999, true));
    assert_eq!(verdict.answer, Answer::No, "{}", verdict.to_text());
    assert!(verdict.to_text().contains("compressed or encrypted by something else"));
}

#[test]
fn a_capture_of_headers_gives_no_answer() {
    let verdict = asked(&replay(2_600_000, 1200, 80, 68, false));
    assert_eq!(verdict.answer, Answer::Unknown, "{}", verdict.to_text());
    assert!(verdict.to_text().contains("tcpdump -s 0"));
}

#[test]
fn a_capture_without_times_gives_no_answer() {
    let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let ends = Ends::default();
    for at_ns in [None, Some(1_700_000_000_000_000_000)] {
        let mut replay = Replay::new(settings.clone(), cost).unwrap();
        for n in 0..2000 {
            let packet = &tcp_v4(80, 5000, n, &[b'x'; 1000]);
            replay.packet(Input { at_ns, packet, wire_len: None, ends });
        }
        let report = replay.finish("test");
        let (verdict, said) = (asked(&report), asked(&report).to_text());
        assert_eq!((verdict.answer, &verdict.best), (Answer::Unknown, &None), "{said}");
        assert!(said.contains("All packets have the same time"), "{said}");
        assert!(!said.contains("month") && !said.contains("would take"), "{said}");
        assert!(!crate::replay::view::summary(&report).contains("load"));
    }
}

#[test]
fn packets_without_times_come_with_those_before() {
    let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
    let cost = || Cost::Given(GivenCost { unit_ns: 3000, byte_ps: 3000 });
    let mut replay = Replay::new(settings, cost).unwrap();
    let packet = &tcp_v4(80, 5000, 1, &[b'x'; 1000]);
    let ends = Ends::default();
    let at = 1_700_000_000_000_000_000;
    for at_ns in [None, Some(at), None, Some(at + 5_000_000_000), None] {
        replay.packet(Input { at_ns, packet, wire_len: None, ends });
    }
    let report = replay.finish("test");
    assert_eq!((report.span_ns, report.input.unordered), (5_000_000_000, 0));
}

#[test]
fn nothing_is_no_answer() {
    let settings = Settings::new(Link::ethernet(Rate::from_mbps(2)));
    let cost = || Cost::Given(GivenCost { unit_ns: 0, byte_ps: 0 });
    let verdict = asked(&Replay::new(settings, cost).unwrap().finish("test"));
    assert_eq!((verdict.answer, verdict.best), (Answer::Unknown, None));
}

#[test]
fn only_schemes_that_can_be_had_are_recommended() {
    let report = replay(2_600_000, 200, 80, 9999, false);
    let schemes = vec!["none".to_owned(), "packet".to_owned()];
    let verdict = judge(&report, &Question { cost_per_mb: None, schemes });
    assert!(["none", "packet"].contains(&verdict.best.unwrap().scheme.as_str()));
}

#[test]
fn a_longer_delay_is_no_harm_if_fewer_are_dropped_and_a_shorter_one_no_gain() {
    let change = Change {
        scheme: "x".into(),
        link_bytes: (1000, 1000),
        saving: 0.0,
        goodput: 0.25,
        drops: (0.2, 0.0),
        dropped_packets: (200, 0),
        delay_ns: (50_000_000, 80_000_000),
        delay_p99_ns: (0, 0),
        cpu_share: 0.0,
        cost_month: None,
    };
    assert!(change.harms().is_empty() && change.relieves() && !change.saves());
    let few = Change { dropped_packets: (20, 0), ..change.clone() };
    assert!(!few.relieves(), "twenty packets");
    let worse = Change { drops: (0.0, 0.0), goodput: 0.0, dropped_packets: (0, 0), ..change };
    assert_eq!(worse.harms().len(), 1);
    let better = Change { delay_ns: (80_000_000, 50_000_000), ..worse };
    assert!(better.harms().is_empty() && !better.relieves() && !better.saves());
    // A queue whose packets were dropped is short.
    let emptier = Change { drops: (0.5, 0.51), goodput: -0.02, ..better };
    assert!(emptier.harms().is_empty() && !emptier.relieves());
}
