//! The emulator.

use anyhow::{Context, ensure};
use dwell_base::time::MILLI_NS;
use dwell_lab::LinkSpec;
use dwell_lab::emulator::{Direction, EmulatedLink};
use dwell_lab::lab::{Host, Lab, LabError};
use dwell_lab::ping::PingSummary;

use super::networks::{download, wait_for};
use super::undisturbed;

struct Two {
    a: Host,
    b: Host,
    link: Option<EmulatedLink>,
}

fn two(lab: &mut Lab, there: &str, back: &str) -> anyhow::Result<Two> {
    let (a, b) = (lab.host("a")?, lab.host("b")?);
    let link = lab.emulated_link((&a, "eth0"), (&b, "eth0"), there.parse()?, back.parse()?)?;
    number(&a, &b)?;
    Ok(Two { a, b, link: Some(link) })
}

fn number(a: &Host, b: &Host) -> Result<(), LabError> {
    for (host, v4, v6) in [(a, "10.0.0.1/24", "fd00::1/64"), (b, "10.0.0.2/24", "fd00::2/64")] {
        host.address("eth0", v4)?;
        host.address("eth0", v6)?;
    }
    Ok(())
}

/// The exit code of `ping` shows whether replies came; the caller checks that.
fn ping(host: &Host, count: u32, interval: &str, target: &str) -> anyhow::Result<PingSummary> {
    let count = count.to_string();
    let arguments = ["-n", "-W", "1", "-c", &count, "-i", interval, target];
    let output = host.command("ping").args(arguments).output()?;
    Ok(PingSummary::parse(&String::from_utf8_lossy(&output.stdout)))
}

fn median_ms(summary: &PingSummary) -> anyhow::Result<f64> {
    Ok(summary.quantile_ns(0.5).context("no replies")? as f64 / MILLI_NS as f64)
}

pub(super) fn delays(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, "delay 15ms", "delay 5ms")?;
    for target in ["10.0.0.2", "fd00::2"] {
        // None is early. A machine that stands still now and then makes some late, but not all.
        let summary = ping(&two.a, 20, "0.01", target)?;
        let shortest_ms = summary.quantile_ns(0.0).context("no replies")? as f64 / MILLI_NS as f64;
        ensure!((20.0..21.0).contains(&shortest_ms), "{target}: {shortest_ms} ms");
    }
    Ok(())
}

pub(super) fn keeps_the_rate(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, "rate 20mbit queue 100ms", "delay 5ms")?;
    undisturbed(|| {
        let before = two.b.rx_bytes("eth0")?;
        let fetched = download(&two.a, &two.b, "10.0.0.1:80".parse()?, 3_000_000)?;
        let bytes = two.b.rx_bytes("eth0")? - before;
        let mbps = bytes as f64 * 8e3 / fetched.total_ns as f64;
        ensure!((18.0..=20.2).contains(&mbps), "{mbps} Mbit/s");
        Ok(format!("{mbps:.2} of 20 Mbit/s"))
    })
}

pub(super) fn loses_and_doubles(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, "loss 30% duplicate 20% reorder 10% delay 1ms", "")?;
    ping(&two.a, 300, "0.002", "10.0.0.2")?;
    let there = two.link.as_ref().context("it is there")?.stats().there;
    ensure!(there.balanced(), "{there}");
    ensure!((50..150).contains(&there.dropped_loss), "{there}");
    ensure!((20..80).contains(&there.duplicated), "{there}");
    Ok(())
}

pub(super) fn can_be_cut(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, "", "")?;
    let link = two.link.as_ref().context("it is there")?;
    ensure!(ping(&two.a, 3, "0.01", "10.0.0.2")?.replies.len() == 3);
    link.cut(true);
    ensure!(ping(&two.a, 3, "0.01", "10.0.0.2")?.replies.is_empty());
    link.cut(false);
    ensure!(ping(&two.a, 3, "0.01", "10.0.0.2")?.replies.len() == 3);
    link.set(Direction::Back, LinkSpec::new().with_delay_ns(10 * MILLI_NS));
    let slower_ms = median_ms(&ping(&two.a, 3, "0.01", "10.0.0.2")?)?;
    ensure!(slower_ms >= 10.0, "{slower_ms} ms");
    Ok(())
}

/// Far below the rate of an idle machine: tests may share the machine.
const SLOWEST_MBPS: f64 = 100.0;

pub(super) fn is_fast(lab: &mut Lab) -> anyhow::Result<()> {
    let two = two(lab, "", "")?;
    let fetched = download(&two.a, &two.b, "10.0.0.1:80".parse()?, 100_000_000)?;
    let mbps = fetched.goodput_bps() / 1e6;
    ensure!(mbps > SLOWEST_MBPS, "{mbps} Mbit/s");
    let carried = two.link.as_ref().context("it is there")?.stats().there;
    let mean = carried.delivered_bytes / carried.delivered.max(1);
    // Segments of 64 KiB would be cheating.
    ensure!(mean <= 1514, "frames of {mean} bytes");
    println!("{mbps:.0} Mbit/s in frames of {mean} bytes");
    Ok(())
}

pub(super) fn adds_little(lab: &mut Lab) -> anyhow::Result<()> {
    let Two { a, b, link } = two(lab, "", "")?;
    let emulated_ms = median_ms(&ping(&a, 300, "0.002", "10.0.0.2")?)?;
    drop(link);
    wait_for("the devices to vanish", || Ok(a.rx_bytes("eth0").is_err()))?;
    lab.veth((&a, "eth0"), (&b, "eth0"))?;
    number(&a, &b)?;
    let plain_ms = median_ms(&ping(&a, 300, "0.002", "10.0.0.2")?)?;
    let added_us = (emulated_ms - plain_ms) * 1e3 / 2.0;
    ensure!(added_us < 1000.0, "{added_us} µs each way");
    println!("{added_us:.0} µs each way");
    Ok(())
}

pub(super) fn a_dropped_link_is_gone(lab: &mut Lab) -> anyhow::Result<()> {
    let mut two = two(lab, "", "")?;
    drop(two.link.take());
    ensure!(two.a.rx_bytes("eth0").is_err() && two.b.rx_bytes("eth0").is_err());
    Ok(())
}
