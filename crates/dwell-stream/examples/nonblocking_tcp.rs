//! A TCP connection that does not block, with `poll(2)` in place of an event loop.
//!
//! `cargo run -p dwell-stream --example nonblocking_tcp`

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this is a program, and no part of the library"
)]

use std::error::Error;
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

use dwell_stream::{Builder, Wait};
use rustix::event::{PollFd, PollFlags, poll};
use socket2::SockRef;

pub(crate) fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let builder = Builder::new().block_len(32 << 10);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nonblocking(true)?;
    near.set_nodelay(true)?;
    let mut held = builder.config().not_sent_len();
    SockRef::from(&near).set_tcp_notsent_lowat(held)?;

    // A reader may block, whatever the writer does.
    let mut reader = builder.reader(far)?;
    let reading = std::thread::spawn(move || {
        let mut data = Vec::new();
        reader.read_to_end(&mut data).map(|_| data)
    });

    let begin = Instant::now();
    let clock = move || dwell_base::Instant::from_ns(begin.elapsed().as_nanos() as u64);
    let mut writer = builder.writer(near, clock)?;
    let text = b"Compressed while TCP takes no more. ".repeat(100_000);
    let mut rest = &text[..];
    while !writer.is_finished() {
        rest = &rest[writer.write(rest)?..];
        if rest.is_empty() {
            writer.finish();
        }
        if writer.pump()? == Wait::Nothing {
            continue;
        }
        // TCP should hold more on a fast link, or a moment's sleep would leave it idle.
        if held != writer.not_sent_len() {
            held = writer.not_sent_len();
            SockRef::from(writer.transport()).set_tcp_notsent_lowat(held)?;
            writer.transport_holds(held);
        }
        poll(&mut [PollFd::new(writer.transport(), PollFlags::OUT)], None)?;
    }
    let stats = writer.stats().clone();
    writer.into_transport().shutdown(Shutdown::Write)?;

    let got = reading.join().map_err(|_| "the reader panicked")??;
    println!("{} bytes, {} on the wire", stats.accepted_bytes, stats.wire_bytes);
    if got == text { Ok(()) } else { Err("it is not the same".into()) }
}
