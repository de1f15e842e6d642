//! The pair over streams of the standard library's kind.
//!
//! Both are meant for non-blocking ones, and do with blocking ones. For writing to those
//! [`BlockingStreamWriter`](crate::BlockingStreamWriter) does better, as it compresses while it waits.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use dwell_base::Instant;
use dwell_policy::rate::LinkReport;

use crate::compress::{Compressors, Decompressors};
use crate::config::Config;
use crate::error::{AbortReason, ConfigError, StreamError};
use crate::receiver::{Limits, Receiver};
use crate::sender::Sender;
use crate::stats::{ReceiverStats, SenderStats};

/// The bytes that a read asks of a transport at once.
const READ_LEN: usize = 64 << 10;
/// A write that takes this long, in nanoseconds, has waited in a transport that blocks: copying a block takes
/// a tenth of it.
const WAITED_NS: u64 = 1_000_000;

/// The event that a [`StreamWriter`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The transport must become writable before anything more can be sent.
    Writable,
    /// The application must write more, or the stream has ended.
    Nothing,
}

/// Writes a stream to a non-blocking transport; compresses while the transport takes no more.
///
/// A blocking transport never says that it takes no more. A write to one that takes long is taken for that: it was
/// full, and is nearly so still, so that what waits then is compressed
/// ([`StreamWriter::has_waited`]). Nothing is compressed during that write, so that
/// [`BlockingStreamWriter`](crate::BlockingStreamWriter) carries more; and what the kernel takes before it makes
/// anybody wait goes as it is: set `TCP_NOTSENT_LOWAT` to [`Config::not_sent_len`].
///
/// It is also a [`Write`] for whatever takes one: what is written then may wait here until it is flushed.
///
/// `clock` returns the time, for instance from a monotonic clock of the system.
#[derive(Debug)]
pub struct StreamWriter<W, C> {
    transport: W,
    clock: C,
    sender: Sender,
    compressors: Compressors,
    has_waited: bool,
}

/// The outcome of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// All that there was.
    All,
    /// Until the transport refused.
    Refused,
    /// The transport has taken it, but only after a wait.
    Waited,
}

impl<W: Write, C: FnMut() -> Instant> StreamWriter<W, C> {
    /// Makes a writer at the beginning of its stream.
    ///
    /// # Errors
    /// If the configuration is not possible.
    pub fn new(transport: W, config: &Config, clock: C) -> Result<Self, ConfigError> {
        let (sender, compressors) = (Sender::new(config)?, Compressors::new());
        Ok(Self { transport, clock, sender, compressors, has_waited: false })
    }

