//! The program as a user sees it.

// Nothing here is for others, and clippy takes a test's helpers for ordinary code.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dwell_report::status::{PeerStatus, Status};

fn dwell() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.env_remove("DWELL_LOG").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    dwell().args(arguments).output().unwrap()
}

fn out(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

/// The job failed, and said this on standard error.
#[track_caller]
fn assert_fails(arguments: &[&str], expected: &str) {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(err(&output).contains(expected), "{}", err(&output));
    assert!(!err(&output).contains('\x1b'), "colours without a terminal: {output:?}");
}

/// A directory of the test's own, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_command_explains_itself() {
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(out(&help).contains("Exit codes:"));
    for command in [
        "relay",
        "check",
        "status",
        "genkey",
        "pubkey",
        "genpsk",
        "demo",
        "lab",
        "sim",
        "sim list",
        "sim run",
        "sim reproduce",
        "sim report",
        "sim trace",
        "man",
        "completions",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(out(&help).contains(words[0]), "{command}");
        let help = run(&[&words[..], &["--help"]].concat());
        assert_eq!(help.status.code(), Some(0));
        assert!(out(&help).contains("Examples:"), "{command}");
        assert!(out(&help).contains("Exit codes:"), "{command}");
    }
}

#[test]
fn a_wrong_command_line_is_2() {
    for arguments in [
        &[][..],
        &["fly"],
        &["check"],
        &["check", "--sample", "a.toml"],
        &["relay"],
        &["status", "a", "--socket", "b"],
        &["status", "--watch=soon"],
        &["man"],
        &["completions", "tcsh"],
        &["sim"],
        &["sim", "run"],
        &["sim", "run", "a.toml", "--jobs", "0"],
        &["sim", "run", "a.toml", "--set", "compress.ratio"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(out(&output).is_empty(), "{output:?}");
    }
}

#[test]
fn the_sample_checks_once_its_key_is_made() {
    let directory = Directory::new("sample");
    let sample = run(&["check", "--sample"]);
    let sample = out(&sample).replace("/etc/dwell/private.key", "private.key");
    let file = directory.write("site-a.toml", &sample);
    assert_fails(&["check", &file], "site-a.toml:");
    assert_fails(&["check", &file], "dwell: ");
    let key = directory.path("private.key");
    assert_fails(&["check", &file], &format!("make it with `dwell genkey --out {key}`"));

    assert_eq!(run(&["genkey", "--out", &key]).status.code(), Some(0));
    let checked = run(&["check", "--no-routes", &file]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(out(&checked).contains("site-a.toml is valid."));
    assert!(out(&checked).contains("198.51.100.7:7733"));
    assert_eq!(err(&checked), "");
}

const WITHOUT_KEY: &str = "[[peer]]\nname = \"hub\"\nendpoint = \"10.1.1.1:7733\"\n\
                           prefixes = [\"10.0.0.0/8\"]\nsecurity = \"none\"\n";

#[test]
fn warnings_do_not_fail_a_check() {
    let directory = Directory::new("warnings");
    let file = directory.write("a.toml", WITHOUT_KEY);
    let checked = run(&["check", &file]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(err(&checked).contains("warning: 10.1.1.1, the endpoint of \"hub\", is in 10.0.0.0/8"));
    assert!(err(&checked).contains("warning: datagrams to \"hub\" are neither encrypted"));
}

#[test]
fn a_check_speaks_json() {
    let directory = Directory::new("json");
    let file = directory.write("a.toml", WITHOUT_KEY);
    let checked = run(&["check", "--json", "--no-routes", &file]);
    let json: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(json["valid"], true);
    assert_eq!(json["peers"][0]["encrypted"], false);
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);

    let file = directory.write("b.toml", &WITHOUT_KEY.replace("prefixes", "prefixen"));
    let checked = run(&["check", "--json", &file]);
    assert_eq!(checked.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(json["valid"], false);
    assert_eq!(json["errors"].as_array().unwrap().len(), 2);
    assert_eq!(json["errors"][1]["line"], 4);
}

#[test]
fn a_relay_does_not_start_with_errors() {
    let directory = Directory::new("relay");
    let file = directory.write("a.toml", "[node]\nmtu = 1\ntun = 2\n");
    assert_fails(&["relay", "--config", &file], "a.toml:2: [node], `mtu`: must be a whole number");
    assert_fails(&["relay", "--config", &file], "a.toml has 2 errors");
    assert_fails(
        &["relay", "--config", &directory.path("none")],
        "`dwell check --sample` prints one",
    );
}

#[test]
fn keys_are_random_and_for_their_owner_only() {
    let directory = Directory::new("genpsk");
    let [a, b] = [0, 1].map(|_| out(&run(&["genpsk"])).to_owned());
    assert!(a.len() == 65 && a.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()), "{a}");
    assert_ne!(a, b);

    let file = directory.path("hub.psk");
    let made = run(&["genpsk", "--out", &file]);
    assert_eq!((made.status.code(), out(&made)), (Some(0), ""));
    let key = fs::read_to_string(&file).unwrap();
    assert_eq!(key.len(), 65);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);

    assert_fails(&["genpsk", "--out", &file], "hub.psk exists and is left as it is");
    assert_eq!(fs::read_to_string(&file).unwrap(), key);
    assert_fails(&["genpsk", "--out", &directory.path("no/hub.psk")], "No such file or directory");
}

#[test]
fn a_private_key_has_a_public_one() {
    let directory = Directory::new("genkey");
    let file = directory.path("private.key");
    let made = run(&["genkey", "--out", &file]);
    assert_eq!((made.status.code(), out(&made)), (Some(0), ""));
    assert!(err(&made).contains(&format!("`dwell pubkey {file}`")), "{made:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_to_string(&file).unwrap().len(), 45);
    assert_fails(&["genkey", "--out", &file], "private.key exists and is left as it is");
    let public = run(&["pubkey", &file]);
    assert_eq!((public.status.code(), out(&public).len()), (Some(0), 45), "{public:?}");
    assert_eq!(out(&public), out(&run(&["pubkey", &file])));
    let other = directory.write("other.key", out(&run(&["genkey"])));
    assert_ne!(out(&public), out(&run(&["pubkey", &other])));
    // X25519 of the base point, as in WireGuard's keys.
    let known = directory.write("known.key", "SjrL/bFj3sZR36MZTezmdtQ3ApxipAi0xeqRFCRuSJM=\n");
    assert_eq!(out(&run(&["pubkey", &known])), "MeAwP9ZBjS+MDni5HyLoyu0Pvkhlbc9HZ+SDT3Abj2I=\n");
    let wrong = directory.write("wrong.key", "no key\n");
    assert_fails(&["pubkey", &wrong], "holds no private key: there must be 32 bytes");
    let empty = directory.path("empty");
    std::fs::write(&empty, "").unwrap();
    assert_fails(&["pubkey", &empty], "is empty: there must be 32 bytes");
    assert_fails(&["pubkey", &empty], "`dwell genkey` makes a key");
    assert_fails(&["pubkey", &directory.path("none")], "can't be read");
}

/// A node that answers each of `answers` once, and is then gone.
fn node(path: &str, answers: Vec<String>) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    let path = PathBuf::from(path);
    std::thread::spawn(move || {
        for (index, answer) in answers.iter().enumerate() {
            let (mut stream, _) = listener.accept().unwrap();
            if index + 1 == answers.len() {
                fs::remove_file(&path).unwrap();
            }
            // The client may have left before the end.
            let _ = stream.write_all(answer.as_bytes());
        }
    })
}

fn status_json() -> String {
    let peer = PeerStatus { name: "hub".into(), codec: "zstd".into(), ..PeerStatus::default() };
    let status = Status { name: "site-a".into(), peers: vec![peer], ..Status::default() };
    serde_json::to_string(&status).unwrap()
}

#[test]
fn a_status_is_shown() {
    let directory = Directory::new("status");
    let socket = directory.path("a.sock");
    let later = status_json().replace("\"peers\"", "\"news\":1,\"peers\"");
    let answering = node(&socket, vec![status_json(), later]);
    let status = run(&["status", "--socket", &socket]);
    assert_eq!(status.status.code(), Some(0), "{status:?}");
    assert!(out(&status).starts_with("site-a is not up\nhub does not answer"), "{}", out(&status));
    assert!(out(&status).contains("site-a: dwell "), "{}", out(&status));
    assert!(out(&status).contains("sent to"));

    // As JSON it is what the node said, also what this version does not know.
    let status = run(&["status", "--json", "--socket", &socket]);
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&json["news"], &json["peers"][0]["name"]), (&1.into(), &"hub".into()));
    answering.join().unwrap();
}

