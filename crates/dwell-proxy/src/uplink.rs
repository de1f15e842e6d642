//! The sending half of a stream on a connection: offers what the sender chooses while the
//! connection takes it, and has compressed what waits while it does not.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use dwell_base::Instant;
use dwell_codec::{CodecId, CodecSpec};
use dwell_stream::{Compressors, Done, Job, Sender, SenderStats, Yielding};
use tokio::io::AsyncWrite as _;
use tokio::sync::oneshot;

use crate::carrier::Carrier;
use crate::clock;
use crate::compress::CompressorPool;
use crate::path::Share;
use crate::unconfirmed::{Account, MESSAGE_BYTES_MAX, Message, Unconfirmed};

/// At most this much is compressed on the spot, as handing it to another thread would take longer.
const INLINE_BYTES_MAX: usize = 2 << 10;
/// And so much with codecs that take no longer for it than to wake that thread, and this one again.
const INLINE_FAST_BYTES_MAX: usize = 16 << 10;
/// Up to this level zstd is one of these.
const FAST_LEVEL_MAX: i32 = 3;

/// TCP is asked about the link at most this often while a stream has something to send, in nanoseconds.
const REPORT_EVERY_NS: u64 = 1_000_000;

/// From this planned part of uncompressed blocks on hardly anything need be compressed.
const RAW_SHARE: f64 = 0.95;

/// Others learn after so many messages what this stream has learned, and at its end.
const TEACH_EVERY: u32 = 8;

/// Who has something to send for so long without a rest goes on, in nanoseconds: small streams beside have the path first.
const BULK_NS: u64 = 500_000_000;

/// With less than this to send a stream fills no link, and what it says of it can wait.
const BUSY_BYTES_MIN: usize = 2 << 10;

thread_local! {
    /// For what is compressed on the spot.
    static COMPRESSORS: RefCell<Compressors> = RefCell::new(Compressors::new());
}

/// Takes from a sender all that it would send to a connection that takes everything.
pub(crate) fn collect(sender: &mut Sender, out: &mut Vec<u8>) {
    loop {
        let now = clock::now();
        let wire = sender.wire(now);
        let len = wire.len();
        if len > 0 {
            out.extend_from_slice(wire);
            sender.wrote(now, len);
        } else if COMPRESSORS
            .with_borrow_mut(|compressors| sender.compress(compressors, clock::now))
            .is_none()
        {
            return;
        }
    }
}

/// A sender, and how it is with its connection.
#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) sender: Sender,
    /// With the time at which it was given away.
    job: Option<(Instant, oneshot::Receiver<Done>)>,
    /// The connection takes nothing at present, which the sender knows.
    blocked: bool,
    finishing: bool,
    /// The limit of unsent bytes that the connection was given; zero if none yet, as it may have
    /// had another stream before.
    not_sent_len: u32,
    /// The stream's part of what it shares with others.
    share: Option<Share>,
    /// How it leaves room to small ones among them, and the rate to which it is paced for that, in bytes a second.
    yielding: Yielding,
    pace: Option<f64>,
    /// There was much to send already.
    begun: bool,
    /// Since then it has something to send.
    busy_since: Instant,
    /// The last moment at which TCP was asked about the link.
    reported_at: Option<Instant>,
    /// What is sent until the other end has confirmed all of it.
    unconfirmed: Unconfirmed,
    /// The messages that it has confirmed.
    confirmed: u32,
    /// When the latest message was.
    confirmed_at: Option<Instant>,
}

impl Uplink {
    /// Of a stream that shares its path with others, if there is a `share`.
    pub(crate) const fn new(sender: Sender, share: Option<Share>) -> Self {
        Self {
            sender,
            job: None,
            blocked: false,
            finishing: false,
            not_sent_len: 0,
            share,
            yielding: Yielding::new(),
            pace: None,
            begun: false,
            busy_since: Instant::ZERO,
            reported_at: None,
            unconfirmed: Unconfirmed::new(),
            confirmed: 0,
            confirmed_at: None,
        }
    }

    /// There is no more to send after what was accepted.
    pub(crate) fn finish(&mut self) {
        self.finishing = true;
        self.sender.finish();
    }

