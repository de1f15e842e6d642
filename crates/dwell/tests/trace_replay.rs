//! `dwell trace replay` and `train` as users meet them: captures in, verdicts, files and exit
//! codes out.

// Nothing here is for others.
#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dwell_base::Rng;
use dwell_report::Status;
use serde_json::Value;

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a new directory");
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a new file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn dwell(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dwell"))
        .arg("trace")
        .args(arguments)
        .output()
        .expect("dwell runs")
}

fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// UDP from 10.0.0.1 to 10.0.0.2, without checksums.
fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp_len).to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    [40_000, port, udp_len, 0].iter().for_each(|word: &u16| packet.extend(word.to_be_bytes()));
    packet.extend(payload);
    packet
}

/// A packet each five milliseconds, for 15 seconds.
fn pcap(mut payload: impl FnMut(u64) -> (u16, Vec<u8>)) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 1 << 16, 101] {
        file.extend(word.to_le_bytes());
    }
    for n in 0..3000u64 {
        let (port, bytes) = payload(n);
        let packet = udp(port, &bytes);
        let (at_us, len) = (n * 5000, packet.len() as u32);
        let words = [(at_us / 1_000_000) as u32, (at_us % 1_000_000) as u32, len, len];
        words.iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    file
}

fn text(n: u64) -> (u16, Vec<u8>) {
    let line = format!("{n}: the sun shone, having no alternative, on the nothing new. ");
    (8080, line.repeat(14).into_bytes())
}

fn noise() -> impl FnMut(u64) -> (u16, Vec<u8>) {
    let mut rng = Rng::from_seed(1);
    move |_| {
        let mut bytes = vec![0; 800];
        rng.fill(&mut bytes);
        (443, bytes)
    }
}

fn message(n: u64) -> (u16, Vec<u8>) {
    let value = n * 7 % 100;
    (5683, format!("{{\"pump\":\"north-{}\",\"bar\":{value},\"ok\":true}}", n % 9).into_bytes())
}

#[test]
fn text_over_a_thin_link_is_a_yes_with_a_configuration() {
    let directory = Directory::new("replay-yes");
    let capture = directory.file("text.pcap", &pcap(text));
    let config = directory.0.join("relay.toml");
    let (page, csv) = (directory.0.join("page.html"), directory.0.join("lanes.csv"));
    let arguments = [
        "replay",
        capture.to_str().unwrap(),
        "--rate=1mbit",
        "--compress-cost=3000,4",
        "--destination=10.0.0.0/30",
        "--cost-per-mb=0.1",
        "--class=bulk:udp/8080:200ms",
        "--json",
        "--plain",
    ];
    let files = [
        "--write-config",
        config.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
        "--csv",
        csv.to_str().unwrap(),
    ];
    let first = dwell(&[&arguments[..], &files].concat());
    assert!(first.status.success(), "{}", reported(&first));
    assert_eq!(first.stdout, dwell(&arguments).stdout, "the same numbers each time");
    let report: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(report["verdict"]["answer"], "yes", "{report:#}");
    let status: Status = serde_json::from_value(report["status"].clone()).unwrap();
    assert_eq!(status.peers.len(), 18);
    assert!(status.peers.iter().all(|peer| peer.tx.balances()));
    // The relay's own reader takes the configuration.
    let checked = Command::new(env!("CARGO_BIN_EXE_dwell")).arg("check").arg(&config).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", reported(&checked));
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("rate = \"1Mbit\"") && text.contains("10.0.0.0/30"), "{text}");
    assert!(text.contains("queue_time = \"100ms\""), "{text}");
    assert!(text.contains("ports = [\"udp/8080-8080\"]") && text.contains("max_wait"), "{text}");
    let lines = fs::read_to_string(&csv).unwrap().lines().count();
    assert_eq!(lines, 19);
    assert!(fs::read_to_string(&page).unwrap().contains("Delay over time"));
}

