//! The pair over non-blocking streams of the standard library's kind.
//!
//! The reader works with blocking streams too. A blocking transport is never found busy, so for writing to one
//! there is [`BlockingStreamWriter`](crate::BlockingStreamWriter).

use std::io::{self, ErrorKind, Read, Write};

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
/// A blocking one never says that it takes no more: nearly everything would go as it is. Use
/// [`BlockingStreamWriter`](crate::BlockingStreamWriter) for it.
///
/// `clock` returns the time, for instance from a monotonic clock of the system.
#[derive(Debug)]
pub struct StreamWriter<W, C> {
    transport: W,
    clock: C,
    sender: Sender,
    compressors: Compressors,
}

impl<W: Write, C: FnMut() -> Instant> StreamWriter<W, C> {
    /// Makes a writer at the beginning of its stream. Set the transport to non-blocking before.
    ///
    /// # Errors
    /// If the configuration is not possible.
    pub fn new(transport: W, config: &Config, clock: C) -> Result<Self, ConfigError> {
        Ok(Self { transport, clock, sender: Sender::new(config)?, compressors: Compressors::new() })
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

    /// Sends and compresses until there is nothing more to do without waiting.
    ///
    /// # Errors
    /// Those of the transport; `WriteZero` if it takes nothing and does not say why.
    pub fn pump(&mut self) -> io::Result<Wait> {
        loop {
            let busy = self.send()?;
            if !busy {
                self.sender.unblocked();
            }
            if self.sender.compress(&mut self.compressors, &mut self.clock).is_none() {
                return Ok(if busy { Wait::Writable } else { Wait::Nothing });
            }
        }
    }

    /// Sends until the transport refuses; returns true if it did.
    fn send(&mut self) -> io::Result<bool> {
        loop {
            let now = (self.clock)();
            let wire = self.sender.wire(now);
            if wire.is_empty() {
                return Ok(false);
            }
            let wanted = wire.len();
            match self.transport.write(wire) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.sender.wrote((self.clock)(), len);
                    if len < wanted {
                        self.sender.blocked((self.clock)());
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.sender.blocked((self.clock)());
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
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

/// Reads a stream from a transport.
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
        while !self.intake.restore()? {
            let len = self.transport.read(self.intake.room())?;
            self.intake.was_read(len)?;
            if len == 0 {
                return Ok(0);
            }
        }
        Ok(self.intake.receiver.take(out))
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
        if self.fed < self.filled {
            let bytes = &self.buf[self.fed..self.filled];
            self.fed += self.receiver.feed(bytes, &mut self.decompressors).map_err(invalid)?;
        }
        Ok(!self.receiver.data().is_empty() || self.receiver.is_finished())
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
