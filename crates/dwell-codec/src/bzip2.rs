//! bzip2, in builds with the feature `bzip2`.
//!
//! A stream without its first four bytes, which are always `BZh1`: blocks of 100 kB, more than any
//! source has. So no bytes from the network determine how much memory decoding takes.

use bzip2::{Action, Compress, Compression, Decompress, Status};

use crate::error::DecodeError;
use crate::id::CodecId;

/// The first bytes of a stream with blocks of 100 kB.
const BEGIN: &[u8; 4] = b"BZh1";
/// The default of libbzip2: when to give up the fast way of sorting.
const WORK_FACTOR: u32 = 0;

#[derive(Default)]
pub(crate) struct Encoder {
    /// The stream with its beginning.
    scratch: Vec<u8>,
}

impl Encoder {
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        self.scratch.resize(BEGIN.len() + dst.len(), 0);
        // The library can't reuse a stream.
        let mut stream = Compress::new(Compression::new(1), WORK_FACTOR);
        let mut taken = 0;
        loop {
            let (rest, made) = (&src[taken..], stream.total_out() as usize);
            let status = stream.compress(rest, &mut self.scratch[made..], Action::Finish).ok()?;
            if status == Status::StreamEnd {
                break;
            }
            let before = (taken, made);
            taken = stream.total_in() as usize;
            if before == (taken, stream.total_out() as usize) {
                // The result does not fit.
                return None;
            }
        }
        let payload = &self.scratch[BEGIN.len()..stream.total_out() as usize];
        dst[..payload.len()].copy_from_slice(payload);
        Some(payload.len())
    }
}

pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
    let corrupt = DecodeError::Corrupt(CodecId::Bzip2);
    let mut stream = Decompress::new(false);
    stream.decompress(BEGIN, &mut []).map_err(|_| corrupt)?;
    // The end of data that just fit is found only if there is room for more.
    let mut beyond = [0];
    loop {
        let (taken, made) = (stream.total_in() as usize, stream.total_out() as usize);
        let rest = &src[taken - BEGIN.len()..];
        let room = if made < dst.len() { &mut dst[made..] } else { &mut beyond[..] };
        let status = stream.decompress(rest, room).map_err(|_| corrupt)?;
        let (taken_now, made_now) = (stream.total_in() as usize, stream.total_out() as usize);
        if made_now > dst.len() {
            return Err(DecodeError::DoesNotFit(CodecId::Bzip2));
        }
        if status == Status::StreamEnd {
            let all = taken_now == BEGIN.len() + src.len();
            return if all { Ok(made_now) } else { Err(corrupt) };
        }
        if (taken, made) == (taken_now, made_now) {
            return Err(corrupt);
        }
    }
}
