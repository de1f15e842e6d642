use super::*;
use dwell_codec::MixSpec;
use dwell_policy::{BlockOrder, Gather, History, Release, Select};

mod errors;
mod hostile;

const MINIMAL: &str = "[[peer]]\nname = \"hub\"\nprefixes = [\"10.0.0.0/8\"]\npsk_file = \"hub\"\n";

const KEY: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

/// Secrets that differ by the file's name; `missing` and `exposed` are as they sound.
fn secrets(path: &Path) -> Result<Secret, ReadSecretError> {
    let name = path.to_str().unwrap();
    match name {
        "missing" => Err(std::io::Error::from(std::io::ErrorKind::NotFound).into()),
        "exposed" => Err(ReadSecretError::Exposed { path: path.into(), mode: 0o644 }),
        "no-key" => Err(dwell_base::secret::SecretFormatError.into()),
        _ => {
            let mut bytes = [0; 32];
            bytes.iter_mut().zip(name.bytes()).for_each(|(out, byte)| *out = byte);
            Ok(Secret::new(bytes))
        }
    }
}

fn parse(text: &str) -> Result<Config, FileErrors> {
    Config::parse(text, "a.toml", &secrets)
}

/// The one error in `text`.
#[track_caller]
fn error(text: &str) -> String {
    let errors = parse(text).expect_err(text);
    assert_eq!(errors.errors.len(), 1, "{errors}");
    errors.to_string()
}

/// The one error in a minimal configuration with `line` in its peer.
#[track_caller]
fn peer_error(line: &str) -> String {
    let error = error(&format!("{MINIMAL}{line}"));
    error.strip_prefix("a.toml:5: [[peer]] \"hub\"").expect(&error).to_owned()
}

/// The one error in a minimal configuration with `line` in its node.
#[track_caller]
fn node_error(line: &str) -> String {
    let error = error(&format!("[node]\n{line}\n{MINIMAL}"));
    error.strip_prefix("a.toml:2: [node]").expect(&error).to_owned()
}

#[test]
fn the_sample_has_the_default_values() {
    let config = parse(sample()).unwrap();
    let node = NodeConfig {
        name: "site-a".into(),
        addresses: vec!["10.77.0.1/30".parse().unwrap(), "fd77::1/126".parse().unwrap()],
        status: Some(NodeConfig::default_status("site-a")),
        private_key: Some(secrets(Path::new("/etc/dwell/private.key")).unwrap()),
        ..NodeConfig::default()
    };
    assert_eq!(config.node, node);
    let keys = Security::Keys {
        private: secrets(Path::new("/etc/dwell/private.key")).unwrap(),
        peer: KEY.parse().unwrap(),
        psk: None,
    };
    let peer = PeerConfig {
        endpoint: Some("198.51.100.7:7733".parse().unwrap()),
        prefixes: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        ..PeerConfig::new("hub".into(), keys)
    };
    assert_eq!(config.peers, [peer]);
    assert_eq!(config.warnings(), [""; 0]);
}

fn all_keys() -> impl Iterator<Item = &'static str> {
    let tables = [&METRICS_KEYS[..], &WEB_KEYS, &PAIRING_KEYS, &SAVINGS_KEYS];
    let keys = NODE_KEYS.iter().chain(&PEER_KEYS).chain(&CLASS_KEYS);
    keys.copied().chain(tables.into_iter().flatten().copied())
}

#[test]
fn the_sample_has_every_key() {
    for key in all_keys() {
        let found = sample()
            .lines()
            .any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
        assert!(found, "{key}");
    }
}

#[test]
fn the_manual_has_every_key_and_its_default() {
    let manual = include_str!("../../../../docs/configuration.md");
    for key in all_keys() {
        assert!(manual.contains(&format!("| `{key}` | ")), "{key}");
    }
    for line in sample().lines().filter(|line| line.contains(" = ") && !line.starts_with('#')) {
        let (key, value) = line.split_once(" = ").unwrap();
        // These have no default value, or it depends on the host.
        let without = ["name", "addresses", "status", "private_key_file", "endpoint", "prefixes"];
        let others = ["public_key", "dscp", "protocols", "ports"];
        if !without.contains(&key) && !others.contains(&key) {
            assert!(manual.contains(&format!("| `{key}` | `{value}` |")), "{line}");
        }
    }
}

