//! `dwell trace replay` tells what relays do: real captures by tcpreplay through both, if this
//! machine permits labs.

// Nothing here is for others, and clippy takes a test's helpers for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use dwell_testkit::skips::skipped;
use serde_json::Value;

/// The largest difference between the two, ...
const BOUND: f64 = 0.1;
/// ... beside what single packets at the edge of a full queue come to.
const SLACK: [(&str, f64); 3] =
    [("dropped_packets", 20.0), ("saved_bytes", 3000.0), ("link_bytes", 3000.0)];
const SECONDS: f64 = 5.0;
/// A third of what is offered: by default the link carries seven tenths, which `edge` compresses to
/// less than that, and what never drops says nothing about drops.
const RATE: &str = "30kbit";
/// What the link could not carry while the machine stood still is allowed for, but not if it is more
/// than the second of these. If that is not enough and the machine stood still for longer than the
/// first, the bench is run again, so often at most.
const STALLED_MS_MAX: f64 = 20.0;
const JUDGED_MS_MAX: f64 = 500.0;
const TRIES: u32 = 3;

const BENCH: &str = env!("CARGO_BIN_EXE_dwell-bench");

/// The program that is measured. It belongs to another package: tests of the whole workspace build
/// it, and here it is built only if it is missing.
fn dwell() -> &'static Path {
    static DWELL: OnceLock<PathBuf> = OnceLock::new();
    DWELL.get_or_init(|| {
        let dwell = Path::new(BENCH).with_file_name("dwell");
        let directory = dwell.parent().unwrap();
        let profile = match directory.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        if !dwell.exists() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "-q", "-p", "dwell", "--bin", "dwell", "--profile", profile]);
            build.arg("--target-dir").arg(directory.parent().unwrap());
            build.current_dir(env!("CARGO_MANIFEST_DIR"));
            assert!(build.status().unwrap().success(), "dwell can't be built");
        }
        dwell
    })
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("DWELL_LOG").stdin(Stdio::null()).output().unwrap()
}

/// Returns true if this can be tried here; prints why not.
#[track_caller]
fn is_possible() -> bool {
    let output = run(dwell(), &["lab", "--", "true"]);
    if !output.status.success() {
        skipped(String::from_utf8_lossy(&output.stderr));
        return false;
    }
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    if let Some(program) = ["tcpreplay", "tcpdump"].iter().find(is_missing) {
        skipped(format_args!("{program} is not installed"));
        return false;
    }
    true
}

/// Runs the bench, and returns what it found in each run.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let dwell = dwell().to_str().unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay.jsonl");
    let _ = std::fs::remove_file(&file);
    let around = ["--dwell", dwell, "replay", "--json", file.to_str().unwrap()];
    let output = run(Path::new(BENCH), &[&around, arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let lines = std::fs::read_to_string(&file).unwrap();
    let measured = |line| serde_json::from_str::<Value>(line).unwrap()["measured"].take();
    lines.lines().map(measured).collect()
}

#[test]
fn captures_are_compressed_and_dropped_by_relays_as_the_replay_says() {
    if !is_possible() {
        return;
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures");
    let names = ["ftp-ipv6.pcap", "mixed-vlan-mpls.pcap", "nfs-write.pcap", "redis-stream.pcap"];
    let files = names.map(|name| directory.join(name).to_str().unwrap().to_owned());
    let mut arguments = vec!["--runs", "1", "--rate", RATE];
    arguments.extend(["--scheme", "none,packet,edge", "--shaken", "1"]);
    arguments.extend(files.iter().map(String::as_str));
    let seconds = SECONDS.to_string();
    arguments.extend(["--seconds", &seconds]);
    let mut runs = bench(&arguments);
    let mut judged = judge(&runs);
    for _ in 1..TRIES {
        let stalled_ms = worst_stall_ms(&runs);
        if stalled_ms <= STALLED_MS_MAX || (stalled_ms <= JUDGED_MS_MAX && judged.is_ok()) {
            break;
        }
        runs = bench(&arguments);
        judged = judge(&runs);
    }
    let stalled_ms = worst_stall_ms(&runs);
    if stalled_ms > JUDGED_MS_MAX {
        skipped(format_args!("the machine stood still for {stalled_ms:.0} ms of {SECONDS} s"));
        return;
    }
    judged.unwrap();
}

fn stalled_ms(run: &Value) -> f64 {
    run["stalled_ms"].as_f64().unwrap()
}

fn worst_stall_ms(runs: &[Value]) -> f64 {
    runs.iter().map(stalled_ms).fold(0.0, f64::max)
}

/// Whether relays and replay did the same; says where they did not.
fn judge(runs: &[Value]) -> Result<(), String> {
    let ensure =
        |is_so: bool, why: &str| if is_so { Ok(()) } else { Err(format!("{why}: {runs:?}")) };
    ensure(runs.len() == 3, "one run for each scheme")?;
    for run in runs {
        let number = |side: &str, field: &str| run[side][field].as_f64().unwrap();
        ensure(number("relayed", "dropped_packets") > 20.0, "the link carries it all")?;
        let shaken = run["shaken"].as_array().unwrap();
        ensure(shaken.len() == 1, "shaken once")?;
        let arrived = |of: &Value| of["arrived_packets"].clone();
        ensure(arrived(&shaken[0]) == arrived(&run["replayed"]), "shaken packets are the same")?;
        // The link is busy nearly always.
        let lost_share = stalled_ms(run) / 1e3 / SECONDS;
        for (field, slack) in SLACK {
            let (replayed, relayed) = (number("replayed", field), number("relayed", field));
            let carried = if field == "dropped_packets" { "sent_packets" } else { field };
            let room = BOUND * relayed + slack + lost_share * number("relayed", carried);
            let is_near = (replayed - relayed).abs() <= room;
            ensure(is_near, &format!("{field} more than {room} apart"))?;
        }
    }
    let saved = |run: &Value| run["relayed"]["saved_bytes"].as_u64().unwrap();
    ensure(saved(&runs[0]) == 0 && saved(&runs[2]) > saved(&runs[1]), "what is saved")
}
