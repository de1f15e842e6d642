//! The configuration of a relay: one TOML file, read strictly.
//!
//! A key that is unknown, a value of the wrong type and a value that makes no sense are all
//! errors, and all errors of a file are reported at once, each with its line and what to do about
//! it. What is legal but probably not meant is reported by [`Config::warnings`].
//!
//! Reading is pure ([`Config::parse`]); only [`Config::load`] opens files.

mod check;
mod class;
mod codec;
mod dictionary;
mod endpoint;
mod error;
mod exceptions;
mod history;
mod load;
mod memory;
mod overhead;
mod protection;
mod public_key;
mod read;
mod retransmit;
mod secret;
mod site;
mod table;
mod value;
mod web;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_base::{FileErrors, Rate};
use dwell_codec::{CodecId, CodecSpec, ContextDictionary, PpmSpec};
use dwell_policy::{
    ClassKey, CpuLimit, History, LearnedConfig, Objective, Queue, QueueLimit, Ratio, Scheme,
};
use ipnet::IpNet;

pub use class::{CLASS_KEYS, CLASSES_MAX, ClassConfig, PortRange, class_of};
pub use codec::{Codec, ModelKind};
pub(crate) use codec::{PICKED_LEVEL_MAX, batch_bytes_max};
pub use dwell_drive::BlockConfig;
pub use endpoint::{Endpoint, ParseEndpointError};
pub use exceptions::parse as parse_exceptions;
pub use history::HistoryMode;
pub use overhead::{Framing, LinkOverhead, UnknownLink};
pub use public_key::{ParsePublicKeyError, PublicKey, base64_of};
pub use read::{METRICS_KEYS, NODE_KEYS, PEER_KEYS};
pub use retransmit::Retransmit;
pub use secret::{ReadSecretError, Secret};
pub use site::{PAIRING_KEYS, PairingConfig, SAVINGS_KEYS, SavingsConfig};
pub use value::is_name;
pub use web::{WEB_KEYS, WebConfig, WebPassword};

/// The UDP port that a relay listens on if none is configured.
pub const PORT: u16 = 7733;

/// The schemes that a relay can run: all of them.
pub const SCHEMES: [&str; 17] = dwell_policy::PRESETS;

/// The configuration of a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The node itself.
    pub node: NodeConfig,
    /// What it says of itself to those who are to become peers.
    pub pairing: PairingConfig,
    /// The account of what was saved.
    pub savings: SavingsConfig,
    /// Its peers, in the order of the file. None before the first has joined.
    pub peers: Vec<PeerConfig>,
    /// Classes of packets, in the order of the file.
    pub classes: Vec<ClassConfig>,
}

impl Config {
    /// Reads a configuration; `file_name` is for messages. `read_secret` fetches the secret
    /// that a `private_key_file` or a `psk_file` names; an `exceptions_file` or a `dictionary` can't be
    /// read here.
    /// The node's default name is `"dwell"`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(
        text: &str,
        file_name: &str,
        read_secret: &dyn Fn(&Path) -> Result<Secret, ReadSecretError>,
    ) -> Result<Self, FileErrors> {
        let not_here = || std::io::Error::other("files are not read here");
        let (read_list, read_bytes) = (|_: &Path| Err(not_here()), |_: &Path| Err(not_here()));
        let secrets = read::Secrets {
            directory: Path::new(""),
            read: read_secret,
            read_list: &read_list,
            read_password: &|_| Err(ReadSecretError::Io(not_here())),
            read_dictionary: &read_bytes,
            dictionaries: &RefCell::default(),
            has_private: false,
        };
        read::parse(text, file_name, "dwell", &secrets)
    }
}

/// A configuration to begin with: every key with its default value and what it means.
pub fn sample() -> &'static str {
    include_str!("sample.toml")
}

