//! A pair of proxies that compress TCP streams exactly as much as CPU and link allow, and a file's
//! way from one machine to another.
//!
//! The *ingress* takes programs' connections in: at a forwarded port, by SOCKS5, or transparently
//! (TPROXY). The *egress* connects onward. Between them are connections of their own, protected by
//! TLS 1.3, on which [`dwell_stream`] decides block by block what is compressed and how.
//!
//! # How it is made
//! Decisions are apart from moving data: [`socks`], [`hello`], [`message`], [`target`], [`allow`],
//! [`proxy_header`] and [`datagrams`] take bytes and give answers. The rest is tasks on tokio: here, unlike in the relay,
//! there are many independent connections and nothing between them that must stay in order. One
//! task moves one stream in both directions; compressing is done by other, less urgent threads in
//! turns, so that no stream waits for another's.
//!
//! # Promises
//! * A program never sees an end that the other program did not make: whatever else happens, its
//!   connection is reset.
//! * Every buffer, table and wait has a maximum.
//! * Nobody gets past TLS's handshake without the key; before that nothing is allocated but TLS's
//!   own, and for files one record of early data, or 64 KiB of it that the key has sealed, for a limited time and number.

mod ahead;
pub mod allow;
mod calls;
mod carrier;
mod client;
mod clock;
mod compress;
mod config;
mod congestion;
mod contexts;
pub mod datagrams;
mod early_data;
mod egress;
mod engine;
mod handshakes;
pub mod hello;
mod ingress;
mod kept;
mod listen;
mod local;
mod memory;
pub mod message;
mod metrics;
mod names;
mod pace;
mod path;
mod pool;
pub mod proxy_header;
mod pump;
mod reception;
mod rooms;
pub mod security;
pub mod socks;
mod source;
mod stalls;
mod status;
mod stream_log;
pub mod target;
mod tcp_info;
pub mod transfer;
mod turns;
mod udp;
mod unconfirmed;
mod uplink;

pub use config::{
    Bound, Common, Compression, ConfigError, EarlierStreams, Egress, IDLE_BYTES, Ingress, Limits,
    Listener, PORT, Reload, STREAM_BYTES_MAX, is_framed, is_loopback,
};
#[doc(hidden)]
pub use early_data::split_early;
pub use egress::run_egress;
pub use engine::RunError;
pub use ingress::run_ingress;
pub use status::{UNIT_DIRECTORIES, default_status, status_directory};
pub use stream_log::{StreamLog, StreamRecord};