#[test]
fn the_manuals_example_works() {
    let manual = include_str!("../../../../docs/configuration.md");
    let example = manual.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let config = parse(example).unwrap();
    assert_eq!(config.peers[0].rate, RateConfig::Fixed(Rate::from_mbps(10)));
}

#[test]
fn a_node_may_wait_for_its_first_peer() {
    let config = parse("[node]\nname = \"hub\"\n").unwrap();
    assert!(config.peers.is_empty());
    assert!(config.warnings()[0].contains("there is no peer yet"), "{:?}", config.warnings());
    assert_eq!(config.savings.file, Some("/var/lib/dwell/hub.savings".into()));
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.node, NodeConfig::default());
    let psk = secrets(Path::new("hub")).unwrap();
    let peer = PeerConfig::new("hub".into(), Security::Psk(psk));
    let prefixes = vec!["10.0.0.0/8".parse().unwrap()];
    assert_eq!(config.peers, [PeerConfig { prefixes, ..peer }]);
}

#[test]
fn every_key_reaches_its_field() {
    let text = r#"
        [node]
        name = "b"
        tun = "tun7"
        addresses = ["10.1.1.1/24"]
        listen = "[::]:1"
        mtu = 1280
        offload = false
        threads = 3
        history_memory = "64MiB"
        uplink = "20mbit"
        status = "none"
        private_key_file = "c"
        user = "dwell"
        seccomp = false
        log = "trace"
        keepalive = "1s"
        dead_after = "300ms"
        transit = true
        local = ["10.1.0.0/16"]

        [pairing]
        endpoints = ["hub.example.net:7733", "192.0.2.1:1"]
        prefixes = ["10.1.0.0/24"]
        [web]
        listen = "[::1]:7780"
        hosts = ["relay.example.org"]
        [savings]
        file = "none"
        cost_per_gb = 4
        currency = "USD"
        [metrics]
        listen = "127.0.0.1:9478"

        [[peer]]
        name = "c"
        endpoint = "c.example.net:2"
        prefixes = ["fd00::/8"]
        security = "none"
        scheme = "all"
        block_bytes = "4KiB"
        block_packets = 7
        block_lead = 2
        one_way_delay = "3ms"
        chunk_compress = false
        columnar = false
        history = "off"
        history_mode = "acknowledged"
        contexts_max = 200
        context_window = "128KiB"
        models_max = 2
        model_memory = "32MiB"
        retransmit = false
        order_wait = "0ms"
        objective = "time"
        gather_time = "35ms"
        cpu = "12.5%"
        codec = "lz4"
        rate = "10mbit"
        queue_time = "1s"
        queue_packets = 3
        queue_bytes = "1MiB"
        link_overhead = "docsis"
        on_dead = "closed"
        exceptions = ["tcp/443", "icmpv6", "ip47", "ip132/9"]
        compress_min = 0
        poor_ratio = 1
        metric = 0x10
    "#;
    let config = parse(text).unwrap();
    assert_eq!(
        config.node,
        NodeConfig {
            name: "b".into(),
            tun: "tun7".into(),
            addresses: vec!["10.1.1.1/24".parse().unwrap()],
            listen: "[::]:1".parse().unwrap(),
            mtu: MtuConfig::Fixed(1280),
            offload: false,
            threads: NonZero::new(3),
            history_memory_bytes: Some(64 << 20),
            uplink: Some(Rate::from_mbps(20)),
            status: None,
            private_key: Some(secrets(Path::new("c")).unwrap()),
            user: Some("dwell".into()),
            seccomp: false,
            metrics: Some("127.0.0.1:9478".parse().unwrap()),
            web: Some(WebConfig {
                listen: "[::1]:7780".parse().unwrap(),
                password: None,
                hosts: vec!["relay.example.org".to_owned()],
            }),
            log: LogLevel::Trace,
            keepalive_ns: SECOND_NS,
            dead_after_ns: 300_000_000,
            transit: true,
            local: vec!["10.1.0.0/16".parse().unwrap()],
        }
    );
    let endpoints = ["hub.example.net:7733", "192.0.2.1:1"].map(|at| at.parse().unwrap());
    let prefixes = vec!["10.1.0.0/24".parse().unwrap()];
    assert_eq!(config.pairing, PairingConfig { endpoints: endpoints.into(), prefixes });
    let savings = SavingsConfig { file: None, cost_per_gb: Some(4.0), currency: "USD".to_owned() };
    assert_eq!(config.savings, savings);
    assert_eq!(
        config.peers,
        [PeerConfig {
            name: "c".into(),
            endpoint: Some(Endpoint::Name { host: "c.example.net".into(), port: 2 }),
            prefixes: vec!["fd00::/8".parse().unwrap()],
            security: Security::None,
            scheme_name: "all",
            scheme: Scheme::all(),
            columnar: false,
            history: History::Off,
            history_mode: HistoryMode::Acknowledged,
            contexts_max: 200,
            context_window_log: 17,
            models_max: 2,
            model_memory_log: 25,
            dictionary: None,
            chunk_compress: false,
            retransmit: Retransmit::Never,
            order_wait_ns: 0,
            one_way_delay_ns: Some(3_000_000),
            saving: SavingConfig {
                saves_bytes: false,
                gather_ns: 35_000_000,
                cpu_ppm: Some(125_000)
            },
            blocks: BlockConfig { bytes: 4096, packets: Some(7), lead: 2 },
            codec: "lz4".parse().unwrap(),
            model_kind: None,
            picks_codec: false,
            rate: RateConfig::Fixed(Rate::from_mbps(10)),
            queue: QueueLimit {
                packets: 3,
                bytes: 1 << 20,
                time_ns: SECOND_NS,
                ..QueueLimit::default()
            },
            link_overhead: LinkOverhead { bytes: 18, bytes_min: 64, framing: Framing::Plain },
            on_dead: FailMode::Closed,
            exceptions: vec![
                ClassKey::new(6, 443),
                ClassKey::new(58, 0),
                ClassKey::new(47, 0),
                ClassKey::new(132, 9)
            ],
            compress_bytes_min: 0,
            poor_ratio: Ratio::ONE,
            metric: 16,
        }]
    );
}

