//! From a TOML document to a [`Config`].

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use dwell_base::FileErrors;
use dwell_base::text::{printable, suggest};
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_policy::{ClassKey, History, Queue, QueueLimit, Ratio};
use ipnet::IpNet;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use super::codec::{self, Codec};
use super::dictionary::Dictionaries;
use super::error::Errors;
use super::protection::{self, Protected, Protection};
use super::table::{Located, Table};
use super::{
    Config, Endpoint, FailMode, HistoryMode, LinkOverhead, NodeConfig, PairingConfig, PeerConfig,
    RateConfig, ReadSecretError, Retransmit, Secret, check, class, dictionary, exceptions, history,
    retransmit, site, value, web,
};

/// Functions that read the secret in a file.
pub(super) struct Secrets<'s> {
    /// The directory that relative paths are relative to.
    pub(super) directory: &'s Path,
    pub(super) read: &'s dyn Fn(&Path) -> Result<Secret, ReadSecretError>,
    /// Reads the file of a password.
    pub(super) read_password: &'s dyn Fn(&Path) -> Result<Zeroizing<String>, ReadSecretError>,
    /// Reads a list of exceptions.
    pub(super) read_list: &'s dyn Fn(&Path) -> std::io::Result<String>,
    /// Reads a file with dictionaries, ...
    pub(super) read_dictionary: &'s dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    /// ... each once: all peers share what `[defaults]` names.
    pub(super) dictionaries: &'s RefCell<Dictionaries>,
    /// The node names a file with its private key, readable or not.
    pub(super) has_private: bool,
}

const TABLES: [&str; 8] =
    ["node", "defaults", "peer", "class", "metrics", "web", "pairing", "savings"];

/// The keys of `[metrics]`.
pub const METRICS_KEYS: [&str; 1] = ["listen"];

/// The keys of `[node]`.
pub const NODE_KEYS: [&str; 18] = [
    "name",
    "tun",
    "addresses",
    "listen",
    "mtu",
    "offload",
    "threads",
    "history_memory",
    "uplink",
    "status",
    "private_key_file",
    "user",
    "seccomp",
    "log",
    "keepalive",
    "dead_after",
    "transit",
    "local",
];

/// The keys of `[[peer]]`. Those after the first four may also stand in `[defaults]`.
pub const PEER_KEYS: [&str; 37] = [
    "name",
    "endpoint",
    "prefixes",
    "public_key",
    "psk_file",
    "security",
    "scheme",
    "block_bytes",
    "block_packets",
    "block_lead",
    "columnar",
    "chunk_compress",
    "retransmit",
    "order_wait",
    "objective",
    "gather_time",
    "cpu",
    "history",
    "history_mode",
    "contexts_max",
    "context_window",
    "models_max",
    "model_memory",
    "dictionary",
    "codec",
    "rate",
    "queue_time",
    "queue_packets",
    "queue_bytes",
    "link_overhead",
    "one_way_delay",
    "on_dead",
    "exceptions",
    "exceptions_file",
    "compress_min",
    "poor_ratio",
    "metric",
];

/// The number of a peer's keys that are its own and can't have a default.
const OWN_KEYS: usize = 4;

pub(super) fn parse(
    text: &str,
    file: &str,
    host_name: &str,
    secrets: &Secrets<'_>,
) -> Result<Config, FileErrors> {
    let mut errors = Errors::new(text);
    let config = read_document(text, host_name, secrets, &mut errors);
    errors.into_result(file, config)
}

