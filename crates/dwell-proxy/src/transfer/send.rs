//! The sending end of a transfer.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc as blocking;
use std::task::{Context, Poll};
use std::time::Duration;

use dwell_stream::BLOCK_LEN_MAX;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

use super::repeats::{WINDOW_LOG2_MIN, window_log2};
use super::source::{Sent, Source, Stop};
use super::{
    CONTEXT_LOG_USUAL, CONTEXT_PART, ContextLogs, Meter, Offer, Progress, Summary, TransferError,
};
use crate::carrier::{Carrier, CarrierError, Early, NotEstablished};
use crate::compress::CompressorPool;
use crate::config::Compression;
use crate::engine::{self, RunError, StopSignals};
use crate::hello::{Hello, Purpose};
use crate::message::{MESSAGE_BYTES_MAX, Message, MessageError, Rest};
use crate::security::{self, Security};
use crate::target::{Host, Target};
use crate::uplink::Uplink;

use plan::{FAST_RATE, Plan};
use reading::{Piece, Reading};

/// Answers that the thread that reads has not taken yet. What it asks for at once has fewer.
const ANSWERS_MAX: usize = 1024;
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
    /// With a shared key, and over a long way, the first bytes go together with TLS's first flight, a round trip sooner. They
    /// have no forward secrecy: whoever records them and gets the key later can read them.
    pub goes_early: bool,
    /// The compression.
    pub compressing: Compression,
    /// The longest time to connect.
    pub connect: Duration,
    /// The longest time that the receiver may say nothing; it says that it is there every 15 s. Usually
    /// [`SILENCE_MAX`](crate::transfer::SILENCE_MAX).
    pub silence: Duration,
}

/// Sends files, and returns when the receiver has them. Notifies `on_progress` now and then.
///
/// # Errors
/// The receiver does not have all of it then, or could not say that it does.
pub fn send(job: Send, on_progress: impl FnMut(&Progress)) -> Result<Summary, TransferError> {
    engine::run(async move {
        let mut signals = StopSignals::new()?;
        tokio::select! {
            summary = send_files(job, on_progress) => Ok(summary),
            () = signals.recv() => Ok(Err(TransferError::Interrupted)),
        }
    })?
}

/// The same for each attempt.
struct Settings {
    is_quick: bool,
    memory_bytes_max: u64,
    to: Target,
    security: Security,
    compressing: Compression,
    connect: Duration,
    silence: Duration,
}

/// Why an attempt has come to nothing.
enum Unsent {
    /// The other end may be an earlier program, which knows no early data.
    Early(TransferError),
    Other(TransferError),
}

