//! `dwell proxy`, `dwell send` and `dwell recv` as processes, over loopback. Real programs across
//! a thin link are in `tests/e2e`.

// Nothing here is for others, and clippy takes a test's helpers for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

mod bases;
mod earlier;
mod enclosure;
mod hostile;
mod interrupted;
mod load;
mod long_streams;
mod openings;
mod pair;
mod privileges;
mod scale;
mod sharing;
mod socks;
mod streams;
mod transfer;
mod trees;