#[test]
fn history_sets_what_is_compressed_together_and_says_what_it_needs() {
    let with = |lines: &str| parse(&MINIMAL.replace("[[peer]]", &format!("[[peer]]\n{lines}")));
    let gathers = [
        ("flow", Gather::Flow),
        ("service", Gather::Service),
        ("host-pair", Gather::HostPair),
        ("peer", Gather::Edge),
    ];
    for (name, gather) in gathers {
        let config = with(&format!("scheme = \"flow\"\nhistory = \"{name}\"")).unwrap();
        let scheme = config.peers[0].scheme;
        assert!(scheme.has_contexts() && scheme.gather() == gather, "{name}");
        assert_eq!(scheme.check(), Ok(()));
    }
    assert!(!with("scheme = \"edge\"").unwrap().peers[0].scheme.has_contexts());
    // The scheme that is made for it has it, unless it can't.
    assert_eq!(with("").unwrap(), with("scheme = \"auto\"\nhistory = \"auto\"").unwrap());
    // What is sent once is not in large batches.
    let bytes_max = |lines: &str| match with(lines).unwrap().peers[0].scheme.select {
        Select::Slack { bytes_max, .. } => bytes_max,
        other => panic!("{other:?}"),
    };
    assert_eq!([bytes_max("codec = \"lz4\""), bytes_max("retransmit = false")], [60_000, 8 << 10]);
    // What models are slow at is in small ones.
    assert_eq!(bytes_max("codec = \"ppm\""), 15 << 10);
    let config = with("codec = \"ppm:8\"\nmodel_memory = \"4MiB\"").unwrap();
    let peer = &config.peers[0];
    assert_eq!(peer.model(), Some(PpmSpec { order: 8, memory_log: 22 }.into()));
    assert_eq!((peer.codec.to_string(), peer.codec_name()), ("zstd:6".into(), "ppm:8".into()));
    assert_eq!(bytes_max("codec = \"mix\""), 15 << 10);
    let config = with("codec = \"mix\"\nmodel_memory = \"4MiB\"").unwrap();
    let peer = &config.peers[0];
    assert_eq!(peer.model(), Some(MixSpec { memory_log: 22 }.into()));
    assert_eq!((peer.codec.to_string(), peer.codec_name()), ("zstd:6".into(), "mix".into()));
    for (lines, history) in [
        ("", History::Auto),
        ("history = \"flow\"", History::Flow),
        ("history = \"off\"", History::Off),
        ("codec = \"lz4\"", History::Off),
    ] {
        let config = with(&format!("scheme = \"auto\"\n{lines}")).unwrap();
        let peer = &config.peers[0];
        assert_eq!((peer.history, peer.scheme.has_contexts()), (history, history != History::Off));
        assert_eq!(peer.scheme.check(), Ok(()));
    }
    for (lines, said) in [
        ("scheme = \"packet\"\nhistory = \"flow\"", "write scheme = \"auto\""),
        ("scheme = \"packet\"\nhistory = \"peer\"", "\"packet\" does not"),
        ("scheme = \"edge\"\nblock_packets = 5\nhistory = \"peer\"", "\"edge\" with block_packets"),
        ("scheme = \"edge\"\ncodec = \"lz4\"\nhistory = \"peer\"", "needs zstd, since lz4"),
        ("scheme = \"edge\"\nretransmit = false\nhistory = \"peer\"", "retransmit = \"auto\""),
        ("scheme = \"edge\"\nhistory = \"auto\"", "\"edge\" can have a fixed one: \"flow\""),
        ("scheme = \"edge\"\nhistory = \"hostpair\"", "there is no history \"hostpair\""),
        ("context_window = \"100KiB\"", "a power of two, such as \"128KiB\", not 102400 bytes"),
        ("context_window = \"16MiB\"", "must be from 32.8 kB"),
        (
            "context_window = \"8MiB\"\ncontexts_max = 33",
            "33 contexts of 8 MiB each take too much memory: write contexts_max = 32",
        ),
        ("contexts_max = 0", "from 1 to 255"),
        ("codec = \"ppm:13\"", "\"ppm:13\" has no such order: it can be 2 to 12"),
        ("codec = \"ppm\"\nscheme = \"packet\"", "\"ppm\" predicts from what went before"),
        (
            "codec = \"ppm\"\nretransmit = false",
            "with history = \"auto\" and retransmit = \"auto\"",
        ),
        ("codec = \"ppm\"\nmodels_max = 0", "write models_max = 1"),
        ("codec = \"mix:3\"", "or \"ppm\", \"mix\" or \"auto\""),
        ("codec = \"mix\"\nscheme = \"packet\"", "\"mix\" predicts from what went before"),
        ("models_max = 17", "from 0 to 16"),
        ("model_memory = \"512KiB\"", "must be from 1"),
        (
            "models_max = 5\nmodel_memory = \"64MiB\"",
            "5 models of 64 MiB each take too much memory: write models_max = 4",
        ),
        ("history_mode = \"runnning\"", "there is no history mode \"runnning\""),
    ] {
        let errors = with(lines).unwrap_err().to_string();
        assert!(errors.contains(said), "{lines}: {errors}");
    }
}

