//! Where a transfer goes, and what is to become of what is there.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fchmod, mkdirat, open, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::entry::{EntryPath, Meta};
use super::part::{self, PARTS, PartDirectory};
use super::placing::{self, Identity, Placing, WHOLE};
use super::tree::{Tree, kind, rename, set_meta};

/// The place of what comes.
#[derive(Clone, Debug)]
pub enum Place {
    /// To standard output.
    Stdout,
    /// Under this name.
    File(PathBuf),
    /// Into this directory, under the names that the sender gives.
    Directory(PathBuf),
}

/// What becomes of files that are there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Nothing is received in their place, and the transfer fails.
    #[default]
    Refuse,
    /// They are replaced.
    Replace,
    /// They stay, and what was sent in their place is left out.
    Keep,
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The name; of several the first one's. Empty for a pipe.
    pub name: String,
    /// The length of all files, if it is known.
    pub bytes: Option<u64>,
    /// The number of files.
    pub files: u64,
    /// The number of directories and links.
    pub others: u64,
    /// True if it is more than one plain file.
    pub is_tree: bool,
    /// True if it comes at once, and nothing is asked for.
    pub is_eager: bool,
    /// The sender would refer to bytes that far back in what it sends, as a binary logarithm; 0 if not at all.
    pub window_log2: u8,
}

/// No more than this is sent without waiting for the receiver's answer, and without asking what it has: it would
/// take no longer to send all of it again. What is longer has a head that is sent so.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
/// What is longer than this takes so long that a round trip is no matter.
const HEAD_OF_BYTES_MAX: u64 = 64 << 20;
/// The same in files, directories and links.
const WHOLE_ENTRIES_MAX: u64 = 256;

impl Offer {
    /// Returns true if a round trip counts: what goes before the receiver has answered goes without what both ends could agree on, and
    /// an earlier receiver, which knows no heads, gets all of it so, and resumes nothing.
    pub(super) fn is_worth_a_head(&self) -> bool {
        self.bytes.is_some_and(|bytes| bytes <= HEAD_OF_BYTES_MAX)
    }

    /// Returns true if it is so short that all of it goes at once.
    pub(super) fn is_short(&self) -> bool {
        let is_short = self.bytes.is_some_and(|bytes| bytes <= WHOLE_BYTES_MAX);
        is_short && self.files.saturating_add(self.others) <= WHOLE_ENTRIES_MAX
    }
}

/// The place, opened.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) tree: Tree,
    /// The path of its base, for messages.
    pub(super) shown: PathBuf,
    /// A single file gets this name.
    pub(super) name: Option<EntryPath>,
    pub(super) staging: Option<Staging>,
    /// There is something that need not be sent again, or is to stay.
    pub(super) has_something: bool,
}

/// A directory in which a tree is put together.
#[derive(Debug)]
pub(super) struct Staging {
    parent: OwnedFd,
    parent_shown: PathBuf,
    name: OsString,
    /// The name of the only root, or, of several, of the directory that they are put into; none if each has its
    /// own name beside the staging directory.
    last_name: Option<OsString>,
    /// True if another receiver began it.
    pub(super) was_there: bool,
    /// The roots that it was about to give their names, if it has not come to its end.
    placing: Placing,
    /// Those of them that came back: somebody may have put something into them.
    taken_back: HashSet<Vec<u8>>,
}

/// Why roots have not got their names.
#[derive(Debug)]
pub(super) enum NotPlaced {
    /// Something has one of them; in words that say what to do.
    InTheWay(String),
    Failed(io::Error),
}

