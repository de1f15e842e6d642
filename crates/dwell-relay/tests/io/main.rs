//! The I/O modules against a real kernel, each test in a network namespace of its own.
//!
//! They need CAP_SYS_ADMIN and CAP_NET_ADMIN (and /dev/net/tun, and `tc` for some); without
//! these a test says so and passes. An ordinary user has them under `unshare -rn`, where
//! /dev/net/tun may be opened.

#![allow(clippy::unwrap_used, reason = "here a panic is how a failure is reported")]

mod flow;
mod interface;
mod packets;
mod poller;
mod routes;
mod udp;

use std::net::SocketAddr;
use std::process::Command;
use std::thread;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_relay::io::clock::Clock;
use dwell_relay::io::route::{LinkSettings, Routes};
use dwell_relay::io::tun::{Tun, TunOptions};
use dwell_testkit::skips::skipped;
use ipnet::IpNet;
use rustix::thread::UnshareFlags;

/// Gives the calling thread a network namespace of its own.
#[allow(unsafe_code, reason = "no safe wrapper of unshare is at hand")]
fn unshare() -> rustix::io::Result<()> {
    // SAFETY: only descriptor tables and memory that are unshared endanger safety.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Runs a test on a thread with a fresh namespace, whose loopback interface is up. The thread has the test's name.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        if let Err(errno) = unshare() {
            skipped(format_args!("cannot make a network namespace: {errno}"));
            return;
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            skipped("there is no /dev/net/tun");
            return;
        }
        raise("lo");
        test();
    };
    let name = thread::current().name().unwrap_or("main").to_owned();
    let thread = thread::Builder::new().name(name).spawn(run).unwrap();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn raise(name: &str) {
    let routes = Routes::new().unwrap();
    let up = LinkSettings { up: Some(true), ..LinkSettings::default() };
    routes.set_link(routes.link_index(name).unwrap(), &up).unwrap();
}

fn tun(name: &str, addresses: &[&str], offload: bool) -> Tun {
    let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
    Tun::open(&TunOptions { name: name.into(), mtu: 1400, addresses, offload }).unwrap()
}

fn run(command: &str) -> Option<String> {
    let mut words = command.split(' ');
    let output = Command::new(words.next()?).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ten_seconds() -> Instant {
    Clock::now() + 10 * SECOND_NS
}