#[test]
fn what_is_here_is_not_at_the_peer() {
    let with = |node: &str, prefixes: &str| {
        let peer = MINIMAL.replace("[\"10.0.0.0/8\"]", prefixes);
        warnings(&format!("[node]\n{node}\n{peer}"))
    };
    let addresses = "addresses = [\"10.77.0.1/30\", \"fd77::1/126\"]";
    for own in ["[\"10.77.0.1/32\"]", "[\"10.2.0.0/24\", \"fd77::1/128\"]"] {
        let said = with(addresses, own);
        assert!(said.contains("is an address of this node itself"), "{own}: {said}");
    }
    assert_eq!(with(addresses, "[\"10.77.0.2/32\", \"10.77.0.0/16\"]"), "");
    let local = "local = [\"10.1.0.0/16\"]";
    assert!(with(local, "[\"10.1.7.0/24\"]").contains("lies within 10.1.0.0/16"));
    assert_eq!(with(local, "[\"10.0.0.0/8\"]"), "");
}

#[test]
fn who_has_a_key_fails_closed_unless_reported_otherwise() {
    let of = |text: &str| parse(text).unwrap().peers[0].on_dead;
    let plain =
        MINIMAL.replace("psk_file = \"hub\"", "endpoint = \"192.0.2.1:1\"\nsecurity = \"none\"");
    let keyed = format!(
        "[node]\nprivate_key_file = \"own\"\n{}",
        MINIMAL.replace("psk_file = \"hub\"", &format!("public_key = \"{KEY}\""))
    );
    assert_eq!((of(MINIMAL), of(&keyed)), (FailMode::Closed, FailMode::Closed));
    assert_eq!(of(&plain), FailMode::Open);
    let open = "on_dead = \"open\"\n";
    assert_eq!(of(&format!("{MINIMAL}{open}")), FailMode::Open);
    assert_eq!(of(&format!("[defaults]\n{open}{MINIMAL}")), FailMode::Open);
    assert_eq!(of(&format!("{plain}on_dead = \"closed\"\n")), FailMode::Closed);
    // What leaves unprotected against expectation is said; without a key nobody expects it.
    assert!(warnings(&format!("{MINIMAL}{open}")).contains("leave by other routes, unencrypted"));
    assert!(
        !warnings(&plain).contains("other routes") && !warnings(MINIMAL).contains("other routes")
    );
}

