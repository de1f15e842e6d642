//! The program that is measured.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context as _;

/// It is kept open: whoever builds it again meanwhile changes nothing of a series of runs.
static DWELL: OnceLock<File> = OnceLock::new();

/// Takes `asked`, or else `dwell` beside this program. To be called once, before [`dwell`]; that
/// there is none beside this program is an error only for who needs it.
pub(super) fn choose(asked: Option<&Path>) -> anyhow::Result<()> {
    let file = match asked {
        Some(path) => {
            Some(File::open(path).with_context(|| format!("{} can't be run", path.display()))?)
        }
        None => File::open(beside()?).ok(),
    };
    if let Some(file) = file {
        let _ = DWELL.set(file); // nobody else does
    }
    Ok(())
}

/// The name that it is started by: a child of this process has the same file open until then.
pub(super) fn dwell() -> anyhow::Result<PathBuf> {
    match DWELL.get() {
        Some(file) => Ok(format!("/proc/self/fd/{}", file.as_raw_fd()).into()),
        None => anyhow::bail!(
            "{} is missing: build it first, or name one with --dwell",
            beside()?.display()
        ),
    }
}

/// Returns the path of a program, also where only root looks.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// Fails if one of these programs is missing, and names Debian's package of it.
pub(super) fn ensure_installed(programs: &[(&str, &str)]) -> anyhow::Result<()> {
    match programs.iter().find(|(name, _)| find(name).is_none()) {
        Some((name, package)) => anyhow::bail!(
            "{name} can't be found: install it, for instance: sudo apt install {package}"
        ),
        None => Ok(()),
    }
}

fn beside() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()
        .context("the path of this program can't be found")?
        .with_file_name("dwell"))
}