/// `None` only if there are errors; with errors the configuration is incomplete.
fn read_document(
    text: &str,
    host_name: &str,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> Option<Config> {
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let line = error.span().map(|span| errors.line_of(span.start));
            errors.add(line, None, not_toml(text, &error));
            return None;
        }
    };
    let document = document.get_ref();
    refuse_unknown_tables(document, errors);
    let node_table = sub_table(document, "node", errors);
    let has_private = node_table.as_ref().is_some_and(|table| table.has("private_key_file"));
    let secrets = &Secrets { has_private, ..*secrets };
    let mut node = match node_table {
        Some(table) => read_node(&table, host_name, secrets, errors),
        None => with_host_name(NodeConfig::default(), host_name),
    };
    if let Some(table) = sub_table(document, "metrics", errors) {
        table.refuse_unknown(&METRICS_KEYS, |_| None, errors);
        node.metrics = table.get("listen", errors, value::metrics_listen).map(|it| it.value);
    }
    if let Some(table) = sub_table(document, "web", errors) {
        node.web = web::read(&table, secrets, errors);
    }
    let pairing = match sub_table(document, "pairing", errors) {
        Some(table) => site::read_pairing(&table, errors),
        None => PairingConfig::default(),
    };
    let savings = sub_table(document, "savings", errors);
    let savings = site::read_savings(savings.as_ref(), &node.name, errors);
    let defaults = match sub_table(document, "defaults", errors) {
        Some(table) => {
            refuse_unknown_defaults(&table, errors);
            PeerKeys::read(&table, errors)
        }
        None => PeerKeys::default(),
    };
    let tables = peer_tables(document, errors);
    let peers: Vec<Peer<'_>> = tables
        .into_iter()
        .enumerate()
        .map(|(index, table)| read_peer(table, index, &defaults, (&node, secrets), errors))
        .collect();
    check::across(&node, &peers, errors);
    let classes = class::read(&class_tables(document, errors), errors);
    let peers = peers.into_iter().map(|peer| peer.config).collect();
    Some(Config { node, pairing, savings, peers, classes })
}

fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let what = printable(error.message());
    let key = error.span().and_then(|span| text.get(span)).filter(|_| what == "duplicate key");
    match key {
        Some(key) => format!(
            "this is not TOML: {what} `{}`: this table has it already, so delete one of the two",
            printable(key)
        ),
        None => format!("this is not TOML: {what}"),
    }
}

fn refuse_unknown_tables(document: &DeTable<'_>, errors: &mut Errors<'_>) {
    for (key, value) in document {
        let name = key.get_ref().as_ref();
        if TABLES.contains(&name) {
            continue;
        }
        let hint = match value.get_ref() {
            DeValue::Table(_) | DeValue::Array(_) => suggest(name, &TABLES)
                .replace("`peer`", "`[[peer]]`")
                .replace("`class`", "`[[class]]`")
                .replace(
                    "the keys here are node, defaults, peer, class, metrics, web, pairing, savings",
                    "use [node], [defaults], [[peer]], [[class]], [metrics], [web], [pairing], \
                     [savings]",
                ),
            _ if NODE_KEYS.contains(&name) && name != "name" => "put it under [node]".to_owned(),
            _ if PEER_KEYS.contains(&name) => "put it under [[peer]] or [defaults]".to_owned(),
            _ => "every key stands under [node], [defaults] or [[peer]]".to_owned(),
        };
        let line = errors.line_of(key.span().start);
        errors.add(Some(line), None, format!("`{}` is unknown here: {hint}", printable(name)));
    }
}

fn sub_table<'t>(
    document: &'t DeTable<'t>,
    name: &str,
    errors: &mut Errors<'_>,
) -> Option<Table<'t>> {
    let value = document.get(name)?;
    let line = errors.line_of(value.span().start);
    match value.get_ref() {
        DeValue::Table(table) => Some(Table::new(format!("[{name}]"), table, line)),
        _ => {
            errors.add(Some(line), None, format!("`{name}` must be a table: write [{name}], once"));
            None
        }
    }
}

/// The tables of the peers; what has the wrong shape is reported and left out.
fn peer_tables<'t>(document: &'t DeTable<'t>, errors: &mut Errors<'_>) -> Vec<Table<'t>> {
    let Some(value) = document.get("peer") else { return Vec::new() };
    let line = errors.line_of(value.span().start);
    let items = value.get_ref().as_array();
    let tables: Option<Vec<_>> = items.and_then(|items| {
        items.iter().map(|item| Some((item.get_ref().as_table()?, item.span().start))).collect()
    });
    match tables {
        Some(tables) => tables
            .into_iter()
            .enumerate()
            .map(|(index, (table, start))| {
                Table::new(peer_place(table, index), table, errors.line_of(start))
            })
            .collect(),
        None => {
            let message = "peers are written with two brackets each: [[peer]]".to_owned();
            errors.add(Some(line), None, message);
            Vec::new()
        }
    }
}

