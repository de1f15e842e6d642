//! What a relay or a proxy may do, once it is set up: as little as possible.
//!
//! Linux keeps capabilities and user ids for each thread; all of this is about the calling one,
//! and those that it starts later.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// What is needed later: the interface and routes change as long as the relay runs.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN;
/// Ports below this belong to who has CAP_NET_BIND_SERVICE.
const PORT_UNPRIVILEGED_MIN: u16 = 1024;

/// A user to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's group.
    pub gid: u32,
}

impl User {
    /// The user of this name, wherever the system looks its users up (`/etc/nsswitch.conf`). To be
    /// called before system calls are filtered.
    ///
    /// # Errors
    /// If there is none, or the look-up fails.
    pub fn named(name: &str) -> io::Result<Self> {
        let found = nix::unistd::User::from_name(name)?.ok_or_else(|| {
            let message = format!("there is no user \"{name}\" on this machine");
            io::Error::new(io::ErrorKind::NotFound, message)
        })?;
        Ok(Self { uid: found.uid.as_raw(), gid: found.gid.as_raw() })
    }
}

/// True if this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if this process may make interfaces and set routes: it has `CAP_NET_ADMIN`.
pub fn may_administer_networks() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(NEEDED))
}

/// True if this process can become that user: in a container root may lack the capabilities for
/// it, and a user namespace may not have the user.
pub fn can_become(user: User) -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let has = |sets: CapabilitySets| sets.effective.contains(needed);
    let maps = |file: &str, id: u32| fs::read_to_string(file).is_ok_and(|map| is_mapped(&map, id));
    // Without the file the kernel is older than what it forbids.
    let setgroups = fs::read_to_string("/proc/self/setgroups");
    capabilities(None).is_ok_and(has)
        && maps("/proc/self/uid_map", user.uid)
        && maps("/proc/self/gid_map", user.gid)
        && setgroups.map_or(true, |text| text.trim() != "deny")
}

/// Whether a user namespace with this map has the number: lines of the first number inside, outside, and
/// how many.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

/// Keeps what a relay that listens on this port needs, and gives up everything else: becomes
/// another user, drops capabilities, and sees to it that nothing that is started later gets
/// more, and that nobody can look into the process's memory. To be called before any other
/// thread is started.
///
/// # Errors
/// What the kernel refused. Not being allowed to shrink the bounding set is none, since without
/// new privileges it limits nothing.
pub fn give_up(port: u16, user: Option<User>) -> io::Result<()> {
    let mut needed = NEEDED;
    if port != 0 && port < PORT_UNPRIVILEGED_MIN {
        // The sockets to the peers are bound to it again when one of them moves.
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    keep_only(needed, user)
}

/// Becomes another user and gives up every capability, for a process that needs none once its
/// sockets are bound and its keys are read. As [`give_up`] otherwise.
///
/// # Errors
/// As [`give_up`].
pub fn keep_none(user: Option<User>) -> io::Result<()> {
    keep_only(CapabilitySet::empty(), user)
}

/// Sees to it that nobody but root can look into the process's memory, and that no program that
/// it starts gets more privileges: for a process that goes on as the user that started it.
///
/// # Errors
/// What the kernel refused.
pub fn hide() -> io::Result<()> {
    set_no_new_privs(true)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn keep_only(needed: CapabilitySet, user: Option<User>) -> io::Result<()> {
    set_no_new_privs(true)?;
    shrink_bounding_set(needed)?;
    if let Some(User { uid, gid }) = user {
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        let (gid, uid) = (Gid::from_raw(gid), Uid::from_raw(uid));
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        set_keep_capabilities(false)?;
    }
    keep(needed)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Gives up everything, for a thread that only computes.
///
/// # Errors
/// What the kernel refused.
pub fn give_up_all() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

fn keep(needed: CapabilitySet) -> io::Result<()> {
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {} // a kernel before 4.3 has none
        Err(error) => return Err(error.into()),
    }
    let kept = capabilities(None)?.permitted & needed;
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

fn shrink_bounding_set(needed: CapabilitySet) -> io::Result<()> {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if needed.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel knows no such capability, or we may not.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(User::named("root").unwrap(), User { uid: 0, gid: 0 });
        for name in ["", "nobody-has-this-name", "0", "root:x", "root\0"] {
            let error = User::named(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name:?}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn numbers_are_looked_for_in_the_map() {
        let all = "         0          0 4294967295\n";
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(is_mapped(all, 65_534) && is_mapped(rootless, 65_534) && is_mapped(rootless, 0));
        assert!(!is_mapped("0 1000 1\n", 65_534) && !is_mapped("", 0) && !is_mapped("x", 0));
    }

    #[test]
    fn a_thread_that_only_computes_has_no_capabilities() {
        let sets = std::thread::spawn(|| {
            give_up_all().unwrap();
            capabilities(None).unwrap()
        });
        let none = CapabilitySet::empty();
        let expected = CapabilitySets { effective: none, permitted: none, inheritable: none };
        assert_eq!(sets.join().unwrap(), expected);
    }
}
