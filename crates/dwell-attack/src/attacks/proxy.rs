//! Attacks on a pair of proxies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_lab::corpus;
use dwell_lab::lab::{Host, LabError, Process};
use dwell_report::ProxyStatus;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::context::{Context, Timing};
use crate::crowd::{Crowd, Echo, begin_to_connect};
use crate::honest::{PORTS, Pings, Traffic};
use crate::peer::Pace;
use crate::phases::{Ending, Limits, Switch, alternate, alternate_with};
use crate::row::{Bound, Check, Row};
use crate::site::{DOOR, HUB_PROXY, SERVER, Site, at};
use crate::watch::Watched;

const LINK_MBPS: u64 = 10;
/// Where the server answers crowds, ...
const CROWD_PORT: u16 = 9010;
/// ... takes slowly what it gets, ...
const SLOW_PORT: u16 = 9011;
/// ... and takes and gives all it can.
const GREEDY_PORT: u16 = 9012;
/// How long a proxy has to listen.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENT_A_SECOND: f64 = 300.0;
/// Silent connections that are held at once.
const SILENT_MAX: usize = 1_000;
const IDLE_CLIENTS: usize = 10_000;
const RESETS_A_SECOND: f64 = 1_000.0;
const BOMBS: usize = 40;
const MEMORY_MAX_MB: u64 = 96;

/// Two proxies.
struct Proxies {
    ingress: Process,
    egress: Process,
}

impl Proxies {
    fn start(
        site: &Site,
        context: &Context,
        (ingress_more, egress_more): (&[&str], &[&str]),
    ) -> anyhow::Result<Self> {
        let psk = site.file("proxy.psk");
        let made = Command::new(&context.dwell).arg("genpsk").arg("--out").arg(&psk).output()?;
        ensure!(made.status.success(), "no key: {made:?}");
        let start = |host: &Host, name: &str, arguments: &[String]| {
            let log = fs::File::create(site.file(&format!("{name}.log")))?;
            let mut command = host.command(&context.dwell);
            command.args(["proxy", name, "--psk"]).arg(&psk);
            command.arg("--status").arg(site.file(&format!("{name}.sock")));
            command.args(arguments).stdin(Stdio::null()).stderr(log);
            let mut process = Process::spawn(&mut command)?;
            wait_for(site, name, &mut process)?;
            Ok::<_, anyhow::Error>(process)
        };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let mut arguments = words(egress_more);
        arguments.extend(["--listen".to_owned(), HUB_PROXY.to_string()]);
        arguments.extend(["--allow".to_owned(), format!("{SERVER}:*")]);
        let egress = start(&site.hub, "egress", &arguments)?;
        let mut arguments = words(ingress_more);
        arguments.extend(["--egress".to_owned(), HUB_PROXY.to_string()]);
        for port in PORTS.into_iter().chain([CROWD_PORT, SLOW_PORT, GREEDY_PORT]) {
            arguments.extend(["--forward".to_owned(), format!("{DOOR}:{port}={SERVER}:{port}")]);
        }
        let ingress = start(&site.good, "ingress", &arguments)?;
        Ok(Self { ingress, egress })
    }
}

