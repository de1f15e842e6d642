//! Attacks on a pair of proxies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_lab::corpus;
use dwell_lab::lab::{Host, Process};
use dwell_report::ProxyStatus;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::context::Context;
use crate::crowd::{Crowd, Echo, begin_to_connect};
use crate::honest::{PORTS, Pings, Traffic};
use crate::peer::Pace;
use crate::phases::{Ending, Limits, Switch, alternate};
use crate::row::{Bound, Check, Row};
use crate::site::{HUB_PROXY, INGRESS, SERVER, Site, at};
use crate::watch::Watched;

pub(super) const LINK_MBPS: u64 = 10;
/// The server answers crowds at this port, ...
pub(super) const CROWD_PORT: u16 = 9010;
/// ... takes slowly what it gets, ...
const SLOW_PORT: u16 = 9011;
/// ... and takes and gives all it can.
const GREEDY_PORT: u16 = 9012;
/// A proxy has this long until it must listen.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENT_A_SECOND: f64 = 300.0;
/// Silent connections that are held at once.
const SILENT_MAX: usize = 1_000;
const RESETS_A_SECOND: f64 = 1_000.0;
const BOMBS: usize = 40;
const MEMORY_MAX_MB: u64 = 96;
/// The zeros are this many times the memory.
const BOMBS_OF_MEMORY: u64 = 10;

/// Two proxies.
pub(super) struct Proxies {
    pub(super) ingress: Process,
    pub(super) egress: Process,
}

