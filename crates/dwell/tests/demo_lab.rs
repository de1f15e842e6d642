//! `dwell demo` and `dwell lab` as a user sees them, if this machine permits labs.

// Nothing here is for others, and clippy takes a test's helpers for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dwell_testkit::skips::skipped;
use serde_json::Value;

fn dwell(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.args(arguments).env_remove("DWELL_LOG").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    dwell(arguments).output().unwrap()
}

/// Returns true if there can be labs here; prints why not.
#[track_caller]
fn labs_are_permitted() -> bool {
    let output = run(&["lab", "--", "true"]);
    let why = String::from_utf8_lossy(&output.stderr);
    // The beginnings of the errors that blame the machine.
    let theirs = ["make ", "become ", "mount ", "run `ip`", "run `tc`", "open /dev/net/tun"];
    if theirs.iter().any(|doing| why.contains(&format!("cannot {doing}"))) {
        skipped(why);
        return false;
    }
    assert!(output.status.success(), "{output:?}");
    true
}

/// Returns true if a process has this among its arguments; one that is about to end may take a moment.
fn is_anyone_left_with(argument: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let is_there = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|word| word == argument.as_bytes())
        });
        if !is_there || Instant::now() > deadline {
            return is_there;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_demo_transfers_every_byte_with_every_scheme() {
    if !labs_are_permitted() {
        return;
    }
    let names = ["none", "all", "packet", "edge", "auto"];
    let schemes = names.iter().flat_map(|name| ["--scheme", name]);
    let arguments: Vec<&str> =
        ["demo", "--seconds", "1", "--json"].into_iter().chain(schemes).collect();
    let output = run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["complete"], true);
    let runs = summary["runs"].as_array().unwrap();
    let schemes = std::iter::once(Value::Null).chain(names.map(Value::from));
    let expected: Vec<(Value, &str)> =
        schemes.flat_map(|scheme| [(scheme.clone(), "text"), (scheme, "random")]).collect();
    let got: Vec<_> =
        runs.iter().map(|run| (run["scheme"].clone(), run["file"].as_str().unwrap())).collect();
    assert_eq!(got, expected);
    for run in runs {
        assert_eq!((&run["equal"], &run["bytes"]), (&true.into(), &summary["file_bytes"]));
        let with_dwell = !run["scheme"].is_null();
        assert_eq!(run["relays"].is_object(), with_dwell, "{run}");
        assert!(run["ping"]["replies"].as_u64().unwrap() > 0, "{run}");
        let relative = run["link_relative"].as_f64().unwrap();
        let limit = if run["scheme"] == "all" && run["file"] == "text" { 0.8 } else { 1.1 };
        assert!(relative < limit, "too many bytes on the link: {run}");
    }
}

#[test]
fn an_interrupted_demo_tells_what_it_has_and_leaves_nothing() {
    if !labs_are_permitted() {
        return;
    }
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        // The size is also what its processes are known by.
        let mut command = dwell(&["demo", "--json", "--size", "7654321", "--rate", "20mbit"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_secs(2));
        let kill = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["complete"], false);
        assert!(summary["runs"].as_array().unwrap().len() < 8);
        assert!(!is_anyone_left_with("7654321"));
    }
}

#[test]
fn the_lab_ends_as_its_command_does_and_takes_everything_along() {
    if !labs_are_permitted() {
        return;
    }
    assert_eq!(run(&["lab", "--", "false"]).status.code(), Some(1));
    assert_eq!(run(&["lab", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(run(&["lab", "--", "sh", "-c", "kill -TERM $$"]).status.code(), Some(143));
    let output = run(&["lab", "--", "sh", "-c", "sleep 98765.4321 & exit 0"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!is_anyone_left_with("98765.4321"));
}

#[test]
fn a_lab_with_relays_is_one_network() {
    if !labs_are_permitted() {
        return;
    }
    let script = "on egress ping -q -c 1 -W 5 10.77.0.1 && dwell status egress && on nowhere true";
    let output = run(&["lab", "--delay", "1ms", "--relays", "--", "sh", "-ec", script]);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains(" 0% packet loss") && out.contains("egress: dwell"), "{out}{err}");
    assert!(err.contains("HOST is one of: client egress ingress server"), "{out}{err}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_lab_keeps_its_status_sockets_apart_from_the_machines() {
    if !labs_are_permitted() {
        return;
    }
    // A lab within a lab: the outer one has nodes in its /run/dwell, which the inner one must
    // neither find nor leave anything in.
    let script = "touch /run/dwell/other.sock
        dwell lab --relays --delay 1ms -- dwell status egress
        dwell lab -- ls -A /run/dwell
        ls /run/dwell";
    let output = run(&["lab", "--", "sh", "-ec", script]);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.starts_with("egress ") && out.contains("\negress: dwell"), "{out}{err}");
    assert_eq!(out.matches(".sock").count(), 1, "{out}{err}");
    assert!(out.ends_with("other.sock\n"), "{out}{err}");
}
