//! Compressed captures, unpacked as they are read.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::OpenError;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Packed bytes are read in pieces of this size.
const PIECE_BYTES: usize = 1 << 16;
/// zstd's own limit for windows that nobody asked for: 128 MiB, the most that unpacking takes.
const WINDOW_LOG_MAX: u32 = 27;

/// The first bytes, and the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A stream of bytes, whatever it was packed with.
pub(super) enum Unpacked<R: Read> {
    Plain(Whole<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Whole<R>>>>),
    Zstd(Zstd<Whole<R>>),
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(mut source: R) -> Result<Self, OpenError> {
        let mut head = Vec::with_capacity(XZ.len());
        source.by_ref().take(XZ.len() as u64).read_to_end(&mut head)?;
        if head == XZ {
            return Err(OpenError::Xz);
        }
        let (is_gzip, is_zstd) = (head.starts_with(&GZIP), head.starts_with(&ZSTD));
        let whole = Cursor::new(head).chain(source);
        if is_gzip {
            let reader = BufReader::with_capacity(PIECE_BYTES, whole);
            return Ok(Self::Gzip(Box::new(MultiGzDecoder::new(reader))));
        }
        if is_zstd {
            return Ok(Self::Zstd(Zstd::new(whole)?));
        }
        Ok(Self::Plain(whole))
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// Frames of zstd, one behind the other.
pub(super) struct Zstd<R> {
    source: R,
    context: DCtx<'static>,
    piece: Box<[u8]>,
    start: usize,
    end: usize,
    /// A frame has begun and not ended.
    is_open: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> io::Result<Self> {
        let mut context = DCtx::create();
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(failed)?;
        let piece = vec![0; PIECE_BYTES].into_boxed_slice();
        Ok(Self { source, context, piece, start: 0, end: 0, is_open: false })
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let mut ended = false;
            if self.start == self.end {
                (self.start, self.end) = (0, self.source.read(&mut self.piece)?);
                ended = self.end == 0;
            }
            let mut input = InBuffer::around(&self.piece[self.start..self.end]);
            let mut output = OutBuffer::around(&mut *buffer);
            // What is held back from before comes out even if nothing more goes in.
            let left = self.context.decompress_stream(&mut output, &mut input).map_err(failed)?;
            let (count, used) = (output.pos(), input.pos());
            self.start += used;
            if used > 0 || count > 0 {
                self.is_open = left != 0;
            }
            if count > 0 {
                return Ok(count);
            }
            if ended {
                return match self.is_open {
                    true => Err(io::ErrorKind::UnexpectedEof.into()),
                    false => Ok(0),
                };
            }
        }
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, zstd_safe::get_error_name(code))
}