/// The scheme `auto`, with what it saves: its configuration is one that relays take.
#[test]
fn a_configuration_with_auto_has_its_objective() {
    let directory = Directory::new("replay-auto");
    let capture = directory.file("text.pcap", &pcap(text));
    let config = directory.0.join("relay.toml");
    let written = |more: &[&str]| {
        let arguments = ["replay", capture.to_str().unwrap(), "--rate=1mbit", "--scheme=auto"];
        let files = ["--write-config", config.to_str().unwrap(), "--plain"];
        let output = dwell(&[&arguments[..], &files, &["--compress-cost=3000,4"], more].concat());
        assert!(output.status.success(), "{}", reported(&output));
        let check = Command::new(env!("CARGO_BIN_EXE_dwell")).arg("check").arg(&config).output();
        assert!(check.as_ref().unwrap().status.success(), "{}", reported(&check.unwrap()));
        fs::read_to_string(&config).unwrap()
    };
    let time = written(&[]);
    assert!(time.contains("scheme = \"auto\"") && !time.contains("objective"), "{time}");
    let bytes = written(&["--objective=bytes", "--gather-time=30ms"]);
    for line in
        ["scheme = \"auto\"", "objective = \"bytes\"", "gather_time = \"30ms\"", "cpu = \"50%\""]
    {
        assert!(bytes.contains(line), "{line}: {bytes}");
    }
    // Without contexts, since the codec has none.
    assert!(written(&["--codec=lz4"]).contains("codec = \"lz4\""));
}

#[test]
fn ciphers_are_a_no_that_says_why() {
    let directory = Directory::new("replay-no");
    let capture = directory.file("noise.pcap", &pcap(noise()));
    let output = dwell(&["replay", capture.to_str().unwrap(), "--rate=2mbit", "--scheme=relay"]);
    let said = reported(&output);
    assert!(output.status.success() && said.contains("No: dwell would not help"), "{said}");
    assert!(said.contains("sessions that encrypt") && said.contains("already: QUIC"), "{said}");
}

