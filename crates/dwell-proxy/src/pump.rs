//! One stream: a program's connection on one side, a connection between the proxies on the
//! other, a sender and a receiver between them.
//!
//! All of it is one state machine that does what can be done without waiting, in both
//! directions, and then waits for all that could change something. It reads from a side only
//! what the other has room for, which is the back-pressure, stream by stream.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dwell_stream::{AbortReason, Decompressors, Receiver, Sender, StreamError};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::carrier::Carrier;
use crate::clock;
use crate::compress::CompressorPool;
use crate::contexts::Contexts;
use crate::local::Local;
use crate::memory::Room;
use crate::metrics::Metrics;
use crate::path::Path;
use crate::stalls::Stall;
use crate::turns::{Asked, Turn};
use crate::uplink::Uplink;

/// Read at once at most.
const READ_BYTES: usize = 64 << 10;
/// Less room is not worth a system call.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// So often a stream goes round before others of its thread have their turn.
const ROUNDS_MAX: u32 = 8;
/// A side that could go away unseen, as nothing is read from it, is checked this often.
const LOOK: Duration = Duration::from_secs(1);
/// What a connection holds until there is more goes without it after this time.
const HOLD: Duration = Duration::from_millis(1);
/// An idle stream may hold this much of what is not complete.
const SCRAPS_BYTES: usize = 4 << 10;
/// And this much that what comes may refer to, if there is room for it.
const HISTORY_BYTES_MAX: usize = 192 << 10;
/// The longest that is waited for the other end to take the news that a stream is given up.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);
/// And that it waits for its turn to say so.
const FAREWELL_TURN: Duration = Duration::from_secs(20);
/// The longest that a stream keeps its turn to end one direction: then the other one may go on for as
/// long as it likes.
const END_TURN: Duration = Duration::from_millis(250);
/// A stream that was given up keeps its turn for this long: nothing says when the news has arrived.
const RESET_TURN: Duration = Duration::from_millis(50);

thread_local! {
    /// Buffers that all streams of a thread use in turns.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        bytes: vec![0; READ_BYTES],
        decompress: Decompressors::new(),
    });
}

struct Scratch {
    bytes: Vec<u8>,
    decompress: Decompressors,
}

/// The parts that streams share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) compress: &'a CompressorPool,
    pub(crate) metrics: &'a Metrics,
    /// The path to the other proxy.
    pub(crate) path: Path,
    /// This stream among those whose programs may not read.
    pub(crate) stall: Stall<'a>,
    /// Room for what it holds while it sends.
    pub(crate) sending: Room<'a>,
    /// Room for what it holds while it receives.
    pub(crate) receiving: Room<'a>,
    /// Room for what it refers to while it is idle.
    pub(crate) history: Option<OwnedSemaphorePermit>,
    /// What it is about, if others learn from it.
    pub(crate) topic: Option<u64>,
    /// Its running contexts, should it be long.
    pub(crate) contexts: Contexts<'a>,
}

/// The outcome of a stream.
#[derive(Debug)]
pub(crate) enum End {
    /// In both directions, as it should; the connection between the proxies can be used again.
    Finished,
    /// One of the two programs reset its connection, or went away.
    Reset,
    /// Nothing moved for too long.
    Idle,
    /// Its program did not read, and another stream needed the room.
    Stalled,
    /// The connection between the proxies failed.
    Cut(io::Error),
    /// The data is no stream, or damaged.
    Damaged(StreamError),
}

/// What a stream has moved: bytes of its program, and those on the link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) sent_bytes: u64,
    pub(crate) sent_link_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) received_link_bytes: u64,
}

/// What a stream leaves for the next one.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) sender: Option<Sender>,
    pub(crate) receiver: Receiver,
    pub(crate) room: OwnedSemaphorePermit,
}

/// A stream that is open.
pub(crate) struct Pump<'a> {
    local: Local,
    carrier: &'a mut Carrier,
    compress: &'a CompressorPool,
    metrics: &'a Metrics,
    path: Path,
    stall: Stall<'a>,
    sending: Room<'a>,
    receiving: Room<'a>,
    /// The bytes that it may hold in either direction without room of its own.
    kept_bytes_max: usize,
    history: Option<OwnedSemaphorePermit>,
    up: Uplink,
    receiver: Receiver,
    contexts: Contexts<'a>,
    /// The last time that it was read from, the other end's connection had something.
    was_read: bool,
    sent: [u64; 7],
    received: [u64; 4],
    /// The program has said its end.
    source_ended: bool,
    /// It waits for its turn to say so to the other end, ...
    end_asked: Option<Asked>,
    /// ... or has it, until then at most.
    end_turn: Option<(Turn, Instant)>,
    /// The program was informed the end.
    sink_ended: bool,
    idle: Duration,
    moved_at: Instant,
    timer: Pin<Box<Sleep>>,
    /// True if the timer is set for a check of a side, not for the end of patience.
    looking: bool,
    /// What the connection holds goes then.
    release_at: Option<Instant>,
}

