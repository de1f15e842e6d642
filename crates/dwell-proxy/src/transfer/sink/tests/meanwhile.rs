//! What others put there while a transfer is under way, and what a receiver that was killed has put there.

use super::*;

const KEEPS: Policy = Policy { existing: Existing::Keep, ..STRICT };

#[test]
fn what_came_meanwhile_stays_if_it_is_not_to_be_replaced() {
    let to = Directory::new("keeps-meanwhile");
    let link = |name: &str| Record::Symlink(path(name), META, b"file".to_vec());
    let linked = |text: &str| match file(text) {
        Record::File(entry) => Record::File(FileEntry { link_id: 7, ..entry }),
        other => other,
    };
    let (mut sink, _) = open(&to, true, Policy { allows_links_outside: true, ..KEEPS });
    sink.bytes_max = 1 << 20;
    let begun = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        linked("tree/first"),
        hello(),
        file("tree/file"),
    ];
    sink.take(&stream(&begun), &mut |_| true).unwrap();
    for name in ["file", "link", "other"] {
        fs::write(to.0.join("tree").join(name), "mine").unwrap();
    }
    let rest = [hello(), link("tree/link"), Record::HardLink(path("tree/other"), 7)];
    sink.take(&stream(&rest), &mut |_| true).unwrap();
    let received = sink.finish(|| true).unwrap();
    assert_eq!((received.files, received.kept), (1, 3));
    for name in ["file", "link", "other"] {
        assert_eq!(fs::read(to.0.join("tree").join(name)).unwrap(), b"mine", "{name}");
    }
    assert_eq!(fs::read_dir(to.0.join("tree")).unwrap().count(), 4);
}

const ROOTS: [&str; 3] = ["tree", "two", "three"];

fn roots() -> Vec<Record> {
    ROOTS.iter().flat_map(|root| [Record::Root(path(root)), file(root), hello()]).collect()
}

fn several(to: &Directory) -> Sink {
    let (mut sink, _) = open(to, true, STRICT);
    (sink.files_max, sink.bytes_max) = (10, 1 << 20);
    sink
}

fn goes_on(to: &Directory) {
    let mut sink = several(to);
    sink.take(&stream(&roots()), &mut |_| true).unwrap();
    assert_eq!(sink.finish(|| true).unwrap().files, 3);
    assert_eq!(to.names(), sorted(&ROOTS));
}

fn sorted(names: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    names.sort();
    names
}

#[test]
fn of_several_roots_none_has_its_name_if_one_cannot() {
    let to = Directory::new("roots-in-the-way");
    let mut sink = several(&to);
    sink.take(&stream(&roots()), &mut |_| true).unwrap();
    fs::write(to.0.join("three"), "mine").unwrap();
    let error = sink.finish(|| true).unwrap_err().to_string();
    assert!(error.contains("three exists"), "{error}");
    assert!(sink.give_up().is_some());
    assert_eq!(to.names(), [".tree.dwell-part", "three"]);
    assert_eq!(fs::read(to.0.join("three")).unwrap(), b"mine");
    fs::remove_file(to.0.join("three")).unwrap();
    goes_on(&to);
}

/// As a receiver leaves it that is killed when so many of the roots have their names.
fn killed_when_placed(to: &Directory, placed: usize) {
    let mut sink = several(to);
    sink.take(&stream(&roots()), &mut |_| true).unwrap();
    let staged = to.0.join(".tree.dwell-part");
    let base = fs::File::open(&staged).unwrap();
    let parts = fs::File::open(staged.join(PARTS)).unwrap();
    let identity =
        |name: &str| (name.into(), placing::Identity::of(base.as_fd(), OsStr::new(name)).unwrap());
    placing::note(parts.as_fd(), &ROOTS.map(identity)).unwrap();
    for name in &ROOTS[..placed] {
        fs::rename(staged.join(name), to.0.join(name)).unwrap();
    }
}

#[test]
fn a_receiver_goes_on_where_another_was_killed_while_roots_got_their_names() {
    for placed in 0..3 {
        let to = Directory::new(&format!("roots-killed-{placed}"));
        killed_when_placed(&to, placed);
        goes_on(&to);
    }
}

/// They are their owner's then, whatever became of them.
#[test]
fn roots_that_all_had_their_names_do_not_come_back() {
    let to = Directory::new("roots-complete");
    killed_when_placed(&to, 3);
    fs::write(to.0.join("two"), "mine").unwrap();
    let mut sink = several(&to);
    let error = sink.take(&stream(&roots()), &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("tree exists"), "{error}");
    assert!(sink.give_up().is_none());
    assert_eq!(fs::read(to.0.join("two")).unwrap(), b"mine");
    assert_eq!(to.names().len(), 3);
}

