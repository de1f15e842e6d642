//! One place for the settings of both ends, and whatever can be made of them.

use std::io::{self, Read, Write};

use dwell_base::Instant;
use dwell_codec::{CodecSpec, ParseSpecError};

use crate::blocking::BlockingStreamWriter;
use crate::config::{Config, Objective};
use crate::error::ConfigError;
use crate::io::{StreamReader, StreamWriter};
use crate::receiver::{Limits, Receiver};
use crate::sender::Sender;
use crate::strategy::Strategy;

/// Makes senders and receivers, writers and readers with the same settings.
///
/// ```
/// use std::io::{Read, Write};
///
/// use dwell_base::Instant;
/// use dwell_stream::{Builder, Objective};
///
/// let builder = Builder::new()
///     .objective(Objective::Bytes)
///     .codecs("zstd:3")?
///     .block_len(16 << 10)
///     .buffer_len(64 << 10);
/// let mut writer = builder.writer(Vec::new(), || Instant::ZERO)?;
/// writer.write_all(b"abc abc abc abc ".repeat(1000).as_slice())?;
/// writer.finish();
/// writer.pump()?;
/// let wire = writer.into_transport();
/// assert!(wire.len() < 300);
///
/// let mut text = String::new();
/// builder.reader(&wire[..]).read_to_string(&mut text)?;
/// assert_eq!(text.len(), 16_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    config: Config,
    limits: Limits,
}

impl Builder {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what the stream is to save, with [`Strategy::Hull`] and its codecs.
    #[must_use]
    pub fn objective(self, objective: Objective) -> Self {
        let mut this = self.strategy(Strategy::Hull);
        this.config.objective = objective;
        this
    }

    /// Sets the strategy, with the codecs that it has by default.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        let defaults = Config::new(strategy);
        (self.config.codec, self.config.codecs) = (defaults.codec, defaults.codecs);
        self.config.strategy = strategy;
        self
    }

    /// Sets the codecs among which [`Strategy::Hull`] chooses, by names with commas between them, as
    /// `lz4,zstd:3`; other strategies have the first one only.
    ///
    /// # Errors
    /// If one of them is no codec of this build.
    pub fn codecs(mut self, names: &str) -> Result<Self, ParseSpecError> {
        let codecs = names.split(',').map(|name| name.trim().parse());
        self.config.codecs = codecs.collect::<Result<Vec<CodecSpec>, _>>()?;
        // There is one at least, as an empty text is no codec.
        self.config.codec = self.config.codecs.first().copied().unwrap_or(self.config.codec);
        Ok(self)
    }

    /// Sets the bytes that are compressed at once: see [`Config::block_len`].
    #[must_use]
    pub fn block_len(mut self, len: usize) -> Self {
        self.config.block_len = len;
        self
    }

    /// Sets the most bytes that wait in a sender: see [`Config::buffer_len`].
    #[must_use]
    pub fn buffer_len(mut self, len: usize) -> Self {
        self.config.buffer_len = len;
        self
    }

    /// Sets whether blocks may refer to the window of data before them, at both ends: see
    /// [`Config::history`] and [`Limits::history`].
    #[must_use]
    pub fn history(mut self, may_refer: bool) -> Self {
        (self.config.history, self.limits.history) = (may_refer, may_refer);
        self
    }

    /// Sets whether that window is held while nothing waits, too: see [`Config::idle_history`].
    #[must_use]
    pub fn idle_history(mut self, is_held: bool) -> Self {
        self.config.idle_history = is_held;
        self
    }

    /// Sets the limits of receivers. Their `history` is that of [`Builder::history`], if that comes later.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Changes anything else of a sender's settings.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Returns the settings of senders.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Makes a sender without I/O.
    ///
    /// # Errors
    /// If the settings are not possible, as with all that writes.
    pub fn sender(&self) -> Result<Sender, ConfigError> {
        Sender::new(&self.config)
    }

    /// Makes a receiver without I/O: a plain one for [`Strategy::Plain`].
    pub fn receiver(&self) -> Receiver {
        match self.config.strategy {
            Strategy::Plain => Receiver::plain(self.limits),
            _ => Receiver::new(self.limits),
        }
    }

    /// Makes a writer to a non-blocking transport.
    ///
    /// # Errors
    /// If the settings are not possible.
    pub fn writer<W: Write, C: FnMut() -> Instant>(
        &self,
        transport: W,
        clock: C,
    ) -> Result<StreamWriter<W, C>, ConfigError> {
        StreamWriter::new(transport, &self.config, clock)
    }

    /// Makes a writer to a blocking transport, with a thread of its own.
    ///
    /// # Errors
    /// `InvalidInput` if the settings are not possible; another if the system can't start a thread.
    pub fn blocking_writer<W, C>(
        &self,
        transport: W,
        clock: C,
    ) -> io::Result<BlockingStreamWriter<W, C>>
    where
        W: Write + Send + 'static,
        C: Fn() -> Instant + Clone + Send + 'static,
    {
        BlockingStreamWriter::new(transport, &self.config, clock)
    }

    /// Makes a reader, for a blocking or a non-blocking transport.
    pub fn reader<R: Read>(&self, transport: R) -> StreamReader<R> {
        StreamReader::with_receiver(transport, self.receiver())
    }
}