fn wait_for(site: &Site, name: &str, process: &mut Process) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while status(site, name).is_err() {
        let log = || fs::read_to_string(site.file(&format!("{name}.log"))).unwrap_or_default();
        ensure!(process.try_wait()?.is_none(), "the {name} ended: {}", log());
        ensure!(Instant::now() < end, "the {name} does not listen: {}", log());
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn status(site: &Site, name: &str) -> anyhow::Result<ProxyStatus> {
    let mut text = Vec::new();
    let mut stream = UnixStream::connect(site.file(&format!("{name}.sock")))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// What both ends counted.
fn note_counts(row: &mut Row, site: &Site) {
    for name in ["ingress", "egress"] {
        match status(site, name) {
            Ok(status) => row.notes.push(format!(
                "{name}: {}; {}",
                serde_json::to_string(&status.streams).unwrap_or_default(),
                serde_json::to_string(&status.connections).unwrap_or_default()
            )),
            Err(error) => {
                row.notes.push(format!("the {name} does not tell its status: {error}"));
                row.checks.push(Check::new("status answers", 0.0, Bound::AtLeast(1.0)));
            }
        }
    }
}

fn traffic(site: &Site, pings: Pings) -> anyhow::Result<Traffic> {
    Traffic::start((&site.client, DOOR), (&site.server, SERVER), pings)
}

/// Connections to the egress that say nothing.
pub(super) fn silent(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let proxies = Proxies::start(&site, context, (&[], &[]))?;
    let traffic = traffic(&site, Pings::New)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let attacker = switch.clone();
    let thread = site.evil.spawn_thread(move || {
        let mut held = std::collections::VecDeque::new();
        let mut pace = Pace::new(SILENT_A_SECOND);
        while !attacker.is_over() {
            let due = pace.due(64);
            if !attacker.is_on() {
                held.clear();
            } else {
                for _ in 0..due {
                    held.extend(begin_to_connect(SocketAddr::from(HUB_PROXY)));
                    attacker.done(1, 0);
                }
                // Those that the egress has closed are in here too; the oldest go first.
                while held.len() > SILENT_MAX {
                    held.pop_front();
                }
            }
            pace.wait(Duration::from_millis(20));
        }
    })?;
    let measured = alternate(context.timing(), &traffic, Watched(proxies.egress.id()), &switch)?;
    switch.end();
    thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    drop(traffic);
    let mut row = measured.row(name, "proxy", "connections");
    row.checks = measured.usual_checks(context, Limits::default());
    note_counts(&mut row, &site);
    Ok(row)
}

/// Honest connections that come all at once.
pub(super) fn burst_1000(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    burst(context, name, 1_000)
}

pub(super) fn burst_5000(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    burst(context, name, 5_000)
}

fn burst(context: &mut Context, name: &'static str, count: usize) -> anyhow::Result<Row> {
    raise_descriptors(4 * count as u64);
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let limits = ["--streams-max", "8000", "--memory-max", "16GiB"];
    let proxies = Proxies::start(&site, context, (&limits, &limits))?;
    let _echo = Echo::start(&site.server, SERVER, CROWD_PORT)?;
    site.client.sysctl("net/ipv4/ip_local_port_range", "10000 65000")?;
    let watched = Watched(proxies.egress.id());
    let before = watched.resident_bytes()?;
    let cpu = watched.cpu_seconds()?;
    let open = || Crowd::open(at(DOOR, CROWD_PORT), count, 1e6, Duration::from_secs(60));
    let crowd = site.client.run(open)??;
    let tally = crowd.tally();
    let peak = watched.peak_bytes()?;
    let mut row = Row {
        attack: name.to_owned(),
        target: "proxy".to_owned(),
        unit: "connections".to_owned(),
        rate_per_second: (tally.served + tally.broken) as f64 / tally.seconds,
        memory_peak_bytes: peak,
        memory_grown_bytes: peak.saturating_sub(before),
        cpu_with: (watched.cpu_seconds()? - cpu) / tally.seconds,
        ..Row::default()
    };
    row.checks = vec![
        Check::new("served", tally.served as f64, Bound::AtLeast(count as f64)),
        Check::new("broken", tally.broken as f64, Bound::AtMost(0.0)),
    ];
    row.notes.push(format!(
        "of {count} at once {} were served, {} broken, and {} waited to the end of {:.1} s",
        tally.served, tally.broken, tally.waiting, tally.seconds
    ));
    note_counts(&mut row, &site);
    Ok(row)
}

type Lingering = thread::JoinHandle<Result<anyhow::Result<()>, LabError>>;

/// Clients that say hardly anything, for as long as they like.
pub(super) fn idle(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let descriptors = raise_descriptors(3 * IDLE_CLIENTS as u64);
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let limits = ["--streams-max", "12000", "--memory-max", "20GiB"];
    let proxies = Proxies::start(&site, context, (&limits, &limits))?;
    // All that both take, but for the honest streams. With a hard limit of 20,000 descriptors an
    // egress takes 9,200: (20,000 - 512 for handshakes - 1,024 for connections without a stream - 64) / 2.
    let room = status(&site, "ingress")?.streams.max.min(status(&site, "egress")?.streams.max);
    let count = IDLE_CLIENTS.min(usize::try_from(room)?.saturating_sub(PORTS.len()));
    let _echo = Echo::start(&site.server, SERVER, CROWD_PORT)?;
    for host in [&site.client, &site.good, &site.hub] {
        host.sysctl("net/ipv4/ip_local_port_range", "10000 65000")?;
    }
    let traffic = traffic(&site, Pings::Tcp)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let mut held: Option<Lingering> = None;
    let mut tally = None;
    let timing = Timing { rounds: 1, ..context.timing() };
    let measured =
        alternate_with(timing, &traffic, Watched(proxies.ingress.id()), &switch, |on| {
            if let Some(thread) = held.take() {
                let joined = thread.join().map_err(|_| anyhow::anyhow!("the crowd panicked"))?;
                joined.context("the crowd")??;
            }
            if on {
                let open =
                    || Crowd::open(at(DOOR, CROWD_PORT), count, 500.0, Duration::from_secs(30));
                let mut crowd = site.client.run(open)??;
                let opened = crowd.tally();
                tally = Some(opened);
                let switch = switch.clone();
                held = Some(site.client.spawn_thread(move || {
                    while switch.is_on() {
                        crowd.linger()?;
                        switch.done(opened.served / 20, 0);
                    }
                    Ok::<_, anyhow::Error>(())
                })?);
            }
            Ok(())
        })?;
    switch.end();
    drop(traffic);
    let tally = tally.context("no crowd was opened")?;
    let mut row = measured.row(name, "proxy", "bytes");
    row.checks = measured.usual_checks(
        context,
        // The usual share of goodput can't be had on this link: 4,598 single bytes a second, each a record
        // of 101 bytes with all headers, and some 2,400 acknowledgements of 66 a second (both counted on
        // the link) are 5 of its 10 Mbit/s. Fair queueing leaves honest streams about a half.
        // Some 30 kB for each: both sockets' state, and what a stream holds when nothing moves.
        Limits { memory_mb: 1_000.0, ..Limits::default() },
    );
    row.checks.push(Check::new(
        "clients served",
        tally.served as f64,
        Bound::AtLeast(count as f64),
    ));
    row.notes.push(format!(
        "{count} clients, every second one of which sends a byte a second; {} were served, {} \
         broken, after {:.1} s",
        tally.served, tally.broken, tally.seconds
    ));
    if count < IDLE_CLIENTS {
        row.notes.push(format!(
            "this system allows {descriptors} descriptors, with which a proxy takes {room} streams"
        ));
    }
    note_counts(&mut row, &site);
    Ok(row)
}

/// Clients, and unknown peers at the egress, that reset their connections at once.
pub(super) fn resets(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let proxies = Proxies::start(&site, context, (&[], &[]))?;
    let _echo = Echo::start(&site.server, SERVER, CROWD_PORT)?;
    for host in [&site.client, &site.good, &site.hub, &site.evil] {
        host.sysctl("net/ipv4/ip_local_port_range", "10000 65000")?;
    }
    let traffic = traffic(&site, Pings::New)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let mut threads = Vec::new();
    for (host, to) in
        [(&site.client, at(DOOR, CROWD_PORT)), (&site.evil, SocketAddr::from(HUB_PROXY))]
    {
        let attacker = switch.clone();
        threads.push(host.spawn_thread(move || {
            let mut pace = Pace::new(RESETS_A_SECOND / 2.0);
            while !attacker.is_over() {
                for _ in 0..pace.due(64) {
                    if !attacker.is_on() {
                        continue;
                    }
                    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(1));
                    let Ok(mut stream) = stream else { continue };
                    let _ = stream.write_all(b"goodbye");
                    // Closing it resets it.
                    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
                    attacker.done(1, 0);
                }
                pace.wait(Duration::from_millis(20));
            }
        })?);
    }
    let measured = alternate(context.timing(), &traffic, Watched(proxies.egress.id()), &switch)?;
    switch.end();
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    }
    drop(traffic);
    let mut row = measured.row(name, "proxy", "resets");
    // Each of them is a stream with a connection of its own, on the honest ones' link.
    let limits = Limits { goodput: 0.4, ping: 6.0, ..Limits::default() };
    row.checks = measured.usual_checks(context, limits);
    note_counts(&mut row, &site);
    Ok(row)
}

