//! The sending end of a stream.

use dwell_base::Instant;
use dwell_codec::CodecSpec;
use dwell_policy::rate::LinkReport;

use crate::blocks::Blocks;
use crate::compress::{Compression, Compressors, Done, Job};
use crate::config::Config;
use crate::context::ContextLimits;
use crate::error::{AbortReason, ConfigError};
use crate::stats::SenderStats;
use crate::units::Units;

/// Takes bytes from an application, and gives bytes for a transport. The crate's first page
/// describes its use.
#[derive(Debug)]
pub struct Sender {
    line: Line,
}

/// What the blocks of a stream have shown of codecs ([`Sender::learned`]).
#[derive(Clone, Debug)]
pub struct Learned(pub(crate) dwell_policy::method::Learned<CodecSpec>);

/// Blocks or units.
#[derive(Debug)]
enum Line {
    Blocks(Box<Blocks>),
    Units(Box<Units>),
}

/// Calls the same method of either.
macro_rules! line {
    ($sender:expr, $line:ident => $call:expr) => {
        match &$sender.line {
            Line::Blocks($line) => $call,
            Line::Units($line) => $call,
        }
    };
    (mut $sender:expr, $line:ident => $call:expr) => {
        match &mut $sender.line {
            Line::Blocks($line) => $call,
            Line::Units($line) => $call,
        }
    };
}

