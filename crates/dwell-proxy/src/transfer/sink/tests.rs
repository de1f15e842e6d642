use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use dwell_base::Rng;
use walkdir::WalkDir;

use super::*;
use crate::transfer::blocks::Blocks;
use crate::transfer::chunks::{Chunks, Grain};
use crate::transfer::placing;
use crate::transfer::record::{FileEntry, put_data};
use crate::transfer::repeats::Finder;
use crate::transfer::source::{Outlet, Recorder, Sent, Source};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-sink-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const STRICT: Policy = Policy { existing: Existing::Refuse, allows_links_outside: false };

fn open(to: &Directory, is_tree: bool, policy: Policy) -> (Sink, bool) {
    let (name, window_log2) = ("tree".to_owned(), 20);
    let offer =
        Offer { name, bytes: None, files: 1, others: 1, is_tree, is_eager: false, window_log2 };
    let place = Place::Directory(to.0.clone());
    let (mut sink, asks) = Sink::open(&place, &offer, policy, Arc::default()).unwrap();
    sink.hold(20);
    (sink, asks)
}

fn path(text: &str) -> EntryPath {
    EntryPath::new(text.as_bytes()).unwrap()
}

const META: Meta = Meta { mode: 0o755, mtime_s: 1, mtime_ns: 2 };

fn file(text: &str) -> Record {
    let (meta, bytes) = (Some(META), Some(5));
    Record::File(FileEntry { path: path(text), meta, bytes, link_id: 0, was_asked: false })
}

fn hello() -> Record {
    Record::End(5, *blake3::hash(b"hello").as_bytes())
}

/// A stream of records, with "hello" as the data of each file.
fn stream(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        record.put(&mut bytes);
        if matches!(record, Record::File(_)) {
            put_data(&mut bytes, b"hello");
        }
    }
    bytes
}

/// What becomes of a stream to here; what is not complete is given up.
fn written(to: &Directory, is_tree: bool, records: &[Record]) -> Result<Received, String> {
    let (mut sink, _) = open(to, is_tree, STRICT);
    let taken = sink.take(&stream(records), &mut |_| true);
    let received = taken.and_then(|()| sink.finish(|| true));
    sink.give_up();
    received.map_err(|error| error.to_string())
}

#[test]
fn nothing_is_written_through_links() {
    let (to, outside) = (Directory::new("links"), Directory::new("links-outside"));
    let target = outside.0.as_os_str().as_bytes().to_vec();
    let link = Record::Symlink(path("tree/link"), META, target);
    let hostile = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        link.clone(),
        file("tree/link/evil"),
        hello(),
    ];
    let policy = Policy { allows_links_outside: true, ..STRICT };
    let (mut sink, _) = open(&to, true, policy);
    let error = sink.take(&stream(&hostile), &mut |_| true).unwrap_err();
    assert!(matches!(error, SinkError::Write { .. }), "{error}");
    assert!(outside.names().is_empty());
    drop(sink);
    // A directory in place of the link, and then the link as if it were one.
    let hostile = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        link,
        Record::Directory(path("tree/link"), META),
        file("tree/link/harmless"),
        hello(),
    ];
    let (mut sink, _) = open(&to, true, policy);
    sink.take(&stream(&hostile), &mut |_| true).unwrap();
    assert!(outside.names().is_empty());
}

#[test]
fn links_that_lead_outside_are_not_made() {
    let to = Directory::new("links-away");
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        Record::Symlink(path("tree/a"), META, b"../../etc".to_vec()),
        Record::Symlink(path("tree/b"), META, b"a".to_vec()),
        Record::HardLink(path("tree/c"), 7),
    ];
    let received = written(&to, true, &records).unwrap();
    assert_eq!((received.left_out, received.remarks.len()), (2, 2));
    assert_eq!(fs::read_dir(to.0.join("tree")).unwrap().count(), 1);
}

