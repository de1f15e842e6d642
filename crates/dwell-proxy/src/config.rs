//! Settings of the two proxies.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dwell_codec::{CodecId, CodecSpec};
use dwell_confine::privilege::User;
use dwell_stream::{Config as StreamConfig, Objective, Strategy};
use thiserror::Error;

use crate::allow::AllowList;
use crate::hello::Hello;
use crate::kept::Whose;
use crate::security::Security;
use crate::socks::Users;
use crate::stream_log::StreamLog;
use crate::target::{Host, Target};

/// The port that an egress listens at if none is named.
pub const PORT: u16 = 7734;

/// The settings of both ends.
#[derive(Clone, Debug)]
pub struct Common {
    /// The name in statuses and of the status socket.
    pub name: String,
    /// The path of the status socket, if there is to be one.
    pub status: Option<PathBuf>,
    /// The protection of the connection between the two.
    pub security: Security,
    /// The compression of streams.
    pub compressing: Compression,
    /// The limits of resources.
    pub limits: Limits,
    /// The user to become once sockets are bound and keys are read, if root starts it.
    pub user: Option<User>,
    /// True if system calls are filtered from then on.
    pub seccomp: bool,
    /// Whoever is to know what each stream did.
    pub stream_log: Option<StreamLog>,
}

/// The compression of what this end sends.
#[derive(Clone, Debug, Default)]
pub struct Compression {
    /// The strategy; none: what the other end wishes, or the default.
    pub strategy: Option<Strategy>,
    /// The codecs to choose from, or the one of a strategy that has one; empty: the defaults.
    pub codecs: Vec<CodecSpec>,
    /// The strategy that this end wishes the other one to use.
    pub wish: Option<Strategy>,
    /// What [`Strategy::Hull`] is to save; none: what the other end wishes, or time. If no strategy is wished of the other
    /// end, it is to save that, too.
    pub objective: Option<Objective>,
    /// The earlier streams to which a stream may refer.
    pub earlier: EarlierStreams,
}

/// The earlier streams to which a stream may refer, of those on the same connection between the proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlierStreams {
    /// None: each stands alone.
    None,
    /// Those of the same client, by its address and by the name that it has given to SOCKS, to the same target. At an egress,
    /// which knows no clients: those that the ingress allows.
    #[default]
    Client,
    /// All.
    All,
}

impl EarlierStreams {
    /// Returns whose streams a stream may refer to; none if that is no matter.
    pub(crate) fn whose(
        self,
        client: IpAddr,
        user: Option<&[u8]>,
        target: &Target,
    ) -> Option<Whose> {
        let whose = || Whose { client, user: user.map(<[u8]>::to_vec), target: target.clone() };
        (self != Self::All).then(whose)
    }
}

impl Compression {
    /// Returns what this end wishes of the other one, by name: a strategy, or an objective, which earlier builds pass over.
    pub(crate) fn wish_name(&self) -> &'static str {
        match (self.wish, self.objective) {
            (Some(wish), _) => wish.name(),
            (None, Some(Objective::Bytes)) => Objective::Bytes.name(),
            (None, _) => "",
        }
    }

    /// Returns the settings of a sender to an end that offers `theirs`.
    pub fn sender_config(&self, theirs: &Hello) -> StreamConfig {
        // An objective of one's own is one of hull's.
        let may_wish = self.objective.is_none();
        let wished = theirs.text.parse().ok().filter(|wish| may_wish && is_framed(*wish));
        let strategy = match self.strategy.or(wished).unwrap_or_default() {
            // A stream has one block being compressed at a time, so that nothing would come early.
            Strategy::MixOutOfOrder => Strategy::MixInOrder,
            strategy => strategy,
        };
        let known = |spec: &CodecSpec| match spec.id {
            CodecId::Ppm => theirs.model_log > 0,
            CodecId::Mix => theirs.model_log > 0 && theirs.features & Hello::MIXED_MODELS != 0,
            id => theirs.codecs & (1 << id as u8) != 0,
        };
        let mut config = StreamConfig::new(strategy);
        let wished = theirs.text.parse().ok().filter(|_| self.strategy.is_none());
        config.objective = self.objective.or(wished).unwrap_or_default();
        // To save time it is not worth four times the processor: over 0.5 and 1 Mbit/s some contents take a twenty-fifth less
        // time, and others as much more.
        let is_worth_it = config.objective == Objective::Bytes
            || self.codecs.iter().any(|codec| codec.id == CodecId::Mix);
        config.mixed_models = is_worth_it && theirs.features & Hello::MIXED_MODELS != 0;
        // Only a running context, which some strategy may have beside others, can be a model.
        if let Some(&first) = self.codecs.iter().find(|codec| !codec.is_model()) {
            config.codec = first;
        }
        if !self.codecs.is_empty() {
            config.codecs.clone_from(&self.codecs);
        }
        config.codecs.retain(known);
        let usable = match strategy {
            Strategy::Raw => true,
            Strategy::Hull if config.codecs.is_empty() && known(&config.codec) => {
                config.codecs = vec![config.codec];
                true
            }
            Strategy::Hull => !config.codecs.is_empty(),
            _ => known(&config.codec),
        };
        let block_len_max = usize::try_from(theirs.block_bytes_max).unwrap_or(usize::MAX);
        let is_raw = strategy == Strategy::Raw;
        if is_raw || !usable || block_len_max < dwell_stream::BLOCK_LEN_MIN {
            config = StreamConfig::new(Strategy::Raw);
        }
        while config.block_len > block_len_max && config.block_len > dwell_stream::BLOCK_LEN_MIN {
            config.block_len /= 2;
        }
        config
    }
}