/// The node itself: `[node]`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// The node's name, in logs and in the status.
    pub name: String,
    /// The TUN interface's name, at most [`TUN_NAME_BYTES_MAX`] bytes.
    pub tun: String,
    /// The TUN interface's addresses.
    pub addresses: Vec<IpNet>,
    /// The address at which datagrams from the peers arrive.
    pub listen: SocketAddr,
    /// The TUN interface's MTU.
    pub mtu: MtuConfig,
    /// True if the TUN interface and the socket may pass super-packets.
    pub offload: bool,
    /// The most threads that compress and decompress, beside the one that reads and writes; as many as there are
    /// processors, if it isn't said.
    pub threads: Option<NonZero<usize>>,
    /// The memory that the contexts of all peers may take together, in bytes; three quarters of the machine's, if it
    /// isn't said.
    pub history_memory_bytes: Option<u64>,
    /// The rate of a link that all peers share, to be divided among them; none if nothing is known of one.
    pub uplink: Option<Rate>,
    /// The Unix socket that answers `dwell status`, unless switched off.
    pub status: Option<PathBuf>,
    /// Its private key; peers that are known by their public keys need it.
    pub private_key: Option<Secret>,
    /// The user that the relay becomes once all is set up, if it was started by root.
    pub user: Option<String>,
    /// True if system calls are filtered once all is set up.
    pub seccomp: bool,
    /// The address at which Prometheus finds metrics, unless switched off: `[metrics]`.
    pub metrics: Option<SocketAddr>,
    /// The web page, unless switched off: `[web]`.
    pub web: Option<WebConfig>,
    /// The level of the log.
    pub log: LogLevel,
    /// A peer from which nothing was received for this long is probed.
    pub keepalive_ns: u64,
    /// A peer that owes an answer for this long is dead.
    pub dead_after_ns: u64,
    /// True if packets from one peer for another are forwarded without the kernel, and unopened if they
    /// came compressed.
    pub transit: bool,
    /// Networks at this node, beside those of its addresses: nothing for them goes to a peer that
    /// has a shorter prefix.
    pub local: Vec<IpNet>,
}

/// The longest name that Linux takes for an interface.
pub const TUN_NAME_BYTES_MAX: usize = 15;

/// The most threads that compress and decompress: one reads and writes for all of them.
pub const THREADS_MAX: usize = 16;

/// The TUN interface's MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuConfig {
    /// From the path to the peers.
    Auto,
    /// This many bytes, at least [`MTU_MIN`].
    Fixed(u16),
}

/// The smallest MTU that IPv6 works with.
pub const MTU_MIN: u16 = 1280;

