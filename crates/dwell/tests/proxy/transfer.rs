//! `dwell send` and `dwell recv`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use dwell_testkit::skips::skipped;
use rustix::process::Signal;
use serde_json::Value;

use dwell_proxy::transfer::Code;

use crate::pair::{Directory, Process, assert_same, dwell, free_port, mixture, wait_until};

/// A receiver, and the words after `dwell send FILE` that it asked to say.
pub(crate) struct Receiver {
    pub(crate) process: Process,
    /// Where it listens.
    at: String,
    words: Vec<String>,
    /// The rest of its output, read by a thread.
    said: Option<thread::JoinHandle<String>>,
}

impl Receiver {
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = dwell();
        let at = free_port().to_string();
        command.args(["recv", "--listen", &at]).args(arguments).current_dir(directory);
        Self::of(command, &at)
    }

    /// The receiver of a command, which listens there.
    pub(crate) fn of(mut command: Command, at: &str) -> Self {
        command.stderr(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let words = line
            .trim()
            .strip_prefix("on the other machine: dwell send FILE ")
            .unwrap_or_else(|| panic!("{line}"));
        let words = words.split(' ').map(str::to_owned).collect();
        let said = thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            said
        });
        Self { process, at: at.to_owned(), words, said: Some(said) }
    }

    /// The words after `dwell send FILE`.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// All that it prints on standard output, until its end.
    pub(crate) fn printed(&mut self) -> String {
        let mut printed = String::new();
        let mut out = self.process.0.stdout.take().unwrap();
        out.read_to_string(&mut printed).unwrap();
        printed
    }

    pub(crate) fn sender(&self, file: &str) -> Command {
        self.sender_of(&[file])
    }

    pub(crate) fn sender_of(&self, files: &[&str]) -> Command {
        let mut command = dwell();
        command.arg("send").args(files).args(&self.words);
        command.stderr(Stdio::piped());
        command
    }

    /// Its exit code, and what it said.
    pub(crate) fn end(&mut self) -> (i32, String) {
        (self.process.wait(), self.said.take().unwrap().join().unwrap())
    }
}

/// What a receiver says with `--json` at the end of what it has received.
pub(crate) fn received(printed: &str) -> Option<Value> {
    let lines = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.into_iter().find(|line| line["event"] == "received")
}

#[test]
fn a_file_comes_across() {
    let (here, there) = (Directory::new(), Directory::new());
    let bytes = mixture(5_000_000, 1);
    fs::write(here.path("data.bin"), &bytes).unwrap();
    let mut receiver = Receiver::start(&there.0, &[]);
    let sent = receiver.sender("data.bin").current_dir(&here.0).output().unwrap();
    let said = String::from_utf8(sent.stderr).unwrap();
    assert_eq!(sent.status.code(), Some(0), "{said}");
    let (code, reported) = receiver.end();
    assert_eq!(code, 0, "{reported}");
    assert_same(&fs::read(there.path("data.bin")).unwrap(), &bytes);
    assert_eq!(there.names(), ["data.bin"]);
    assert!(reported.contains("data.bin, 5.0 MB, from 127.0.0.1"), "{reported}");
    let digest = |text: &str| text.trim().rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!(digest(&said), digest(&reported));
    assert_eq!(digest(&said).len(), 64);
}

#[test]
fn a_pipe_comes_across() {
    let directory = Directory::new();
    let bytes = mixture(3_000_000, 2);
    let mut receiver = Receiver::start(&directory.0, &["-"]);
    let mut out = receiver.process.0.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut got = Vec::new();
        out.read_to_end(&mut got).unwrap();
        got
    });
    let mut sender = receiver.sender("-").stdin(Stdio::piped()).spawn().unwrap();
    sender.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(sender.wait().unwrap().success());
    assert_eq!(receiver.end().0, 0);
    assert_same(&reading.join().unwrap(), &bytes);
}

#[test]
fn an_empty_file_comes_across() {
    let directory = Directory::new();
    let mut receiver = Receiver::start(&directory.0, &["empty"]);
    assert!(receiver.sender("/dev/null").output().unwrap().status.success());
    assert_eq!(receiver.end().0, 0);
    assert_eq!(fs::read(directory.path("empty")).unwrap(), b"");
}

