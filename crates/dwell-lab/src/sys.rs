//! The few system calls whose safety the compiler cannot check.
#![allow(unsafe_code, reason = "namespaces, signals and TAP devices have no safe interface")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::ioctl::{Setter, ioctl};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Moves this process into new namespaces; a new PID namespace begins with its next child.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "would make file descriptors thread-local");
    // SAFETY: without FILES no thread loses sight of another's file descriptors.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Moves the calling thread, and no other, into a network namespace.
pub(crate) fn enter_network(namespace: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Makes `command` run inside a network namespace.
pub(crate) fn run_in_network(command: &mut Command, namespace: Arc<OwnedFd>) {
    // SAFETY: between fork and exec the closure makes one system call on a descriptor that
    // is open already, and allocates nothing.
    unsafe { command.pre_exec(move || enter_network(&namespace)) };
}

/// Starts a child that is killed when this thread ends, however it ends, and that begins
/// with `blocked` signals blocked: they wait until it has its handlers.
pub(crate) fn spawn_tied(command: &mut Command, blocked: SignalSet) -> io::Result<Child> {
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        blocked.block()
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalSet(libc::sigset_t);

/// A signal that was waited for.
pub(crate) struct Arrived {
    pub(crate) signal: libc::c_int,
    /// Sent by the terminal to the whole foreground group, not by a process to this one.
    pub(crate) from_terminal: bool,
}

impl SignalSet {
    pub(crate) fn of(signals: &[libc::c_int]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the pointer is valid for writing a signal set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: sigemptyset has initialised it.
        let mut set = unsafe { set.assume_init() };
        for &signal in signals {
            // SAFETY: the pointer comes from a reference to an initialised set.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        Self(set)
    }

    /// Blocks these signals in the calling thread.
    pub(crate) fn block(&self) -> io::Result<()> {
        self.change(libc::SIG_BLOCK)
    }

    /// Lets these signals through in the calling thread.
    pub(crate) fn unblock(&self) -> io::Result<()> {
        self.change(libc::SIG_UNBLOCK)
    }

    fn change(&self, how: libc::c_int) -> io::Result<()> {
        // SAFETY: the set is initialised; no old mask is asked for.
        match unsafe { libc::pthread_sigmask(how, &raw const self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Waits for one of these signals, which must be blocked.
    pub(crate) fn wait(&self) -> io::Result<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: both pointers are valid for the call.
        let signal = unsafe { libc::sigwaitinfo(&raw const self.0, info.as_mut_ptr()) };
        if signal < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: zeroed and then filled by the kernel; all its fields are plain integers.
        let info = unsafe { info.assume_init() };
        Ok(Arrived { signal, from_terminal: info.si_code == libc::SI_KERNEL })
    }
}

/// Lets the calling thread run before all others that want the processor, if this user may: with
/// real-time priority, or else as an ordinary thread with a short time slice, which the scheduler
/// (Linux 6.12 and later) runs sooner after it wakes.
pub(crate) fn prefer_this_thread() {
    // The kernel's structure of parameters is this one number; musl has no function that asks it.
    let priority: libc::c_int = 1;
    // SAFETY: the pointer is valid for the call; 0 is the calling thread.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority)
    };
    if done == 0 {
        return;
    }
    const SLICE_NS: u64 = 100_000;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is valid for the call, and the structure says its own size. An older
    // kernel ignores the slice or refuses it: either way the thread is as it was.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Makes an open `/dev/net/tun` a TAP device, plain Ethernet frames without a header.
pub(crate) fn make_tap(tun: &File, name: &str) -> io::Result<()> {
    #[repr(C)]
    struct InterfaceRequest {
        name: [u8; libc::IFNAMSIZ],
        flags: libc::c_short,
        // `struct ifreq` has a union here, of which only the flags matter.
        rest: [u8; 22],
    }
    const TUNSETIFF: u32 = libc::TUNSETIFF as u32;
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
        rest: [0; 22],
    };
    // One byte stays zero: the name ends with it.
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the device's name is too long"));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF takes a pointer to a `struct ifreq`, which this is: 40 bytes.
    let set = unsafe { Setter::<TUNSETIFF, InterfaceRequest>::new(request) };
    // SAFETY: the kernel copies the request; it writes the device's name back at most into
    // the 40 bytes that it was given.
    Ok(unsafe { ioctl(tun, set) }?)
}