#[test]
fn late_packets_of_a_class_are_counted() {
    let directory = Directory::new("replay-class");
    let capture = directory.file("text.pcap", &pcap(text));
    let capture = capture.to_str().unwrap();
    let class = "--class=bulk:udp/8080:20ms";
    let output = dwell(&["replay", capture, "--rate=1mbit", "--scheme=none,chutq-dcf", class]);
    let said = reported(&output);
    assert!(output.status.success() && said.contains("largest excess"), "{said}");
    let base = ["replay", capture, "--rate=1mbit", "--scheme=none,chutq-dcf", "--json"];
    let output = dwell(&[&base[..], &[class]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lane = report["lanes"].as_array().unwrap().iter().find(|lane| lane["name"] == "none");
    assert!(lane.unwrap()["classes"][0]["late"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn listed_classes_are_not_compressed() {
    let directory = Directory::new("replay-exceptions");
    let capture = directory.file("text.pcap", &pcap(text));
    let capture = capture.to_str().unwrap();
    let head = "schema = \"dwell-exceptions/1\"\n";
    let list = format!("{head}[[exception]]\nprotocol = \"udp\"\nport = 8080\n");
    let list = directory.file("list.toml", list.as_bytes());
    let compressed = |more: &[&str]| {
        let base = ["replay", capture, "--rate=1mbit", "--scheme=all", "--json"];
        let output = dwell(&[&base[..], more].concat());
        assert!(output.status.success(), "{}", reported(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let peers = report["status"]["peers"].as_array().unwrap();
        let lane = peers.iter().find(|peer| peer["name"] == "all").unwrap();
        lane["tx"]["compressed"]["packets"].as_u64().unwrap()
    };
    assert!(compressed(&[]) > 0);
    assert_eq!(compressed(&["--exceptions", list.to_str().unwrap()]), 0);
    let output = dwell(&["replay", capture, "--rate=1mbit", "--exceptions", capture]);
    assert_eq!(output.status.code(), Some(1), "{}", reported(&output));
}

#[test]
fn a_dictionary_serves_the_packets_that_come_later() {
    let directory = Directory::new("replay-train");
    let capture = directory.file("messages.pcap", &pcap(message));
    let capture = capture.to_str().unwrap();
    let out = directory.0.join("dictionaries");
    let output = dwell(&["train", capture, "--json", "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", reported(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let class = &result["classes"][0];
    assert_eq!(class["class"], "udp/5683");
    let ratio = |name: &str| class[name].as_f64().unwrap();
    assert!(ratio("ratio_with") < ratio("ratio_without") - 0.3, "{class}");
    let file = out.join("udp-5683.dict");
    let saved = |name: &str, more: &[&str]| {
        let base = ["replay", capture, "--rate=1mbit", "--scheme=none,all", "--json"];
        let output = dwell(&[&base[..], more].concat());
        assert!(output.status.success(), "{}", reported(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let peers = report["status"]["peers"].as_array().unwrap();
        let tx = &peers.iter().find(|peer| peer["name"] == name).unwrap()["tx"];
        tx["compressed"]["bytes"].as_u64().unwrap() - tx["compressed_to_bytes"].as_u64().unwrap()
    };
    // Beside the scheme without them, which is what the verdict counts on.
    let with = saved("all+dictionaries", &["--dictionary", file.to_str().unwrap()]);
    let without = saved("all", &["--dictionary", file.to_str().unwrap()]);
    assert!(with > without + 50_000 && without == saved("all", &[]), "{with} {without}");
    // Contexts begin from it as in relays.
    let all = out.join("all.dict");
    let all = all.to_str().unwrap();
    let base = ["replay", capture, "--rate=1mbit", "--scheme=none,auto", "--json"];
    let output = dwell(&[&base[..], &["--dictionary", all]].concat());
    assert!(output.status.success(), "{}", reported(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let peers = report["status"]["peers"].as_array().unwrap();
    assert!(peers.iter().any(|peer| peer["name"] == "auto+dictionaries"), "{peers:?}");
    // A damaged one is refused.
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    let bad = directory.file("bad.dict", &bytes);
    let output = dwell(&["replay", capture, "--rate=1mbit", "--dictionary", bad.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(reported(&output).contains("damaged"), "{}", reported(&output));
}

#[test]
fn wrong_command_lines_are_reported() {
    let directory = Directory::new("replay-bad");
    let capture = directory.file("text.pcap", &pcap(text));
    let capture = capture.to_str().unwrap();
    let fails = |arguments: &[&str], code: i32, words: &str| {
        let output = dwell(arguments);
        let said = reported(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    };
    fails(&["replay", capture], 2, "--rate");
    fails(&["replay", capture, "--rate=5"], 2, "\"5\" has no unit");
    fails(&["replay", capture, "--rate=5MB"], 2, "write \"5Mbit\" for bits");
    fails(&["replay", capture, "--rate=5mbit", "--scheme=fast"], 2, "there is no scheme");
    fails(&["replay", capture, "--rate=5mbit", "--class=x"], 2, "voice:dscp=46:20ms");
    fails(&["replay", capture, "--rate=5mbit", "--compress-cost=7"], 2, "2000,5.5");
    fails(&["replay", capture, "--rate=5mbit", "--except=https"], 2, "tcp/443");
    fails(&["replay", capture, "--rate=5mbit", "--codec=rar"], 2, "is no codec");
    fails(&["replay", capture, "--rate=5mbit", "--endpoint=a:1"], 2, "--write-config");
    fails(&["replay", capture, "--rate=5mbit", "--path-mtu=500"], 2, "1280");
    fails(&["replay", capture, "--rate=5mbit", "--speed=0"], 1, "the speed must be");
    fails(&["replay", "/nowhere.pcap", "--rate=5mbit"], 1, "/nowhere.pcap can't be read");
    fails(&["replay", "-", "-", "--rate=5mbit"], 1, "only once");
    let directory_path = directory.0.join("empty");
    fs::create_dir(&directory_path).unwrap();
    let empty = directory_path.to_str().unwrap();
    fails(&["replay", empty, "--rate=5mbit"], 1, "there is no capture in the directory");
    let both = ["replay", capture, "--rate=5mbit", "--inside=10.0.0.0/8", "--source=10.0.0.1/32"];
    fails(&both, 2, "cannot be used with");
    fails(&["train", capture, "--codec=deflate"], 1, "dictionar");
    fails(&["train", capture, "--min=900", "--max=100"], 1, "don't exist");
    let junk = directory.file("junk", b"no capture at all");
    fails(&["replay", junk.to_str().unwrap(), "--rate=5mbit"], 1, "it is no capture");
}

#[test]
fn the_good_part_of_a_broken_capture_counts() {
    let directory = Directory::new("replay-broken");
    let mut bytes = pcap(text);
    bytes.truncate(bytes.len() / 2);
    let capture = directory.file("cut.pcap", &bytes);
    let output = dwell(&["replay", capture.to_str().unwrap(), "--rate=5mbit", "--scheme=none"]);
    let said = reported(&output);
    assert!(output.status.success() && said.contains("what is before it counts"), "{said}");
}

#[test]
fn an_interrupted_replay_shows_what_was_read() {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_dwell"))
        .args(["trace", "replay", "--json", "--rate=100mbit", "--scheme=none,edge", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("dwell runs");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures/nfs-write.pcap");
    let whole = fs::read(data).expect("a capture");
    let mut pipe = child.stdin.take().expect("a pipe");
    let pid = child.id().to_string();
    // As long as somebody reads, there is more.
    let writer = std::thread::spawn(move || {
        pipe.write_all(&whole).expect("someone reads");
        for n in 0u64.. {
            if n == 100 {
                let killed = Command::new("kill").args(["-INT", &pid]).status();
                assert!(killed.expect("kill runs").success());
            }
            if pipe.write_all(&whole[24..]).is_err() {
                break;
            }
        }
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    assert_eq!(output.status.code(), Some(130), "{}", reported(&output));
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["is_interrupted"], true);
    let lanes = value["lanes"].as_array().expect("lanes");
    assert_eq!(lanes.len(), 3);
    let status: Status = serde_json::from_value(value["status"].clone()).expect("a status");
    assert!(status.peers.iter().all(|peer| peer.tx.balances() && peer.tx.arrived.packets > 50));
}

/// A scenario whose flow sends the packets of a capture in one direction, and whose port compresses them really.
const CAPTURED: &str = r#"
[about]
title = "A capture over a slow link"

[run]
measure = "3s"
drain = "1s"

[topology]
kind = "graph"

[link.slow]
from = "site"
to = "hub"
rate = "200kbit"
queue = "port"
frames = "relay"

[flow.captured]
from = "site"
to = "hub"
kind = "trace"
file = "nfs-write.pcap"
contents = true
direction = "backward"
mtu = 1448

[scheme]
preset = "packet"

[compress]
codec = "zstd:1"
time = "3us"
byte_time_ns = 4

[[sweep]]
scheme.preset = ["none", "packet", "flow", "host-pair", "auto"]
"#;

#[test]
fn a_scenario_with_a_capture_is_its_replay_to_the_byte() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures/nfs-write.pcap");
    let directory = Directory::new("captured-scenario");
    directory.file("nfs-write.pcap", &fs::read(&capture).expect("the capture"));
    let scenario = directory.file("scenario.toml", CAPTURED.as_bytes());
    let runs = simulated(&scenario);

    let capture = capture.to_str().expect("a path in Unicode");
    let whole = ["--queue-packets", "1000000", "--queue-time", "1000s", "--queue-bytes", "1000MB"];
    let fixed = ["--rate", "200kbit", "--compress-cost", "3000,4", "--json"];
    let schemes = ["--scheme", "none,packet,flow,host-pair,auto"];
    let output = dwell(&[&["replay", capture], &fixed[..], &whole, &schemes].concat());
    let replay: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(assert_same(&runs, &replay, "nfs-write.pcap"), [0.0; 2]);
    let compressed = |run: &&Value| run["metrics"]["slow.compressions"].as_f64() > Some(0.0);
    assert_eq!((runs.len(), runs.iter().filter(compressed).count()), (5, 4));
}

/// The runs of a scenario over a capture in one direction, by scheme.
fn simulated(scenario: &Path) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    let run = command.args(["sim", "run", "--json"]).arg(scenario).output().expect("dwell runs");
    assert!(run.status.success(), "{}", reported(&run));
    let text = String::from_utf8(run.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a run")).collect()
}

/// Compares runs with the schemes of one direction of a replay: packets, bytes and delays. Returns by how many
/// compressions and frames the replay has more: it counts units that did not get smaller, and each datagram of a unit that
/// fills several.
fn assert_same(runs: &[Value], replay: &Value, what: &str) -> [f64; 2] {
    let mut more = [0.0; 2];
    let peers = replay["status"]["peers"].as_array().expect("peers");
    for run in runs {
        let scheme = &run["point"]["scheme.preset"];
        let named = |it: &&Value| it["name"] == *scheme;
        let tx = &peers.iter().find(named).expect("the scheme")["tx"];
        let lane = replay["lanes"].as_array().and_then(|it| it.iter().find(named));
        let delay = &lane.expect("its lane")["delay"];
        let metric = |name: &str| run["metrics"][name].as_f64().unwrap_or(0.0);
        let count = |value: &Value| value.as_f64().expect("a number");
        let bytes = metric("slow.frames") * metric("slow.frame_bytes_mean");
        let delay_max_ns = metric("captured.delay_max_s") * 1e9;
        let ours = [metric("captured.delivered"), bytes.round(), delay_max_ns.round()];
        let theirs = [&tx["sent"]["packets"], &tx["link_bytes"], &delay["max_ns"]];
        assert_eq!(ours, theirs.map(count), "{what}, {scheme}");
        let mean_ns = metric("captured.delay_mean_s") * 1e9;
        assert!((mean_ns - count(&delay["mean_ns"])).abs() <= 1.0, "{what}, {scheme}: {mean_ns}");
        for (more, name) in more.iter_mut().zip(["compressions", "frames"]) {
            let by = count(&tx[name]) - metric(&format!("slow.{name}"));
            assert!(by >= 0.0, "{what}, {scheme}: {by} {name}");
            *more += by;
        }
    }
    more
}

#[test]
fn all_captures_are_their_replays_in_both_directions() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures");
    let (mut compared, mut that_were_cut, mut in_vain, mut in_parts) = (0, 0, 0.0, 0.0);
    for entry in fs::read_dir(captures).expect("the captures") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        // The packets of that one are of ten years, which is more than scenarios may take.
        if !name.contains(".pcap") || name == "mixed-vlan-mpls.pcap" {
            continue;
        }
        let directory = Directory::new(&format!("captured-{name}"));
        directory.file(name, &fs::read(&path).expect("the capture"));
        for codec in ["zstd:1", "lz4"] {
            let whole =
                ["--queue-packets", "1000000", "--queue-time", "1000s", "--queue-bytes", "1000MB"];
            let fixed = ["--rate", "200kbit", "--compress-cost", "3000,4", "--json"];
            let schemes = ["--scheme", "packet,host-pair,auto", "--codec", codec];
            let capture = path.to_str().expect("a path in Unicode");
            let output = dwell(&[&["replay", capture], &fixed[..], &whole, &schemes].concat());
            let busier: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let other = &busier["other_direction"];
            let directions = if other.is_null() { 1 } else { 2 };
            for direction in &["forward", "backward"][..directions] {
                let text = CAPTURED
                    .replace("nfs-write.pcap", name)
                    .replace("measure = \"3s\"", "measure = \"100000s\"")
                    .replace("drain = \"1s\"", "drain = \"100000s\"")
                    .replace("backward", direction)
                    .replace("zstd:1", codec)
                    .replace("\"none\", \"packet\", \"flow\",", "\"packet\",");
                let runs = simulated(&directory.file("scenario.toml", text.as_bytes()));
                assert_eq!(runs.len(), 3);
                let metric = |name: &str| runs[0]["metrics"][name].as_f64().unwrap_or(0.0);
                let bytes = metric("captured.offered_bps") * 100_000.0 / 8.0;
                let sent = [metric("captured.sent"), bytes.round()];
                // The directions of a replay come by their bytes.
                let is_meant = |replay: &&Value| {
                    let arrived = &replay["status"]["peers"][1]["tx"]["arrived"];
                    [&arrived["packets"], &arrived["bytes"]].map(Value::as_f64) == sent.map(Some)
                };
                let replay = [&busier, other].into_iter().find(is_meant);
                let replay = replay.unwrap_or_else(|| panic!("{name}, {direction}: {sent:?}"));
                let what = format!("{name}, {codec}, {direction}");
                let [more_compressions, more_frames] = assert_same(&runs, replay, &what);
                in_vain += more_compressions;
                in_parts += more_frames;
                compared += runs.len();
                that_were_cut += replay["input"]["shortened"].as_u64().expect("a number");
            }
        }
    }
    // All that the comparison is about was met with.
    assert!(compared > 80 && that_were_cut > 20, "{compared} {that_were_cut}");
    assert!(in_vain > 0.0 && in_parts > 0.0, "{in_vain} {in_parts}");
}

#[test]
fn a_codec_of_a_scenario_must_exist() {
    let directory = Directory::new("unknown-codec");
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures/nfs-write.pcap");
    directory.file("nfs-write.pcap", &fs::read(capture).expect("the capture"));
    for (old, new, said) in [
        ("zstd:1", "zsdt", "[compress], `codec`"),
        ("nfs-write.pcap", "scenario.toml", "it is no capture"),
        ("contents = true\n", "", "belongs to packets with contents = true"),
        ("queue = \"port\"\n", "", "`frames`"),
    ] {
        let scenario = directory.file("scenario.toml", CAPTURED.replace(old, new).as_bytes());
        let run = Command::new(env!("CARGO_BIN_EXE_dwell"))
            .args(["sim", "run", "--json"])
            .arg(&scenario)
            .output()
            .expect("dwell runs");
        assert!(!run.status.success() && reported(&run).contains(said), "{}", reported(&run));
    }
}
