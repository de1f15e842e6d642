//! The sending end of a transfer.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use dwell_stream::{BLOCK_LEN_MAX, Sender};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::blocks::Have;
use super::count::Count;
use super::repeats::{Finder, WINDOW_LOG2_MIN, window_log2};
use super::source::{Outlet, Recorder, Sent, Source, Stop};
use super::{
    CONTEXT_LOG_USUAL, CONTEXT_PART, ContextLogs, Meter, Offer, PIECES_MAX, Progress, Summary,
    TransferError, set_context,
};
use crate::carrier::{Carrier, CarrierError};
use crate::clock;
use crate::compress::CompressorPool;
use crate::config::Compression;
use crate::engine::{self, RunError, reported_to_stop};
use crate::hello::{Hello, Purpose};
use crate::message::{MESSAGE_BYTES_MAX, Message, MessageError};
use crate::security::{self, Security};
use crate::target::{Host, Target};
use crate::uplink::Uplink;

/// No more than this is sent without waiting for the receiver's answer, and without asking what it has: it would
/// take no longer to send all of it again.
const EAGER_BYTES_MAX: u64 = 1 << 20;
/// The same in files, directories and links.
const EAGER_ENTRIES_MAX: u64 = 256;
/// Answers that the thread that reads has not taken yet. What it asks for at once has fewer.
const ANSWERS_MAX: usize = 1024;
/// A transfer begins as if its link carried this many bytes a second: what is sent before the link's rate is known
/// is compressed, too, but not for long.
const RATE_AT_FIRST: f64 = 12.5e6;

/// The settings of a sender.
pub struct Send {
    /// What is sent.
    pub source: Source,
    /// Files with the same length and time as the receiver's are taken to be the same.
    pub is_quick: bool,
    /// The memory for what repeats at a long distance, in bytes.
    pub memory_bytes_max: u64,
    /// The receiver.
    pub to: Target,
    /// The protection of the connection.
    pub security: Security,
    /// The compression.
    pub compressing: Compression,
    /// The longest time to connect.
    pub connect: Duration,
    /// The longest time that the receiver may say nothing; it says that it is there every 15 s. Usually
    /// [`SILENCE_MAX`](crate::transfer::SILENCE_MAX).
    pub silence: Duration,
}

/// What the thread that reads has made. At the end what became of it, or why it does not go on.
enum Piece {
    Bytes(Vec<u8>),
    End(Sent),
    Failed(Stop),
}

/// Sends files, and returns when the receiver has them. Notifies `on_progress` now and then.
///
/// # Errors
/// The receiver does not have all of it then, or could not say that it does.
pub fn send(job: Send, on_progress: impl FnMut(&Progress)) -> Result<Summary, TransferError> {
    engine::run(async move {
        tokio::select! {
            summary = send_files(job, on_progress) => Ok(summary),
            _ = reported_to_stop() => Ok(Err(TransferError::Interrupted)),
        }
    })?
}

async fn send_files(
    job: Send,
    on_progress: impl FnMut(&Progress),
) -> Result<Summary, TransferError> {
    let (source, silence) = (job.source, job.silence);
    let is_short = source.bytes.is_some_and(|bytes| bytes <= EAGER_BYTES_MAX);
    // A third of it is for places.
    let memory = job.memory_bytes_max;
    let window_log2 = window_log2((memory - memory / CONTEXT_PART) / 3 * 2);
    let offer = Offer {
        window_log2,
        name: source.name.clone(),
        bytes: source.bytes,
        files: source.files,
        others: source.others,
        is_tree: source.is_tree,
        is_eager: is_short && source.files.saturating_add(source.others) <= EAGER_ENTRIES_MAX,
    };
    let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
    let mut carrier = connect(&job.to, &job.security, &hello, &offer, job.connect).await?;
    let (asks, window_log2) =
        match offer.is_eager {
            // What every receiver holds.
            true => (false, window_log2.min(WINDOW_LOG2_MIN)),
            false => tokio::time::timeout(silence, accepted(&mut carrier)).await.unwrap_or_else(
                |_| Err(TransferError::Connection("the receiver does not answer".to_owned())),
            )?,
        };
    let window_log2 = window_log2.min(offer.window_log2);
    let finder =
        (window_log2 > 0).then(|| Finder::new(window_log2, offer.bytes.unwrap_or(u64::MAX)));

    let mut config = job.compressing.sender_config(&carrier.theirs);
    let context = match offer.is_eager {
        true => ContextLogs { window: CONTEXT_LOG_USUAL, model: 0 },
        false => ContextLogs { window: carrier.theirs.window_log, model: carrier.theirs.model_log },
    };
    set_context(&mut config, context, memory);
    let mut sender =
        Sender::new(&config).map_err(|error| TransferError::Connection(error.to_string()))?;
    sender.expect_rate(clock::now(), RATE_AT_FIRST);
    let compress = CompressorPool::new().map_err(RunError::from)?;
    let (answers, for_reader) = blocking::sync_channel(ANSWERS_MAX);
    let count = Arc::new(Count::default());
    let what = source.what.clone();
    let for_reader = asks.then_some(for_reader);
    let read = read_aside(source, for_reader, job.is_quick, finder, Arc::clone(&count));
    let mut sending = Sending {
        pieces: read.map_err(RunError::from)?,
        piece: Vec::new(),
        at: 0,
        sent: None,
        answers: asks.then_some(answers),
        is_eager: offer.is_eager,
        up: Uplink::new(sender, None),
        compress,
        count,
        meter: Meter::new(offer.bytes, on_progress),
        patience: Patience::new(silence),
    };
    let outcome = poll_fn(|cx| sending.poll(cx, &mut carrier)).await;
    let ended = async {
        if offer.is_eager {
            let answered = async {
                carrier.meet(&hello).await?;
                accepted(&mut carrier).await
            };
            // All may be in buffers on the way, and nobody there who reads it.
            tokio::time::timeout(silence, answered).await.map_err(|_| silent(silence))??;
        }
        done(&mut carrier, silence).await
    };
    let (left_out_there, kept) = match outcome {
        Ok(true) => ended.await?,
        // The receiver has something to say before the end: it can only be bad news.
        Ok(false) => {
            return Err(ended.await.err().unwrap_or_else(|| {
                TransferError::Connection("the receiver was content before the end".to_owned())
            }));
        }
        Err(Failure::Source(error)) => return Err(TransferError::Read { what, error }),
        Err(Failure::Malformed) => {
            return Err(TransferError::Malformed("an answer to what was not asked".to_owned()));
        }
        Err(Failure::Silent) => return Err(silent(silence)),
        Err(Failure::Carrier(error)) => {
            // Whoever gives up says why, and closes.
            return Err(match ended.await {
                Err(why @ (TransferError::Refused(_) | TransferError::Hello(_))) => why,
                _ => TransferError::Connection(error.to_string()),
            });
        }
    };
    let sent = sending.sent.take().unwrap_or_default();
    let link_bytes = sending.up.stats().wire_bytes;
    Ok(Summary {
        name: offer.name,
        files: sent.files,
        progress: sending.meter.at(sending.count.get(), link_bytes),
        blake3: sent.blake3,
        left_out: sent.left_out,
        remarks: sent.remarks,
        left_out_there,
        kept,
    })
}