/// Returns true if streams of this strategy mark their own end, as they must here:
/// only that lets a reader distinguish an end from a cut.
pub const fn is_framed(strategy: Strategy) -> bool {
    !strategy.is_segmented()
}

/// The limits of resources.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Streams at once.
    pub streams_max: usize,
    /// Bytes that all streams together may hold.
    pub memory_bytes_max: u64,
    /// File descriptors that this process may have open (`RLIMIT_NOFILE`).
    pub descriptors_max: u64,
    /// Those of them that are for something else than streams.
    pub descriptors_besides: u64,
    /// The longest time from a connection's first byte to its being ready.
    pub handshake: Duration,
    /// The longest time to connect to a target.
    pub connect: Duration,
    /// A stream on which nothing has moved for this long is given up.
    pub idle: Duration,
    /// A stream whose program has not read for this long makes room for one that waits for it.
    pub stall: Duration,
}

/// The most that a stream holds that sends, in bytes: the sender's buffer, a block in transit, what blocks refer
/// to (and once more while one is compressed), and what TLS holds.
const SEND_BYTES_MAX: u64 = (256 + 64 + 192 + 128 + 64) << 10;
/// The most that a stream holds that receives, in bytes: the receiver's output with a block more, what blocks
/// refer to, what TLS holds and was read ahead for it, and what was read beyond an end.
const RECEIVE_BYTES_MAX: u64 = (256 + 64 + 192 + 64 + 64) << 10;
/// The most that a stream holds, in bytes.
pub const STREAM_BYTES_MAX: u64 = SEND_BYTES_MAX + RECEIVE_BYTES_MAX;
/// What an idle stream holds, in bytes: its task, two connections of the runtime's, and TLS. Some 20 and 23 KiB were
/// measured.
pub const IDLE_BYTES: u64 = 24 << 10;
/// What an idle stream holds beside that if it may refer to what came before, in both directions.
const HISTORY_BYTES: u64 = 2 * (192 << 10);
/// Idle streams may hold at most this part of the memory, and what they refer to that one.
const IDLE_SHARE: u64 = 4;
const HISTORY_SHARE: u64 = 8;
/// The running contexts of long streams may hold this part.
const CONTEXT_SHARE: u64 = 8;
/// Their memory is given out in units of so many bytes.
pub(crate) const CONTEXT_UNIT_BYTES: u64 = 1 << 20;

/// As many as a semaphore counts at most, and more than anybody needs.
const BUSY_MAX: usize = 1 << 24;

/// A stream has a connection to the program, or to its target, and one to the other proxy.
const STREAM_DESCRIPTORS: u64 = 2;
/// For the runtime, the log, the status, and the resolver's files and sockets.
const DESCRIPTORS_RESERVED: u64 = 64;

/// Which of the limits decides how many streams there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Limits::streams_max`].
    Streams,
    /// [`Limits::memory_bytes_max`].
    Memory,
    /// [`Limits::descriptors_max`].
    Descriptors,
}

impl Limits {
    /// Streams at once, by number, memory and file descriptors. At least one.
    pub fn streams(&self) -> usize {
        self.bound().1
    }

    /// The limit that decides, and the number of streams that it allows.
    pub fn bound(&self) -> (Bound, usize) {
        let by = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        let besides = self.descriptors_besides.saturating_add(DESCRIPTORS_RESERVED);
        let descriptors = self.descriptors_max.saturating_sub(besides) / STREAM_DESCRIPTORS;
        let bounds = [
            (Bound::Streams, self.streams_max.max(1)),
            (Bound::Memory, by(self.memory_bytes_max / IDLE_SHARE / IDLE_BYTES)),
            (Bound::Descriptors, by(descriptors)),
        ];
        // The first of equal ones.
        bounds.into_iter().min_by_key(|&(_, streams)| streams).unwrap_or(bounds[0])
    }