/// The tables of the classes; what has the wrong shape is reported and left out.
fn class_tables<'t>(document: &'t DeTable<'t>, errors: &mut Errors<'_>) -> Vec<Table<'t>> {
    let Some(value) = document.get("class") else { return Vec::new() };
    let items = value.get_ref().as_array().map(|items| {
        items.iter().map(|item| Some((item.get_ref().as_table()?, item.span().start)))
    });
    let Some(tables) = items.and_then(Iterator::collect::<Option<Vec<_>>>) else {
        let line = errors.line_of(value.span().start);
        let message = "classes are written with two brackets each: [[class]]".to_owned();
        errors.add(Some(line), None, message);
        return Vec::new();
    };
    let place = |table: &DeTable<'_>, index: usize| match table
        .get("name")
        .and_then(|name| name.get_ref().as_str())
    {
        Some(name) => format!("[[class]] \"{}\"", printable(name)),
        None => format!("[[class]] number {}", index + 1),
    };
    let tables = tables.into_iter().enumerate();
    tables
        .map(|(index, (table, start))| {
            Table::new(place(table, index), table, errors.line_of(start))
        })
        .collect()
}

fn peer_place(table: &DeTable<'_>, index: usize) -> String {
    match table.get("name").and_then(|name| name.get_ref().as_str()) {
        Some(name) => format!("[[peer]] \"{}\"", printable(name)),
        None => format!("[[peer]] number {}", index + 1),
    }
}

fn with_host_name(node: NodeConfig, host_name: &str) -> NodeConfig {
    let status = Some(NodeConfig::default_status(host_name));
    NodeConfig { name: host_name.to_owned(), status, ..node }
}

fn read_node(
    table: &Table<'_>,
    host_name: &str,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) -> NodeConfig {
    let elsewhere = |key: &str| {
        PEER_KEYS.contains(&key).then(|| "it is a key of [[peer]] and [defaults]".to_owned())
    };
    table.refuse_unknown(&NODE_KEYS, elsewhere, errors);
    let name = table.get("name", errors, value::name).map(|name| name.value);
    let mut node = with_host_name(NodeConfig::default(), name.as_deref().unwrap_or(host_name));
    set(&mut node.tun, table.get("tun", errors, value::interface));
    if let Some(list) =
        table.get_list("addresses", "[\"10.77.0.1/30\"]", errors, value::interface_address)
    {
        node.addresses = list.into_iter().map(|address| address.value).collect();
    }
    set(&mut node.listen, table.get("listen", errors, value::listen));
    set(&mut node.mtu, table.get("mtu", errors, value::mtu));
    set(&mut node.offload, table.get("offload", errors, value::boolean));
    set(&mut node.threads, table.get("threads", errors, value::threads));
    set(&mut node.history_memory_bytes, table.get("history_memory", errors, value::history_memory));
    set(&mut node.uplink, table.get("uplink", errors, value::uplink));
    set(&mut node.status, table.get("status", errors, value::status));
    node.private_key = protection::private_key(table, secrets, errors);
    set(&mut node.user, table.get("user", errors, value::user));
    set(&mut node.seccomp, table.get("seccomp", errors, value::boolean));
    set(&mut node.log, table.get("log", errors, value::log));
    let keepalive = table
        .get("keepalive", errors, |value| value::duration_ns(value, SECOND_NS..=600 * SECOND_NS));
    set(&mut node.keepalive_ns, keepalive);
    let dead_after = table.get("dead_after", errors, |value| {
        value::duration_ns(value, 100 * MILLI_NS..=600 * SECOND_NS)
    });
    set(&mut node.dead_after_ns, dead_after);
    set(&mut node.transit, table.get("transit", errors, value::boolean));
    if let Some(list) = table.get_list("local", "[\"10.1.0.0/16\"]", errors, value::prefix) {
        node.local = list.into_iter().map(|prefix| prefix.value).collect();
    }
    node
}

fn set<T>(target: &mut T, found: Option<Located<T>>) {
    if let Some(found) = found {
        *target = found.value;
    }
}

fn refuse_unknown_defaults(table: &Table<'_>, errors: &mut Errors<'_>) {
    let elsewhere = |key: &str| {
        if PEER_KEYS[..OWN_KEYS].contains(&key) {
            return Some("it is each peer's own, put it under [[peer]]".to_owned());
        }
        NODE_KEYS.contains(&key).then(|| "it is a key of [node]".to_owned())
    };
    table.refuse_unknown(&PEER_KEYS[OWN_KEYS..], elsewhere, errors);
}

