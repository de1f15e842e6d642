//! A writer for blocking transports. With [`threads`](crate::threads) the one module of this crate that
//! is not pure: it starts a thread, and reads only the clock that it is given.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use dwell_base::Instant;
use dwell_policy::rate::LinkReport;

use crate::compress::{Compressors, Job};
use crate::config::Config;
use crate::error::{AbortReason, ConfigError};
use crate::sender::Sender;
use crate::stats::SenderStats;

/// Writes a stream to a blocking transport, as a `TcpStream` is unless it was set otherwise; compresses
/// while the transport takes no more.
///
/// A thread of its own writes. While it is in the transport's `write`, the transport is busy; what
/// waits then is compressed by whoever calls [`Write::write`], or by that thread when it returns. Any
/// transport will do. (Asking the kernel instead how much it still holds, `TIOCOUTQ`, would need no
/// thread, but sockets, and nothing would compress while the one thread waits in `write`.)
///
/// For TCP on Linux set `TCP_NOTSENT_LOWAT` of the socket to [`Config::not_sent_len`], which holds for
/// blocking sockets too, and `TCP_NODELAY`: otherwise the kernel takes some megabytes before the first
/// `write` waits, and these go as they are. On other systems a small `SO_SNDBUF` does nearly the same.
///
/// [`BlockingStreamWriter::finish`] ends the stream. One that is dropped before is cut off, which its
/// receiver notices.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
///
/// use dwell_stream::{BlockingStreamWriter, Config, Limits, StreamReader};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let transport = TcpStream::connect(listener.local_addr()?)?;
/// transport.set_nodelay(true)?;
/// let (far, _) = listener.accept()?;
/// let reader = std::thread::spawn(move || {
///     let mut data = Vec::new();
///     StreamReader::new(far, Limits::default()).read_to_end(&mut data).map(|_| data)
/// });
///
/// let begin = std::time::Instant::now();
/// let clock = move || dwell_base::Instant::from_ns(begin.elapsed().as_nanos() as u64);
/// let text = b"Blocking sockets compress too. ".repeat(100_000);
/// let mut writer = BlockingStreamWriter::new(transport, &Config::default(), clock)?;
/// writer.write_all(&text)?;
/// let (transport, stats) = writer.finish()?;
/// transport.shutdown(std::net::Shutdown::Write)?;
///
/// assert_eq!(stats.accepted_bytes, text.len() as u64);
/// assert_eq!(reader.join().unwrap()?, text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockingStreamWriter<W, C> {
    shared: Arc<Shared>,
    clock: C,
    compressors: Compressors,
    thread: Option<JoinHandle<W>>,
}

impl<W, C> fmt::Debug for BlockingStreamWriter<W, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingStreamWriter").field("shared", &self.shared).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something has changed for the thread.
    work: Condvar,
    /// Something has changed for the application.
    room: Condvar,
}

#[derive(Debug)]
struct State {
    sender: Sender,
    /// True if the thread is in the transport's `write`, or is about to flush.
    is_writing: bool,
    /// The number of flushes that were asked for, and that are done.
    flushes: [u64; 2],
    /// True if the application has gone.
    is_dropped: bool,
    error: Option<io::Error>,
    is_over: bool,
}

impl Shared {
    fn new(sender: Sender) -> Self {
        let state = State {
            sender,
            is_writing: false,
            flushes: [0; 2],
            is_dropped: false,
            error: None,
            is_over: false,
        };
        Self { state: Mutex::new(state), work: Condvar::new(), room: Condvar::new() }
    }

    /// A panic of one side leaves nothing half done: compressing happens outside.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Returns the error of the transport: once as it was, later as a copy of its kind.
    fn check(&mut self) -> io::Result<()> {
        match self.error.take() {
            None if self.is_over && !self.sender.is_finished() => Err(over()),
            None => Ok(()),
            Some(error) => {
                self.error = Some(error.kind().into());
                Err(error)
            }
        }
    }
}

fn over() -> io::Error {
    io::Error::other("the thread that writes the stream has ended")
}

