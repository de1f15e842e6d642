//! How soon contexts that pick their codec follow what changes, in virtual time with a modelled processor.

#[path = "../examples/modelled/mod.rs"]
mod modelled;
#[path = "../examples/timelines/run.rs"]
mod run;

use run::{Content, PHASES, Phase, Seen};

/// What is shown, without the fastest links: so much is really compressed.
fn seen() -> Vec<Seen> {
    let phases: Vec<Phase> = PHASES.into_iter().filter(|phase| phase.mbit <= 10).collect();
    run::run(&phases, "auto", 1.0, 1).expect("the net comes to rest")
}

#[test]
fn what_is_carried_converges_soon_after_each_step() {
    let all = seen();
    let slow: Vec<_> = all.iter().filter(|it| !is_as_wanted(it)).map(summary).collect();
    let everything: Vec<_> = all.iter().map(summary).collect();
    assert!(slow.is_empty(), "{slow:#?} of {everything:#?}");
    assert!(run::taken_up(&all).keys().any(|codec| codec.starts_with("ppm")), "{all:?}");
}

fn summary(it: &Seen) -> String {
    let Seen { phase, mbit, converged_ms, first_second, codecs, .. } = it;
    format!("{}: {mbit:.2} Mbit/s, {converged_ms:?} ms, {first_second:.2}, {codecs:?}", phase.what)
}

fn is_as_wanted(it: &Seen) -> bool {
    // Two of the steps take up a model of order 4 first, an eighth below what there is in the end, and have to use it for
    // a second or more.
    let is_soon = it.converged_ms.is_some_and(|ms| ms <= 2_250) && it.first_second > 0.4;
    // One, perhaps another that carries more, and one that is used for once and left again.
    let is_steady = it.codecs.len() <= 4;
    // What can't be compressed has all of the link, and what can be, more.
    let least = if it.phase.content == Content::Noise { 0.85 } else { 2.0 };
    let most_mbit = (it.phase.mbit as f64).min(it.phase.offered_mbit as f64 / 2.0);
    is_soon && is_steady && it.mbit >= least * most_mbit && it.windows.iter().any(|&bps| bps > 0.0)
}
