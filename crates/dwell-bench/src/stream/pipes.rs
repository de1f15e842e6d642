//! The tools that people use today: `zstd --adapt` and `ssh -C`, each between two pipes.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::super::bed::Bed;

/// Another program's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipe {
    /// `zstd --adapt | tcp | zstd -d`.
    ZstdAdapt,
    /// `ssh -C host cat`.
    Ssh,
}

const SSH_PORT: u16 = 2222;
const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 2], 9002);

impl Pipe {
    const ALL: [Self; 2] = [Self::ZstdAdapt, Self::Ssh];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ZstdAdapt => "zstd --adapt",
            Self::Ssh => "ssh -C",
        }
    }

    /// Which of its programs are not there.
    fn missing(self) -> Vec<&'static str> {
        self.programs().iter().copied().filter(|name| find(name).is_none()).collect()
    }

    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::ZstdAdapt => &["zstd"],
            Self::Ssh => &["ssh", "sshd", "ssh-keygen"],
        }
    }
}

/// Those whose programs are there.
pub(super) fn installed() -> Vec<Pipe> {
    Pipe::ALL.into_iter().filter(|pipe| pipe.missing().is_empty()).collect()
}

/// Complains of those whose programs are not there, in a sentence each.
pub(super) fn complaints() -> Vec<String> {
    let sentence = |pipe: Pipe| {
        let (name, missing) = (pipe.name(), pipe.missing());
        let missing = missing.join(", ");
        (!missing.is_empty())
            .then(|| format!("`{name}` does not take part: {missing} can't be found; install it"))
    };
    Pipe::ALL.into_iter().filter_map(sentence).collect()
}

/// Returns the path of a program, also where only root looks.
fn find(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// Processes that send, and one whose output is what arrives.
#[derive(Debug)]
pub(super) struct Running {
    children: Vec<Child>,
    pub(super) output: std::process::ChildStdout,
    feeder: Option<thread::JoinHandle<()>>,
}

impl Running {
    /// CPU time of all of them, and of what they have started: sshd has a process of its own for
    /// each session.
    pub(super) fn cpu_ns(&self) -> u64 {
        let processes: Vec<u32> = self.children.iter().map(Child::id).collect();
        super::super::machine::family_cpu_ns(&processes)
    }

    /// Ends all of them; call it before the output is dropped.
    pub(super) fn stop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts it; it sends the body over and over, from the egress to the ingress.
pub(super) fn start(
    pipe: Pipe,
    bed: &Bed<'_>,
    body: &std::sync::Arc<Vec<u8>>,
    directory: &Path,
) -> anyhow::Result<Running> {
    match pipe {
        Pipe::ZstdAdapt => zstd(bed, std::sync::Arc::clone(body)),
        Pipe::Ssh => ssh(bed, body, directory),
    }
}

fn zstd(bed: &Bed<'_>, body: std::sync::Arc<Vec<u8>>) -> anyhow::Result<Running> {
    let address = SocketAddr::from(ADDRESS);
    let listener = bed.pair.egress.run(|| TcpListener::bind(address))??;
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(10));
    let near = bed.pair.ingress.run(connect)??;
    let (far, _) = listener.accept()?;
    let mut decoder = bed.pair.ingress.command("zstd");
    decoder.args(["-dcq"]).stdin(OwnedFd::from(near)).stdout(Stdio::piped());
    let mut decoder = decoder.spawn()?;
    let mut encoder = bed.pair.egress.command("zstd");
    encoder.args(["--adapt", "-cq"]).stdin(Stdio::piped()).stdout(OwnedFd::from(far));
    let mut encoder = encoder.spawn()?;
    let mut input = encoder.stdin.take().context("a pipe was asked for")?;
    let output = decoder.stdout.take().context("a pipe was asked for")?;
    // Until the encoder has gone.
    let feeder = thread::spawn(move || while input.write_all(&body).is_ok() {});
    Ok(Running { children: vec![encoder, decoder], output, feeder: Some(feeder) })
}

fn ssh(bed: &Bed<'_>, body: &[u8], directory: &Path) -> anyhow::Result<Running> {
    let file = |name: &str| directory.join(format!("ssh-{name}"));
    fs::write(file("body"), body)?;
    for name in ["host", "user"] {
        if !file(name).exists() {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file(name));
            ensure!(command.status()?.success(), "ssh-keygen failed");
        }
    }
    // Where sshd's unprivileged half would live; /run is the lab's own.
    let _ = fs::create_dir_all("/run/sshd");
    let config = format!(
        "Port {SSH_PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         PasswordAuthentication no\nUsePAM no\nPermitRootLogin yes\nCompression yes\n",
        file("host").display(),
        file("user.pub").display(),
    );
    fs::write(file("config"), config)?;
    let sshd = find("sshd").context("it was there just now")?;
    let mut server = bed.pair.egress.command(sshd);
    server.arg("-D").arg("-E").arg(file("log")).arg("-f").arg(file("config"));
    let server = server.spawn()?;
    let mut running = vec![server];
    let client = listens(bed).and_then(|()| ssh_client(bed, &file("user"), &file("body")));
    match client {
        Ok(mut client) => {
            let output = client.stdout.take().context("a pipe was asked for")?;
            running.push(client);
            Ok(Running { children: running, output, feeder: None })
        }
        Err(error) => {
            let _ = running[0].kill();
            let _ = running[0].wait();
            Err(error)
        }
    }
}

fn ssh_client(bed: &Bed<'_>, key: &Path, body: &Path) -> anyhow::Result<Child> {
    let mut client = bed.pair.ingress.command("ssh");
    client.args(["-C", "-F", "none", "-p"]).arg(SSH_PORT.to_string());
    client.args(["-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes"]);
    client.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i"]).arg(key);
    client.arg("root@10.0.0.2").arg(format!("while cat '{}'; do :; done", body.display()));
    Ok(client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// Waits until sshd listens.
fn listens(bed: &Bed<'_>) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    let address = SocketAddr::from(([10, 0, 0, 2], SSH_PORT));
    while bed.pair.egress.run(|| TcpStream::connect(address).is_err())? {
        ensure!(Instant::now() < end, "sshd does not listen");
        bed.sleep(Duration::from_millis(20))?;
    }
    Ok(())
}
