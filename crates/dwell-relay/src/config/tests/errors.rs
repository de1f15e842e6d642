//! What is wrong is reported with what would be right.

use super::*;

#[test]
fn unknown_keys_are_reported_with_the_nearest() {
    assert_eq!(
        peer_error("quue_time = \"1s\""),
        ": there is no key `quue_time` here: did you mean `queue_time`?"
    );
    assert!(peer_error("queue-bytes = 1").contains("did you mean `queue_bytes`?"));
    assert!(peer_error("banana = 1").contains("the keys here are name, endpoint, prefixes"));
    assert!(peer_error("listen = \"x\"").contains("it is a key of [node]"));
    assert!(node_error("rate = \"1mbit\"").contains("it is a key of [[peer]] and [defaults]"));
    assert!(node_error("nmae = \"x\"").contains("did you mean `name`?"));
    let error = |text: &str| error(&format!("{text}\n{MINIMAL}"));
    assert!(error("[nod]").contains("a.toml:1: `nod` is unknown here: did you mean `node`?"));
    assert!(error("[other]").contains(
        "use [node], [defaults], [[peer]], [[class]], [metrics], [web], [pairing], [savings]"
    ));
    assert!(error("[metrics]\nport = 1").contains("there is no key `port` here"));
    assert!(error("[pairing]\nendpoints = [\"1\"]").contains("[pairing], `endpoints`"));
    assert!(error("[savings]\nfile = \"a\"").contains("must be an absolute path"));
    assert!(error("[savings]\ncost_per_gb = \"4\"").contains("must be the price of a gigabyte"));
    assert!(error("[savings]\ncost_per_gb = nan").contains("must be the price of a gigabyte"));
    assert!(error("[savings]\ncurrency = \"\\u001b[0m\"").contains("must be a currency"));
    assert!(error("[metrics]\nlisten = \"x\"").contains("must be an IP address and a port"));
    assert!(error("[web]\nlisten = \"x\"").contains("must be an IP address and a port"));
    assert!(error("[web]\nhosts = []").contains("needs listen, for instance"));
    assert!(error("[web]\nlisten = \"0.0.0.0:1\"").contains("which needs a password"));
    assert!(error("[web]\nlisten = \"[fd77::1]:1\"").contains("which needs a password"));
    let missing = error("[web]\nlisten = \"0.0.0.0:1\"\npassword_file = \"/none\"");
    assert!(missing.contains("`password_file`: /none can't be read"), "{missing}");
    let hosts = error("[web]\nlisten = \"127.0.0.1:1\"\nhosts = [\"a.example:80\"]");
    assert!(hosts.contains("must be a host name without port"), "{hosts}");
    assert!(error("tun = \"x\"").contains("put it under [node]"));
    assert!(error("rate = \"x\"").contains("put it under [[peer]] or [defaults]"));
    assert!(error("[defaults]\nname = \"x\"").contains("it is each peer's own"));
    assert!(error("[defaults]\nlisten = \"x\"").contains("it is a key of [node]"));
}

