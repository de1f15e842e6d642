//! OpenSSH with compression: a server with keys of its own, that reads no files but those made here.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use dwell_lab::lab::{Host, Process};

use super::super::bed::Bed;
use super::super::download::ports;
use super::super::ends::Ends;
use super::super::program;
use super::super::tunnel::{Other, server as content, spawn_logged};
use super::{ENTRANCE, PATIENCE, await_listener, listens, number};

/// The programs that are needed, and Debian's packages of them.
pub(crate) const PROGRAMS: [(&str, &str); 3] =
    [("ssh", "openssh-client"), ("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")];
const PORT: u16 = 2222;
const DEVICE: &str = "tun0";
/// Of sender and receiver.
const ADDRESSES: [&str; 2] = ["10.80.0.2/30", "10.80.0.1/30"];

/// The usual one: segments of TCP carry them in any case.
const MTU: u32 = 1500;

/// The files of a server and a client that know each other.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    /// Makes those that are missing.
    pub(crate) fn make(directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(directory).context("a directory for ssh can't be made")?;
        // Where sshd's unprivileged half would live; /run is the lab's own.
        let _ = fs::create_dir_all("/run/sshd");
        let files = Self { directory: directory.to_owned() };
        for name in ["host", "user"] {
            if !files.path(name).exists() {
                let mut command = Command::new("ssh-keygen");
                command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(files.path(name));
                ensure!(command.status()?.success(), "ssh-keygen failed");
            }
        }
        let config = format!(
            "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             PasswordAuthentication no\nUsePAM no\nPermitRootLogin yes\nCompression yes\n\
             PermitTunnel yes\n",
            files.path("host").display(),
            files.path("user.pub").display(),
        );
        fs::write(files.path("config"), config).context("sshd's configuration can't be written")?;
        Ok(files)
    }

    /// Returns the path of a file beside them.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("ssh-{name}"))
    }

    /// Starts the server at the sender's end, and waits until it listens.
    pub(crate) fn serve(&self, bed: &Bed<'_>) -> anyhow::Result<Process> {
        let program = program::find("sshd").context("sshd was there just now")?;
        let mut command = bed.pair.egress.command(program);
        command.arg("-D").arg("-E").arg(self.path("log")).arg("-f").arg(self.path("config"));
        let process = Process::spawn(&mut command)?;
        await_listener(bed, "sshd", PORT)?;
        Ok(process)
    }

    /// Returns the options of a client of this server, with compression.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options: Vec<String> = ["-C", "-F", "none", "-p"].map(str::to_owned).to_vec();
        options.push(PORT.to_string());
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "GlobalKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "ExitOnForwardFailure=yes",
            "LogLevel=ERROR",
        ] {
            options.extend(["-o".to_owned(), option.to_owned()]);
        }
        options.extend(["-i".to_owned(), self.path("user").to_string_lossy().into_owned()]);
        options
    }
}

/// Where the server is, for its client.
pub(crate) const DESTINATION: &str = "root@10.0.0.2";

/// Starts a tunnel of packets.
pub(super) fn tunnel(bed: &Bed<'_>) -> anyhow::Result<Other> {
    let mut ends = connect(bed, &["-w".to_owned(), "0:0".to_owned()])?;
    number(bed, &mut ends, (DEVICE, ADDRESSES), MTU)?;
    Ok(Other { devices: [DEVICE; 2], ends })
}

/// Starts forwarding of TCP connections to all ports of downloads, and waits until it is ready.
pub(super) fn forward(bed: &Bed<'_>) -> anyhow::Result<Ends> {
    let both = |port| (SocketAddr::from((ENTRANCE, port)), content(port));
    let mut ends = forward_to(bed, &ports().map(both).collect::<Vec<_>>())?;
    let end = Instant::now() + PATIENCE;
    // They are opened one after the other.
    let last = ports().last().context("downloads have ports")?;
    while !listens(&bed.pair.ingress, SocketAddr::from((ENTRANCE, last)))? {
        ends.still_hopeful(bed, end)?;
    }
    Ok(ends)
}

/// Starts forwarding of TCP connections from addresses of the receiver's end to others.
pub(crate) fn forward_to(bed: &Bed<'_>, all: &[(SocketAddr, SocketAddr)]) -> anyhow::Result<Ends> {
    let option = |(from, to): &(SocketAddr, SocketAddr)| ["-L".to_owned(), format!("{from}:{to}")];
    connect(bed, &all.iter().flat_map(option).collect::<Vec<_>>())
}

fn connect(bed: &Bed<'_>, what: &[String]) -> anyhow::Result<Ends> {
    let files = Files::make(&bed.lab.directory().join("ssh"))?;
    let logs = [files.path("log"), files.path("client-log")];
    // What it said in runs before is of no interest any more.
    let _ = fs::remove_file(&logs[0]);
    let sender = files.serve(bed)?;
    let receiver = client(&bed.pair.ingress, &files, what, &logs[1])?;
    Ok(Ends { sender, receiver, logs })
}

fn client(host: &Host, files: &Files, what: &[String], log: &Path) -> anyhow::Result<Process> {
    let mut arguments = files.options();
    arguments.push("-N".to_owned());
    arguments.extend_from_slice(what);
    arguments.push(DESTINATION.to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    spawn_logged(host, Path::new("ssh"), &arguments, log, &[])
}
