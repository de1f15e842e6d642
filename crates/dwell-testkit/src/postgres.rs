//! PostgreSQL on a host of a lab.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dwell_lab::lab::Host;

/// The user that owns everything.
pub const USER: &str = "dwell";

/// Its programs.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

impl Programs {
    /// Looks for them where Debian has a directory for each version, and beside `initdb` if that is found by its name.
    /// `None` if they aren't there.
    pub fn find() -> Option<Self> {
        const WANTED: [&str; 7] =
            ["initdb", "postgres", "pgbench", "pg_dump", "psql", "createdb", "pg_isready"];
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
        let path = std::env::var_os("PATH").unwrap_or_default();
        all.extend(std::env::split_paths(&path).filter(|at| at.join("initdb").is_file()));
        let is_whole = |at: &PathBuf| WANTED.iter().all(|program| at.join(program).exists());
        all.into_iter().rfind(is_whole).map(Self)
    }

    /// Returns the path of one.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a cluster of databases that trusts whoever connects.
    ///
    /// # Errors
    /// If `initdb` can't be run, or fails, with what it said.
    pub fn create(&self, host: &Host, data: &Path) -> io::Result<()> {
        let mut command = as_somebody(host, &self.path("initdb"));
        command.args(["-A", "trust", "-U", USER, "--no-sync", "--no-locale", "-E", "UTF8", "-D"]);
        let output = command.arg(data).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("initdb: {said}")));
        }
        fs::write(data.join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\n")
    }

    /// Returns a command that serves it at an address, port 5432, without waiting for the disk. Its socket is in
    /// `directory`.
    pub fn server(&self, host: &Host, data: &Path, directory: &Path, address: IpAddr) -> Command {
        let mut command = as_somebody(host, &self.path("postgres"));
        command.arg("-D").arg(data).arg("-k").arg(directory);
        command.args(["-c", &format!("listen_addresses={address}"), "-c", "fsync=off"]);
        command
    }
}

/// Returns a command that does not run as root, for servers that refuse to: in a namespace of users where its user is
/// another one.
pub fn as_somebody(host: &Host, program: &Path) -> Command {
    let mut command = host.command("unshare");
    command.args(["--map-user=1000", "--map-group=1000", "--"]).arg(program);
    command
}