#[test]
fn values_that_make_no_sense_are_reported_with_what_does() {
    for (line, expected) in [
        ("rate = \"0mbit\"", ", `rate`: a rate must be between 1bit and 1000Gbit, not \"0mbit\""),
        ("rate = \"10\"", "has no unit"),
        (
            "rate = \"250KB\"",
            "\"250kbit\" for bits per second, or \"250kB/s\" for bytes per second; or",
        ),
        ("rate = \"fast\"", "; or \"auto\", \"local\" or \"unlimited\""),
        ("rate = 10", "a rate with its unit such as \"10mbit\", not a number"),
        (
            "scheme = \"packets\"",
            "must be one of \"auto\", \"none\", \"all\", \"packet\", \"flow\", \"service\", \"host-pair\"",
        ),
        ("block_bytes = \"1KiB\"", "`block_bytes`: "),
        ("block_packets = 65", "`block_packets`: "),
        ("block_packets = \"many\"", "\"auto\" or a number of packets from 1 to 64"),
        (
            "block_packets = 2\nscheme = \"packet\"",
            "compresses single packets: write 1, or a scheme that makes blocks",
        ),
        ("block_packets = 2", "\"auto\" decides that itself: write \"auto\", or a scheme that"),
        ("one_way_delay = 5", "; or \"auto\""),
        ("codec = \"brotli\"", "\"brotli\" is no codec"),
        ("codec = \"zstd:99\"", "is no level of zstd"),
        ("codec = 1", "must be a string such as \"zstd:1\", not a number"),
        ("queue_time = 100", "must be a string such as \"250ms\", not a number"),
        ("queue_time = \"100\"", "has no unit: write for instance \"100ms\""),
        ("queue_time = \"0s\"", "must be from 1.0 ms to 60.00 s, not 0 ns"),
        ("queue_packets = 1", "must be a whole number from 2 to 1000000, not 1"),
        ("queue_packets = \"2\"", "must be a whole number from 2 to 1000000, not a string"),
        ("queue_packets = -3", "not -3"),
        ("queue_bytes = \"4 bananas\"", "is no unit of size"),
        ("queue_bytes = 1500", "must be from 65.5 kB"),
        ("queue_bytes = true", "must be a size such as \"4MiB\" or 65536, not true or false"),
        ("link_overhead = 1001", "from 0 to 1000, not 1001"),
        ("link_overhead = \"ring\"", "\"docsis\", \"bridged-ptm\", "),
        ("link_overhead = 1.5", "\"atm\", not a number with a fraction"),
        ("on_dead = \"explode\"", "must be one of \"open\", \"closed\""),
        ("exceptions = [\"https\"]", "write for instance \"tcp/443\""),
        ("exceptions = [\"tcp\"]", "\"tcp\" is no class of packets"),
        ("exceptions = \"tcp/443\"", "must be a list such as [\"tcp/443\"], not a string"),
        ("compress_min = 70000", "from 0 to 65535, not 70000"),
        ("objective = \"money\"", "must be one of \"time\", \"bytes\""),
        ("objective = \"bytes\"\nscheme = \"edge\"", "write scheme = \"auto\""),
        ("cpu = \"0%\"", "share of one CPU from"),
        ("cpu = 0.5", "share of one CPU from"),
        ("gather_time = \"0ms\"", "must be from 1.0 ms to 60.00 s"),
        ("poor_ratio = 0", "must be a number from 0.01 to 1.0"),
        ("poor_ratio = nan", "must be a number from 0.01 to 1.0"),
        ("poor_ratio = \"1\"", "must be a number from 0.01 to 1.0"),
        ("metric = 0", "from 1 to 4294967294, not 0"),
        ("endpoint = \"hub\"", "write for instance \"hub:7733\""),
        ("endpoint = \"[fd00::1]:7733\"", "can't be reached from 0.0.0.0:7733: listen on an IPv6"),
        ("security = \"none\"", "contradict each other: remove one"),
        ("security = \"tls\"", "must be one of \"keys\", \"psk\", \"none\", not \"tls\""),
        ("public_key = \"x\"", "is no public key: it has 44 characters of base64"),
    ] {
        let reported = peer_error(line);
        assert!(reported.contains(expected), "{line}: {reported}");
    }
}

#[test]
fn values_of_the_node_are_reported_with_what_makes_sense() {
    for (line, expected) in [
        ("name = \"../../etc\"", ", `name`: \"../../etc\" can't be a name: use 1 to 63 letters"),
        ("name = 7", "must be a string such as \"site-a\", not a number"),
        ("tun = \"a-very-long-name\"", "has 16 bytes, and an interface's name can have 15"),
        ("tun = \"a/b\"", "can't be an interface's name"),
        ("tun = \"dwell%d\"", "can't be an interface's name"),
        ("addresses = [\"10.77.0.1\"]", "write for instance \"10.77.0.1/32\""),
        ("addresses = [\"hub\"]", "is no address with a prefix length"),
        ("addresses = [\"224.0.0.1/4\"]", "can't be an interface's address"),
        ("listen = \"7733\"", "write for instance \"0.0.0.0:7733\""),
        ("mtu = 1000", "from 1280 to 65535, not 1000; or \"auto\""),
        ("mtu = \"big\"", "must be \"auto\" or a number of bytes from 1280"),
        ("offload = \"yes\"", "must be true or false (without quotes), not a string"),
        (
            "history_memory = \"1MiB\"",
            "must be from 33.6 MB to 1099.51 GB, not 1048.6 kB; or \"auto\"",
        ),
        ("threads = 0", "must be a whole number from 1 to 16, not 0; or \"auto\""),
        ("threads = \"all\"", "must be \"auto\" or a number from 1 to 16"),
        ("status = \"status.sock\"", "write for instance \"/run/dwell/site-a.sock\", or \"none\""),
        ("log = \"loud\"", "must be one of \"off\", \"error\", \"warn\", \"info\", \"debug\""),
        ("keepalive = \"1ms\"", "must be from 1.00 s to 600.00 s, not 1.0 ms"),
        ("dead_after = \"1ms\"", "must be from 100.0 ms"),
    ] {
        let reported = node_error(line);
        assert!(reported.contains(expected), "{line}: {reported}");
    }
    let path = format!("status = \"/{}\"", "x".repeat(107));
    assert!(node_error(&path).contains("has 108 bytes, and a socket's can have 107"));
}

#[test]
fn prefixes_are_written_without_host_bits() {
    let reported = error(&MINIMAL.replace("10.0.0.0/8", "10.1.0.0/8"));
    assert!(
        reported.contains("a.toml:3: [[peer]] \"hub\", `prefixes`: 10.1.0.0/8 has bits beyond")
    );
    assert!(reported.contains("write \"10.0.0.0/8\", or \"10.1.0.0/32\" for the one address"));
}