impl<'a> Pump<'a> {
    /// Between a program that was connected and a connection on which a stream may begin.
    /// The sender has what the program has sent already. Until the stream has finished, whatever
    /// happens to this process resets the program's connection: nobody takes a part for the
    /// whole.
    pub(crate) fn new(
        local: Local,
        carrier: &'a mut Carrier,
        (sender, receiver): (Sender, Receiver),
        shared: Shared<'a>,
        idle: Duration,
    ) -> io::Result<Self> {
        local.tune()?;
        let now = Instant::now();
        let Shared { compress, metrics, path, stall, sending, receiving, history, topic, contexts } =
            shared;
        let kept_bytes_max = SCRAPS_BYTES + if history.is_some() { HISTORY_BYTES_MAX } else { 0 };
        let share = path.share_of(topic);
        let release_at = carrier.is_holding().then(|| now + HOLD);
        let timer = tokio::time::sleep_until(release_at.unwrap_or(now + idle));
        Ok(Self {
            local,
            carrier,
            compress,
            metrics,
            path,
            stall,
            sending,
            receiving,
            kept_bytes_max,
            history,
            up: Uplink::new(sender, Some(share)),
            receiver,
            contexts,
            // Until it was looked.
            was_read: true,
            sent: [0; 7],
            received: [0; 4],
            source_ended: false,
            end_asked: None,
            end_turn: None,
            sink_ended: false,
            idle,
            moved_at: now,
            timer: Box::pin(timer),
            looking: false,
            release_at,
        })
    }