#[test]
fn much_more_than_was_offered_is_stopped() {
    let expected = (100 + (64 << 20), (1 << 40) + (1 << 38));
    assert_eq!((with_growth(100, BYTES_MORE), with_growth(1 << 40, BYTES_MORE)), expected);
    assert_eq!(with_growth(u64::MAX, ENTRIES_MORE), u64::MAX);
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        file("tree/a"),
        hello(),
        file("tree/b"),
        hello(),
        Record::Directory(path("tree/c"), META),
        Record::Symlink(path("tree/d"), META, b"a".to_vec()),
    ];
    let cases = [
        (10, 2, 3, true),
        (9, 2, 3, false),
        (10, 1, 3, false),
        (10, 2, 2, false),
        (10, 2, 1, false),
    ];
    for (bytes_max, files_max, others_max, fits) in cases {
        let to = Directory::new("exceeds");
        let (mut sink, _) = open(&to, true, STRICT);
        (sink.bytes_max, sink.files_max, sink.others_max) = (bytes_max, files_max, others_max);
        let taken = sink.take(&stream(&records), &mut |_| true);
        assert_eq!(taken.is_ok(), fits, "{bytes_max}, {files_max}, {others_max}");
        assert!(
            fits || matches!(taken, Err(SinkError::Refused(why)) if why.contains("than were offered"))
        );
    }
}

#[test]
fn hostile_orders_are_refused() {
    let root = || Record::Root(path("tree"));
    let directory = || Record::Directory(path("tree"), META);
    let cases: &[&[Record]] = &[
        &[],
        // Of no root, or beside it.
        &[directory()],
        &[root(), file("other"), hello()],
        &[root(), Record::Root(path("tree")), directory()],
        &[Record::Root(path("tree/a")), directory()],
        // A file that does not end, or another one that begins before.
        &[root(), directory(), file("tree/a")],
        &[root(), directory(), file("tree/a"), file("tree/b"), hello()],
        &[root(), directory(), hello()],
        // What nobody asked for.
        &[root(), directory(), Record::Skip],
        &[root(), directory(), Record::Copy(1)],
        &[root(), directory(), file("tree/a"), Record::Copy(u64::MAX), hello()],
        // Bytes that never came.
        &[root(), directory(), file("tree/a"), Record::Repeat { distance: 6, bytes: 1 }, hello()],
        &[root(), directory(), file("tree/a"), Record::Repeat { distance: 0, bytes: 1 }, hello()],
        &[root(), directory(), Record::Repeat { distance: 1, bytes: 1 }],
        // A file as a directory.
        &[root(), directory(), file("tree/a"), hello(), file("tree/a/b"), hello()],
        // Other bytes than were announced.
        &[root(), directory(), file("tree/a"), Record::End(4, [0; 32])],
        &[root(), directory(), file("tree/a"), Record::End(5, [0; 32])],
    ];
    for (number, records) in cases.iter().enumerate() {
        let to = Directory::new("orders");
        assert!(written(&to, true, records).is_err(), "{number}");
        assert!(to.names().iter().all(|name| name == ".tree.dwell-part"), "{number}");
    }
    // One file was offered.
    let to = Directory::new("orders");
    let cases: &[&[Record]] = &[
        &[root(), directory()],
        &[root(), file("tree"), hello(), file("tree"), hello()],
        &[root(), Record::Root(path("b")), file("tree"), hello()],
    ];
    for records in cases {
        assert!(written(&to, false, records).is_err());
    }
    assert!(to.names().iter().all(|name| name == ".tree.dwell-part"));
    assert!(written(&to, false, &[root(), file("tree"), hello()]).is_ok());
    assert_eq!(to.names(), ["tree"]);
}

