//! Which system calls a relay or a proxy may make once it is set up.
//!
//! Three filters, of which the strictest answer counts:
//!
//! * What nobody calls by mistake (another program, another's memory, mounts, modules) ends the
//!   process.
//! * What is on the list of `ALLOWED` is done.
//! * All else is refused with `EPERM`, and the kernel's log names it (`audit: type=1326`). The C
//!   library and its resolver's modules change with their versions: a call that the list lacks costs
//!   one function, and not the whole site.
//!
//! The list was made by reading what the programs and their libraries call, with what the C library's
//! other versions use for the same; and by the kernel's log: the end-to-end tests fail if it names a
//! call of a relay or a proxy.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use thiserror::Error;

/// Why there is no filter.
#[derive(Debug, Error)]
pub enum FilterError {
    /// The processor's calls are not known here, or the list is wrong.
    #[error("no filter can be made: {0}")]
    Made(#[from] BackendError),
    /// The kernel takes none.
    #[error("the kernel refuses the filter: {0}")]
    Refused(#[from] io::Error),
}

/// From now on this thread, and each that it starts, makes only the system calls that a relay or a
/// proxy needs. There is no way back. To be called when privileges were given up and before
/// other threads start.
///
/// # Errors
/// If the kernel has no filters. Then some of the
/// filters may be in force; they forbid nothing that is needed.
pub fn confine() -> Result<(), FilterError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // The refusing filter allows clone3, which another one answers as an old kernel does: its flags
    // are in memory, where no filter sees them, and the C library takes clone instead.
    let allowed = program(arch, allowed()?, SeccompAction::Errno(EPERM), SeccompAction::Allow)?;
    let old = always([libc::SYS_clone3]);
    let old = program(arch, old, SeccompAction::Allow, SeccompAction::Errno(ENOSYS))?;
    let deadly = program(arch, always(DEADLY), SeccompAction::Allow, SeccompAction::KillProcess)?;
    // The last one forbids installing more.
    install(&deadly, Logged::Yes)?;
    // A call that has another form is no news.
    install(&old, Logged::No)?;
    install(&allowed, Logged::Yes)?;
    Ok(())
}

const EPERM: u32 = libc::EPERM as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn program(
    arch: TargetArch,
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()
}

/// These calls, whatever their arguments.
fn always(calls: impl IntoIterator<Item = c_long>) -> Rules {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

fn allowed() -> Result<Rules, BackendError> {
    let mut rules = always(ALLOWED.iter().chain(OF_THIS_PROCESSOR).copied());
    // The families of sockets that there is something to say to; none that has raw packets.
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let of_family = |family| argument(0, SeccompCmpOp::Eq, family as u64);
        rules.insert(call, families.map(of_family).into_iter().collect::<Result<_, _>>()?);
    }
    // Threads of this process, and no namespaces of their own.
    let flags = (NAMESPACES | libc::CLONE_THREAD) as u64;
    let thread = argument(0, SeccompCmpOp::MaskedEq(flags), libc::CLONE_THREAD as u64)?;
    rules.insert(libc::SYS_clone, vec![thread]);
    // Memory is written or executed, and not both.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let without = |protection: i32| argument(2, SeccompCmpOp::MaskedEq(protection as u64), 0);
        rules.insert(call, vec![without(libc::PROT_EXEC)?, without(libc::PROT_WRITE)?]);
    }
    Ok(rules)
}

fn argument(number: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(number, SeccompCmpArgLen::Dword, compare, value)?;
    SeccompRule::new(vec![condition])
}

const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Whether the kernel's log names what a filter refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logged {
    Yes,
    No,
}

/// Gives a program to the kernel, which logs what it refuses. seccompiler's own call can't ask for
/// that.
#[allow(unsafe_code, reason = "no library has this call with this flag")]
fn install(program: &BpfProgram, logged: Logged) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    rustix::thread::set_no_new_privs(true)?;
    let flags = if logged == Logged::Yes { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 };
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies a program of `len` instructions, which outlives the call; they have
    // the layout of `sock_filter` (repr(C), of a u16, two u8 and a u32).
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// The crate libc does not name it for musl on this processor.
#[cfg(all(target_arch = "aarch64", target_env = "musl"))]
const KEXEC_FILE_LOAD: c_long = 294;
#[cfg(not(all(target_arch = "aarch64", target_env = "musl")))]
const KEXEC_FILE_LOAD: c_long = libc::SYS_kexec_file_load;

/// What no part of the program and of its libraries ever calls, and whoever got hold of it would.
const DEADLY: [c_long; 28] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_acct,
];

/// What a relay or a proxy calls while it runs, whatever the arguments.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads, and what they wait for.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_prctl,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_restart_syscall,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    // Time and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_getrandom,
    // Who and where it is.
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getcpu,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getrlimit,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_getcwd,
    // Descriptors.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Files: configurations, keys, the resolver's, and the status socket.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_unlinkat,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Sockets; which ones can be made is said above.
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
];

/// The older forms of some calls, which newer processors never had.
#[cfg(target_arch = "x86_64")]
const OF_THIS_PROCESSOR: &[c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_time,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
];

#[cfg(not(target_arch = "x86_64"))]
const OF_THIS_PROCESSOR: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, ToSocketAddrs as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    /// Runs this on a thread with the filter.
    fn confined<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
        let run = || {
            confine().unwrap();
            what()
        };
        std::thread::spawn(run).join().unwrap()
    }

    #[test]
    fn what_is_needed_goes_on() {
        confined(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            assert!(listener.local_addr().unwrap().port() > 0);
            assert!(("localhost", 80).to_socket_addrs().unwrap().next().is_some());
            assert!(std::fs::read("/proc/self/status").unwrap().len() > 100);
            std::thread::spawn(|| crate::privilege::give_up_all().unwrap()).join().unwrap();
        });
    }

    #[test]
    fn what_is_not_needed_is_refused() {
        confined(|| {
            let raw = rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None);
            assert_eq!(raw.unwrap_err(), rustix::io::Errno::PERM);
            let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            assert!(std::fs::create_dir("/tmp/dwell-confine").is_err_and(refused));
            assert!(std::os::unix::fs::symlink("a", "/tmp/dwell-confine").is_err_and(refused));
            assert!(rustix::system::sethostname(b"other").is_err());
        });
    }

    #[test]
    fn threads_that_start_later_are_confined_too() {
        let status = confined(|| {
            let read = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
            std::thread::spawn(read).join().unwrap()
        });
        assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
    }

    const VICTIM: &str = "DWELL_CONFINE_VICTIM";

    /// Another program is the end: of a process of its own, which is this test once more.
    #[test]
    fn another_program_is_the_end() {
        if std::env::var_os(VICTIM).is_some() {
            confine().unwrap();
            let error = std::os::unix::process::CommandExt::exec(&mut Command::new("/bin/true"));
            panic!("it went on: {error}");
        }
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["seccomp::tests::another_program_is_the_end", "--exact", "--test-threads=1"])
            .env(VICTIM, "1")
            .output()
            .unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGSYS), "{ended:?}");
    }

    /// Calls that are to end the process are on no other list.
    #[test]
    fn no_call_is_on_two_lists() {
        let mut all: Vec<_> = ALLOWED.iter().chain(OF_THIS_PROCESSOR).chain(&DEADLY).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