#[test]
fn a_status_is_watched_until_the_node_is_gone() {
    let directory = Directory::new("watch");
    let socket = directory.path("a.sock");
    let answering = node(&socket, vec![status_json(), status_json()]);
    let watched = run(&["status", "--json", "--watch=0.1", "--socket", &socket]);
    assert_eq!(watched.status.code(), Some(1));
    assert_eq!(out(&watched).lines().count(), 2);
    assert!(err(&watched).contains("there is no socket"));
    answering.join().unwrap();
}

#[test]
fn a_node_that_does_not_answer_is_reported() {
    let directory = Directory::new("no-status");
    let socket = directory.path("a.sock");
    assert_fails(&["status", "--socket", &socket], "run, with its status there?");
    assert_fails(&["status", "no-such-node"], "/run/dwell/no-such-node.sock");

    drop(UnixListener::bind(&socket).unwrap());
    assert_fails(&["status", "--socket", &socket], "start the relay (`dwell up`) or proxy again");
    fs::remove_file(&socket).unwrap();

    let newer = status_json().replace("\"schema\":1", "\"schema\":2");
    let answers = ["hello", "", "{}", &newer, "{\"schema\":1}"];
    let answering = node(&socket, answers.map(str::to_owned).to_vec());
    assert_fails(&["status", "--socket", &socket], "does not answer with JSON");
    assert_fails(&["status", "--socket", &socket], "does not answer with JSON");
    assert_fails(&["status", "--socket", &socket], "another version of the status format");
    assert_fails(&["status", "--socket", &socket], "use the same dwell as the node");
    assert_fails(&["status", "--socket", &socket], "is not a status");
    answering.join().unwrap();
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = dwell().args(["check", "--sample"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), ""));
}

