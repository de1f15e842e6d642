//! Another user of the hub's machine who wants a tunnel's datagrams.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use dwell_lab::lab::Process;
use socket2::{Domain, Protocol, Socket, Type};

use super::authenticated::{note_drops, spec};
use crate::context::Context;
use crate::honest::{Pings, Traffic};
use crate::phases::{Ending, Limits, Switch, alternate};
use crate::row::{Bound, Check, Row};
use crate::site::{GOOD_RELAY, HUB_RELAY, SERVER, Site, Tunnel};
use crate::watch::Watched;

const LINK_MBPS: u64 = 10;
/// `nobody`
const OTHER_UID: u32 = 65_534;
/// The argument by which this program becomes the other user's, and the one by which it goes on
/// as that.
const THIEF: &str = "--steal";
const THIEF_NOW: &str = "--steal-now";
/// It tries to bind this often.
const TRY_EVERY: Duration = Duration::from_millis(20);

pub(super) fn steal(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, &spec())?;
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    let watched = Watched(tunnel.hub.process().id());
    let switch = Switch::default();
    let _ending = Ending(&switch);
    // A program that everybody may run, wherever this one is.
    let program = site.file("thief");
    std::fs::copy(std::env::current_exe()?, &program)?;
    for path in [&site.directory, &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    let log = site.file("thief.log");
    let (host, counter) = (site.hub.clone(), switch.clone());
    let (thief_program, thief_log) = (program.clone(), log.clone());
    let thread = std::thread::spawn(move || -> anyhow::Result<()> {
        let mut thief: Option<Process> = None;
        while !counter.is_over() {
            if counter.is_on() && thief.is_none() {
                let mut command: Command = host.command(&thief_program);
                let log = std::fs::File::options().create(true).append(true).open(&thief_log)?;
                command.arg(THIEF).stdin(Stdio::null()).stdout(log);
                thief = Some(Process::spawn(&mut command)?);
            } else if !counter.is_on() {
                thief = None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
    let measured = alternate(context.timing(), &traffic, watched, &switch)?;
    switch.end();
    thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    drop(traffic);
    let reported = std::fs::read_to_string(&log).context("the thief's count")?;
    let sum = |word: &str| -> u64 {
        reported
            .lines()
            .filter_map(|line| line.strip_prefix(word)?.trim().parse::<u64>().ok())
            .sum()
    };
    let (tries, bound, stolen) = (sum("tried"), sum("bound"), sum("stolen"));
    let mut row = measured.row(name, "relay", "attempts");
    row.rate_per_second = tries as f64
        / (f64::from(context.timing().rounds)
            * (context.timing().phase + context.timing().settle).as_secs_f64());
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(Check::new("attempts", tries as f64, Bound::AtLeast(10.0)));
    row.checks.push(Check::new("datagrams taken away", stolen as f64, Bound::AtMost(0.0)));
    row.notes.push(format!(
        "user {OTHER_UID} could bind the port {bound} times in {tries} attempts, and took {stolen} \
         datagrams"
    ));
    note_drops(&mut row, &tunnel);
    Ok(row)
}

/// Runs this program as the other user's; `None` if it was not started so.
pub(crate) fn thief() -> Option<ExitCode> {
    match std::env::args().nth(1)?.as_str() {
        // On the hub's host already, which takes root; from here on as the other user.
        THIEF => {
            let program = std::env::current_exe().ok()?;
            let mut command = Command::new(program);
            let error = command.arg(THIEF_NOW).uid(OTHER_UID).gid(OTHER_UID).exec();
            eprintln!("another user can't be: {error}");
            Some(ExitCode::FAILURE)
        }
        THIEF_NOW => Some(steal_now()),
        _ => None,
    }
}

/// Binds the hub's port and connects to the honest peer, so that the
/// kernel prefers its socket; then reads until it is ended. Every way of sharing a port is tried.
fn steal_now() -> ExitCode {
    let mut ways = [(true, true), (false, true), (true, false), (false, false)].into_iter().cycle();
    let mut sockets: Vec<Socket> = Vec::new();
    let (mut tried, mut bound) = (0_u64, 0_u64);
    let mut stolen = 0_u64;
    let mut reported = Instant::now();
    loop {
        let Some((reuse_address, reuse_port)) = ways.next() else { return ExitCode::FAILURE };
        tried += 1;
        if let Ok(socket) = take(reuse_address, reuse_port) {
            bound += 1;
            if sockets.len() < 4 {
                sockets.push(socket);
            }
        }
        let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
        for socket in &sockets {
            while socket.recv(&mut buffer).is_ok() {
                stolen += 1;
            }
        }
        // Lines are summed: each reports what is new.
        if reported.elapsed() > Duration::from_millis(100) {
            println!("tried {tried}\nbound {bound}\nstolen {stolen}");
            (tried, bound, stolen, reported) = (0, 0, 0, Instant::now());
        }
        std::thread::sleep(TRY_EVERY);
    }
}

fn take(reuse_address: bool, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(reuse_address)?;
    socket.set_reuse_port(reuse_port)?;
    socket.bind(&SocketAddr::from(SocketAddrV4::new(*HUB_RELAY.ip(), HUB_RELAY.port())).into())?;
    socket.connect(&SocketAddr::from(GOOD_RELAY).into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
