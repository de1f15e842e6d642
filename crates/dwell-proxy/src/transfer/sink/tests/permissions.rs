//! A receiver who is not root, and directories that its owner can't write to once they are complete.

use dwell_testkit::skips::skipped;

use super::*;

const REPLACES: Policy = Policy { existing: Existing::Replace, ..STRICT };

/// Runs a test as a user whom permissions stop: root becomes somebody else, on a thread of its own.
fn as_user(test: impl FnOnce() + Send + 'static) {
    let become_user = move || {
        let user = rustix::process::Uid::from_raw(65_534);
        if rustix::process::geteuid().is_root()
            && let Err(error) = rustix::thread::set_thread_res_uid(user, user, user)
        {
            skipped(format!("root can't become another user: {error}"));
            return;
        }
        test();
    };
    if let Err(panic) = thread::spawn(become_user).join() {
        std::panic::resume_unwind(panic);
    }
}

fn text(name: &str, content: &[u8; 5], link_id: u64) -> Vec<u8> {
    let (meta, bytes) = (Some(META), Some(5));
    let entry = FileEntry { path: path(name), meta, bytes, link_id, was_asked: false };
    let mut stream = Vec::new();
    Record::File(entry).put(&mut stream);
    put_data(&mut stream, content);
    Record::End(5, *blake3::hash(content).as_bytes()).put(&mut stream);
    stream
}

/// A tree whose directories have these permissions, with files in them.
fn tree(mode: u32, content: &[u8; 5]) -> Vec<u8> {
    let locked = Meta { mode, ..META };
    let begun = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), locked),
        Record::Directory(path("tree/a"), locked),
    ];
    let link = Record::Symlink(path("tree/link"), META, b"a".to_vec());
    let hard = Record::HardLink(path("tree/a/linked"), 7);
    let in_a = [text("tree/a/file", content, 7), stream(&[hard])].concat();
    [stream(&begun), in_a, text("tree/file", content, 0), stream(&[link])].concat()
}

fn opened(to: &Directory) -> Sink {
    let (mut sink, _) = open(to, true, REPLACES);
    (sink.files_max, sink.others_max, sink.bytes_max) = (10, 10, 1 << 20);
    sink
}

/// So that they can be looked into and removed.
fn unlock(to: &Directory) {
    for name in ["tree", "tree/a"] {
        fs::set_permissions(to.0.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn directories_that_are_not_writable_are_received_again() {
    as_user(|| {
        for locked in [0o555, 0o500, 0o300, 0] {
            let to = Directory::new(&format!("again-{locked:o}"));
            for content in [b"hello", b"other", b"other"] {
                let mut sink = opened(&to);
                sink.take(&tree(locked, content), &mut |_| true).unwrap();
                assert_eq!(sink.finish(|| true).unwrap().files, 3);
                assert_eq!(mode(&to.0.join("tree")), locked);
                unlock(&to);
                let at = |name: &str| to.0.join("tree").join(name);
                assert_eq!(fs::read(at("a/file")).unwrap(), content);
                assert_eq!(fs::read(at("a/linked")).unwrap(), content);
                let locked = fs::Permissions::from_mode(locked);
                for name in ["tree/a", "tree"] {
                    fs::set_permissions(to.0.join(name), locked.clone()).unwrap();
                }
            }
            unlock(&to);
        }
    });
}

#[test]
fn what_broke_off_in_place_is_gone_on_with() {
    as_user(|| {
        let to = Directory::new("in-place");
        let whole = tree(0o555, b"hello");
        // All but the last record: a directory in it is complete.
        let mut sink = opened(&to);
        sink.take(&whole[..whole.len() - 1], &mut |_| true).unwrap();
        sink.give_up();
        assert_eq!(mode(&to.0.join("tree/a")), 0o555);
        let mut sink = opened(&to);
        sink.take(&tree(0o555, b"other"), &mut |_| true).unwrap();
        assert_eq!(sink.finish(|| true).unwrap().files, 3);
        assert_eq!(["tree", "tree/a"].map(|name| mode(&to.0.join(name))), [0o555; 2]);
        unlock(&to);
    });
}

/// Its owner wants it to stay as it is.
#[test]
fn a_directory_that_stays_is_not_made_writable() {
    as_user(|| {
        let to = Directory::new("stays-locked");
        for name in ["tree", "tree/a"] {
            fs::create_dir(to.0.join(name)).unwrap();
        }
        fs::set_permissions(to.0.join("tree/a"), fs::Permissions::from_mode(0o500)).unwrap();
        let (mut sink, _) = open(&to, true, Policy { existing: Existing::Keep, ..STRICT });
        (sink.files_max, sink.others_max, sink.bytes_max) = (10, 10, 1 << 20);
        assert!(sink.take(&tree(0o755, b"hello"), &mut |_| true).is_err());
        assert_eq!(mode(&to.0.join("tree/a")), 0o500);
        unlock(&to);
    });
}

/// Nothing is written to its directory.
#[test]
fn a_hard_link_that_is_there_stays() {
    as_user(|| {
        let to = Directory::new("linked-again");
        let mut sink = opened(&to);
        sink.take(&tree(0o755, b"hello"), &mut |_| true).unwrap();
        fs::set_permissions(to.0.join("tree/a"), fs::Permissions::from_mode(0o555)).unwrap();
        let again = stream(&[Record::HardLink(path("tree/a/linked"), 7)]);
        sink.take(&again, &mut |_| true).unwrap();
        assert_eq!(sink.finish(|| true).unwrap().files, 4);
    });
}