#[test]
fn a_wrong_log_level_is_reported() {
    let output = dwell().args(["genpsk"]).env("DWELL_LOG", "x=[").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("dwell: DWELL_LOG must be a level such as \"debug\""));
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = Directory::new("man");
    let written = run(&["man", "--out", &directory.path("man1")]);
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    for page in [
        "dwell",
        "dwell-relay",
        "dwell-check",
        "dwell-status",
        "dwell-genkey",
        "dwell-pubkey",
        "dwell-genpsk",
        "dwell-proxy",
        "dwell-proxy-ingress",
        "dwell-proxy-egress",
        "dwell-send",
        "dwell-recv",
        "dwell-sim",
        "dwell-sim-list",
        "dwell-sim-run",
        "dwell-sim-reproduce",
        "dwell-sim-report",
        "dwell-sim-trace",
    ] {
        let text = fs::read_to_string(Path::new(&directory.path("man1")).join(format!("{page}.1")));
        assert!(text.unwrap().contains("Exit codes:"), "{page}");
    }
    let file = directory.write("file", "");
    assert_fails(&["man", "--out", &file], "can't be made");
}

/// Every command is completed, and a shell that is here reads its script without a complaint.
#[test]
fn shells_complete_every_command() {
    let directory = Directory::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let printed = run(&["completions", shell]);
        assert_eq!(printed.status.code(), Some(0), "{printed:?}");
        let script = out(&printed);
        for command in ["init", "join", "verify", "status", "relay", "trace", "completions"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
        let file = directory.write(shell, script);
        let Ok(read) = Command::new(shell).args(["-n", &file]).output() else { continue };
        assert!(read.status.success(), "{shell}: {}", err(&read));
    }
}
