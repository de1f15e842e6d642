//! Files that are like others which the receiver lets be copied from.

use super::chunks::{random, sending};
use super::*;
use crate::transfer::bases::Bases;
use crate::transfer::blocks::hash;
use crate::transfer::chunks::{Chunk, Cutter, Grain};
use crate::transfer::record::Ask;

/// A sink with bases: `existing` is what becomes of what is there.
fn with_bases(to: &Directory, existing: Existing, bases: &[PathBuf]) -> Sink {
    let (mut sink, _) = open(to, false, Policy { existing, ..STRICT });
    sink.cut_chunks(Some(Grain::Fine));
    sink.compare_with(Bases::new(bases));
    sink
}

/// Sends a file of such a name and bytes to a new place: how many bytes went, and how many came from bases.
fn sent(to: &Directory, (name, bytes): (&str, &[u8]), bases: &[PathBuf]) -> (usize, u64) {
    let from = Directory::new(&format!("bases-from-{:?}", thread::current().id()));
    fs::write(from.0.join(name), bytes).unwrap();
    let mut sink = with_bases(to, Existing::Replace, bases);
    let Target::Site(site) = &mut sink.target else { panic!() };
    site.name = Some(path(name));
    let source = Source::files(&[from.0.join(name)], false).unwrap();
    let (mut sink, went, _) = sending(source, sink, |_| false);
    let basis_bytes = sink.finish(|| true).unwrap().basis_bytes;
    assert!(fs::read(to.0.join(name)).unwrap() == bytes);
    (went, basis_bytes)
}

/// A file, and one of the next day.
fn days() -> (Vec<u8>, Vec<u8>) {
    let first = random(20, 2_000_000);
    let second = [b"a row", &first[..900_000], &random(21, 20_000), &first[950_000..]].concat();
    (first, second)
}

#[test]
fn a_new_file_is_copied_from_a_similar_one() {
    let (first, second) = days();
    let to = Directory::new("bases-days");
    fs::write(to.0.join("db-29.sql"), &first).unwrap();
    let bases = [to.0.clone()];
    let (went, of_basis) = sent(&to, ("db-30.sql", &second), &bases);
    assert!(went < 150_000 && of_basis > 1_850_000, "{went}, {of_basis}");
    assert_eq!(to.names(), ["db-29.sql", "db-30.sql"]);
    assert!(fs::read(to.0.join("db-29.sql")).unwrap() == first);
    // One that is named, whatever its name; and nothing that is like it.
    let (went, _) = sent(&to, ("other", &second), &[to.0.join("db-29.sql")]);
    assert!(went < 150_000, "{went}");
    let (went, of_basis) = sent(&to, ("nothing.like", &second), &bases);
    assert!(went > 1_900_000 && of_basis == 0, "{went}");
}

#[test]
fn a_file_that_was_moved_is_copied() {
    let (first, _) = days();
    let (to, basis) = (Directory::new("bases-moved"), Directory::new("bases-moved-from"));
    fs::create_dir_all(basis.0.join("a/b")).unwrap();
    fs::write(basis.0.join("a/b/photo.raw"), &first).unwrap();
    let (went, of_basis) = sent(&to, ("photo.raw", &first), std::slice::from_ref(&basis.0));
    assert!(went < 1000 && of_basis == first.len() as u64, "{went}, {of_basis}");
}

/// The part of an interrupted transfer, what is to be replaced, and two bases.
#[test]
fn all_that_is_there_counts() {
    let pieces: Vec<Vec<u8>> = (30..35).map(|seed| random(seed, 500_000)).collect();
    let (to, basis) = (Directory::new("bases-all"), Directory::new("bases-all-from"));
    let new = pieces.concat();
    fs::write(to.0.join("tree"), [&pieces[2][..], b"old"].concat()).unwrap();
    fs::write(to.0.join(".tree.dwell-part"), &new[..600_000]).unwrap();
    fs::write(basis.0.join("one"), &pieces[1]).unwrap();
    fs::write(basis.0.join("two"), [b"x", &pieces[3][..]].concat()).unwrap();
    let bases = [basis.0.join("one"), basis.0.join("two")];
    let (went, of_basis) = sent(&to, ("tree", &new), &bases);
    // A fifth is nowhere.
    assert!((500_000..650_000).contains(&went), "{went}");
    assert!((800_000..950_000).contains(&of_basis), "{of_basis}");
    assert_eq!(to.names(), ["tree"]);
    // A part and a basis, and nothing to be replaced.
    fs::remove_file(to.0.join("tree")).unwrap();
    fs::write(to.0.join(".tree.dwell-part"), &new[..600_000]).unwrap();
    let (went, _) = sent(&to, ("tree", &new), &bases[1..]);
    assert!((1_400_000..1_550_000).contains(&went), "{went}");
}

