//! Files that are there are compared by chunks that end where the content says so.

use dwell_base::Rng;
use proptest::prelude::*;

use super::*;
use crate::transfer::blocks::hash;
use crate::transfer::chunks::{Chunk, Grain};
use crate::transfer::record::Ask;

const REPLACES: Policy = Policy { existing: Existing::Replace, ..STRICT };

pub(super) fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

pub(super) fn replacing(to: &Directory, knows_chunks: bool) -> Sink {
    let (mut sink, asks) = open(to, false, REPLACES);
    assert!(asks);
    sink.cut_chunks(knows_chunks.then_some(Grain::Coarse));
    sink
}

/// Sends a file to one that is there; how many bytes of records went, and how many bytes were there.
fn sent_again(source: Source, to: &Directory, knows_chunks: bool) -> (usize, u64) {
    let (mut sink, went, recording) = sending(source, replacing(to, knows_chunks), |_| false);
    let received = sink.finish(|| true).unwrap();
    assert_eq!(recording.unwrap().blake3, received.blake3);
    (went, sink.count.get().1)
}

/// Sends a file until so many bytes have gone that it breaks off; how many went.
fn sent_until(
    source: Source,
    to: &Directory,
    knows_chunks: bool,
    stops: impl Fn(usize) -> bool,
) -> usize {
    let (sink, went, recording) = sending(source, replacing(to, knows_chunks), stops);
    assert!(recording.is_none());
    sink.give_up().unwrap();
    went
}

/// Sends to a sink, until it stops: the sink, how many bytes of records went, and what was sent if all was.
pub(super) fn sending(
    source: Source,
    mut sink: Sink,
    stops: impl Fn(usize) -> bool,
) -> (Sink, usize, Option<Sent>) {
    let knows_chunks = sink.grain.is_some();
    let (pieces, coming) = mpsc::sync_channel(2);
    let (answer, answers) = mpsc::channel();
    let count = Arc::<Count>::default();
    let counted = Arc::clone(&count);
    let recording = thread::spawn(move || {
        let mut outlet = Channel(pieces);
        Recorder::new(Some(answers), false, None, &mut outlet, counted).run(source).ok()
    });
    let mut went = 0;
    while let Ok(piece) = coming.recv() {
        went += piece.len();
        sink.take(&piece, &mut |have| {
            let is_chunks = matches!(have, Have::Chunks { .. });
            assert_eq!(is_chunks, knows_chunks && have != Have::Nothing);
            answer.send(have).is_ok()
        })
        .unwrap();
        if stops(went) {
            break;
        }
    }
    drop(coming);
    let sent = recording.join().unwrap();
    assert!(sent.is_none() || sink.count.get() == count.get());
    (sink, went, sent)
}

/// The same between two files with these bytes.
fn changed(name: &str, old: &[u8], new: &[u8], knows_chunks: bool) -> (usize, u64) {
    let (from, to) = (Directory::new(&format!("{name}-from")), Directory::new(name));
    let file = from.0.join("tree");
    fs::write(&file, new).unwrap();
    fs::write(to.0.join("tree"), old).unwrap();
    let source = Source::files(std::slice::from_ref(&file), false).unwrap();
    let went = sent_again(source, &to, knows_chunks);
    assert!(same(&file, &to.0.join("tree")), "other bytes");
    assert_eq!(to.names(), ["tree"]);
    went
}

/// An earlier sender gets aligned blocks, of which none is the same.
#[test]
fn what_was_moved_is_found_by_who_understands_it() {
    let old = random(1, 1 << 20);
    let new = [b"one more row\n", &old[..]].concat();
    let (went, reused) = changed("front", &old, &new, true);
    assert!(went < 100_000, "{went}");
    assert!(went as u64 + reused < new.len() as u64 + 1000);
    let (went, reused) = changed("front-blocks", &old, &new, false);
    assert!(went > new.len() && reused == 0, "{went}");
    // A line that is gone, and more behind it than the new file is long.
    let (went, _) = changed("gone", &new, &old[300_000..], true);
    assert!(went < 100_000, "{went}");
}

