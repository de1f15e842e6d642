//! A thread that compresses, for the strategies with two threads: the one module of this crate that
//! is not pure. It starts a thread, and reads only the clock that it is given.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

use dwell_base::Instant;

use crate::compress::{Compressors, Done, Job};

/// The most jobs that the thread has at once: its present one, and the next. More would be started
/// long before they are needed.
const JOBS_MAX: usize = 2;

/// A thread with a [`Compressors`]. Dropping it ends the thread after the job it has.
///
/// The connection's own thread takes jobs from its sender
/// ([`Sender::next_job`](crate::Sender::next_job)) while [`Worker::has_room`] is true, passes them
/// to [`Worker::offer`], and gives back the results of [`Worker::take_done`]
/// ([`Sender::done`](crate::Sender::done)).
#[derive(Debug)]
pub struct Worker {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// The jobs that were taken and not given back.
    under_way: usize,
}

impl Worker {
    /// Starts the thread. It measures by `clock`, and calls `wake` after each job, so that the
    /// connection's thread can stop waiting (for instance by an eventfd).
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub fn start(
        clock: impl Fn() -> Instant + Send + 'static,
        wake: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, to_do) = sync_channel::<Job>(JOBS_MAX);
        let (give, done): (Sender<Done>, _) = channel();
        let work = move || {
            let mut compressors = Compressors::new();
            for job in to_do {
                let finished = job.run(&mut compressors, &clock);
                // The receiving side is gone only if nobody wants results any more.
                if give.send(finished).is_err() {
                    return;
                }
                wake();
            }
        };
        let thread = std::thread::Builder::new().name("dwell-compress".to_owned()).spawn(work)?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), under_way: 0 })
    }

    /// Returns true if it would take a job now: it has at most two.
    pub fn has_room(&self) -> bool {
        self.under_way < JOBS_MAX
    }

    /// Returns the number of jobs that were taken and not given back.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Gives it a job; returns the job if there is no room.
    ///
    /// # Errors
    /// The job, to be offered again later.
    pub fn offer(&mut self, job: Job) -> Result<(), Job> {
        let Some(jobs) = self.jobs.as_ref().filter(|_| self.has_room()) else { return Err(job) };
        match jobs.try_send(job) {
            Ok(()) => {
                self.under_way += 1;
                Ok(())
            }
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => Err(job),
        }
    }

    /// Returns a job that was done, if there is one.
    pub fn take_done(&mut self) -> Option<Done> {
        let done = self.done.try_recv().ok()?;
        self.under_way -= 1;
        Some(done)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It has panicked, or ended; either way there is nothing more to do.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Config, Decompressors, Limits, Receiver as StreamReceiver, Sender as StreamSender, Strategy,
    };

    #[test]
    fn a_thread_compresses_and_the_receiver_sorts() {
        let data = b"Two threads, one queue. ".repeat(100_000);
        for strategy in [Strategy::MixInOrder, Strategy::MixOutOfOrder, Strategy::All] {
            let now = Instant::ZERO;
            let (wake, woken) = channel();
            let mut worker = Worker::start(
                move || now,
                move || {
                    let _ = wake.send(());
                },
            )
            .unwrap();
            let mut sender = StreamSender::new(&Config::new(strategy)).unwrap();
            let mut receiver = StreamReceiver::new(Limits::default());
            let (mut decompressors, mut rest, mut got) =
                (Decompressors::new(), &data[..], Vec::new());
            while !sender.is_finished() {
                rest = &rest[sender.accept(rest)..];
                if rest.is_empty() {
                    sender.finish();
                }
                // A transport that refuses after each block.
                let len = receiver.feed(sender.wire(now), &mut decompressors).unwrap();
                sender.wrote(now, len);
                sender.blocked(now);
                got.extend_from_slice(receiver.data());
                receiver.consume(receiver.data().len());
                while worker.has_room()
                    && let Some(job) = sender.next_job(now)
                {
                    worker.offer(job).unwrap();
                }
                if worker.under_way() > 0 && got.len() % 3 != 0 {
                    woken.recv().unwrap();
                }
                while let Some(done) = worker.take_done() {
                    sender.done(done);
                }
            }
            receiver.end().unwrap();
            assert!(got == data, "{strategy}");
            assert!(sender.stats().compressed_blocks > 0, "{strategy}");
        }
    }
}
