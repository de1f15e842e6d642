//! `dwell send` and `dwell recv` with directories, and after they were killed.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use dwell_base::Rng;
use dwell_testkit::skips::skipped;
use rustix::process::Signal;

use crate::interrupted::{AGAIN_BYTES, bytes_below};
use crate::pair::{Directory, Process, dwell, mixture, wait_until};
use crate::transfer::{Receiver, received};

/// A tree with all that is sent.
fn make_tree(at: &Path) {
    let deep = at.join("deep/er");
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    fs::write(at.join("nothing"), "").unwrap();
    for number in 0..60u32 {
        let bytes = mixture(usize::try_from(number).unwrap() * 997, number.into());
        fs::write(deep.join(format!("{number:03}")), bytes).unwrap();
    }
    fs::write(at.join("large"), mixture(3_000_000, 7)).unwrap();
    fs::write(at.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::hard_link(at.join("large"), at.join("second name")).unwrap();
    symlink("../large", at.join("deep/link")).unwrap();
    symlink("nowhere", at.join("dangling")).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    let set = |path: &Path| {
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    };
    set(&at.join("run.sh"));
    fs::set_permissions(at.join("empty"), fs::Permissions::from_mode(0o500)).unwrap();
    set(&at.join("empty"));
    set(&at.join("deep"));
}

/// All that is kept of a tree: kind, permissions, time, and content or target, by path.
fn described(root: &Path) -> BTreeMap<String, String> {
    described_with(root, true)
}

/// The same, with how many names each file has or without.
fn described_with(root: &Path, counts_names: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let time = (metadata.mtime(), metadata.mtime_nsec());
        let what = if metadata.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            format!("{:o} {time:?} directory", metadata.mode())
        } else {
            let hash = hash(&fs::read(&path).unwrap());
            let (mode, links) = (metadata.mode(), if counts_names { metadata.nlink() } else { 0 });
            format!("{mode:o} {time:?} {links} {} {hash}", metadata.len())
        };
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        found.insert(name, what);
    }
    found
}

/// Links that are named on the command line are followed, alone and beside others.
#[test]
fn named_links_are_followed() {
    for names in [&["to-file"][..], &["to-directory"], &["to-file", "to-directory"]] {
        let (here, there) = (Directory::new(), Directory::new());
        make_tree(&here.path("tree"));
        fs::write(here.path("note"), "beside").unwrap();
        symlink("tree", here.path("to-directory")).unwrap();
        symlink("note", here.path("to-file")).unwrap();
        let mut receiver = Receiver::start(&there.0, &[]);
        let sent = receiver.sender_of(names).current_dir(&here.0).output().unwrap();
        let (code, reported) = receiver.end();
        let said = String::from_utf8_lossy(&sent.stderr).into_owned();
        assert!(sent.status.success() && code == 0, "{names:?}: {said}{reported}");
        for &name in names {
            let (from, to) = (here.path(name), there.path(name));
            assert!(!fs::symlink_metadata(&to).unwrap().is_symlink(), "{name} is sent itself");
            match from.is_dir() {
                true => assert_eq!(described(&here.path("tree")), described(&to), "{name}"),
                false => assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap(), "{name}"),
            }
        }
    }
}

/// Enough to find a difference: FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_tree_comes_across() {
    let (here, there) = (Directory::new(), Directory::new());
    make_tree(&here.path("tree"));
    fs::write(here.path("note"), "beside").unwrap();
    let mut receiver = Receiver::start(&there.0, &[]);
    let sent = receiver.sender_of(&["tree", "note"]).current_dir(&here.0).output().unwrap();
    let said = String::from_utf8(sent.stderr).unwrap();
    let (code, reported) = receiver.end();
    assert_eq!((sent.status.code(), code), (Some(0), 0), "{said}{reported}");
    assert_eq!(there.names(), ["note", "tree"]);
    assert_eq!(described(&there.path("tree")), described(&here.path("tree")));
    let files = fs::metadata(there.path("tree/large")).unwrap();
    assert_eq!(files.ino(), fs::metadata(there.path("tree/second name")).unwrap().ino());
    assert!(reported.contains("received tree and note into this directory: "), "{reported}");
    assert!(reported.contains(" files"), "{reported}");

    // Under another name, and not twice.
    let mut receiver = Receiver::start(&there.0, &["other"]);
    assert!(receiver.sender("tree").current_dir(&here.0).output().unwrap().status.success());
    let (code, reported) = receiver.end();
    assert!(code == 0 && reported.contains("received other: "), "{reported}");
    assert_eq!(described(&there.path("other")), described(&here.path("tree")));
    let mut receiver = Receiver::start(&there.0, &[]);
    let sent = receiver.sender("tree").current_dir(&here.0).output().unwrap();
    let said = String::from_utf8(sent.stderr).unwrap();
    assert!(sent.status.code() == Some(1) && said.contains("tree exists"), "{said}");
    assert_eq!(receiver.end().0, 1);
    assert_eq!(there.names(), ["note", "other", "tree"]);
}

