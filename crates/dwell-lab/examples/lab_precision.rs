//! The precision and the speed of the link emulator on this machine: the figures of docs/lab.md.
//!
//! `cargo run --release -p dwell-testkit --example lab_precision`

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell_base::time::format_duration_ns;
use dwell_lab::emulator::EmulatedLink;
use dwell_lab::lab::{self, Host, Lab, LabError};
use dwell_lab::ping::PingSummary;
use dwell_lab::{corpus, http};

fn main() {
    if let Err(error) = run() {
        eprintln!("lab_precision: {error}");
        std::process::exit(1);
    }
}

fn run() -> anyhow::Result<()> {
    let mut lab = lab::enter()?;
    round_trips(&mut lab)?;
    for mbps in [1, 10, 100] {
        rate(&mut lab, mbps)?;
    }
    throughput(&mut lab)?;
    packets(&mut lab)
}

struct Two {
    a: Host,
    b: Host,
    link: Option<EmulatedLink>,
}

/// Two hosts, joined by an emulated link, or by a plain cable without a spec.
fn two(lab: &mut Lab, spec: Option<&str>) -> anyhow::Result<Two> {
    let (a, b) = (lab.host("a")?, lab.host("b")?);
    let ends = [(&a, "eth0"), (&b, "eth0")];
    let link = match spec {
        Some(spec) => Some(lab.emulated_link(ends[0], ends[1], spec.parse()?, spec.parse()?)?),
        None => lab.veth(ends[0], ends[1]).map(|()| None)?,
    };
    a.address("eth0", "10.0.0.1/24")?;
    b.address("eth0", "10.0.0.2/24")?;
    Ok(Two { a, b, link })
}

impl Two {
    fn lateness(&self) -> String {
        let Some(link) = &self.link else { return String::new() };
        let stats = link.stats();
        let mean = format_duration_ns(stats.late_mean_ns());
        format!(", frames late by {mean}, at most {}", format_duration_ns(stats.late_max_ns))
    }
}

fn round_trips(lab: &mut Lab) -> anyhow::Result<()> {
    for spec in [None, Some(""), Some("delay 10ms")] {
        let two = two(lab, spec)?;
        let arguments = ["-n", "-q", "-c", "3", "-i", "0.01", "10.0.0.2"];
        two.a.output("ping", &arguments)?;
        let arguments = ["-n", "-c", "1000", "-i", "0.002", "10.0.0.2"];
        let summary = PingSummary::parse(&two.a.output("ping", &arguments)?);
        let show = |share| format_duration_ns(summary.quantile_ns(share).unwrap_or(0));
        println!(
            "round trip, {}: least {}, median {}, 99 % {}{}",
            spec.map_or("plain cable".into(), |spec| format!("emulated \"{spec}\"")),
            show(0.0),
            show(0.5),
            show(0.99),
            two.lateness()
        );
    }
    Ok(())
}

/// Sends datagrams as fast as they go, and counts what arrives.
fn flood(two: &Two, len: usize, time: Duration) -> anyhow::Result<(f64, u64)> {
    // Something must listen, or the answers are ICMP errors.
    let _listener = two.b.run(|| UdpSocket::bind("10.0.0.2:9"))??;
    let socket = two.a.run(|| UdpSocket::bind("10.0.0.1:0"))??;
    let send_for = |time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end {
            // A full device is what is wanted here.
            let _ = socket.send_to(&vec![0; len], "10.0.0.2:9");
        }
    };
    send_for(Duration::from_millis(300));
    let (start, before) = (Instant::now(), arrived(two)?);
    send_for(time);
    let (elapsed, after) = (start.elapsed(), arrived(two)?);
    Ok((elapsed.as_secs_f64(), after - before))
}

fn arrived(two: &Two) -> Result<u64, LabError> {
    two.b.rx_bytes("eth0")
}

fn rate(lab: &mut Lab, mbps: u64) -> anyhow::Result<()> {
    let two = two(lab, Some(&format!("rate {mbps}mbit queue 50ms")))?;
    let (seconds, bytes) = flood(&two, 1000, Duration::from_secs(3))?;
    let measured = bytes as f64 * 8e-6 / seconds;
    println!("rate {mbps} Mbit/s: {measured:.3} Mbit/s{}", two.lateness());
    Ok(())
}

fn throughput(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, Some(""))?;
    let server: SocketAddr = "10.0.0.1:80".parse()?;
    let body = Arc::new(corpus::incompressible(300_000_000, 1));
    let listener = two.a.run(|| TcpListener::bind(server))??;
    let contents = HashMap::from([("/".to_owned(), Arc::clone(&body))]);
    let _server = http::serve(listener, Arc::new(contents))?;
    let fetched = two.b.run(|| http::get(server, "/", None, |_, _| ()))??;
    println!(
        "unshaped, one TCP stream: {:.0} Mbit/s{}",
        fetched.goodput_bps() / 1e6,
        two.lateness()
    );
    Ok(())
}

fn packets(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, Some(""))?;
    let (seconds, bytes) = flood(&two, 22, Duration::from_secs(2))?;
    let kpps = bytes as f64 / 64.0 / seconds / 1e3;
    println!("unshaped, 64-byte frames: {kpps:.0} thousand a second{}", two.lateness());
    Ok(())
}