/// Rows that were changed here and there: a sender that knows fine chunks sends less around each.
#[test]
fn fine_chunks_are_for_small_changes() {
    let old = random(16, 4 << 20);
    let mut new = old.clone();
    (0..100).for_each(|row| new[row * 40_000 + 777] ^= 1);
    let went = [Grain::Coarse, Grain::Fine].map(|grain| {
        let (from, to) = (Directory::new("fine-from"), Directory::new("fine"));
        fs::write(from.0.join("tree"), &new).unwrap();
        fs::write(to.0.join("tree"), &old).unwrap();
        let source = Source::files(&[from.0.join("tree")], false).unwrap();
        let mut sink = replacing(&to, true);
        sink.cut_chunks(Some(grain));
        let (mut sink, went, _) = sending(source, sink, |_| false);
        sink.finish(|| true).unwrap();
        assert!(fs::read(to.0.join("tree")).unwrap() == new);
        went
    });
    assert!(went[0] > 900_000 && went[1] < 450_000, "{went:?}");
}

#[test]
fn what_is_the_same_stays_where_it_is() {
    let old = random(2, 300_000);
    let (went, reused) = changed("same", &old, &old, true);
    assert!(went < 300 && reused == 300_000, "{went}");
    let (went, _) = changed("shorter", &old, &old[..100_000], true);
    assert!(went < 40_000, "{went}");
    let (went, _) = changed("longer", &old[..100_000], &old, true);
    assert!((200_000..240_000).contains(&went), "{went}");
    changed("emptied", &old, b"", false);
}

#[test]
fn a_pipe_is_compared_as_well() {
    let to = Directory::new("pipe");
    let old = random(3, 500_000);
    fs::write(to.0.join("tree"), &old).unwrap();
    // Behind twice as much nothing is searched.
    let new = [b"x", &old[..], &random(4, 900_000)].concat();
    let reader = Box::new(io::Cursor::new(new.clone()));
    let (went, reused) = sent_again(Source::pipe(reader, "tree", "a pipe"), &to, true);
    assert!(reused > 440_000 && went < 970_000, "{reused}, {went}");
    assert!(fs::read(to.0.join("tree")).unwrap() == new);
}

/// Whoever asks for one length after another, whatever is compared and how, learns of no end that it has chosen.
#[test]
fn no_answer_ends_where_the_sender_says() {
    const THERE: u64 = 300_000;
    for name in ["tree", ".tree.dwell-part"] {
        for knows_chunks in [false, true] {
            let to = Directory::new(&format!("probed-{name}-{knows_chunks}"));
            fs::write(to.0.join(name), random(6, THERE as usize)).unwrap();
            for wanted in [1, 63, 1_000, 65_535, 65_537, 140_000, 149_999, 200_001, THERE - 1] {
                let mut sink = replacing(&to, knows_chunks);
                let ask =
                    Ask { path: path("tree"), bytes: Some(wanted), meta: None, is_quick: false };
                let (_, _, answers) = sink.look(&path("tree"), &ask).unwrap();
                for answer in answers {
                    match answer {
                        Have::Blocks { bytes, .. } => assert_eq!(bytes % 65_536, 0, "{wanted}"),
                        Have::Chunks { chunks, .. } => {
                            let bytes: u64 = chunks.iter().map(|it| u64::from(it.bytes)).sum();
                            assert!(bytes < 2 * wanted || bytes == THERE, "{wanted}: {bytes}");
                        }
                        Have::Nothing => {}
                        Have::Same | Have::Stays => panic!("{answer:?}"),
                    }
                }
            }
        }
    }
}

fn asked(text: &str) -> [Record; 2] {
    let (meta, bytes) = (Some(META), Some(100_000));
    let ask = Ask { path: path(text), bytes, meta, is_quick: false };
    let entry = FileEntry { path: path(text), meta, bytes, link_id: 0, was_asked: true };
    [Record::Ask(ask), Record::File(entry)]
}

fn from(offset: u64, bytes: u64) -> Record {
    Record::CopyFrom { offset, bytes }
}

