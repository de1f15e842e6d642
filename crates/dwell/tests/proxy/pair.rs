//! Two proxies on this machine, and what programs do with them.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_report::ProxyStatus;
use rustix::process::{Pid, Signal, kill_process};

/// Nothing that is waited for takes longer, unless it never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub(crate) fn dwell() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    command.env_remove("DWELL_LOG").env_remove("NO_COLOR").env_remove("DWELL_KEY");
    command.stdin(Stdio::null());
    command
}

/// A directory of the test's own, removed with it.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dwell-proxy-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of what is in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Its exit code; -1 if a signal ended it.
    pub(crate) fn wait(&mut self) -> i32 {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < end, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The memory that it has in use, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
    }

    /// The CPU time that it has used, in clock ticks.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let rest = text.rsplit_once(')').unwrap().1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An ingress with one forward to `target`, and its egress.
pub(crate) struct Pair {
    pub(crate) egress: Process,
    pub(crate) ingress: Process,
    pub(crate) egress_at: SocketAddr,
    pub(crate) listener: SocketAddr,
    pub(crate) socks: SocketAddr,
    pub(crate) directory: Directory,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below those that the kernel gives to connections: another test may make thousands of these
    // before somebody listens here.
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    (0..1_000)
        .map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed))
        .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .find(|&address| TcpListener::bind(address).is_ok())
        .expect("a port is free")
}

impl Pair {
    /// With a shared key.
    pub(crate) fn new(target: SocketAddr, egress: &[&str], ingress: &[&str]) -> Self {
        let directory = Directory::new();
        let psk = directory.path("psk");
        assert!(dwell().args(["genpsk", "--out"]).arg(&psk).status().unwrap().success());
        let psk = psk.to_str().unwrap();
        let egress: Vec<&str> = ["--psk", psk].into_iter().chain(egress.iter().copied()).collect();
        let ingress: Vec<&str> =
            ["--psk", psk].into_iter().chain(ingress.iter().copied()).collect();
        Self::in_directory(directory, target, &egress, &ingress)
    }

    /// Protected as the arguments say.
    pub(crate) fn in_directory(
        directory: Directory,
        target: SocketAddr,
        egress: &[&str],
        ingress: &[&str],
    ) -> Self {
        let [egress_at, listener, socks] = [(); 3].map(|()| free_port());
        let mut command = dwell();
        command.args(["proxy", "egress", "--listen", &egress_at.to_string()]);
        command.arg("--status").arg(directory.path("egress.sock")).args(egress);
        if !egress.contains(&"--allow") {
            command.args(["--allow", &target.to_string()]);
        }
        let egress = start(command, &directory, "egress");
        let mut command = dwell();
        command.args(["proxy", "ingress", "--egress", &egress_at.to_string()]);
        command.args(["--forward", &format!("{listener}={target}"), "--socks", &socks.to_string()]);
        command.arg("--status").arg(directory.path("ingress.sock")).args(ingress);
        let ingress = start(command, &directory, "ingress");
        Self { egress, ingress, egress_at, listener, socks, directory }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        patient(TcpStream::connect(self.listener).unwrap())
    }

    /// The states of ingress and egress.
    pub(crate) fn statuses(&self) -> [ProxyStatus; 2] {
        ["ingress", "egress"].map(|name| status(&self.directory, name).unwrap())
    }

    /// What a proxy has written to its standard output.
    pub(crate) fn output(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path(&format!("{name}.out"))).unwrap()
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path(&format!("{name}.log"))).unwrap()
    }
}

fn start(mut command: Command, directory: &Directory, name: &str) -> Process {
    let log = directory.path(&format!("{name}.log"));
    command.stderr(fs::File::create(&log).unwrap());
    command.stdout(fs::File::create(directory.path(&format!("{name}.out"))).unwrap());
    let mut process = Process(command.spawn().unwrap());
    wait_until("it listens", || {
        if let Some(status) = process.0.try_wait().unwrap() {
            panic!("{name} ended with {status}: {}", fs::read_to_string(&log).unwrap());
        }
        status(directory, name).is_ok()
    });
    process
}

fn status(directory: &Directory, name: &str) -> io::Result<ProxyStatus> {
    let mut answer = Vec::new();
    UnixStream::connect(directory.path(&format!("{name}.sock")))?.read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_up_to(PATIENCE, what, is_so);
}

/// Waits until a side that is gone must have been noticed. A reset reaches an end that reads nothing
/// at once, unless its kernel dropped what came before for want of room: then the reset lies outside
/// of the window, nobody takes it, and the probes after a minute of silence find out.
pub(crate) fn wait_until_noticed(is_so: impl FnMut() -> bool) {
    wait_up_to(Duration::from_secs(150), "it is noticed", is_so);
}

fn wait_up_to(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < end, "never happened: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A stream on which nothing hangs for ever.
pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A server that does `act` with each connection, on a thread of its own. It ends with the test's
/// process.
pub(crate) fn serve(act: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The library's queue has 128 places. If thousands call at once it overflows, the kernel answers with cookies, and resets
    // those of whom it has thrown the first bytes away (`TcpExtSyncookiesFailed`).
    socket2::SockRef::from(&listener).listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    let act = std::sync::Arc::new(act);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (act, stream) = (std::sync::Arc::clone(&act), patient(stream.unwrap()));
            thread::spawn(move || act(stream));
        }
    });
    address
}

/// A server that sends back what it gets, and then its end.
pub(crate) fn echo() -> SocketAddr {
    serve(|mut stream| {
        let mut back = stream.try_clone().unwrap();
        // The client may go away at any time.
        let _ = io::copy(&mut stream, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    })
}

/// Closes a connection with a reset.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Text, numbers and noise.
pub(crate) fn mixture(len: usize, seed: u64) -> Vec<u8> {
    let text = dwell_lab::corpus::text(len / 2, seed);
    let noise = dwell_lab::corpus::incompressible(len - text.len(), seed);
    let mut out = Vec::with_capacity(len);
    for (text, noise) in text.chunks(100_000).zip(noise.chunks(100_000)) {
        out.extend_from_slice(text);
        out.extend_from_slice(noise);
    }
    out.resize(len, 0);
    out
}

/// Sends `bytes` from one thread and reads the answer to its end on this one.
pub(crate) fn exchange(stream: TcpStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = stream.try_clone()?;
    let mut reader = stream;
    thread::scope(|scope| {
        let writing = scope.spawn(move || {
            writer.write_all(bytes)?;
            writer.shutdown(Shutdown::Write)
        });
        let mut got = Vec::new();
        reader.read_to_end(&mut got)?;
        writing.join().unwrap()?;
        Ok(got)
    })
}

#[track_caller]
pub(crate) fn assert_same(got: &[u8], expected: &[u8]) {
    assert_eq!(got.len(), expected.len());
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None);
}

/// Returns true if a program is installed.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    found || Path::new("/usr/sbin").join(program).is_file()
}