impl<E: Into<io::Error>> From<E> for NotPlaced {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Site {
    /// Opens the place of what is offered; not standard output.
    ///
    /// # Errors
    /// In words that say what to do: there is something already that is not to be replaced, there is
    /// no name, or the system says no.
    pub(super) fn open(place: &Place, offer: &Offer, existing: Existing) -> Result<Self, String> {
        let (directory, name) = match place {
            Place::Stdout => return Err("standard output is no directory".to_owned()),
            Place::File(path) => {
                let name = path.file_name().ok_or_else(|| {
                    format!("{} is no name for what comes: name a file", path.display())
                })?;
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                (directory.unwrap_or(Path::new(".")).to_owned(), Some(name.to_owned()))
            }
            Place::Directory(directory) => (directory.clone(), None),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = open(&directory, flags, Mode::empty())
            .map_err(|error| format!("{} can't be written: {error}", directory.display()))?;
        // It may be one that several things were received into, or there is one of that name.
        let left = name.as_deref().unwrap_or(WHOLE.as_ref());
        if let Err(error) = open_up_left(base.as_fd(), left) {
            tracing::debug!("{} is as it was: {error}", left.display());
        }
        if offer.is_tree {
            return Self::of_tree(base, directory, name, offer, existing);
        }
        Self::of_file(base, directory, name, offer, existing)
    }

    fn of_file(
        base: OwnedFd,
        directory: PathBuf,
        name: Option<OsString>,
        offer: &Offer,
        existing: Existing,
    ) -> Result<Self, String> {
        let name = match name {
            None if offer.name.is_empty() => {
                return Err(
                    "the sender reads from a pipe and gives no name: receive with a name, \
                            as `dwell recv FILE`"
                        .to_owned(),
                );
            }
            name => name.unwrap_or_else(|| offer.name.clone().into()),
        };
        let path = EntryPath::new(name.as_encoded_bytes())
            .ok_or_else(|| format!("{} is no name for a file", name.display()))?;
        let shown = directory.join(&name);
        let shown = shown.display();
        let there = stat(&base, &name)?;
        match there {
            Some(FileType::Directory) => {
                return Err(format!("{shown} is a directory: name a file"));
            }
            Some(_) if existing == Existing::Refuse => {
                return Err(format!(
                    "{shown} exists: use another name, or --overwrite to replace it"
                ));
            }
            // A device, a link, and the like.
            Some(kind) if kind != FileType::RegularFile && existing == Existing::Replace => {
                return Err(format!("{shown} is no regular file and is not replaced: name a file"));
            }
            _ => {}
        }
        let mut tree = Tree::new(base, None);
        let has_something = there.is_some() || tree.find_part(&path).is_some();
        Ok(Self { tree, shown: directory, name: Some(path), staging: None, has_something })
    }

    fn of_tree(
        base: OwnedFd,
        directory: PathBuf,
        name: Option<OsString>,
        offer: &Offer,
        existing: Existing,
    ) -> Result<Self, String> {
        if let Some(name) = &name
            && stat(&base, name)?.is_some()
        {
            let shown = directory.join(name);
            return Err(format!("{} exists: use another name", shown.display()));
        }
        if existing != Existing::Refuse && name.is_none() {
            let tree = Tree::new(base, None);
            let has_something = true;
            return Ok(Self { tree, shown: directory, name: None, staging: None, has_something });
        }
        let own = name.clone().unwrap_or_else(|| offer.name.clone().into());
        let PartDirectory { base: staged, parts, name: part, was_there } =
            part::open_directory(base.as_fd(), &own).map_err(|error| {
                let part = directory.join(part::part_name(&own));
                format!("{} can't be made: {error}", part.display())
            })?;
        let staging = Staging {
            parent: base,
            parent_shown: directory.clone(),
            name: part.clone(),
            last_name: name,
            was_there,
            placing: Some(Placing::read(parts.as_fd()))
                .filter(|it| was_there && it.has_any_in(staged.as_fd()))
                .unwrap_or_default(),
            taken_back: HashSet::new(),
        };
        let tree = if was_there {
            Tree::new(staged, Some(parts))
        } else {
            Tree::new_with_parts(staged, parts)
        };
        Ok(Self {
            tree,
            shown: directory.join(part),
            name: None,
            staging: Some(staging),
            has_something: was_there,
        })
    }
}

impl Staging {
    /// Returns the directory in which it gets its place, and its name there if that is not each root's own.
    pub(super) fn goes_to(&self) -> (&Path, Option<&OsStr>) {
        (&self.parent_shown, self.last_name.as_deref())
    }

    /// Finds out in time if a root can't come to its place. What an earlier receiver has put there, which was killed before
    /// it had put all of them there, comes back.
    ///
    /// # Errors
    /// In words that say what to do.
    pub(super) fn check(&mut self, staged: &Tree, root: &EntryPath) -> Result<(), String> {
        if self.last_name.is_some() {
            return Ok(());
        }
        let (parent, name) = (self.parent.as_fd(), root.name());
        if stat(&self.parent, name)?.is_none() {
            return Ok(());
        }
        let is_ours = self.placing.has(parent, name)
            && rename(parent, name, staged.base(), name, false).is_ok();
        if !is_ours {
            return Err(self.in_the_way(name));
        }
        self.taken_back.insert(root.bytes().to_vec());
        Ok(())
    }

