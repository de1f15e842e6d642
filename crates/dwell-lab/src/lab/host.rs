//! A host: one network namespace.

use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::mount::{UnmountFlags, unmount};

use super::{LabError, Shape, output};
use crate::sys;

/// A host of a lab. Clones name the same host; when the last one is dropped, the host vanishes with
/// its devices as soon as no process is left in it.
#[derive(Clone, Debug)]
pub struct Host(Arc<Namespace>);

#[derive(Debug)]
struct Namespace {
    name: String,
    fd: Arc<OwnedFd>,
}

/// Returns true if this kernel supports IPv6.
pub fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

fn name_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The same as `ip netns del`. If it fails, the name stays until the lab ends.
        if unmount(name_path(&self.name), UnmountFlags::DETACH).is_ok() {
            let _ = fs::remove_file(name_path(&self.name));
        }
    }
}

impl Host {
    pub(super) fn create(name: &str) -> Result<Self, LabError> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(is_allowed) {
            return Err(LabError::Name(name.to_owned()));
        }
        output(Command::new("ip").args(["netns", "add", name]), "the lab")?;
        let file = File::open(name_path(name)).map_err(LabError::io("open a namespace"))?;
        let fd = Arc::new(OwnedFd::from(file));
        let host = Self(Arc::new(Namespace { name: name.to_owned(), fd }));
        host.up("lo")?;
        if !has_ipv6() {
            return Ok(host);
        }
        // Addresses are usable at once, and links without routers send no solicitations.
        for (key, value) in [("accept_dad", "0"), ("router_solicitations", "0")] {
            host.sysctl(&format!("net/ipv6/conf/all/{key}"), value)?;
            host.sysctl(&format!("net/ipv6/conf/default/{key}"), value)?;
        }
        Ok(host)
    }

    /// Returns its name, which is also its name for `ip netns`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a command that will run on this host. It need not be tied to this process: it runs
    /// in the lab, and is killed when the lab ends.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::run_in_network(&mut command, Arc::clone(&self.0.fd));
        command
    }

    /// Runs a command on this host to its end and returns what it printed.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Result<String, LabError> {
        output(self.command(program).args(arguments), self.name())
    }

    /// Runs a closure on this host, on its own thread, to its end: sockets that it opens belong to
    /// this host permanently, wherever they are used later.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let inside = || {
            sys::enter_network(&self.0.fd).map_err(LabError::io("enter a host"))?;
            Ok(act())
        };
        thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Starts a thread on this host.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LabError>>, LabError> {
        let fd = Arc::clone(&self.0.fd);
        let inside = move || {
            sys::enter_network(&fd).map_err(LabError::io("enter a host"))?;
            Ok(act())
        };
        let thread = thread::Builder::new().name(self.name().to_owned());
        thread.spawn(inside).map_err(LabError::io("start a thread"))
    }

    /// Sets a switch of the kernel for this host, such as `net/ipv4/ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        // /proc/sys/net shows the namespace of the reading thread.
        self.run(|| fs::write(Path::new("/proc/sys").join(key), value))?
            .map_err(LabError::io(format!("set {key} to {value} on {}", self.name())))
    }

    /// Sets whether the host forwards packets, IPv4 and IPv6.
    pub fn forwarding(&self, on: bool) -> Result<(), LabError> {
        let value = if on { "1" } else { "0" };
        self.sysctl("net/ipv4/ip_forward", value)?;
        if has_ipv6() { self.sysctl("net/ipv6/conf/all/forwarding", value) } else { Ok(()) }
    }

    /// Brings a device up.
    pub fn up(&self, device: &str) -> Result<(), LabError> {
        self.ip(&["link", "set", "dev", device, "up"])
    }

    /// Takes a device down, which looks to this host like a pulled cable.
    pub fn down(&self, device: &str) -> Result<(), LabError> {
        self.ip(&["link", "set", "dev", device, "down"])
    }

    /// Gives a device an address with its prefix length, IPv4 or IPv6.
    pub fn address(&self, device: &str, address: &str) -> Result<(), LabError> {
        let mut arguments = vec!["address", "add", address, "dev", device];
        if address.contains(':') {
            arguments.push("nodad");
        }
        self.ip(&arguments)
    }

    /// Sends a prefix (or `default`) to a gateway, unless another route says otherwise: the
    /// metric is high, so that a relay's routes come before.
    pub fn route(&self, prefix: &str, via: IpAddr) -> Result<(), LabError> {
        let family = if via.is_ipv6() { "-6" } else { "-4" };
        let via = via.to_string();
        self.ip(&[family, "route", "replace", prefix, "via", &via, "metric", "2000"])
    }

    /// Sets the MTU of a device.
    pub fn mtu(&self, device: &str, bytes: u32) -> Result<(), LabError> {
        self.ip(&["link", "set", "dev", device, "mtu", &bytes.to_string()])
    }

    /// Limits the traffic that leaves through a device, with the kernel's token bucket; packets
    /// beyond the limit wait in its queue, where senders on this host feel it.
    pub fn shape(&self, device: &str, shape: &Shape) -> Result<(), LabError> {
        let arguments = shape.tc_arguments(device);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.output("tc", &arguments).map(drop)
    }

    /// Removes the limit of [`Self::shape`].
    pub fn unshape(&self, device: &str) -> Result<(), LabError> {
        self.output("tc", &["qdisc", "del", "dev", device, "root"]).map(drop)
    }

    /// Returns the bytes sent through a device, Ethernet headers included.
    pub fn tx_bytes(&self, device: &str) -> Result<u64, LabError> {
        self.counter(device, 8)
    }

    /// Returns the bytes received through a device, Ethernet headers included.
    pub fn rx_bytes(&self, device: &str) -> Result<u64, LabError> {
        self.counter(device, 0)
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), LabError> {
        self.output("ip", arguments).map(drop)
    }

    fn counter(&self, device: &str, column: usize) -> Result<u64, LabError> {
        // /sys would show the namespace that it was mounted in; this shows the thread's.
        let table = self
            .run(|| fs::read_to_string("/proc/thread-self/net/dev"))?
            .map_err(LabError::io("read the counters"))?;
        let line =
            table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok()).ok_or_else(|| {
            let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "no such device");
            LabError::io(format!("read the counters of {device} on {}", self.name()))(missing)
        })
    }
}
