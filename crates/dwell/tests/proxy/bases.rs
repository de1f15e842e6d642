//! What is there is not sent: a part and what it is to replace together, and files under other names.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::pair::{Directory, dwell, mixture};
use crate::transfer::{Receiver, received};

/// Sends a file into a directory: what the receiver prints of it, and says.
fn sent(file: &Path, to: &Directory, words: &[&str]) -> (Value, String) {
    let mut receiver = Receiver::start(&to.0, &[&["--json"], words].concat());
    let sent = receiver.sender(file.to_str().unwrap()).output().unwrap();
    let printed = receiver.printed();
    let (code, said) = receiver.end();
    assert!(sent.status.success() && code == 0, "{sent:?}: {said}");
    (received(&printed).unwrap(), said)
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("{name}: {line}"))
}

/// A dump of 10 MB, and the next one: rows were added at the beginning and in the middle.
fn dumps() -> (Vec<u8>, Vec<u8>) {
    let old = mixture(10_000_000, 1);
    let new =
        [&mixture(100_000, 2)[..], &old[..5_000_000], &mixture(500_000, 3), &old[5_000_000..]];
    let new = new.concat();
    (old, new)
}

/// What had come of a long file, and what it is to replace, are both not sent.
#[test]
fn an_overwrite_that_broke_off_sends_neither_part_nor_old_file() {
    let (old, new) = dumps();
    let (here, there) = (Directory::new(), Directory::new());
    fs::write(here.path("file"), &new).unwrap();
    fs::write(there.path("file"), &old).unwrap();
    // As if it had been killed amid the rows in the middle.
    fs::write(there.path(".file.dwell-part"), &new[..5_300_000]).unwrap();
    let (line, _) = sent(&here.path("file"), &there, &["--overwrite"]);
    assert!(fs::read(there.path("file")).unwrap() == new);
    assert_eq!(there.names(), ["file"]);
    let moved = number(&line, "bytes") - number(&line, "reused_bytes");
    // The rest of the rows, and the chunks in which they begin and end.
    assert!((300_000 - 65_536..300_000 + 100_000).contains(&moved), "{line}");
    assert_eq!(number(&line, "basis_bytes"), 0);
}

#[test]
fn a_dump_of_the_next_day_is_copied_from_the_one_before() {
    let (old, new) = dumps();
    let (here, there) = (Directory::new(), Directory::new());
    fs::write(here.path("db-2026-11-30.sql"), &new).unwrap();
    fs::write(there.path("db-2026-11-29.sql"), &old).unwrap();
    let (line, said) = sent(&here.path("db-2026-11-30.sql"), &there, &["--basis", "."]);
    assert!(fs::read(there.path("db-2026-11-30.sql")).unwrap() == new);
    assert!(fs::read(there.path("db-2026-11-29.sql")).unwrap() == old);
    let (bytes, of_basis) = (number(&line, "bytes"), number(&line, "basis_bytes"));
    assert!(bytes - of_basis < 750_000 && of_basis == number(&line, "reused_bytes"), "{line}");
    // With --json nothing else is said of it.
    assert!(!said.contains("received"), "{said}");
    assert_eq!((line["name"].as_str(), number(&line, "files")), (Some("db-2026-11-30.sql"), 1));
    assert_eq!(line["blake3"].as_str().map(str::len), Some(64));
}