#[test]
fn what_is_to_be_replaced_is_no_basis_as_well() {
    let (first, second) = days();
    let to = Directory::new("bases-same");
    fs::write(to.0.join("tree"), &first).unwrap();
    let bases = [to.0.clone(), to.0.join("tree"), to.0.clone()];
    let (went, of_basis) = sent(&to, ("tree", &second), &bases);
    assert!(went < 150_000 && of_basis == 0, "{went}, {of_basis}");
}

/// A sender that knows no chunks gets what it got before.
#[test]
fn earlier_senders_get_no_bases() {
    let (first, _) = days();
    let to = Directory::new("bases-earlier");
    fs::write(to.0.join("other"), &first).unwrap();
    let mut sink = with_bases(&to, Existing::Refuse, &[to.0.join("other")]);
    sink.cut_chunks(None);
    let ask = Ask { path: path("tree"), bytes: Some(5), meta: None, is_quick: false };
    assert_eq!(sink.look(&path("tree"), &ask).unwrap().2, [Have::Nothing]);
}

/// The chunks of all of these bytes.
fn chunks_of(bytes: &[u8], log2: u8) -> Vec<Chunk> {
    let mut cutter = Cutter::new(bytes, log2);
    let next = || {
        let chunk = cutter.chunk().unwrap();
        let (bytes, hash) = (chunk.len() as u32, hash(chunk));
        (bytes > 0).then_some(Chunk { bytes, hash })
    };
    std::iter::from_fn(next).collect()
}

/// No chunk of a basis ends where the sender says: all are those of the whole file. Nor does a copy.
#[test]
fn no_answer_about_a_basis_ends_where_the_sender_says() {
    let to = Directory::new("bases-probed");
    let known: Vec<_> = (6..10).map(|seed| random(seed, 300_000)).collect();
    let names = [".tree.dwell-part", "tree", "basis", "other"];
    for (first, wanted) in
        [1, 31, 1_000, 65_535, 100_000, 149_999, 299_999].iter().flat_map(|it| [(0, *it), (2, *it)])
    {
        names.iter().for_each(|name| drop(fs::remove_file(to.0.join(name))));
        fs::write(to.0.join("short"), random(6, 63)).unwrap();
        for number in first..names.len() {
            fs::write(to.0.join(names[number]), &known[number]).unwrap();
        }
        let bases = ["basis", "other", "short"].map(|name| to.0.join(name));
        let ask = Ask { path: path("tree"), bytes: Some(wanted), meta: None, is_quick: false };
        let answered = || {
            let mut sink = with_bases(&to, Existing::Replace, &bases);
            let (_, ends, answers) = sink.look(&path("tree"), &ask).unwrap();
            let mut said = (0, Vec::new());
            for answer in answers {
                match answer {
                    Have::Chunks { log2, chunks, .. } => {
                        said.0 = log2;
                        said.1.extend(chunks);
                    }
                    other => assert!(other == Have::Nothing && wanted < 65_535, "{other:?}"),
                }
            }
            (ends, said)
        };
        let (ends, (log2, said)) = answered();
        assert!(wanted < 65_535 || said.len() > 10, "{first}, {wanted}: {}", said.len());
        let mut left = &said[..];
        let mut files = 0;
        for bytes in &known[first..] {
            let all = chunks_of(bytes, log2.max(11));
            let same = left.iter().zip(&all).take_while(|(one, other)| one == other).count();
            let len: u64 = left[..same].iter().map(|chunk| u64::from(chunk.bytes)).sum();
            assert!(len < 2 * wanted || len == 300_000, "{first}, {wanted}: {len}");
            left = &left[same..];
            files += usize::from(same > 0);
        }
        assert!(left.is_empty(), "{first}, {wanted}: {} are of no file", left.len());
        assert!(wanted < 65_535 || files >= 2, "{first}, {wanted}");
        let mut at = 0;
        for chunk in &said {
            assert!(
                ends.has(at) && !ends.has(at + 2) && !ends.has(at + u64::from(chunk.bytes) - 2)
            );
            at += u64::from(chunk.bytes);
        }
        assert!(ends.has(at) && !ends.has(at + 1), "{first}, {wanted}");
    }
}