    /// The streams that may move something at the same time, in either direction, as far as memory goes: there may be
    /// fewer streams. At least one.
    pub fn busy_streams(&self) -> usize {
        let idle = self.streams() as u64 * IDLE_BYTES + self.histories() as u64 * HISTORY_BYTES;
        let contexts = self.context_units() as u64 * CONTEXT_UNIT_BYTES;
        let busy = self.memory_bytes_max.saturating_sub(idle + contexts) / STREAM_BYTES_MAX;
        usize::try_from(busy).unwrap_or(usize::MAX).clamp(1, BUSY_MAX)
    }

    /// The memory for running contexts of long streams, in units of [`CONTEXT_UNIT_BYTES`].
    pub(crate) fn context_units(&self) -> usize {
        let units = self.memory_bytes_max / CONTEXT_SHARE / CONTEXT_UNIT_BYTES;
        usize::try_from(units).unwrap_or(usize::MAX).min(BUSY_MAX)
    }

    /// The streams that may go on holding what they refer to while they are idle.
    pub(crate) fn histories(&self) -> usize {
        let most = self.memory_bytes_max / HISTORY_SHARE / HISTORY_BYTES;
        usize::try_from(most).unwrap_or(usize::MAX).min(self.streams()).min(BUSY_MAX)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams_max: usize::MAX,
            memory_bytes_max: 3 << 29,
            descriptors_max: u64::MAX,
            descriptors_besides: 0,
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(24 * 3600),
            stall: Duration::from_secs(30),
        }
    }
}

/// The end that programs connect to.
#[derive(Clone, Debug)]
pub struct Ingress {
    /// The settings of both ends.
    pub common: Common,
    /// The address of the egress.
    pub egress: Target,
    /// The listeners that programs connect to.
    pub listeners: Vec<Listener>,
    /// Connections to the egress that are kept ready, and used again; 0: each stream has one of
    /// its own.
    pub pool: usize,
    /// True if what connects says first whom it is for, by the PROXY protocol.
    pub accepts_proxy: bool,
    /// Reads keys and users again, when the process is asked to.
    pub reload: Reload<(Security, Option<Users>)>,
}

/// Reads settings again; or says why they can't be.
#[derive(Clone)]
pub struct Reload<T>(Arc<dyn Fn() -> Result<T, String> + Send + Sync>);

impl<T> Reload<T> {
    /// By this function.
    pub fn new(read: impl Fn() -> Result<T, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Result<T, String> {
        (self.0)()
    }
}

impl<T> std::fmt::Debug for Reload<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reload")
    }
}

/// A listener of an ingress, and the source of its streams' targets.
#[derive(Clone, Debug)]
pub enum Listener {
    /// Everything goes to one target.
    Forward {
        /// The address to listen on.
        listen: SocketAddr,
        /// The target, as the egress sees it.
        to: Target,
    },
    /// The client says it (RFC 1928).
    Socks {
        /// The address to listen on.
        listen: SocketAddr,
        /// The users that may use it; empty: everybody who can connect.
        users: Users,
    },
    /// The kernel says it: TPROXY hands over connections to any address.
    Transparent {
        /// The address to listen on.
        listen: SocketAddr,
    },
}

impl Listener {
    /// Returns the address that it listens on.
    pub const fn listen(&self) -> SocketAddr {
        match self {
            Self::Forward { listen, .. }
            | Self::Socks { listen, .. }
            | Self::Transparent { listen } => *listen,
        }
    }

    /// The same at another address: the one that the system chose for port 0.
    pub(crate) const fn at(mut self, address: SocketAddr) -> Self {
        match &mut self {
            Self::Forward { listen, .. }
            | Self::Socks { listen, .. }
            | Self::Transparent { listen } => *listen = address,
        }
        self
    }
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forward { listen, to } => write!(f, "{listen} to {to}"),
            Self::Socks { listen, .. } => write!(f, "{listen} SOCKS5"),
            Self::Transparent { listen } => write!(f, "{listen} transparent"),
        }
    }
}

/// The end that connects onward.
#[derive(Clone, Debug)]
pub struct Egress {
    /// The settings of both ends.
    pub common: Common,
    /// The address that ingresses connect to.
    pub listen: SocketAddr,
    /// The targets that it may connect to.
    pub allow: AllowList,
    /// The targets that learn whom a connection is for, by the PROXY protocol.
    pub send_proxy: AllowList,
    /// Reads keys and the targets again, when the process is asked to.
    pub reload: Reload<(Security, AllowList)>,
}