#[test]
fn what_is_there_is_replaced_or_kept() {
    let (here, there) = (Directory::new(), Directory::new());
    make_tree(&here.path("tree"));
    make_tree(&there.path("tree"));
    fs::write(there.path("tree/run.sh"), "mine").unwrap();
    fs::write(there.path("tree/deep/own"), "mine").unwrap();
    fs::remove_file(there.path("tree/nothing")).unwrap();

    let mut receiver = Receiver::start(&there.0, &["--no-clobber"]);
    assert!(receiver.sender("tree").current_dir(&here.0).output().unwrap().status.success());
    let (code, said) = receiver.end();
    assert!(code == 0 && said.contains(" stayed as "), "{said}");
    assert_eq!(fs::read(there.path("tree/run.sh")).unwrap(), b"mine");
    assert!(there.path("tree/nothing").exists());

    for arguments in [&["--quick", "tree"][..], &["tree"]] {
        let mut receiver = Receiver::start(&there.0, &["--overwrite"]);
        let sent = receiver.sender_of(arguments).current_dir(&here.0).output().unwrap();
        assert!(sent.status.success());
        let (code, said) = receiver.end();
        assert!(code == 0 && said.contains("of it were there"), "{said}");
    }
    fs::remove_file(there.path("tree/deep/own")).unwrap();
    let time = FileTimes::new()
        .set_modified(fs::metadata(here.path("tree/deep")).unwrap().modified().unwrap());
    File::open(there.path("tree/deep")).unwrap().set_times(time).unwrap();
    let (mut mine, theirs) = (described(&there.path("tree")), described(&here.path("tree")));
    // With --no-clobber the second name of a file stays as it is, too.
    mine.retain(|name, what| theirs.get(name) != Some(what));
    assert!(mine.is_empty(), "{mine:?}");
}

/// The sender knows no permissions for it.
#[test]
fn a_directory_for_several_things_has_the_permissions_that_the_umask_leaves() {
    let (here, there) = (Directory::new(), Directory::new());
    for name in ["a", "b"] {
        fs::write(here.path(name), name).unwrap();
    }
    let at = crate::pair::free_port().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 027; exec \"$@\"", "sh"]).arg(dwell().get_program());
    command.args(["recv", "--listen", &at, "both"]).current_dir(&there.0);
    let mut receiver = Receiver::of(command, &at);
    let sent = receiver.sender_of(&["a", "b"]).current_dir(&here.0).output().unwrap();
    let (code, said) = receiver.end();
    assert!(sent.status.success() && code == 0, "{said}");
    assert_eq!(fs::metadata(there.path("both")).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_dir(there.path("both")).unwrap().count(), 2);
}

#[test]
fn a_receiver_that_stays_serves_several() {
    let (here, there) = (Directory::new(), Directory::new());
    let mut receiver = Receiver::start(&there.0, &["--keep"]);
    for name in ["a", "b"] {
        fs::write(here.path(name), name.repeat(100)).unwrap();
        assert!(receiver.sender(name).current_dir(&here.0).output().unwrap().status.success());
    }
    // What fails does not end it.
    assert_eq!(receiver.sender("a").current_dir(&here.0).output().unwrap().status.code(), Some(1));
    let senders: Vec<_> = (0..8)
        .map(|number| {
            let name = format!("many{number}");
            fs::write(here.path(&name), mixture(200_000, number)).unwrap();
            receiver.sender(&name).current_dir(&here.0).spawn().unwrap()
        })
        .collect();
    for mut sender in senders {
        assert!(sender.wait().unwrap().success());
    }
    receiver.process.signal(Signal::INT);
    let (code, said) = receiver.end();
    assert!(code == 0 && said.contains("a exists"), "{said}");
    assert_eq!(there.names().len(), 10);
}

