//! Threads for what takes long: the link is served while they work.
//!
//! Each takes the next job of the peer that was given the least of their time. A context has one job at
//! a time, which its codec travels with, so that no order is lost whichever thread takes it.

use std::collections::HashMap;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use dwell_codec::{CodecError, CodecSpec, Compressor};
use dwell_confine::privilege;

use super::fair_queue::{FairQueue, Waiting};
use crate::config::THREADS_MAX;
use crate::io::clock::Clock;
use crate::io::poller::Waker;
use crate::node::{ContextJob, DecodeJob, Ticket};

/// Something that takes long.
#[derive(Debug)]
pub(super) enum Job {
    /// A packet or a block that is compressed without a context.
    Packet(Box<PacketJob>),
    /// A batch that is compressed in a context.
    Batch(Box<ContextJob>),
    /// A batch that is decoded in a context.
    Decode(Box<DecodeJob>),
}

/// A packet to be compressed. The buffers come back with the result and are used again.
#[derive(Debug)]
pub(super) struct PacketJob {
    pub(super) ticket: Ticket,
    pub(super) codec: CodecSpec,
    /// The expected time, in nanoseconds.
    pub(super) cost_ns: u64,
    pub(super) packet: Vec<u8>,
    /// The room for the result in a job, the result's bytes in an answer.
    pub(super) out: Vec<u8>,
    pub(super) result: Result<Option<usize>, ()>,
    pub(super) took_ns: u64,
}

impl Job {
    fn peer(&self) -> usize {
        match self {
            Self::Packet(job) => job.ticket.peer,
            Self::Batch(job) => job.ticket.peer,
            Self::Decode(job) => job.peer,
        }
    }

    fn cost_ns(&self) -> u64 {
        match self {
            Self::Packet(job) => job.cost_ns,
            Self::Batch(job) => job.cost_ns,
            Self::Decode(job) => job.cost_ns,
        }
    }

    /// Its peer sent what is the reason for it.
    fn is_imposed(&self) -> bool {
        matches!(self, Self::Decode(_))
    }

    /// Does it, and returns the processor time that it took, in nanoseconds.
    fn run(&mut self, compressors: &mut Compressors) -> u64 {
        let (start, began) = (Clock::thread_cpu_ns(), Clock::now());
        match self {
            Self::Packet(job) => {
                compressors.compress(job);
                job.took_ns = Clock::thread_cpu_ns() - start;
                job.took_ns
            }
            Self::Batch(job) => {
                job.run();
                job.took_ns = Clock::thread_cpu_ns() - start;
                job.elapsed_ns = Some(Clock::now().since_ns(began));
                job.took_ns
            }
            Self::Decode(job) => {
                job.run();
                job.took_ns = Clock::thread_cpu_ns() - start;
                job.took_ns
            }
        }
    }
}

/// The compressors of one thread.
#[derive(Default)]
struct Compressors(HashMap<CodecSpec, Result<Compressor, CodecError>>);

impl Compressors {
    fn compress(&mut self, job: &mut PacketJob) {
        let new = || Compressor::new(job.codec, None);
        job.result = match self.0.entry(job.codec).or_insert_with(new) {
            Ok(compressor) => compressor.compress(&job.packet, &mut job.out).map_err(|_| ()),
            Err(_) => Err(()),
        };
    }
}

/// What the threads have in common.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// For each thread: there is work for it, or nothing more to come.
    news: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    queue: FairQueue<Job>,
    /// The threads that wait for work. The one that began to wait last is the first to have some: what a context
    /// refers to is in the cache of the core that compressed its last batch.
    idle: Vec<usize>,
    is_over: bool,
}