/// The keys that both `[defaults]` and a `[[peer]]` may have.
#[derive(Clone, Debug, Default)]
struct PeerKeys {
    protection: Protection,
    scheme: Option<Located<&'static str>>,
    block_bytes: Option<Located<u64>>,
    block_packets: Option<Located<Option<u32>>>,
    block_lead: Option<Located<u32>>,
    columnar: Option<Located<bool>>,
    chunk_compress: Option<Located<bool>>,
    retransmit: Option<Located<Retransmit>>,
    order_wait_ns: Option<Located<u64>>,
    saves_bytes: Option<Located<bool>>,
    gather_ns: Option<Located<u64>>,
    cpu_ppm: Option<Located<Option<u32>>>,
    history: Option<Located<History>>,
    history_mode: Option<Located<HistoryMode>>,
    contexts_max: Option<Located<u32>>,
    context_window_log: Option<Located<u8>>,
    models_max: Option<Located<u32>>,
    model_memory_log: Option<Located<u8>>,
    dictionary: Option<Located<PathBuf>>,
    codec: Option<Located<Codec>>,
    rate: Option<Located<RateConfig>>,
    queue_time_ns: Option<Located<u64>>,
    queue_packets: Option<Located<u32>>,
    queue_bytes: Option<Located<u64>>,
    link_overhead: Option<Located<LinkOverhead>>,
    one_way_delay_ns: Option<Located<Option<u64>>>,
    on_dead: Option<Located<FailMode>>,
    exceptions: Option<Vec<Located<ClassKey>>>,
    exceptions_file: Option<Located<PathBuf>>,
    compress_bytes_min: Option<Located<u32>>,
    poor_ratio: Option<Located<Ratio>>,
    metric: Option<Located<u32>>,
}

/// A packet as long as an IP packet can be must find room, or it could never be sent.
const QUEUE_BYTES_MIN: u64 = 64 << 10;
const QUEUE_BYTES_MAX: u64 = 1 << 30;
const METRIC_MAX: u32 = u32::MAX - 1;
/// Below a full packet there is nothing to join; a block may take 64 datagrams, and its length
/// has 16 bits.
const BLOCK_BYTES_MIN: u64 = 1_500;
const BLOCK_BYTES_MAX: u64 = 60_000;

impl PeerKeys {
    fn read(table: &Table<'_>, errors: &mut Errors<'_>) -> Self {
        Self {
            protection: Protection::read(table, errors),
            scheme: table.get("scheme", errors, value::scheme),
            block_bytes: table.get("block_bytes", errors, |value| {
                value::size_bytes(value, BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX)
            }),
            block_packets: table.get("block_packets", errors, value::block_packets),
            block_lead: table.get("block_lead", errors, |value| value::integer(value, 0..=1000)),
            columnar: table.get("columnar", errors, value::boolean),
            chunk_compress: table.get("chunk_compress", errors, value::boolean),
            retransmit: table.get("retransmit", errors, retransmit::read),
            order_wait_ns: table
                .get("order_wait", errors, |value| value::duration_ns(value, 0..=SECOND_NS)),
            saves_bytes: table.get("objective", errors, value::objective),
            gather_ns: table.get("gather_time", errors, |value| {
                value::duration_ns(value, MILLI_NS..=60 * SECOND_NS)
            }),
            cpu_ppm: table.get("cpu", errors, value::share_ppm),
            history: table.get("history", errors, history::history),
            history_mode: table.get("history_mode", errors, history::mode),
            contexts_max: table.get("contexts_max", errors, |value| value::integer(value, 1..=255)),
            context_window_log: table.get("context_window", errors, history::window_log),
            models_max: table.get("models_max", errors, |value| value::integer(value, 0..=16)),
            model_memory_log: table.get("model_memory", errors, history::model_memory_log),
            dictionary: table.get("dictionary", errors, dictionary::path),
            codec: table.get("codec", errors, codec::codec),
            rate: table.get("rate", errors, value::rate),
            queue_time_ns: table.get("queue_time", errors, |value| {
                value::duration_ns(value, MILLI_NS..=60 * SECOND_NS)
            }),
            queue_packets: table
                .get("queue_packets", errors, |value| value::integer(value, 2..=1_000_000)),
            queue_bytes: table.get("queue_bytes", errors, |value| {
                value::size_bytes(value, QUEUE_BYTES_MIN..=QUEUE_BYTES_MAX)
            }),
            link_overhead: table.get("link_overhead", errors, value::link_overhead),
            one_way_delay_ns: table.get("one_way_delay", errors, value::one_way_delay),
            on_dead: table.get("on_dead", errors, value::on_dead),
            exceptions: table.get_list("exceptions", "[\"tcp/443\"]", errors, value::class),
            exceptions_file: table.get("exceptions_file", errors, value::exceptions_file),
            compress_bytes_min: table
                .get("compress_min", errors, |value| value::integer(value, 0..=65_535)),
            poor_ratio: table.get("poor_ratio", errors, value::ratio),
            // IPv6 takes zero for 1024, and the unreachable route behind needs one more.
            metric: table.get("metric", errors, |value| value::integer(value, 1..=METRIC_MAX)),
        }
    }