/// Connects and offers. If all is to follow at once, nothing is waited for.
async fn connect(
    to: &Target,
    security: &Security,
    hello: &Hello,
    offer: &Offer,
    time: Duration,
) -> Result<Carrier, TransferError> {
    let host = match &to.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    let tls = security::client(security, Purpose::File, &host)?;
    let first = Message::Offer(offer.clone()).encode();
    let connecting = async {
        let mut carrier = Carrier::begin(to, tls, hello, &first).await?;
        if !offer.is_eager {
            carrier.meet(hello).await?;
        }
        Ok(carrier)
    };
    let connected = tokio::time::timeout(time, connecting).await;
    connected.unwrap_or(Err(CarrierError::Expired)).map_err(|error| not_connected(to, &error))
}

fn not_connected(to: &Target, error: &CarrierError) -> TransferError {
    let to = to.to_string();
    match error {
        CarrierError::OtherKey => TransferError::OtherKey { to },
        other => TransferError::Connect { to, why: other.to_string() },
    }
}

/// Waits until the offer is accepted; whether the receiver is to be asked what it has, and how much it holds.
async fn accepted(carrier: &mut Carrier) -> Result<(bool, u8), TransferError> {
    match carrier.read_message().await? {
        Message::Accept { asks, window_log2 } => Ok((asks, window_log2)),
        other => Err(unexpected(other)),
    }
}

/// Waits until the receiver has it all, as long as it says that it is there; how many entries it has left out, and
/// kept.
async fn done(carrier: &mut Carrier, silence: Duration) -> Result<(u64, u64), TransferError> {
    loop {
        let heard = tokio::time::timeout(silence, carrier.read_message()).await;
        match heard.map_err(|_| silent(silence))?? {
            Message::Done { left_out, kept } => return Ok((left_out, kept)),
            Message::Alive => {}
            other => return Err(unexpected(other)),
        }
    }
}

fn silent(silence: Duration) -> TransferError {
    let seconds = silence.as_secs_f64();
    TransferError::Connection(format!("the receiver has said nothing for {seconds} s"))
}

fn unexpected(message: Message) -> TransferError {
    match message {
        Message::Refused(_, text) => TransferError::Refused(text),
        _ => TransferError::Connection(MessageError::Body.to_string()),
    }
}

/// Hands pieces over to those who send them.
struct Pieces(mpsc::Sender<Piece>);

impl Outlet for Pieces {
    fn put(&mut self, piece: Vec<u8>) -> bool {
        self.0.blocking_send(Piece::Bytes(piece)).is_ok()
    }
}