impl<E: Into<TransferError>> From<E> for Unsent {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

async fn send_files(
    job: Send,
    mut on_progress: impl FnMut(&Progress),
) -> Result<Summary, TransferError> {
    let Send { source, is_quick, memory_bytes_max, to, security, .. } = job;
    let Send { goes_early, compressing, connect, silence, .. } = job;
    let settings =
        Settings { is_quick, memory_bytes_max, to, security, compressing, connect, silence };
    let again = source.again();
    let first = attempt(source, &settings, goes_early, &mut on_progress).await;
    let (error, source) = match (first, again) {
        (Ok(summary), _) => return Ok(summary),
        (Err(Unsent::Early(error)), Some(source)) => (error, source),
        (Err(Unsent::Early(error) | Unsent::Other(error)), _) => return Err(error),
    };
    tracing::debug!("calling once more, without early data: {error}");
    attempt(source, &settings, false, on_progress).await.map_err(|again| match again {
        // It was there at first, and that is what has to be known.
        Unsent::Other(TransferError::Connect { .. }) => error,
        Unsent::Early(again) | Unsent::Other(again) => again,
    })
}

async fn attempt(
    source: Source,
    settings: &Settings,
    goes_early: bool,
    on_progress: impl FnMut(&Progress),
) -> Result<Summary, Unsent> {
    // A third of it is for places.
    let memory = settings.memory_bytes_max;
    let window_log2 = window_log2((memory - memory / CONTEXT_PART) / 3 * 2);
    let mut offer = Offer {
        window_log2,
        name: source.name.clone(),
        bytes: source.bytes,
        files: source.files,
        others: source.others,
        is_tree: source.is_tree,
        is_eager: false,
    };
    let again = source.again();
    let head = match (offer.is_short(), again.is_some()) {
        // Of what goes unasked a file that the receiver keeps could not come under its other names.
        (true, _) if source.has_links => Head::Over,
        (true, _) => Head::Whole,
        (false, true) if offer.is_worth_a_head() => Head::Unanswered,
        // What can be read only once waits for what the receiver has.
        (false, _) => Head::Over,
    };
    offer.is_eager = head != Head::Over;
    let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
    let early = goes_early && offer.is_eager && again.is_some();
    let mut carrier = connect(settings, &hello, &offer, early).await?;
    let begun = Begun { source, again, offer, head, hello, window_log2 };
    let sent = transfer(&mut carrier, settings, begun, on_progress).await;
    let (error, may_be_earlier) = match (sent, carrier.take_failed()) {
        (Ok(summary), _) => return Ok(summary),
        // What the receiver has said counts.
        (Err(error @ (TransferError::Refused(_) | TransferError::Hello(_))), _)
        | (Err(error), None) => return Err(error.into()),
        (Err(_), Some(NotEstablished { error, was_early })) => {
            let is_known = matches!(
                error,
                CarrierError::OtherKey | CarrierError::OtherProtection | CarrierError::Unprotected
            );
            (not_connected(&settings.to, &error), was_early && !is_known)
        }
    };
    // What it still holds would only be in the way of another call.
    carrier.reset_on_close();
    Err(if may_be_earlier { Unsent::Early(error) } else { Unsent::Other(error) })
}

/// A transfer that has been offered.
struct Begun {
    source: Source,
    again: Option<Source>,
    offer: Offer,
    head: Head,
    hello: Hello,
    window_log2: u8,
}

async fn transfer(
    carrier: &mut Carrier,
    settings: &Settings,
    begun: Begun,
    on_progress: impl FnMut(&Progress),
) -> Result<Summary, TransferError> {
    let Begun { source, again, offer, head, hello, window_log2 } = begun;
    let silence = settings.silence;
    // What every receiver holds.
    let unasked = Answer { asks: false, window_log2: WINDOW_LOG2_MIN };
    let (answer, context) = match head {
        Head::Over => (accepted_in_time(carrier, silence).await?, ContextLogs::of(carrier)),
        Head::Whole => (unasked, ContextLogs { window: CONTEXT_LOG_USUAL, model: 0 }),
        // Earlier receivers may know no contexts, and get all of it so.
        _ => (unasked, ContextLogs::default()),
    };
    let what = source.what.clone();
    let plan = Plan {
        compressing: settings.compressing.clone(),
        memory_bytes_max: settings.memory_bytes_max,
        window_log2,
        held: Arc::new(AtomicU8::new(answer.window_log2)),
        link_is_fast: Arc::default(),
        bytes: source.bytes,
        is_quick: settings.is_quick,
        hello,
        again,
    };
    let mut sending = Sending {
        reading: plan.read(source, answer.asks)?,
        piece: Vec::new(),
        at: 0,
        sent: None,
        head,
        up: plan.uplink(carrier, context, None)?,
        link_bytes_before: 0,
        compress: CompressorPool::of_one_stream().map_err(RunError::from)?,
        meter: Meter::new(offer.bytes, on_progress),
        patience: Patience::new(silence),
        silence,
        plan,
    };
    let outcome = sending.run(carrier).await;
    tracing::debug!("all has been sent, or there is no more to send");
    let head = sending.head;
    let ended = async {
        if matches!(head, Head::Whole | Head::Unanswered) {
            // All may be in buffers on the way, and nobody there who reads it.
            let met = tokio::time::timeout(silence, carrier.meet(&sending.plan.hello)).await;
            met.map_err(|_| silent(silence))??;
        }
        if matches!(head, Head::Whole | Head::Unanswered | Head::Met) {
            accepted_in_time(carrier, silence).await?;
        }
        done(carrier, silence).await
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
        Err(Failure::Other(error)) => return Err(error),
        Err(Failure::Carrier(error)) => {
            // Whoever gives up says why, and closes.
            return Err(match ended.await {
                Err(why @ (TransferError::Refused(_) | TransferError::Hello(_))) => why,
                _ => TransferError::Connection(error.to_string()),
            });
        }
    };
    sending.tell_codecs();
    let sent = sending.sent.take().unwrap_or_default();
    let link_bytes = sending.link_bytes();
    Ok(Summary {
        name: offer.name,
        files: sent.files,
        progress: sending.meter.at(sending.reading.count.get(), link_bytes),
        blake3: sent.blake3,
        left_out: sent.left_out,
        remarks: sent.remarks,
        left_out_there,
        kept,
        basis_bytes: 0,
    })
}

/// What the receiver says to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    /// It is to be asked what it has.
    asks: bool,
    /// It holds so much of what comes, as a binary logarithm.
    window_log2: u8,
}