/// What happens to a basis between the answer and the copy: the right bytes come of it, or an error that says so.
#[test]
fn a_basis_that_changes_is_no_wrong_file() {
    let (first, second) = days();
    let meanwhile: [fn(&Path); 4] = [
        |at| fs::write(at, random(40, 2_000_000)).unwrap(),
        |at| fs::write(at, "short").unwrap(),
        |at| fs::remove_file(at).unwrap(),
        |at| {
            fs::remove_file(at).unwrap();
            fs::write(at, random(40, 2_000_000)).unwrap();
        },
    ];
    for (number, change) in meanwhile.into_iter().enumerate() {
        let to = Directory::new(&format!("bases-changed-{number}"));
        let from = Directory::new(&format!("bases-changed-from-{number}"));
        let basis = to.0.join("basis");
        fs::write(&basis, &first).unwrap();
        fs::write(from.0.join("tree"), &second).unwrap();
        let source = Source::files(&[from.0.join("tree")], false).unwrap();
        let (pieces, coming) = mpsc::sync_channel(2);
        let (answer, answers) = mpsc::channel();
        let recording = thread::spawn(move || {
            let mut outlet = Channel(pieces);
            Recorder::new(Some(answers), false, None, &mut outlet, Arc::default())
                .run(source)
                .is_ok()
        });
        let mut sink = with_bases(&to, Existing::Refuse, std::slice::from_ref(&basis));
        let mut has_changed = false;
        let mut taken = Ok(());
        for piece in coming {
            taken = taken.and_then(|()| sink.take(&piece, &mut |have| answer.send(have).is_ok()));
            if !std::mem::replace(&mut has_changed, true) {
                change(&basis);
            }
        }
        assert!(recording.join().unwrap());
        let finished = taken.and_then(|()| sink.finish(|| true));
        sink.give_up();
        match finished {
            Ok(_) => assert!(fs::read(to.0.join("tree")).unwrap() == second, "{number}"),
            Err(error) => {
                assert!(!to.0.join("tree").exists(), "{number}");
                // The clock of a file system may not have gone on meanwhile.
                let said = error.to_string();
                let is_clear = ["has changed meanwhile", "other bytes"].map(|it| said.contains(it));
                assert!(is_clear.contains(&true), "{number}: {error}");
            }
        }
        // What was removed is still open.
        assert_eq!(to.0.join("tree").exists(), number >= 2);
    }
}

/// What is in a part beside a chunk of a basis is the sender's: where blocks or chunks end in it, and how much of that chunk is in them.
#[test]
fn nothing_of_a_basis_is_left_in_a_part() {
    let (secret, to) = (random(60, 300_000), Directory::new("bases-left"));
    fs::write(to.0.join("basis"), &secret).unwrap();
    let bases = [to.0.join("basis")];
    let ask = Ask { path: path("tree"), bytes: Some(400_000), meta: None, is_quick: false };
    let entry = FileEntry {
        path: path("tree"),
        meta: None,
        bytes: Some(400_000),
        link_id: 0,
        was_asked: true,
    };
    let mut sink = with_bases(&to, Existing::Refuse, &bases);
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    Record::Root(path("tree")).put(&mut bytes);
    Record::Ask(ask.clone()).put(&mut bytes);
    Record::File(entry).put(&mut bytes);
    sink.take(&bytes, &mut |have| {
        answers.push(have);
        true
    })
    .unwrap();
    let Have::Chunks { chunks, .. } = &answers[0] else { panic!("{answers:?}") };
    let first = u64::from(chunks[0].bytes);
    let (before, behind) = (random(61, 65_534), random(62, 10_000));
    let mut bytes = Vec::new();
    put_data(&mut bytes, &before);
    Record::CopyFrom { offset: 0, bytes: first }.put(&mut bytes);
    put_data(&mut bytes, &behind);
    sink.take(&bytes, &mut |_| true).unwrap();
    // Nor is it hashed meanwhile.
    let mut bytes = Vec::new();
    Record::Ask(ask).put(&mut bytes);
    assert!(matches!(sink.take(&bytes, &mut |_| true), Err(SinkError::Order)));
    sink.give_up().unwrap();
    let part = fs::read(to.0.join(".tree.dwell-part")).unwrap();
    let gap = vec![0; usize::try_from(first).unwrap()];
    assert!(part == [&before[..], &gap, &behind].concat());
}