impl<W, C> BlockingStreamWriter<W, C>
where
    W: Write + Send + 'static,
    C: Fn() -> Instant + Clone + Send + 'static,
{
    /// Makes a writer at the beginning of its stream, and starts its thread. `clock` returns the time, for
    /// instance from a monotonic clock of the system.
    ///
    /// # Errors
    /// `InvalidInput` with a [`ConfigError`] if the configuration is not possible; another if the system
    /// can't start a thread.
    pub fn new(transport: W, config: &Config, clock: C) -> io::Result<Self> {
        let sender = Sender::new(config)
            .map_err(|error: ConfigError| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let shared = Arc::new(Shared::new(sender));
        let (theirs, time) = (Arc::clone(&shared), clock.clone());
        let write = move || {
            // The application must not wait for ever if the transport panics.
            let _over = Over(&theirs);
            theirs.write(transport, time)
        };
        let thread = std::thread::Builder::new().name("dwell-write".to_owned()).spawn(write)?;
        Ok(Self { shared, clock, compressors: Compressors::new(), thread: Some(thread) })
    }

    /// Ends the stream, waits until the transport has taken all, and gives the transport back with the
    /// counters. Then shut it down for writing.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn finish(mut self) -> io::Result<(W, SenderStats)> {
        self.shared.lock().sender.finish();
        self.end()
    }

    /// Gives the stream up: drops what waits, notifies the receiver of the reason, and gives the transport
    /// back.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn abort(mut self, reason: AbortReason) -> io::Result<(W, SenderStats)> {
        self.shared.lock().sender.abort(reason);
        self.end()
    }

    fn end(&mut self) -> io::Result<(W, SenderStats)> {
        self.shared.work.notify_all();
        let mut state = self.shared.lock();
        while !state.is_over {
            state = match state.sender.next_job((self.clock)()) {
                Some(job) => {
                    compress(&self.shared, (&mut self.compressors, &self.clock), state, job)
                }
                None => wait(&self.shared.room, state),
            };
        }
        state.check()?;
        let stats = state.sender.stats().clone();
        drop(state);
        let thread = self.thread.take().ok_or_else(over)?;
        Ok((thread.join().map_err(|_| over())?, stats))
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> SenderStats {
        self.shared.lock().sender.stats().clone()
    }

    /// Notes what the transport says of its link: see [`Sender::reported`].
    pub fn reported(&self, report: &LinkReport) {
        self.shared.lock().sender.reported((self.clock)(), report);
    }
}

/// Runs a job without the lock.
fn compress<'a>(
    shared: &'a Shared,
    (compressors, clock): (&mut Compressors, &impl Fn() -> Instant),
    state: MutexGuard<'a, State>,
    job: Job,
) -> MutexGuard<'a, State> {
    drop(state);
    let done = job.run(compressors, clock);
    let mut state = shared.lock();
    state.sender.done(done);
    shared.work.notify_all();
    state
}

/// Takes some of the bytes; waits as long as there is no room. Compresses a block, if one waits for a
/// transport that is busy.
impl<W, C> Write for BlockingStreamWriter<W, C>
where
    W: Write + Send + 'static,
    C: Fn() -> Instant + Clone + Send + 'static,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        loop {
            state.check()?;
            let taken = state.sender.accept(bytes);
            if taken > 0 || bytes.is_empty() {
                self.shared.work.notify_all();
                if state.is_writing
                    && let Some(job) = state.sender.next_job((self.clock)())
                {
                    let means = (&mut self.compressors, &self.clock);
                    drop(compress(&self.shared, means, state, job));
                }
                return Ok(taken);
            }
            state = match state.sender.next_job((self.clock)()) {
                Some(job) => {
                    compress(&self.shared, (&mut self.compressors, &self.clock), state, job)
                }
                None => wait(&self.shared.room, state),
            };
        }
    }

    /// Waits until the transport has taken all that was written, and flushes it.
    fn flush(&mut self) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.flushes[0] += 1;
        let flush = state.flushes[0];
        self.shared.work.notify_all();
        while state.flushes[1] < flush {
            state.check()?;
            state = match state.sender.next_job((self.clock)()) {
                Some(job) => {
                    compress(&self.shared, (&mut self.compressors, &self.clock), state, job)
                }
                None => wait(&self.shared.room, state),
            };
        }
        state.check()
    }
}

/// The thread ends after the `write` that it is in. Nobody waits for that, as it may be for ever.
impl<W, C> Drop for BlockingStreamWriter<W, C> {
    fn drop(&mut self) {
        self.shared.lock().is_dropped = true;
        self.shared.work.notify_all();
    }
}

/// Says that the thread has ended, however it did.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.room.notify_all();
    }
}