#[test]
fn links_that_lead_outside_are_left_out() {
    let (here, there) = (Directory::new(), Directory::new());
    fs::create_dir(here.path("tree")).unwrap();
    symlink("/etc/passwd", here.path("tree/away")).unwrap();
    symlink("../..", here.path("tree/up")).unwrap();
    symlink("up", here.path("tree/fine")).unwrap();
    let mut receiver = Receiver::start(&there.0, &[]);
    let sent = receiver.sender("tree").current_dir(&here.0).output().unwrap();
    let (code, said) = receiver.end();
    assert_eq!((sent.status.code(), code), (Some(3), 3), "{said}");
    assert!(said.contains("tree/away is a link that leads outside, to /etc/passwd"), "{said}");
    assert!(String::from_utf8(sent.stderr).unwrap().contains("2 by the receiver"));
    assert!(fs::symlink_metadata(there.path("tree/fine")).is_ok());
    assert!(fs::symlink_metadata(there.path("tree/away")).is_err());
    let mut receiver = Receiver::start(&there.0, &["--links-outside", "all"]);
    assert!(receiver.sender("tree").current_dir(&here.0).output().unwrap().status.success());
    assert_eq!(receiver.end().0, 0);
    assert_eq!(described(&there.path("all")).len(), 4);
}

/// How what is sent goes to what is there.
#[derive(Clone, Copy, Debug)]
struct Manner {
    roots: &'static [&'static str],
    words: &'static [&'static str],
}

const MANNERS: [Manner; 5] = [
    Manner { roots: &["tree"], words: &[] },
    Manner { roots: &["tree", "large", "other"], words: &[] },
    Manner { roots: &["tree"], words: &["--overwrite"] },
    Manner { roots: &["tree", "large"], words: &["--no-clobber"] },
    Manner { roots: &["large"], words: &[] },
];

/// Of the file with two names.
const LARGE_BYTES: u64 = 12_000_000;

/// Kills either end at moments that chance chooses, again and again, and then lets it finish: what is there is what was
/// sent, nothing else, and what had come was not sent again.
fn kill_and_resume(rounds: u64) {
    let here = Directory::new();
    fs::create_dir(here.path("tree")).unwrap();
    for number in 0..40u64 {
        let bytes = mixture(20_000 + usize::try_from(number * 3_001).unwrap(), number);
        fs::write(here.path(&format!("tree/{number}")), bytes).unwrap();
    }
    let large = mixture(usize::try_from(LARGE_BYTES).unwrap(), 99);
    fs::write(here.path("tree/large"), large).unwrap();
    fs::hard_link(here.path("tree/large"), here.path("tree/zzz")).unwrap();
    fs::write(here.path("large"), mixture(9_000_000, 100)).unwrap();
    fs::write(here.path("other"), mixture(90_000, 101)).unwrap();
    for round in 0..rounds {
        let manner = MANNERS[usize::try_from(round).unwrap() % MANNERS.len()];
        let mut rng = Rng::from_seed(round);
        let there = Directory::new();
        let mut may_be_apart = false;
        for _ in 0..3 {
            let kills_receiver = rng.chance(0.5);
            kill_once(&here, &there, manner, (rng.below(300), kills_receiver));
            let in_place = !manner.words.is_empty();
            let is_part = |name: &String| name.starts_with('.') && name.ends_with(".dwell-part");
            let (names, complete) = (there.names(), there.names() == sorted(manner.roots));
            // Of several roots some may have their names already.
            let several = manner.roots.len() > 1;
            let is_root = |name: &String| several && manner.roots.contains(&name.as_str());
            let is_known = |name: &String| is_part(name) || is_root(name);
            assert!(in_place || complete || names.iter().all(is_known), "{names:?}");
            if complete && !in_place {
                break;
            }
            may_be_apart |= is_between_names(&there, manner);
        }
        let (all, had) = (unique_bytes(&here, manner.roots), bytes_below(&there.0));
        let mut receiver = Receiver::start(&there.0, &[manner.words, &["--json"]].concat());
        let is_there = manner.words.is_empty() && there.names() == sorted(manner.roots);
        if is_there {
            receiver.process.signal(Signal::INT);
            receiver.end();
        } else {
            let sent = receiver.sender_of(manner.roots).current_dir(&here.0).output().unwrap();
            // A receiver goes on waiting if nobody has come as far as to it.
            assert!(sent.status.success(), "{round} {manner:?}: {sent:?}");
            let printed = receiver.printed();
            let said = receiver.end();
            assert!(said.0 == 0, "{round} {manner:?}: {said:?}");
            let line = received(&printed).unwrap();
            let moved = line["bytes"].as_u64().unwrap() - line["reused_bytes"].as_u64().unwrap();
            let most = all + AGAIN_BYTES + if may_be_apart { LARGE_BYTES } else { 0 };
            assert!(moved + had <= most, "{round} {manner:?}: {had} of {all}, {line}");
        }
        assert_eq!(there.names(), sorted(manner.roots), "{round} {manner:?}");
        for root in manner.roots {
            let both = [&here, &there].map(|it| described_with(&it.path(root), !may_be_apart));
            assert_eq!(both[0], both[1], "{round} {manner:?}");
        }
    }
}