impl Sender {
    /// Makes a sender at the beginning of its stream.
    ///
    /// # Errors
    /// If the configuration is not possible.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let line = match config.strategy.is_segmented() {
            true => Line::Units(Box::new(Units::new(config))),
            false => Line::Blocks(Box::new(Blocks::new(config))),
        };
        Ok(Self { line })
    }

    /// Takes as many of these bytes as there is room for, and returns their number. Takes none
    /// after [`Sender::finish`] or [`Sender::abort`].
    pub fn accept(&mut self, bytes: &[u8]) -> usize {
        line!(mut self, line => line.accept(bytes))
    }

    /// Returns the number of bytes that [`Sender::accept`] would take.
    pub fn room(&self) -> usize {
        line!(self, line => line.room())
    }

    /// Announces the end after the data that wait: the application has no more. A half-close.
    pub fn finish(&mut self) {
        line!(mut self, line => line.finish());
    }

    /// Drops the data that wait and notifies the receiver that the stream is given up, and why; for
    /// instance because the application's connection was reset. Then send what [`Sender::wire`]
    /// gives, and close. It has no effect after the end was announced.
    pub fn abort(&mut self, reason: AbortReason) {
        line!(mut self, line => line.abort(reason));
    }

    /// Returns the bytes to write to the transport next; empty if there are none, or if they must
    /// be compressed first ([`Sender::compress`]). Call it only if the transport may take
    /// something, as the bytes returned were chosen to be sent. For strategies in segments it is
    /// one unit. To be a segment of its own it has to be written by one call that marks its end, on Linux `send` with
    /// `MSG_EOR`: `TCP_NODELAY` and a write for each do only while none waits, as TCP adds bytes to a segment that does.
    pub fn wire(&mut self, now: Instant) -> &[u8] {
        match &mut self.line {
            Line::Blocks(line) => line.wire(now),
            Line::Units(line) => line.wire(),
        }
    }

    /// Notes that the transport has taken the first `len` bytes of [`Sender::wire`].
    ///
    /// # Panics
    /// If that is more than there was.
    pub fn wrote(&mut self, now: Instant, len: usize) {
        match &mut self.line {
            Line::Blocks(line) => line.wrote(now, len),
            Line::Units(line) => line.wrote(len),
        };
    }

    /// Notes that the transport takes no more at present: the time to compress the data that wait.
    /// Call it once each time that a write was refused, or took less than it was given.
    pub fn blocked(&mut self, now: Instant) {
        match &mut self.line {
            Line::Blocks(line) => line.blocked(now),
            Line::Units(line) => line.blocked(),
        };
    }

    /// Notes that the transport takes bytes again, for a driver that waits for that: data that
    /// could only wait for a better moment while the transport was busy are now sent or compressed.
    pub fn unblocked(&mut self) {
        line!(mut self, line => line.unblocked());
    }

    /// Compresses one block, if that is of use now, and measures the time by `clock`.
    pub fn compress(
        &mut self,
        compressors: &mut Compressors,
        mut clock: impl FnMut() -> Instant,
    ) -> Option<Compression> {
        let job = self.next_job(clock())?;
        let done = job.run(compressors, clock);
        let compression = done.compression();
        self.done(done);
        Some(compression)
    }

    /// Returns a job for another thread: what [`Sender::compress`] would compress, if anything.
    /// Several jobs may be under way at once. A job must be given back by [`Sender::done`].
    pub fn next_job(&mut self, now: Instant) -> Option<Job> {
        match &mut self.line {
            Line::Blocks(line) => line.next_job(now),
            Line::Units(line) => line.next_job(),
        }
    }

    /// Takes back a job that was done; in any order.
    pub fn done(&mut self, done: Done) {
        line!(mut self, line => line.done(done));
    }

    /// Returns true if the transport has taken everything that was accepted.
    pub fn is_idle(&self) -> bool {
        line!(self, line => line.is_idle())
    }

    /// Returns true if the transport has taken the end of the stream, announced or given up.
    pub fn is_finished(&self) -> bool {
        line!(self, line => line.is_finished())
    }

    /// Returns the bytes that wait here, at most [`Config::buffer_len`], or what `expect_bulk` makes of it.
    pub fn held(&self) -> usize {
        line!(self, line => line.held())
    }

    /// Returns the most unsent bytes that the transport should hold, for `TCP_NOTSENT_LOWAT`. At
    /// first [`Config::not_sent_len`]; from there it follows the link's rate by powers of two, up
    /// to twice the buffer while much is compressed and to 4 MiB while hardly anything is, so that
    /// a fast link does not run empty while the writer sleeps or compresses. With
    /// [`Strategy::Mix`](crate::Strategy::Mix) and its like, and in segments, it stays.
    ///
    /// Call it after each [`Sender::blocked`]. When it has changed, set it for the transport, and
    /// then notify the sender by [`Sender::transport_holds`].
    pub fn not_sent_len(&self) -> u32 {
        line!(self, line => line.not_sent_len())
    }

    /// Sets the number of bytes that the transport holds before it refuses. At first it is assumed
    /// to be [`Config::not_sent_len`]; if that is wrong, the link's rate is measured less well.
    pub fn transport_holds(&mut self, len: u32) {
        if let Line::Blocks(line) = &mut self.line {
            line.transport_holds(len);
        }
    }

    /// Holds what blocks refer to while nothing waits, too, from now on, as with [`Config::idle_history`]; for a
    /// sender that is notified later that its receiver has room for it.
    pub fn hold_idle_history(&mut self) {
        if let Line::Blocks(line) = &mut self.line {
            line.hold_idle_history();
        }
    }

    /// Leaves what blocks refer to to the next stream ([`Sender::into_next`]): it is held at the end of this one, too. For a
    /// sender whose receiver is known to do the same. It has an effect only with a history that is held while nothing waits.
    pub fn keep_for_next(&mut self) {
        if let Line::Blocks(line) = &mut self.line {
            line.keep_for_next();
        }
    }

    /// Returns the sender of the stream that follows this one on the same transport: its blocks may refer to what came
    /// on this one, and it knows of link and codecs what this one has found. None if this one has not come to its end, was
    /// given up, or has kept nothing ([`Sender::keep_for_next`]). Its receiver must be that of
    /// [`Receiver::into_next`](crate::Receiver::into_next).
    pub fn into_next(mut self) -> Option<Self> {
        match &mut self.line {
            Line::Blocks(line) => line.begin_next().then_some(self),
            Line::Units(_) => None,
        }
    }

    /// Notifies the other end that the stream of the other direction may begin a running context of at most this window and model,
    /// in binary logarithms as in [`Limits`](crate::Limits): what its receiver here was given by
    /// [`Receiver::grant`](crate::Receiver::grant). Returns false if nothing can be said on this stream: it has ended, or its
    /// configuration does not let it get contexts either ([`Config::may_get_context`]).
    pub fn grant_context(&mut self, window_log: u8, model_log: u8) -> bool {
        match &mut self.line {
            Line::Blocks(line) => line.grant(ContextLimits { window_log, model_log }),
            Line::Units(_) => false,
        }
    }

    /// Returns the most memory that a running context of such a window and model takes at this end, in bytes; 0 if it gets none.
    pub fn context_bytes_max(&self, window_log: u8, model_log: u8) -> u64 {
        match &self.line {
            Line::Blocks(line) => line.context_bytes_max(ContextLimits { window_log, model_log }),
            Line::Units(_) => 0,
        }
    }

    /// Lets blocks go on with a running context from now on, which the other end has granted
    /// ([`Receiver::take_offer`](crate::Receiver::take_offer)), or one that takes less. Returns false, and does nothing, if it has one, or there
    /// is no more to send after what was accepted: then say so ([`Sender::decline_context`]).
    pub fn get_context(&mut self, now: Instant, window_log: u8, model_log: u8) -> bool {
        match &mut self.line {
            Line::Blocks(line) => line.get_context(now, ContextLimits { window_log, model_log }),
            Line::Units(_) => false,
        }
    }

    /// Notifies the other end that no use is made of what it has granted, so that it need not keep memory for it; unless
    /// there is a context, or the stream has ended.
    pub fn decline_context(&mut self) {
        if let Line::Blocks(line) = &mut self.line {
            line.decline_context();
        }
    }

    /// Returns for how long no block has gone on with the running context that it has got, in nanoseconds, if it has got one.
    pub fn context_unused_ns(&self, now: Instant) -> Option<u64> {
        match &self.line {
            Line::Blocks(line) => line.context_unused_ns(now),
            Line::Units(_) => None,
        }
    }

    /// Drops the running context that it has got, and notifies the receiver, so that neither end holds it any more. Returns
    /// false if that can't be now, as something that waits to be sent goes on with it.
    pub fn drop_context(&mut self) -> bool {
        match &mut self.line {
            Line::Blocks(line) => line.drop_context(),
            Line::Units(_) => false,
        }
    }

    /// Returns what its blocks have shown of codecs, if any have; for another stream whose content is alike.
    pub fn learned(&self) -> Option<Learned> {
        match &self.line {
            Line::Blocks(line) => line.learned(),
            Line::Units(_) => None,
        }
    }

    /// Begins with what another stream has learned, if it has the same strategy and codecs: it need not try all of them itself.
    pub fn learn(&mut self, learned: &Learned) {
        if let Line::Blocks(line) = &mut self.line {
            line.learn(learned);
        }
    }

    /// Takes what is accepted to have more behind it, until [`Sender::finish`]: no block is a message that somebody waits
    /// for, and the first ones are compressed as part of a whole. With a running context up to 1 MiB may wait then, and jobs
    /// have several blocks.
    pub fn expect_bulk(&mut self) {
        if let Line::Blocks(line) = &mut self.line {
            line.expect_bulk();
        }
    }

    /// Takes the link to be full, and `rate` (bytes a second) to be what it carries of this stream, until
    /// that is measured. For a stream that begins on a link that others are known to fill: without it
    /// the stream sends as much as the transport holds as it is, before it notices that it should
    /// compress.
    pub fn expect_rate(&mut self, now: Instant, rate: f64) {
        if let Line::Blocks(line) = &mut self.line {
            line.expect_rate(now, rate);
        }
    }

    /// The same for a stream that begins on a link of which nothing is known: until `bytes` were written, nothing
    /// that is measured makes the link seem faster, and the transport is to hold little. So the first data are compressed
    /// as well: over a fast link that costs some milliseconds, over a slow one what goes as it is costs much more.
    pub fn presume_rate(&mut self, now: Instant, rate: f64, bytes: u64) {
        if let Line::Blocks(line) = &mut self.line {
            line.presume_rate(now, rate, bytes);
        }
    }

    /// Notes what the transport says of its link; on Linux TCP does, by `TCP_INFO`. Call it before
    /// [`Sender::wire`] when bytes were accepted, not more often than each millisecond. Without it
    /// the rate of a link that is never full is not known, and what comes now and then goes over it as it
    /// is; with it, a block is compressed if it arrives sooner so.
    pub fn reported(&mut self, now: Instant, report: &LinkReport) {
        if let Line::Blocks(line) = &mut self.line {
            line.reported(now, report);
        }
    }

    /// Returns the part of the blocks that are planned to go uncompressed, from 0 to 1.
    pub fn raw_share(&self) -> f64 {
        match &self.line {
            Line::Blocks(line) => line.raw_share(),
            Line::Units(_) => 0.0,
        }
    }

    /// Returns the rate of the link by which is decided, in bytes a second: measured, or what is believed until then.
    pub fn believed_rate(&self) -> Option<f64> {
        match &self.line {
            Line::Blocks(line) => line.believed_rate(),
            Line::Units(_) => None,
        }
    }

    /// Returns the rate at which the link takes bytes of this stream, in bytes a second, if it was
    /// measured while the transport was kept full.
    pub fn measured_rate(&self) -> Option<f64> {
        match &self.line {
            Line::Blocks(line) => line.measured_rate(),
            Line::Units(_) => None,
        }
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &SenderStats {
        line!(self, line => line.stats())
    }
}
