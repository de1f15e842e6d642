//! Byte streams, compressed as much as CPU and link allow.
//!
//! A [`Sender`] takes bytes from an application and gives bytes for a reliable, ordered transport
//! (a TCP connection, a pipe); a [`Receiver`] restores them. Data that wait while the transport is
//! busy are compressed, in the manner of the fine-grain mixing of Pu and Singaravelu ("Fine-Grain
//! Adaptive Compression in Dynamically Variable Networks"). Data that the transport could take at
//! once are held back only if they arrive sooner so (equation (2) of Shimamura et al.), or if there are
//! so many that more gets through.
//! [`Strategy`] names the ways of deciding; the default is [`Strategy::Hull`].
//!
//! Over a slow link a block refers to the 128 KiB before it, which both ends hold meanwhile
//! ([`Config::history`], [`Limits::history`]); or it goes on with a running context, whose window is megabytes
//! ([`Config::window_log`], [`Limits::window_log`]), and which over a thin link may be a model that predicts what comes
//! ([`Config::model_log`], [`Limits::model_log`]).
//!
//! Neither end knows sockets, threads or clocks. Time is an argument, and blocks are compressed
//! when the driver asks for it, by compressors that the driver owns ([`Compressors`], one for each
//! thread, not for each connection).
//!
//! # Which type
//! [`Builder`] has all settings, and makes any of these. Each is used by an example (`examples/`).
//!
//! | transport | writing | reading |
//! |---|---|---|
//! | blocking, as a `TcpStream` is unless set otherwise | [`BlockingStreamWriter`] ([`std::io::Write`]) | [`StreamReader`] ([`std::io::Read`], [`std::io::BufRead`]) |
//! | non-blocking, as `mio` has them | [`StreamWriter`] | [`StreamReader`] |
//! | tokio's (feature `tokio`) | `AsyncStreamWriter` (`AsyncWrite`) | `AsyncStreamReader` (`AsyncRead`, `AsyncBufRead`) |
//! | with the traits of `futures` (feature `futures`) | `FuturesStreamWriter` (`AsyncWrite`) | `FuturesStreamReader` (`AsyncRead`, `AsyncBufRead`) |
//! | anything else | [`Sender`] | [`Receiver`] |
//!
//! # Driving a sender
//! ```text
//! loop {
//!     while room() > 0: accept() what the application has; finish() at its end
//!     if the transport says something of its link: reported(now, that)
//!     while wire(now) is not empty:
//!         write it; wrote(now, n)
//!         if the transport takes no more: blocked(now), and out of this loop
//!     if it took all: unblocked()
//!     if compress(...) did something: again from the top   (the kernel sends meanwhile)
//!     otherwise: wait until the transport is writable (only if blocked), or the application
//!     has more (only if there is room)
//! }
//! ```
//! `wire` may be empty although bytes wait: then `compress` has something to do, and `wire` is to be
//! asked again afterwards. A sender never waits for time to pass: when `wire` is empty and
//! `compress` says [`None`], nothing will change before more is accepted, or the transport takes
//! more.
//!
//! The less the transport buffers, the more of the waiting data can be compressed. For TCP on Linux
//! set `TCP_NOTSENT_LOWAT` to [`Sender::not_sent_len`], again whenever that has changed, notify the
//! sender ([`Sender::transport_holds`]), and set `TCP_NODELAY`.
//!
//! # Driving a receiver
//! Feed it the bytes from the transport; it takes no more while its output is not consumed, which
//! is the back-pressure. At the end of the transport call [`Receiver::end`], which distinguishes a
//! stream that was cut off from one that is complete. The other direction of a connection is
//! another pair.
//!
//! ```
//! use dwell_base::Instant;
//! use dwell_stream::{Compressors, Config, Decompressors, Limits, Receiver, Sender, Strategy};
//!
//! let text = b"dwell time is time to compress, ".repeat(1000);
//! let mut sender = Sender::new(&Config::new(Strategy::All))?;
//! let mut compressors = Compressors::new();
//! let mut receiver = Receiver::new(Limits::default());
//! let mut decompressors = Decompressors::new();
//!
//! let (now, mut rest, mut got) = (Instant::ZERO, &text[..], Vec::new());
//! while !sender.is_finished() {
//!     rest = &rest[sender.accept(rest)..];
//!     if rest.is_empty() {
//!         sender.finish();
//!     }
//!     // A transport that takes everything.
//!     loop {
//!         let wire = sender.wire(now);
//!         if wire.is_empty() {
//!             break;
//!         }
//!         let taken = receiver.feed(wire, &mut decompressors)?;
//!         sender.wrote(now, taken);
//!         got.extend_from_slice(receiver.data());
//!         receiver.consume(receiver.data().len());
//!     }
//!     sender.compress(&mut compressors, || now);
//! }
//! receiver.end()?;
//! assert_eq!(got, text);
//! assert!(sender.stats().wire_bytes < text.len() as u64 / 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is on the wire
//! `docs/stream-wire.md` is normative. Each block carries a running CRC-32 of everything up to its
//! end, so that damage, loss, repetition and exchange of blocks are all noticed before any byte of
//! the block is given out; lengths are checked before anything is allocated.

mod aside;
#[cfg(any(feature = "tokio", feature = "futures"))]
mod asynchronous;
mod blocking;
mod blocks;
mod builder;
mod compress;
mod config;
mod context;
mod depth;
mod error;
mod frame;
mod history;
mod io;
#[cfg(test)]
mod model;
mod receiver;
mod rule;
mod sender;
mod stats;
mod strategy;
mod tcpcomp;
#[cfg(test)]
mod tests;
mod threads;
mod units;
#[cfg(feature = "futures")]
mod with_futures;
#[cfg(feature = "tokio")]
mod with_tokio;

pub use blocking::BlockingStreamWriter;
pub use builder::Builder;
pub use compress::{Compression, Compressors, Decompressors, Done, Job};
pub use config::{BLOCK_LEN_MAX, BLOCK_LEN_MIN, BUFFER_LEN_MAX, Config, Objective};
pub use dwell_policy::method::{Bound, CodecPoint};
pub use dwell_policy::rate::{Advice, Arms, Confirmed, LinkReport, Trains, Yielding};
pub use error::{AbortReason, ConfigError, ParseStrategyError, StreamError};
pub use io::{StreamReader, StreamWriter, Wait};
pub use receiver::{Limits, Receiver};
pub use sender::{Learned, Sender};
pub use stats::{CodecStats, ReceiverStats, SenderStats};
pub use strategy::Strategy;
pub use tcpcomp::{FactorFilter, TcpCompConfig};
pub use threads::Worker;
#[cfg(feature = "futures")]
pub use with_futures::{FuturesStreamReader, FuturesStreamWriter};
#[cfg(feature = "tokio")]
pub use with_tokio::{AsyncStreamReader, AsyncStreamWriter};
