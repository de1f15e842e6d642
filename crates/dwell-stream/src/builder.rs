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
/// builder.reader(&wire[..])?.read_to_string(&mut text)?;
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
        self.config.codec = Config::new(strategy).codec;
        self.config.strategy = strategy;
        self.config.codecs = self.config.default_codecs();
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

    /// Sets the window of a running context, to which blocks may refer in place of a history, at both ends: its binary
    /// logarithm, 15 to 23, or 0 for none. See [`Config::window_log`] and [`Limits::window_log`], and for the memory that it takes
    /// [`Config::context_bytes_max`]. It changes the codecs that nobody has named, as [`Config::set_window`]. Another one is
    /// refused when a sender or a receiver is made ([`ConfigError::Window`]).
    #[must_use]
    pub fn window(self, window_log: u8) -> Self {
        self.with_context(|config, limits| {
            (config.window_log, limits.window_log) = (window_log, window_log);
        })
    }

    /// Sets the memory of a model that such a context may be, at both ends: its binary logarithm, 20 to 26, or 0 for none. See
    /// [`Config::model_log`] and [`Limits::model_log`]. It changes the codecs that nobody has named, as
    /// [`Config::set_model`]. Another one is refused when a sender or a receiver is made, and one without a window
    /// when a sender is ([`ConfigError::Model`]).
    #[must_use]
    pub fn model(self, model_log: u8) -> Self {
        self.with_context(|config, limits| {
            (config.model_log, limits.model_log) = (model_log, model_log);
        })
    }

    /// Sets whether such a model may be of the codec `mix`, too, at both ends: see [`Config::mixed_models`] and
    /// [`Limits::mixed_models`]. It has no effect without a model.
    #[must_use]
    pub fn mixed_models(self, may_be: bool) -> Self {
        self.with_context(|config, limits| {
            (config.mixed_models, limits.mixed_models) = (may_be, may_be);
        })
    }

    /// Changes a context, and the codecs with it if they are the default ones: whatever is set first.
    fn with_context(mut self, change: impl FnOnce(&mut Config, &mut Limits)) -> Self {
        let are_default = self.config.codecs == self.config.default_codecs();
        change(&mut self.config, &mut self.limits);
        if are_default {
            self.config.codecs = self.config.default_codecs();
        }
        self
    }

    /// Sets the limits of receivers. Call it before [`Builder::history`], [`Builder::window`], [`Builder::model`] and
    /// [`Builder::mixed_models`], which change them.
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
    ///
    /// # Errors
    /// If its limits are not possible ([`Limits::check`]), as with all that reads.
    pub fn receiver(&self) -> Result<Receiver, ConfigError> {
        self.limits.check()?;
        Ok(match self.config.strategy {
            Strategy::Plain => Receiver::plain(self.limits),
            _ => Receiver::new(self.limits),
        })
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
    ///
    /// # Errors
    /// If its limits are not possible.
    pub fn reader<R: Read>(&self, transport: R) -> Result<StreamReader<R>, ConfigError> {
        Ok(StreamReader::with_receiver(transport, self.receiver()?))
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
    ///
    /// # Errors
    /// If its limits are not possible.
    pub fn tokio_reader<R: tokio::io::AsyncRead + Unpin>(
        &self,
        transport: R,
    ) -> Result<crate::AsyncStreamReader<R>, ConfigError> {
        Ok(crate::AsyncStreamReader::with_receiver(transport, self.receiver()?))
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
    ///
    /// # Errors
    /// If its limits are not possible.
    pub fn futures_reader<R: futures_io::AsyncRead + Unpin>(
        &self,
        transport: R,
    ) -> Result<crate::FuturesStreamReader<R>, ConfigError> {
        Ok(crate::FuturesStreamReader::with_receiver(transport, self.receiver()?))
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

    /// A window was set for senders only, by `configure`, and then its receivers refused the stream.
    #[test]
    fn a_context_reaches_both_ends() {
        let text =
            b"A context goes on from block to block, and so does what it predicts. ".repeat(3000);
        let bytes = || Builder::new().objective(Objective::Bytes);
        for (builder, window, model, mixed) in [
            (bytes().window(20), 20, 0, false),
            (bytes().window(20).model(22), 20, 22, false),
            (bytes().mixed_models(true).model(20).window(15), 15, 20, true),
            (Builder::new().model(26).window(23).objective(Objective::Bytes), 23, 26, false),
        ] {
            let (config, limits) = (builder.config(), builder.limits);
            assert_eq!((config.window_log, limits.window_log), (window, window));
            assert_eq!((config.model_log, limits.model_log), (model, model));
            assert_eq!((config.mixed_models, limits.mixed_models), (mixed, mixed));
            let mut expected = Config { objective: Objective::Bytes, ..Config::default() };
            expected.mixed_models = mixed;
            expected.set_window(window);
            expected.set_model(model);
            assert_eq!(*config, expected);
            let mut writer = builder.writer(Vec::new(), || Instant::ZERO).unwrap();
            writer.write_all(&text).unwrap();
            writer.finish();
            writer.pump().unwrap();
            let wire = writer.into_transport();
            let mut got = Vec::new();
            builder.reader(&wire[..]).unwrap().read_to_end(&mut got).unwrap();
            assert!(got == text, "{window}, {model}");
            // Others don't accept it: it is one.
            assert!(bytes().reader(&wire[..]).unwrap().read_to_end(&mut got).is_err());
        }
        let off = bytes().window(20).model(22).model(0).window(0);
        assert_eq!(off.config(), bytes().config());
        let named = bytes().codecs("zstd:3").unwrap().window(20).model(22);
        assert_eq!(named.config().codecs.len(), 1);
    }

    #[test]
    fn what_is_not_possible_is_refused_at_both_ends() {
        let new = Builder::new;
        for (builder, expected) in [
            (new().window(14), ConfigError::Window(14)),
            (new().window(24), ConfigError::Window(24)),
            (new().window(20).model(19), ConfigError::Model(19)),
            (new().window(20).model(27), ConfigError::Model(27)),
        ] {
            assert_eq!(builder.sender().unwrap_err(), expected);
            assert_eq!(builder.receiver().unwrap_err(), expected);
            assert_eq!(builder.reader(&b""[..]).unwrap_err(), expected);
        }
        assert_eq!(new().model(22).sender().unwrap_err(), ConfigError::Model(22));
        let limits = Limits { block_len: 1 << 20, ..Limits::default() };
        let refused = new().limits(limits).receiver().unwrap_err();
        assert_eq!(refused, ConfigError::BlockLimit(1 << 20));
    }
}