impl Shared {
    /// Writes until the stream has ended, or the application has gone; the thread's work.
    fn write<W: Write>(&self, mut transport: W, clock: impl Fn() -> Instant) -> W {
        let (mut compressors, mut piece) = (Compressors::new(), Vec::new());
        let mut state = self.lock();
        while !state.is_dropped && state.error.is_none() {
            piece.clear();
            piece.extend_from_slice(state.sender.wire(clock()));
            let flush = state.flushes[0];
            let is_flush = piece.is_empty() && state.sender.is_idle() && state.flushes[1] < flush;
            if !piece.is_empty() || is_flush {
                // It is with the transport now, which takes no more until it returns.
                state.sender.wrote(clock(), piece.len());
                state.sender.blocked(clock());
                state.is_writing = true;
                self.room.notify_all();
                drop(state);
                let written = match is_flush {
                    true => transport.flush(),
                    false => transport.write_all(&piece),
                };
                state = self.lock();
                state.is_writing = false;
                state.sender.unblocked();
                state.error = written.err();
                if is_flush {
                    state.flushes[1] = flush;
                }
                self.room.notify_all();
            } else if let Some(job) = state.sender.next_job(clock()) {
                state = compress(self, (&mut compressors, &clock), state, job);
            } else if state.sender.is_finished() {
                break;
            } else {
                state = wait(&self.work, state);
            }
        }
        drop(state);
        transport
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;
    use crate::strategy::Strategy;
    use crate::{Limits, StreamReader};

    /// A transport that takes a piece only when somebody asks for it.
    #[derive(Debug)]
    struct Rendezvous(SyncSender<Vec<u8>>);

    impl Write for Rendezvous {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    type Writer = BlockingStreamWriter<Rendezvous, fn() -> Instant>;

    fn pair(strategy: Strategy) -> (Writer, Receiver<Vec<u8>>) {
        let (pieces, wire) = sync_channel(0);
        let config = Config::new(strategy);
        let clock: fn() -> Instant = || Instant::ZERO;
        (BlockingStreamWriter::new(Rendezvous(pieces), &config, clock).unwrap(), wire)
    }

    fn restored(wire: &[u8]) -> io::Result<Vec<u8>> {
        let mut data = Vec::new();
        StreamReader::new(wire, Limits::default()).read_to_end(&mut data).map(|_| data)
    }

    /// What waits for a transport that blocks is compressed: it was not, and nobody was notified of that.
    #[test]
    fn what_waits_for_a_blocking_transport_is_compressed() {
        let data = b"Written to a transport that blocks. ".repeat(60_000);
        for strategy in [Strategy::Hull, Strategy::Mix, Strategy::All, Strategy::TcpComp] {
            let (mut writer, wire) = pair(strategy);
            let reader = std::thread::Builder::new();
            let reader = reader.spawn(move || wire.into_iter().flatten().collect::<Vec<u8>>());
            let reader = reader.unwrap();
            writer.write_all(&data).unwrap();
            writer.flush().unwrap();
            writer.write_all(b"And the end.").unwrap();
            let (transport, stats) = writer.finish().unwrap();
            drop(transport);
            let wire = reader.join().unwrap();
            assert_eq!(stats.wire_bytes, wire.len() as u64, "{strategy}");
            let got = restored(&wire).unwrap();
            assert!(got.strip_suffix(b"And the end.") == Some(&data[..]), "{strategy}");
            assert!(strategy == Strategy::Mix || stats.compressed_bytes > 0, "{strategy}");
        }
    }

    /// Nobody reads before the buffer is full, so that all but the first block can be compressed.
    #[test]
    fn the_application_compresses_while_the_thread_writes() {
        for strategy in [Strategy::Hull, Strategy::Mix] {
            let (mut writer, wire) = pair(strategy);
            let data = b"Nobody reads yet. ".repeat(50_000);
            let tried = |writer: &Writer| -> u64 {
                writer.stats().by_codec.values().map(|codec| codec.blocks).sum()
            };
            // At the latest when there is no room left.
            let mut pieces = data.chunks(32 << 10);
            while tried(&writer) == 0 {
                writer.write_all(pieces.next().unwrap()).unwrap();
            }
            drop(wire);
            assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn what_the_transport_fails_with_is_reported() {
        let (mut writer, wire) = pair(Strategy::Hull);
        drop(wire);
        // It may all have been taken before the thread began.
        let error = writer.write_all(&[7; 2 << 20]).and_then(|()| writer.flush()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(writer.flush().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_stream_that_is_dropped_is_cut_off_and_one_that_is_given_up_says_so() {
        let (writer, wire) = pair(Strategy::Hull);
        drop(writer);
        let wire: Vec<u8> = wire.into_iter().flatten().collect();
        assert_eq!(restored(&wire).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (writer, wire) = pair(Strategy::Hull);
        let reader = std::thread::Builder::new();
        let reader = reader.spawn(move || wire.into_iter().flatten().collect::<Vec<u8>>()).unwrap();
        writer.abort(AbortReason::Reset).unwrap();
        let error = restored(&reader.join().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn a_configuration_that_is_not_possible_is_refused() {
        let config = Config { block_len: 5, ..Config::default() };
        let writer = BlockingStreamWriter::new(io::sink(), &config, || Instant::ZERO);
        assert_eq!(writer.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