    /// Takes as many bytes as there is room for, returns their number, and sends and compresses. If
    /// not all bytes are taken, wait until the transport is writable, and write the rest.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.sender.accept(bytes);
        self.pump()?;
        // Compressing and sending has made room.
        while taken < bytes.len() && self.sender.room() > 0 {
            taken += self.sender.accept(&bytes[taken..]);
            self.pump()?;
        }
        Ok(taken)
    }

    /// Announces the end after the data that wait: no more will be written. Then
    /// [`StreamWriter::pump`]
    /// until [`StreamWriter::is_finished`], and shut the transport down for writing.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Gives the stream up; as [`StreamWriter::finish`], but what waits is dropped.
    pub fn abort(&mut self, reason: AbortReason) {
        self.sender.abort(reason);
    }

    /// Sends and compresses until there is nothing more to do without waiting. With a transport that
    /// blocks, until it has taken everything.
    ///
    /// # Errors
    /// Those of the transport; `WriteZero` if it takes nothing and does not say why.
    pub fn pump(&mut self) -> io::Result<Wait> {
        loop {
            let sent = self.send()?;
            if sent == Sent::All {
                self.sender.unblocked();
            }
            let has_compressed = self.compress();
            match sent {
                // It is full, and does not say when it has room: whatever it carries meanwhile gives the
                // time for all that waits.
                Sent::Waited => while self.compress() {},
                Sent::All if !has_compressed => return Ok(Wait::Nothing),
                Sent::Refused if !has_compressed => return Ok(Wait::Writable),
                _ => {}
            }
        }
    }

    fn compress(&mut self) -> bool {
        self.sender.compress(&mut self.compressors, &mut self.clock).is_some()
    }

    /// Sends until the transport refuses, or has taken something only after a wait.
    fn send(&mut self) -> io::Result<Sent> {
        loop {
            let begin = (self.clock)();
            let wire = self.sender.wire(begin);
            if wire.is_empty() {
                return Ok(Sent::All);
            }
            let wanted = wire.len();
            match self.transport.write(wire) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    let end = (self.clock)();
                    self.sender.wrote(end, len);
                    let waited = end.since_ns(begin) >= WAITED_NS;
                    if len < wanted || waited {
                        self.has_waited |= waited;
                        self.sender.blocked(end);
                        return Ok(if len < wanted && !waited {
                            Sent::Refused
                        } else {
                            Sent::Waited
                        });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.sender.blocked((self.clock)());
                    return Ok(Sent::Refused);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns true if a write has waited in the transport, which so seems to block.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns true if the transport has taken everything that was written.
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Returns true if the transport has taken the end.
    pub fn is_finished(&self) -> bool {
        self.sender.is_finished()
    }

    /// Returns the most bytes that the transport should hold unsent: see [`Sender::not_sent_len`].
    pub fn not_sent_len(&self) -> u32 {
        self.sender.not_sent_len()
    }

    /// Sets the most bytes that the transport holds: see [`Sender::transport_holds`].
    pub fn transport_holds(&mut self, len: u32) {
        self.sender.transport_holds(len);
    }

    /// Notes what the transport says of its link: see [`Sender::reported`].
    pub fn reported(&mut self, report: &LinkReport) {
        self.sender.reported((self.clock)(), report);
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &SenderStats {
        self.sender.stats()
    }

    /// Returns the transport, for instance to wait for it.
    pub fn transport(&self) -> &W {
        &self.transport
    }

    /// Gives the transport back.
    pub fn into_transport(self) -> W {
        self.transport
    }
}

/// Takes what there is room for; `WouldBlock` if there is none before the transport takes something. Flushing
/// sends all of it; `WouldBlock` as long as the transport does not take it.
impl<W: Write, C: FnMut() -> Instant> Write for StreamWriter<W, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Self::write(self, bytes)? {
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.pump()? {
            Wait::Writable => Err(ErrorKind::WouldBlock.into()),
            Wait::Nothing => self.transport.flush(),
        }
    }
}

/// Reads a stream from a transport, blocking or not.
#[derive(Debug)]
pub struct StreamReader<R> {
    transport: R,
    intake: Intake,
}

impl<R: Read> StreamReader<R> {
    /// Makes a reader at the beginning of its stream.
    pub fn new(transport: R, limits: Limits) -> Self {
        Self::with_receiver(transport, Receiver::new(limits))
    }

    /// Makes a reader with a receiver that was made otherwise.
    pub fn with_receiver(transport: R, receiver: Receiver) -> Self {
        Self { transport, intake: Intake::new(receiver) }
    }

    /// Returns true if the whole stream was read.
    pub fn is_finished(&self) -> bool {
        self.intake.receiver.is_finished() && self.intake.receiver.data().is_empty()
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &ReceiverStats {
        self.intake.receiver.stats()
    }

    /// Returns the transport, for instance to wait for it.
    pub fn transport(&self) -> &R {
        &self.transport
    }
}

/// Gives restored data; zero bytes only after the stream's own end. A stream that is damaged gives
/// `InvalidData`, one that was cut off `UnexpectedEof`, both with a [`StreamError`] inside.
impl<R: Read> Read for StreamReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        self.fill_buf()?;
        Ok(self.intake.receiver.take(out))
    }
}

/// Gives restored data where they are, without another buffer.
impl<R: Read> BufRead for StreamReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while !self.intake.restore()? {
            let len = self.transport.read(self.intake.room())?;
            self.intake.was_read(len)?;
            if len == 0 {
                break;
            }
        }
        Ok(self.intake.receiver.data())
    }

    fn consume(&mut self, len: usize) {
        self.intake.receiver.consume(len);
    }
}

/// A receiver, and what was read for it.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) receiver: Receiver,
    decompressors: Decompressors,
    buf: Vec<u8>,
    /// The part of `buf` that was not fed yet: from `fed` to `filled`.
    fed: usize,
    filled: usize,
}

impl Intake {
    pub(crate) fn new(receiver: Receiver) -> Self {
        let buf = vec![0; READ_LEN];
        Self { receiver, decompressors: Decompressors::new(), buf, fed: 0, filled: 0 }
    }

    /// Restores data that were read. Returns true if there are data for the application, or nothing
    /// more will come.
    pub(crate) fn restore(&mut self) -> io::Result<bool> {
        while self.fed < self.filled {
            let bytes = &self.buf[self.fed..self.filled];
            self.fed += self.receiver.feed(bytes, &mut self.decompressors).map_err(invalid)?;
            if self.has_some() {
                break;
            }
        }
        Ok(self.has_some())
    }

    fn has_some(&self) -> bool {
        !self.receiver.data().is_empty() || self.receiver.is_finished()
    }

    /// Returns the place for what is read next.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buf
    }

    /// Notes that so many bytes were read to that place; none at the end of the transport.
    pub(crate) fn was_read(&mut self, len: usize) -> io::Result<()> {
        (self.fed, self.filled) = (0, len);
        if len == 0 {
            self.receiver.end().map_err(invalid)?;
        }
        Ok(())
    }
}

#[cfg(any(feature = "tokio", feature = "futures"))]
impl Intake {
    /// Reads until there are data, or nothing more will come; pending while the transport has nothing.
    pub(crate) fn poll_fill(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> std::task::Poll<io::Result<usize>>,
    ) -> std::task::Poll<io::Result<()>> {
        while !self.restore()? {
            let len = std::task::ready!(read(self.room()))?;
            self.was_read(len)?;
            if len == 0 {
                break;
            }
        }
        std::task::Poll::Ready(Ok(()))
    }
}

