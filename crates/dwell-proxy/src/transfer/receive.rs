//! The receiving end of a transfer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dwell_stream::{BLOCK_LEN_MAX, Decompressors, Limits, Receiver};
use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};

use super::bases::{self, Bases};
use super::chunks::Grain;
use super::count::Count;
use super::place::{Existing, Offer, Place};
use super::repeats::{WINDOW_LOG2_MIN, window_log2};
use super::sink::{Policy, Received, Sink};
use super::{
    Broken, ContextLogs, Meter, PIECE_BYTES, PIECES_MAX, Progress, SILENCE_MAX, Summary,
    TransferError, context_of_receiver,
};
use crate::carrier::{Carrier, CarrierError};
use crate::engine::{self, RunError, StopSignals};
use crate::hello::{Hello, Purpose};
use crate::message::{Message, MessageError, Reason, Rest};
use crate::pump::feed;
use crate::reception::Reception;
use crate::security::{self, Acceptor, Security};
use writer::{GaveUp, Outcome, Piece, Writer};

mod writer;

/// The settings of a receiver.
#[derive(Debug)]
pub struct Receive {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The protection of the connection.
    pub security: Security,
    /// The place of what comes.
    pub place: Place,
    /// What becomes of what is there.
    pub existing: Existing,
    /// Files, and directories with files, that what comes may be copied from: [`BASES_MAX`](super::BASES_MAX) at most. Who sends learns
    /// what chunks they have.
    pub bases: Vec<PathBuf>,
    /// True if symbolic links are made that lead out of what comes.
    pub allows_links_outside: bool,
    /// The memory for what repeats at a long distance, in bytes; what is known of entries takes as much again at most, but
    /// may take 64 MiB.
    pub memory_bytes_max: u64,
    /// The longest time that a sender has to show that it knows the key.
    pub handshake: Duration,
    /// True if it stays after the first transfer.
    pub stays: bool,
}

impl Receive {
    /// Returns the least memory for a receiver, which stays or does not, in bytes: what every sender may count on.
    pub fn memory_bytes_min(stays: bool) -> u64 {
        let each = context_of_receiver(0).1 + (1 << WINDOW_LOG2_MIN);
        each * if stays { TRANSFERS_MAX as u64 } else { 1 }
    }

    /// Returns the memory of one of the transfers that there may be at once, in bytes.
    fn held_bytes(&self) -> u64 {
        self.memory_bytes_max / if self.stays { TRANSFERS_MAX as u64 } else { 1 }
    }
}

