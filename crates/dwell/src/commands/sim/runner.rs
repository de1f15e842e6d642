//! Running what is not done yet, on several cores.
//!
//! Which thread runs what and when makes no difference to any result.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use dwell_sim::results::{Run, RunRecord, Store, Task};
use dwell_trace::replay::simulated;

use super::directory::Journal;
use crate::commands::interrupt::stop_flag;
use dwell_cli::progress::Progress;
use dwell_cli::terminal;

/// The end of a number of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// Runs that failed.
    pub(super) failed: usize,
    /// The user wanted it to stop.
    pub(super) is_interrupted: bool,
}

/// Returns the default number of jobs: that of the processors.
pub(super) fn jobs_default() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Does all runs that the store does not have yet. What is finished is in the journal at once.
pub(super) fn run(
    tasks: &[Task<'_>],
    jobs: usize,
    code: &str,
    store: &mut Store,
    journal: &mut Journal,
) -> anyhow::Result<Ended> {
    let mut open = Run::all(tasks, code);
    let all = open.len();
    open.retain(|run| !store.has(run));
    let known = all - open.len();
    if known > 0 {
        terminal::note(&format!("{known} of {all} runs are done already"));
    }
    // Long runs first, so that no core is left alone with one at the end.
    open.sort_by(|a, b| b.task.effort().total_cmp(&a.task.effort()));
    let stop = stop_flag()?;
    let total: f64 = open.iter().map(|run| run.task.effort()).sum();
    let mut progress = Progress::quiet(open.len(), Duration::from_secs_f64(total));
    let mut ended = Ended::default();
    in_parallel(&open, jobs, &stop, |news| {
        let (run, result) = match news {
            News::UnderWay(effort) => {
                progress.goes_on(Duration::from_secs_f64(effort));
                return Ok(());
            }
            News::Over(run, result) => (run, result),
        };
        match result {
            Ok(record) => {
                journal.append(&record)?;
                store.put(record);
            }
            Err(message) => {
                ended.failed += 1;
                terminal::complain("dwell", &format!("{}: {message}", what(&run.task)));
            }
        }
        progress.done(Duration::from_secs_f64(run.task.effort()), &what(&run.task));
        Ok(())
    })?;
    ended.is_interrupted = stop.load(Ordering::Relaxed);
    Ok(ended)
}

type Result = std::result::Result<RunRecord, String>;

/// What is heard of runs.
enum News<'a> {
    /// A run is over.
    Over(&'a Run<'a>, Result),
    /// None was, for a while; of those that are not over, so much is done, as their efforts count it.
    UnderWay(f64),
}

/// How long nothing happens before it says how far it is.
const PAUSE: Duration = Duration::from_millis(500);

/// Gives each result to `take`, in this thread, as it comes, and how far it is while none does.
fn in_parallel(
    runs: &[Run<'_>],
    jobs: usize,
    stop: &AtomicBool,
    mut take: impl FnMut(News<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    // What is done of each run, in thousandths; nothing of those that are over.
    let done: Vec<AtomicU32> = runs.iter().map(|_| AtomicU32::new(0)).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, runs.len().max(1)) {
            let (sender, next, done) = (sender.clone(), &next, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(at) else { break };
                    let goes_on = |share: f64| {
                        done[at].store((share * 1e3) as u32, Ordering::Relaxed);
                        !stop.load(Ordering::Relaxed)
                    };
                    let Some(result) = simulated::run_while(run, goes_on) else { break };
                    done[at].store(0, Ordering::Relaxed);
                    // Nobody listens any more only if the other side has failed.
                    if sender.send((at, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            let taken = match receiver.recv_timeout(PAUSE) {
                Ok((at, result)) => take(News::Over(&runs[at], result)),
                Err(RecvTimeoutError::Timeout) => {
                    let of = |(run, done): (&Run<'_>, &AtomicU32)| {
                        run.task.effort() * f64::from(done.load(Ordering::Relaxed)) / 1e3
                    };
                    take(News::UnderWay(runs.iter().zip(&done).map(of).sum()))
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if taken.is_err() {
                stop.store(true, Ordering::Relaxed);
                return taken;
            }
        }
    })
}

/// Returns a run's name for people.
fn what(task: &Task<'_>) -> String {
    let values: Vec<String> =
        task.point.values.iter().map(|(key, value)| format!("{key}={}", value.shown())).collect();
    format!("{} {} seed {}", task.scenario.id, values.join(" "), task.seed)
}