#[test]
fn a_kept_key_serves_as_well() {
    let (here, there) = (Directory::new(), Directory::new());
    let psk = here.path("psk");
    assert!(dwell().args(["genpsk", "--out"]).arg(&psk).status().unwrap().success());
    let mut receiver = Receiver::start(&there.0, &["--psk", psk.to_str().unwrap(), "copy"]);
    assert_eq!(receiver.words[1..], ["--psk", "KEYFILE"]);
    let mut command = dwell();
    command.args(["send", psk.to_str().unwrap(), &receiver.words[0], "--psk"]).arg(&psk);
    assert!(command.output().unwrap().status.success());
    assert_eq!(receiver.end().0, 0);
    assert_same(&fs::read(there.path("copy")).unwrap(), &fs::read(&psk).unwrap());
}

#[test]
fn a_wrong_key_is_of_no_use() {
    let directory = Directory::new();
    let mut receiver = Receiver::start(&directory.0, &["file"]);
    let mut command = dwell();
    let wrong = "0".repeat(16);
    command.args(["send", "/dev/null", &receiver.at, "--key", &wrong]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("has another key") && !said.contains("certificate"), "{said}");
    assert!(directory.names().is_empty());
    // The right one still is.
    let mut command = dwell();
    let code: Code = receiver.words[0].parse().unwrap();
    command.args(["send", "/dev/null", &receiver.at]).env("DWELL_KEY", code.key.reveal().as_str());
    assert!(command.output().unwrap().status.success());
    let (code, said) = receiver.end();
    assert_eq!(code, 0);
    assert!(said.contains("is rejected: its key is not the one"), "{said}");
}

/// Unknown peers may be patient, and many.
#[test]
fn who_says_nothing_keeps_no_sender_waiting() {
    let directory = Directory::new();
    let mut receiver = Receiver::start(&directory.0, &["file", "--handshake-time", "1h"]);
    let silent: Vec<TcpStream> =
        (0..70).map(|_| TcpStream::connect(&receiver.at).unwrap()).collect();
    let sent = receiver.sender("/dev/null").output().unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let (code, said) = receiver.end();
    assert!(code == 0 && said.contains("too many have connected"), "{said}");
    drop(silent);
}

#[test]
fn files_are_not_replaced_unasked() {
    let directory = Directory::new();
    fs::write(directory.path("precious"), "mine").unwrap();
    let output = dwell().args(["recv", "precious"]).current_dir(&directory.0).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--overwrite"));

    // The sender names it: both are informed.
    let here = Directory::new();
    fs::write(here.path("precious"), "yours").unwrap();
    let mut receiver = Receiver::start(&directory.0, &[]);
    let output = receiver.sender("precious").current_dir(&here.0).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("precious exists"), "{said}");
    let (code, reported) = receiver.end();
    assert!(code == 1 && reported.contains("precious exists"), "{reported}");
    assert_eq!(fs::read(directory.path("precious")).unwrap(), b"mine");

    let mut receiver = Receiver::start(&directory.0, &["--overwrite"]);
    let sent = receiver.sender("precious").current_dir(&here.0).output().unwrap();
    assert!(sent.status.success());
    assert_eq!(receiver.end().0, 0);
    assert_eq!(fs::read(directory.path("precious")).unwrap(), b"yours");
    assert_eq!(directory.names(), ["precious"]);
}