/// Who overwrites a part but for its last bytes, and breaks off, does not get these hashed among its own.
#[test]
fn nothing_less_than_a_block_is_left_of_a_part() {
    let (part, new) = (random(67, 150_000), random(68, 80_000));
    for (bytes, gap) in [(65_530, 65_530..65_536), (65_536, 0..0), (70_000, 70_000..131_072)] {
        let to = Directory::new("part-overwritten");
        let name = to.0.join(".tree.dwell-part");
        fs::write(&name, &part).unwrap();
        let mut sink = with_bases(&to, Existing::Refuse, &[]);
        let wanted = Some(200_000);
        let ask = Ask { path: path("tree"), bytes: wanted, meta: None, is_quick: false };
        let (meta, link_id) = (None, 0);
        let entry = FileEntry { path: path("tree"), meta, bytes: wanted, link_id, was_asked: true };
        let mut stream = Vec::new();
        for record in [Record::Root(path("tree")), Record::Ask(ask), Record::File(entry)] {
            record.put(&mut stream);
        }
        put_data(&mut stream, &new[..bytes.min(65_536)]);
        put_data(&mut stream, &new[bytes.min(65_536)..bytes]);
        sink.take(&stream, &mut |_| true).unwrap();
        sink.give_up().unwrap();
        let mut expected = [&new[..bytes], &part[bytes..]].concat();
        expected[gap].fill(0);
        assert!(fs::read(&name).unwrap() == expected, "{bytes}");
    }
}

/// Small changes all over a file, and a transfer that breaks off: what had come is found among what was copied.
#[test]
fn what_came_among_copies_is_found_again() {
    let old = random(63, 4 << 20);
    let mut new = old.clone();
    (0..100).for_each(|row| new[row * 40_000 + 777] ^= 1);
    let (to, here) = (Directory::new("among"), Directory::new("among-from"));
    fs::write(to.0.join("tree"), &old).unwrap();
    fs::write(here.0.join("tree"), &new).unwrap();
    let run = |stops_at: usize| {
        let source = Source::files(&[here.0.join("tree")], false).unwrap();
        let sink = with_bases(&to, Existing::Replace, &[]);
        let (mut sink, went, sent) = sending(source, sink, |went| went > stops_at);
        match sent {
            Some(_) => drop(sink.finish(|| true).unwrap()),
            None => drop(sink.give_up()),
        }
        went
    };
    let first = run(150_000);
    let second = run(usize::MAX);
    assert!(fs::read(to.0.join("tree")).unwrap() == new);
    assert_eq!(to.names(), ["tree"]);
    println!("{first} bytes went, and then {second}");
    assert!(first > 150_000 && first + second < 550_000, "{first}, {second}");
}

/// A log that is written to all the time, in a directory of bases, of which nothing is copied.
#[test]
fn a_basis_of_which_nothing_is_copied_may_change() {
    let to = Directory::new("bases-unused");
    let basis = to.0.join("basis");
    for held in [true, false] {
        fs::write(&basis, random(64, 100_000)).unwrap();
        let mut sink = with_bases(&to, Existing::Replace, std::slice::from_ref(&basis));
        let ask = Ask { path: path("tree"), bytes: Some(5), meta: None, is_quick: false };
        let (bytes, meta) = (Some(5), None);
        let entry = FileEntry { path: path("tree"), meta, bytes, link_id: 0, was_asked: true };
        let mut bytes = Vec::new();
        Record::Root(path("tree")).put(&mut bytes);
        Record::Ask(ask).put(&mut bytes);
        sink.take(&bytes, &mut |_| true).unwrap();
        fs::write(&basis, random(65, 100_001)).unwrap();
        if !held {
            fs::remove_file(&basis).unwrap();
        }
        let mut bytes = Vec::new();
        Record::File(entry).put(&mut bytes);
        put_data(&mut bytes, b"hello");
        hello().put(&mut bytes);
        sink.take(&bytes, &mut |_| true).unwrap();
        sink.finish(|| true).unwrap();
        assert_eq!(fs::read(to.0.join("tree")).unwrap(), b"hello");
    }
}

