//! The receiving end of a transfer.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aws_lc_rs::digest::{self, SHA256};
use dwell_stream::{BLOCK_LEN_MAX, Decompressors, Limits, Receiver};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::output::{Output, Place};
use super::{Meter, PIECE_BYTES, PIECES_MAX, Progress, Summary, TransferError};
use crate::carrier::{Carrier, CarrierError};
use crate::engine::{self, RunError, reported_to_stop};
use crate::hello::{Hello, Purpose};
use crate::message::{Message, MessageError, Reason};
use crate::reception::Reception;
use crate::security::{self, Security};

/// The settings of a receiver.
#[derive(Debug)]
pub struct Receive {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The protection of the connection.
    pub security: Security,
    /// The place of the file.
    pub place: Place,
    /// True if it may replace one that is there.
    pub replace: bool,
    /// The longest time that a sender has to show that it knows the key.
    pub handshake: Duration,
}

/// At most this many may be about to show at once that they know the key.
const HANDSHAKES_MAX: usize = 64;
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest that is waited for what was begun to be removed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Waits for one file, and returns when it is where it belongs. `ready` is notified where it listens,
/// `begun` who sends what; `on_progress` is notified now and then.
///
/// # Errors
/// Nothing is left of the file then. (If it is in its place, there is none, although its sender may
/// not know of that any more.)
pub fn receive(
    job: Receive,
    ready: impl FnOnce(SocketAddr),
    begun: impl FnOnce(SocketAddr, &str, Option<u64>),
    on_progress: impl FnMut(&Progress),
) -> Result<Summary, TransferError> {
    engine::run(async move {
        let mut writer = None;
        let result = tokio::select! {
            // In this order, so that signals are heeded before anybody knows that it is there.
            biased;
            _ = reported_to_stop() => Err(TransferError::Interrupted),
            summary = receive_file(&job, ready, begun, on_progress, &mut writer) => summary,
        };
        Ok(match (result, writer) {
            (Err(error), Some(writer)) => writer.give_up().await.ok_or(error),
            (result, _) => result,
        })
    })?
}

async fn receive_file(
    job: &Receive,
    ready: impl FnOnce(SocketAddr),
    begun: impl FnOnce(SocketAddr, &str, Option<u64>),
    on_progress: impl FnMut(&Progress),
    place: &mut Option<Writer>,
) -> Result<Summary, TransferError> {
    let tls = security::server(&job.security, Purpose::File)?;
    let listener = crate::ingress::bind(job.listen).map_err(|error| RunError::Listen {
        what: job.listen.to_string(),
        error,
        help: "",
    })?;
    ready(listener.local_addr().map_err(RunError::from)?);
    let mut carrier = accept(job, tls, &listener).await?;
    drop(listener);
    let (bytes, name) = match carrier.read_message().await? {
        Message::Offer { bytes, name } => (bytes, name),
        _ => return Err(TransferError::Connection(MessageError::Body.to_string())),
    };
    begun(carrier.peer, &name, bytes);
    let created = Output::create(&job.place, &name, job.replace);
    let output = match created {
        Ok(output) => output,
        Err(why) => {
            carrier.say(&Message::Refused(Reason::Other, why.clone())).await?;
            let error = io::Error::other(why);
            return Err(TransferError::Write { what: "what is offered".to_owned(), error });
        }
    };
    let what = output.name();
    let writer = place.insert(Writer::start(output).map_err(RunError::from)?);
    carrier.say(&Message::Accept).await?;
    let mut meter = Meter::new(bytes, on_progress);
    let received = receive_stream(&mut carrier, writer, &mut meter).await;
    let summary = match received {
        Ok(summary) => summary,
        Err(Failure::Transfer(error)) => return Err(error),
        Err(Failure::Writer) => {
            let error = writer.error().await;
            let text = format!("{what} can't be written: {error}");
            // It may be gone as well.
            let _ = carrier.say(&Message::Refused(Reason::Other, text)).await;
            return Err(TransferError::Write { what, error });
        }
    };
    if let Err(error) = carrier.say(&Message::Done).await {
        tracing::warn!("{what} is complete, but its sender could not be informed: {error}");
    }
    Ok(summary)
}