#[test]
fn a_peer_goes_before_the_defaults() {
    let text = "[defaults]\nrate = \"1mbit\"\nmetric = 7\nexceptions = [\"tcp/1\"]\n\
                security = \"none\"\n\
                [[peer]]\nname = \"a\"\nprefixes = [\"10.0.0.0/8\"]\nrate = \"2mbit\"\n\
                exceptions = []\npsk_file = \"a\"\n\
                [[peer]]\nname = \"b\"\nprefixes = [\"10.0.0.0/9\"]\n";
    let config = parse(text).unwrap();
    let [a, b] = &config.peers[..] else { panic!("two peers") };
    assert_eq!(a.rate, RateConfig::Fixed(Rate::from_mbps(2)));
    assert_eq!(b.rate, RateConfig::Fixed(Rate::from_mbps(1)));
    assert_eq!((a.metric, b.metric), (7, 7));
    assert_eq!((a.exceptions.len(), b.exceptions.len()), (0, 1));
    assert!(matches!(a.security, Security::Psk(_)));
    assert_eq!(b.security, Security::None);
}

#[test]
fn what_protects_a_peer_follows_from_its_keys() {
    let of = |defaults: &str, peer: &str| {
        let text = format!(
            "[node]\nprivate_key_file = \"own\"\n[defaults]\n{defaults}\n[[peer]]\nname = \"a\"\n\
             prefixes = [\"10.0.0.0/8\"]\n{peer}\n"
        );
        parse(&text).map(|config| config.peers[0].security.clone())
    };
    let public = format!("public_key = \"{KEY}\"");
    let (private, psk) = (secrets(Path::new("own")).unwrap(), secrets(Path::new("s")).unwrap());
    let keys = |psk: Option<Secret>| Security::Keys {
        private: private.clone(),
        peer: KEY.parse().unwrap(),
        psk,
    };
    assert_eq!(of("", &public).unwrap(), keys(None));
    assert_eq!(of("security = \"none\"", &public).unwrap(), keys(None));
    assert_eq!(of("security = \"keys\"", &public).unwrap(), keys(None));
    let both = format!("{public}\npsk_file = \"s\"");
    assert_eq!(of("", &both).unwrap(), keys(Some(psk.clone())));
    assert_eq!(of("psk_file = \"s\"", &public).unwrap(), keys(Some(psk.clone())));
    assert_eq!(of("psk_file = \"s\"", "").unwrap(), Security::Psk(psk.clone()));
    assert_eq!(of("psk_file = \"s\"", "security = \"psk\"").unwrap(), Security::Psk(psk));
    assert_eq!(of("psk_file = \"s\"", "security = \"none\"").unwrap(), Security::None);
    let reported = |defaults: &str, peer: &str| of(defaults, peer).expect_err(peer).to_string();
    for contrary in ["none", "psk"] {
        let peer = format!("{public}\nsecurity = \"{contrary}\"");
        assert!(reported("", &peer).contains("contradict each other"), "{contrary}");
    }
    assert!(reported("security = \"keys\"", "").contains("needs the peer's key"));
    assert!(reported("", "security = \"psk\"").contains("security = \"psk\" needs a key"));
    assert!(reported(&public, "").contains("it is each peer's own"));
}

