//! How soon contexts that pick their codec follow what changes, in virtual time with a modelled processor.

#[path = "../examples/modelled/mod.rs"]
mod modelled;
#[path = "../examples/timelines/run.rs"]
mod run;

use run::{Content, PHASES, Phase, Seen};

/// What is shown, without the fastest links: so much is really compressed.
fn seen() -> Vec<Seen> {
    let phases: Vec<Phase> = PHASES.into_iter().filter(|phase| phase.mbit <= 10).collect();
    run::run(&phases, 1.0, 1).expect("the net comes to rest")
}

#[test]
fn what_is_carried_converges_soon_after_each_step() {
    let all = seen();
    for it in &all {
        assert!(it.first_second > 0.4, "{}: {}", it.phase.what, it.first_second);
        assert!(it.windows.iter().any(|&bps| bps > 0.0), "{}", it.phase.what);
        let converged_ms = it.converged_ms.expect("it converges");
        assert!(converged_ms <= 1_000, "{}: {converged_ms} ms, {:?}", it.phase.what, it.codecs);
        assert!(it.codecs.len() <= 2, "{}: {:?}", it.phase.what, it.codecs);
        // What can't be compressed has all of the link, and what can be, more.
        let least = if it.phase.content == Content::Noise { 0.85 } else { 2.0 };
        let most_mbit = (it.phase.mbit as f64).min(it.phase.offered_mbit as f64 / 2.0);
        assert!(it.mbit >= least * most_mbit, "{}: {} Mbit/s, {:?}", it.phase.what, it.mbit, all);
    }
    assert!(run::taken_up(&all).keys().any(|codec| codec.starts_with("ppm")), "{all:?}");
}
