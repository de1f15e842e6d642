//! Nothing is allocated per packet, neither by Rust nor by the C libraries.
//!
//! Rust's allocator calls `malloc` as the C libraries do, so this program has its own
//! `malloc`, which counts per thread and passes on to glibc's.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code, reason = "malloc can only be replaced by unsafe functions")]

#[path = "it/common.rs"]
mod common;

use std::cell::Cell;
use std::ffi::c_void;

use dwell_codec::{
    Base, ContextDecoder, ContextEncoder, ContextSpec, Decompressor, MixSpec, ModelDecoder,
    ModelEncoder, PpmSpec, SRC_LEN_MAX, context_bound,
};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // While a thread ends its counter may be gone; nobody reads it then.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

// SAFETY (of the four exports): they have the signatures of the C standard and do what glibc
// does; `free` remains glibc's own.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on the caller's promise.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on the caller's promise.
    unsafe { __libc_calloc(number, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on the caller's promise.
    unsafe { __libc_realloc(old, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on the caller's promise.
    unsafe { __libc_memalign(align, size) }
}

fn calls() -> u64 {
    CALLS.with(Cell::get)
}

#[test]
fn the_counter_counts() {
    let before = calls();
    let boxed = std::hint::black_box(Box::new(5));
    let after_rust = calls();
    assert!(after_rust > before);
    let context = zstd_safe::CCtx::create();
    assert!(calls() > after_rust, "memory of C libraries must count too");
    drop((boxed, context));
}

/// Long runs of short packets, for zstd frees memory after 128 calls that did not need it,
/// mixed with the longest ones and with ones that do not fit.
#[test]
fn packets_allocate_nothing() {
    let text = common::text(SRC_LEN_MAX);
    let noise = {
        let mut noise = vec![0; 1400];
        dwell_base::Rng::from_seed(1).fill(&mut noise);
        noise
    };
    let mut payload = vec![0; SRC_LEN_MAX];
    let mut data = vec![0; SRC_LEN_MAX];
    let mut decompressor = Decompressor::new();
    // The library of bzip2 has no state that can be reused.
    let setups = common::all_setups().into_iter().filter(|(spec, _)| spec.id.name() != "bzip2");
    for setup in setups {
        let mut compressor = common::compressor(setup);
        let dictionary = compressor.dictionary().cloned();
        let before = calls();
        for round in 0..600 {
            let src = match round % 300 {
                0 => &text[..],
                1..20 => &noise[..],
                20..30 => &text[..4096],
                _ => &text[round..][..100],
            };
            let Some(len) = compressor.compress(src, &mut payload[..src.len() - 1]).unwrap() else {
                continue;
            };
            let id = compressor.spec().id;
            let src_len = decompressor
                .decompress(id, dictionary.as_deref(), &payload[..len], &mut data)
                .unwrap();
            assert!(data[..src_len] == *src);
            // Damaged payloads must not allocate either.
            payload[len / 2] ^= 0x55;
            let _ = decompressor.decompress(id, dictionary.as_deref(), &payload[..len], &mut data);
        }
        assert_eq!(calls() - before, 0, "{setup:?}");
    }
}

/// Once a ring is full, and until another generation begins.
#[test]
fn batches_of_contexts_allocate_nothing() {
    let text = common::text(3 * SRC_LEN_MAX);
    for level in [-3, 1, 3, 6, 12, 16, 19] {
        let mut encoder = ContextEncoder::new(ContextSpec { level, window_log: 16 }, 16).unwrap();
        let mut decoder = ContextDecoder::new(16);
        decoder.begin(16, Base::default()).unwrap();
        let mut data = vec![0; 60_000];
        // What `compress` asks for is more than a result can take.
        let mut payload = Vec::with_capacity(2 * context_bound(data.len()));
        let mut exchange = |batch: &[u8]| {
            payload.clear();
            encoder.compress(batch, &mut payload).unwrap();
            decoder.decode(&payload, &mut data[..batch.len()]).unwrap();
            assert!(data[..batch.len()] == *batch);
        };
        exchange(&text[..60_000]);
        exchange(&text[60_000..120_000]);
        let before = calls();
        for round in 0..300 {
            exchange(&text[100 * round..][..[100, 1400, 9000][round % 3]]);
        }
        exchange(&text[..60_000]);
        assert_eq!(calls() - before, 0, "level {level}");
    }
}

/// Through restarts, damage, resets and changes of the order.
#[test]
fn records_of_ppm_allocate_nothing() {
    let text = common::text(3 * SRC_LEN_MAX);
    let mut noise = vec![0; 16_000];
    dwell_base::Rng::from_seed(1).fill(&mut noise);
    let spec = PpmSpec { order: 12, memory_log: 20 };
    let mut encoder = ModelEncoder::new(spec).unwrap();
    let mut decoder = ModelDecoder::new(spec).unwrap();
    let mut data = vec![0; 16_000];
    // While a record is coded it may be longer than it was.
    let mut payload = Vec::with_capacity(2 * data.len());
    let before = calls();
    for round in 0..200 {
        let record = match round % 20 {
            0 => &noise[..],
            10 => &text[..16_000],
            _ => &text[100 * round..][..[100, 1400, 9000][round % 3]],
        };
        payload.clear();
        encoder.compress(record, &mut payload).unwrap();
        decoder.decode(&payload, &mut data[..record.len()]).unwrap();
        assert!(data[..record.len()] == *record);
        if round % 50 == 49 {
            assert!(decoder.decode(&[], &mut data[..10]).is_err());
            encoder.reset();
            decoder.reset();
            encoder.prime(&text);
            decoder.prime(&text);
        }
        if round % 50 == 25 {
            // Another order takes the same memory.
            let spec = PpmSpec { order: 2 + round as u8 / 25, ..spec };
            encoder.renew(spec).unwrap();
            decoder.renew(spec).unwrap();
        }
    }
    assert_eq!(calls() - before, 0);
}

/// Through damage, resets and beginnings in the same memory.
#[test]
fn records_of_mix_allocate_nothing() {
    let text = common::text(SRC_LEN_MAX);
    let mut noise = vec![0; 4_000];
    dwell_base::Rng::from_seed(1).fill(&mut noise);
    let spec = MixSpec { memory_log: 20 };
    let mut encoder = ModelEncoder::new(spec).unwrap();
    let mut decoder = ModelDecoder::new(spec).unwrap();
    let mut data = vec![0; 4_000];
    let mut payload = Vec::with_capacity(2 * data.len());
    let before = calls();
    for round in 0..100 {
        let record = match round % 20 {
            0 => &noise[..],
            _ => &text[100 * round..][..[100, 1400, 3000][round % 3]],
        };
        payload.clear();
        encoder.compress(record, &mut payload).unwrap();
        decoder.decode(&payload, &mut data[..record.len()]).unwrap();
        assert!(data[..record.len()] == *record);
        if round % 30 == 29 {
            assert!(decoder.decode(&[], &mut data[..10]).is_err());
            encoder.reset();
            decoder.renew(spec).unwrap();
            encoder.prime(&text);
            decoder.prime(&text);
        }
    }
    assert_eq!(calls() - before, 0);
}