/// Nobody waits for it any more: it does not get its name.
#[test]
fn what_is_given_up_does_not_come_to_its_place() {
    let to = Directory::new("given-up");
    let records = [Record::Root(path("tree")), file("tree"), hello()];
    let (mut sink, _) = open(&to, false, STRICT);
    sink.take(&stream(&records), &mut |_| true).unwrap();
    assert!(sink.finish(|| false).is_err());
    let kept = sink.give_up().unwrap();
    assert_eq!(kept.path, to.0.join(".tree.dwell-part"));
    assert_eq!(to.names(), [".tree.dwell-part"]);
}

/// A name that somebody else took meanwhile is theirs.
#[test]
fn what_came_meanwhile_is_not_replaced() {
    let to = Directory::new("meanwhile");
    let records = [Record::Root(path("tree")), file("tree"), hello()];
    let (mut sink, _) = open(&to, false, STRICT);
    sink.take(&stream(&records), &mut |_| true).unwrap();
    fs::write(to.0.join("tree"), "mine").unwrap();
    assert!(sink.finish(|| true).is_err());
    assert_eq!(fs::read(to.0.join("tree")).unwrap(), b"mine");
}

struct Channel(mpsc::SyncSender<Vec<u8>>);

impl Outlet for Channel {
    fn put(&mut self, piece: Vec<u8>) -> bool {
        self.0.send(piece).is_ok()
    }
}

/// Sends what is at `from`, until so many bytes have come. Returns the account if it came to its end.
fn transferred(from: &Path, to: &Directory, until: usize) -> Option<(Sent, Received, u64)> {
    let source = Source::files(&[from.to_path_buf()], false).unwrap();
    let is_tree = source.is_tree;
    let (mut sink, asks) = open(to, is_tree, STRICT);
    let (pieces, coming) = mpsc::sync_channel(2);
    let (answer, answers) = mpsc::channel();
    let recording = thread::spawn(move || {
        let mut outlet = Channel(pieces);
        let finder = Some(Finder::new(20, 1 << 20, Arc::new(20.into())));
        let answers = asks.then_some(answers);
        Recorder::new(answers, false, finder, &mut outlet, Arc::default()).run(source).ok()
    });
    let mut left = until;
    let mut bytes_in_all = 0;
    for piece in coming {
        let cut = piece.len().min(left);
        bytes_in_all += cut as u64;
        sink.take(&piece[..cut], &mut |have| answer.send(have).is_ok()).unwrap();
        left -= cut;
        if left == 0 {
            sink.give_up();
            return None;
        }
    }
    let sent = recording.join().unwrap()?;
    Some((sent, sink.finish(|| true).unwrap(), bytes_in_all))
}

fn same(a: &Path, b: &Path) -> bool {
    let all = |root: &Path| -> Vec<_> {
        let entries = WalkDir::new(root).sort_by_file_name().into_iter().map(Result::unwrap);
        let described = |entry: walkdir::DirEntry| {
            let metadata = entry.metadata().unwrap();
            let content = match entry.file_type() {
                kind if kind.is_file() => fs::read(entry.path()).unwrap(),
                kind if kind.is_symlink() => {
                    fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
                }
                _ => Vec::new(),
            };
            let name = entry.path().strip_prefix(root).unwrap().to_path_buf();
            let times = (metadata.mtime(), metadata.mtime_nsec());
            (name, metadata.mode(), times, content)
        };
        entries.map(described).collect()
    };
    all(a) == all(b)
}

/// A tree with names of all kinds.
fn make_tree(at: &Path) {
    let mut rng = Rng::from_seed(1);
    fs::create_dir_all(at.join("a/b/c")).unwrap();
    for number in 0..30u64 {
        let mut bytes = vec![0; (number * number * 300) as usize];
        rng.fill(&mut bytes);
        let name = [b'f', 0x80 | number as u8, b'\n'];
        fs::write(at.join("a/b").join(OsStr::from_bytes(&name)), bytes).unwrap();
    }
    let mut large = vec![0; 700_000];
    rng.fill(&mut large);
    fs::write(at.join("large"), &large).unwrap();
    fs::hard_link(at.join("large"), at.join("linked")).unwrap();
    symlink("../large", at.join("a/link")).unwrap();
    fs::write(at.join("zero"), "").unwrap();
    fs::write(at.join("a/copy"), &large[1000..]).unwrap();
}

