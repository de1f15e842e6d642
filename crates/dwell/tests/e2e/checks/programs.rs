//! Real programs through the tunnel: iperf3, rsync, ssh.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, bail, ensure};
use dwell_lab::corpus;
use dwell_lab::lab::{Host, Lab, Process};
use serde_json::Value;

use crate::harness::{Skip, find, require};
use crate::site::{self, SERVERS, Site, wait_until};
use crate::web::servers;

pub(super) fn iperf3(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["iperf3"])?;
    let site = Site::thin(lab, &site::settings())?;
    for server in servers() {
        for arguments in
            ["-n 300K", "-n 300K -R", "-u -b 1M -l 100 -t 1", "-u -b 1M -l 100 -t 1 -R"]
        {
            let result = iperf3_once(&site, server, arguments)?;
            let sum = &result["end"][if arguments.contains("-u") { "sum" } else { "sum_received" }];
            ensure!(sum["bytes"].as_u64() > Some(0), "{arguments}: {result:#}");
            if arguments.contains("-u") {
                ensure!(sum["lost_packets"] == 0, "{arguments}: lost packets: {result:#}");
                let reordered = &result["end"]["streams"][0]["udp"]["out_of_order"];
                ensure!(*reordered == 0, "{arguments}: out of order: {result:#}");
            }
        }
    }
    site.verify_lossless()?;
    Ok(())
}

fn iperf3_once(site: &Site, server: &str, arguments: &str) -> anyhow::Result<Value> {
    let port = ["-p", "5201"];
    let log = site.directory.join("iperf3.log");
    let mut command = site.pair.server.command("iperf3");
    command.args(["-s", "-1", "--forceflush"]).args(port).stdout(fs::File::create(&log)?);
    let mut service = Process::spawn(&mut command)?;
    wait_until("iperf3 listens", || {
        if let Some(status) = service.try_wait()? {
            bail!("iperf3 ended with {status}");
        }
        Ok(fs::read_to_string(&log)?.contains("listening"))
    })?;
    let mut client = site.pair.client.command("iperf3");
    client.args(["-J", "-c", server]).args(port).args(arguments.split(' '));
    let output = client.output()?;
    ensure!(output.status.success(), "iperf3 {arguments}: {}", reported(&output));
    serde_json::from_slice(&output.stdout).context("iperf3 does not speak JSON")
}

pub(super) fn rsync(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["rsync"])?;
    let site = Site::thin(lab, &site::settings())?;
    let (from, to) = (site.directory.join("tree"), site.directory.join("copy"));
    plant(&from)?;
    let config = site.directory.join("rsyncd.conf");
    let directory = site.directory.display();
    // Nobody in a lab answers for names, and only root can become somebody else.
    let ids = if ids_outside()?.is_none() { "uid = 0\ngid = 0\n" } else { "" };
    let text = format!(
        "use chroot = no\nreverse lookup = no\npid file = {directory}/rsyncd.pid\n\
         lock file = {directory}/rsyncd.lock\n{ids}[tree]\npath = {directory}/tree\n"
    );
    fs::write(&config, text)?;
    let mut command = as_nobody_else(&site.pair.server, "rsync")?;
    // As an ordinary user it may not have a low port.
    command.args(["--daemon", "--no-detach", "--port", "8730", "--log-file"]);
    let log = site.directory.join("rsyncd.log");
    let mut service = Process::spawn(command.arg(&log).arg("--config").arg(&config))?;
    listens(&site, &mut service, 8730, &log)?;
    for server in servers() {
        let address =
            if server.contains(':') { format!("[{server}]") } else { (*server).to_owned() };
        let _ = fs::remove_dir_all(&to);
        let mut client = site.pair.client.command("rsync");
        client.args(["-rtp", &format!("rsync://{address}:8730/tree/")]).arg(&to);
        let output = client.output()?;
        let logged = || fs::read_to_string(&log).unwrap_or_default();
        ensure!(output.status.success(), "rsync: {}\n{}", reported(&output), logged());
        compare(&from, &to)?;
    }
    site.verify_lossless()?;
    Ok(())
}