/// What is sent before the receiver has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// All: it is short.
    Whole,
    /// The beginning, until the receiver's hello and answer have come.
    Unanswered,
    /// The same; its hello has come.
    Met,
    /// They have come, and the head is about to end.
    Answered(Answer),
    /// Nothing more, or the receiver knows no heads.
    Over,
}

impl Head {
    /// After the answer: an end that knows no heads is sent all of it as if it were one.
    fn of(answer: Answer, carrier: &Carrier) -> Self {
        match carrier.theirs.features & Hello::HEADS {
            0 => Self::Over,
            _ => Self::Answered(answer),
        }
    }
}

/// Connects and offers. If all is to follow at once, nothing is waited for, and not even TLS's handshake if it may go early.
async fn connect(
    settings: &Settings,
    hello: &Hello,
    offer: &Offer,
    goes_early: bool,
) -> Result<Carrier, TransferError> {
    let Settings { to, security, connect: time, .. } = settings;
    let early = match security {
        Security::Psk(secret) if goes_early => {
            // Something on the way may let no other records than TLS's pass: then there is another call.
            Some(Early { secret: secret.clone(), time: *time / 2 })
        }
        _ => None,
    };
    let host = match &to.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    let tls = security::client(security, Purpose::File, &host)?;
    let first = Message::Offer(offer.clone()).encode();
    let connecting = async {
        let mut carrier = Carrier::begin(to, tls, early, hello, &first).await?;
        if !offer.is_eager {
            carrier.meet(hello).await?;
        }
        Ok(carrier)
    };
    let connected = tokio::time::timeout(*time, connecting).await;
    connected.unwrap_or(Err(CarrierError::Expired)).map_err(|error| not_connected(to, &error))
}

fn not_connected(to: &Target, error: &CarrierError) -> TransferError {
    let to = to.to_string();
    match error {
        CarrierError::OtherKey => TransferError::OtherKey { to },
        nobody if nobody.is_refused() => TransferError::Connect {
            to,
            why: format!(
                "{nobody}. Does a receiver wait there? It ends after one transfer, unless it has --keep"
            ),
        },
        other => TransferError::Connect { to, why: other.to_string() },
    }
}