/// Cut off anywhere, again and again, it goes on where it stopped, and ends as if nothing had been.
#[test]
fn what_was_cut_off_is_gone_on_with() {
    let from = Directory::new("cut-from");
    make_tree(&from.0.join("tree"));
    let mut rng = Rng::from_seed(2);
    let whole = {
        let to = Directory::new("cut-whole");
        let (_, received, bytes) = transferred(&from.0.join("tree"), &to, usize::MAX).unwrap();
        assert!(same(&from.0.join("tree"), &to.0.join("tree")));
        assert_eq!((received.files, received.left_out), (34, 0));
        // The copy is not sent, and no other file compresses.
        let random = (0..30).map(|number| number * number * 300).sum::<u64>() + 700_000;
        assert!((random..random + 20_000).contains(&bytes), "{bytes}");
        assert_eq!(to.names(), ["tree"]);
        bytes
    };
    for round in 0..12 {
        let to = Directory::new("cut-to");
        for _ in 0..round % 3 + 1 {
            let until = 1 + rng.below(whole) as usize;
            if transferred(&from.0.join("tree"), &to, until).is_some() {
                break;
            }
            assert!(to.names().iter().all(|name| name == ".tree.dwell-part"));
        }
        if !to.0.join("tree").exists() {
            transferred(&from.0.join("tree"), &to, usize::MAX).unwrap();
        }
        assert!(same(&from.0.join("tree"), &to.0.join("tree")), "round {round}");
        assert_eq!(to.names(), ["tree"]);
    }
}

/// Nothing of an earlier state of the source is left.
#[test]
fn what_is_gone_at_the_source_does_not_come_back() {
    let (from, to) = (Directory::new("gone-from"), Directory::new("gone-to"));
    let tree = from.0.join("tree");
    make_tree(&tree);
    assert!(transferred(&tree, &to, 900_000).is_none());
    fs::remove_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b"), "a file now").unwrap();
    fs::remove_file(tree.join("zero")).unwrap();
    fs::create_dir(tree.join("zero")).unwrap();
    let (_, _, bytes) = transferred(&tree, &to, usize::MAX).unwrap();
    assert!(bytes < 900_000, "{bytes}");
    assert!(same(&tree, &to.0.join("tree")));
}

#[test]
fn a_single_file_is_compared_by_blocks() {
    let (from, to) = (Directory::new("blocks-from"), Directory::new("blocks-to"));
    let file = from.0.join("tree");
    let mut bytes = vec![0; 1_000_000];
    Rng::from_seed(3).fill(&mut bytes);
    fs::write(&file, &bytes).unwrap();
    let mut part = bytes.clone();
    part[500_000] ^= 1;
    part.extend([1; 100_000]);
    fs::write(to.0.join(".tree.dwell-part"), &part).unwrap();
    let (sent, received, coming) = transferred(&file, &to, usize::MAX).unwrap();
    assert_eq!(
        (sent.blake3, received.blake3),
        (received.blake3, Some(blake3::hash(&bytes).into()))
    );
    // One block, and what is behind the last that is whole: nothing is hashed that ends where the sender says.
    assert!((82_496..87_000).contains(&coming), "{coming}");
    assert!(same(&file, &to.0.join("tree")));
}

