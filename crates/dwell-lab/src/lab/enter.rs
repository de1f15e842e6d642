//! The entry into a lab: the program starts itself again inside its own namespaces.
//!
//! The outer process moves into new user (unless it is root), network, mount and PID
//! namespaces and runs the program again; that inner process is PID 1 there. So the kernel cleans
//! up in every case: when PID 1 dies, all its descendants are killed and the namespaces vanish with
//! their devices and mounts, and PID 1 is killed when the outer process dies. util-linux' `unshare`
//! could be called instead, but its versions treat signals differently, and it cannot report which
//! step was forbidden.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};
use rustix::process::{Pid, Signal, getegid, geteuid, getpid, kill_process};
use rustix::thread::UnshareFlags;
use signal_hook::flag;

use super::{Interrupts, Lab, LabError};
use crate::sys::{self, SignalSet};

/// Holds the inode of the network namespace outside. Nothing else distinguishes a lab from any
/// other PID 1, and the machine's own network must never be taken for a lab.
const MARKER: &str = "DWELL_LAB_OUTSIDE";

const ENDING: [libc::c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Enters a lab. Call it first in `main`, before there are threads.
///
/// Outside a lab this never returns unless it fails: it runs the program again, with the
/// same arguments, inside one, and exits as that did. Inside it returns the lab.
///
/// # Errors
/// If the system does not allow it; the text gives a remedy.
pub fn enter() -> Result<Lab, LabError> {
    if is_inside()? {
        set_up_inside()
    } else {
        let status = run_inside()?;
        std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
    }
}

fn is_inside() -> Result<bool, LabError> {
    let Ok(outside) = std::env::var(MARKER) else { return Ok(false) };
    Ok(getpid() == Pid::INIT && outside != network_inode()?)
}

fn network_inode() -> Result<String, LabError> {
    let file = fs::metadata("/proc/self/ns/net").map_err(LabError::io("read /proc/self/ns/net"))?;
    Ok(file.ino().to_string())
}

fn run_inside() -> Result<std::process::ExitStatus, LabError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(LabError::Threads(threads));
    }
    let outside = network_inode()?;
    make_namespaces()?;
    let watched = SignalSet::of(&[&ENDING[..], &[SIGCHLD]].concat());
    watched.block().map_err(LabError::io("block signals"))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(MARKER, outside).env("PATH", path_with_sbin());
    let mut child = sys::spawn_tied(&mut command, SignalSet::of(&ENDING))
        .map_err(LabError::io("run this program again inside the lab"))?;
    loop {
        let arrived = watched.wait();
        if let Some(status) = child.try_wait().map_err(LabError::io("wait for the lab"))? {
            return Ok(status);
        }
        // Signals of the terminal, such as that of Ctrl-C, have reached the inner process already.
        if let Ok(arrived) = arrived
            && arrived.signal != SIGCHLD
            && !arrived.from_terminal
            && let Some(signal) = Signal::from_named_raw(arrived.signal)
        {
            // Cannot fail while the child has not been reaped.
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }
}

/// `tc` lives where an ordinary user's PATH does not lead.
fn path_with_sbin() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

fn make_namespaces() -> Result<(), LabError> {
    let rest = UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWPID;
    // Real root needs no user namespace, and can do more without one; but root in a container may
    // have fewer privileges than a user namespace gives.
    if geteuid().is_root() && sys::unshare(rest).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER)
        .map_err(|error| LabError::namespaces("make a user namespace", error))?;
    let map = |file: &str, text: &str| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| LabError::namespaces("become root of a user namespace", error))
    };
    map("setgroups", "deny")?;
    map("uid_map", &format!("0 {uid} 1"))?;
    map("gid_map", &format!("0 {gid} 1"))?;
    sys::unshare(rest)
        .map_err(|error| LabError::namespaces("make network, mount and PID namespaces", error))
}

fn set_up_inside() -> Result<Lab, LabError> {
    let interrupts = install_handlers().map_err(LabError::io("install signal handlers"))?;
    SignalSet::of(&ENDING).unblock().map_err(LabError::io("unblock signals"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(LabError::io("make mounts private"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)
        .map_err(|error| LabError::namespaces("mount /proc", error.into()))?;
    replace_run()?;
    Lab::new(interrupts)
}

/// PID 1 has no default reactions to signals: without handlers Ctrl-C would do nothing.
fn install_handlers() -> io::Result<Interrupts> {
    let exit_at_once = Arc::new(AtomicBool::new(true));
    let interrupted = Arc::new(AtomicBool::new(false));
    let latest = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&exit_at_once))?;
        // Before the flag, so that a reader of the flag finds the signal.
        flag::register_usize(signal, Arc::clone(&latest), signal as usize)?;
        flag::register(signal, Arc::clone(&interrupted))?;
    }
    let always = Arc::new(AtomicBool::new(true));
    flag::register_conditional_shutdown(SIGQUIT, 128 + SIGQUIT, always)?;
    Ok(Interrupts { exit_at_once, interrupted, signal: latest })
}

/// The names in `/run` that are the lab's own: those of its hosts, its directory in memory, and the
/// status sockets of its nodes, which must not be mixed up with those of nodes outside.
const OWN: [&str; 3] = ["netns", "dwell-lab", "dwell"];

/// Gives the lab its own `/run`, in which `ip netns` can keep its names, with everything else that
/// was there mounted into it.
fn replace_run() -> Result<(), LabError> {
    let run = Path::new("/run");
    let before = detach_entries(run).map_err(LabError::io("read /run"))?;
    mount("tmpfs", run, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=755"))
        .map_err(LabError::io("mount a private /run"))?;
    for entry in before {
        // Entries that cannot be moved are absent in the lab; none of them is needed here.
        let _ = entry.attach(run);
    }
    for directory in OWN {
        let path = run.join(directory);
        fs::create_dir(&path).map_err(LabError::io(format!("create {}", path.display())))?;
    }
    Ok(())
}

/// An entry of a directory before another was mounted over it.
enum Entry {
    Link { name: std::ffi::OsString, target: std::path::PathBuf },
    Tree { name: std::ffi::OsString, is_dir: bool, mount: OwnedFd },
}

fn detach_entries(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if OWN.iter().any(|own| name == *own) || kind.is_fifo() {
            continue;
        }
        if kind.is_symlink() {
            entries.push(Entry::Link { name, target: fs::read_link(entry.path())? });
            continue;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        if let Ok(mount) = open_tree(CWD, entry.path(), flags) {
            entries.push(Entry::Tree { name, is_dir: kind.is_dir(), mount });
        }
    }
    Ok(entries)
}

impl Entry {
    fn attach(self, directory: &Path) -> io::Result<()> {
        match self {
            Self::Link { name, target } => symlink(target, directory.join(name)),
            Self::Tree { name, is_dir, mount } => {
                let at = directory.join(name);
                if is_dir {
                    fs::create_dir(&at)?;
                } else {
                    fs::File::create(&at)?;
                }
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                Ok(move_mount(&mount, "", CWD, &at, flags)?)
            }
        }
    }
}
