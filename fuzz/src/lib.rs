//! The bodies of the fuzz targets, one module for each crate. They know nothing of the fuzzer:
//! they take bytes, and panic if something is wrong.

pub mod codec;
pub mod memory;
pub mod proxy;
pub mod relay;
pub mod stream;
pub mod trace;
pub mod wire;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