#[test]
fn secrets_that_cannot_be_had_are_reported_with_the_command_to_run() {
    let reported = |file: &str| error(&MINIMAL.replace("\"hub\"\n", &format!("\"{file}\"\n")));
    let replaced = |file: &str| {
        error(&MINIMAL.replace("psk_file = \"hub\"", &format!("psk_file = \"{file}\"")))
    };
    assert!(reported("x y").contains("can't be a name"));
    assert!(replaced("missing").contains("`psk_file`: missing: there is no such file: make it"));
    assert!(replaced("missing").contains("`dwell genpsk --out missing`"));
    assert!(
        replaced("exposed").contains("others may read it (mode 0644): run `chmod 600 exposed`")
    );
    assert!(replaced("no-key").contains("it holds no key"));
    assert!(replaced("no-key").contains("make it with `dwell genpsk --out no-key`"));
    let own = error(&format!("[node]\nprivate_key_file = \"no-key\"\n{MINIMAL}"));
    assert!(own.contains("make it with `dwell genkey --out no-key`"), "{own}");
    assert!(!own.contains("genpsk"), "{own}");
    assert!(replaced("").contains("must be the path of a file"));
}

#[test]
fn what_every_peer_needs_is_reported() {
    let without = |key: &str| {
        let lines = MINIMAL.lines().filter(|line| !line.starts_with(key));
        error(&lines.collect::<Vec<_>>().join("\n"))
    };
    assert!(without("name").contains("a.toml:1: [[peer]] number 1: it has no name: add"));
    assert!(without("prefixes").contains("[[peer]] \"hub\": it has no prefixes"));
    assert!(
        without("psk_file").contains("write public_key = \"KEY\", as `dwell pubkey` prints it")
    );
    assert!(without("psk_file").contains("or psk_file = \"FILE\" (`dwell genpsk --out FILE`"));
    assert!(without("psk_file").contains("or security = \"none\" if"));
    assert!(error("[peer]\nname = \"x\"").contains("with two brackets each: [[peer]]"));
    assert!(error(&format!("node = 1\n{MINIMAL}")).contains("`node` must be a table"));
    assert!(error(&MINIMAL.replace("\"10.0.0.0/8\"", "")).contains("it has no prefixes"));
}

#[test]
fn peers_that_get_into_each_others_way_are_reported() {
    let second = "name = \"b\"\nprefixes = [\"10.0.0.0/9\"]\npsk_file = \"b\"\n";
    assert_eq!(parse(&with_second(second)).unwrap().peers.len(), 2);
    let reported = |from: &str, to: &str| error(&with_second(&second.replace(from, to)));
    assert!(
        reported("= \"b\"\npre", "= \"hub\"\npre").contains("the peer on line 2 has this name too")
    );
    assert!(reported("/9", "/8").contains("10.0.0.0/8 is routed to \"hub\" already"));
    assert!(reported("\"10.0.0.0/9\"", "\"::/0\", \"::/0\"").contains("::/0 is in the list twice"));
    assert!(
        reported("psk_file = \"b\"", "psk_file = \"hub\"").contains("\"hub\" has the same key")
    );
    let endpoint = "endpoint = \"198.51.100.7:1\"\nname";
    assert!(reported("name", endpoint).contains("\"hub\" (line 5) has this endpoint too"));
    let bare = "[[peer]]\nname = \"c\"\nprefixes = [\"fd00::/8\"]\nsecurity = \"none\"\n";
    let two = format!("{bare}{}", bare.replace("\"c\"", "\"d\"").replace("fd00", "fc00"));
    let reported = error(&two.replace("fc00::/8", "fc00::/9"));
    assert!(reported.contains("neither it nor \"c\" has a key or an endpoint"), "{reported}");
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_their_lines() {
    let text = "[node]\nlog = 1\nmtu = 1\n[defaults]\nrate = \"x\"\n[[peer]]\nname = \"a\"\n\
                scheme = \"x\"\n[[peer]]\nname = \"a\"\n";
    let errors = parse(text).unwrap_err();
    let lines: Vec<_> = errors.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 3, 5, 6, 6, 8, 9, 9, 10].map(Some), "{errors}");
    assert_eq!(errors.to_string().lines().count(), 9);
}

#[test]
fn what_is_not_toml_is_reported_with_its_line() {
    let reported = error("[node]\nname = ");
    assert!(reported.starts_with("a.toml:2: this is not TOML: "), "{reported}");
    let twice = error("[node]\nname = \"a\"\nname = \"b\"");
    let expected = "a.toml:3: this is not TOML: duplicate key `name`: this table has it already";
    assert!(twice.starts_with(expected), "{twice}");
    let twice = error("[node]\n[metrics]\n[node]\n");
    assert!(twice.starts_with("a.toml:3: this is not TOML: duplicate key `node`"), "{twice}");
}

#[test]
fn errors_cannot_spoil_a_terminal() {
    let reported = peer_error("rate = \"\\u001b[31m\"");
    assert!(!reported.contains('\u{1b}'), "{reported}");
    let reported = error(&MINIMAL.replace("\"hub\"\nprefixes", "\"\\u001b\"\nprefixes"));
    assert!(!reported.contains('\u{1b}'), "{reported}");
}