/// Levels of the log: messages of the level and graver ones are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // The names say it all.
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Every level, from the fewest messages to the most.
    pub const ALL: [Self; 6] =
        [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// As it is written in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A peer and the link to it: one `[[peer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerConfig {
    /// The peer's name, in logs and in the status. No two are equal.
    pub name: String,
    /// The address that it listens on; without it this node waits to be contacted.
    pub endpoint: Option<Endpoint>,
    /// The prefixes routed to it (longest match), and the only sources accepted from it. Host bits
    /// are zero; no two peers have the same prefix.
    pub prefixes: Vec<IpNet>,
    /// The protection of datagrams.
    pub security: Security,
    /// The scheme's name, one of [`SCHEMES`].
    pub scheme_name: &'static str,
    /// The scheme, with what else is configured of it.
    pub scheme: Scheme,
    /// The size of blocks, for schemes that make some.
    pub blocks: BlockConfig,
    /// True if the packets of a block are rearranged, header fields side by side, before they
    /// are compressed.
    pub columnar: bool,
    /// True if frames of schemes that fill them may be compressed as a whole.
    pub chunk_compress: bool,
    /// Whether datagrams with blocks are sent again if they were lost.
    pub retransmit: Retransmit,
    /// The longest that packets from the peer wait for a datagram that is missing, so that they
    /// keep their order, in nanoseconds.
    pub order_wait_ns: u64,
    /// The scope of a context: the packets whose batches refer to each other.
    pub history: History,
    /// Whether that refers to all before it, or to what the peer has confirmed.
    pub history_mode: HistoryMode,
    /// The most contexts at a time, for each direction.
    pub contexts_max: u8,
    /// The binary logarithm of the bytes that a batch can refer back to.
    pub context_window_log: u8,
    /// The most contexts with a model at a time, for each direction.
    pub models_max: u8,
    /// The binary logarithm of the most bytes of each model.
    pub model_memory_log: u8,
    /// The bytes that contexts begin from if the peer has the same.
    pub dictionary: Option<Arc<ContextDictionary>>,
    /// The time that a datagram takes to the peer, in nanoseconds; or it is estimated.
    pub one_way_delay_ns: Option<u64>,
    /// What is to be saved.
    pub saving: SavingConfig,
    /// The codec that packets are compressed with; in contexts with a model, what has none.
    pub codec: CodecSpec,
    /// The kind of the models that batches in contexts are compressed with, if the codec is one of models.
    pub model_kind: Option<ModelKind>,
    /// True if a codec is picked by what it brings and costs, for each context, and for what is in none.
    pub picks_codec: bool,
    /// The rate of the link.
    pub rate: RateConfig,
    /// The limit of the queue.
    pub queue: QueueLimit,
    /// What a datagram costs on the link below its IP header.
    pub link_overhead: LinkOverhead,
    /// The treatment of packets for the peer while it is not up.
    pub on_dead: FailMode,
    /// Classes that are never compressed.
    pub exceptions: Vec<ClassKey>,
    /// Packets below this size are not compressed.
    pub compress_bytes_min: u32,
    /// A result at or above this ratio is not worth its CPU time.
    pub poor_ratio: Ratio,
    /// The metric of the routes to the peer's prefixes.
    pub metric: u32,
}

/// What is to be saved: time, or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavingConfig {
    /// True if bytes are to be saved, as on links that are paid for.
    pub saves_bytes: bool,
    /// The longest that packets of no class wait for company then, in nanoseconds.
    pub gather_ns: u64,
    /// The share of one CPU that compressing may take, in parts per million, if that is limited.
    pub cpu_ppm: Option<u32>,
}

impl Default for SavingConfig {
    fn default() -> Self {
        Self { saves_bytes: false, gather_ns: Objective::MAX_WAIT_NS, cpu_ppm: None }
    }
}

impl SavingConfig {
    /// Returns the objective of a port with this scheme: only those that queue by flow can gather.
    pub fn objective(&self, scheme: &Scheme) -> Objective {
        match scheme.queue {
            Queue::Flows(_) if self.saves_bytes => {
                let cpu_ppm = self.cpu_ppm.unwrap_or(Objective::CPU_PPM);
                Objective::Bytes { max_wait_ns: self.gather_ns, cpu_ppm }
            }
            _ => Objective::Time,
        }
    }

    /// Returns the share of one CPU that compressing may take, from 0 to 1, if that is limited.
    pub fn cpu_share(&self) -> Option<f64> {
        let usual = self.saves_bytes.then_some(Objective::CPU_PPM);
        Some(f64::from(self.cpu_ppm.or(usual)?) / 1e6)
    }

    /// Returns the limit of it, if one is configured.
    pub fn cpu_limit(&self) -> Option<CpuLimit> {
        self.cpu_ppm.map(CpuLimit::of_share)
    }
}

/// The protection of datagrams to and from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Security {
    /// Encrypted and authenticated with fresh keys, which key pairs vouch for.
    Keys {
        /// This node's own private key.
        private: Secret,
        /// The peer's public key.
        peer: PublicKey,
        /// A key that both have, mixed in.
        psk: Option<Secret>,
    },
    /// Encrypted and authenticated with a key that both peers have.
    Psk(Secret),
    /// Not at all; written out in the configuration.
    None,
}

impl Security {
    /// The name in the status.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Keys { .. } => "keys",
            Self::Psk(_) => "psk",
            Self::None => "none",
        }
    }
}

