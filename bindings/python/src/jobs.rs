//! Work on several threads without the interpreter, which may interrupt it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::failed;

/// The interpreter is asked this often whether the user wants to stop.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// The most threads.
const JOBS_MAX: usize = 1024;

/// Returns the number of threads: that of the processors, if none is given.
pub(crate) fn count(jobs: Option<usize>) -> PyResult<usize> {
    match jobs {
        None => Ok(thread::available_parallelism().map_or(1, usize::from)),
        Some(jobs @ 1..=JOBS_MAX) => Ok(jobs),
        Some(other) => {
            Err(PyValueError::new_err(format!("jobs must be from 1 to {JOBS_MAX}, not {other}")))
        }
    }
}

/// Does all tasks, and gives each result to `take`, in this thread, as it comes. A task returns none if
/// it noticed that it was to stop.
///
/// # Errors
/// What an interrupt (Ctrl-C) raises, and what `take` returns; tasks that have not begun then never do.
pub(crate) fn run<T: Sync, R: Send>(
    py: Python<'_>,
    tasks: &[T],
    jobs: usize,
    work: impl Fn(&T, &AtomicBool) -> Option<R> + Sync,
    mut take: impl FnMut(usize, R) -> PyResult<()> + Send,
) -> PyResult<()> {
    let (stop, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (stop, next, work) = (&stop, &next, &work);
    py.detach(move || {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
                let sender = sender.clone();
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(task) = tasks.get(at) else { break };
                        let Some(result) = work(task, stop) else { break };
                        if sender.send((at, result)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let taken = take_all(&receiver, &mut take);
            stop.store(true, Ordering::Relaxed);
            taken
        })
    })
}

/// Does one task without the interpreter, and returns its result; `what` it is stands in an error.
///
/// # Errors
/// What an interrupt (Ctrl-C) raises, and if the task gave no result.
pub(crate) fn once<R: Send>(
    py: Python<'_>,
    what: &str,
    work: impl Fn(&AtomicBool) -> Option<R> + Sync,
) -> PyResult<R> {
    let mut done = None;
    run(
        py,
        &[()],
        1,
        |(), stop| work(stop),
        |_, result| {
            done = Some(result);
            Ok(())
        },
    )?;
    done.ok_or_else(|| failed(format!("{what} broke off; this is a bug in dwell")))
}

fn take_all<R>(
    receiver: &mpsc::Receiver<(usize, R)>,
    take: &mut impl FnMut(usize, R) -> PyResult<()>,
) -> PyResult<()> {
    loop {
        match receiver.recv_timeout(ASKED_EVERY) {
            Ok((at, result)) => take(at, result)?,
            Err(mpsc::RecvTimeoutError::Timeout) => Python::attach(check_stop)?,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Asks whether the user wants to stop: signals reach the main thread, and engines tell their threads.
fn check_stop(py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    py.import("dwell.engines")?.call_method0("check_stop").map(drop)
}
