//! The sending end of a transfer.

use std::future::poll_fn;
use std::io::{self, Read};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use aws_lc_rs::digest::{self, SHA256};
use dwell_stream::{BLOCK_LEN_MAX, Sender};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::{Meter, PIECE_BYTES, PIECES_MAX, Progress, Summary, TransferError};
use crate::carrier::{Carrier, CarrierError};
use crate::compress::CompressorPool;
use crate::config::Compression;
use crate::engine::{self, RunError, reported_to_stop};
use crate::hello::{Hello, Purpose};
use crate::message::{Message, MessageError};
use crate::security::{self, Security};
use crate::target::{Host, Target};
use crate::uplink::Uplink;

/// The settings of a sender.
pub struct Send {
    /// The bytes.
    pub source: Box<dyn Read + std::marker::Send>,
    /// The name of the input, for messages.
    pub what: String,
    /// Its name at the receiver, without directories; empty for a pipe.
    pub name: String,
    /// Its length, if it is known.
    pub bytes: Option<u64>,
    /// The receiver.
    pub to: Target,
    /// The protection of the connection.
    pub security: Security,
    /// The compression.
    pub compressing: Compression,
    /// The longest time to connect.
    pub connect: Duration,
}

/// A piece of the source, or why there is none. At the end the digest of all.
enum Piece {
    Bytes(Vec<u8>),
    End([u8; 32]),
    Failed(io::Error),
}

/// Sends a file, and returns when the receiver has it. Notifies `on_progress` now and then.
///
/// # Errors
/// The receiver has nothing then, or could not say that it has it.
pub fn send(job: Send, on_progress: impl FnMut(&Progress)) -> Result<Summary, TransferError> {
    engine::run(async move {
        tokio::select! {
            summary = send_file(job, on_progress) => Ok(summary),
            _ = reported_to_stop() => Ok(Err(TransferError::Interrupted)),
        }
    })?
}

async fn send_file(
    job: Send,
    on_progress: impl FnMut(&Progress),
) -> Result<Summary, TransferError> {
    let host = match &job.to.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    let tls = security::client(&job.security, Purpose::File, &host)?;
    let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
    let mut carrier = Carrier::connect(&job.to, tls, &hello, job.connect)
        .await
        .map_err(|error| not_connected(&job.to, &error))?;
    carrier.say(&Message::Offer { bytes: job.bytes, name: job.name.clone() }).await?;
    expect(&mut carrier, &Message::Accept).await?;

    let config = job.compressing.sender_config(&carrier.theirs);
    let sender =
        Sender::new(&config).map_err(|error| TransferError::Connection(error.to_string()))?;
    let compress = CompressorPool::new().map_err(RunError::from)?;
    let mut sending = Sending {
        pieces: read_aside(job.source).map_err(RunError::from)?,
        piece: Vec::new(),
        at: 0,
        sha256: None,
        up: Uplink::new(sender, None),
        compress,
        meter: Meter::new(job.bytes, on_progress),
    };
    let sent = poll_fn(|cx| sending.poll(cx, &mut carrier)).await;
    match sent {
        Ok(true) => {}
        // The receiver has something to say before the end: it can only be bad news.
        Ok(false) => {
            return Err(expect(&mut carrier, &Message::Done).await.err().unwrap_or(
                TransferError::Connection("the receiver was content before the end".to_owned()),
            ));
        }
        Err(Failure::Source(error)) => {
            return Err(TransferError::Read { what: job.what, error });
        }
        Err(Failure::Carrier(error)) => {
            // Whoever gives up says why, and closes.
            let why = expect(&mut carrier, &Message::Done).await;
            return Err(match why {
                Err(refused @ TransferError::Refused(_)) => refused,
                _ => TransferError::Connection(error.to_string()),
            });
        }
    }
    let stats = sending.up.stats();
    let (bytes, link_bytes) = (stats.accepted_bytes, stats.wire_bytes);
    let sha256 = sending.sha256.unwrap_or_default();
    carrier.say(&Message::Digest { bytes, sha256 }).await?;
    expect(&mut carrier, &Message::Done).await?;
    Ok(Summary { name: job.name, progress: sending.meter.at(bytes, link_bytes), sha256 })
}