/// Returns the first who knows the key; others are rejected. All who have connected are served at once, so
/// that one who says nothing keeps nobody waiting.
async fn accept(
    job: &Receive,
    tls: Option<Arc<rustls::ServerConfig>>,
    listener: &TcpListener,
) -> Result<Carrier, TransferError> {
    let reception = Arc::new(Reception::new(HANDSHAKES_MAX));
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            // Nothing is waited for once it is accepted: whatever else happens meanwhile, no
            // connection is dropped that was accepted.
            accepted = listener.accept() => {
                let (tcp, peer) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!("a connection can't be accepted: {error}");
                        // One that went away at once, or no descriptors: others will be freed.
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                };
                let Some(admitted) = reception.try_admit(peer) else {
                    tracing::warn!(
                        "{peer} is rejected: {HANDSHAKES_MAX} others are about to show that they \
                         know the key; it may try again"
                    );
                    continue;
                };
                let (reception, tls, time) = (Arc::clone(&reception), tls.clone(), job.handshake);
                clients.spawn(async move {
                    let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
                    (peer, reception.welcome(admitted, tcp, peer, tls, &hello, time).await)
                });
            }
            Some(Ok((peer, ended))) = clients.join_next() => match ended {
                Ok(carrier) => return Ok(carrier),
                Err(CarrierError::OtherKey) => {
                    tracing::warn!("{peer} is rejected: its key is not the one that is wanted here");
                }
                Err(error) => tracing::warn!("{peer} is rejected: {error}"),
            },
        }
    }
}

enum Failure {
    Transfer(TransferError),
    /// The writer has ended; it knows why.
    Writer,
}

impl<E: Into<TransferError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Transfer(error.into())
    }
}

async fn receive_stream<F: FnMut(&Progress)>(
    carrier: &mut Carrier,
    writer: &mut Writer,
    meter: &mut Meter<F>,
) -> Result<Summary, Failure> {
    let mut receiver = Receiver::new(Limits::in_order());
    let mut decompress = Decompressors::new();
    let mut bytes = vec![0; PIECE_BYTES];
    while !receiver.is_finished() {
        if carrier.rest.is_empty() {
            let len = carrier.read(&mut bytes).await.map_err(|error| cut(&error))?;
            if len == 0 {
                return Err(cut(&io::ErrorKind::UnexpectedEof.into()).into());
            }
            carrier.rest.extend_from_slice(&bytes[..len]);
        }
        let taken = receiver
            .feed(&carrier.rest, &mut decompress)
            .map_err(|error| Failure::Transfer(TransferError::Damaged(error)))?;
        carrier.rest.drain(..taken);
        if !receiver.data().is_empty() {
            let piece = receiver.data().to_vec();
            receiver.consume(piece.len());
            writer.pieces.send(Piece::Bytes(piece)).await.map_err(|_| Failure::Writer)?;
        }
        let stats = receiver.stats();
        meter.moved(stats.data_bytes, stats.wire_bytes);
    }
    let Message::Digest { bytes, sha256 } = carrier.read_message().await? else {
        return Err(TransferError::Connection(MessageError::Body.to_string()).into());
    };
    let stats = receiver.stats();
    let progress = meter.at(stats.data_bytes, stats.wire_bytes);
    let summary = Summary { name: writer.name.clone(), progress, sha256 };
    writer.expected = Some(summary.clone());
    let (answer, verdict) = oneshot::channel();
    let end = Piece::End { bytes, sha256, answer };
    writer.pieces.send(end).await.map_err(|_| Failure::Writer)?;
    match verdict.await {
        Ok(true) => Ok(summary),
        Ok(false) => {
            let text = TransferError::Differs.to_string();
            carrier.say(&Message::Refused(Reason::Other, text)).await?;
            Err(TransferError::Differs.into())
        }
        Err(_) => Err(Failure::Writer),
    }
}

fn cut(error: &io::Error) -> TransferError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            TransferError::Connection("the sender went away before the end".to_owned())
        }
        _ => TransferError::Connection(error.to_string()),
    }
}

/// A piece to be written; at the end the expected summary, and the sender that waits to know
/// whether it was written and is in its place.
enum Piece {
    Bytes(Vec<u8>),
    End { bytes: u64, sha256: [u8; 32], answer: oneshot::Sender<bool> },
}