/// What comes of these records about a file of 100,000 bytes, and what is there then.
fn copied(records: &[Record], meanwhile: impl FnOnce(&Path)) -> Result<Vec<u8>, SinkError> {
    // Tests run beside each other.
    let to = Directory::new(&format!("copied-{:?}", thread::current().id()));
    let there = to.0.join("tree");
    fs::write(&there, random(5, 100_000)).unwrap();
    let mut sink = replacing(&to, true);
    let [ask, file] = asked("tree");
    let put = |records: &[Record]| {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.put(&mut bytes));
        bytes
    };
    sink.take(&put(&[Record::Root(path("tree")), ask, file]), &mut |_| true)?;
    meanwhile(&there);
    let taken = sink.take(&put(records), &mut |_| true);
    let finished = taken.and_then(|()| sink.finish(|| true));
    sink.give_up();
    let is_there = fs::read(&there).unwrap();
    assert!(finished.is_ok() || is_there.len() <= 100_000);
    finished.map(|_| is_there)
}

fn ended(bytes: &[u8]) -> Record {
    Record::End(bytes.len() as u64, *blake3::hash(bytes).as_bytes())
}

/// Where the chunks end that are known of these bytes.
fn ends(bytes: &[u8]) -> Vec<u64> {
    let chunks = Chunks::read(Grain::Coarse, &mut &bytes[..], bytes.len() as u64).unwrap();
    let sum = |end: &mut u64, bytes| {
        *end += bytes;
        Some(*end)
    };
    chunks.lengths().scan(0, sum).collect()
}

#[test]
fn copies_come_from_anywhere_in_what_is_there() {
    let there = random(5, 100_000);
    let ends = ends(&there);
    let (one, four) = (ends[0], ends[3]);
    let (first, fourth) = (one as usize, four as usize);
    let new = [&there[..first], &there[fourth..], &there[..fourth]].concat();
    let records = [from(0, one), from(four, 100_000 - four), from(0, four), ended(&new)];
    assert!(copied(&records, |_| {}).unwrap() == new);
    // It need not be written as long as it is where it belongs.
    assert!(copied(&[from(0, 100_000), ended(&there)], |_| {}).unwrap() == there);
    assert!(copied(&[Record::Copy(100_000), ended(&there)], |_| {}).unwrap() == there);
}

#[test]
fn hostile_copies_are_refused() {
    let cases = [
        from(0, 100_001),
        from(100_000, 1),
        from(u64::MAX, 1),
        from(u64::MAX, 0),
        from(1, u64::MAX),
        from(0, u64::MAX),
        from(1 << 63, 1),
        from(1, 99_999),
    ];
    for copy in cases {
        let result = copied(&[copy.clone(), ended(&random(5, 100_000))], |_| {});
        assert!(result.is_err(), "{copy:?}");
    }
    // Without a file, or without one that is there.
    let to = Directory::new("copied-nothing");
    let records: [&[Record]; 2] = [&[from(0, 1)], &[file("tree"), from(0, 1), hello()]];
    for records in records {
        let records = [&[Record::Root(path("tree"))], records].concat();
        assert!(matches!(written(&to, false, &records), Err(why) if why.contains("order")));
    }
    // Short records do not make long files: no more is written than was offered.
    let (to, there) = (Directory::new("copied-often"), random(5, 100_000));
    fs::write(to.0.join("tree"), &there).unwrap();
    let mut sink = replacing(&to, true);
    sink.bytes_max = 150_000;
    let [ask, file] = asked("tree");
    let mut bytes = Vec::new();
    let often = [Record::Root(path("tree")), ask, file, from(0, 100_000), from(0, 100_000)];
    often.iter().for_each(|record| record.put(&mut bytes));
    assert!(matches!(sink.take(&bytes, &mut |_| true), Err(SinkError::Refused(_))));
}

/// Of two bytes of a file that are copied among others the hash of all of them would say what they are.
#[test]
fn nothing_less_than_a_chunk_is_copied() {
    let there = random(5, 100_000);
    let ends = ends(&there);
    let (one, two) = (ends[0], ends[1]);
    let cases = [
        from(0, 2),
        from(one, 2),
        from(one - 2, 2),
        from(one + 1, two - one - 1),
        from(one, two - one - 1),
        from(one, two - one + 1),
        from(0, two - 1),
        from(99_998, 2),
        from(two, 100_001 - two),
        Record::Copy(2),
    ];
    for copy in cases {
        let result = copied(std::slice::from_ref(&copy), |_| {});
        assert!(matches!(result, Err(SinkError::Order)), "{copy:?}");
    }
    let all = ends.windows(2).map(|ends| from(ends[0], ends[1] - ends[0]));
    let records: Vec<Record> = [from(0, one)].into_iter().chain(all).collect();
    assert!(copied(&[&records[..], &[ended(&there)]].concat(), |_| {}).unwrap() == there);
}