pub(super) fn ssh(lab: &mut Lab) -> anyhow::Result<()> {
    require(&["ssh", "sshd", "ssh-keygen", "tar"])?;
    let site = Site::thin(lab, &site::settings())?;
    let (from, to) = (site.directory.join("tree"), site.directory.join("copy"));
    plant(&from)?;
    fs::create_dir_all(&to)?;
    let user = user()?;
    let directory = site.directory.join("ssh");
    let key = |name: &str| directory.join(name);
    fs::create_dir_all(&directory)?;
    // Where sshd's unprivileged half would live; /run is the lab's own.
    let _ = fs::create_dir_all("/run/sshd");
    for name in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key(name));
        ensure!(command.status()?.success(), "ssh-keygen failed");
    }
    let config = key("sshd_config");
    let (host, authorized) = (key("host"), key("user.pub"));
    let text = format!(
        "Port 2222\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         PasswordAuthentication no\nUsePAM no\nPermitRootLogin yes\n",
        host.display(),
        authorized.display(),
    );
    fs::write(&config, text)?;
    let sshd = find("sshd").context("it was there just now")?;
    let mut command = as_nobody_else(&site.pair.server, &sshd.display().to_string())?;
    let log = key("sshd.log");
    let mut service = Process::spawn(command.arg("-D").arg("-E").arg(&log).arg("-f").arg(&config))?;
    listens(&site, &mut service, 2222, &log)?;
    let mut client = site.pair.client.command("ssh");
    client.args([
        "-F",
        "none",
        "-p",
        "2222",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "BatchMode=yes",
    ]);
    client
        .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i"])
        .arg(key("user"));
    client.arg(format!("{user}@{}", SERVERS[0]));
    client.arg(format!("tar -C {} -cf - .", from.display()));
    let output = client.output()?;
    let logged = || fs::read_to_string(&log).unwrap_or_default();
    ensure!(output.status.success(), "ssh: {}\n{}", reported(&output), logged());
    let archive = site.directory.join("tree.tar");
    fs::write(&archive, output.stdout)?;
    let unpacked = Command::new("tar")
        .arg("--no-same-owner")
        .arg("-C")
        .arg(&to)
        .arg("-xf")
        .arg(&archive)
        .status()?;
    ensure!(unpacked.success(), "what ssh brought is no archive");
    compare(&from, &to)?;
    site.verify_lossless()?;
    Ok(())
}

/// A command that does not run as root where root is not real: servers would try to change
/// their user and groups, which is forbidden there. It then runs as the user who started
/// the lab.
fn as_nobody_else(host: &Host, program: &str) -> anyhow::Result<Command> {
    let Some((uid, gid)) = ids_outside()? else { return Ok(host.command(program)) };
    require(&["unshare"])?;
    let mut command = host.command("unshare");
    command.arg(format!("--map-user={uid}")).arg(format!("--map-group={gid}")).arg(program);
    Ok(command)
}

/// Returns the ids of the lab's root outside, unless it is root.
fn ids_outside() -> anyhow::Result<Option<(u32, u32)>> {
    let outside = |file: &str| -> anyhow::Result<u32> {
        let map = fs::read_to_string(file)?;
        let id = map.split_whitespace().nth(1).context("an empty map")?;
        Ok(id.parse()?)
    };
    let ids = (outside("/proc/self/uid_map")?, outside("/proc/self/gid_map")?);
    Ok((ids.0 != 0).then_some(ids))
}

/// The name of the user who runs the checks.
fn user() -> anyhow::Result<String> {
    let Some((uid, _)) = ids_outside()? else { return Ok("root".to_owned()) };
    let users = fs::read_to_string("/etc/passwd")?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut own = fields.filter(|fields| fields.get(2) == Some(&uid.to_string().as_str()));
    let name = own.next().and_then(|fields| Some((*fields.first()?).to_owned()));
    name.ok_or_else(|| Skip(format!("the user {uid} has no name for sshd")).into())
}

/// Waits until the server listens on the server host.
fn listens(site: &Site, service: &mut Process, port: u16, log: &Path) -> anyhow::Result<()> {
    wait_until("a server listens", || {
        if let Some(status) = service.try_wait()? {
            bail!(
                "the server ended with {status}: {}",
                fs::read_to_string(log).unwrap_or_default()
            );
        }
        Ok(site.pair.server.run(|| TcpStream::connect((SERVERS[0], port)).is_ok())?)
    })
}

fn reported(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A tree of files of many kinds.
pub(super) fn plant(root: &Path) -> anyhow::Result<()> {
    for (at, len) in [0, 1, 63, 1448, 5_000, 20_000, 150_000].into_iter().enumerate() {
        let directory = root.join(format!("directory {at}/below"));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("prose"), corpus::text(len, at as u64))?;
        fs::write(directory.join("noise"), corpus::incompressible(len / 3, at as u64))?;
    }
    Ok(())
}

/// Both trees have the same files with the same bytes.
pub(super) fn compare(a: &Path, b: &Path) -> anyhow::Result<()> {
    let (a, b) = (read_tree(a)?, read_tree(b)?);
    ensure!(a.keys().eq(b.keys()), "not the same files: {:?}, {:?}", a.keys(), b.keys());
    for (path, bytes) in &a {
        ensure!(b.get(path) == Some(bytes), "{} differs", path.display());
    }
    Ok(())
}

fn read_tree(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.insert(path.strip_prefix(root)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(files)
}
