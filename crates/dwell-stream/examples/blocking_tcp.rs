//! Lines over a TCP connection that blocks, as one is unless it was set otherwise.
//!
//! `cargo run -p dwell-stream --example blocking_tcp`

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this is a program, and no part of the library"
)]

use std::error::Error;
use std::io::{BufRead, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

use dwell_stream::Builder;
use socket2::SockRef;

/// The lines that are sent.
const LINES: usize = 20_000;

pub(crate) fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let builder = Builder::new();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;

    // What TCP holds unsent can't be compressed any more: it is to hold little.
    near.set_nodelay(true)?;
    SockRef::from(&near).set_tcp_notsent_lowat(builder.config().not_sent_len())?;

    let reader = builder.reader(far)?;
    let reading = std::thread::spawn(move || reader.lines().map_while(Result::ok).count());

    let begin = Instant::now();
    let clock = move || dwell_base::Instant::from_ns(begin.elapsed().as_nanos() as u64);
    let mut writer = builder.blocking_writer(near, clock)?;
    for number in 0..LINES {
        writeln!(writer, "{number}: written by std::io::Write, compressed if it has to wait")?;
    }
    let (near, stats) = writer.finish()?;
    near.shutdown(Shutdown::Write)?;

    let lines = reading.join().map_err(|_| "the reader panicked")?;
    println!("{lines} lines, {} bytes, {} on the wire", stats.accepted_bytes, stats.wire_bytes);
    if lines == LINES { Ok(()) } else { Err("lines are missing".into()) }
}