/// Streams that become a thousand times longer at the egress, towards a target that hardly reads.
pub(super) fn bombs(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let memory = format!("{MEMORY_MAX_MB}MB");
    let proxies = Proxies::start(&site, context, (&[], &["--memory-max", &memory]))?;
    let slow = site.server.run(|| TcpListener::bind((SERVER, SLOW_PORT)))??;
    // It never accepts more than it must: the kernel takes what fits its buffers.
    let traffic = traffic(&site, Pings::Tcp)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let attacker = switch.clone();
    let thread = site.client.spawn_thread(move || {
        let zeros = vec![0; 256 << 10];
        let mut streams: Vec<TcpStream> = Vec::new();
        while !attacker.is_over() {
            if attacker.is_on() {
                while streams.len() < BOMBS {
                    let Ok(stream) = begin_to_connect(at(DOOR, SLOW_PORT)) else { break };
                    streams.push(stream);
                    attacker.done(1, 0);
                }
                for stream in &mut streams {
                    if let Ok(len) = stream.write(&zeros) {
                        attacker.done(0, len as u64);
                    }
                }
            } else {
                streams.clear();
            }
            thread::sleep(Duration::from_millis(5));
        }
    })?;
    let measured = alternate(context.timing(), &traffic, Watched(proxies.egress.id()), &switch)?;
    switch.end();
    thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    drop((traffic, slow));
    let mut row = measured.row(name, "proxy", "bytes");
    row.rate_per_second = measured.rate()[1];
    // What they fill first, buffers at the target's among it, takes time of the same threads.
    let limits = Limits { goodput: 0.4, memory_mb: MEMORY_MAX_MB as f64, ..Limits::default() };
    row.checks = measured.usual_checks(context, limits);
    row.notes.push(format!("{BOMBS} streams of zeros at once, --memory-max {memory}"));
    note_counts(&mut row, &site);
    Ok(row)
}