#[test]
fn public_keys_need_a_private_one() {
    let with = |node: &str, key: &str| {
        error(&format!(
            "[node]\n{node}\n[[peer]]\nname = \"a\"\nprefixes = [\"10.0.0.0/8\"]\n\
             public_key = \"{key}\"\n"
        ))
    };
    assert!(with("", KEY).contains("`public_key`: this node has no key of its own"));
    let missing = with("private_key_file = \"missing\"", KEY);
    assert!(missing.contains("make it with `dwell genkey --out missing`"), "{missing}");
    let exposed = with("private_key_file = \"exposed\"", KEY);
    assert!(exposed.contains("others may read it (mode 0644): run `chmod 600 exposed`"));
    let own = crate::trust::public_key(&secrets(Path::new("own")).unwrap()).unwrap();
    let reported = with("private_key_file = \"own\"", &own.to_string());
    assert!(reported.contains("this is the node's own key"), "{reported}");
}

#[test]
fn two_peers_have_two_public_keys() {
    let text = format!(
        "[node]\nprivate_key_file = \"own\"\n[[peer]]\nname = \"a\"\n\
         prefixes = [\"10.0.0.0/8\"]\npublic_key = \"{KEY}\"\n[[peer]]\nname = \"b\"\n\
         prefixes = [\"fd00::/8\"]\npublic_key = \"{KEY}\"\npsk_file = \"s\"\n"
    );
    assert!(error(&text).contains("`public_key`: \"a\" has the same key"));
}

/// A second peer after the minimal one.
fn with_second(lines: &str) -> String {
    format!("{MINIMAL}endpoint = \"198.51.100.7:1\"\n[[peer]]\n{lines}")
}

#[track_caller]
fn warnings(text: &str) -> String {
    parse(text).unwrap().warnings().join("\n")
}

#[test]
fn contexts_that_may_take_more_than_the_machine_has_are_a_warning() {
    let warning = |text: &str, mib: u64| parse(text).unwrap().memory_warning(mib << 20);
    let one = format!("{MINIMAL}scheme = \"auto\"\ncodec = \"zstd:3\"\n");
    assert_eq!(warning(&one, 4 << 10), None);
    let text = warning(&one, 128).unwrap();
    assert!(text.starts_with("the contexts with \"hub\" may take up to 2"), "{text}");
    assert!(text.contains("and have 96 MiB (history_memory): "), "{text}");
    assert!(text.contains("To keep all, write contexts_max = "), "{text}");
    // What it says helps, and no more would.
    let (_, rest) = text.split_once("contexts_max = ").unwrap();
    let contexts: u8 = rest.split_once(' ').unwrap().0.parse().unwrap();
    assert_eq!(warning(&format!("{one}contexts_max = {contexts}"), 128), None);
    assert!(warning(&format!("{one}contexts_max = {}", contexts + 1), 128).is_some());
    // A codec that is picked may be a model, or the strongest level.
    let picked = one.replace("zstd:3", "auto");
    let most = |text: &str| parse(text).unwrap().peers[0].context_memory_max();
    let strongest = one.replace("zstd:3", "zstd:15");
    assert_eq!(most(&picked), most(&strongest) + 4 * (16 << 20));
    assert!(most(&strongest) > most(&one));
    // Of two peers there is one warning; without models and with small windows there is none.
    let two = with_second("name = \"b\"\nprefixes = [\"10.9.0.0/16\"]\npsk_file = \"b\"\n");
    let text = warning(&two, 256).unwrap();
    assert!(text.starts_with("the contexts with 2 peers (with \""), "{text}");
    let small = "contexts_max = 4\nmodels_max = 0\ncontext_window = \"128KiB\"\n";
    assert_eq!(warning(&format!("{one}{small}"), 128), None);
    let tiny = warning(&two, 1).unwrap();
    assert!(tiny.contains("write contexts_max = 1 for each peer, and a smaller"), "{tiny}");
    assert!(warning(&two, 0).is_some());
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    assert_eq!(warnings(MINIMAL), "");
    let with = |line: &str| warnings(&format!("{MINIMAL}{line}"));
    assert!(with("endpoint = \"10.1.1.1:1\"").contains("is in 10.0.0.0/8, which is routed to"));
    assert_eq!(with("endpoint = \"hub.example:1\""), "");
    assert!(with("rate = \"unlimited\"").contains("nothing will be compressed"));
    assert_eq!(with("rate = \"unlimited\"\nscheme = \"all\""), "");
    let picks = |line: &str| with(&format!("codec = \"auto\"\n{line}"));
    assert_eq!(picks(""), "");
    assert_eq!(picks("scheme = \"edge\"\nhistory = \"peer\""), "");
    let none = picks("scheme = \"packet\"");
    assert!(none.contains("with the scheme \"packet\" all is compressed with zstd."), "{none}");
    assert_eq!(picks("history = \"off\""), "");
    let all = MINIMAL.replace("10.0.0.0/8", "0.0.0.0/0");
    assert!(warnings(&format!("{all}endpoint = \"hub:1\"")).contains("by a route of its own"));
    let transit = |lines: &str| warnings(&format!("[node]\ntransit = true\n{lines}\n{all}"));
    assert!(transit("").contains("name their networks"), "{}", transit(""));
    assert!(!transit("local = [\"10.1.0.0/16\"]").contains("name their networks"));
    assert!(!warnings(&all).contains("name their networks"));
    let bare = MINIMAL.replace("psk_file = \"hub\"", "security = \"none\"");
    assert!(warnings(&bare).contains("whoever sends to this node's port first takes its place"));
    let known = format!("{bare}endpoint = \"198.51.100.7:1\"");
    assert!(warnings(&known).contains("neither encrypted nor authenticated: security"));
    let port = format!("[node]\nlisten = \"0.0.0.0:0\"\n{MINIMAL}");
    assert!(warnings(&port).contains("it can't know where to contact this node"));
}

