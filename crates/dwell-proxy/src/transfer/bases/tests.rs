use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use super::*;

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-bases-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Makes a file of so many bytes, changed so many seconds after 1970.
    fn file(&self, name: &str, bytes: usize, time_s: u64) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![7; bytes]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s)).unwrap();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(bases: &mut Bases, text: &str, bytes: u64, mtime_s: i64) -> Vec<Option<String>> {
    let path = EntryPath::new(text.as_bytes()).unwrap();
    let meta = Some(Meta { mode: 0o644, mtime_s, mtime_ns: 0 });
    let wanted = Wanted { path: &path, bytes: Some(bytes), meta };
    let found = bases.find(wanted, Vec::new());
    found.into_iter().map(|base| base.path.map(|path| path.to_string())).collect()
}

/// What is found in a directory with these files, of lengths and times.
fn likeliest(files: &[(&str, usize, u64)], text: &str, bytes: u64, mtime_s: i64) -> Option<String> {
    let there = Temporary::new(&format!("{:?}", std::thread::current().id()));
    files.iter().for_each(|&(name, bytes, time_s)| there.file(name, bytes, time_s));
    let mut bases = Bases::new(std::slice::from_ref(&there.0));
    found(&mut bases, text, bytes, mtime_s).pop().flatten()
}

#[test]
fn the_same_path_comes_first() {
    let files = [("tree/a/x", 100, 1), ("a/x", 100, 2), ("x", 100, 3), ("other/x", 200, 4)];
    let find = |files: &[_], path| likeliest(files, path, 200, 4);
    assert_eq!(find(&files, "tree/a/x").as_deref(), Some("tree/a/x"));
    assert_eq!(find(&files[1..], "tree/a/x").as_deref(), Some("a/x"), "without its first name");
    assert_eq!(find(&files[2..], "x").as_deref(), Some("x"));
    // Nothing that is so short that it can be guessed.
    assert_eq!(find(&[("x", 63, 1)], "x"), None);
}

#[test]
fn then_the_same_name_anywhere() {
    let files = [("new/deep/x", 100, 1), ("b/deep/x", 900, 1), ("x", 200, 4), ("y", 200, 4)];
    let find = |files: &[_], path| likeliest(files, path, 200, 4);
    assert_eq!(find(&files, "t/deep/x").as_deref(), Some("new/deep/x"), "the nearest length");
    assert_eq!(find(&files[1..], "t/deep/x").as_deref(), Some("b/deep/x"), "most directories");
    assert_eq!(find(&files[2..], "t/deep/x").as_deref(), Some("x"));
}

#[test]
fn then_the_same_length_and_time() {
    let files = [("a/moved", 200, 4), ("a/z.bin", 200, 5), ("z-1.bin", 201, 4)];
    assert_eq!(likeliest(&files, "z.bin", 200, 4).as_deref(), Some("a/z.bin"), "the name");
    assert_eq!(likeliest(&files, "w.bin", 200, 4).as_deref(), Some("a/moved"));
    assert_eq!(likeliest(&files, "w.bin", 200, 9), None);
}

#[test]
fn then_the_most_similar_name_in_the_same_directory() {
    let find = |names: &[&str], wanted| {
        let times = 10..;
        let files: Vec<_> = names.iter().zip(times).map(|(&name, at)| (name, 100, at)).collect();
        likeliest(&files, wanted, 500, 1)
    };
    let dumps =
        ["db-2026-10-30.sql", "db-2026-11-28.sql", "db-2026-11-29.sql", "web-2026-11-30.sql"];
    assert_eq!(find(&dumps, "db-2026-11-30.sql").as_deref(), Some(dumps[2]), "the latest");
    // Numbers say nothing of likeness, but of two that are alike otherwise.
    let dated = ["2026-11-30-web.sql", "2026-11-29-db.sql"];
    assert_eq!(find(&dated, "2026-11-30-db.sql").as_deref(), Some(dated[1]));
    let versions = ["prog-1.9.tar", "prog-1.10.tar", "prog-1.10.zip", "prog-doc-1.11.tar"];
    assert_eq!(find(&versions, "prog-1.11.tar").as_deref(), Some("prog-1.10.tar"));
    assert_eq!(find(&["access.log.1"], "access.log.2").as_deref(), Some("access.log.1"));
    assert_eq!(find(&["deep/x-1.c", "other/x-2.c"], "t/deep/x-3.c").as_deref(), Some("deep/x-1.c"));
    for (there, wanted) in
        [("db-1.sql", "db-2.sql.gz"), ("notes.txt", "a.txt"), ("deep/db-1.sql", "db-2.sql")]
    {
        assert_eq!(find(&[there], wanted), None, "{there} for {wanted}");
    }
}