/// A thread that writes and hashes, as writing may take any time.
#[derive(Debug)]
struct Writer {
    pieces: mpsc::Sender<Piece>,
    /// True if it put the file into its place, or why it could not; nothing if it was asked
    /// already.
    gone: Option<oneshot::Receiver<io::Result<bool>>>,
    /// The name of the output, for messages.
    name: String,
    /// The path of the output until it has its name; none if it is a pipe.
    part: Option<PathBuf>,
    /// The summary that is reported if the file comes to its place, once the end was received.
    expected: Option<Summary>,
}

impl Writer {
    fn start(output: Output) -> io::Result<Self> {
        let (pieces, mut receiver) = mpsc::channel(PIECES_MAX);
        let (outcome, gone) = oneshot::channel();
        let (name, part) = (output.name(), output.part());
        let work = move || {
            // Nobody asks if all went well.
            let _ = outcome.send(write(output, &mut receiver));
        };
        thread::Builder::new().name("dwell-write".to_owned()).spawn(work)?;
        Ok(Self { pieces, gone: Some(gone), name, part, expected: None })
    }

    /// Ends it before it was reported the end, or at least before it has said what came of that. What is
    /// not complete is removed; but it may be in its place already, and then that is reported.
    async fn give_up(self) -> Option<Summary> {
        // Without its sender it ends.
        drop(self.pieces);
        match tokio::time::timeout(FAREWELL, self.gone?).await {
            Ok(Ok(Ok(true))) => self.expected,
            Ok(_) => None,
            Err(_) => {
                // The disk does not answer. Whoever has no part can't put it into its place, either.
                let _ = std::fs::remove_file(self.part?);
                None
            }
        }
    }

    async fn error(&mut self) -> io::Error {
        let unknown = || io::Error::other("what writes it has come to an end of its own");
        let Some(gone) = self.gone.take() else { return unknown() };
        match gone.await {
            Ok(Err(error)) => error,
            _ => unknown(),
        }
    }
}

/// Returns true if the file is complete and in its place, when nothing more is to be done.
fn write(mut output: Output, pieces: &mut mpsc::Receiver<Piece>) -> io::Result<bool> {
    let mut digest = digest::Context::new(&SHA256);
    let mut written = 0;
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Piece::Bytes(bytes) => {
                output.write_all(&bytes)?;
                digest.update(&bytes);
                written += bytes.len() as u64;
            }
            Piece::End { bytes, sha256, answer } => {
                if bytes != written || digest.finish().as_ref() != sha256 {
                    let _ = answer.send(false);
                    return Ok(false);
                }
                output.sync()?;
                // Who has given up says that nothing is left.
                if answer.is_closed() {
                    return Ok(false);
                }
                output.complete()?;
                let _ = answer.send(true);
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file of these bytes, whose end is reported by a sender that still waits or not.
    fn written(directory: &std::path::Path, bytes: &[u8], waits: bool) -> io::Result<bool> {
        let place = Place::Directory(directory.to_path_buf());
        let output = Output::create(&place, "a", false).unwrap();
        let (pieces, mut receiver) = mpsc::channel(PIECES_MAX);
        let (answer, verdict) = oneshot::channel();
        let verdict = waits.then_some(verdict);
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest::digest(&SHA256, b"hello").as_ref());
        pieces.try_send(Piece::Bytes(bytes.to_vec())).unwrap_or_else(|_| panic!());
        pieces.try_send(Piece::End { bytes: 5, sha256, answer }).unwrap_or_else(|_| panic!());
        let result = write(output, &mut receiver);
        if let (Some(mut verdict), Ok(is_complete)) = (verdict, &result) {
            assert_eq!(verdict.try_recv().ok(), Some(*is_complete));
        }
        result
    }

    #[test]
    fn what_is_given_up_does_not_come_to_its_place() {
        let name = format!("dwell-given-up-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let is_empty = || std::fs::read_dir(&directory).unwrap().next().is_none();
        for (bytes, waits) in [(&b"hello"[..], false), (b"hallo", true), (b"hell", true)] {
            assert!(!written(&directory, bytes, waits).unwrap());
            assert!(is_empty(), "{bytes:?}");
        }
        assert!(written(&directory, b"hello", true).unwrap());
        assert_eq!(std::fs::read(directory.join("a")).unwrap(), b"hello");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
