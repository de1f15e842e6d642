//! The results of Wang et al. for TCPComp that need no network: segments, efficiency, failures, the
//! factors of short units and the sweep of the target (sections 3.2.1, 4.3 and 4.5). Their data are
//! not ours; ours are in `data/`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dwell_base::Instant;
use dwell_codec::{CodecSpec, Compressor};
use dwell_stream::{Compressors, Config, Sender, SenderStats, Strategy};

const BOOK: &[u8] = include_bytes!("../../../data/text/book1.txt");
const ALICE: &[u8] = include_bytes!("../../../data/text/alice29.txt");
const FILM: &[u8] = include_bytes!("../../../data/media/elf.webm");

/// Sends data over a transport that takes everything at once.
fn send(config: &Config, data: &[u8]) -> SenderStats {
    let mut sender = Sender::new(config).unwrap();
    let (mut compressors, now, mut rest) = (Compressors::new(), Instant::ZERO, data);
    while !sender.is_finished() {
        rest = &rest[sender.accept(rest)..];
        if rest.is_empty() {
            sender.finish();
        }
        while !sender.wire(now).is_empty() {
            let len = sender.wire(now).len();
            sender.wrote(now, len);
        }
        sender.compress(&mut compressors, || now);
    }
    sender.stats().clone()
}

fn stats(strategy: Strategy, data: &[u8]) -> SenderStats {
    send(&Config::new(strategy), data)
}

/// The 95 % confidence interval of the mean factor of units of 1446 bytes.
fn interval(data: &[u8]) -> (f64, f64) {
    let mut compressor = Compressor::new("deflate:6".parse::<CodecSpec>().unwrap(), None).unwrap();
    let mut dst = vec![0; 3000];
    let factors: Vec<f64> = data
        .chunks_exact(1446)
        .take(10_000)
        .map(|unit| 1446.0 / compressor.compress(unit, &mut dst).unwrap().unwrap() as f64)
        .collect();
    let n = factors.len() as f64;
    let mean = factors.iter().sum::<f64>() / n;
    let variance = factors.iter().map(|f| (f - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = 1.96 * (variance / n).sqrt();
    (mean - half, mean + half)
}

/// Table 1: text has factors above 1.5, films and sound have factors below 1.2.
#[test]
fn short_units_of_text_have_a_factor_above_one_and_a_half() {
    for text in [BOOK, ALICE] {
        let (low, high) = interval(text);
        assert!(low > 1.5 && high < 2.5, "{low} to {high}");
    }
    let (low, high) = interval(FILM);
    assert!(low > 0.98 && high < 1.2, "{low} to {high}");
}

/// Figures 6 and 7: about 43 % fewer segments than TCP and than the kernel-level scheme, and a
/// little more efficient than the latter.
#[test]
fn text_takes_some_two_fifths_fewer_segments() {
    let tcpcomp = stats(Strategy::TcpComp, BOOK);
    let kernel = stats(Strategy::KernelLevel, BOOK);
    let plain = stats(Strategy::Plain, BOOK);
    let fewer = |than: &SenderStats| 1.0 - tcpcomp.segments as f64 / than.segments as f64;
    assert!((0.38..0.55).contains(&fewer(&plain)), "{}", fewer(&plain));
    assert!(fewer(&kernel) >= fewer(&plain), "{}", fewer(&kernel));
    assert!(kernel.segments >= plain.segments);
    assert!(tcpcomp.efficiency() > kernel.efficiency());
    assert!(tcpcomp.efficiency() > 1.7 && plain.efficiency() == 1.0);
}

/// Figure 12, and section 3.2.2: back-off saves nearly all of the futile attempts.
#[test]
fn films_are_hardly_tried() {
    let film = FILM.repeat(8);
    let with = stats(Strategy::TcpComp, &film);
    let mut config = Config::new(Strategy::TcpComp);
    config.tcpcomp.backoff = false;
    let without = send(&config, &film);
    assert!(with.failures * 10 < without.failures, "{} of {}", with.failures, without.failures);
    // Some parts of films can be compressed a little: the back-off misses these.
    assert!(with.efficiency() > 0.99 * without.efficiency());
}

/// Section 4.3: segments and failures fall and the efficiency rises until the target is close to
/// the segment, and then the reverse.
#[test]
fn the_best_target_is_a_little_less_than_a_segment() {
    let at = |target_len: usize| {
        let mut config = Config::new(Strategy::TcpComp);
        config.tcpcomp.target_len = target_len;
        send(&config, BOOK)
    };
    let sweep: Vec<(usize, SenderStats)> =
        (100..=1600).step_by(50).map(|target| (target, at(target))).collect();
    let (best, _) = sweep.iter().min_by_key(|(_, stats)| stats.segments).unwrap();
    assert!((1100..=1450).contains(best), "{best}");
    let efficiency =
        |target: usize| sweep.iter().find(|(at, _)| *at == target).unwrap().1.efficiency();
    assert!(efficiency(100) < efficiency(500) && efficiency(500) < efficiency(1000));
}

#[test]
#[ignore = "prints the sweep of section 4.3 and the figures of section 4.5"]
#[allow(clippy::disallowed_macros, reason = "asked for by name")]
fn print_the_figures() {
    for (name, data) in [("book1", BOOK), ("alice29", ALICE), ("film", FILM)] {
        let (low, high) = interval(data);
        println!("{name}: factor {low:.4} to {high:.4}");
        for strategy in [Strategy::TcpComp, Strategy::KernelLevel, Strategy::Plain] {
            let s = stats(strategy, data);
            let (segments, efficiency, failures) = (s.segments, s.efficiency(), s.failures);
            println!("  {strategy}: {segments} segments, {efficiency:.3}, {failures} failures");
        }
        for target_len in (100..=1600).step_by(100) {
            let mut config = Config::new(Strategy::TcpComp);
            config.tcpcomp.target_len = target_len;
            let s = send(&config, data);
            println!("  {target_len}: {} {:.3} {}", s.segments, s.efficiency(), s.failures);
        }
    }
}