/// What the part and a file that is longer than the new one have behind the last hash is not copied either.
#[test]
fn nothing_less_than_a_block_is_copied() {
    for (name, len, known) in [("tree", 140_000, 65_536), (".tree.dwell-part", 70_000, 70_000)] {
        let to = Directory::new("part-of-a-block");
        fs::write(to.0.join(name), random(5, len)).unwrap();
        let refused = [2, 65_535, 65_537, known + 1, 100_000];
        for bytes in refused.into_iter().filter(|&bytes| bytes != known) {
            let (mut sink, _) = answers(&to, false);
            assert!(is_order(&mut sink, &Record::Copy(bytes)), "{name}: {bytes}");
        }
        for bytes in [65_536, known] {
            let (mut sink, _) = answers(&to, false);
            let mut record = Vec::new();
            Record::Copy(bytes).put(&mut record);
            sink.take(&record, &mut |_| true).unwrap();
        }
        // Neither where something else has begun.
        let (mut sink, _) = answers(&to, false);
        let mut data = Vec::new();
        put_data(&mut data, b"x");
        sink.take(&data, &mut |_| true).unwrap();
        assert!(is_order(&mut sink, &Record::Copy(65_535)), "{name}");
    }
}

/// What is there can be another file by the time it is copied from.
#[test]
fn what_changes_meanwhile_is_noticed() {
    let there = random(5, 100_000);
    let ends = ends(&there);
    let (one, two) = (ends[0], ends[1]);
    let (first, second) = (one as usize, two as usize);
    let new = [&there[first..], &there[..first]].concat();
    let mut records = vec![from(one, 100_000 - one), from(0, two), ended(&new)];
    assert!(copied(&records, |_| {}).is_err_and(|error| matches!(error, SinkError::Differs(_))));
    let other = |at: &Path| fs::write(at, random(6, 100_000)).unwrap();
    records[1] = from(0, one);
    assert!(copied(&records, |_| {}).unwrap() == new);
    let error = copied(&records, other).unwrap_err();
    assert!(matches!(error, SinkError::Differs(_)), "{error}");
    let error = copied(&records, |at| fs::write(at, "short").unwrap()).unwrap_err();
    assert!(matches!(error, SinkError::Write { .. }), "{error}");
    // What was only compared so far, and is another when it has to be copied.
    let bytes = [&there[..first], &there[second..]].concat();
    let records = [from(0, one), from(two, 100_000 - two), ended(&bytes)];
    assert!(copied(&records, |_| {}).unwrap() == bytes);
    assert!(copied(&records, other).is_err());
}

/// What is answered about a file of 100,000 bytes, and the sink that has answered.
fn answers(to: &Directory, knows_chunks: bool) -> (Sink, Vec<Have>) {
    let mut sink = replacing(to, knows_chunks);
    let [ask, file] = asked("tree");
    let (mut answers, mut bytes) = (Vec::new(), Vec::new());
    [Record::Root(path("tree")), ask, file].iter().for_each(|record| record.put(&mut bytes));
    sink.take(&bytes, &mut |have| {
        answers.push(have);
        true
    })
    .unwrap();
    (sink, answers)
}

fn is_order(sink: &mut Sink, record: &Record) -> bool {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    matches!(sink.take(&bytes, &mut |_| true), Err(SinkError::Order))
}

