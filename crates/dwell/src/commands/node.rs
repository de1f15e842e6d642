//! Nodes that run on this machine: where they answer, what they say, and making them read their file again.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dwell_relay::config::NodeConfig;
use dwell_report::status::SCHEMA;
use dwell_report::{Status, proxy};
use rustix::process::Signal;
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

/// The socket of the node, or of the proxy, that has this name: this user's, then root's, then
/// those of the units that packages bring.
pub(super) fn named(name: &str) -> PathBuf {
    let relay = NodeConfig::default_status(name);
    let own = dwell_proxy::default_status(name);
    let candidates = own.iter().chain([&relay]).cloned().chain(of_units(name));
    first_of(candidates).unwrap_or(relay)
}

fn of_units(name: &str) -> impl Iterator<Item = PathBuf> {
    let file = format!("{name}.sock");
    dwell_proxy::UNIT_DIRECTORIES.into_iter().map(move |directory| Path::new(directory).join(&file))
}

/// The first that is there, if possible one that answers this user: a proxy that was killed leaves
/// its socket behind.
fn first_of(candidates: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let there: Vec<PathBuf> = candidates.filter(|path| path.exists()).collect();
    let listens = |path: &&PathBuf| match connect(path, PROBE_TIME) {
        Ok(_) => true,
        // Its queue is full.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    there.iter().find(listens).or(there.first()).cloned()
}

/// The sockets in a directory, which need not exist. One whose process has ended is none.
fn sockets_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
            .filter(|path| !is_abandoned(path))
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", directory.display())),
    }
}

fn is_abandoned(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    connect(path, PROBE_TIME).is_err_and(refused)
}

fn is_denied(path: &Path) -> bool {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    connect(path, PROBE_TIME).is_err_and(denied)
}

/// The socket of the one node, or proxy of this user or of a unit, that has it where it is by
/// default.
pub(super) fn the_only_node() -> anyhow::Result<PathBuf> {
    the_only_one(&default_sockets()?)
}

/// The same of the one relay: proxies beside it don't count.
pub(super) fn the_only_relay() -> anyhow::Result<PathBuf> {
    the_only_relay_of(default_sockets()?)
}

fn the_only_relay_of(sockets: Vec<PathBuf>) -> anyhow::Result<PathBuf> {
    let is_of_proxy = |socket: &PathBuf| ask(socket).is_ok_and(|answer| is_proxy(&answer));
    let (proxies, relays): (Vec<_>, Vec<_>) = sockets.into_iter().partition(is_of_proxy);
    if let ([], [proxy, ..]) = (&relays[..], &proxies[..]) {
        bail!(
            "no relay runs here, only a proxy, and this is for relays: `dwell status --socket {}` shows the \
             proxy's state",
            proxy.display()
        );
    }
    the_only_one(&relays)
}

/// The sockets of nodes and proxies that are where they are by default.
fn default_sockets() -> anyhow::Result<Vec<PathBuf>> {
    let mut directories = vec![relay_directory()];
    let of_units = dwell_proxy::UNIT_DIRECTORIES.map(PathBuf::from);
    for further in dwell_proxy::status_directory().into_iter().chain(of_units) {
        if !directories.contains(&further) {
            directories.push(further);
        }
    }
    let mut sockets = Vec::new();
    for directory in &directories {
        sockets.extend(sockets_in(directory)?);
    }
    // Those of other users' proxies are of no use if there is another.
    if sockets.iter().any(|path| !is_denied(path)) {
        sockets.retain(|path| !is_denied(path));
    }
    Ok(sockets)
}

fn relay_directory() -> PathBuf {
    let example = NodeConfig::default_status("NAME");
    example.parent().unwrap_or(Path::new("/")).to_owned()
}

fn the_only_one(sockets: &[PathBuf]) -> anyhow::Result<PathBuf> {
    match sockets {
        [socket] => Ok(socket.clone()),
        [] => bail!(
            "no node has a status socket in {}: is `dwell relay` or `dwell proxy` running? If its \
             socket is elsewhere, add --socket PATH",
            relay_directory().display()
        ),
        several => {
            let mut names: Vec<_> = several
                .iter()
                .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
                .collect();
            names.sort();
            bail!("several nodes run here, name one of them: {}", names.join(", "))
        }
    }
}

/// A node answers at once; this is for one that hangs.
const TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Whether somebody listens shows at once, unless the queue of those who want to connect is full.
const PROBE_TIME: Duration = Duration::from_millis(200);

/// Connects, and waits no longer than this for a place in the listener's queue.
fn connect(path: &Path, time: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Connecting counts as writing (unix(7)).
    socket.set_write_timeout(Some(time))?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_write_timeout(None)?;
    Ok(OwnedFd::from(socket).into())
}

/// The JSON document that the node answers with.
pub(super) fn ask(path: &Path) -> anyhow::Result<Value> {
    tracing::debug!("asking {}", path.display());
    let shown = path.display();
    let mut answer = Vec::new();
    let stream = connect(path, TIMEOUT).map_err(|error| explain(error, path))?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer))
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                anyhow::anyhow!("the node at {shown} does not answer: it hangs or is overloaded")
            }
            _ => anyhow::Error::new(error).context(format!("the answer of {shown} is cut short")),
        })?;
    let status: Value = serde_json::from_slice(&answer)
        .with_context(|| format!("{shown} does not answer with JSON: is it dwell that answers?"))?;
    let schema = status.get("schema").and_then(Value::as_u64);
    ensure!(
        schema == Some(u64::from(SCHEMA)),
        "the node at {shown} speaks another version of the status format than this program \
         ({SCHEMA}): use the same dwell as the node"
    );
    Ok(status)
}

