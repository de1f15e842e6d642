//! Compressed captures, unpacked as they are read.

use std::io::{self, BufReader, Chain, Cursor, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::OpenError;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// The header of a file of bzip2, and the beginning of its first block or of its end.
const BZIP2: [u8; 3] = *b"BZh";

/// Packed bytes are read in pieces of this size.
const PIECE_BYTES: usize = 1 << 16;
/// zstd's own default limit for windows: 128 MiB, the most memory that unpacking takes.
const WINDOW_LOG_MAX: u32 = 27;

/// The most memory for xz, in KiB: twice what `xz -9` asks for. A header may ask for 4 GiB.
const XZ_KIB_MAX: u32 = 128 << 10;

/// The first bytes, and the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A stream of bytes, in any packing.
pub(super) enum Unpacked<R: Read> {
    Plain(Whole<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Whole<R>>>>),
    Zstd(Zstd<Whole<R>>),
    Bzip2(Box<MultiBzDecoder<BufReader<Whole<R>>>>),
    Xz(Box<XzReader<BufReader<Whole<R>>>>),
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(mut source: R) -> Result<Self, OpenError> {
        let mut head = Vec::with_capacity(XZ.len());
        source.by_ref().take(XZ.len() as u64).read_to_end(&mut head)?;
        let is = |magic: &[u8]| head.starts_with(magic);
        let (is_gzip, is_zstd, is_bzip2, is_xz) = (is(&GZIP), is(&ZSTD), is(&BZIP2), is(&XZ));
        let whole = Cursor::new(head).chain(source);
        if is_zstd {
            return Ok(Self::Zstd(Zstd::new(whole)?));
        }
        if !(is_gzip || is_bzip2 || is_xz) {
            return Ok(Self::Plain(whole));
        }
        let reader = BufReader::with_capacity(PIECE_BYTES, whole);
        Ok(match (is_gzip, is_bzip2) {
            (true, _) => Self::Gzip(Box::new(MultiGzDecoder::new(reader))),
            (_, true) => Self::Bzip2(Box::new(MultiBzDecoder::new(reader))),
            _ => Self::Xz(Box::new(XzReader::new_mem_limit(reader, true, XZ_KIB_MAX))),
        })
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
            Self::Bzip2(reader) => reader.read(buffer),
            Self::Xz(reader) => reader.read(buffer).map_err(too_large),
        }
    }
}

/// Adds advice to the error of a dictionary beyond [`XZ_KIB_MAX`].
fn too_large(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::OutOfMemory => io::Error::other(
            "it was packed with xz and takes more than 128 MiB to unpack: unpack it with \
             `xz -dc FILE |` and read it from `-`",
        ),
        _ => error,
    }
}

/// Frames of zstd, one behind the other.
pub(super) struct Zstd<R> {
    source: R,
    context: DCtx<'static>,
    piece: Box<[u8]>,
    start: usize,
    end: usize,
    /// True if a frame has begun and not ended.
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
            // Output that was held back before comes out even without further input.
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