    /// Notes that the stream ends.
    pub(crate) fn ends(&self) {
        // What was measured an hour ago is no newer for that.
        let at = self.confirmed_at.unwrap_or_else(clock::now);
        self.share.iter().for_each(|share| share.teaches(at, &self.sender));
    }

    /// Returns true if the end was announced and taken by the connection.
    pub(crate) fn is_finished(&self) -> bool {
        self.sender.is_finished()
    }

    /// Returns true if it holds nothing that is to be sent.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.sender.is_idle() && self.job.is_none()
    }

    /// The account so far.
    pub(crate) fn stats(&self) -> &SenderStats {
        self.sender.stats()
    }

    /// Does what can be done without waiting; whether that was anything. Otherwise the task is
    /// woken when the connection takes more, or a block has been compressed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        carrier: &mut Carrier,
        compress: &CompressorPool,
    ) -> io::Result<bool> {
        let mut moved = false;
        self.begin();
        self.report(carrier);
        self.follow_link(carrier)?;
        while self.write(cx, carrier)? {
            moved = true;
        }
        self.follow_link(carrier)?;
        if let Some(share) = &mut self.share {
            share.set(!self.sender.is_idle(), self.sender.measured_rate());
        }
        Ok(self.compress(cx, compress)? || moved)
    }

    /// Before it has much to send for the first time, the sender is notified of what the path has left. If others
    /// fill it, what goes now only makes them wait: it had better be compressed from the beginning.
    fn begin(&mut self) {
        if self.begun || self.sender.held() < BUSY_BYTES_MIN {
            return;
        }
        self.begun = true;
        if let Some(rate) = self.share.as_ref().and_then(Share::expected) {
            self.sender.expect_rate(clock::now(), rate);
        }
    }

    /// Notifies the sender of what TCP says of the link, if there is something to decide, and the path of
    /// what it may say to other streams.
    fn report(&mut self, carrier: &mut Carrier) {
        if self.sender.is_idle() {
            // What comes after a pause finds another link.
            (self.reported_at, self.pace) = (None, None);
            return;
        }
        let now = clock::now();
        if self.reported_at.is_some_and(|at| now.since_ns(at) < REPORT_EVERY_NS) {
            return;
        }
        let is_begun = self.reported_at.replace(now).is_none();
        if is_begun {
            self.busy_since = now;
        }
        if is_begun && self.unconfirmed.passes(now) {
            return;
        }
        let Some(mut report) = carrier.link_report() else { return };
        if let Some(share) = &mut self.share {
            report.path_rate = share.path_rate(now, &report);
            let is_alone = report.pending_bytes == 0;
            let (len, before) = (self.sender.held(), Account::of(self.sender.stats()));
            let known = self.unconfirmed.goes_on(now, is_alone, before);
            let advice = known.unwrap_or_else(|| share.advice(now, len, &report));
            if is_alone && known.is_none() {
                let round_trip_ns = report.round_trip_ns;
                let message = Message { begun_at: now, len, advice, round_trip_ns, before };
                self.unconfirmed.begin(message);
            }
            self.unconfirmed.looked(now, advice);
            advice.add_to(&mut report);
            let is_bulk = now.since_ns(self.busy_since) >= BULK_NS;
            let is_due = is_bulk && share.small_are_beside(now);
            self.pace = self.yielding.limit(now, &report, is_due);
        }
        self.sender.reported(now, &report);
    }

    /// Notes that something has come from the other end: if that has confirmed all that was sent, it is known how long that has taken at
    /// most. Otherwise nobody looks, as who asks again is who waits.
    pub(crate) fn heard(&mut self, carrier: &Carrier) {
        let Some((_, share)) = self.unconfirmed.heard().zip(self.share.as_ref()) else { return };
        if !self.sender.is_idle() || carrier.pending_bytes() != Some(0) {
            return;
        }
        let now = clock::now();
        let after = Account::of(self.sender.stats());
        let Some(confirmed) = self.unconfirmed.confirmed(now, after) else { return };
        self.confirmed_at = Some(now);
        self.confirmed = self.confirmed.wrapping_add(1);
        if self.confirmed.is_multiple_of(TEACH_EVERY) {
            share.teaches(now, &self.sender);
        }
        if (1..=MESSAGE_BYTES_MAX).contains(&confirmed.bytes) {
            share.confirmed(now, &confirmed);
        }
    }

    /// Writes once, if there is something and the connection takes it; whether it did.
    pub(crate) fn write(
        &mut self,
        cx: &mut Context<'_>,
        carrier: &mut Carrier,
    ) -> io::Result<bool> {
        // Who has nothing to send is not blocked; but TLS may still hold what it took before.
        if self.sender.is_finished() || (self.sender.is_idle() && !self.finishing) {
            return match Pin::new(carrier).poll_flush(cx) {
                Poll::Ready(flushed) => flushed.map(|()| false),
                Poll::Pending => Ok(false),
            };
        }
        if carrier.poll_free(cx)?.is_pending() {
            self.found_blocked();
            return Ok(false);
        }
        if std::mem::take(&mut self.blocked) {
            self.sender.unblocked();
        }
        let wire = self.sender.wire(clock::now());
        if wire.is_empty() {
            return Ok(false);
        }
        let offered = wire.len();
        match Pin::new(&mut *carrier).poll_write(cx, wire)? {
            Poll::Pending => {
                self.found_blocked();
                Ok(false)
            }
            Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(len) => {
                let now = clock::now();
                self.unconfirmed.wrote(now);
                self.sender.wrote(now, len);
                carrier.release()?;
                self.blocked = false;
                if len < offered {
                    self.found_blocked();
                }
                Ok(true)
            }
        }
    }

    /// Has the connection hold as much as the sender wishes, and send it as fast as others allow.
    fn follow_link(&mut self, carrier: &mut Carrier) -> io::Result<()> {
        carrier.pace(self.pace);
        let wanted = self.sender.not_sent_len();
        if wanted != self.not_sent_len {
            carrier.hold_unsent(wanted)?;
            self.sender.transport_holds(wanted);
            self.not_sent_len = wanted;
        }
        Ok(())
    }

    fn found_blocked(&mut self) {
        if !self.blocked {
            self.blocked = true;
            self.sender.blocked(clock::now());
        }
    }

    /// Gives what waits to the compressors, and takes back what they have done.
    fn compress(&mut self, cx: &mut Context<'_>, compress: &CompressorPool) -> io::Result<bool> {
        let mut moved = false;
        if let Some((given_at, job)) = &mut self.job {
            match Pin::new(job).poll(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(mut done)) => {
                    done.back_after(clock::now().since_ns(*given_at));
                    self.sender.done(done);
                }
                Poll::Ready(Err(_)) => return Err(io::Error::other("a block can't be compressed")),
            }
            self.job = None;
            moved = true;
            // Where hardly anything need be compressed, what the connection takes goes first: a block that is given away now holds up all
            // behind it, so that they wait, and the next one would be given away for that.
            if !self.blocked && self.sender.raw_share() >= RAW_SHARE {
                return Ok(true);
            }
        }
        if self.sender.is_idle() {
            return Ok(moved);
        }
        let now = clock::now();
        let Some(job) = self.sender.next_job(now) else { return Ok(moved) };
        if is_short(&job) {
            let run = |compress: &mut Compressors| job.run(compress, clock::thread_cpu);
            let mut done = COMPRESSORS.with_borrow_mut(run);
            done.back_after(clock::now().since_ns(now));
            self.sender.done(done);
        } else {
            self.job = Some((now, compress.submit(job)));
        }
        Ok(true)
    }
}

/// True if a job is done sooner than handed to another thread.
fn is_short(job: &Job) -> bool {
    let is_fast = match job.codec() {
        CodecSpec { id: CodecId::Lz4, .. } => true,
        CodecSpec { id: CodecId::Zstd, level } => level <= FAST_LEVEL_MAX,
        _ => false,
    };
    let len_max = if is_fast { INLINE_FAST_BYTES_MAX } else { INLINE_BYTES_MAX };
    job.original_len() <= len_max && !job.is_slow()
}
