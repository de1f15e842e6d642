//! Transfers whose cable is pulled, or whose disk is full, at moments that chance chooses: the next one goes on with what had come,
//! nothing is wrong, and nothing is left behind.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dwell_base::Rng;
use rustix::process::Signal;

use crate::enclosure::Enclosure;
use crate::pair::{Directory, Process, mixture};
use crate::transfer::{Receiver, received};

/// What may be sent again although it had come: a block that was not whole, and what was on its way to the disk.
pub(crate) const AGAIN_BYTES: u64 = 128 << 10;
/// An end notices within two minutes that the other one is gone. The machine may be busy.
const NOTICED: Duration = Duration::from_secs(180);
/// As many at a time; each waits for a minute or two.
const PULLED_AT_ONCE: u64 = 50;

/// The bytes of the files below a directory; of one with several names once.
pub(crate) fn bytes_below(at: &Path) -> u64 {
    let (mut nodes, mut bytes) = (std::collections::HashSet::new(), 0);
    let mut open = vec![at.to_path_buf()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if nodes.insert(metadata.ino()) {
            bytes += metadata.len();
        }
    }
    bytes
}

fn names(at: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// A transfer within an enclosure: both ends.
fn begin(enclosure: &Enclosure, port: u16, from: &Path, to: &[&str]) -> (Receiver, Process) {
    let mut receive = enclosure.dwell();
    let at = format!("127.0.0.1:{port}");
    receive.args(["recv", "--json", "--listen", &at]).args(to);
    let receiver = Receiver::of(receive, &at);
    let mut send = enclosure.dwell();
    send.arg("send").arg(from).args(receiver.words()).stderr(Stdio::piped());
    let sender = Process(send.spawn().unwrap());
    (receiver, sender)
}

/// A receiver and a sender that come to their end: the exit codes, what the receiver printed, and what it said.
fn end(receiver: &mut Receiver, sender: &mut Process) -> (i32, i32, String, String) {
    let sent = sender.wait();
    let printed = receiver.printed();
    let (code, said) = receiver.end();
    (sent, code, printed, said)
}

/// Sends again, which succeeds: how many bytes were there.
fn goes_on(enclosure: &Enclosure, port: u16, from: &Path, to: &[&str], round: u64) -> u64 {
    let (mut receiver, mut sender) = begin(enclosure, port, from, to);
    let (sent, code, printed, said) = end(&mut receiver, &mut sender);
    assert!(sent == 0 && code == 0, "{round}: {sent}, {code}: {said}");
    received(&printed).unwrap()["reused_bytes"].as_u64().unwrap()
}

/// Waits for an end that nobody answers any more.
fn wait_long(process: &mut Process) -> Option<i32> {
    let end = Instant::now() + NOTICED;
    while Instant::now() < end {
        if let Some(status) = process.0.try_wait().unwrap() {
            return Some(status.code().unwrap_or(-1));
        }
        thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Pulls the cable of one transfer once.
fn pull_once(enclosure: &Enclosure, from: &Path, round: u64) {
    let (there, port) = (Directory::new(), 10_000 + u16::try_from(round).unwrap());
    let to = [there.0.to_str().unwrap()];
    let whole = fs::read(from).unwrap();
    let (mut receiver, mut sender) = begin(enclosure, port, from, &to);
    thread::sleep(Duration::from_millis(Rng::from_seed(round).below(3000)));
    enclosure.pull(port, true);
    let sent = wait_long(&mut sender).expect("a sender notices");
    let mut noticed = wait_long(&mut receiver.process);
    if noticed.is_none() {
        // It goes on waiting if nobody has come as far as to it.
        receiver.process.signal(Signal::INT);
        noticed = Some(receiver.process.wait());
        let printed = receiver.printed();
        assert!(!printed.contains("\"begun\""), "{round}: a receiver does not notice: {printed}");
    }
    enclosure.pull(port, false);
    let code = noticed.unwrap();
    let said = receiver.end().1;
    if code == 0 {
        // All had come; the sender may not have heard of it.
        assert!(sent <= 1, "{round}: {sent}");
    } else {
        assert!(sent == 1 && [1, 130].contains(&code), "{round}: {sent}, {code}: {said}");
        let known = [&[][..], &[".file.dwell-part".to_owned()]];
        assert!(known.contains(&&there.names()[..]), "{round}: {:?}", there.names());
        let had = bytes_below(&there.0);
        let reused = goes_on(enclosure, port, from, &to, round);
        assert!(reused + AGAIN_BYTES >= had, "{round}: {had} bytes had come, {reused} were there");
        println!("{round}: {had} bytes had come, {reused} were not sent again");
    }
    assert_eq!(there.names(), ["file"], "{round}");
    assert!(fs::read(there.path("file")).unwrap() == whole, "{round}");
}

fn pull_and_resume(rounds: u64) {
    let (here, disk) = (Directory::new(), Directory::new());
    let file = here.path("file");
    fs::write(&file, mixture(4_000_000, 7)).unwrap();
    let at_once = rounds.min(PULLED_AT_ONCE);
    let rate = format!("{}mbit", 8 * at_once);
    let Some(enclosure) = Enclosure::new(&disk.0, 1024, &rate) else { return };
    let all: Vec<u64> = (0..rounds).collect();
    for some in all.chunks(usize::try_from(at_once).unwrap()) {
        thread::scope(|scope| {
            for &round in some {
                let (enclosure, file) = (&enclosure, &file);
                scope.spawn(move || pull_once(enclosure, file, round));
            }
        });
    }
}

fn rounds() -> u64 {
    std::env::var("DWELL_KILLS").map_or(4, |text| text.parse().unwrap())
}

/// A few moments; `./x test --all` asks for a hundred.
#[test]
fn killed_at_some_moment_by_a_pulled_cable_it_goes_on() {
    pull_and_resume(rounds());
}

/// Fills the disk of a receiver once, after so many bytes that chance chooses; then there is room.
fn fill_once(here: &Directory, round: u64) -> bool {
    let mut rng = Rng::from_seed(round);
    let disk = Directory::new();
    let (root, words) = match round % 4 {
        0 => ("file", &[][..]),
        1 => ("tree", &[][..]),
        2 => ("file", &["--overwrite"][..]),
        _ => ("tree", &["--no-clobber"][..]),
    };
    let from = here.path(root);
    let old = if round % 4 == 2 {
        fs::read(&from).unwrap()[1_000_000..3_000_000].to_vec()
    } else {
        Vec::new()
    };
    let room_kib = 64 + rng.below(3000) + old.len() as u64 / 1024;
    let Some(enclosure) = Enclosure::new(&disk.0, room_kib, "1gbit") else { return false };
    let there = enclosure.disk();
    if !old.is_empty() {
        fs::write(there.join("file"), &old).unwrap();
    }
    let to = [words, &[disk.0.to_str().unwrap()]].concat();
    let (mut receiver, mut sender) = begin(&enclosure, 7735, &from, &to);
    let (sent, code, _, said) = end(&mut receiver, &mut sender);
    assert!(
        sent == 1 && code == 1 && said.contains("No space left"),
        "{round}: {sent}, {code}: {said}"
    );
    let had = bytes_below(&there);
    if !old.is_empty() {
        assert!(fs::read(there.join("file")).unwrap() == old, "{round}");
    }
    enclosure.resize(64 << 10);
    let reused = goes_on(&enclosure, 7735, &from, &to, round);
    println!("{round}: {root} {words:?}, {had} bytes were there, {reused} were not sent again");
    // The end of each chunk that is cut elsewhere, and what is in both.
    let again = if old.is_empty() { AGAIN_BYTES } else { 2 * AGAIN_BYTES + old.len() as u64 };
    assert!(reused + again >= had, "{round}: {had} bytes had come, {reused} were there");
    assert_eq!(names(&there), [root], "{round}");
    let differ = Command::new("diff").arg("-r").args([&from, &there.join(root)]).output().unwrap();
    assert!(differ.status.success(), "{round}: {differ:?}");
    true
}

/// A few moments; `./x test --all` asks for a hundred.
#[test]
fn killed_at_some_moment_by_a_full_disk_it_goes_on() {
    let here = Directory::new();
    fs::create_dir(here.path("tree")).unwrap();
    for number in 0..30u64 {
        let bytes = mixture(20_000 + usize::try_from(number * 3_001).unwrap(), number);
        fs::write(here.path(&format!("tree/{number}")), bytes).unwrap();
    }
    fs::write(here.path("tree/large"), mixture(3_000_000, 99)).unwrap();
    fs::write(here.path("file"), mixture(4_000_000, 100)).unwrap();
    for round in 0..rounds() {
        if !fill_once(&here, round) {
            return;
        }
    }
}