impl Proxies {
    pub(super) fn start(
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
            arguments.extend(["--forward".to_owned(), format!("{INGRESS}:{port}={SERVER}:{port}")]);
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

pub(super) fn status(site: &Site, name: &str) -> anyhow::Result<ProxyStatus> {
    let mut text = Vec::new();
    let mut stream = UnixStream::connect(site.file(&format!("{name}.sock")))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Notes the counts of both ends.
pub(super) fn note_counts(row: &mut Row, site: &Site) {
    for name in ["ingress", "egress"] {
        match status(site, name) {
            Ok(status) => row.notes.push(format!(
                "{name}: {}; {}",
                serde_json::to_string(&status.streams).unwrap_or_default(),
                serde_json::to_string(&status.connections).unwrap_or_default()
            )),
            Err(error) => {
                row.notes.push(format!("the {name} does not report its status: {error}"));
                row.checks.push(Check::new("status answers", 0.0, Bound::AtLeast(1.0)));
            }
        }
    }
}

/// Demands that the attack reached half of what it means to do each second.
pub(super) fn reach(row: &mut Row, context: &Context, what: &str, measured: f64, nominal: f64) {
    row.must_reach(what, measured, context.rate(nominal / 2.0));
}

pub(super) fn traffic(site: &Site, pings: Pings) -> anyhow::Result<Traffic> {
    Traffic::start((&site.client, INGRESS), (&site.server, SERVER), pings)
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
                    let begun = begin_to_connect(SocketAddr::from(HUB_PROXY));
                    attacker.done(u64::from(begun.is_ok()), 0);
                    held.extend(begun);
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
    reach(&mut row, context, "silent connections a second", measured.rate()[0], SILENT_A_SECOND);
    // Each is pushed out, or has not spoken in time; but those that the egress has places for, and that
    // the attacker still holds, have neither yet. A short attack fills these places first.
    let counted = status(&site, "egress").map_or(f64::NAN, |status| {
        (status.connections.unknown_peers + status.connections.handshakes) as f64
    });
    let beyond_places = measured.total()[0] - SILENT_A_SECOND;
    let least = Bound::AtLeast((beyond_places / 2.0).max(1.0));
    row.must_reach("rejected by the egress", counted, least);
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
    let open = || Crowd::open(at(INGRESS, CROWD_PORT), count, 1e6, Duration::from_secs(60));
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
    let at_egress = Arc::new(AtomicU64::new(0));
    let egress = SocketAddr::from(HUB_PROXY);
    for (host, to) in [(&site.client, at(INGRESS, CROWD_PORT)), (&site.evil, egress)] {
        let (attacker, at_egress) = (switch.clone(), Arc::clone(&at_egress));
        threads.push(host.spawn_thread(move || {
            let mut pace = Pace::new(RESETS_A_SECOND / 2.0);
            while !attacker.is_over() {
                for _ in 0..pace.due(64) {
                    if !attacker.is_on() {
                        continue;
                    }
                    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(1));
                    // Whoever refuses it defends itself; it was tried all the same.
                    attacker.done(1, 0);
                    let Ok(mut stream) = stream else { continue };
                    at_egress.fetch_add(u64::from(to == egress), Relaxed);
                    let _ = stream.write_all(b"goodbye");
                    // Closing it resets it.
                    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
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
    reach(&mut row, context, "resets a second", measured.rate()[0], RESETS_A_SECOND);
    // The ingress counts no client that goes before its stream is open; the egress counts all.
    let counted =
        status(&site, "egress").map_or(f64::NAN, |status| status.connections.unknown_peers as f64);
    let least = Bound::AtLeast((at_egress.load(Relaxed) as f64 / 2.0).max(1.0));
    row.must_reach("rejected by the egress", counted, least);
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
    // So many were there at once and took something.
    let opened = Arc::new(AtomicU64::new(0));
    let taken = Arc::clone(&opened);
    let thread = site.client.spawn_thread(move || {
        let zeros = vec![0; 256 << 10];
        let mut streams: Vec<TcpStream> = Vec::new();
        while !attacker.is_over() {
            if attacker.is_on() {
                while streams.len() < BOMBS {
                    let Ok(stream) = begin_to_connect(at(INGRESS, SLOW_PORT)) else { break };
                    streams.push(stream);
                    attacker.done(1, 0);
                }
                let mut written = 0;
                for stream in &mut streams {
                    if let Ok(len) = stream.write(&zeros) {
                        attacker.done(0, len as u64);
                        written += 1;
                    }
                }
                taken.fetch_max(written, Relaxed);
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
    reach(&mut row, context, "streams of zeros", opened.load(Relaxed) as f64, BOMBS as f64);
    // The egress takes no more of it than the target does, and the rest waits before the ingress: so what
    // counts is what was offered.
    let offered = measured.total()[1] / 1e6;
    let nominal = (BOMBS_OF_MEMORY * MEMORY_MAX_MB) as f64;
    reach(&mut row, context, "megabytes of zeros offered", offered, nominal);
    let opened = status(&site, "egress").map_or(f64::NAN, |status| status.streams.opened as f64);
    row.must_reach("streams opened by the egress", opened, Bound::AtLeast(BOMBS as f64 / 2.0));
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
                Ok((stream, _)) => stuff(stream, &server, |len| [len, 0]),
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
                    TcpStream::connect_timeout(&at(INGRESS, GREEDY_PORT), Duration::from_secs(1))
            {
                stuff(stream, &client, |len| [0, len]);
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
    let [there, back] = measured.rate();
    row.rate_per_second = there + back;
    row.rate_bps = Some((there + back) * 8.0);
    // One more stream each way beside one: a half is its due.
    let limits = Limits { goodput: 0.35, ..Limits::default() };
    row.checks = measured.usual_checks(context, limits);
    let due = (LINK_MBPS * 1_000_000 / 8) as f64 / 2.0;
    reach(&mut row, context, "bytes a second there", there, due);
    reach(&mut row, context, "bytes a second back", back, due);
    note_counts(&mut row, &site);
    Ok(row)
}

/// Writes random bytes and reads what comes, as fast as both go, while the switch is on; returns
/// what it counts of the bytes read, by `count`.
fn stuff(mut stream: TcpStream, switch: &Switch, count: fn(u64) -> [u64; 2]) {
    let noise = corpus::incompressible(64 << 10, 7);
    let mut room = vec![0; 64 << 10];
    if stream.set_nonblocking(true).is_err() {
        return;
    }
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
    while switch.is_on() {
        let written = stream.write(&noise).unwrap_or(0);
        let read = stream.read(&mut room).unwrap_or(0);
        let [there, back] = count(read as u64);
        switch.done(there, back);
        if written + read == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Lets this process and its children open this many descriptors, if the system allows it; returns
/// how many they may.
pub(super) fn raise_descriptors(wanted: u64) -> u64 {
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