fn explain(error: io::Error, path: &Path) -> anyhow::Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "there is no socket {path}: does a relay (`dwell up`, `dwell relay`) or proxy run, with its status there?"
        ),
        io::ErrorKind::ConnectionRefused => {
            anyhow::anyhow!(
                "no node listens at {path} any more: start the relay (`dwell up`) or proxy again"
            )
        }
        io::ErrorKind::WouldBlock => {
            anyhow::anyhow!("the node at {path} takes no questions: it hangs or is overloaded")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!("{path} may not be opened by this user: use sudo")
        }
        _ => anyhow::Error::new(error).context(format!("{path} can't be opened")),
    }
}

/// True if it is a proxy that has answered so.
pub(super) fn is_proxy(answer: &Value) -> bool {
    answer.get("kind").and_then(Value::as_str) == Some(proxy::KIND)
}

/// The state of the relay that answers there.
pub(super) fn relay_status(path: &Path) -> anyhow::Result<Status> {
    let answer = ask(path)?;
    let shown = path.display();
    ensure!(
        !is_proxy(&answer),
        "the node at {shown} is a proxy, and this is for relays: `dwell status --socket {shown}` shows its state"
    );
    serde_json::from_value(answer).context("the node's answer is not a relay's status")
}

/// What became of a configuration file that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reloaded {
    /// No relay runs with it.
    NotRunning,
    /// The relay that runs with it has taken it; these keys wait for a restart.
    Taken(Option<String>),
}

/// A relay reads a file in no time; this is for one that is busy.
const RELOAD_PATIENCE: Duration = Duration::from_secs(10);

/// Makes the relay that runs with this file, and answers at this socket, read it again.
pub(super) fn reload(socket: Option<&Path>, config: &Path) -> anyhow::Result<Reloaded> {
    let Some(socket) = socket.filter(|socket| socket.exists() && !is_abandoned(socket)) else {
        return Ok(Reloaded::NotRunning);
    };
    let before = relay_status(socket)?.configuration;
    let of_running = std::fs::canonicalize(&before.path).ok();
    if of_running != std::fs::canonicalize(config).ok() {
        bail!(
            "the node that answers at {} runs with another file, {}: change that one (--config), or \
             give this node another name",
            socket.display(),
            before.path
        );
    }
    signal(socket, Signal::HUP)?;
    let end = Instant::now() + RELOAD_PATIENCE;
    while Instant::now() < end {
        let now = relay_status(socket)?.configuration;
        if now.reloads != before.reloads {
            return match now.refused {
                Some(why) => bail!("the running relay refuses the file: {why}"),
                None => Ok(Reloaded::Taken(now.waits_for_restart)),
            };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the relay at {} does not read its file again: restart it", socket.display())
}

/// Sends a signal to the process that listens there: the kernel knows which it is.
fn signal(socket: &Path, signal: Signal) -> anyhow::Result<()> {
    let stream = connect(socket, TIMEOUT).map_err(|error| explain(error, socket))?;
    let process = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    rustix::process::kill_process(process, signal).with_context(|| {
        let process = process.as_raw_nonzero();
        format!(
            "the relay (process {process}) can't be signalled: use sudo, or `kill -HUP {process}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_socket_that_answers_comes_before_others() {
        let directory = std::env::temp_dir().join(format!("dwell-node-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let [missing, dead, alive] = ["missing", "dead", "alive"].map(|it| directory.join(it));
        drop(UnixListener::bind(&dead).unwrap());
        let of = |paths: &[&PathBuf]| first_of(paths.iter().map(|&path| path.clone()));
        assert_eq!(of(&[&missing, &dead, &alive]), Some(dead.clone()));
        let listener = UnixListener::bind(&alive).unwrap();
        assert_eq!(of(&[&missing, &dead, &alive]), Some(alive.clone()));
        assert_eq!(of(&[&missing]), None);
        drop(listener);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn who_takes_no_questions_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("dwell-full-{}.sock", std::process::id()));
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let waiting = UnixStream::connect(&path).unwrap();
        let error = connect(&path, Duration::from_millis(20)).unwrap_err();
        assert!(explain(error, &path).to_string().contains("hangs or is overloaded"));
        assert!(!is_abandoned(&path) && !is_denied(&path));
        drop(waiting);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_proxy_is_no_relay_and_is_said_to_be_none() {
        let directory = std::env::temp_dir().join(format!("dwell-kinds-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let answers = |name: &str, answer: Value| {
            let path = directory.join(name);
            let listener = UnixListener::bind(&path).unwrap();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    // Whoever only looks whether somebody is there does not read it.
                    let _ = stream.unwrap().write_all(answer.to_string().as_bytes());
                }
            });
            path
        };
        let proxy = answers("ingress.sock", json!({ "schema": SCHEMA, "kind": proxy::KIND }));
        let relay = answers("site-a.sock", json!({ "schema": SCHEMA }));
        let shown = format!("`dwell status --socket {}` shows", proxy.display());
        let why = relay_status(&proxy).unwrap_err().to_string();
        assert!(
            why.contains("is a proxy, and this is for relays") && why.contains(&shown),
            "{why}"
        );
        let chosen = the_only_relay_of(vec![proxy.clone(), relay.clone()]);
        assert_eq!(chosen.unwrap(), relay);
        let why = the_only_relay_of(vec![proxy]).unwrap_err().to_string();
        assert!(why.contains("only a proxy") && why.contains(&shown), "{why}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