    /// Returns true if a path is below a root that came back.
    pub(super) fn has_taken_back(&self, path: &[u8]) -> bool {
        let root = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        self.taken_back.contains(root)
    }

    fn in_the_way(&self, name: &OsStr) -> String {
        let shown = self.parent_shown.join(name);
        let shown = shown.display();
        if self.last_name.is_some() {
            return format!("{shown} exists: use another name");
        }
        format!(
            "{shown} exists: receive elsewhere, or with --overwrite to replace what differs in it, or with \
             --no-clobber to add what is missing"
        )
    }

    /// Puts all roots where they belong. Those that can't be written to get their permissions only then, as a
    /// directory that is renamed into another one is written to.
    ///
    /// # Errors
    /// None of them has its name then, as far as the system lets us take it back; the staging directory stays.
    pub(super) fn complete(
        &self,
        staged: &Tree,
        roots: &[EntryPath],
        locked: &HashMap<EntryPath, Meta>,
    ) -> Result<(), NotPlaced> {
        let parts = openat(staged.base(), PARTS, DIRECTORY, Mode::empty())?;
        match (&self.last_name, roots) {
            (Some(name), [root]) => self.place(staged, locked, &[(root, name)])?,
            (Some(name), _) => {
                for (root, meta) in locked {
                    let fd = openat(staged.base(), root.name(), DIRECTORY, Mode::empty())?;
                    lock((fd, meta))?;
                }
                return self.place_whole(staged, parts.as_fd(), name);
            }
            (None, _) => {
                let named: Vec<_> = roots.iter().map(|root| (root, root.name())).collect();
                if let Some(name) = self.first_in_the_way(&named)? {
                    return Err(NotPlaced::InTheWay(self.in_the_way(name)));
                }
                if named.len() > 1 {
                    note(parts.as_fd(), staged, &named)?;
                }
                self.place(staged, locked, &named)?;
            }
        }
        placing::forget(parts.as_fd())?;
        unlinkat(staged.base(), PARTS, AtFlags::REMOVEDIR)?;
        unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR)?;
        self.sync();
        Ok(())
    }

    /// Gives the directory itself its name, with all roots in it.
    fn place_whole(
        &self,
        staged: &Tree,
        parts: BorrowedFd<'_>,
        name: &OsStr,
    ) -> Result<(), NotPlaced> {
        placing::forget(parts)?;
        // Once it has its name nothing is made any more for which there may be no room.
        let mode = usual_mode(parts)?;
        // Without it a receiver that is killed just then leaves something behind, and no more.
        let noted = Identity::of(staged.base(), WHOLE.as_ref())
            .and_then(|identity| placing::note(parts, &[(WHOLE.into(), identity)]));
        if let Err(error) = noted {
            tracing::debug!("nothing is noted of {}: {error}", name.display());
            // Half of it would be in the way of whoever tidies up.
            placing::forget(parts)?;
        }
        let parent = self.parent.as_fd();
        if let Err(error) = rename(parent, &self.name, parent, name, false) {
            let _ = placing::forget(parts);
            return Err(self.not_placed(name, error));
        }
        // All is there: what this leaves the next receiver removes.
        if let Err(error) = open_up(staged.base(), parts, mode) {
            tracing::warn!(
                "{} is complete, but may have a directory {PARTS} in it, and be nobody else's to read: {error}",
                name.display()
            );
        }
        self.sync();
        Ok(())
    }