#[cfg(feature = "tokio")]
impl Builder {
    /// Makes a writer to a transport of tokio's.
    ///
    /// # Errors
    /// If the settings are not possible.
    pub fn tokio_writer<W, C>(
        &self,
        transport: W,
        clock: C,
    ) -> Result<crate::AsyncStreamWriter<W, C>, ConfigError>
    where
        W: tokio::io::AsyncWrite + Unpin,
        C: FnMut() -> Instant + Unpin,
    {
        crate::AsyncStreamWriter::new(transport, &self.config, clock)
    }

    /// Makes a reader of a transport of tokio's.
    pub fn tokio_reader<R: tokio::io::AsyncRead + Unpin>(
        &self,
        transport: R,
    ) -> crate::AsyncStreamReader<R> {
        crate::AsyncStreamReader::with_receiver(transport, self.receiver())
    }
}

#[cfg(feature = "futures")]
impl Builder {
    /// Makes a writer to a transport with the traits of `futures`.
    ///
    /// # Errors
    /// If the settings are not possible.
    pub fn futures_writer<W, C>(
        &self,
        transport: W,
        clock: C,
    ) -> Result<crate::FuturesStreamWriter<W, C>, ConfigError>
    where
        W: futures_io::AsyncWrite + Unpin,
        C: FnMut() -> Instant + Unpin,
    {
        crate::FuturesStreamWriter::new(transport, &self.config, clock)
    }

    /// Makes a reader of a transport with the traits of `futures`.
    pub fn futures_reader<R: futures_io::AsyncRead + Unpin>(
        &self,
        transport: R,
    ) -> crate::FuturesStreamReader<R> {
        crate::FuturesStreamReader::with_receiver(transport, self.receiver())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_a_strategy_with_its_codecs() {
        let bytes = Builder::new().strategy(Strategy::All).objective(Objective::Bytes);
        assert_eq!(
            (bytes.config().strategy, bytes.config().objective),
            (Strategy::Hull, Objective::Bytes)
        );
        let time = bytes.objective(Objective::Time);
        assert_eq!(*time.config(), Config::default());
    }

    #[test]
    fn settings_reach_both_ends() {
        let limits = Limits::in_order();
        let builder = Builder::new().limits(limits).history(false).idle_history(false);
        let builder = builder.codecs("lz4, zstd:3").unwrap().block_len(4096).buffer_len(8192);
        let config = builder.config();
        assert_eq!(config.codecs.len(), 2);
        assert_eq!((config.block_len, config.buffer_len), (4096, 8192));
        assert!(!config.history && !config.idle_history && !builder.limits.history);
        assert_eq!(builder.sender().unwrap().room(), 8192);
        assert!(Builder::new().codecs("").is_err());
        assert!(Builder::new().block_len(5).sender().is_err());
        let mss = Builder::new().configure(|config| config.mss = 500);
        assert_eq!(mss.config().mss, 500);
    }
}