/// The part of an interrupted transfer is written to, and by itself is compared by blocks; beside a file that is replaced, too, if the
/// sender knows nothing else.
#[test]
fn a_part_is_compared_by_blocks() {
    let to = Directory::new("part-blocks");
    fs::write(to.0.join(".tree.dwell-part"), random(5, 70_000)).unwrap();
    for (knows_chunks, has_named) in [(true, false), (false, false), (false, true)] {
        if has_named {
            fs::write(to.0.join("tree"), random(5, 100_000)).unwrap();
        }
        let (mut sink, answers) = answers(&to, knows_chunks);
        assert!(matches!(&answers[..], [Have::Blocks { bytes: 70_000, .. }]), "{answers:?}");
        // And is not copied from elsewhere.
        assert!(is_order(&mut sink, &from(0, 1)));
    }
}

/// What had come of a file, and what it is to replace, count both.
#[test]
fn a_part_and_what_has_the_name_are_compared_together() {
    let (old, new) = (random(7, 500_000), random(8, 500_000));
    // Of the new file a fifth had come, and three fifths are those of the old one, moved.
    let wanted = [&new[..200_000], &old[100_000..400_000], b"and more"].concat();
    let (to, from) = (Directory::new("both"), Directory::new("both-from"));
    for part in [&wanted[..100_000], &wanted[..250_000], &wanted[..1], &wanted[..], &old[..]] {
        fs::write(to.0.join("tree"), &old).unwrap();
        fs::write(to.0.join(".tree.dwell-part"), part).unwrap();
        fs::write(from.0.join("tree"), &wanted).unwrap();
        let source = Source::files(&[from.0.join("tree")], false).unwrap();
        let (went, reused) = sent_again(source, &to, true);
        assert!(fs::read(to.0.join("tree")).unwrap() == wanted);
        assert_eq!(to.names(), ["tree"]);
        let had = if part == old { 0 } else { part.len().min(200_000) };
        assert!(went < 200_000 - had + 100_000, "{}: {went}", part.len());
        assert!(went as u64 + reused < wanted.len() as u64 + 1000);
    }
}

/// A file that is replaced, and a transfer that breaks off halfway: the next one sends neither what had come nor what is there.
#[test]
fn an_overwrite_that_broke_off_sends_nothing_twice() {
    const LEN: usize = 10_000_000;
    let old = random(12, LEN);
    // A row at the beginning, a megabyte in the first half, and one in the second half.
    let (rows, early, late) = (random(13, 1000), random(14, 1 << 20), random(15, 1 << 20));
    let new = [
        &rows[..],
        &old[..3_000_000],
        &early,
        &old[3_000_000..7_000_000],
        &late,
        &old[7_000_000..],
    ]
    .concat();
    let (to, here) = (Directory::new("broken"), Directory::new("broken-from"));
    fs::write(to.0.join("tree"), &old).unwrap();
    fs::write(here.0.join("tree"), &new).unwrap();
    let source = || Source::files(&[here.0.join("tree")], false).unwrap();
    let stops = |went: usize| went > 1_200_000;
    let first = sent_until(source(), &to, true, stops);
    assert_eq!(to.names(), [".tree.dwell-part", "tree"]);
    let part = fs::metadata(to.0.join(".tree.dwell-part")).unwrap().len();
    assert!((4_000_000..9_200_000).contains(&part), "{part}");
    let (went, reused) = sent_again(source(), &to, true);
    assert!(fs::read(to.0.join("tree")).unwrap() == new);
    assert!(first + went < rows.len() + early.len() + late.len() + 200_000, "{first} + {went}");
    assert!(reused > 9_900_000, "{reused}");
    assert_eq!(to.names(), ["tree"]);
}

/// A source that has changed since: what had come belongs elsewhere, and is overwritten before it is needed.
#[test]
fn a_part_is_copied_from_although_it_is_written_to() {
    let whole = random(9, 400_000);
    let rows = random(10, 50_000);
    let changes = [
        [&rows[..], &whole[..]].concat(),
        [&whole[..100_000], &rows[..], &whole[100_000..]].concat(),
        whole[50_000..].to_vec(),
        [&whole[200_000..], &whole[..200_000]].concat(),
        [&whole[..150_000], &whole[..150_000], &rows[..10_000], &whole[100_000..]].concat(),
    ];
    let (to, from) = (Directory::new("moved"), Directory::new("moved-from"));
    for (number, wanted) in changes.iter().enumerate() {
        fs::write(to.0.join("tree"), random(11, 1000)).unwrap();
        fs::write(to.0.join(".tree.dwell-part"), &whole).unwrap();
        fs::write(from.0.join("tree"), wanted).unwrap();
        let source = Source::files(&[from.0.join("tree")], false).unwrap();
        let (went, _) = sent_again(source, &to, true);
        assert!(fs::read(to.0.join("tree")).unwrap() == *wanted, "{number}");
        assert_eq!(to.names(), ["tree"]);
        assert!(went < 150_000, "{number}: {went}");
    }
}

