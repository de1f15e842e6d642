//! Removes what is below a directory of our own, whatever permissions it was given there.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

enum Step {
    Look(PathBuf),
    /// All in a directory has been looked at.
    Leave(PathBuf, Metadata),
}

/// Removes what is at a path below `base` and in it, unless `keeps` says that it stays. Directories that stay keep
/// their permissions and times. Nobody else can write to `base`, so that paths from there lead where they seem to.
pub(super) fn remove_below(
    base: BorrowedFd<'_>,
    at: &Path,
    keeps: impl Fn(&Path) -> bool,
) -> io::Result<()> {
    let base = PathBuf::from(format!("/proc/self/fd/{}", base.as_raw_fd()));
    let mut steps = vec![Step::Look(at.to_owned())];
    while let Some(step) = steps.pop() {
        match step {
            Step::Look(below) => {
                let whole = base.join(&below);
                let metadata = fs::symlink_metadata(&whole)?;
                if !metadata.is_dir() {
                    if !keeps(&below) {
                        fs::remove_file(&whole)?;
                    }
                    continue;
                }
                if metadata.mode() & 0o700 != 0o700 {
                    fs::set_permissions(&whole, Permissions::from_mode(0o700))?;
                }
                steps.push(Step::Leave(below.clone(), metadata));
                for entry in fs::read_dir(&whole)? {
                    steps.push(Step::Look(below.join(entry?.file_name())));
                }
            }
            Step::Leave(below, metadata) if keeps(&below) => restore(&base.join(below), &metadata)?,
            Step::Leave(below, _) => fs::remove_dir(base.join(below))?,
        }
    }
    Ok(())
}

fn restore(directory: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.mode() & 0o700 != 0o700 {
        fs::set_permissions(directory, metadata.permissions())?;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() },
    };
    // Not all file systems have times like that.
    let _ = utimensat(CWD, directory, &times, AtFlags::empty());
    Ok(())
}
