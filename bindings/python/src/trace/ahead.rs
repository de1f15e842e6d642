//! Reading ahead of the codecs.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Scope;

/// What is read at once, in bytes: little beside a processor's cache, much beside a call.
const PIECE_BYTES: usize = 1 << 18;
/// So many pieces wait at most, 8 MiB: a store may be silent for a tenth of a second beside fast codecs.
const PIECES: usize = 32;

/// Bytes that a thread of their own reads, so that codecs don't wait for a store far away.
pub(super) struct Ahead {
    pieces: Receiver<io::Result<Vec<u8>>>,
    /// Where pieces go that were used, so that their memory is used again.
    used: Sender<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Ahead {
    /// Begins to read. The thread ends with the source, or after its present call when this is dropped.
    pub(super) fn begin<'scope>(
        scope: &'scope Scope<'scope, '_>,
        source: impl Read + Send + 'scope,
    ) -> Self {
        let (full, pieces) = mpsc::sync_channel(PIECES);
        let (used, empty) = mpsc::channel();
        scope.spawn(move || {
            let mut source = source;
            loop {
                let piece = next(&mut source, empty.try_recv().unwrap_or_default());
                let is_more = matches!(&piece, Ok(piece) if !piece.is_empty());
                if full.send(piece).is_err() || !is_more {
                    break;
                }
            }
        });
        Self { pieces, used, piece: Vec::new(), at: 0 }
    }
}

/// Reads a piece into the memory of another one; an empty one is the end.
fn next(source: &mut impl Read, mut piece: Vec<u8>) -> io::Result<Vec<u8>> {
    piece.resize(PIECE_BYTES, 0);
    loop {
        match source.read(&mut piece) {
            Ok(count) => {
                piece.truncate(count);
                return Ok(piece);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            // A thread that is gone had sent the end, or an error, before.
            let Ok(piece) = self.pieces.recv() else { return Ok(0) };
            let before = std::mem::replace(&mut self.piece, piece?);
            self.at = 0;
            // Nobody takes it if the source has ended.
            let _ = self.used.send(before);
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