/// Without room to keep aside what a part had it is needed all the same only if the source has changed, which is said; the part stays.
#[test]
fn a_part_is_gone_on_with_where_there_is_no_room_for_two() {
    let to = Directory::new("no-room");
    let (part, old) = (random(9, 400_000), random(11, 100_000));
    for (needs_it, rows) in [(true, random(10, 50_000)), (false, part[..40_000].to_vec())] {
        fs::write(to.0.join("tree"), &old).unwrap();
        fs::write(to.0.join(".tree.dwell-part"), &part).unwrap();
        let (mut sink, _) = answers(&to, true);
        let take = |sink: &mut Sink, bytes: &[u8]| sink.take(bytes, &mut |_| true);
        let mut bytes = Vec::new();
        // Bytes that differ, and those that the part had behind them.
        put_data(&mut bytes, &rows);
        put_data(&mut bytes, b"differs");
        take(&mut sink, &bytes).unwrap();
        sink.writing.as_mut().unwrap().spill.as_mut().unwrap().lose();
        let mut copy = Vec::new();
        let ends = ends(&part[..200_000]);
        let behind = ends.partition_point(|&end| end < 40_007);
        let at = if needs_it { [0, ends[0]] } else { [ends[behind], ends[behind + 1]] };
        from(at[0], at[1] - at[0]).put(&mut copy);
        let taken = take(&mut sink, &copy);
        assert_eq!(taken.is_err(), needs_it, "{taken:?}");
        assert!(taken.err().is_none_or(|error| error.to_string().contains("has no room")));
        assert!(sink.give_up().is_some());
        assert_eq!(to.names(), [".tree.dwell-part", "tree"]);
    }
}

#[test]
fn copies_from_a_part_and_a_file_have_their_ends() {
    let to = Directory::new("both-ends");
    fs::write(to.0.join("tree"), random(5, 100_000)).unwrap();
    fs::write(to.0.join(".tree.dwell-part"), random(6, 60_000)).unwrap();
    let (_, said) = answers(&to, true);
    let length = |have: &Have| match have {
        Have::Chunks { chunks, .. } => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
        _ => 0,
    };
    let all: u64 = said.iter().map(length).sum();
    assert!((120_000..=160_000).contains(&all), "{all}");
    for copy in [from(all, 1), from(all - 1, 2), from(0, all + 1), from(u64::MAX - 1, 1)] {
        let (mut sink, _) = answers(&to, true);
        assert!(is_order(&mut sink, &copy), "{copy:?}");
    }
    let (mut sink, _) = answers(&to, true);
    let mut bytes = Vec::new();
    from(0, all).put(&mut bytes);
    sink.take(&bytes, &mut |_| true).unwrap();
}

/// What becomes of these answers at a sender.
fn answered(answers: Vec<Have>) -> Result<Sent, &'static str> {
    let from = Directory::new("answered");
    fs::write(from.0.join("tree"), random(5, 100_000)).unwrap();
    let source = Source::files(&[from.0.join("tree")], false).unwrap();
    let (answer, known) = mpsc::channel();
    answers.into_iter().for_each(|have| answer.send(have).unwrap());
    drop(answer);
    let (pieces, coming) = mpsc::sync_channel(100);
    let mut outlet = Channel(pieces);
    let sent = Recorder::new(Some(known), false, None, &mut outlet, Arc::default()).run(source);
    drop((outlet, coming));
    sent.map_err(|stop| match stop {
        crate::transfer::source::Stop::Answer => "answer",
        crate::transfer::source::Stop::Gone => "gone",
        crate::transfer::source::Stop::Read(_) => "read",
    })
}