    fn first_in_the_way<'a>(
        &self,
        named: &[(&EntryPath, &'a OsStr)],
    ) -> io::Result<Option<&'a OsStr>> {
        for &(_, name) in named {
            match statat(&self.parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => return Ok(Some(name)),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Gives roots their names; if one can't have it, takes those back that have theirs.
    fn place(
        &self,
        staged: &Tree,
        locked: &HashMap<EntryPath, Meta>,
        named: &[(&EntryPath, &OsStr)],
    ) -> Result<(), NotPlaced> {
        let mut placed = Vec::new();
        let result = self.rename_all(staged, named, &mut placed);
        // One at a time, as there may be more of them than open files. Those that are locked can't be taken back.
        let result = result.and_then(|()| {
            let locked = placed.iter().filter_map(|&(root, name)| Some((name, locked.get(root)?)));
            locked.into_iter().try_for_each(|(name, meta)| {
                let fd = openat(&self.parent, name, DIRECTORY, Mode::empty())?;
                Ok(lock((fd, meta))?)
            })
        });
        if result.is_err() {
            for (root, name) in placed {
                let _ = rename(self.parent.as_fd(), name, staged.base(), root.name(), false);
            }
        }
        result
    }

    /// Gives roots their names; those that have got theirs are in `placed` then.
    fn rename_all<'a>(
        &self,
        staged: &Tree,
        named: &[(&'a EntryPath, &'a OsStr)],
        placed: &mut Vec<(&'a EntryPath, &'a OsStr)>,
    ) -> Result<(), NotPlaced> {
        for &(root, name) in named {
            match rename(staged.base(), root.name(), self.parent.as_fd(), name, false) {
                Ok(()) => placed.push((root, name)),
                // It was left out.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.not_placed(name, error)),
            }
        }
        Ok(())
    }

    fn not_placed(&self, name: &OsStr, error: io::Error) -> NotPlaced {
        match error.kind() {
            io::ErrorKind::AlreadyExists => NotPlaced::InTheWay(self.in_the_way(name)),
            _ => error.into(),
        }
    }

    /// Removes it if it is empty.
    pub(super) fn remove_if_empty(&self, staged: &Tree) -> bool {
        // All of it has got its name.
        if let Ok(true) = part::has_only_parts(staged.base())
            && let Ok(parts) = openat(staged.base(), PARTS, DIRECTORY, Mode::empty())
        {
            let _ = placing::forget(parts.as_fd());
        }
        if unlinkat(staged.base(), PARTS, AtFlags::REMOVEDIR).is_err() {
            return false;
        }
        let is_removed = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR).is_ok();
        if !is_removed {
            // The next receiver knows it by that.
            let _ = mkdirat(staged.base(), PARTS, Mode::RWXU);
        }
        is_removed
    }

    fn sync(&self) {
        // They have their names already, and not all file systems can sync a directory.
        let _ = rustix::fs::fsync(&self.parent);
    }
}

/// The name of a directory among the parts, none of which has such a name.
const USUAL: &str = "usual";
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The permissions of a directory that is made here without any that were sent: what the umask leaves, or what an access
/// control list of the directory around it says. To ask for the umask is to change it, for all threads.
fn usual_mode(parts: BorrowedFd<'_>) -> io::Result<Mode> {
    // A receiver that was killed may have left one.
    let _ = unlinkat(parts, USUAL, AtFlags::REMOVEDIR);
    mkdirat(parts, USUAL, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
    let made = statat(parts, USUAL, AtFlags::SYMLINK_NOFOLLOW);
    unlinkat(parts, USUAL, AtFlags::REMOVEDIR)?;
    // What is left to do in it can be done whatever the umask.
    Ok(Mode::from_raw_mode(made?.st_mode) | Mode::RWXU)
}

/// Gives a directory that has its name the permissions that it has then, and removes what was needed until then.
fn open_up(whole: BorrowedFd<'_>, parts: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    // Whether or not it can have them, nothing else is to be left.
    let opened = fchmod(whole, mode);
    placing::forget(parts)?;
    unlinkat(whole, PARTS, AtFlags::REMOVEDIR)?;
    Ok(opened?)
}

/// Does the same if a receiver was killed before it had done that.
fn open_up_left(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let Some((whole, parts)) = part::find_parts(parent, name)? else { return Ok(()) };
    if Placing::read(parts.as_fd()).has(whole.as_fd(), WHOLE.as_ref()) {
        return open_up(whole.as_fd(), parts.as_fd(), usual_mode(parts.as_fd())?);
    }
    // This was the last that it had to do, unless there is something in it.
    Ok(unlinkat(&whole, PARTS, AtFlags::REMOVEDIR)?)
}

/// Notes which roots are about to get their names.
fn note(parts: BorrowedFd<'_>, staged: &Tree, named: &[(&EntryPath, &OsStr)]) -> io::Result<()> {
    let identity = |&(root, name): &(&EntryPath, &'_ OsStr)| {
        Some((name.to_owned(), Identity::of(staged.base(), root.name()).ok()?))
    };
    let roots: Vec<_> = named.iter().filter_map(identity).collect();
    placing::note(parts, &roots)
}

/// Gives a root the permissions that were withheld.
fn lock((fd, meta): (OwnedFd, &Meta)) -> io::Result<()> {
    set_meta(fd.as_fd(), meta)?;
    // Not all file systems can sync a directory.
    let _ = rustix::fs::fsync(&fd);
    Ok(())
}

fn stat(directory: &OwnedFd, name: &OsStr) -> Result<Option<FileType>, String> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(kind(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(format!("{} can't be looked at: {error}", name.display())),
    }
}
