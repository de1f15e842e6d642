//! A transport with the traits of `futures`, here `async-io`'s: any runtime will do.
//!
//! `cargo run -p dwell-stream --features futures --example over_futures`

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this is a program, and no part of the library"
)]

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use async_io::Async;
use dwell_stream::{Builder, Objective};
use futures_util::future::try_join;
use futures_util::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // As over a link that is paid for: nothing goes as it is.
    let builder = Builder::new().objective(Objective::Bytes);
    let text = b"Whatever the runtime is. ".repeat(100_000);
    async_io::block_on(async {
        let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0))?;
        let near = Async::<TcpStream>::connect(listener.get_ref().local_addr()?).await?;
        let (far, _) = listener.accept().await?;

        let begin = Instant::now();
        let clock = || dwell_base::Instant::from_ns(begin.elapsed().as_nanos() as u64);
        let mut writer = builder.futures_writer(near, clock)?;
        let mut reader = builder.futures_reader(far)?;
        let mut got = Vec::new();
        let write = async {
            writer.write_all(&text).await?;
            writer.close().await
        };
        try_join(write, reader.read_to_end(&mut got)).await?;

        let stats = writer.stats();
        println!("{} bytes, {} on the wire", stats.accepted_bytes, stats.wire_bytes);
        let is_small = stats.wire_bytes < stats.accepted_bytes / 10;
        if got == text && is_small {
            Ok(())
        } else {
            Err("it is not the same, or not small".into())
        }
    })
}