/// Settings that can't be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No `psk`, no certificates, and not on loopback.
    #[error(
        "{0} is not on this machine: protect the connection with --psk FILE (made by `dwell \
         genpsk`) or with --cert, --cert-key and --ca; or say --insecure if something else protects it"
    )]
    Unprotected(String),
    /// Nobody could use it.
    #[error("the ingress would not listen anywhere: add --forward, --socks or --transparent")]
    NoListener,
    /// It would refuse everything.
    #[error(
        "the egress would refuse every target: name those that are allowed with --allow, for \
         instance --allow db:5432 or --allow '10.0.0.0/8:*'"
    )]
    NothingAllowed,
}

impl Ingress {
    /// The file descriptors that it needs beside those of streams: its listeners and a client that waits
    /// at each, and connections that are kept ready.
    pub const fn descriptors_besides(listeners: usize, pool: usize) -> u64 {
        // Some more are kept that were made while streams had all of them.
        2 * listeners as u64 + pool as u64 + pool as u64 / 2
    }

    /// Checks conditions that hold between several values.
    ///
    /// # Errors
    /// [`ConfigError::NoListener`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.listeners.is_empty() { Err(ConfigError::NoListener) } else { Ok(()) }
    }
}

impl Egress {
    /// The most connections that have not shown the key yet.
    const HANDSHAKES_MAX: u64 = 512;
    /// The most connections with the key that have no stream.
    const WARM_MAX: u64 = 1024;

    /// Returns the share of the file descriptors for connections that have not shown the key yet.
    pub(crate) fn handshakes_max(descriptors_max: u64) -> usize {
        (descriptors_max / 8).clamp(8, Self::HANDSHAKES_MAX) as usize
    }

    /// Returns the share of the file descriptors for connections without a stream.
    pub(crate) fn warm_max(descriptors_max: u64) -> usize {
        (descriptors_max / 8).clamp(8, Self::WARM_MAX) as usize
    }

    /// Returns the file descriptors that it needs beside those of streams, out of the given number.
    pub fn descriptors_besides(descriptors_max: u64) -> u64 {
        (Self::handshakes_max(descriptors_max) + Self::warm_max(descriptors_max)) as u64
    }

    /// Checks conditions that hold between several values.
    ///
    /// # Errors
    /// [`ConfigError::NothingAllowed`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.allow.is_empty() { Err(ConfigError::NothingAllowed) } else { Ok(()) }
    }
}