/// What is looked at is in proportion to what was offered, however much of it is skipped then.
#[test]
fn no_more_is_asked_than_was_offered() {
    let ask = |name: String, bytes| {
        Record::Ask(Ask { path: path(&name), bytes, meta: None, is_quick: false })
    };
    let taken = |is_tree, asks: &[Record], limits: (u64, u64)| {
        let to = Directory::new("bases-asked");
        let (mut sink, _) = open(&to, is_tree, Policy { existing: Existing::Replace, ..STRICT });
        (sink.files_max, sink.bytes_max) = limits;
        let mut bytes = Vec::new();
        Record::Root(path("tree")).put(&mut bytes);
        for ask in asks {
            ask.put(&mut bytes);
            Record::Skip.put(&mut bytes);
        }
        sink.take(&bytes, &mut |_| true)
    };
    let some = |number, bytes| -> Vec<Record> {
        (0..number).map(|it| ask(format!("tree/{it}"), Some(bytes))).collect()
    };
    taken(true, &some(10, 100), (10, 1000)).unwrap();
    let refused = |result| matches!(result, Err(SinkError::Refused(_)));
    assert!(refused(taken(true, &some(11, 10), (10, 1000))));
    assert!(refused(taken(true, &some(10, 101), (10, 1000))));
    assert!(refused(taken(true, &some(2, u64::MAX - 1), (10, u64::MAX - 2))));
    // Only of a single one, as what comes through a pipe, the length need not be known.
    taken(false, &[ask("tree".to_owned(), None)], (10, 1000)).unwrap();
    assert!(taken(true, &[ask("tree/x".to_owned(), None)], (10, 1000)).is_err());
    let twice = [ask("tree".to_owned(), None), ask("tree".to_owned(), None)];
    assert!(taken(false, &twice, (10, u64::MAX)).is_err());
}

/// Hashing ends with the transfer.
#[test]
fn nothing_is_hashed_for_who_is_gone() {
    let to = Directory::new("bases-gone");
    fs::write(to.0.join("basis"), random(66, 300_000)).unwrap();
    let mut sink = with_bases(&to, Existing::Refuse, &[to.0.join("basis")]);
    let (answers, answered) = tokio::sync::mpsc::channel(1);
    sink.answer_to(answers);
    let ask = Ask { path: path("tree"), bytes: Some(300_000), meta: None, is_quick: false };
    let (_, _, said) = sink.look(&path("tree"), &ask).unwrap();
    let Have::Chunks { chunks, .. } = &said[0] else { panic!("{said:?}") };
    // But for a last chunk that is too short.
    let all: u64 = chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum();
    assert!((300_000 - 63..=300_000).contains(&all), "{all}");
    let first = u64::from(chunks[0].bytes);
    // Nor is anything copied for it.
    let entry = FileEntry {
        path: path("tree"),
        meta: None,
        bytes: Some(300_000),
        link_id: 0,
        was_asked: true,
    };
    let (mut bytes, mut copy) = (Vec::new(), Vec::new());
    for record in [Record::Root(path("tree")), Record::Ask(ask.clone()), Record::File(entry)] {
        record.put(&mut bytes);
    }
    sink.take(&bytes, &mut |_| true).unwrap();
    let (offset, bytes) = (0, first);
    Record::CopyFrom { offset, bytes }.put(&mut copy);
    sink.take(&copy, &mut |_| true).unwrap();
    drop(answered);
    assert!(matches!(sink.take(&copy, &mut |_| true), Err(SinkError::Order)));
    assert!(sink.give_up().is_none() && to.names() == ["basis"]);
    let mut sink = with_bases(&to, Existing::Refuse, &[to.0.join("basis")]);
    sink.answer_to(tokio::sync::mpsc::channel(1).0);
    assert_eq!(sink.look(&path("tree"), &ask).unwrap().2, [Have::Nothing]);
    fs::write(to.0.join("tree"), random(66, 300_000)).unwrap();
    assert!(sink.look(&path("tree"), &ask).is_err());
}