    /// Moves bytes until the stream ends. The second is what it has moved, the third what it leaves for the next stream on its
    /// connection.
    pub(crate) async fn run(mut self) -> (End, Moved, Option<Left>) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        match &end {
            End::Finished => {
                // From here on the kernel may deliver what is left in peace.
                if let Err(error) = self.local.reset_on_close(false) {
                    tracing::debug!("a finished connection can't be closed in peace: {error}");
                }
            }
            End::Reset => self.farewell(AbortReason::Reset).await,
            End::Idle | End::Stalled => self.farewell(AbortReason::TimedOut).await,
            End::Cut(_) | End::Damaged(_) => self.carrier.reset_on_close(),
        }
        self.count();
        self.up.ends();
        let moved = Moved {
            sent_bytes: self.up.stats().accepted_bytes,
            sent_link_bytes: self.up.stats().wire_bytes,
            received_bytes: self.receiver.stats().data_bytes,
            received_link_bytes: self.receiver.stats().wire_bytes,
        };
        let left = match (&end, self.history) {
            (End::Finished, Some(room)) => self.receiver.into_next().map(|receiver| Left {
                sender: self.up.sender.into_next(),
                receiver,
                room,
            }),
            _ => None,
        };
        (end, moved, left)
    }

    /// Notifies the other end that the stream is given up, if it still receives, when it is its turn.
    async fn farewell(&mut self, reason: AbortReason) {
        let turn = match (self.end_turn.take(), self.end_asked.take()) {
            (Some((turn, _)), _) => turn,
            (None, asked) => {
                let asked = asked.unwrap_or_else(|| self.path.ends().ask());
                match tokio::time::timeout(FAREWELL_TURN, asked).await {
                    Ok(turn) => turn,
                    // Others that end do so without an end: the link is dead.
                    Err(_) => return self.carrier.reset_on_close(),
                }
            }
        };
        self.up.sender.abort(reason);
        let telling = poll_fn(|cx| {
            while !self.up.is_finished() {
                match self.up.write(cx, self.carrier) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Pending,
                    Err(_) => return Poll::Ready(()),
                }
            }
            Pin::new(&mut *self.carrier).poll_flush(cx).map(drop)
        });
        if tokio::time::timeout(FAREWELL, telling).await.is_err() {
            // It takes nothing: then a reset says it, past all that waits.
            self.carrier.reset_on_close();
        } else if self.source_ended {
            // The other end has had the end of this direction, or is about to, and reads no further.
            self.carrier.reset_on_close();
        }
        tokio::spawn(async move {
            tokio::time::sleep(RESET_TURN).await;
            drop(turn);
        });
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let polled = self.poll_rounds(cx);
        self.count();
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(End::Finished),
            Err(end) => Poll::Ready(end),
        }
    }

    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, End> {
        for _ in 0..ROUNDS_MAX {
            let up = self.poll_up(cx)?;
            let down = self.poll_down(cx)?;
            if self.up.is_finished() && self.sink_ended && self.poll_flushed(cx)?.is_ready() {
                return Ok(Poll::Ready(()));
            }
            if up || down {
                self.moved_at = Instant::now();
            } else {
                self.leave_room(cx)?;
                self.poll_timer(cx)?;
                if Pin::new(&mut self.stall.gives_up).poll(cx).is_ready() {
                    return Err(End::Stalled);
                }
                return Ok(Poll::Pending);
            }
        }
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Leaves its room to others as far as it holds nothing for now. What there is to read then is read with
    /// another turn.
    fn leave_room(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let mut is_more = false;
        if self.sending.is_taken() && self.up.is_at_rest() && self.poll_flushed(cx)?.is_ready() {
            self.sending.leave();
            is_more |= self.reads_local() && self.local.poll_read_ready(cx).is_ready();
        }
        if self.receiving.is_taken() && self.receives_nothing() {
            self.receiving.leave();
            is_more |= self.reads_carrier() && self.has_come(cx);
        }
        if is_more {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Returns true if there may be something to read from the other end.
    fn has_come(&self, cx: &mut Context<'_>) -> bool {
        // TLS may have taken more from the connection than was read.
        let is_inside = self.was_read || !self.carrier.rest.is_empty();
        is_inside || self.carrier.poll_read_ready(cx).is_ready()
    }

    /// Returns true if it holds nothing of what it receives, beside what it may always hold.
    fn receives_nothing(&mut self) -> bool {
        if !self.carrier.rest.is_empty() || !self.receiver.data().is_empty() {
            return false;
        }
        self.receiver.shrink();
        self.receiver.held() + self.local.held() <= self.kept_bytes_max
    }

    /// Returns true if it has room to read from its program; false also if there is nothing to read.
    fn has_room_to_send(&mut self, cx: &mut Context<'_>) -> bool {
        if self.sending.is_taken() {
            return !self.sending.is_over();
        }
        // What went wrong is found by reading.
        self.local.poll_read_ready(cx).is_ready() && self.sending.poll_take(cx).is_ready()
    }

    /// The same for the other direction: the number of bytes to read at most.
    fn room_to_receive(&mut self, cx: &mut Context<'_>) -> usize {
        if self.receiving.is_taken() {
            if !self.receiving.is_over() {
                return READ_BYTES;
            }
            // To the end of a block to which nothing refers, and of a datagram, and no further: then it holds nothing
            // once its program has read.
            let holds_history = self.receiver.history_bytes() > self.kept_bytes_max;
            let holds_part = self.local.held() > 0;
            return match self.receiver.missing() {
                0 if self.carrier.rest.is_empty() && !holds_history && !holds_part => 0,
                missing => missing.clamp(1, READ_BYTES),
            };
        }
        let has_room = self.has_come(cx) && self.receiving.poll_take(cx).is_ready();
        if has_room { READ_BYTES } else { 0 }
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, End> {
        match Pin::new(&mut *self.carrier).poll_flush(cx) {
            Poll::Ready(flushed) => flushed.map(Poll::Ready).map_err(End::Cut),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// From the program to the other end; whether anything moved.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let read = self.read_local(cx)? | self.poll_end(cx);
        let sent = self.up.poll(cx, self.carrier, self.compress).map_err(End::Cut)?;
        Ok(read || sent)
    }

    /// Says the end of this direction when it is its turn; whether it was.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(asked) = &mut self.end_asked else { return false };
        let Poll::Ready(turn) = Pin::new(asked).poll(cx) else { return false };
        self.end_asked = None;
        self.end_turn = Some((turn, Instant::now() + END_TURN));
        self.up.finish();
        self.set_timer();
        true
    }

    fn read_local(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if !self.reads_local() || !self.has_room_to_send(cx) {
            return Ok(false);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let room = self.up.sender.room().min(READ_BYTES);
            let mut buffer = ReadBuf::new(&mut scratch.bytes[..room]);
            match self.local.poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Err(_)) => return Err(End::Reset),
                Poll::Ready(Ok(())) => {}
            }
            if buffer.filled().is_empty() {
                self.source_ended = true;
                self.end_asked = Some(self.path.ends().ask());
            } else {
                self.up.sender.accept(buffer.filled());
            }
            Ok(true)
        })
    }

    fn reads_local(&self) -> bool {
        !self.source_ended && self.up.sender.room() >= ROOM_BYTES_MIN
    }

    /// From the other end to the program; whether anything moved.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.sink_ended {
            return Ok(false);
        }
        let mut moved = self.write_local(cx)?;
        if moved || self.receiver.data().is_empty() {
            self.stall.reads();
        } else {
            self.stall.waits(clock::now);
        }
        moved |= self.read_carrier(cx)?;
        if self.receiver.is_finished() && self.receiver.data().is_empty() {
            match self.local.poll_shutdown(cx) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => return Err(End::Reset),
                Poll::Ready(Ok(())) => {
                    self.sink_ended = true;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    fn write_local(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while !self.receiver.data().is_empty() {
            match self.local.poll_write(cx, self.receiver.data()) {
                Poll::Pending => break,
                Poll::Ready(Err(_) | Ok(0)) => return Err(End::Reset),
                Poll::Ready(Ok(len)) => {
                    self.receiver.consume(len);
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    fn read_carrier(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if !self.reads_carrier() {
            return Ok(false);
        }
        let room = self.room_to_receive(cx);
        if room == 0 {
            return Ok(false);
        }
        if !self.carrier.rest.is_empty() {
            let rest = std::mem::take(&mut self.carrier.rest);
            let receiver = &mut self.receiver;
            let taken = SCRATCH
                .with_borrow_mut(|scratch| feed(receiver, &rest, &mut scratch.decompress))
                .map_err(damaged)?;
            self.carrier.rest.extend_from_slice(&rest[taken..]);
            self.contexts.heard(clock::now(), &mut self.up.sender, &mut self.receiver);
            return Ok(taken > 0);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(&mut scratch.bytes[..room]);
            let polled = Pin::new(&mut *self.carrier).poll_read(cx, &mut buffer);
            self.was_read = polled.is_ready();
            match polled {
                Poll::Pending => return Ok(false),
                Poll::Ready(Err(error)) => return Err(End::Cut(error)),
                Poll::Ready(Ok(())) => {}
            }
            let bytes = buffer.filled();
            if bytes.is_empty() {
                return Err(End::Cut(io::ErrorKind::UnexpectedEof.into()));
            }
            let taken =
                feed(&mut self.receiver, bytes, &mut scratch.decompress).map_err(damaged)?;
            self.carrier.rest.extend_from_slice(&bytes[taken..]);
            self.up.heard(self.carrier);
            self.contexts.heard(clock::now(), &mut self.up.sender, &mut self.receiver);
            Ok(true)
        })
    }

    fn reads_carrier(&self) -> bool {
        !self.receiver.is_finished() && self.receiver.wants_more()
    }

    /// Looks whether nothing has moved for too long. As long as nothing is read from a side,
    /// nobody would notice that it is gone: then it is checked now and then.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let waits = self.sending.is_awaited() || self.receiving.is_awaited();
        let looking =
            waits || !self.reads_local() || !self.reads_carrier() || self.contexts.is_sending();
        if looking != self.looking {
            self.looking = looking;
            self.set_timer();
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.release_at.take_if(|at| *at <= Instant::now()).is_some() {
                self.carrier.release().map_err(End::Cut)?;
                self.set_timer();
                continue;
            }
            self.end_turn.take_if(|(_, until)| *until <= Instant::now());
            if self.moved_at.elapsed() >= self.idle {
                return Err(End::Idle);
            }
            if !matches!(self.local.take_error(), Ok(None)) {
                return Err(End::Reset);
            }
            if let Some(error) = self.carrier.take_error().map_err(End::Cut)? {
                return Err(End::Cut(error));
            }
            if self.contexts.tidy(clock::now(), &mut self.up.sender) {
                // The other end is to be notified.
                cx.waker().wake_by_ref();
            }
            self.set_timer();
        }
        Ok(())
    }

    fn set_timer(&mut self) {
        let patience = self.moved_at + self.idle;
        let look = Instant::now() + LOOK;
        let at = if self.looking { look.min(patience) } else { patience };
        let at = self.end_turn.as_ref().map_or(at, |&(_, until)| at.min(until));
        let at = self.release_at.map_or(at, |release_at| at.min(release_at));
        self.timer.as_mut().reset(at);
    }

    fn count(&mut self) {
        self.metrics.sent(self.up.stats(), &mut self.sent);
        self.metrics.received(self.receiver.stats(), &mut self.received);
    }
}

/// Gives a receiver what has come. To decode by a model takes milliseconds: meanwhile another thread does what this one would have to do
/// for other streams.
pub(crate) fn feed(
    receiver: &mut Receiver,
    bytes: &[u8],
    decompressors: &mut Decompressors,
) -> Result<usize, StreamError> {
    let may_leave = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    match receiver.has_model() && may_leave() {
        true => tokio::task::block_in_place(|| receiver.feed(bytes, decompressors)),
        false => receiver.feed(bytes, decompressors),
    }
}

fn damaged(error: StreamError) -> End {
    match error {
        StreamError::Aborted(AbortReason::TimedOut) => End::Idle,
        StreamError::Aborted(_) => End::Reset,
        other => End::Damaged(other),
    }
}