#[test]
fn hostile_answers_are_refused() {
    let chunk = Chunk { bytes: 1 << 15, hash: hash(b"x") };
    let chunks = |log2, more, number| Have::Chunks { log2, more, chunks: vec![chunk; number] };
    let blocks = |more| Have::Blocks { log2: 16, more, bytes: 5, hashes: vec![hash(b"x")] };
    let ends: [&[Have]; 3] = [
        &[chunks(13, false, 9)],
        &[chunks(13, true, 9), chunks(13, false, 1)],
        // Nothing about it is said any more.
        &[chunks(13, true, 9), Have::Nothing],
    ];
    for answers in ends {
        assert!(answered(answers.to_vec()).is_ok(), "{answers:?}");
    }
    let cases: [&[Have]; 5] = [
        &[chunks(13, false, 0)],
        &[chunks(13, true, 0), chunks(13, false, 1)],
        &[chunks(13, true, 1), chunks(14, false, 1)],
        &[chunks(13, true, 1), blocks(false)],
        &[blocks(true), chunks(13, false, 1)],
    ];
    for answers in cases {
        assert_eq!(answered(answers.to_vec()).unwrap_err(), "answer", "{answers:?}");
    }
    assert_eq!(answered(vec![chunks(13, true, 1)]).unwrap_err(), "gone");
    // Whoever says what is not there gets other bytes, and notices it.
    let lies = vec![Chunk { bytes: 100_000 >> 2, hash: hash(&random(5, 100_000)) }];
    assert!(answered(vec![Have::Chunks { log2: 15, more: false, chunks: lies }]).is_ok());
}

/// One change of a file.
#[derive(Clone, Debug)]
enum Edit {
    Insert { at: usize, len: usize, seed: u64 },
    Delete { at: usize, len: usize },
    Replace { at: usize, len: usize, seed: u64 },
    Move { from: usize, len: usize, to: usize },
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let range = |at: usize, len: usize, bytes: &[u8]| {
            let begin = at.min(bytes.len());
            begin..begin.saturating_add(len).min(bytes.len())
        };
        match *self {
            Self::Insert { at, len, seed } => {
                let at = at.min(bytes.len());
                bytes.splice(at..at, random(seed, len));
            }
            Self::Delete { at, len } => drop(bytes.drain(range(at, len, bytes))),
            Self::Replace { at, len, seed } => {
                bytes.splice(range(at, len, bytes), random(seed, len));
            }
            Self::Move { from, len, to } => {
                let moved: Vec<u8> = bytes.drain(range(from, len, bytes)).collect();
                let to = to.min(bytes.len());
                bytes.splice(to..to, moved);
            }
        }
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    let (at, len) = (|| 0usize..300_000, || 0usize..40_000);
    prop_oneof![
        (at(), len(), any::<u64>()).prop_map(|(at, len, seed)| Edit::Insert { at, len, seed }),
        (at(), len()).prop_map(|(at, len)| Edit::Delete { at, len }),
        (at(), len(), any::<u64>()).prop_map(|(at, len, seed)| Edit::Replace { at, len, seed }),
        (at(), len(), at()).prop_map(|(from, len, to)| Edit::Move { from, len, to }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_has_changed_arrives(
        seed: u64, len in 1usize..250_000, repeats: bool, edits in prop::collection::vec(edit(), 0..6),
    ) {
        // Bytes that hardly differ are cut elsewhere.
        let old = match repeats {
            false => random(seed, len),
            true => random(seed, len / 50 + 1).repeat(50),
        };
        let mut new = old.clone();
        for edit in &edits {
            edit.apply(&mut new);
        }
        // Of an empty one nothing is asked but whether there is any.
        new.push(7);
        let (_, reused) = changed("edited", &old, &new, true);
        let longest = edits.len() * (40_000 + 4 * 32_768) + 32_768;
        prop_assert!(repeats || reused + longest as u64 >= old.len() as u64);
    }

    #[test]
    fn an_insertion_makes_a_few_chunks_go(seed: u64, inserted in 1usize..5000) {
        let old = random(seed, 1 << 20);
        let new = [random(!seed, inserted), old.clone()].concat();
        let (went, _) = changed("inserted", &old, &new, true);
        prop_assert!(went < inserted + 150_000, "{}", went);
    }
}