fn not_connected(to: &Target, error: &CarrierError) -> TransferError {
    let to = to.to_string();
    match error {
        CarrierError::OtherKey => TransferError::OtherKey { to },
        other => TransferError::Connect { to, why: other.to_string() },
    }
}

/// Reads the message that must come now.
async fn expect(carrier: &mut Carrier, wanted: &Message) -> Result<(), TransferError> {
    match carrier.read_message().await? {
        message if message == *wanted => Ok(()),
        Message::Refused(_, text) => Err(TransferError::Refused(text)),
        _ => Err(TransferError::Connection(MessageError::Body.to_string())),
    }
}

/// Reads and hashes on a thread of its own, as reading may take any time.
fn read_aside(mut source: Box<dyn Read + std::marker::Send>) -> io::Result<mpsc::Receiver<Piece>> {
    let (pieces, receiver) = mpsc::channel(PIECES_MAX);
    let read = move || {
        let mut digest = digest::Context::new(&SHA256);
        loop {
            let mut bytes = vec![0; PIECE_BYTES];
            let piece = match source.read(&mut bytes) {
                Ok(0) => {
                    let mut sha256 = [0; 32];
                    sha256.copy_from_slice(digest.finish().as_ref());
                    // Nobody waits for it if the transfer has failed.
                    let _ = pieces.blocking_send(Piece::End(sha256));
                    return;
                }
                Ok(len) => {
                    bytes.truncate(len);
                    digest.update(&bytes);
                    Piece::Bytes(bytes)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Piece::Failed(error),
            };
            let failed = matches!(piece, Piece::Failed(_));
            if pieces.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    };
    thread::Builder::new().name("dwell-read".to_owned()).spawn(read)?;
    Ok(receiver)
}

enum Failure {
    Source(io::Error),
    Carrier(io::Error),
}

/// The stream of a file.
struct Sending<F> {
    pieces: mpsc::Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
    sha256: Option<[u8; 32]>,
    up: Uplink,
    compress: CompressorPool,
    meter: Meter<F>,
}

impl<F: FnMut(&Progress)> Sending<F> {
    /// Ready with `true` when the end has been sent, with `false` if the receiver said something.
    fn poll(&mut self, cx: &mut Context<'_>, carrier: &mut Carrier) -> Poll<Result<bool, Failure>> {
        loop {
            let took = self.take(cx).map_err(Failure::Source)?;
            let sent = self.up.poll(cx, carrier, &self.compress).map_err(Failure::Carrier)?;
            let stats = self.up.stats();
            self.meter.moved(stats.accepted_bytes, stats.wire_bytes);
            if self.up.is_finished() {
                return Poll::Ready(Ok(true));
            }
            if received(cx, carrier).map_err(Failure::Carrier)? {
                return Poll::Ready(Ok(false));
            }
            if !took && !sent {
                return Poll::Pending;
            }
        }
    }

    /// Gives the sender what it has room for.
    fn take(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        while self.sha256.is_none() && self.up.sender.room() > 0 {
            if self.at < self.piece.len() {
                self.at += self.up.sender.accept(&self.piece[self.at..]);
                moved = true;
                continue;
            }
            match self.pieces.poll_recv(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Piece::Bytes(bytes))) => (self.piece, self.at) = (bytes, 0),
                Poll::Ready(Some(Piece::End(sha256))) => {
                    self.sha256 = Some(sha256);
                    self.up.finish();
                    moved = true;
                }
                Poll::Ready(Some(Piece::Failed(error))) => return Err(error),
                Poll::Ready(None) => {
                    return Err(io::Error::other("what reads it has come to an end of its own"));
                }
            }
        }
        Ok(moved)
    }
}

/// Returns true if the receiver has said something, which is then in the carrier's rest.
fn received(cx: &mut Context<'_>, carrier: &mut Carrier) -> io::Result<bool> {
    let mut bytes = [0; 512];
    let mut buffer = ReadBuf::new(&mut bytes);
    match std::pin::Pin::new(&mut *carrier).poll_read(cx, &mut buffer)? {
        Poll::Pending => Ok(false),
        Poll::Ready(()) if buffer.filled().is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        Poll::Ready(()) => {
            carrier.rest.extend_from_slice(buffer.filled());
            Ok(true)
        }
    }
}