/// Converts an error of the stream to one of reading.
fn invalid(error: StreamError) -> io::Error {
    let kind = match error {
        StreamError::Truncated => ErrorKind::UnexpectedEof,
        StreamError::Aborted(_) => ErrorKind::ConnectionAborted,
        _ => ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::strategy::Strategy;

    /// A transport that takes little at a time, and nothing each second time.
    #[derive(Debug, Default)]
    struct Narrow {
        got: Vec<u8>,
        turn: bool,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.turn = !self.turn;
            if !self.turn {
                return Err(ErrorKind::WouldBlock.into());
            }
            let len = bytes.len().min(700);
            self.got.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(strategy: Strategy, data: &[u8]) -> Vec<u8> {
        let clock = || Instant::ZERO;
        let mut writer =
            StreamWriter::new(Narrow::default(), &Config::new(strategy), clock).unwrap();
        let mut rest = data;
        while !writer.is_finished() {
            rest = &rest[writer.write(rest).unwrap()..];
            if rest.is_empty() {
                writer.finish();
            }
            writer.pump().unwrap();
        }
        writer.into_transport().got
    }

    #[test]
    fn what_is_written_can_be_read() {
        let data = b"Written in pieces, read in pieces. ".repeat(20_000);
        for strategy in Strategy::ALL {
            let wire = written(strategy, &data);
            let receiver = match strategy {
                Strategy::Plain => Receiver::plain(Limits::default()),
                _ => Receiver::new(Limits::default()),
            };
            let mut reader = StreamReader::with_receiver(&wire[..], receiver);
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            assert!(got == data, "{strategy}");
        }
    }

    /// A transport that blocks: it holds some bytes, and makes whoever writes more wait until its link has
    /// carried as many.
    #[derive(Debug)]
    struct Blocking {
        got: Vec<u8>,
        now_ns: Rc<Cell<u64>>,
        /// The time at which it is empty.
        empty_ns: u64,
    }

    impl Blocking {
        /// 8 Mbit/s.
        const NS_PER_BYTE: u64 = 1000;
        const HELD: u64 = 128 << 10;
    }

    impl Write for Blocking {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let now = self.now_ns.get();
            self.empty_ns = self.empty_ns.max(now) + bytes.len() as u64 * Self::NS_PER_BYTE;
            let room_at = self.empty_ns.saturating_sub(Self::HELD * Self::NS_PER_BYTE);
            self.now_ns.set(now.max(room_at));
            self.got.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// All went as it was, and nobody was notified of that.
    #[test]
    fn a_transport_that_blocks_is_noticed() {
        let data = b"Written to a transport that makes its writer wait. ".repeat(40_000);
        for strategy in [Strategy::Hull, Strategy::Mix] {
            let now_ns = Rc::new(Cell::new(0));
            let empty_ns = 0;
            let transport = Blocking { got: Vec::new(), now_ns: Rc::clone(&now_ns), empty_ns };
            let clock = || {
                // Compressing takes some time, too.
                now_ns.set(now_ns.get() + 20_000);
                Instant::from_ns(now_ns.get())
            };
            let mut writer = StreamWriter::new(transport, &Config::new(strategy), clock).unwrap();
            writer.write_all(&data).unwrap();
            writer.flush().unwrap();
            assert!(writer.has_waited() && writer.is_idle(), "{strategy}");
            writer.finish();
            assert_eq!(writer.pump().unwrap(), Wait::Nothing);
            let wire = writer.into_transport().got;
            assert!(wire.len() < data.len() / 2, "{strategy}: {} bytes", wire.len());
            let mut got = Vec::new();
            StreamReader::new(&wire[..], Limits::default()).read_to_end(&mut got).unwrap();
            assert!(got == data, "{strategy}");
        }
    }

    /// With a transport that does not block it is the writer that says so.
    #[test]
    fn flushing_ends_when_the_transport_has_all() {
        let clock = || Instant::ZERO;
        let config = Config::default();
        let mut writer = StreamWriter::new(Narrow::default(), &config, clock).unwrap();
        let (mut rest, mut refused) = (&[b'y'; 400_000][..], 0);
        while !rest.is_empty() {
            match Write::write(&mut writer, rest) {
                Ok(taken) => rest = &rest[taken..],
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    refused += 1;
                }
            }
        }
        while let Err(error) = writer.flush() {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            refused += 1;
        }
        assert!(writer.is_idle() && refused > 0 && !writer.has_waited());
    }

    #[test]
    fn lines_are_read_without_another_buffer() {
        let wire = written(Strategy::Hull, b"one\ntwo\nand three");
        let reader = StreamReader::new(&wire[..], Limits::default());
        let lines: Vec<String> = reader.lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["one", "two", "and three"]);
    }

    #[test]
    fn a_stream_that_was_cut_off_is_an_error_of_its_kind() {
        let wire = written(Strategy::Hull, &[b'x'; 100_000]);
        let mut reader = StreamReader::new(&wire[..wire.len() - 1], Limits::default());
        let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let mut reader = StreamReader::new(&b"HTTP/1.1 400"[..], Limits::default());
        let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no dwell stream"), "{error}");
    }
}