    /// Puts what stands here over `peer`.
    fn apply(&self, peer: &mut PeerConfig) {
        fn set<T: Clone>(target: &mut T, found: &Option<Located<T>>) {
            super::read::set(target, found.clone());
        }
        set(&mut peer.scheme_name, &self.scheme);
        if let Some(bytes) = &self.block_bytes {
            peer.blocks.bytes = bytes.value as u32; // at most 60,000
        }
        set(&mut peer.blocks.packets, &self.block_packets);
        set(&mut peer.blocks.lead, &self.block_lead);
        set(&mut peer.columnar, &self.columnar);
        set(&mut peer.chunk_compress, &self.chunk_compress);
        set(&mut peer.retransmit, &self.retransmit);
        set(&mut peer.order_wait_ns, &self.order_wait_ns);
        set(&mut peer.saving.saves_bytes, &self.saves_bytes);
        set(&mut peer.saving.gather_ns, &self.gather_ns);
        set(&mut peer.saving.cpu_ppm, &self.cpu_ppm);
        set(&mut peer.history_mode, &self.history_mode);
        if let Some(contexts) = &self.contexts_max {
            peer.contexts_max = contexts.value as u8; // at most 255
        }
        set(&mut peer.context_window_log, &self.context_window_log);
        if let Some(models) = &self.models_max {
            peer.models_max = models.value as u8; // at most 16
        }
        set(&mut peer.model_memory_log, &self.model_memory_log);
        if let Some(codec) = &self.codec {
            let codec::Codec { spec, model_kind, picks } = codec.value;
            (peer.codec, peer.model_kind, peer.picks_codec) = (spec, model_kind, picks);
        }
        set(&mut peer.rate, &self.rate);
        let QueueLimit { packets, bytes, time_ns, .. } = &mut peer.queue;
        set(time_ns, &self.queue_time_ns);
        set(packets, &self.queue_packets);
        set(bytes, &self.queue_bytes);
        set(&mut peer.link_overhead, &self.link_overhead);
        set(&mut peer.one_way_delay_ns, &self.one_way_delay_ns);
        set(&mut peer.on_dead, &self.on_dead);
        if let Some(list) = &self.exceptions {
            peer.exceptions = list.iter().map(|class| class.value).collect();
        }
        set(&mut peer.compress_bytes_min, &self.compress_bytes_min);
        set(&mut peer.poor_ratio, &self.poor_ratio);
        set(&mut peer.metric, &self.metric);
    }
}

/// A peer, and where in the file it says what must be compared with others.
pub(super) struct Peer<'t> {
    pub(super) config: PeerConfig,
    pub(super) table: Table<'t>,
    pub(super) name_line: usize,
    pub(super) endpoint_line: usize,
    pub(super) prefix_lines: Vec<usize>,
    pub(super) protection_line: usize,
    /// It says that it has neither a key nor an endpoint.
    pub(super) is_bare: bool,
}

