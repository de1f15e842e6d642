//! The threads that compress: few, shared by all streams, and less urgent than those that move
//! bytes. So a stream that is compressed heavily takes turns with the others, a block each, and
//! never holds up one that has nothing to compress.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use dwell_stream::{Compressors, Done, Job};
use tokio::sync::oneshot;

use crate::clock;

/// More threads would only take turns.
const THREADS_MAX: usize = 16;
/// The difference of the threads' niceness to the rest of the process.
const NICENESS: i32 = 5;

/// A job, and who waits for it.
type Order = (Job, oneshot::Sender<Done>);

/// Hands jobs to the threads, in the order they come. Each stream has one job here at most, which
/// bounds the queue. The threads end with it.
///
/// Those that take a twentieth of a second have threads of their own, half as many: the others would wait behind them, and
/// the system lets both take turns.
#[derive(Debug)]
pub(crate) struct CompressorPool {
    usual: Arc<Shared>,
    slow: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    orders: VecDeque<Order>,
    over: bool,
}

impl CompressorPool {
    /// With a thread for each processor.
    pub(crate) fn new() -> io::Result<Self> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self::with(threads.min(THREADS_MAX), NICENESS)
    }

    /// For one stream, which has one job at a time: on threads that took turns, the codec's tables would be in no cache. The
    /// other threads only move what this one has made, so that it is no less urgent.
    pub(crate) fn of_one_stream() -> io::Result<Self> {
        Self::with(1, 0)
    }

    fn with(threads: usize, niceness: i32) -> io::Result<Self> {
        let pool = Self { usual: Arc::default(), slow: Arc::default() };
        for (shared, threads) in [(&pool.usual, threads), (&pool.slow, threads.div_ceil(2))] {
            for _ in 0..threads {
                let shared = Arc::clone(shared);
                thread::Builder::new()
                    .name("dwell-compress".to_owned())
                    .spawn(move || shared.work(niceness))?;
            }
        }
        Ok(pool)
    }

    /// Has a job done. The receiver fails only if compressing panicked.
    pub(crate) fn submit(&self, job: Job) -> oneshot::Receiver<Done> {
        let (done, receiver) = oneshot::channel();
        let shared = if job.is_slow() { &self.slow } else { &self.usual };
        shared.lock().orders.push_back((job, done));
        shared.wake.notify_one();
        receiver
    }
}

impl Drop for CompressorPool {
    fn drop(&mut self) {
        for shared in [&self.usual, &self.slow] {
            shared.lock().over = true;
            shared.wake.notify_all();
        }
    }
}

impl Shared {
    /// Nothing panics while it is held, so that what a poisoned lock guards is in order.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Order> {
        let mut queue = self.lock();
        loop {
            if queue.over {
                return None;
            }
            if let Some(order) = queue.orders.pop_front() {
                return Some(order);
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, niceness: i32) {
        // Of this thread alone, as Linux has it. Refused or not: it only matters under load.
        if niceness != 0 {
            let _ = rustix::process::setpriority_process(None, niceness);
        }
        let mut compress = Compressors::new();
        while let Some((job, waiting)) = self.next() {
            if waiting.is_closed() {
                continue;
            }
            // A codec takes no longer for that this thread had to wait: who gave the job away counts that.
            let run = AssertUnwindSafe(|| job.run(&mut compress, clock::thread_cpu));
            match catch_unwind(run) {
                // The stream may have ended meanwhile.
                Ok(done) => drop(waiting.send(done)),
                Err(_) => {
                    tracing::error!("a compressor panicked: its stream is given up");
                    compress = Compressors::new();
                }
            }
        }
    }
}