#[test]
fn a_directory_that_was_moved_is_copied() {
    let (here, there) = (Directory::new(), Directory::new());
    fs::create_dir_all(here.path("new-2.0/deep")).unwrap();
    fs::create_dir_all(there.path("store/old-1.9/deep")).unwrap();
    for number in 0..20 {
        let bytes = mixture(200_000, number);
        fs::write(there.path(&format!("store/old-1.9/deep/{number}.bin")), &bytes).unwrap();
        let changed = [b"new", &bytes[..]].concat();
        fs::write(here.path(&format!("new-2.0/deep/{number}.bin")), changed).unwrap();
    }
    let mut receiver = Receiver::start(&there.0, &["--basis", "store"]);
    let sent = receiver.sender("new-2.0").current_dir(&here.0).output().unwrap();
    let (code, said) = receiver.end();
    assert!(sent.status.success() && code == 0, "{sent:?}: {said}");
    let few = ["3.9", "4.0"].map(|mb| format!("{mb} MB in a basis)"));
    assert!(few.iter().any(|few| said.contains(few)), "{said}");
    for number in 0..20 {
        let files = [here.path("new-2.0"), there.path("new-2.0")];
        let [a, b] = files.map(|at| fs::read(at.join(format!("deep/{number}.bin"))).unwrap());
        assert!(a == b, "{number}");
    }
    assert_eq!(there.names(), ["new-2.0", "store"]);
}

#[test]
fn what_is_no_basis_is_said() {
    let there = Directory::new();
    let said = |words: &[&str]| {
        let output = dwell().arg("recv").args(words).current_dir(&there.0).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said(&["--basis", "no-such"]);
    assert!(text.contains("no-such can't be read: No such file or directory"), "{text}");
    let text = said(&["--basis", "/dev/null"]);
    assert!(text.contains("neither a file nor a directory"), "{text}");
    let text = said(&["--basis", ".", "-"]);
    assert!(text.contains("standard output is none"), "{text}");
    let text = said(&["--basis", "."].repeat(9));
    assert!(text.contains("8 times"), "{text}");
    let text = said(&["--json", "-"]);
    assert!(text.contains("--json writes to standard output"), "{text}");
}

/// A receiver that stays says of each transfer what one that does not says, in words or as JSON.
#[test]
fn a_receiver_that_stays_says_what_has_come() {
    for json in [false, true] {
        let (here, there) = (Directory::new(), Directory::new());
        let words = if json { &["--keep", "--json"][..] } else { &["--keep"] };
        let mut receiver = Receiver::start(&there.0, words);
        for (number, name) in ["one", "two", "one"].iter().enumerate() {
            fs::write(here.path(name), mixture(300_000, 5)).unwrap();
            let sent = receiver.sender(name).current_dir(&here.0).output().unwrap();
            // What is there is refused.
            assert_eq!(sent.status.success(), number < 2, "{sent:?}");
        }
        receiver.process.signal(Signal::INT);
        let printed = receiver.printed();
        let (code, said) = receiver.end();
        assert_eq!(code, 0, "{said}");
        if !json {
            assert!(printed.is_empty(), "{printed}");
            assert_eq!(
                said.matches("received one from 127.0.0.1: 300.0 kB in ").count(),
                1,
                "{said}"
            );
            assert!(said.contains("/s, ratio 0.") && said.contains(", BLAKE3 "), "{said}");
            assert!(said.contains("a transfer from 127.0.0.1 failed: ./one exists"), "{said}");
            continue;
        }
        let lines: Vec<Value> =
            printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["begun", "received", "begun", "received", "begun", "failed"]);
        assert_eq!((&lines[2]["name"], &lines[2]["bytes"]), (&"two".into(), &300_000.into()));
        // With the port, in which transfers from one host differ.
        let from: Vec<_> = lines.iter().map(|line| line["from"].as_str().unwrap()).collect();
        assert!(from.iter().all(|from| from.starts_with("127.0.0.1:")), "{printed}");
        assert!(from[0] == from[1] && from[2] == from[3] && from[0] != from[2], "{printed}");
        assert!(!said.contains("failed"), "{said}");
        assert!(number(&lines[1], "link_bytes") < 300_000 && number(&lines[1], "elapsed_ns") > 0);
        assert!(lines[5]["error"].as_str().unwrap().contains("one exists"), "{printed}");
        assert_eq!(lines[5]["part"], Value::Null);
    }
}