/// Waits until the offer is accepted.
async fn accepted_in_time(
    carrier: &mut Carrier,
    silence: Duration,
) -> Result<Answer, TransferError> {
    let heard = tokio::time::timeout(silence, carrier.read_message()).await;
    match heard.map_err(|_| silent(silence))?? {
        Message::Accept { asks, window_log2 } => Ok(Answer { asks, window_log2 }),
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

enum Failure {
    Source(io::Error),
    Carrier(io::Error),
    /// Nothing was heard of the receiver for too long.
    Silent,
    Other(TransferError),
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
    plan: Plan,
    reading: Reading,
    piece: Vec<u8>,
    at: usize,
    sent: Option<Sent>,
    head: Head,
    up: Uplink,
    /// The bytes of the head.
    link_bytes_before: u64,
    compress: CompressorPool,
    meter: Meter<F>,
    patience: Patience,
    silence: Duration,
}

impl<F: FnMut(&Progress)> Sending<F> {
    fn link_bytes(&self) -> u64 {
        self.link_bytes_before + self.up.stats().wire_bytes
    }

    /// Sends a head, if there is one, and the rest. True when the end has been sent, false if the receiver said
    /// something else than an answer.
    async fn run(&mut self, carrier: &mut Carrier) -> Result<bool, Failure> {
        loop {
            if !poll_fn(|cx| self.poll(cx, carrier)).await? {
                return Ok(false);
            }
            if matches!(self.head, Head::Unanswered | Head::Met) {
                // All of it was on its way before the answer.
                self.await_answer(carrier).await.map_err(Failure::Other)?;
            }
            let Head::Answered(answer) = self.head else { return Ok(true) };
            if !self.turn(carrier, answer).await? {
                return Ok(true);
            }
        }
    }

    /// Says what was compressed with what, to who wants to know.
    fn tell_codecs(&self) {
        for (codec, stats) in &self.up.stats().by_codec {
            let (before, after) = (stats.original_bytes, stats.compressed_bytes);
            tracing::debug!(
                "{codec}: {} blocks, from {before} to {after} bytes in {:.3} s",
                stats.blocks,
                stats.compress_ns as f64 / 1e9
            );
        }
        tracing::debug!("uncompressed: {} bytes", self.up.stats().raw_bytes);
    }

    async fn await_answer(&mut self, carrier: &mut Carrier) -> Result<(), TransferError> {
        if self.head == Head::Unanswered {
            let met = tokio::time::timeout(self.silence, carrier.meet(&self.plan.hello)).await;
            met.map_err(|_| silent(self.silence))??;
        }
        let answer = accepted_in_time(carrier, self.silence).await?;
        self.head = Head::of(answer, carrier);
        Ok(())
    }

    /// Goes on with what comes after the head, as both ends can do it; whether anything does.
    async fn turn(&mut self, carrier: &mut Carrier, answer: Answer) -> Result<bool, Failure> {
        self.head = Head::Over;
        let again = self.plan.again.take().filter(|_| answer.asks);
        let is_all = self.sent.is_some() && again.is_none();
        let rest = match &again {
            Some(_) => Rest::Again,
            None if is_all => Rest::Nothing,
            None => Rest::GoesOn,
        };
        let said = tokio::time::timeout(self.silence, carrier.say(&Message::Rest(rest))).await;
        said.map_err(|_| Failure::Silent)?.map_err(|error| match error {
            CarrierError::Io(error) => Failure::Carrier(error),
            other => Failure::Other(other.into()),
        })?;
        self.patience.heard();
        if is_all {
            return Ok(false);
        }
        self.plan.held.store(answer.window_log2, Ordering::Relaxed);
        self.link_bytes_before = self.link_bytes();
        self.tell_codecs();
        let (context, rate) = (ContextLogs::of(carrier), self.up.sender.measured_rate());
        self.up = self.plan.uplink(carrier, context, rate).map_err(Failure::Other)?;
        if let Some(source) = again {
            self.reading = self.plan.read(source, true).map_err(Failure::Other)?;
            (self.piece, self.at, self.sent) = (Vec::new(), 0, None);
        }
        Ok(true)
    }

    /// Ready with `true` when the end has been sent, with `false` if the receiver said something else than an
    /// answer.
    fn poll(&mut self, cx: &mut Context<'_>, carrier: &mut Carrier) -> Poll<Result<bool, Failure>> {
        loop {
            let took = self.take(cx)?;
            let rate = self.up.sender.believed_rate();
            self.plan.link_is_fast.store(rate >= Some(FAST_RATE), Ordering::Relaxed);
            let sent = self.up.poll(cx, carrier, &self.compress).map_err(Failure::Carrier)?;
            let link_bytes = self.link_bytes();
            self.meter.moved(self.reading.count.get(), link_bytes);
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
    fn is_news(&mut self, carrier: &mut Carrier) -> Result<bool, Failure> {
        if self.head == Head::Whole {
            // Its hello and more: that can wait for the end, which is near.
            return if carrier.rest.len() > MESSAGE_BYTES_MAX {
                Err(Failure::Malformed)
            } else {
                Ok(false)
            };
        }
        if self.head == Head::Unanswered {
            let met = carrier.meets(&self.plan.hello);
            if !met.map_err(|error| Failure::Other(error.into()))? {
                return Ok(false);
            }
            self.head = Head::Met;
        }
        loop {
            match Message::decode(&carrier.rest) {
                Ok(Some((Message::Accept { asks, window_log2 }, used)))
                    if self.head == Head::Met =>
                {
                    carrier.rest.drain(..used);
                    self.head = Head::of(Answer { asks, window_log2 }, carrier);
                    if self.head != Head::Over {
                        self.up.finish();
                    }
                }
                Ok(Some((Message::Have(have), used))) => {
                    let answers = self.reading.answers.as_ref().ok_or(Failure::Malformed)?;
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

    /// Turns to the next piece; the buffer of the one before goes back.
    fn turn_to(&mut self, piece: Vec<u8>) {
        let mut used = std::mem::replace(&mut self.piece, piece);
        self.at = 0;
        used.clear();
        if used.capacity() > 0 {
            // Enough of them are there if there is no room.
            let _ = self.reading.used.try_send(used);
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
            match self.reading.pieces.poll_recv(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Piece::Bytes(bytes))) => self.turn_to(bytes),
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

mod plan;
mod reading;
#[cfg(test)]
mod tests;