/// What has the name that was noted, and is something else, is somebody's, also if it has the same number.
#[test]
fn only_what_was_put_there_comes_back() {
    let to = Directory::new("roots-others");
    killed_when_placed(&to, 2);
    fs::remove_file(to.0.join("two")).unwrap();
    // The kernel's clock for times of files goes in steps.
    thread::sleep(std::time::Duration::from_millis(50));
    fs::write(to.0.join("two"), "mine").unwrap();
    let mut sink = several(&to);
    let error = sink.take(&stream(&roots()), &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("two exists"), "{error}");
    assert_eq!(fs::read(to.0.join("two")).unwrap(), b"mine");
}

#[test]
fn a_link_in_place_of_a_directory_is_named() {
    let (to, outside) = (Directory::new("linked-directory"), Directory::new("linked-outside"));
    fs::create_dir(to.0.join("tree")).unwrap();
    symlink(&outside.0, to.0.join("tree/sub")).unwrap();
    let records = [
        Record::Root(path("tree")),
        Record::Directory(path("tree"), META),
        Record::Directory(path("tree/sub"), META),
    ];
    for existing in [Existing::Replace, Existing::Keep] {
        let (mut sink, _) = open(&to, true, Policy { existing, ..STRICT });
        sink.others_max = 10;
        let error = sink.take(&stream(&records), &mut |_| true).unwrap_err().to_string();
        assert!(error.contains("tree/sub is a symbolic link"), "{error}");
    }
}

/// The step of a receiver of several things under one name in which it is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    Before,
    Named,
    Opened,
    Last,
}

/// Several roots that come under one name, as a receiver leaves them that is killed then.
fn killed_when_named(to: &Directory, killed: Killed) -> PathBuf {
    let at = to.0.join("whole");
    let mut sink = whole(&Place::File(at.clone())).unwrap();
    sink.take(&stream(&roots()), &mut |_| true).unwrap();
    let staged = to.0.join(".whole.dwell-part");
    let parts = staged.join(PARTS);
    let identity = placing::Identity::of(fs::File::open(&staged).unwrap().as_fd(), ".".as_ref());
    let noted = (placing::WHOLE.into(), identity.unwrap());
    placing::note(fs::File::open(&parts).unwrap().as_fd(), &[noted]).unwrap();
    drop(sink);
    if matches!(killed, Killed::Opened | Killed::Last) {
        fs::set_permissions(&staged, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if matches!(killed, Killed::Last) {
        fs::remove_file(parts.join("placing")).unwrap();
    }
    if !matches!(killed, Killed::Before) {
        fs::rename(&staged, &at).unwrap();
    }
    at
}

fn whole(place: &Place) -> Result<Sink, String> {
    let name = "tree".to_owned();
    let offer = Offer {
        name,
        bytes: None,
        files: 3,
        others: 0,
        is_tree: true,
        is_eager: false,
        window_log2: 0,
    };
    Ok(Sink::open(place, &offer, STRICT, Arc::default())?.0)
}

/// The directory has its own permissions then, and nothing of a receiver in it, whether the next one goes into it or has its name.
#[test]
fn what_was_named_is_finished_by_the_next_receiver() {
    for killed in [Killed::Named, Killed::Opened, Killed::Last] {
        for goes_into in [true, false] {
            let to = Directory::new("whole");
            let at = killed_when_named(&to, killed);
            fs::create_dir(to.0.join("usual")).unwrap();
            if goes_into {
                whole(&Place::Directory(at.clone())).unwrap().give_up();
            } else {
                let error = whole(&Place::File(at.clone())).unwrap_err();
                assert!(error.contains("whole exists"), "{error}");
            }
            assert_eq!(mode(&at), mode(&to.0.join("usual")), "{killed:?}");
            let names = Directory(at).names();
            assert_eq!(names, sorted(&ROOTS), "{killed:?}");
        }
    }
}

/// It may not have come as far as to the name, and another receiver may be just at it.
#[test]
fn what_is_not_left_is_not_finished() {
    let to = Directory::new("whole-staged");
    let at = killed_when_named(&to, Killed::Before);
    let mut sink = whole(&Place::File(at.clone())).unwrap();
    sink.take(&stream(&roots()), &mut |_| true).unwrap();
    sink.finish(|| true).unwrap();
    assert_eq!(Directory(at).names(), sorted(&ROOTS));

    let to = Directory::new("whole-locked");
    let at = killed_when_named(&to, Killed::Named);
    let locked = fs::File::open(&at).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(whole(&Place::File(at.clone())).is_err());
    assert!(mode(&at) == 0o700 && at.join(PARTS).join("placing").exists());
}