/// One stream each way that takes all it can get, beside honest ones and many short ones.
pub(super) fn greedy(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let proxies = Proxies::start(&site, context, (&[], &[]))?;
    let traffic = traffic(&site, Pings::New)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let listener = site.server.run(|| TcpListener::bind((SERVER, GREEDY_PORT)))??;
    listener.set_nonblocking(true)?;
    let mut threads = Vec::new();
    let server = switch.clone();
    threads.push(site.server.spawn_thread(move || {
        while !server.is_over() {
            match listener.accept() {
                Ok((stream, _)) => stuff(stream, &server),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    })?);
    let client = switch.clone();
    threads.push(site.client.spawn_thread(move || {
        while !client.is_over() {
            thread::sleep(Duration::from_millis(20));
            if client.is_on()
                && let Ok(stream) =
                    TcpStream::connect_timeout(&at(DOOR, GREEDY_PORT), Duration::from_secs(1))
            {
                stuff(stream, &client);
            }
        }
    })?);
    let measured = alternate(context.timing(), &traffic, Watched(proxies.egress.id()), &switch)?;
    switch.end();
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    }
    drop(traffic);
    let mut row = measured.row(name, "proxy", "bytes");
    row.rate_per_second = measured.rate()[1];
    // One more stream each way beside one: a half is its due.
    let limits = Limits { goodput: 0.35, ..Limits::default() };
    row.checks = measured.usual_checks(context, limits);
    note_counts(&mut row, &site);
    Ok(row)
}

/// Writes random bytes and reads what comes, as fast as both go, while the switch is on.
fn stuff(mut stream: TcpStream, switch: &Switch) {
    let noise = corpus::incompressible(64 << 10, 7);
    let mut room = vec![0; 64 << 10];
    if stream.set_nonblocking(true).is_err() {
        return;
    }
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
    while switch.is_on() {
        let written = stream.write(&noise).unwrap_or(0);
        let read = stream.read(&mut room).unwrap_or(0);
        switch.done(0, read as u64);
        if written + read == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Lets this process and its children open so many descriptors, if the system allows it; returns
/// how many they may.
fn raise_descriptors(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let most = maximum.unwrap_or(u64::MAX).max(wanted);
    for limit in [most, maximum.unwrap_or(u64::MAX)] {
        let wanted = Rlimit { current: Some(limit), maximum: Some(limit) };
        if setrlimit(Resource::Nofile, wanted).is_ok() {
            return limit;
        }
    }
    current.unwrap_or(u64::MAX)
}
