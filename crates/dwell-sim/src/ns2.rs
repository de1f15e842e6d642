//! ns-2's random numbers, for sources that send what ns-2's send.
//!
//! ns-2 (from 2.1b9 on) draws from MRG32k3a, the combined multiple recursive generator of
//! L'Ecuyer, "Good Parameters and Implementations for Combined Multiple Recursive Random Number
//! Generators" (Operations Research 47(1), 1999), cut into streams and substreams as in L'Ecuyer,
//! Simard, Chen and Kelton, "An Object-Oriented Random-Number Package with Many Long Streams and
//! Substreams" (Operations Research 50(6), 2002). [`Stream`] is written from these papers and
//! checked against numbers that ns-2.35 prints (`validate/rng.tcl`).
//!
//! The equivalents of ns-2's commands:
//!
//! | ns-2 | here |
//! |---|---|
//! | `$defaultRNG seed S` | the default generator becomes `Stream::new(S, 0)` |
//! | the k-th `new RNG` after that | `Stream::new(S, k)` |
//! | `$rng next-substream` | [`Stream::next_substream`] |
//! | `$rng all-seeds` | [`Stream::state`] |
//! | `$rng next-random` | [`Stream::integer`] |
//! | `RandomVariable/Exponential`, `Application/Traffic/Exponential` | [`Stream::exponential`] |
//!
//! The comparison with ns-2, packet by packet, is in `tests/ns2`.

mod stream;

pub use stream::Stream;