impl Shared {
    /// For so many threads. Half of them at most decode what one peer sent: whoever can send batches that
    /// take long to decode has part of the machine, never all of it.
    fn new(threads_max: usize) -> Self {
        let queue = FairQueue::new(threads_max / 2);
        let state = State { queue, idle: Vec::with_capacity(threads_max), is_over: false };
        let news = std::iter::repeat_with(Condvar::new).take(threads_max).collect();
        Self { state: Mutex::new(state), news }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is ever half done while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be work for this thread.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, thread: usize) -> MutexGuard<'a, State> {
        state.idle.push(thread);
        while !state.is_over && state.idle.contains(&thread) {
            state = self.news[thread].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// What a thread does until the end.
    fn work(&self, thread: usize, finish: &Sender<Job>, waker: &Waker) {
        let mut compressors = Compressors::default();
        let mut state = self.lock();
        while !state.is_over {
            let Some(mut charged) = state.queue.pop() else {
                state = self.wait(state, thread);
                continue;
            };
            drop(state);
            // A job that is not given back would keep its context from ever going on. One that panics is given
            // back as it was made: as one that failed.
            let ran = catch_unwind(AssertUnwindSafe(|| charged.job.run(&mut compressors)));
            let took_ns = ran.unwrap_or(charged.charged_ns);
            let (job, charged) = charged.split();
            if finish.send(job).is_err() {
                return;
            }
            waker.wake();
            state = self.lock();
            state.queue.done(&charged, took_ns);
        }
    }
}

/// The threads. Each starts when there is work and none is idle.
#[derive(Debug)]
pub(super) struct Workers {
    waker: Waker,
    shared: Arc<Shared>,
    finish: Sender<Job>,
    done: Receiver<Job>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    /// Buffers for jobs with packets, and for their results.
    spare: Vec<(Vec<u8>, Vec<u8>)>,
    /// That a thread could not be started was said.
    has_failed: bool,
}

impl Workers {
    /// At most so many threads; as many as there are processors if that isn't said.
    pub(super) fn new(waker: Waker, threads_max: Option<NonZero<usize>>) -> Self {
        let (finish, done) = channel();
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads_max = threads_max.map_or_else(processors, NonZero::get).min(THREADS_MAX);
        Self {
            waker,
            shared: Arc::new(Shared::new(threads_max)),
            finish,
            done,
            threads: Vec::new(),
            threads_max,
            spare: Vec::new(),
            has_failed: false,
        }
    }

    /// Returns the number of threads that there may be.
    pub(super) fn threads_max(&self) -> usize {
        self.threads_max
    }

    fn start_one(&mut self) -> io::Result<()> {
        let (shared, finish, waker) =
            (Arc::clone(&self.shared), self.finish.clone(), self.waker.clone());
        let number = self.threads.len();
        let thread = std::thread::Builder::new().name("dwell-worker".into()).spawn(move || {
            if let Err(error) = privilege::give_up_all() {
                tracing::warn!("a thread that only computes keeps its privileges: {error}");
            }
            shared.work(number, &finish, &waker);
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// An empty job, with the buffers of an old one.
    pub(super) fn packet_job(
        &mut self,
        ticket: Ticket,
        codec: CodecSpec,
        cost_ns: u64,
    ) -> Box<PacketJob> {
        let (packet, out) = self.spare.pop().unwrap_or_default();
        Box::new(PacketJob { ticket, codec, cost_ns, packet, out, result: Ok(None), took_ns: 0 })
    }

    /// Hands a job over. Gives it back if there is no thread for it.
    pub(super) fn submit(&mut self, job: Job) -> Option<Job> {
        // Who was woken for another job is not among those that are idle.
        let all_are_busy = self.shared.lock().idle.is_empty();
        if all_are_busy && self.threads.len() < self.threads_max {
            let started = self.start_one();
            if let (Err(error), false) = (started, self.has_failed) {
                self.has_failed = true;
                tracing::warn!("cannot start a thread that compresses and decompresses: {error}");
            }
        }
        if self.threads.is_empty() {
            return Some(job);
        }
        let mut state = self.shared.lock();
        state.queue.push(Waiting {
            peer: job.peer(),
            cost_ns: job.cost_ns(),
            is_imposed: job.is_imposed(),
            job,
        });
        let thread = state.idle.pop();
        drop(state);
        if let Some(thread) = thread {
            self.shared.news[thread].notify_one();
        }
        None
    }

    /// A job that is done, if there is one.
    pub(super) fn finished(&mut self) -> Option<Job> {
        self.done.try_recv().ok()
    }

    /// Takes the buffers of a job back.
    pub(super) fn recycle(&mut self, job: PacketJob) {
        self.spare.push((job.packet, job.out));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.news.iter().for_each(Condvar::notify_one);
        for thread in self.threads.drain(..) {
            // It ends with the job that it is at.
            let _ = thread.join();
        }
    }
}