fn read_peer<'t>(
    table: Table<'t>,
    index: usize,
    defaults: &PeerKeys,
    (node, secrets): (&NodeConfig, &Secrets<'_>),
    errors: &mut Errors<'_>,
) -> Peer<'t> {
    let elsewhere =
        |key: &str| NODE_KEYS.contains(&key).then(|| "it is a key of [node]".to_owned());
    table.refuse_unknown(&PEER_KEYS, elsewhere, errors);
    let name = table.get("name", errors, value::name);
    let endpoint: Option<Located<Endpoint>> = table.get("endpoint", errors, value::endpoint);
    let prefixes = table.get_list("prefixes", "[\"10.0.0.0/8\"]", errors, value::prefix);
    if name.is_none() && !table.has("name") {
        table.fail_whole("it has no name: add for instance name = \"hub\"".to_owned(), errors);
    }
    if !table.has_items("prefixes") {
        let message = "it has no prefixes, so that nothing would be sent to it: add for instance \
                       prefixes = [\"10.0.0.0/8\"]";
        table.fail_whole(message.to_owned(), errors);
    }
    let keys = PeerKeys::read(&table, errors);
    let both = (&keys.protection, &defaults.protection);
    let Protected { security, line: protection_line, without_key } =
        protection::of_peer(&table, both, node.private_key.as_ref(), secrets, errors);

    let name_line = name.as_ref().map_or(table.line, |name| name.line);
    let name = name.map_or_else(|| format!("peer {}", index + 1), |name| name.value);
    let mut config = PeerConfig::new(name, security);
    defaults.apply(&mut config);
    keys.apply(&mut config);
    if let Some(file) = keys.exceptions_file.as_ref().or(defaults.exceptions_file.as_ref()) {
        read_exceptions(file, &table, &mut config.exceptions, secrets, errors);
    }
    if let Some(file) = keys.dictionary.as_ref().or(defaults.dictionary.as_ref()) {
        config.dictionary = dictionary::read(file, &table, secrets, errors);
    }
    match config.blocks.scheme(config.scheme_name) {
        Some(scheme) => config.scheme = scheme,
        None => {
            let found = keys.block_packets.as_ref().or(defaults.block_packets.as_ref());
            let line = found.map_or(table.line, |packets| packets.line);
            let message = match config.scheme_name {
                "packet" => {
                    "the scheme \"packet\" compresses single packets: write 1, or".to_owned()
                }
                name => format!("the scheme \"{name}\" decides that itself: write \"auto\", or"),
            };
            let message =
                format!("{message} a scheme that makes blocks, such as scheme = \"edge\"");
            table.fail("block_packets", line, message, errors);
        }
    }
    if config.saving.saves_bytes && !matches!(config.scheme.queue, Queue::Flows(_)) {
        let found = keys.saves_bytes.as_ref().or(defaults.saves_bytes.as_ref());
        let message = format!(
            "\"bytes\" needs packets that can be gathered, and the scheme \"{}\" gathers none: write \
             scheme = \"auto\"",
            config.scheme_name
        );
        table.fail("objective", found.map_or(table.line, |found| found.line), message, errors);
    }
    let found = keys.history.as_ref().or(defaults.history.as_ref());
    match history::scheme(&config, found.map(|found| found.value)) {
        Ok((history, scheme)) => (config.history, config.scheme) = (history, scheme),
        Err(message) => {
            let line = found.map_or(table.line, |history| history.line);
            table.fail("history", line, message, errors);
        }
    }
    let found = keys.codec.as_ref().or(defaults.codec.as_ref());
    if found.is_none() {
        // The papers' schemes have the one that is written.
        config.picks_codec = config.picks_alone();
    }
    if let Err(message) = history::check_model(&config) {
        table.fail("codec", found.map_or(table.line, |found| found.line), message, errors);
    }
    if let Err(message) = history::check_memory(&config) {
        let found = keys.context_window_log.as_ref().or(defaults.context_window_log.as_ref());
        table.fail("context_window", found.map_or(table.line, |found| found.line), message, errors);
    }
    let (prefixes, prefix_lines): (Vec<IpNet>, Vec<usize>) =
        prefixes.unwrap_or_default().into_iter().map(|prefix| (prefix.value, prefix.line)).unzip();
    let endpoint_line = endpoint.as_ref().map_or(table.line, |endpoint| endpoint.line);
    config.endpoint = endpoint.map(|endpoint| endpoint.value);
    config.prefixes = prefixes;
    let is_bare = without_key && !table.has("endpoint");
    Peer { config, table, name_line, endpoint_line, prefix_lines, protection_line, is_bare }
}

/// Adds the classes of a file to those that are written out.
fn read_exceptions(
    file: &Located<PathBuf>,
    table: &Table<'_>,
    exceptions: &mut Vec<ClassKey>,
    secrets: &Secrets<'_>,
    errors: &mut Errors<'_>,
) {
    let path = secrets.directory.join(&file.value);
    let read = (secrets.read_list)(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no such file: `dwell trace analyze CAPTURE --exceptions FILE` makes one"
                .to_owned()
        }
        _ => error.to_string(),
    });
    match read.and_then(|text| exceptions::parse(&text)) {
        Ok(listed) => {
            exceptions.extend(listed);
            exceptions.sort_unstable();
            exceptions.dedup();
        }
        Err(message) => {
            let message = format!("{}: {message}", path.display());
            table.fail("exceptions_file", file.line, message, errors);
        }
    }
}