/// Reads and hashes on a thread of its own, as reading may take any time.
fn read_aside(
    source: Source,
    answers: Option<blocking::Receiver<Have>>,
    is_quick: bool,
    finder: Option<Finder>,
    count: Arc<Count>,
) -> io::Result<mpsc::Receiver<Piece>> {
    let (pieces, receiver) = mpsc::channel(PIECES_MAX);
    let read = move || {
        let mut outlet = Pieces(pieces);
        let made = Recorder::new(answers, is_quick, finder, &mut outlet, count).run(source);
        // Nobody waits for it if the transfer has failed.
        let _ = outlet.0.blocking_send(match made {
            Ok(sent) => Piece::End(sent),
            Err(stop) => Piece::Failed(stop),
        });
    };
    thread::Builder::new().name("dwell-read".to_owned()).spawn(read)?;
    Ok(receiver)
}

enum Failure {
    Source(io::Error),
    Carrier(io::Error),
    /// Nothing was heard of the receiver for too long.
    Silent,
    Malformed,
}

/// How long nothing was heard of the receiver.
struct Patience {
    silence: Duration,
    ends: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(silence: Duration) -> Self {
        Self { silence, ends: Box::pin(tokio::time::sleep(silence)) }
    }

    fn heard(&mut self) {
        self.ends.as_mut().reset(tokio::time::Instant::now() + self.silence);
    }
}

/// The stream of a transfer.
struct Sending<F> {
    pieces: mpsc::Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
    sent: Option<Sent>,
    /// Where the receiver's answers go; none if nothing is asked.
    answers: Option<blocking::SyncSender<Have>>,
    is_eager: bool,
    up: Uplink,
    compress: CompressorPool,
    count: Arc<Count>,
    meter: Meter<F>,
    patience: Patience,
}

impl<F: FnMut(&Progress)> Sending<F> {
    /// Ready with `true` when the end has been sent, with `false` if the receiver said something else than an
    /// answer.
    fn poll(&mut self, cx: &mut Context<'_>, carrier: &mut Carrier) -> Poll<Result<bool, Failure>> {
        loop {
            let took = self.take(cx)?;
            let sent = self.up.poll(cx, carrier, &self.compress).map_err(Failure::Carrier)?;
            self.meter.moved(self.count.get(), self.up.stats().wire_bytes);
            if self.up.is_finished() {
                return Poll::Ready(Ok(true));
            }
            let heard = received(cx, carrier).map_err(Failure::Carrier)?;
            if heard {
                self.patience.heard();
            }
            if heard && self.is_news(carrier)? {
                return Poll::Ready(Ok(false));
            }
            if !took && !sent && !heard {
                return self.patience.ends.as_mut().poll(cx).map(|()| Err(Failure::Silent));
            }
        }
    }

    /// Takes answers out of what the receiver has said. True if there is something else.
    fn is_news(&self, carrier: &mut Carrier) -> Result<bool, Failure> {
        if self.is_eager {
            // Its hello and more: that can wait for the end, which is near.
            return if carrier.rest.len() > MESSAGE_BYTES_MAX {
                Err(Failure::Malformed)
            } else {
                Ok(false)
            };
        }
        loop {
            match Message::decode(&carrier.rest) {
                Ok(Some((Message::Have(have), used))) => {
                    let answers = self.answers.as_ref().ok_or(Failure::Malformed)?;
                    match answers.try_send(have) {
                        // Whoever reads has ended, which is found out elsewhere.
                        Ok(()) | Err(blocking::TrySendError::Disconnected(_)) => {}
                        Err(blocking::TrySendError::Full(_)) => return Err(Failure::Malformed),
                    }
                    carrier.rest.drain(..used);
                }
                Ok(Some((Message::Alive, used))) => drop(carrier.rest.drain(..used)),
                Ok(Some(_)) => return Ok(true),
                Ok(None) => return Ok(false),
                Err(_) => return Err(Failure::Malformed),
            }
        }
    }

    /// Gives the sender what it has room for.
    fn take(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        while self.sent.is_none() && self.up.sender.room() > 0 {
            if self.at < self.piece.len() {
                self.at += self.up.sender.accept(&self.piece[self.at..]);
                moved = true;
                continue;
            }
            match self.pieces.poll_recv(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Piece::Bytes(bytes))) => (self.piece, self.at) = (bytes, 0),
                Poll::Ready(Some(Piece::End(sent))) => {
                    self.sent = Some(sent);
                    self.up.finish();
                    moved = true;
                }
                Poll::Ready(Some(Piece::Failed(Stop::Read(error)))) => {
                    return Err(Failure::Source(error));
                }
                Poll::Ready(Some(Piece::Failed(Stop::Answer))) => return Err(Failure::Malformed),
                Poll::Ready(Some(Piece::Failed(Stop::Gone)) | None) => {
                    let error = io::Error::other("what reads it has come to an end of its own");
                    return Err(Failure::Source(error));
                }
            }
        }
        Ok(moved)
    }
}

/// Returns true if the receiver has said something, which is then in the carrier's rest.
fn received(cx: &mut Context<'_>, carrier: &mut Carrier) -> io::Result<bool> {
    let mut bytes = [0; 4096];
    let mut buffer = ReadBuf::new(&mut bytes);
    match Pin::new(&mut *carrier).poll_read(cx, &mut buffer)? {
        Poll::Pending => Ok(false),
        Poll::Ready(()) if buffer.filled().is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        Poll::Ready(()) => {
            carrier.rest.extend_from_slice(buffer.filled());
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests;