/// A row more at the beginning, and one less in the middle: what is behind them is found where it was.
#[test]
fn what_was_moved_is_not_sent_again() {
    let (here, there) = (Directory::new(), Directory::new());
    let old = mixture(5_000_000, 4);
    let new = [b"INSERT INTO rows VALUES (0);\n", &old[..2_000_000], &old[2_000_100..]].concat();
    fs::write(here.path("dump.sql"), &new).unwrap();
    fs::write(there.path("dump.sql"), &old).unwrap();
    let mut receiver = Receiver::start(&there.0, &["--overwrite"]);
    let sent = receiver.sender("dump.sql").current_dir(&here.0).output().unwrap();
    let said = String::from_utf8(sent.stderr).unwrap();
    let (code, reported) = receiver.end();
    assert!(sent.status.success() && code == 0, "{said}{reported}");
    for text in [&said, &reported] {
        let few = ["4.9 MB of it were there", "5.0 MB of it were there"];
        assert!(few.iter().any(|few| text.contains(few)), "{text}");
    }
    assert_same(&fs::read(there.path("dump.sql")).unwrap(), &new);
    assert_eq!(there.names(), ["dump.sql"]);
}

/// A transfer that has begun and does not end: its sender waits for its standard input.
fn begun(directory: &Directory) -> (Receiver, Process) {
    let receiver = Receiver::start(&directory.0, &["file"]);
    let mut sender =
        Process(receiver.sender("-").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    sender.0.stdin.as_mut().unwrap().write_all(&mixture(1_000_000, 3)).unwrap();
    wait_until("it has begun", || {
        let part = fs::metadata(directory.path(PART));
        part.is_ok_and(|part| part.len() > 0)
    });
    (receiver, sender)
}

/// The name of what is not complete.
const PART: &str = ".file.dwell-part";

#[test]
fn an_interrupted_receiver_names_what_stays() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = Directory::new();
        let (mut receiver, mut sender) = begun(&directory);
        receiver.process.signal(signal);
        let (code, said) = receiver.end();
        assert!(code == 130 && said.contains(PART), "{said}");
        assert_eq!(directory.names(), [PART]);
        assert_eq!(sender.wait(), 1);
    }
}

#[test]
fn an_interrupted_sender_is_noticed() {
    for (signal, code) in [(Signal::INT, 130), (Signal::KILL, -1)] {
        let directory = Directory::new();
        let (mut receiver, mut sender) = begun(&directory);
        sender.signal(signal);
        assert_eq!(sender.wait(), code);
        let (code, said) = receiver.end();
        assert!(code == 1 && said.contains("went away before the end"), "{said}");
        assert!(said.contains(PART), "{said}");
        assert_eq!(directory.names(), [PART]);
    }
}

/// A receiver that says nothing for a minute is given up, as if its cable was pulled; one that has nothing to do is not.
#[test]
#[ignore = "long: ./x test --all runs it"]
fn long_silence_is_no_pause() {
    let directories = [Directory::new(), Directory::new()];
    let [(mut stopped, mut gives_up), (mut waits, mut goes_on)] = directories.each_ref().map(begun);
    stopped.process.signal(Signal::STOP);
    let mut said = String::new();
    gives_up.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(gives_up.wait(), 1);
    assert!(said.contains("the receiver has said nothing for 60 s"), "{said}");
    stopped.process.signal(Signal::CONT);
    assert_eq!(stopped.end().0, 1);
    drop(goes_on.0.stdin.take());
    assert_eq!((goes_on.wait(), waits.end().0), (0, 0));
    assert_same(&fs::read(directories[1].path("file")).unwrap(), &mixture(1_000_000, 3));
}

/// Less than what every sender counts on.
#[test]
fn a_receiver_needs_some_memory() {
    for (arguments, least) in
        [(&["--memory-max", "1MiB"][..], "6 MiB"), (&["--keep", "--memory-max", "64MiB"], "86 MiB")]
    {
        let output = dwell().arg("recv").args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(least), "{said}");
    }
}

/// Returns true if a process has a thread of this name.
fn has_thread(process: &Process, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.0.id())).unwrap();
    let mut names = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.any(|other| other.trim() == name)
}

/// Nothing is there if nothing came.
#[test]
fn a_transfer_without_a_byte_leaves_nothing() {
    let directory = Directory::new();
    let mut receiver = Receiver::start(&directory.0, &["file"]);
    let mut sender = Process(receiver.sender("-").stdin(Stdio::piped()).spawn().unwrap());
    // Once the receiver has accepted what was offered.
    wait_until("it reads what it is to send", || has_thread(&sender, "dwell-read"));
    sender.signal(Signal::KILL);
    assert_eq!((receiver.end().0, sender.wait()), (1, -1));
    assert!(directory.names().is_empty());
}

