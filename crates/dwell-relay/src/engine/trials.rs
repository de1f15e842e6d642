//! A thread that tries codecs in time that nobody else wants.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use dwell_confine::privilege;
use rustix::process::setpriority_process;

use crate::io::clock::Clock;
use crate::io::poller::Waker;
use crate::node::CodecTrial;

/// Whatever serves packets comes first; but with the lowest priority of all nothing would ever be found where both
/// are busy.
const NICENESS: i32 = 10;

/// The thread and the channels to it. It starts with the first trial.
#[derive(Debug)]
pub(super) struct Trials {
    waker: Waker,
    jobs: Option<Sender<CodecTrial>>,
    finish: Sender<CodecTrial>,
    done: Receiver<CodecTrial>,
}

impl Trials {
    pub(super) fn new(waker: Waker) -> Self {
        let (finish, done) = channel();
        Self { waker, jobs: None, finish, done }
    }

    fn start(&mut self) -> io::Result<()> {
        let (jobs, work) = channel::<CodecTrial>();
        let (finish, waker) = (self.finish.clone(), self.waker.clone());
        // Nobody waits for it in the end: it ends after the trial that it is at, or with the process.
        std::thread::Builder::new().name("dwell-trials".into()).spawn(move || {
            // On Linux that is the calling thread's.
            if let Err(error) = setpriority_process(None, NICENESS) {
                tracing::debug!("trials of codecs have no lower priority: {error}");
            }
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("a thread that only computes keeps its privileges: {error}");
            }
            for mut trial in work {
                trial.run(Clock::thread_cpu_ns);
                if finish.send(trial).is_err() {
                    break;
                }
                waker.wake();
            }
        })?;
        self.jobs = Some(jobs);
        Ok(())
    }

    /// Hands a trial over. Gives it back if there is no thread for it.
    pub(super) fn submit(&mut self, trial: CodecTrial) -> Option<CodecTrial> {
        if self.jobs.is_none()
            && let Err(error) = self.start()
        {
            tracing::warn!("cannot start the thread that tries codecs: {error}");
        }
        let Some(jobs) = &self.jobs else { return Some(trial) };
        let refused = jobs.send(trial).err()?;
        // The thread is gone, by a fault that was reported: another one begins with the next trial.
        self.jobs = None;
        Some(refused.0)
    }

    /// A trial that is done, if there is one.
    pub(super) fn finished(&mut self) -> Option<CodecTrial> {
        self.done.try_recv().ok()
    }
}
