//! A window on a stream of bytes.

use std::io::{self, Read};

use super::PACKET_BYTES_MAX;

/// The size of the buffer: a packet with its headers always fits; apart from that small enough to
/// stay in the cache.
pub(super) const BUFFER_BYTES: usize = PACKET_BYTES_MAX + (1 << 16);
/// The size that is enough for nearly all packets: there may be thousands of captures.
const USUAL_BYTES: usize = 1 << 16;

/// Bytes that were read, of which those from `start` are still to be used.
pub(super) struct Buffer<R> {
    source: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Position of `start` in the stream.
    position: u64,
    ended: bool,
    error: Option<io::Error>,
}

impl<R: Read> Buffer<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            bytes: vec![0; USUAL_BYTES],
            start: 0,
            end: 0,
            position: 0,
            ended: false,
            error: None,
        }
    }

    /// Returns the position of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of bytes in the buffer.
    pub(super) fn available(&self) -> usize {
        self.end - self.start
    }

    /// Takes the error that ended the stream before its end, if there was one.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Returns the next `len` bytes without consuming them; none if the stream ends before.
    #[inline]
    pub(super) fn peek(&mut self, len: usize) -> Option<&[u8]> {
        if self.available() < len {
            self.fill(len)?;
        }
        self.bytes.get(self.start..self.start + len)
    }

    /// As [`Self::peek`], for a header.
    #[inline]
    pub(super) fn peek_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.peek(N).and_then(<[u8]>::first_chunk).copied()
    }

    /// Consumes bytes.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        let len = len.min(self.available());
        self.start += len;
        self.position += len as u64;
    }

    /// Returns the `len` bytes that ended `behind` bytes before the next byte. They must have been
    /// consumed since the last call of `peek`.
    #[inline]
    pub(super) fn last(&self, len: usize, behind: usize) -> &[u8] {
        let end = self.start.saturating_sub(behind);
        self.bytes.get(end.saturating_sub(len)..end).unwrap_or_default()
    }

    /// Consumes `len` bytes without returning them; returns false if the stream ends before.
    pub(super) fn skip(&mut self, mut len: u64) -> bool {
        loop {
            let here = len.min(self.available() as u64) as usize;
            self.consume(here);
            len -= here as u64;
            if len == 0 {
                return true;
            }
            if self.fill(1).is_none() {
                return false;
            }
        }
    }

    /// Reads until `len` bytes are in the buffer.
    #[cold]
    fn fill(&mut self, len: usize) -> Option<()> {
        debug_assert!(len <= BUFFER_BYTES);
        if len > self.bytes.len() {
            self.bytes.resize(BUFFER_BYTES, 0);
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < len && !self.ended {
            match self.source.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count.min(self.bytes.len() - self.end),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.error = Some(error);
                }
            }
        }
        (self.end >= len).then_some(())
    }
}
