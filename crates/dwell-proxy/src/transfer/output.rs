//! The output of a received file: beside its place under another name until it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::part;

/// The place of the output.
#[derive(Clone, Debug)]
pub enum Place {
    /// To standard output.
    Stdout,
    /// To this file.
    File(PathBuf),
    /// Into this directory, under the name that the sender gives it.
    Directory(PathBuf),
}

/// The output while it is written. Dropped before it is complete, it leaves nothing behind.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stdout(io::Stdout),
    /// A file that is being written.
    File(PartFile),
}

/// A file under another name, locked as long as it is written.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    part: PathBuf,
    path: PathBuf,
    replace: bool,
    complete: bool,
}

impl Output {
    /// Begins to write what is offered under `name`.
    ///
    /// # Errors
    /// In words that say what to do: there is a file already that is not to be replaced, there is
    /// no name, or the system says no.
    pub fn create(place: &Place, name: &str, replace: bool) -> Result<Self, String> {
        let path = match place {
            Place::Stdout => return Ok(Self::Stdout(io::stdout())),
            Place::File(path) => path.clone(),
            Place::Directory(_) if name.is_empty() => {
                return Err(
                    "the sender reads from a pipe and gives no name: receive with a name, \
                            as `dwell recv FILE`"
                        .to_owned(),
                );
            }
            Place::Directory(directory) => directory.join(name),
        };
        let shown = path.display();
        if path.is_dir() {
            return Err(format!("{shown} is a directory: name a file"));
        }
        match fs::symlink_metadata(&path) {
            Ok(_) if !replace => {
                return Err(format!("{shown} exists: use another name, or --force to replace it"));
            }
            // A device, a link, and the like.
            Ok(there) if !there.is_file() => {
                return Err(format!("{shown} is no regular file and is not replaced: name a file"));
            }
            _ => {}
        }
        let (file, part) = part::create(&path)?;
        Ok(Self::File(PartFile { file, part, path, replace, complete: false }))
    }

    /// Returns its final name, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::Stdout(_) => "standard output".to_owned(),
            Self::File(part) => part.path.display().to_string(),
        }
    }

    /// Returns its path until it is complete; none if it is a pipe.
    pub fn part(&self) -> Option<PathBuf> {
        match self {
            Self::Stdout(_) => None,
            Self::File(part) => Some(part.part.clone()),
        }
    }

    /// Waits until everything written is on the disk, which may take a while.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(part) => part.file.sync_all(),
        }
    }

    /// Puts a complete file, on the disk by [`Output::sync`], where it belongs.
    ///
    /// # Errors
    /// Returns the system's error; there is nothing left then.
    pub fn complete(mut self) -> io::Result<()> {
        match &mut self {
            Self::Stdout(out) => out.flush(),
            Self::File(part) => part.complete(),
        }
    }
}

impl PartFile {
    fn complete(&mut self) -> io::Result<()> {
        if self.replace {
            fs::rename(&self.part, &self.path)?;
        } else {
            rename_to_nothing(&self.part, &self.path)?;
        }
        self.complete = true;
        // It has its name already, and not all file systems can sync a directory.
        if let Err(error) = sync_directory(&self.path) {
            tracing::debug!("the directory of {} can't be synced: {error}", self.path.display());
        }
        Ok(())
    }
}

/// Makes the name last as well.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Renames, but replaces nothing that came meanwhile.
fn rename_to_nothing(part: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // An older kernel, or a file system that can't.
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => reserve_and_rename(part, path),
        Err(error) => Err(error.into()),
    }
}

/// The same by making the name first, which fails if it is there, and replacing what was made.
fn reserve_and_rename(part: &Path, path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?;
    fs::rename(part, path).inspect_err(|_| {
        // It is empty, and ours.
        let _ = fs::remove_file(path);
    })
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(part) => part.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(part) => part.file.flush(),
        }
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.complete {
            let _ = fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dwell-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_complete_has_its_name() {
        let directory = Directory::new("output");
        let place = Place::Directory(directory.0.clone());
        let mut output = Output::create(&place, "a.txt", false).unwrap();
        output.write_all(b"hello").unwrap();
        assert!(!directory.0.join("a.txt").exists());
        output.complete().unwrap();
        assert_eq!(directory.files(), ["a.txt"]);
        assert_eq!(fs::read(directory.0.join("a.txt")).unwrap(), b"hello");

        let error = Output::create(&place, "a.txt", false).unwrap_err();
        assert!(error.contains("--force"), "{error}");
        let mut output = Output::create(&place, "a.txt", true).unwrap();
        output.write_all(b"again").unwrap();
        output.complete().unwrap();
        assert_eq!(fs::read(directory.0.join("a.txt")).unwrap(), b"again");
        assert_eq!(directory.files(), ["a.txt"]);
    }

    #[test]
    fn what_is_not_complete_is_gone() {
        let directory = Directory::new("part");
        let place = Place::File(directory.0.join("x".repeat(250)));
        let mut output = Output::create(&place, "", false).unwrap();
        output.write_all(b"half").unwrap();
        assert_eq!(directory.files().len(), 1);
        drop(output);
        assert!(directory.files().is_empty());
    }

    #[test]
    fn what_came_meanwhile_is_kept() {
        let directory = Directory::new("meanwhile");
        let path = directory.0.join("a");
        let output = Output::create(&Place::File(path.clone()), "", false).unwrap();
        fs::write(&path, "mine").unwrap();
        output.complete().unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(directory.files(), ["a"]);
    }

    #[test]
    fn what_came_meanwhile_is_kept_where_names_are_reserved() {
        let directory = Directory::new("reserve");
        let (part, path) = (directory.0.join("part"), directory.0.join("a"));
        fs::write(&part, "new").unwrap();
        fs::write(&path, "mine").unwrap();
        for rename in [rename_to_nothing, reserve_and_rename] {
            assert_eq!(rename(&part, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"mine");
        }
        fs::remove_file(&path).unwrap();
        reserve_and_rename(&part, &path).unwrap();
        assert_eq!(
            (directory.files(), fs::read(&path).unwrap()),
            (vec!["a".to_owned()], b"new".to_vec())
        );
    }

    #[test]
    fn only_files_are_replaced() {
        let directory = Directory::new("replace");
        std::os::unix::fs::symlink("elsewhere", directory.0.join("link")).unwrap();
        for path in ["/dev/null".into(), directory.0.join("link")] {
            let error = Output::create(&Place::File(path), "", true).unwrap_err();
            assert!(error.contains("no regular file"), "{error}");
        }
        assert_eq!(directory.files(), ["link"]);
    }

    #[test]
    fn a_pipe_needs_a_name() {
        let error = Output::create(&Place::Directory(".".into()), "", false).unwrap_err();
        assert!(error.contains("dwell recv FILE"), "{error}");
    }
}
