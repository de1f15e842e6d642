//! `dwell trace` against Wireshark's tools: both must see the same in the same captures.
//!
//! Another directory than `data/captures` is looked at too if `DWELL_CAPTURES` names it:
//! `DWELL_CAPTURES=/srv/captures cargo test -p dwell --test trace`.

// Nothing here is for others, and clippy takes a test's helpers for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dwell_testkit::skips::skipped;
use serde_json::Value;

fn dwell(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.env_remove("DWELL_LOG").stdin(Stdio::null()).args(arguments).output().unwrap()
}

fn captures() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures");
    let other = std::env::var_os("DWELL_CAPTURES").map(PathBuf::from);
    let mut found = Vec::new();
    std::iter::once(own).chain(other).for_each(|directory| find(&directory, &mut found));
    found.sort();
    assert!(found.len() >= 8, "{found:?}");
    found
}

fn find(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, found);
        } else if path.to_string_lossy().contains(".pcap") {
            found.push(path);
        }
    }
}

#[track_caller]
fn is_missing(program: &str) -> bool {
    let is_missing = Command::new(program).arg("--version").output().is_err();
    if is_missing {
        skipped(format_args!("{program} is not installed"));
    }
    is_missing
}

fn accounts(path: &Path) -> Value {
    let output = dwell(&["trace", "analyze", "--no-codecs", "--json", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}: {output:?}", path.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn packets_and_bytes_are_those_of_capinfos() {
    if is_missing("capinfos") {
        return;
    }
    for path in captures() {
        let output = Command::new("capinfos").args(["-TmQMcd"]).arg(&path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // The name of the file is the first cell, in quotes.
        let cells: Vec<&str> = text.lines().nth(1).unwrap().rsplit(',').collect();
        let [bytes, packets] = [0, 1].map(|at| cells[at].trim_matches('"').parse::<u64>().unwrap());
        let frames = &accounts(&path)["files"][0]["frames"];
        let found = (frames["packets"].as_u64().unwrap(), frames["bytes"].as_u64().unwrap());
        assert_eq!(found, (packets, bytes), "{}", path.display());
    }
}

/// Packets by IP version and protocol, of the outermost IP header.
fn of_tshark(path: &Path) -> BTreeMap<String, u64> {
    let output = Command::new("tshark")
        .args(["-n", "-o", "ip.defragment:FALSE", "-T", "fields", "-E", "occurrence=f"])
        .args(["-e", "frame.protocols", "-e", "ip.proto"])
        .args(["-e", "ipv6.fraghdr.nxt", "-r"])
        .arg(path)
        .output()
        .unwrap();
    let mut counts = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut fields = line.split('\t');
        let mut field = || fields.next().unwrap_or_default();
        let (protocols, number, of_fragment) = (field(), field(), field());
        let mut layers = protocols.split(':').skip_while(|layer| !["ip", "ipv6"].contains(layer));
        let key = match layers.next() {
            Some("ip") => format!("4/{number}"),
            Some(_) => match layers.find(|layer| !layer.starts_with("ipv6.")) {
                Some("tcp") => "6/6".to_owned(),
                Some("udp") => "6/17".to_owned(),
                Some("icmpv6") => "6/58".to_owned(),
                // Of fragments it takes apart the first only.
                _ if ["6", "17", "58"].contains(&of_fragment) => format!("6/{of_fragment}"),
                _ => "6/other".to_owned(),
            },
            None => continue,
        };
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[test]
fn protocols_are_those_of_tshark() {
    if is_missing("tshark") {
        return;
    }
    let mut different = Vec::new();
    for path in captures() {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (key, sums) in accounts(&path)["protocols"].as_object().unwrap() {
            let key = match key.as_str() {
                "6/6" | "6/17" | "6/58" => key.clone(),
                _ if key.starts_with("6/") => "6/other".to_owned(),
                _ => key.clone(),
            };
            *found.entry(key).or_default() += sums["packets"].as_u64().unwrap();
        }
        let theirs = of_tshark(&path);
        if found != theirs {
            different.push(format!("{}: {found:?}, tshark {theirs:?}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A directory of the test's own, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-trace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn own(name: &str) -> String {
    format!("{}/../../data/captures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn an_analysis_says_it_in_text_json_and_on_a_page() {
    let directory = Directory::new("analyze");
    let (json, html) = (directory.path("a.json"), directory.path("a.html"));
    let capture = own("redis-django.pcapng.gz");
    let output = dwell(&["trace", "analyze", &capture, "--out", &json, "--html", &html]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let parts = ["474 frames", "tcp/10625", "zstd:9", "host-pair", "m = 100", "99 %", "History"];
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(fs::read_to_string(html).unwrap().contains("<svg"));
    let value: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(value["files"][0]["frames"]["packets"], 474);
    assert!(value["summary"]["codecs"][0]["all"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(value["settings"]["context_codec"], value["settings"]["block_codec"]);
    for kind in ["records", "singles"] {
        let sums = value["histories"][kind].as_array().unwrap();
        assert!(sums.len() == 5 && sums[4]["compressed"].as_u64().unwrap() > 0, "{sums:?}");
    }
    let output = dwell(&["trace", "analyze", &capture, "--context-codec", "lz4"]);
    assert_eq!(output.status.code(), Some(2));
    let output = dwell(&["trace", "analyze", &capture, "--no-contexts"]);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("History"));
}

#[test]
fn parts_merge_to_the_whole() {
    let directory = Directory::new("merge");
    let captures = ["nfs-write.pcap", "redis-stream.pcap"].map(own);
    let parts = ["0.json", "1.json", "whole.json", "merged.json"].map(|name| directory.path(name));
    let analyze = |files: &[&str], out: &str| {
        let mut arguments = vec!["trace", "analyze", "--out", out];
        arguments.extend(files);
        assert!(dwell(&arguments).status.success());
    };
    analyze(&[&captures[0]], &parts[0]);
    analyze(&[&captures[1]], &parts[1]);
    analyze(&[&captures[0], &captures[1]], &parts[2]);
    let output = dwell(&["trace", "merge", &parts[0], &parts[1], "--out", &parts[3]]);
    assert!(output.status.success(), "{output:?}");
    // Each part has found the sides of its own link, and both together those of one. What they
    // are called may differ, and the sums of each direction may not.
    let sums = |path: &str| -> Value {
        let mut value = untimed(path);
        let directions = value["directions"].as_object_mut().unwrap();
        directions.retain(|key, _| ["sums", "neither"].contains(&key.as_str()));
        value["verdict"].as_object_mut().unwrap().retain(|key, _| key == "saving_max");
        value
    };
    let (merged, whole) = (sums(&parts[3]), sums(&parts[2]));
    assert_eq!(merged["directions"], whole["directions"]);
    assert!(merged == whole, "something else differs");

    let other = directory.path("other.json");
    let output = dwell(&["trace", "analyze", &captures[1], "--no-codecs", "--out", &other]);
    assert!(output.status.success());
    let output = dwell(&["trace", "merge", &parts[0], &other]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("different settings"));
}

/// Two halves of a capture have the same sides, so that directions add up, too.
#[test]
fn halves_merge_to_the_whole_with_its_directions() {
    let directory = Directory::new("halves");
    let (first, second) = halves(&fs::read(own("nfs-write.pcap")).unwrap());
    let names = ["0.pcap", "1.pcap", "0.json", "1.json", "whole.json", "merged.json"];
    let [at, beyond, left, right, whole, merged] = names.map(|name| directory.path(name));
    fs::write(&at, first).unwrap();
    fs::write(&beyond, second).unwrap();
    for arguments in [
        &["analyze", "--out", &left, &at][..],
        &["analyze", "--out", &right, &beyond],
        &["analyze", "--out", &whole, &at, &beyond],
        &["merge", &left, &right, "--out", &merged],
    ] {
        let output = dwell(&[&["trace"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
    }
    let (merged, whole) = (untimed(&merged), untimed(&whole));
    assert_eq!(merged["directions"], whole["directions"]);
    assert_eq!(merged["verdict"], whole["verdict"]);
    assert!(merged == whole, "something else differs");
}

/// A capture of the classic format cut in the middle: two captures.
fn halves(capture: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (header, records) = capture.split_at(24);
    let is_little = header[0] != 0xa1;
    let mut at = 0;
    while at < records.len() / 2 {
        let word: [u8; 4] = records[at + 8..at + 12].try_into().unwrap();
        let length = if is_little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) };
        at += 16 + length as usize;
    }
    let (first, second) = records.split_at(at);
    ([header, first].concat(), [header, second].concat())
}

fn untimed(path: &str) -> Value {
    let mut value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    forget_times(&mut value);
    value
}

/// Times are measured, and never twice the same.
fn forget_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !["ns", "plain_ns", "columnar_ns"].contains(&key.as_str()));
            map.values_mut().for_each(forget_times);
        }
        // Codecs' sums: compressed, sent, expanded, nanoseconds.
        Value::Array(items) if items.len() == 4 && items.iter().all(Value::is_u64) => {
            items.truncate(3);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

#[test]
fn a_relay_reads_the_exceptions_that_are_written() {
    let directory = Directory::new("exceptions");
    let (list, config, psk) =
        (directory.path("list.toml"), directory.path("site.toml"), directory.path("key"));
    let capture = own("redis-django.pcapng.gz");
    let output = dwell(&["trace", "analyze", &capture, "--exceptions", &list]);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read_to_string(&list).unwrap().contains("[[exception]]"));
    assert!(dwell(&["genpsk", "--out", &psk]).status.success());
    let peer = "[[peer]]\nname = \"hub\"\nprefixes = [\"10.0.0.0/8\"]\npsk_file = \"key\"\n\
                endpoint = \"198.51.100.7:7733\"\nexceptions_file = \"list.toml\"\nrate = \"1mbit\"\n";
    fs::write(&config, peer).unwrap();
    let output = dwell(&["check", &config]);
    assert!(output.status.success(), "{output:?}");
    fs::write(&list, "schema = 1").unwrap();
    let output = dwell(&["check", &config]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("exceptions_file"));
}

#[test]
fn what_is_no_capture_is_reported_and_the_others_are_read() {
    let directory = Directory::new("broken");
    let text = directory.path("text.pcap");
    fs::write(&text, "this is no capture").unwrap();
    let cut = directory.path("cut.pcap");
    let whole = fs::read(own("nfs-write.pcap")).unwrap();
    fs::write(&cut, &whole[..20_000]).unwrap();
    let output = dwell(&["trace", "analyze", "--json", "--no-codecs", &text, &cut]);
    assert_eq!(output.status.code(), Some(1));
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(complaints.contains("it is no capture") && complaints.contains("broken at byte"));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["files"][0]["frames"]["packets"].as_u64().unwrap() > 50);
    assert!(value["files"][0]["trouble"].as_str().unwrap().contains("ends within a record"));
}

#[test]
fn names_that_are_no_text_and_damaged_parts_are_no_panic() {
    use std::os::unix::ffi::OsStrExt as _;
    let directory = Directory::new("odd");
    let odd = directory.0.join(std::ffi::OsStr::from_bytes(b"odd-\xff.pcap"));
    fs::copy(own("nfs-write.pcap"), &odd).unwrap();
    let json = directory.path("a.json");
    let command = |what: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
        command.arg("trace").args(what).arg(&odd).output().unwrap()
    };
    let output = command(&["analyze", "--json", "--codec=lz4", "--out", &json]);
    assert!(output.status.success(), "{output:?}");
    let html = directory.path("a.html");
    let output = command(&["replay", "--rate=1mbit", "--scheme=none", "--html", &html]);
    assert!(output.status.success(), "{output:?}");
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(value["verdict"]["answer"].is_string() && value["verdict"]["sentences"].is_array());
    value["entropy"]["bytes"][0] = u64::MAX.into();
    value["entropy"]["bytes"][1] = 1.into();
    fs::write(&json, value.to_string()).unwrap();
    let output = dwell(&["trace", "merge", &json]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("damaged"));
}

#[test]
fn an_interrupted_analysis_shows_what_was_read() {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_dwell"))
        .args(["trace", "analyze", "--json", "--no-codecs", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let whole = fs::read(own("nfs-write.pcap")).unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let pid = child.id().to_string();
    // As long as somebody reads, there is more.
    let writer = std::thread::spawn(move || {
        pipe.write_all(&whole).unwrap();
        for n in 0u64.. {
            if n == 100 {
                assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
            }
            if pipe.write_all(&whole[24..]).is_err() {
                break;
            }
        }
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["is_partial"], true);
    assert!(value["files"][0]["frames"]["packets"].as_u64().unwrap() > 50);
}
