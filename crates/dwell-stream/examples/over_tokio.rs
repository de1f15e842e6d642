//! Both directions of a connection of tokio's: a server that answers each line in capitals.
//!
//! `cargo run -p dwell-stream --features tokio --example over_tokio`

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this is a program, and no part of the library"
)]

use std::error::Error;
use std::time::Instant;

use dwell_stream::Builder;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The questions that are asked.
const LINES: usize = 1000;

pub(crate) fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        let (far, _) = listener.accept().await?;
        let (served, answers) = tokio::join!(serve(far), ask(near));
        println!("{} lines asked, {} answers", served?, answers?);
        Ok(())
    })
}

fn clock() -> impl Fn() -> dwell_base::Instant {
    let begin = Instant::now();
    move || dwell_base::Instant::from_ns(begin.elapsed().as_nanos() as u64)
}

async fn serve(tcp: TcpStream) -> std::io::Result<usize> {
    tcp.set_nodelay(true)?;
    let builder = Builder::new();
    let (read, write) = tcp.into_split();
    let mut lines = builder.tokio_reader(read).map_err(std::io::Error::other)?.lines();
    let mut writer = builder.tokio_writer(write, clock()).map_err(std::io::Error::other)?;
    let mut count = 0;
    while let Some(line) = lines.next_line().await? {
        writer.write_all(format!("{}\n", line.to_uppercase()).as_bytes()).await?;
        // Whoever asked waits for it.
        writer.flush().await?;
        count += 1;
    }
    // The end, as the other one has said its own.
    writer.shutdown().await?;
    Ok(count)
}

async fn ask(tcp: TcpStream) -> std::io::Result<usize> {
    tcp.set_nodelay(true)?;
    let builder = Builder::new();
    let (read, write) = tcp.into_split();
    let mut lines = builder.tokio_reader(read).map_err(std::io::Error::other)?.lines();
    let mut writer = builder.tokio_writer(write, clock()).map_err(std::io::Error::other)?;
    for number in 0..LINES {
        writer.write_all(format!("question {number}\n").as_bytes()).await?;
        writer.flush().await?;
        let answer = lines.next_line().await?;
        if answer != Some(format!("QUESTION {number}")) {
            return Err(std::io::Error::other(format!("{answer:?} is no answer")));
        }
    }
    writer.shutdown().await?;
    match lines.next_line().await? {
        None => Ok(LINES),
        Some(more) => Err(std::io::Error::other(format!("{more} was not asked for"))),
    }
}
