//! Progress of a job of many runs, and the time that is left.

use std::time::{Duration, Instant};

use dwell_report::human;

use crate::terminal;

/// Before this has passed, a quiet progress says nothing; then it speaks this often.
const QUIET: Duration = Duration::from_secs(2);

/// Counts runs against a plan.
#[derive(Debug)]
pub struct Progress {
    runs: usize,
    done: usize,
    planned: Duration,
    planned_done: Duration,
    start: Instant,
    /// When it spoke last, or began; none if it speaks of each run.
    spoke: Option<Instant>,
}

impl Progress {
    /// Starts `runs` runs that are planned to take `planned` in all, and says so.
    pub fn new(runs: usize, planned: Duration) -> Self {
        terminal::note(&format!("{runs} runs, about {}", shown(planned)));
        Self { spoke: None, ..Self::quiet(runs, planned) }
    }

    /// The same for runs that are many and short, of which only the proportions are known: it
    /// says nothing at first, and then only now and then.
    pub fn quiet(runs: usize, planned: Duration) -> Self {
        let start = Instant::now();
        let planned_done = Duration::ZERO;
        Self { runs, done: 0, planned, planned_done, start, spoke: Some(start) }
    }

    /// A run is done that was thought to take so long; says what came of it.
    pub fn done(&mut self, planned: Duration, what: &str) {
        self.done += 1;
        self.planned_done += planned;
        if let Some(spoke) = &mut self.spoke {
            if spoke.elapsed() < QUIET {
                return;
            }
            *spoke = Instant::now();
        }
        let left = shown(left(self.start.elapsed(), self.planned_done, self.planned));
        let (done, runs) = (self.done, self.runs);
        terminal::note(&format!("[{done}/{runs}, {left} left] {what}"));
    }

    /// Says, where it is quiet and has said nothing for a while, how far it is: `under_way` is what is done of runs that are not over.
    pub fn goes_on(&mut self, under_way: Duration) {
        if self.spoke.is_none_or(|spoke| spoke.elapsed() < QUIET) {
            return;
        }
        self.spoke = Some(Instant::now());
        let planned_done = self.planned_done + under_way;
        let share = planned_done.as_secs_f64() / self.planned.as_secs_f64().max(1e-9);
        let left = shown(left(self.start.elapsed(), planned_done, self.planned));
        let (done, runs) = (self.done, self.runs);
        terminal::note(&format!("[{done}/{runs}, {:.0} %, {left} left]", share.min(1.0) * 100.0));
    }
}

/// Returns the time that the rest of the plan takes at the speed so far.
fn left(elapsed: Duration, planned_done: Duration, planned: Duration) -> Duration {
    let rest = planned.saturating_sub(planned_done);
    if planned_done.is_zero() {
        return rest;
    }
    rest.mul_f64(elapsed.as_secs_f64() / planned_done.as_secs_f64())
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => human::duration(seconds * 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_corrected_by_what_was() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(0), seconds(0), seconds(10)), seconds(10));
        assert_eq!(left(seconds(4), seconds(2), seconds(10)), seconds(16));
        assert_eq!(left(seconds(9), seconds(11), seconds(10)), seconds(0));
        assert_eq!([seconds(5), seconds(90)].map(shown), ["5 s", "1 min 30 s"]);
    }
}
