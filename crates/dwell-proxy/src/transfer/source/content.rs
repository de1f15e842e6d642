//! The bytes of a file, but for those that the receiver has.

use std::io::{self, Read};
use std::ops::Range;

use super::{Answer, Outlet, READ_BYTES, Recorder, Stop};
use crate::transfer::blocks::{Blocks, read_full};
use crate::transfer::chunks::{Cutter, Table};
use crate::transfer::record::{Record, put_data};
use crate::transfer::repeats::Part;

/// Why the content of a file does not come to its end.
pub(super) enum Ended {
    Read(io::Error),
    Stop(Stop),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl<O: Outlet> Recorder<'_, O> {
    /// The bytes of a file, but for what is there, and its end.
    pub(super) fn content(&mut self, from: &mut impl Read, have: &mut Answer) -> Result<(), Ended> {
        let nothing = Blocks { log2: READ_BYTES.trailing_zeros() as u8, ..Blocks::default() };
        let mut hasher = blake3::Hasher::new();
        let bytes = match have {
            Answer::Chunks(table) => self.by_chunks(from, table, &mut hasher)?,
            Answer::Blocks(blocks) => self.by_blocks(from, blocks, &mut hasher)?,
            Answer::Nothing | Answer::Unwanted => self.by_blocks(from, &nothing, &mut hasher)?,
        };
        let blake3 = *hasher.finalize().as_bytes();
        self.sent.blake3 = Some(blake3);
        self.put(&Record::End(bytes, blake3))?;
        Ok(())
    }

    /// The bytes of a file but for the blocks that are there; their number.
    fn by_blocks(
        &mut self,
        from: &mut impl Read,
        blocks: &Blocks,
        hasher: &mut blake3::Hasher,
    ) -> Result<u64, Ended> {
        let mut buffer = vec![0; blocks.block_len()];
        let (mut at, mut copied) = (0, 0);
        for number in 0.. {
            let len = if blocks.hashes.len() > number {
                read_full(from, &mut buffer).map_err(Ended::Read)?
            } else {
                // What comes through a pipe goes on at once.
                read_some(from, &mut buffer).map_err(Ended::Read)?
            };
            let block = &buffer[..len];
            if len == 0 {
                break;
            }
            hasher.update(block);
            at += len as u64;
            if blocks.has(number, block) {
                copied += len as u64;
                self.count.reused(len as u64);
                continue;
            }
            self.copy(&mut copied)?;
            self.new_bytes(block)?;
        }
        self.copy(&mut copied)?;
        Ok(at)
    }

    /// The bytes of a file but for the chunks that are there, wherever they are; their number.
    fn by_chunks(
        &mut self,
        from: &mut impl Read,
        table: &mut Table,
        hasher: &mut blake3::Hasher,
    ) -> Result<u64, Ended> {
        let mut cutter = Cutter::new(from, table.log2());
        let (mut at, mut copied) = (0, 0..0);
        loop {
            // It goes on at once where nothing is to be expected any more.
            let is_compared = at < table.bytes().saturating_mul(2);
            let next = if is_compared { cutter.chunk() } else { cutter.some() };
            let bytes = next.map_err(Ended::Read)?;
            if bytes.is_empty() {
                break;
            }
            hasher.update(bytes);
            at += bytes.len() as u64;
            let found = if is_compared { table.find(bytes) } else { None };
            let Some(offset) = found else {
                self.copy_from(&mut copied)?;
                self.new_bytes(bytes)?;
                continue;
            };
            if copied.end != offset {
                self.copy_from(&mut copied)?;
                copied = offset..offset;
            }
            copied.end += bytes.len() as u64;
            self.count.reused(bytes.len() as u64);
        }
        self.copy_from(&mut copied)?;
        Ok(at)
    }

    /// The next bytes of a file, which are not there.
    fn new_bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.count.moved(bytes.len() as u64);
        for data in bytes.chunks(READ_BYTES) {
            self.data(data)?;
        }
        if self.is_pipe { self.flush() } else { Ok(()) }
    }

    /// The next bytes of a file; those that came before already are only pointed at.
    fn data(&mut self, data: &[u8]) -> Result<(), Stop> {
        let Some(finder) = &mut self.finder else {
            put_data(&mut self.piece, data);
            return self.flush_if_long();
        };
        let mut parts = Vec::new();
        finder.find(data, self.outlet.is_waiting(), &mut parts);
        let mut rest = data;
        for part in parts {
            let len = match part {
                Part::New(len) => len,
                Part::Repeat { len, .. } => len as usize,
            };
            let (bytes, after) = rest.split_at(len);
            rest = after;
            match part {
                Part::New(_) => put_data(&mut self.piece, bytes),
                Part::Repeat { distance, len } => {
                    Record::Repeat { distance, bytes: len }.put(&mut self.piece);
                }
            }
        }
        self.flush_if_long()
    }

    fn copy(&mut self, copied: &mut u64) -> Result<(), Stop> {
        match std::mem::take(copied) {
            0 => Ok(()),
            bytes => self.put(&Record::Copy(bytes)),
        }
    }

    fn copy_from(&mut self, copied: &mut Range<u64>) -> Result<(), Stop> {
        let Range { start, end } = std::mem::take(copied);
        if start == end {
            return Ok(());
        }
        self.put(&Record::CopyFrom { offset: start, bytes: end - start })
    }
}

fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