#[test]
fn nothing_is_followed_out_of_it() {
    let (there, outside) = (Temporary::new("links"), Temporary::new("links-outside"));
    outside.file("x", 100, 1);
    outside.file("deep/y", 100, 1);
    symlink(outside.0.join("x"), there.0.join("x")).unwrap();
    symlink(&outside.0, there.0.join("out")).unwrap();
    there.file(".x.dwell-part", 100, 1);
    there.file("deep/.dwell-part/z", 100, 1);
    rustix::fs::mkfifoat(rustix::fs::CWD, there.0.join("y"), rustix::fs::Mode::RWXU).unwrap();
    let mut bases = Bases::new(std::slice::from_ref(&there.0));
    for path in [
        "x",
        "out/x",
        "out/deep/y",
        "t/out/x",
        "y",
        "x-1",
        ".x.dwell-part-1",
        ".x.dwell-part",
        "deep/.dwell-part/z",
    ] {
        assert!(found(&mut bases, path, 100, 1).is_empty(), "{path}");
    }
    // What is named is followed, as it was chosen.
    let mut bases = Bases::new(&[there.0.join("x"), there.0.join("out")]);
    assert_eq!(found(&mut bases, "x", 100, 1), [None], "the same file is found once");
    assert_eq!(found(&mut bases, "y", 100, 1), [None, Some("deep/y".to_owned())]);
}

#[test]
fn what_is_named_must_be_there() {
    let there = Temporary::new("named");
    there.file("x", 100, 1);
    check(&[there.0.join("x"), there.0.clone()]).unwrap();
    for (path, why) in [(there.0.join("y"), "No such file"), ("/dev/null".into(), "neither a file")]
    {
        let error = check(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(why), "{error}");
        // It can go while a receiver stays.
        assert!(Bases::new(&[path]).is_empty());
    }
}

#[test]
fn more_is_not_looked_at_than_there_is_room_for() {
    let there = Temporary::new("room");
    (0..100).for_each(|number| there.file(&format!("d{}/f{number}", number % 10), 100, 1));
    there.file("top", 100, 1);
    let mut bases = Bases::new(std::slice::from_ref(&there.0));
    bases.room.entries = 31;
    assert!(found(&mut bases, "nothing", 5, 5).is_empty());
    assert_eq!((bases.room.entries, found(&mut bases, "elsewhere/top", 5, 5).len()), (0, 1));
    // What is where it would be is found all the same.
    assert_eq!(found(&mut bases, "d3/f93", 5, 5).len(), 1);
}

#[test]
fn what_was_written_to_is_noticed() {
    let there = Temporary::new("changed");
    there.file("x", 100, 1);
    let mut bases = Bases::new(std::slice::from_ref(&there.0));
    let path = EntryPath::new(b"x").unwrap();
    let wanted = Wanted { path: &path, bytes: None, meta: None };
    let mut held = Vec::new();
    for number in 0..HELD_MAX + 2 {
        let mut base = bases.find(wanted, Vec::new()).pop().unwrap();
        bases.hold(&mut base);
        assert_eq!(base.file().is_some(), number < HELD_MAX);
        held.push(base);
    }
    held.iter().for_each(|base| bases.let_go(base));
    assert_eq!(bases.held, 0);
    bases.open_again(&mut held[HELD_MAX]).unwrap();
    there.file("x", 101, 1);
    for at in [0, HELD_MAX + 1] {
        let error = bases.open_again(&mut held[at]).unwrap_err();
        assert!(error.to_string().contains("has changed meanwhile"), "{error}");
    }
    fs::remove_file(there.0.join("x")).unwrap();
    held[HELD_MAX + 1].file = None;
    assert!(bases.open_again(&mut held[HELD_MAX + 1]).is_err());
}