#[test]
fn what_another_receiver_writes_is_left_alone() {
    let directory = Directory::new();
    let (mut receiver, mut sender) = begun(&directory);
    let mut second = Receiver::start(&directory.0, &["file"]);
    let mut other =
        Process(second.sender("-").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    other.0.stdin.as_mut().unwrap().write_all(&mixture(100_000, 4)).unwrap();
    wait_until("the second has begun", || directory.names().len() == 2);
    drop(other.0.stdin.take());
    assert_eq!((other.wait(), second.end().0), (0, 0));
    assert_same(&fs::read(directory.path("file")).unwrap(), &mixture(100_000, 4));
    assert_eq!(directory.names(), [PART, "file"]);
    // The first one is too late for the name, which both are informed of.
    drop(sender.0.stdin.take());
    assert_eq!((sender.wait(), receiver.end().0), (1, 1));
    assert_same(&fs::read(directory.path("file")).unwrap(), &mixture(100_000, 4));
}

#[test]
fn a_full_disk_is_reported_to_both() {
    if !Path::new("/dev/full").exists() {
        skipped("this system has no /dev/full");
        return;
    }
    let directory = Directory::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = dwell();
    command.args(["recv", "--listen", &free_port().to_string(), "-"]).stdout(full);
    command.stderr(Stdio::piped()).current_dir(&directory.0);
    let mut process = Process(command.spawn().unwrap());
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let words: Vec<&str> = line.trim().split("FILE ").nth(1).unwrap().split(' ').collect();
    let mut sender = dwell()
        .args(["send", "-"])
        .args(&words)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = sender.stdin.take().unwrap();
    let writing = thread::spawn(move || {
        let block = mixture(1 << 20, 1);
        // Until the sender has given up.
        while stdin.write_all(&block).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let output = sender.wait_with_output().unwrap();
    writing.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the receiver gave up") && said.contains("No space left"), "{said}");
    assert_eq!(process.wait(), 1);
}

/// `dwell send FILE` is not about the file that is there.
#[test]
fn a_code_that_is_missing_is_said_to_be() {
    let directory = Directory::new();
    fs::write(directory.path("book.txt"), "once").unwrap();
    let missing = "the receiver's code is missing: run `dwell recv` on the other machine";
    for (files, code) in [
        (&["book.txt"][..], 2),
        (&["./book.txt"], 2),
        (&["-"], 2),
        (&["no-file"], 2),
        (&["./book.txt", "./book.txt"], 2),
        (&["/dev/null", "book.txt"], 1),
    ] {
        let output = dwell().arg("send").args(files).current_dir(&directory.0).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{files:?}: {said}");
        assert!(said.contains(missing) && !said.contains("provided"), "{files:?}: {said}");
    }
    let receiver = ["send", "hub.example", "--key", "0000000000000000"];
    let output = dwell().args(receiver).current_dir(&directory.0).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(2) && said.contains("what is to be sent is missing"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_sent_is_said() {
    let said = |arguments: &[&str]| {
        let output = dwell().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let key = ["--key", "0000000000000000"];
    assert!(
        said(&["send", "-", "/dev/null", "127.0.0.1", key[0], key[1]]).contains("standard input")
    );
    assert!(said(&["send", "/no/file", "127.0.0.1", key[0], key[1]]).contains("/no/file"));
    assert!(said(&["send", "/dev/null", "127.0.0.1"]).contains("--key"));
    let mut command = dwell();
    let output = command.args(["send", "/dev/null", "127.0.0.1"]).env("DWELL_KEY", "").output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("key is missing"), "an empty variable is none: {text}");
    let twice = ["send", "/etc/passwd", "/../etc/passwd", "127.0.0.1", key[0], key[1]];
    assert!(said(&twice).contains("another file is called passwd"));
    let nobody = free_port().to_string();
    let text = said(&["send", "/dev/null", &nobody, key[0], key[1]]);
    assert!(text.contains(&nobody) && text.contains("refused"), "{text}");
}