/// The rate of the link to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateConfig {
    /// To be found out: by back-pressure of the local device, and from what the peer reports.
    Auto,
    /// To be found out by back-pressure of the local device only.
    Local,
    /// Packets never wait here.
    Unlimited,
    /// This fast.
    Fixed(Rate),
}

/// The treatment of packets for a peer that is not up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// The routes to it are withdrawn; packets go wherever else the routing table sends them.
    Open,
    /// The routes are kept, and unreachable ones behind them outlive the relay; packets are refused
    /// rather than sent by another route.
    Closed,
}

impl FailMode {
    /// As it is written in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }

    /// Returns the default for a peer with this security: packets that are worth a key must not
    /// leave without one.
    pub const fn default_of(security: &Security) -> Self {
        match security {
            Security::Keys { .. } | Security::Psk(_) => Self::Closed,
            Security::None => Self::Open,
        }
    }
}

impl NodeConfig {
    /// Returns the path at which a node of this name answers `dwell status` if nothing else is
    /// configured.
    pub fn default_status(name: &str) -> PathBuf {
        Path::new("/run/dwell").join(format!("{name}.sock"))
    }

    /// Returns the address of the web page for people, if there is one.
    pub fn web_address(&self) -> Option<String> {
        let mut address = self.web.as_ref()?.listen;
        if address.ip().is_unspecified() {
            let is_like = |own: &&IpNet| own.addr().is_ipv4() == address.is_ipv4();
            let own = self.addresses.iter().find(is_like).map(IpNet::addr);
            address.set_ip(own.unwrap_or(Ipv4Addr::LOCALHOST.into()));
        }
        Some(format!("http://{address}/"))
    }
}

/// The default values, for the node called `"dwell"`.
impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: "dwell".to_owned(),
            tun: "dwell0".to_owned(),
            addresses: Vec::new(),
            listen: (Ipv4Addr::UNSPECIFIED, PORT).into(),
            mtu: MtuConfig::Auto,
            offload: true,
            threads: None,
            history_memory_bytes: None,
            uplink: None,
            status: Some(Self::default_status("dwell")),
            private_key: None,
            user: None,
            seccomp: true,
            metrics: None,
            web: None,
            log: LogLevel::Info,
            keepalive_ns: 20 * SECOND_NS,
            dead_after_ns: 5 * SECOND_NS,
            transit: false,
            local: Vec::new(),
        }
    }
}

impl PeerConfig {
    /// The default values for the keys that have one: neither name nor prefixes do, and
    /// `security` has none on purpose.
    pub fn new(name: String, security: Security) -> Self {
        let on_dead = FailMode::default_of(&security);
        let scheme_name = "auto";
        let mut config = Self {
            name,
            endpoint: None,
            prefixes: Vec::new(),
            security,
            scheme_name,
            scheme: Scheme::packet(),
            blocks: BlockConfig::default(),
            columnar: true,
            chunk_compress: true,
            retransmit: Retransmit::Auto,
            order_wait_ns: 50 * MILLI_NS,
            history: History::Off,
            history_mode: HistoryMode::Auto,
            contexts_max: 16,
            context_window_log: 20,
            models_max: 4,
            model_memory_log: PpmSpec::default().memory_log,
            dictionary: None,
            one_way_delay_ns: None,
            saving: SavingConfig::default(),
            codec: CodecSpec { id: CodecId::Zstd, level: 1 },
            model_kind: None,
            picks_codec: true,
            rate: RateConfig::Auto,
            queue: QueueLimit::default(),
            link_overhead: LinkOverhead::default(),
            on_dead,
            exceptions: Vec::new(),
            compress_bytes_min: 64,
            poor_ratio: LearnedConfig::default().poor_ratio,
            // NetworkManager's for VPNs: preferred to the routes that DHCP brings.
            metric: 50,
        };
        config.scheme = config.blocks.scheme(scheme_name).unwrap_or(config.scheme);
        if let Ok((history, scheme)) = history::scheme(&config, None) {
            (config.history, config.scheme) = (history, scheme);
        }
        config
    }
}
