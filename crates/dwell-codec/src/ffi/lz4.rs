//! LZ4 streams and dictionaries.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use lz4_sys::{LZ4_createStream, LZ4_decompress_safe, LZ4_freeStream, LZ4StreamEncode};

use crate::{DICTIONARY_LEN_MAX, HISTORY_LEN_MAX, SRC_LEN_MAX};

// All part of liblz4 1.10, which lz4-sys builds and links.
unsafe extern "C" {
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_len: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_resetStream_fast(stream: *mut LZ4StreamEncode);
    fn LZ4_loadDict(stream: *mut LZ4StreamEncode, bytes: *const c_char, len: c_int) -> c_int;
    fn LZ4_loadDictSlow(stream: *mut LZ4StreamEncode, bytes: *const c_char, len: c_int) -> c_int;
    fn LZ4_attach_dictionary(working: *mut LZ4StreamEncode, dictionary: *const LZ4StreamEncode);
    fn LZ4_compress_fast_continue(
        stream: *mut LZ4StreamEncode,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_len: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_len: c_int,
        dictionary: *const c_char,
        dictionary_len: c_int,
    ) -> c_int;
}

/// The state of a compressor, about 16 KiB; between calls it is always ready for the next.
pub(crate) struct Stream(NonNull<LZ4StreamEncode>);

// SAFETY: a stream is plain memory without ties to a thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Makes a stream in its initial state, or returns `None` without memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: no preconditions; the result is initialised, or null.
        let stream = unsafe { LZ4_createStream() };
        NonNull::new(stream).map(Self)
    }

    /// Compresses `src` on its own; `None` if the result does not fit into `dst`.
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8], speed: i32) -> Option<usize> {
        // SAFETY: the state was initialised by LZ4_createStream. Each call resets what it
        // needs, also after a call that failed because `dst` was too small: stale table
        // entries all lie below `currentOffset`, which grows before anything is written.
        // The pointers and lengths are those of live slices that do not overlap.
        let written = unsafe {
            LZ4_compress_fast_extState_fastReset(
                self.0.as_ptr().cast(),
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                len_of(src),
                len_of(dst),
                speed,
            )
        };
        length_written(written, dst)
    }

    /// Compresses `src` as if the dictionary's bytes came before it.
    pub(crate) fn compress_after(
        &mut self,
        digest: &Digest,
        src: &[u8],
        dst: &mut [u8],
        speed: i32,
    ) -> Option<usize> {
        let stream = self.0.as_ptr();
        // SAFETY: the stream is initialised. This drops all references to earlier buffers
        // and makes the stream valid again should the last call have failed.
        unsafe { LZ4_resetStream_fast(stream) };
        // SAFETY: both streams are initialised and distinct, for no `Digest` hands out its
        // own. The digest is only read, and lives until after the one call that reads it.
        unsafe { LZ4_attach_dictionary(stream, digest.stream.0.as_ptr()) };
        self.go_on(src, dst, speed)
    }

    /// Compresses `src` as if `history`, at most [`HISTORY_LEN_MAX`] bytes, came before it.
    pub(crate) fn compress_following(
        &mut self,
        history: &[u8],
        src: &[u8],
        dst: &mut [u8],
        speed: i32,
    ) -> Option<usize> {
        assert!(history.len() <= HISTORY_LEN_MAX, "the compressor takes the end of it");
        let stream = self.0.as_ptr();
        // SAFETY: the stream is initialised, and this resets it whatever the last call left. The
        // history is a live slice until after the one call that reads it.
        unsafe { LZ4_loadDict(stream, history.as_ptr().cast(), len_of(history)) };
        let written = self.go_on(src, dst, speed);
        // SAFETY: the stream is initialised. This removes the pointers to history and source.
        unsafe { LZ4_resetStream_fast(stream) };
        written
    }

    /// Compresses `src` after the dictionary or history that was attached to the stream.
    fn go_on(&mut self, src: &[u8], dst: &mut [u8], speed: i32) -> Option<usize> {
        // SAFETY: as for `compress`. The stream remembers `src` but will not read it again,
        // as every call begins with a reset.
        let written = unsafe {
            LZ4_compress_fast_continue(
                self.0.as_ptr(),
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                len_of(src),
                len_of(dst),
                speed,
            )
        };
        length_written(written, dst)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by LZ4_createStream, freed once.
        unsafe { LZ4_freeStream(self.0.as_ptr()) };
    }
}

/// A dictionary with its hash table, which any number of streams can use at once.
pub(crate) struct Digest {
    stream: Stream,
    /// The stream points into these bytes.
    _bytes: Arc<[u8]>,
}

// SAFETY: after `new` nothing writes to the stream, and lz4 has no hidden state.
unsafe impl Sync for Digest {}

impl Digest {
    /// Digests a dictionary, or returns `None` without memory.
    pub(crate) fn new(bytes: Arc<[u8]>) -> Option<Self> {
        assert!(bytes.len() <= DICTIONARY_LEN_MAX, "the constructor of Dictionary checks this");
        let stream = Stream::new()?;
        // SAFETY: the stream is initialised, and the bytes live as long as it does: the Arc
        // is kept beside it and its content never moves.
        unsafe { LZ4_loadDictSlow(stream.0.as_ptr(), bytes.as_ptr().cast(), len_of(&bytes)) };
        Some(Self { stream, _bytes: bytes })
    }
}

/// Decodes one block into `dst`; `None` if it is damaged or holds more.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // SAFETY: reads and writes only within the two live slices, whatever the input.
    let written = unsafe {
        LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), len_of(src), len_of(dst))
    };
    usize::try_from(written).ok()
}

/// Decodes one block that was made after a dictionary, or a history.
pub(crate) fn decompress_after(dictionary: &[u8], src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // SAFETY: as for `decompress`; the dictionary is a live slice too and is only read.
    let written = unsafe {
        LZ4_decompress_safe_usingDict(
            src.as_ptr().cast(),
            dst.as_mut_ptr().cast(),
            len_of(src),
            len_of(dst),
            dictionary.as_ptr().cast(),
            len_of(dictionary),
        )
    };
    usize::try_from(written).ok()
}

/// Returns the length as a `c_int`. Of a buffer that is longer only a part is used.
fn len_of(slice: &[u8]) -> c_int {
    c_int::try_from(slice.len()).unwrap_or(c_int::MAX)
}

/// Interprets the result of the compressing functions: zero if the result did not fit.
fn length_written(written: c_int, dst: &[u8]) -> Option<usize> {
    let written = usize::try_from(written).ok().filter(|&len| len > 0)?;
    debug_assert!(written <= dst.len());
    Some(written)
}

// Longer inputs would be compressed in part only, see `len_of`.
const _: () = assert!(SRC_LEN_MAX + HISTORY_LEN_MAX <= c_int::MAX as usize);