/// Who asks for one length after another gets no hash that ends there, whatever is there and however it is compared.
#[test]
fn no_hash_ends_where_the_sender_says() {
    let mut bytes = vec![0; 300_000];
    Rng::from_seed(4).fill(&mut bytes);
    let whole = Blocks::read(&mut &bytes[..], 300_000).unwrap();
    for wanted in [1, 63, 64, 1_000, 65_535, 65_537, 150_000, 299_999] {
        let blocks = Blocks::read(&mut &bytes[..], wanted).unwrap().without_end(true);
        assert_eq!(blocks.bytes % 65_536, 0, "{wanted}");
        assert!(whole.hashes.starts_with(&blocks.hashes), "{wanted}");
        let chunks =
            Chunks::read(Grain::Coarse, &mut &bytes[..], 2 * wanted).unwrap().without_end(true);
        let longer = Chunks::read(Grain::Coarse, &mut &bytes[..], 300_000).unwrap();
        assert!(longer.starts_with(&chunks), "{wanted}");
    }
    // Nor is what could be guessed.
    assert_eq!(
        Blocks::read(&mut &bytes[..63], 63).unwrap().without_end(false).answers(),
        [Have::Nothing]
    );
    assert!(
        Chunks::read(Grain::Coarse, &mut &bytes[..63], 63).unwrap().without_end(false).is_empty()
    );
}

/// A directory of somebody else's with the name of a part is not ours to clear.
#[test]
fn a_directory_with_the_name_of_a_part_is_left_alone() {
    let to = Directory::new("adopted");
    let precious = to.0.join(".tree.dwell-part");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("precious"), "mine").unwrap();
    let records = [Record::Root(path("tree")), Record::Directory(path("tree"), META)];
    written(&to, true, &records).unwrap();
    assert_eq!(to.names(), [".tree.dwell-part", "tree"]);
    assert_eq!(fs::read(precious.join("precious")).unwrap(), b"mine");
}

/// What is sent may be called as parts are.
#[test]
fn names_of_parts_can_be_sent() {
    let to = Directory::new("part-names");
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        file("tree/.bar.dwell-part"),
        hello(),
        Record::Symlink(path("tree/bar"), META, b"x".to_vec()),
        file("tree/foo"),
        hello(),
        file("tree/.foo.dwell-part"),
        hello(),
        Record::Directory(path("tree/.dwell-part"), META),
    ];
    written(&to, true, &records).unwrap();
    let entries = fs::read_dir(to.0.join("tree")).unwrap().count();
    assert_eq!((to.names(), entries), (vec!["tree".to_owned()], 5));
    // Where parts are beside their files, they are refused, and so is the place of parts.
    let policy = Policy { existing: Existing::Replace, ..STRICT };
    let (mut sink, _) = open(&to, true, policy);
    let error = sink.take(&stream(&records), &mut |_| true).unwrap_err();
    assert!(matches!(error, SinkError::Refused(_)), "{error}");
    assert!(written(&to, true, &[Record::Root(path(".dwell-part"))]).is_err());
}

