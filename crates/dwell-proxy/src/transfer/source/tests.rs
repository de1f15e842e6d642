//! What takes the place of files and directories while they are sent.

use std::os::unix::fs::symlink;

use super::*;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-source-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("tree/sub")).unwrap();
        fs::create_dir_all(path.join("secret")).unwrap();
        fs::write(path.join("tree/file"), "mine").unwrap();
        fs::write(path.join("tree/sub/file"), "mine").unwrap();
        fs::write(path.join("secret/file"), "secret").unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct Pieces(Vec<u8>);

impl Outlet for Pieces {
    fn put(&mut self, piece: Vec<u8>) -> bool {
        self.0.extend(piece);
        true
    }
}

/// Looks at all that is in `tree`, changes something, and sends it then: the bytes, and what was left out.
fn sent_after(at: &Directory, follow: bool, change: impl FnOnce(&Path)) -> (Vec<u8>, Vec<String>) {
    let source = Source::files(&[at.0.join("tree")], follow).unwrap();
    let Input::Files { roots, .. } = source.input else { panic!("no files") };
    let mut pieces = Pieces::default();
    let mut recorder = Recorder::new(None, false, None, &mut pieces, Arc::default());
    recorder.opener.follow = follow;
    let walked: Vec<_> = walk(&roots[0], follow).collect();
    let found = walked.into_iter().filter_map(|entry| recorder.look(&roots[0], entry));
    let found: Vec<_> = found.collect();
    change(&at.0);
    for found in found {
        assert!(recorder.entry(found).is_ok());
    }
    assert!(recorder.flush().is_ok());
    let remarks = recorder.sent.remarks;
    (pieces.0, remarks)
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_link_that_took_the_place_of_a_file_is_not_followed() {
    let at = Directory::new("file");
    let (bytes, remarks) = sent_after(&at, false, |at| {
        fs::remove_file(at.join("tree/file")).unwrap();
        symlink("../secret/file", at.join("tree/file")).unwrap();
    });
    assert!(has(&bytes, "mine") && !has(&bytes, "secret"));
    assert!(
        remarks.len() == 1 && remarks[0].contains("tree/file is no file any more"),
        "{remarks:?}"
    );
}

#[test]
fn a_link_that_took_the_place_of_a_directory_is_not_followed() {
    let at = Directory::new("directory");
    let (bytes, remarks) = sent_after(&at, false, |at| {
        fs::rename(at.join("tree/sub"), at.join("tree/away")).unwrap();
        symlink("../secret", at.join("tree/sub")).unwrap();
    });
    assert!(has(&bytes, "mine") && !has(&bytes, "secret"));
    assert!(
        remarks.len() == 1 && remarks[0].contains("tree/sub/file is no file any more"),
        "{remarks:?}"
    );
}

#[test]
fn links_are_followed_where_that_is_asked_for() {
    let at = Directory::new("follow");
    symlink("../secret", at.0.join("tree/link")).unwrap();
    let (bytes, remarks) = sent_after(&at, true, |_| {});
    assert!(has(&bytes, "secret") && remarks.is_empty(), "{remarks:?}");
}

/// A file that was replaced is sent as it is now, and names of the one that was there are none of it.
#[test]
fn another_file_in_the_place_of_one_is_sent() {
    let at = Directory::new("replaced");
    fs::hard_link(at.0.join("tree/file"), at.0.join("tree/second")).unwrap();
    let (bytes, remarks) = sent_after(&at, false, |at| {
        fs::write(at.join("new"), "newer").unwrap();
        fs::hard_link(at.join("new"), at.join("newest")).unwrap();
        fs::rename(at.join("new"), at.join("tree/file")).unwrap();
    });
    assert!(has(&bytes, "newer") && remarks.is_empty(), "{remarks:?}");
    assert_eq!(bytes.windows(4).filter(|window| window == b"mine").count(), 2);
}
