//! A network and a disk of a test's own: a loopback interface, of which single ports can be cut off, and a file system of any size.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dwell_testkit::skips::skipped;

use crate::pair::{Process, dwell};

/// Namespaces that last as long as the test.
pub(crate) struct Enclosure {
    holder: Process,
    at: PathBuf,
}

/// How a disk and a network begin: `$0` is the disk's place, `$1` its size in KiB, `$2` the network's rate. It ends with its standard input.
const BEGIN: &str = "\
    mount -t tmpfs -o size=$1k none \"$0\" && ip link set lo up && \
    tc qdisc add dev lo root tbf rate $2 burst 128k latency 400ms && \
    nft add table ip cable && nft 'add set ip cable pulled { type inet_service; }' && \
    nft 'add chain ip cable in { type filter hook input priority 0; }' && \
    nft 'add rule ip cable in tcp dport @pulled drop' && \
    nft 'add rule ip cable in tcp sport @pulled drop' && \
    echo ready && exec cat";

impl Enclosure {
    /// None if this system or user can't have any, which is said.
    #[track_caller]
    pub(crate) fn new(at: &Path, disk_kib: u64, rate: &str) -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["-rmn", "sh", "-c", BEGIN]).arg(at).args([&disk_kib.to_string(), rate]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = match command.spawn() {
            Ok(holder) => Process(holder),
            Err(error) => {
                skipped(format_args!("unshare can't be started: {error}"));
                return None;
            }
        };
        let mut line = String::new();
        let _ = BufReader::new(holder.0.stdout.take()?).read_line(&mut line);
        if line.trim() != "ready" {
            skipped("no networks and file systems can be made here");
            return None;
        }
        Some(Self { holder, at: at.to_owned() })
    }

    /// A program in it.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.0.id().to_string()]);
        command.args(["-U", "-m", "-n", "--preserve-credentials", program]);
        command.env_remove("DWELL_LOG").env_remove("NO_COLOR").env_remove("DWELL_KEY");
        command.stdin(Stdio::null());
        command
    }

    /// The program under test.
    pub(crate) fn dwell(&self) -> Command {
        self.program(dwell().get_program().to_str().unwrap())
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        assert!(self.program(program).args(arguments).status().unwrap().success(), "{arguments:?}");
    }

    /// Where its disk is for others.
    pub(crate) fn disk(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.0.id()));
        root.join(self.at.strip_prefix("/").unwrap())
    }

    /// Gives the disk more or less room.
    pub(crate) fn resize(&self, disk_kib: u64) {
        let options = format!("remount,size={disk_kib}k");
        self.run("mount", &["-o", &options, self.at.to_str().unwrap()]);
    }

    /// Cuts off a port, in both directions, or connects it again.
    pub(crate) fn pull(&self, port: u16, is_pulled: bool) {
        let what = if is_pulled { "add" } else { "delete" };
        self.run("nft", &[&format!("{what} element ip cable pulled {{ {port} }}")]);
    }
}