#[test]
fn a_dictionary_is_read_once_and_what_is_wrong_with_it_is_reported() {
    let good = dwell_codec::DictionaryFile {
        id: 1,
        class: "udp/161".into(),
        codec: "zstd:1".parse().unwrap(),
        source: 0,
        samples: 1,
        bytes: vec![7; 1_024],
    };
    let good = good.to_bytes().unwrap();
    let reads = std::cell::Cell::new(0);
    let read_dictionary = |path: &Path| {
        reads.set(reads.get() + 1);
        match path.to_str().unwrap() {
            "/etc/all.dict" => Ok(good.clone()),
            "/etc/broken.dict" => Ok(good[..good.len() - 1].to_vec()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        }
    };
    let with = |file: &str, keys: &str| {
        let second = "name = \"b\"\nprefixes = [\"10.128.0.0/9\"]\npsk_file = \"b\"\n";
        let defaults = format!("[defaults]\ndictionary = \"{file}\"\n{keys}");
        let text = format!("{defaults}\n{}", with_second(second));
        let read_list = |_: &Path| Err(std::io::Error::other("there is none"));
        let secrets = read::Secrets {
            directory: Path::new("/etc"),
            read: &secrets,
            read_list: &read_list,
            read_password: &|_| Err(std::io::Error::other("there is none").into()),
            read_dictionary: &read_dictionary,
            dictionaries: &RefCell::default(),
            has_private: false,
        };
        read::parse(&text, "a.toml", "dwell", &secrets)
    };
    let config = with("all.dict", "scheme = \"auto\"").unwrap();
    let of = |at: usize| config.peers[at].dictionary.as_ref().unwrap();
    assert!(Arc::ptr_eq(of(0), of(1)) && reads.replace(0) == 1);
    assert_eq!(config.warnings(), [""; 0]);
    let config = with("all.dict", "scheme = \"packet\"").unwrap();
    assert!(config.warnings().join("").contains("begins from its dictionary"));
    reads.set(0);
    for (file, message) in [("broken.dict", "broken.dict: "), ("no.dict", "there is no such file")]
    {
        let errors = with(file, "").unwrap_err();
        assert_eq!((errors.errors.len(), reads.replace(0)), (1, 1), "{errors}");
        assert!(errors.to_string().contains(message), "{errors}");
        assert!(errors.to_string().starts_with("a.toml:2: "), "{errors}");
    }
}

#[test]
fn the_longest_match_routes() {
    let second = "name = \"b\"\nprefixes = [\"10.128.0.0/9\"]\npsk_file = \"b\"\n";
    let config = parse(&with_second(second)).unwrap();
    let to =
        |address: &str| config.route(address.parse().unwrap()).map(|(peer, _)| peer.name.as_str());
    assert_eq!(to("10.127.0.1"), Some("hub"));
    assert_eq!(to("10.128.0.1"), Some("b"));
    assert_eq!(to("11.0.0.1"), None);
}

#[test]
fn files_are_read_beside_the_configuration() {
    use std::os::unix::fs::PermissionsExt;

    let directory = std::env::temp_dir().join(format!("dwell-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("a.toml");
    std::fs::write(&file, MINIMAL).unwrap();
    let load = || Config::load(&file).map_err(|errors| errors.to_string());
    // The path in the message must work from anywhere.
    let make = format!(
        "there is no such file: make it with `dwell genpsk --out {}",
        file.with_file_name("hub").display()
    );
    assert!(load().unwrap_err().contains(&make));

    let key = directory.join("hub");
    std::fs::write(&key, "00".repeat(32)).unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(load().unwrap_err().contains("(mode 0640): run `chmod 600 "));
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o400)).unwrap();
    assert_eq!(load().unwrap().peers[0].security, Security::Psk(Secret::new([0; 32])));

    let web = "[web]\nlisten = \"0.0.0.0:7780\"\npassword_file = \"word\"\n";
    std::fs::write(&file, format!("{web}{MINIMAL}")).unwrap();
    let word = directory.join("word");
    std::fs::write(&word, "correct horse\n").unwrap();
    std::fs::set_permissions(&word, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(load().unwrap_err().contains("(mode 0644): run `chmod 600 "));
    std::fs::set_permissions(&word, PermissionsExt::from_mode(0o600)).unwrap();
    let config = load().unwrap();
    assert!(config.node.web.as_ref().unwrap().password.as_ref().unwrap().is("correct horse"));
    assert_eq!(config.node.web_address().as_deref(), Some("http://127.0.0.1:7780/"));
    std::fs::write(&word, "short\n").unwrap();
    assert!(load().unwrap_err().contains("it has 5 characters, and a password needs 12"));

    std::fs::remove_file(&key).unwrap();
    std::fs::write(&file, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(load().unwrap_err().contains("longer than 1048576 bytes"));
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(load().unwrap_err().contains("`dwell check --sample`"));
}

#[test]
fn blocks_are_as_configured() {
    let scheme = |lines: &str| {
        let text =
            format!("[[peer]]\nname = \"a\"\nprefixes = [\"::/0\"]\nsecurity = \"none\"\n{lines}");
        parse(&text).unwrap().peers.remove(0).scheme
    };
    assert_eq!(scheme("scheme = \"edge\""), Scheme::waiting(Gather::Edge, 8192));
    let bytes = scheme("scheme = \"service\"\nblock_bytes = \"4KiB\"");
    assert_eq!(bytes, Scheme::waiting(Gather::Service, 4096));
    let fixed = scheme("scheme = \"flow\"\nblock_packets = 7\nblock_lead = 2");
    assert_eq!(fixed.select, Select::Backlog { gather: Gather::Flow, packets: 7, lead: 2 });
    let Release::Now(rules) = fixed.release else { panic!("{fixed:?}") };
    assert_eq!(rules.order, BlockOrder::Strict);
    let blocks = BlockConfig { lead: 2, ..BlockConfig::default() };
    assert_eq!(blocks.scheme("flow(7,2)"), Some(fixed));
    assert_eq!(blocks.scheme("flow(65,2)"), None);
    let threshold = scheme("scheme = \"packet\"\nblock_packets = 1");
    let gather = Gather::Packet;
    assert_eq!(threshold.select, Select::Backlog { gather, packets: 1, lead: 5 });
    assert_eq!(scheme("scheme = \"none\"\nblock_packets = 1"), Scheme::none());
}