/// The large file has its first name, and the receiver was killed before it had the other: with `--no-clobber` what has the
/// first is kept from then on, whatever it is, and so the other becomes a file of its own.
fn is_between_names(there: &Directory, manner: Manner) -> bool {
    let is_there = |name| there.path(name).exists();
    manner.words.contains(&"--no-clobber") && is_there("tree/large") && !is_there("tree/zzz")
}

/// The bytes of what is sent; of a file with several names once.
fn unique_bytes(here: &Directory, roots: &[&str]) -> u64 {
    roots.iter().map(|root| bytes_below(&here.path(root))).sum()
}

fn sorted(names: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    names.sort();
    names
}

/// Begins a transfer, and kills one end after so many milliseconds.
fn kill_once(
    here: &Directory,
    there: &Directory,
    manner: Manner,
    (after_ms, kills_receiver): (u64, bool),
) {
    let mut receiver = Receiver::start(&there.0, manner.words);
    let mut sender = receiver.sender_of(manner.roots);
    let mut sender = Process(sender.current_dir(&here.0).spawn().unwrap());
    thread::sleep(Duration::from_millis(after_ms));
    if kills_receiver {
        receiver.process.signal(Signal::KILL);
    } else {
        sender.signal(Signal::KILL);
        // If it had not come as far as to connect, the receiver waits for another one.
        let end = Instant::now() + Duration::from_secs(2);
        while receiver.process.0.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                receiver.process.signal(Signal::KILL);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    let _ = (sender.wait(), receiver.end());
}

/// What is there is found only after the sender has asked for what had come: both say so, and end.
#[test]
fn a_name_that_was_taken_after_a_break_is_said_at_once() {
    let (here, there) = (Directory::new(), Directory::new());
    fs::create_dir(here.path("tree")).unwrap();
    fs::write(here.path("tree/file"), mixture(8_000_000, 5)).unwrap();
    kill_once(&here, &there, MANNERS[0], (0, true));
    fs::create_dir_all(there.path(".tree.dwell-part/.dwell-part")).unwrap();
    for private in [".tree.dwell-part", ".tree.dwell-part/.dwell-part"] {
        fs::set_permissions(there.path(private), fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::create_dir(there.path("tree")).unwrap();
    let mut receiver = Receiver::start(&there.0, &[]);
    let sent = receiver.sender("tree").current_dir(&here.0).output().unwrap();
    let (code, said) = receiver.end();
    assert!(code == 1 && said.contains("tree exists"), "{said}");
    let said = String::from_utf8(sent.stderr).unwrap();
    assert!(sent.status.code() == Some(1) && said.contains("tree exists"), "{said}");
}

/// A few moments; `./x test --all` asks for a hundred.
#[test]
fn killed_at_some_moment_it_goes_on() {
    let rounds = std::env::var("DWELL_KILLS").map_or(5, |text| text.parse().unwrap());
    kill_and_resume(rounds);
}

/// What is short goes at once, what is longer has a head: in both the receiver could keep a file without having been asked.
#[test]
fn what_is_kept_gets_no_other_names() {
    for len in [10_000, 3_000_000] {
        let (here, there) = (Directory::new(), Directory::new());
        for (directory, seed) in [(&here, 1), (&there, 2)] {
            fs::create_dir(directory.path("tree")).unwrap();
            fs::write(directory.path("tree/file"), mixture(len, seed)).unwrap();
        }
        for other in ["tree/yyy", "tree/zzz"] {
            fs::hard_link(here.path("tree/file"), here.path(other)).unwrap();
        }
        let before = fs::read(there.path("tree/file")).unwrap();
        let mut receiver = Receiver::start(&there.0, &["--no-clobber"]);
        let sent = receiver.sender("tree").current_dir(&here.0).output().unwrap();
        assert!(sent.status.success(), "{len}: {sent:?}");
        let (code, said) = receiver.end();
        assert_eq!(code, 0, "{len}: {said}");
        assert!(fs::read(there.path("tree/file")).unwrap() == before, "{len}");
        let sent = fs::read(here.path("tree/file")).unwrap();
        assert!(fs::read(there.path("tree/yyy")).unwrap() == sent, "{len}");
        // The two that are new are one file.
        let node = |name| fs::metadata(there.path(name)).unwrap().ino();
        assert_eq!(node("tree/yyy"), node("tree/zzz"), "{len}");
    }
}

#[test]
fn a_file_goes_on_where_it_stopped() {
    let (here, there) = (Directory::new(), Directory::new());
    let bytes = mixture(8_000_000, 5);
    fs::write(here.path("file"), &bytes).unwrap();
    // As if it had been killed after three quarters, with a block that was damaged meanwhile.
    let mut part = bytes[..6_000_000].to_vec();
    part[1_000_000] ^= 1;
    fs::write(there.path(".file.dwell-part"), &part).unwrap();
    let mut receiver = Receiver::start(&there.0, &[]);
    assert!(receiver.sender("file").current_dir(&here.0).output().unwrap().status.success());
    let (code, said) = receiver.end();
    assert!(code == 0 && said.contains("(5.9 MB of it were there)"), "{said}");
    assert_eq!(there.names(), ["file"]);
    assert!(fs::read(there.path("file")).unwrap() == bytes);
}

/// A disk that has room for a megabyte, in a namespace of its own, and then for more.
#[test]
fn a_full_disk_leaves_what_came_for_later() {
    let there = Directory::new();
    let inside = "mount -t tmpfs -o size=1m none . && cd . && ls -A && \"$@\"; echo code $?; ls -A; \
                  mount -o remount,size=32m . && \"$@\"; echo code $?; ls -A";
    let can = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none"])
        .arg(&there.0)
        .stderr(Stdio::null())
        .status();
    if !can.is_ok_and(|status| status.success()) {
        skipped("no file systems can be mounted here");
        return;
    }
    let here = Directory::new();
    fs::write(here.path("file"), mixture(9_000_000, 3)).unwrap();
    let at = crate::pair::free_port().to_string();
    let psk = here.path("psk");
    assert!(dwell().args(["genpsk", "--out"]).arg(&psk).status().unwrap().success());
    let mut command = Command::new("unshare");
    let program = dwell();
    let inside = format!("cd {} && {inside}", there.0.display());
    command.args(["-rm", "sh", "-c", &inside, "sh"]).arg(program.get_program());
    command.args(["recv", "--listen", &at, "--psk"]).arg(&psk);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let receiver = command.spawn().unwrap();
    wait_until("it listens", || std::net::TcpStream::connect(&at).is_ok());
    let send = || {
        let mut command = dwell();
        command.arg("send").arg(here.path("file")).args([&at, "--psk"]).arg(&psk);
        command.output().unwrap()
    };
    let sent = send();
    let said = String::from_utf8(sent.stderr).unwrap();
    assert!(sent.status.code() == Some(1) && said.contains("No space left"), "{said}");
    wait_until("it listens again", || send().status.success());
    let output = receiver.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("No space left") && said.contains(".file.dwell-part"), "{said}");
    assert!(said.contains("of it were there)"), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "code 1\n.file.dwell-part\ncode 0\nfile\n");
}
