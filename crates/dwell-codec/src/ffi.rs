//! The C functions that have no safe binding, behind safe types.
//!
//! The only module with `unsafe`. lz4-sys declares neither the functions that keep their
//! state between calls nor those for dictionaries; zstd-safe cannot make a context in memory
//! of fixed size, nor one that shares the ownership of its dictionary.
#![allow(unsafe_code)]

pub(crate) mod lz4;
pub(crate) mod zstd;