/// A link is never made to what came in the place of a file.
#[test]
fn names_of_a_replaced_file_are_refused() {
    let to = Directory::new("relinked");
    let linked = FileEntry {
        path: path("tree/a/b/l"),
        meta: Some(META),
        bytes: Some(5),
        link_id: 7,
        was_asked: false,
    };
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        Record::Directory(path("tree/a"), META),
        Record::Directory(path("tree/a/b"), META),
        Record::File(linked),
        hello(),
        Record::Symlink(path("tree/a/b/l"), META, b"../../x".to_vec()),
        Record::HardLink(path("tree/l"), 7),
    ];
    assert!(written(&to, true, &records).is_err());
    assert!(!to.0.join(".tree.dwell-part/tree/l").exists());
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// The root gets its own name although nobody may write to it, and so do directories of an earlier transfer.
#[test]
fn directories_that_are_not_writable_arrive() {
    let to = Directory::new("read-only");
    let locked = Meta { mode: 0o555, ..META };
    let begun = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), locked),
        Record::Directory(path("tree/a"), locked),
        Record::Directory(path("tree/a/gone"), Meta { mode: 0, ..META }),
        Record::Directory(path("tree/a/file"), locked),
        Record::Directory(path("tree/a/file/gone"), locked),
        Record::Directory(path("tree/b"), locked),
    ];
    let (mut sink, _) = open(&to, true, STRICT);
    sink.take(&stream(&begun), &mut |_| true).unwrap();
    assert!(sink.give_up().is_some());
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), locked),
        Record::Directory(path("tree/a"), locked),
        file("tree/a/file"),
        hello(),
    ];
    written(&to, true, &records).unwrap();
    assert_eq!(to.names(), ["tree"]);
    for name in ["tree", "tree/a"] {
        let at = to.0.join(name);
        assert_eq!((mode(&at), fs::metadata(&at).unwrap().mtime()), (0o555, 1), "{name}");
    }
    assert!(to.0.join("tree/a/file").is_file() && !to.0.join("tree/b").exists());
    assert!(!to.0.join("tree/a/gone").exists());
    // So that it can be removed.
    for name in ["tree", "tree/a"] {
        fs::set_permissions(to.0.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn directories_that_stay_keep_their_permissions() {
    let to = Directory::new("stays");
    fs::create_dir(to.0.join("tree")).unwrap();
    fs::set_permissions(to.0.join("tree"), fs::Permissions::from_mode(0o700)).unwrap();
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        Record::Directory(path("tree/new"), META),
    ];
    let (mut sink, _) = open(&to, true, Policy { existing: Existing::Keep, ..STRICT });
    sink.take(&stream(&records), &mut |_| true).unwrap();
    sink.finish(|| true).unwrap();
    assert_eq!((mode(&to.0.join("tree")), mode(&to.0.join("tree/new"))), (0o700, 0o755));
}

/// Of those that a receiver made that was killed, too; what others have put there stays as it is.
#[test]
fn a_directory_that_was_begun_is_gone_on_with() {
    let to = Directory::new("stays-begun");
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        Record::Directory(path("tree/new"), META),
    ];
    let keeps = Policy { existing: Existing::Keep, ..STRICT };
    let (mut sink, _) = open(&to, true, keeps);
    sink.take(&stream(&records), &mut |_| true).unwrap();
    drop(sink);
    fs::create_dir(to.0.join("tree/new/theirs")).unwrap();
    fs::set_permissions(to.0.join("tree/new/theirs"), fs::Permissions::from_mode(0o700)).unwrap();
    let (mut sink, _) = open(&to, true, keeps);
    sink.others_max = 10;
    let theirs = Record::Directory(path("tree/new/theirs"), META);
    sink.take(&stream(&[&records[..], &[theirs]].concat()), &mut |_| true).unwrap();
    sink.finish(|| true).unwrap();
    let modes = ["tree", "tree/new", "tree/new/theirs"].map(|name| mode(&to.0.join(name)));
    assert_eq!(modes, [0o755, 0o755, 0o700]);
    assert_eq!(WalkDir::new(&to.0).into_iter().count(), 4);
}

/// One byte, a million times.
#[test]
fn what_is_near_repeats_itself() {
    let to = Directory::new("near");
    let bytes = [b"hello".to_vec(), vec![b'o'; 1_000_000], b"lo".repeat(300_001)].concat();
    let ended = Record::End(bytes.len() as u64, *blake3::hash(&bytes).as_bytes());
    let mut pieces = stream(&[Record::Root(path("tree")), file("tree")]);
    Record::Repeat { distance: 1, bytes: 1_000_000 }.put(&mut pieces);
    put_data(&mut pieces, b"lo");
    Record::Repeat { distance: 2, bytes: 600_000 }.put(&mut pieces);
    ended.put(&mut pieces);
    let (mut sink, _) = open(&to, false, STRICT);
    sink.take(&pieces, &mut |_| true).unwrap();
    sink.finish(|| true).unwrap();
    assert!(fs::read(to.0.join("tree")).unwrap() == bytes);
}

mod bases;
mod chunks;
mod meanwhile;
mod permissions;
