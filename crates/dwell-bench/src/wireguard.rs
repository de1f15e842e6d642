//! `wireguard-go` from site to site, configured through its own socket: `wg` is not needed.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::lab::{Host, Process};

use super::bed::Bed;
use super::certificate::openssl;
use super::ends::Ends;
use super::tunnel::{Other, spawn_logged};

/// Of sender and receiver. They differ because the sockets are named after them, and both
/// ends share the directory.
const DEVICES: [&str; 2] = ["wg0", "wg1"];
/// The directory of `wireguard-go`'s sockets.
const SOCKETS: &str = "/var/run/wireguard";
const PORT: u16 = 51820;

/// Starts it at both ends.
pub(super) fn start(bed: &Bed<'_>, program: &Path) -> anyhow::Result<Other> {
    let directory = bed.lab.directory().join("wireguard");
    std::fs::create_dir_all(&directory).context("a directory for wireguard-go can't be made")?;
    let keys = [Keys::make(&directory, "sender")?, Keys::make(&directory, "receiver")?];
    let ends = [
        (&bed.pair.egress, "10.0.0.1", ["10.1.0.0/24", "10.79.0.1/32"], "10.79.0.2/30"),
        (&bed.pair.ingress, "10.0.0.2", ["10.2.0.0/24", "10.79.0.2/32"], "10.79.0.1/30"),
    ];
    let mut started = Vec::new();
    for (end, (host, endpoint, prefixes, address)) in ends.into_iter().enumerate() {
        let log = directory.join(format!("{end}.log"));
        let device = DEVICES[end];
        let process = run(host, program, device, &log)?;
        configure(device, &keys[end], &keys[1 - end], endpoint, &prefixes)?;
        host.address(device, address)?;
        host.mtu(device, 1420)?;
        host.up(device)?;
        started.push((process, log));
    }
    let (Some((receiver, receiver_log)), Some((sender, sender_log))) =
        (started.pop(), started.pop())
    else {
        anyhow::bail!("wireguard-go did not start");
    };
    let ends = Ends { sender, receiver, logs: [sender_log, receiver_log] };
    Ok(Other { devices: DEVICES, ends })
}

fn run(host: &Host, program: &Path, device: &str, log: &Path) -> anyhow::Result<Process> {
    let environment = [("WG_PROCESS_FOREGROUND", "1"), ("LOG_LEVEL", "error")];
    let mut process = spawn_logged(host, program, &["-f", device], log, &environment)?;
    let end = Instant::now() + Duration::from_secs(5);
    while UnixStream::connect(socket(device)).is_err() {
        let ended = process.try_wait()?.is_some();
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        ensure!(!ended && Instant::now() < end, "wireguard-go does not answer: {}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

fn socket(device: &str) -> PathBuf {
    Path::new(SOCKETS).join(format!("{device}.sock"))
}

/// Sets keys, endpoint and prefixes by the protocol that <https://www.wireguard.com/xplatform>
/// describes.
fn configure(
    device: &str,
    own: &Keys,
    peer: &Keys,
    endpoint: &str,
    prefixes: &[&str],
) -> anyhow::Result<()> {
    let (private, public) = (&own.private, &peer.public);
    let mut request = format!(
        "set=1\nprivate_key={private}\nlisten_port={PORT}\npublic_key={public}\n\
         endpoint={endpoint}:{PORT}\nreplace_allowed_ips=true\n"
    );
    for prefix in prefixes {
        // Writing to a string can't fail.
        let _ = writeln!(request, "allowed_ip={prefix}");
    }
    request.push('\n');
    let mut answer = String::new();
    let mut stream = UnixStream::connect(socket(device)).context("wireguard-go does not answer")?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_string(&mut answer)?;
    ensure!(answer.contains("errno=0"), "wireguard-go refuses its configuration: {answer}");
    Ok(())
}

/// X25519 keys as hex digits.
struct Keys {
    private: String,
    public: String,
}

impl Keys {
    fn make(directory: &Path, name: &str) -> anyhow::Result<Self> {
        let file = directory.join(format!("{name}.key")).to_string_lossy().into_owned();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        openssl(&[words("genpkey -algorithm X25519 -out"), vec![file.clone()]].concat())?;
        let key = |more: &[String]| {
            let arguments = [words("pkey -outform DER -in"), vec![file.clone()], more.to_vec()];
            openssl(&arguments.concat()).and_then(|der| last_32_as_hex(&der))
        };
        Ok(Self { private: key(&[])?, public: key(&["-pubout".to_owned()])? })
    }
}

/// In both encodings the key is at the end.
fn last_32_as_hex(der: &[u8]) -> anyhow::Result<String> {
    let key = der.last_chunk::<32>().context("openssl's key is too short")?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}
