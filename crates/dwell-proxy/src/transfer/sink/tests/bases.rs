//! Files that are like others which the receiver lets be copied from.

use super::chunks::{random, sending};
use super::*;
use crate::transfer::bases::Bases;
use crate::transfer::chunks::Grain;
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

/// No chunk of a basis ends where the sender says.
#[test]
fn no_answer_about_a_basis_ends_where_the_sender_says() {
    let to = Directory::new("bases-probed");
    fs::write(to.0.join("basis"), random(6, 300_000)).unwrap();
    fs::write(to.0.join("short"), random(6, 63)).unwrap();
    let bases = [to.0.join("basis"), to.0.join("short")];
    for wanted in [1, 31, 1_000, 65_535, 100_000, 149_999] {
        let mut sink = with_bases(&to, Existing::Refuse, &bases);
        let ask = Ask { path: path("tree"), bytes: Some(wanted), meta: None, is_quick: false };
        let (_, _, answers) = sink.look(&path("tree"), &ask).unwrap();
        for answer in answers {
            let Have::Chunks { chunks, .. } = answer else { continue };
            let bytes: u64 = chunks.iter().map(|it| u64::from(it.bytes)).sum();
            assert!(bytes < 2 * wanted, "{wanted}: {bytes}");
        }
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