/// Returns true if a host is this machine, so that what goes there passes no network.
pub fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => ip.is_loopback(),
        Host::Name(name) => name == "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::Purpose;

    fn hello() -> Hello {
        Hello::new(Purpose::Streams, 1 << 16, "")
    }

    #[test]
    fn bytes_are_saved_in_both_directions_unless_the_other_end_has_an_objective_of_its_own() {
        let saving = Compression { objective: Some(Objective::Bytes), ..Compression::default() };
        let wish = Hello { text: saving.wish_name().to_owned(), ..hello() };
        let config = Compression::default().sender_config(&wish);
        assert_eq!((config.strategy, config.objective), (Strategy::Hull, Objective::Bytes));
        assert_eq!(saving.sender_config(&hello()).objective, Objective::Bytes);
        let hasty = Compression { objective: Some(Objective::Time), ..Compression::default() };
        assert_eq!(hasty.sender_config(&wish).objective, Objective::Time);
        assert_eq!((hasty.wish_name(), Compression::default().wish_name()), ("", ""));
        // A strategy is no objective, and the other way round.
        let own = Compression { strategy: Some(Strategy::Hull), ..Compression::default() };
        assert_eq!(own.sender_config(&wish).objective, Objective::Time);
        let raw = Hello { text: "raw".to_owned(), ..hello() };
        assert_eq!(saving.sender_config(&raw).strategy, Strategy::Hull);
        let both = Compression { wish: Some(Strategy::All), ..saving };
        assert_eq!(both.wish_name(), "all");
    }

    #[test]
    fn both_ends_have_a_say() {
        let ours = Compression::default();
        assert_eq!(ours.sender_config(&hello()).strategy, Strategy::Hull);
        let wish = Hello { text: "mix".to_owned(), ..hello() };
        assert_eq!(ours.sender_config(&wish).strategy, Strategy::Mix);
        let fixed = Compression { strategy: Some(Strategy::All), ..ours.clone() };
        assert_eq!(fixed.sender_config(&wish).strategy, Strategy::All);
        assert_eq!(ours.sender_config(&wish).objective, Objective::Time);
        for odd in ["plain", "tcpcomp", "magic"] {
            let odd = Hello { text: odd.to_owned(), ..hello() };
            assert_eq!(ours.sender_config(&odd).strategy, Strategy::Hull);
        }
    }

    #[test]
    fn what_the_other_end_cannot_decode_is_not_sent() {
        let ours = Compression::default();
        let lz4 = Hello { codecs: 1 << CodecId::Lz4 as u8, ..hello() };
        let config = ours.sender_config(&lz4);
        assert!(config.codecs.iter().all(|spec| spec.id == CodecId::Lz4));
        assert!(!config.codecs.is_empty());
        let ppm = Compression {
            codecs: vec![CodecSpec::with_default_level(CodecId::Ppm)],
            ..ours.clone()
        };
        assert_eq!(ppm.sender_config(&hello().with_model(24)).codecs, ppm.codecs);
        let config = ppm.sender_config(&hello());
        assert_eq!((&config.codecs[..], config.check()), (&[config.codec][..], Ok(())));
        let mix = Compression {
            codecs: vec![CodecSpec::with_default_level(CodecId::Mix)],
            ..ours.clone()
        };
        let knows = hello().with_model(24);
        assert_eq!(mix.sender_config(&knows).codecs, mix.codecs);
        // Earlier builds know ppm only.
        let earlier = Hello { features: knows.features & !Hello::MIXED_MODELS, ..knows.clone() };
        let config = mix.sender_config(&earlier);
        assert_eq!((&config.codecs[..], config.check()), (&[config.codec][..], Ok(())));
        for (theirs, is_known) in [(&knows, true), (&earlier, false)] {
            assert_eq!(mix.sender_config(theirs).mixed_models, is_known);
            let saving = Compression { objective: Some(Objective::Bytes), ..ours.clone() };
            assert_eq!(saving.sender_config(theirs).mixed_models, is_known);
            assert!(!ours.sender_config(theirs).mixed_models, "to save time");
        }
        let none = Hello { codecs: 0, ..hello() };
        assert_eq!(ours.sender_config(&none).strategy, Strategy::Raw);
        let small = Hello { block_bytes_max: 10_000, ..hello() };
        let config = ours.sender_config(&small);
        assert_eq!((config.block_len, config.check()), (8192, Ok(())));
    }

    #[test]
    fn memory_bounds_streams() {
        let limits = Limits { memory_bytes_max: 10 * STREAM_BYTES_MAX, ..Limits::default() };
        assert_eq!(limits.bound(), (Bound::Memory, 140));
        assert_eq!((limits.busy_streams(), limits.histories(), limits.context_units()), (5, 4, 1));
        assert_eq!(Limits { streams_max: 10, ..limits.clone() }.bound().0, Bound::Streams);
        let least = Limits { memory_bytes_max: 1, ..limits };
        assert_eq!((least.streams(), least.busy_streams(), least.histories()), (1, 1, 0));
    }

    /// Whatever streams do, they hold no more than that.
    #[test]
    fn all_that_streams_hold_is_within_the_limit() {
        for megabytes in [64, 256, 1536, 100_000] {
            for streams_max in [1, 100, 9000, usize::MAX] {
                let memory_bytes_max = megabytes << 20;
                let limits = Limits { memory_bytes_max, streams_max, ..Limits::default() };
                let idle = limits.streams() as u64 * IDLE_BYTES;
                let histories = limits.histories() as u64 * HISTORY_BYTES;
                let busy = limits.busy_streams() as u64 * STREAM_BYTES_MAX;
                let contexts = limits.context_units() as u64 * CONTEXT_UNIT_BYTES;
                let all = idle + histories + contexts + busy;
                assert!(all <= memory_bytes_max, "{limits:?}");
            }
        }
    }

    #[test]
    fn descriptors_bound_streams() {
        let with = |descriptors_max, descriptors_besides| {
            Limits { descriptors_max, descriptors_besides, ..Limits::default() }.bound()
        };
        assert_eq!(with(1024, Ingress::descriptors_besides(2, 4)), (Bound::Descriptors, 475));
        assert_eq!(with(1024, Egress::descriptors_besides(1024)), (Bound::Descriptors, 352));
        assert_eq!(with(16, 8), (Bound::Descriptors, 1));
        for many in [40_000, 1 << 20, u64::MAX] {
            assert_eq!(with(many, Egress::descriptors_besides(many)), (Bound::Memory, 16_384));
        }
    }
}
