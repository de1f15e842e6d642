//! The receiving end of a transfer.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use aws_lc_rs::digest::{self, SHA256};
use dwell_stream::{BLOCK_LEN_MAX, Limits, Receiver, Unpress};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::output::{Output, Place};
use super::{Meter, PIECE_BYTES, PIECES_MAX, Progress, Summary, TransferError};
use crate::carrier::Carrier;
use crate::engine::{self, RunError, told_to_stop};
use crate::hello::{Hello, Purpose};
use crate::message::{Message, MessageError, Reason};
use crate::security::{self, Security};

/// What is waited for, and where it is to go.
#[derive(Debug)]
pub struct Receive {
    /// Where to listen.
    pub listen: SocketAddr,
    /// How the connection is protected.
    pub security: Security,
    /// Where the file is to go.
    pub place: Place,
    /// Whether it may replace one that is there.
    pub replace: bool,
    /// The longest time that a sender has to show that it knows the key.
    pub handshake: Duration,
}

/// So many may be about to show at once that they know the key.
const HANDSHAKES_MAX: usize = 64;
/// The longest that is waited for what was begun to be removed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Waits for one file, and returns when it is where it belongs. `ready` is told where it listens,
/// `begun` who sends what; now and then `tell` is told how far it is.
///
/// # Errors
/// Nothing is left of the file then.
pub fn receive(
    job: Receive,
    ready: impl FnOnce(SocketAddr),
    begun: impl FnOnce(SocketAddr, &str, Option<u64>),
    tell: impl FnMut(&Progress),
) -> Result<Summary, TransferError> {
    engine::run(async move {
        let mut writer = None;
        let result = tokio::select! {
            summary = receive_file(&job, ready, begun, tell, &mut writer) => summary,
            _ = told_to_stop() => Err(TransferError::Interrupted),
        };
        if let Some(writer) = writer {
            // Without its sender it ends, and removes what is not complete.
            drop(writer.pieces);
            if let Some(gone) = writer.gone {
                let _ = tokio::time::timeout(FAREWELL, gone).await;
            }
        }
        Ok(result)
    })?
}

async fn receive_file(
    job: &Receive,
    ready: impl FnOnce(SocketAddr),
    begun: impl FnOnce(SocketAddr, &str, Option<u64>),
    tell: impl FnMut(&Progress),
    place: &mut Option<Writer>,
) -> Result<Summary, TransferError> {
    let tls = security::server(&job.security, Purpose::File)?;
    let listener = crate::ingress::bind(job.listen, false).map_err(|error| RunError::Listen {
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
    let mut meter = Meter::new(bytes, tell);
    let received = receive_stream(&mut carrier, writer, &mut meter).await;
    let (progress, sha256) = match received {
        Ok(received) => received,
        Err(Failure::Transfer(error)) => return Err(error),
        Err(Failure::Writer) => {
            let error = writer.error().await;
            let text = format!("{what} can't be written: {error}");
            // It may be gone as well.
            let _ = carrier.say(&Message::Refused(Reason::Other, text)).await;
            return Err(TransferError::Write { what, error });
        }
    };
    carrier.say(&Message::Done).await?;
    Ok(Summary { name: what, progress, sha256 })
}

/// The first who knows the key; others are told off. All who have connected are heard at once, so
/// that one who says nothing keeps nobody waiting; if they become too many, who has waited longest
/// goes.
async fn accept(
    job: &Receive,
    tls: Option<std::sync::Arc<rustls::ServerConfig>>,
    listener: &TcpListener,
) -> Result<Carrier, TransferError> {
    let mut heard = JoinSet::new();
    let mut waiting = VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (tcp, peer) = accepted.map_err(RunError::from)?;
                waiting.retain(|task: &AbortHandle| !task.is_finished());
                if waiting.len() == HANDSHAKES_MAX
                    && let Some(oldest) = waiting.pop_front()
                {
                    oldest.abort();
                }
                let (tls, time) = (tls.clone(), job.handshake);
                waiting.push_back(heard.spawn(async move {
                    let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
                    (peer, Carrier::accept(tcp, peer, tls, &hello, time).await)
                }));
            }
            Some(ended) = heard.join_next() => match ended {
                Ok((_, Ok(carrier))) => return Ok(carrier),
                Ok((peer, Err(error))) => tracing::warn!("{peer} is sent away: {error}"),
                Err(_) => tracing::warn!("somebody is sent away, as too many have connected"),
            },
        }
    }
}

enum Failure {
    Transfer(TransferError),
    /// What writes has ended; it knows why.
    Writer,
}

impl<E: Into<TransferError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Transfer(error.into())
    }
}

async fn receive_stream<F: FnMut(&Progress)>(
    carrier: &mut Carrier,
    writer: &Writer,
    meter: &mut Meter<F>,
) -> Result<(Progress, [u8; 32]), Failure> {
    let mut receiver = Receiver::new(Limits::in_order());
    let mut unpress = Unpress::new();
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
            .feed(&carrier.rest, &mut unpress)
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
    let (answer, verdict) = oneshot::channel();
    let end = Piece::End { bytes, sha256, answer };
    writer.pieces.send(end).await.map_err(|_| Failure::Writer)?;
    match verdict.await {
        Ok(true) => {}
        Ok(false) => {
            let text = TransferError::Differs.to_string();
            carrier.say(&Message::Refused(Reason::Other, text)).await?;
            return Err(TransferError::Differs.into());
        }
        Err(_) => return Err(Failure::Writer),
    }
    let stats = receiver.stats();
    Ok((meter.at(stats.data_bytes, stats.wire_bytes), sha256))
}

fn cut(error: &io::Error) -> TransferError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            TransferError::Connection("the sender went away before the end".to_owned())
        }
        _ => TransferError::Connection(error.to_string()),
    }
}

/// What is to be written; at the end what it must have been, and who wants to know whether it was
/// and is in its place.
enum Piece {
    Bytes(Vec<u8>),
    End { bytes: u64, sha256: [u8; 32], answer: oneshot::Sender<bool> },
}

/// A thread that writes and hashes, as writing may take any time.
#[derive(Debug)]
struct Writer {
    pieces: mpsc::Sender<Piece>,
    /// Why it ended; nothing if it was told to, or was asked already.
    gone: Option<oneshot::Receiver<io::Result<()>>>,
}

impl Writer {
    fn start(output: Output) -> io::Result<Self> {
        let (pieces, mut receiver) = mpsc::channel(PIECES_MAX);
        let (tell, gone) = oneshot::channel();
        let work = move || {
            // Nobody asks if all went well.
            let _ = tell.send(write(output, &mut receiver));
        };
        thread::Builder::new().name("dwell-write".to_owned()).spawn(work)?;
        Ok(Self { pieces, gone: Some(gone) })
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

fn write(mut output: Output, pieces: &mut mpsc::Receiver<Piece>) -> io::Result<()> {
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
                let same = bytes == written && digest.finish().as_ref() == sha256;
                if same {
                    output.complete()?;
                }
                let _ = answer.send(same);
                return Ok(());
            }
        }
    }
    Ok(())
}
