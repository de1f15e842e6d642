//! A thread for codecs that take long: the link is served while they work.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use dwell_codec::{CodecError, CodecSpec, Compressor};
use dwell_confine::privilege;

use crate::io::clock::Clock;
use crate::io::poller::Waker;
use crate::node::{ContextJob, Ticket};

/// A packet for the worker. The buffers come back with the result and are used again.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) codec: Option<CodecSpec>,
    pub(crate) packet: Vec<u8>,
    /// The room for the result in a job, the result's bytes in an answer.
    pub(crate) out: Vec<u8>,
    pub(crate) result: Result<Option<usize>, ()>,
    /// Instead of all that: a batch to be compressed in a context.
    pub(crate) in_context: Option<ContextJob>,
    pub(crate) took_ns: u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            ticket: None,
            codec: None,
            packet: Vec::new(),
            out: Vec::new(),
            result: Ok(None),
            in_context: None,
            took_ns: 0,
        }
    }
}

/// The worker and the channel to it. Its thread starts with the first job.
#[derive(Debug)]
pub(crate) struct Worker {
    waker: Waker,
    jobs: Option<Sender<Job>>,
    finish: Sender<Job>,
    done: Receiver<Job>,
    spare: Vec<Job>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn new(waker: Waker) -> Self {
        let (finish, done) = channel();
        Self { waker, jobs: None, finish, done, spare: Vec::new(), thread: None }
    }

    fn start(&mut self) -> io::Result<()> {
        let (jobs, work) = channel::<Job>();
        let (finish, waker) = (self.finish.clone(), self.waker.clone());
        let thread =
            std::thread::Builder::new().name("dwell-compress".into()).spawn(move || {
                if let Err(error) = privilege::give_up_all() {
                    tracing::warn!("a thread that only computes keeps its privileges: {error}");
                }
                let mut compressors = HashMap::new();
                for mut job in work {
                    match &mut job.in_context {
                        Some(job) => run(job),
                        None => compress(&mut compressors, &mut job),
                    }
                    if finish.send(job).is_err() {
                        break;
                    }
                    waker.wake();
                }
            })?;
        (self.jobs, self.thread) = (Some(jobs), Some(thread));
        Ok(())
    }

    /// An empty job, with the buffers of an old one.
    pub(crate) fn spare(&mut self) -> Job {
        self.spare.pop().unwrap_or_default()
    }

    /// Hands a job over. False if there is no thread for it.
    pub(crate) fn submit(&mut self, job: Job) -> bool {
        if self.thread.is_none()
            && let Err(error) = self.start()
        {
            tracing::warn!("cannot start the worker thread: {error}");
        }
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Hands over a batch that is to be compressed in a context. Gives it back if there is no thread
    /// for it.
    pub(crate) fn submit_in_context(&mut self, job: ContextJob) -> Option<ContextJob> {
        if self.thread.is_none()
            && let Err(error) = self.start()
        {
            tracing::warn!("cannot start the worker thread: {error}");
        }
        let Some(jobs) = &self.jobs else { return Some(job) };
        let job = Job { in_context: Some(job), ..Job::default() };
        jobs.send(job).err().and_then(|refused| refused.0.in_context)
    }

    /// A job that is done, if there is one.
    pub(crate) fn finished(&mut self) -> Option<Job> {
        self.done.try_recv().ok()
    }

    /// Takes the buffers of a job back.
    pub(crate) fn recycle(&mut self, job: Job) {
        self.spare.push(job);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It ends with the packet that it is at. A panic in it was reported already.
            let _ = thread.join();
        }
    }
}

fn run(job: &mut ContextJob) {
    let (start, began) = (Clock::thread_cpu_ns(), Clock::now());
    job.run();
    job.took_ns = Clock::thread_cpu_ns() - start;
    job.elapsed_ns = Some(Clock::now().since_ns(began));
}

fn compress(compressors: &mut HashMap<CodecSpec, Result<Compressor, CodecError>>, job: &mut Job) {
    let Some(codec) = job.codec else { return };
    let start = Clock::thread_cpu_ns();
    let compressor = compressors.entry(codec).or_insert_with(|| Compressor::new(codec, None));
    job.result = match compressor {
        Ok(compressor) => compressor.compress(&job.packet, &mut job.out).map_err(|_| ()),
        Err(_) => Err(()),
    };
    job.took_ns = Clock::thread_cpu_ns() - start;
}