/// What happens at a receiver.
#[derive(Debug)]
pub enum Event<'a> {
    /// It waits here.
    Listening(SocketAddr),
    /// A sender offers something.
    Begun(SocketAddr, &'a Offer),
    /// So far a transfer is.
    Progress(SocketAddr, &'a Progress),
    /// A transfer has ended, and the receiver stays.
    Ended(SocketAddr, &'a Result<Summary, Broken>),
}

/// At most this many may be about to show at once that they know the key.
const HANDSHAKES_MAX: usize = 64;
/// At most this many transfers at once go to a receiver that stays. Others wait.
const TRANSFERS_MAX: usize = 16;
/// Answers between the thread that writes and the one that sends them.
const ANSWERS_MAX: usize = 16;
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(20);
/// A sender takes in at once what is said to it: one that acknowledges nothing for so long is gone.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);
/// The longest that is waited for a thread that writes to come to its end.
const FAREWELL: Duration = Duration::from_secs(5);
/// Whoever is refused has this long to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Waits for a transfer, and returns when all is where it belongs; or, if it is to stay, when it is interrupted.
///
/// # Errors
/// Nothing that is not complete has its name then. (If all is in its place, there is no error, although its sender may
/// not know of that any more.)
pub fn receive(job: Receive, on_event: impl FnMut(Event<'_>)) -> Result<Option<Summary>, Broken> {
    engine::run(async move { Ok(serve(job, on_event).await) }).map_err(TransferError::from)?
}

async fn serve(
    job: Receive,
    mut on_event: impl FnMut(Event<'_>),
) -> Result<Option<Summary>, Broken> {
    bases::check(&job.bases)?;
    let tls = security::server(&job.security, Purpose::File).map_err(TransferError::from)?;
    let bound = crate::listen::bind_listen(job.listen).map_err(TransferError::from)?;
    let listener =
        TcpListener::from_std(bound).map_err(|error| TransferError::from(RunError::from(error)))?;
    let at = listener.local_addr().map_err(|error| TransferError::from(RunError::from(error)))?;
    let signals = StopSignals::new();
    let mut signals = signals.map_err(|error| TransferError::from(RunError::from(error)))?;
    on_event(Event::Listening(at));
    let stays = job.stays;
    let (context, _) = context_of_receiver(job.held_bytes());
    let mut door = Door::new(listener, tls, job.handshake, context);
    let job = Arc::new(job);
    let (notes, mut noted) = mpsc::channel(PIECES_MAX);
    let (stop, stopped) = watch::channel(false);
    let mut transfers: JoinSet<Result<Summary, Broken>> = JoinSet::new();
    let mut peers = HashMap::new();
    let mut cut_off = Ok(None);
    loop {
        let is_stopping = *stopped.borrow();
        tokio::select! {
            // In this order, so that signals are heeded before anybody knows that all is there.
            biased;
            () = signals.recv(), if !is_stopping => {
                if transfers.is_empty() {
                    return if stays { Ok(None) } else { Err(TransferError::Interrupted.into()) };
                }
                let _ = stop.send(true);
            }
            Some(note) = noted.recv() => show(&note, &mut on_event),
            Some(ended) = transfers.join_next_with_id() => {
                while let Ok(note) = noted.try_recv() {
                    show(&note, &mut on_event);
                }
                let (id, result) = match ended {
                    Ok((id, result)) => (id, result),
                    Err(error) => (error.id(), Err(panicked(&error))),
                };
                let from = peers.remove(&id).unwrap_or(at);
                if !stays {
                    return result.map(Some);
                }
                on_event(Event::Ended(from, &result));
                // Who stays has said which failed; but what was cut off was so because of this end.
                if let Err(broken) = result
                    && matches!(broken.error, TransferError::Interrupted)
                {
                    cut_off = Err(broken);
                }
                if is_stopping && transfers.is_empty() {
                    return cut_off;
                }
            }
            carrier = door.next(), if !is_stopping && transfers.len() < if stays { TRANSFERS_MAX } else { 1 } => {
                let (job, notes, stopped) = (Arc::clone(&job), notes.clone(), stopped.clone());
                let from = carrier.peer;
                let task = transfers.spawn(async move { transfer(carrier, &job, stopped, notes).await });
                peers.insert(task.id(), from);
                if !stays {
                    door.close();
                }
            }
        }
    }
}

fn panicked(error: &JoinError) -> Broken {
    TransferError::Connection(format!("a transfer has come to an end of its own: {error}")).into()
}

/// What a transfer has to report.
enum Note {
    Begun(SocketAddr, Offer),
    Progress(SocketAddr, Progress),
}

fn show(note: &Note, on_event: &mut impl FnMut(Event<'_>)) {
    match note {
        Note::Begun(from, offer) => on_event(Event::Begun(*from, offer)),
        Note::Progress(from, progress) => on_event(Event::Progress(*from, progress)),
    }
}

/// Lets those in who know the key; others are rejected. All who have connected are served at once, so that one
/// who says nothing keeps nobody waiting.
struct Door {
    listener: Option<TcpListener>,
    tls: Option<Acceptor>,
    handshake: Duration,
    /// The running context that is accepted.
    context: ContextLogs,
    reception: Arc<Reception>,
    clients: JoinSet<(SocketAddr, Result<Carrier, CarrierError>)>,
}

impl Door {
    fn new(
        listener: TcpListener,
        tls: Option<Acceptor>,
        handshake: Duration,
        context: ContextLogs,
    ) -> Self {
        let (reception, clients) = (Arc::new(Reception::new(HANDSHAKES_MAX)), JoinSet::new());
        Self { listener: Some(listener), tls, handshake, context, reception, clients }
    }

    /// Nobody else is let in.
    fn close(&mut self) {
        self.listener = None;
        self.clients.abort_all();
    }

    /// The next one who knows the key.
    async fn next(&mut self) -> Carrier {
        loop {
            let Some(listener) = &self.listener else { return std::future::pending().await };
            tokio::select! {
                // Nothing is waited for once it is accepted: whatever else happens meanwhile, no
                // connection is dropped that was accepted.
                accepted = listener.accept() => match accepted {
                    Ok((tcp, peer)) => self.admit(tcp, peer),
                    Err(error) => {
                        tracing::warn!("a connection can't be accepted: {error}");
                        // One that went away at once, or no descriptors: others will be freed.
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(Ok((peer, ended))) = self.clients.join_next() => match ended {
                    Ok(carrier) => return carrier,
                    Err(CarrierError::OtherKey) => tracing::warn!(
                        "{peer} is rejected: its key is not the one that is wanted here"
                    ),
                    Err(error) => tracing::warn!("{peer} is rejected: {error}"),
                },
            }
        }
    }

    fn admit(&mut self, tcp: tokio::net::TcpStream, peer: SocketAddr) {
        let Some(admitted) = self.reception.try_admit(peer) else {
            tracing::warn!(
                "{peer} is rejected: {HANDSHAKES_MAX} others are about to show that they know the \
                 key; it may try again"
            );
            return;
        };
        let (reception, tls) = (Arc::clone(&self.reception), self.tls.clone());
        let (time, context) = (self.handshake, self.context);
        self.clients.spawn(async move {
            let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
            let hello = hello.with_window(context.window).with_model(context.model);
            (peer, reception.welcome(admitted, tcp, peer, tls, &hello, time).await)
        });
    }
}

/// One transfer, to its end.
async fn transfer(
    mut carrier: Carrier,
    job: &Receive,
    mut stopped: watch::Receiver<bool>,
    notes: mpsc::Sender<Note>,
) -> Result<Summary, Broken> {
    notice_silence(&carrier);
    let mut writer = None;
    let result = tokio::select! {
        biased;
        _ = stopped.wait_for(|&stopped| stopped) => Err(TransferError::Interrupted),
        received = receive_files(&mut carrier, job, &mut writer, &notes) => received,
    };
    let (error, writer) = match (result, writer) {
        (Ok(summary), _) => return Ok(summary),
        (Err(error), None) => return Err(error.into()),
        (Err(error), Some(writer)) => (error, writer),
    };
    match writer.give_up().await {
        GaveUp::Complete(summary) => Ok(*summary),
        GaveUp::Left(kept) => Err(Broken { error, kept }),
    }
}

/// The chunks that a sender with these features understands.
const fn grain(features: u8) -> Option<Grain> {
    match (features & Hello::CHUNKS != 0, features & Hello::FINE_CHUNKS != 0) {
        (true, true) => Some(Grain::Fine),
        (true, false) => Some(Grain::Coarse),
        (false, _) => None,
    }
}

/// Has the kernel notice that the other machine is gone. As long as something is on its way there, it sends no probes, but that once more, for
/// a quarter of an hour.
fn notice_silence(carrier: &Carrier) {
    let socket = SockRef::from(carrier.tcp());
    if let Err(error) = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX)) {
        tracing::debug!("what is not acknowledged can't be limited: {error}");
    }
}

async fn receive_files(
    carrier: &mut Carrier,
    job: &Receive,
    place: &mut Option<Writer>,
    notes: &mpsc::Sender<Note>,
) -> Result<Summary, TransferError> {
    let offered = tokio::time::timeout(SILENCE_MAX, carrier.read_message()).await;
    let Message::Offer(mut offer) = offered.map_err(|_| CarrierError::Expired)?? else {
        return Err(TransferError::Connection(MessageError::Body.to_string()));
    };
    let has_head =
        offer.is_eager && !offer.is_short() && carrier.theirs.features & Hello::HEADS != 0;
    // It can be asked for what is there all the same.
    offer.is_eager &= !has_head;
    let _ = notes.send(Note::Begun(carrier.peer, offer.clone())).await;
    let policy = Policy { existing: job.existing, allows_links_outside: job.allows_links_outside };
    let count = Arc::new(Count::default());
    let (mut sink, asks) = match Sink::open(&job.place, &offer, policy, Arc::clone(&count)) {
        Ok(opened) => opened,
        Err(why) => {
            refuse(carrier, &why).await;
            return Err(TransferError::NoPlace(why));
        }
    };
    let (context, context_bytes) = context_of_receiver(job.held_bytes());
    let held = job.held_bytes().saturating_sub(context_bytes);
    sink.remember(job.held_bytes());
    let grain = grain(carrier.theirs.features);
    sink.cut_chunks(grain);
    let asks = asks || (grain.is_some() && !offer.is_eager && !job.bases.is_empty());
    if asks {
        sink.compare_with(Bases::new(&job.bases));
    }
    let window_log2 = match (offer.is_eager, has_head) {
        (true, _) => WINDOW_LOG2_MIN,
        // The head counts on so much.
        (false, true) => window_log2(held).max(WINDOW_LOG2_MIN),
        (false, false) => window_log2(held),
    };
    let window_log2 = window_log2.min(offer.window_log2);
    sink.hold(window_log2);
    let writer = place.insert(Writer::start(sink, count).map_err(RunError::from)?);
    carrier.say(&Message::Accept { asks, window_log2 }).await?;
    let from = carrier.peer;
    let progress = |progress: &Progress| {
        // Another one follows.
        let _ = notes.try_send(Note::Progress(from, *progress));
    };
    let mut meter = Meter::new(offer.bytes, progress);
    let head = has_head.then_some(asks);
    let received = match receive_all(carrier, writer, (context, &mut meter), head).await {
        Ok(received) => received,
        Err(Failure::Transfer(error)) => return Err(error),
        Err(Failure::Writer) => {
            let error = writer.error().await;
            // It may be gone as well.
            refuse(carrier, &error.to_string()).await;
            return Err(error);
        }
    };
    let done = Message::Done { left_out: received.left_out, kept: received.kept };
    if let Err(error) = carrier.say(&done).await {
        let name = &received.name;
        tracing::warn!("{name} is complete, but its sender could not be informed: {error}");
    }
    Ok(writer.summary(received))
}

/// Says why there will be nothing, and waits until the sender has read it: closing with its bytes unread would
/// reset the connection under it.
async fn refuse(carrier: &mut Carrier, why: &str) {
    let said = carrier.say(&Message::Refused(Reason::Other, why.to_owned())).await;
    if said.is_err() {
        return;
    }
    let mut bytes = vec![0; PIECE_BYTES];
    let drained = async { while carrier.read(&mut bytes).await.is_ok_and(|len| len > 0) {} };
    let _ = tokio::time::timeout(LINGER, drained).await;
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

/// Receives the streams of a transfer. `head` if the first one goes before the answer: it is dropped if that was to ask.
async fn receive_all<F: FnMut(&Progress)>(
    carrier: &mut Carrier,
    writer: &mut Writer,
    (context, meter): (ContextLogs, &mut Meter<F>),
    head: Option<bool>,
) -> Result<Received, Failure> {
    let Some(drops) = head else {
        receive_stream(carrier, writer, (context, &mut *meter), false).await?;
        return complete(carrier, writer, meter).await;
    };
    receive_stream(carrier, writer, (context, &mut *meter), drops).await?;
    if has_rest(carrier, drops, SILENCE_MAX).await? {
        receive_stream(carrier, writer, (context, &mut *meter), false).await?;
    }
    complete(carrier, writer, meter).await
}

/// Reads whether another stream follows a head, which the sender says within this time. `drops` if the head does not count.
async fn has_rest(
    carrier: &mut Carrier,
    drops: bool,
    silence: Duration,
) -> Result<bool, CarrierError> {
    let rest = tokio::time::timeout(silence, carrier.read_message()).await;
    match (rest.map_err(|_| CarrierError::Expired)??, drops) {
        (Message::Rest(Rest::Nothing), false) => Ok(false),
        (Message::Rest(Rest::GoesOn), false) | (Message::Rest(Rest::Again), true) => Ok(true),
        _ => Err(CarrierError::Message(MessageError::Body)),
    }
}

/// Hands a stream to the writer, or drops it.
async fn receive_stream<F: FnMut(&Progress)>(
    carrier: &mut Carrier,
    writer: &mut Writer,
    (context, meter): (ContextLogs, &mut Meter<F>),
    drops: bool,
) -> Result<(), Failure> {
    let link_bytes_before = writer.link_bytes;
    let mut limits = Limits::in_order();
    (limits.window_log, limits.model_log) = (context.window, context.model);
    limits.mixed_models = true;
    let mut receiver = Receiver::new(limits);
    let mut decompress = Decompressors::new();
    // What has come of it already.
    let mut bytes = std::mem::take(&mut carrier.rest);
    let (mut at, mut len) = (0, bytes.len());
    bytes.resize(len.max(PIECE_BYTES), 0);
    while !receiver.is_finished() {
        if at == len {
            (at, len) = (0, read_some(carrier, writer, &mut bytes).await?);
        }
        at += feed(&mut receiver, &bytes[at..len], &mut decompress)
            .map_err(|error| Failure::Transfer(TransferError::Damaged(error)))?;
        if !receiver.data().is_empty() {
            let piece = receiver.take_all(writer.spare.try_recv().unwrap_or_default());
            if !drops {
                writer.write(carrier, Piece::Bytes(piece)).await?;
            }
        }
        writer.link_bytes = link_bytes_before + receiver.stats().wire_bytes;
        meter.moved(writer.count.get(), writer.link_bytes);
    }
    carrier.rest.extend_from_slice(&bytes[at..len]);
    Ok(())
}

/// Reads what comes next, and meanwhile says what there is to say.
async fn read_some(
    carrier: &mut Carrier,
    writer: &mut Writer,
    bytes: &mut [u8],
) -> Result<usize, Failure> {
    let len = loop {
        tokio::select! {
            biased;
            // Without it the sender might wait for an answer that nobody gives.
            have = writer.answers.recv() => match have {
                Some(have) => carrier.say(&Message::Have(have)).await?,
                None => return Err(Failure::Writer),
            },
            _ = writer.pulse.tick() => carrier.say(&Message::Alive).await?,
            len = carrier.read(bytes) => break len.map_err(|error| cut(&error))?,
        }
    };
    match len {
        0 => Err(cut(&io::ErrorKind::UnexpectedEof.into()).into()),
        len => Ok(len),
    }
}

/// Waits until all is in its place.
async fn complete<F: FnMut(&Progress)>(
    carrier: &mut Carrier,
    writer: &mut Writer,
    meter: &mut Meter<F>,
) -> Result<Received, Failure> {
    writer.progress = Some(meter.at(writer.count.get(), writer.link_bytes));
    let (awaited, _waits) = oneshot::channel();
    writer.write(carrier, Piece::End(awaited)).await?;
    let mut listens = true;
    let outcome = loop {
        let Writer { outcome, pulse, .. } = &mut *writer;
        let Some(waited) = outcome else { break None };
        tokio::select! {
            biased;
            outcome = waited => break outcome.ok(),
            // All has come: it is completed whether the sender hears of it or not.
            _ = pulse.tick(), if listens => listens = carrier.say(&Message::Alive).await.is_ok(),
        }
    };
    writer.outcome = None;
    match outcome {
        Some(Outcome::Complete(received)) => {
            writer.progress = Some(meter.at(writer.count.get(), writer.link_bytes));
            Ok(received)
        }
        other => {
            writer.ended = other;
            Err(Failure::Writer)
        }
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

#[cfg(test)]
mod tests;
