//! Hosts, cables, shaping, processes.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dwell_base::Rate;
use dwell_lab::http::{self, Fetched};
use dwell_lab::lab::topology::{self, PairSpec, THIN_DEVICE};
use dwell_lab::lab::{Host, Lab, Process, Shape};
use dwell_lab::ping::PingSummary;
use dwell_lab::{QueueLimit, corpus};
use dwell_testkit::sites::{self, Layout, Sites};

use super::undisturbed;

pub(super) fn hosts_reach_each_other(lab: &mut Lab) -> anyhow::Result<()> {
    let pair = topology::pair(lab, PairSpec::default())?;
    for server in ["10.2.0.2", "fd00:2::2"] {
        let output = pair.client.output("ping", &["-n", "-c", "3", "-i", "0.01", server])?;
        ensure!(PingSummary::parse(&output).replies.len() == 3, "{output}");
    }
    Ok(())
}

pub(super) fn sites_reach_each_other(lab: &mut Lab) -> anyhow::Result<()> {
    for layout in [Layout::chain(4), Layout::star(3)] {
        let network = sites::sites(lab, &layout, &PairSpec::default())?;
        let last = layout.gateways() - 1;
        for (from, to) in [(0, last), (last, 1)] {
            for address in Sites::site_addresses(to).map(|address| address.to_string()) {
                let ping = ["-n", "-c", "3", "-i", "0.01", &address];
                let output = network.sites[from].output("ping", &ping)?;
                ensure!(PingSummary::parse(&output).replies.len() == 3, "{output}");
            }
        }
    }
    Ok(())
}

pub(super) fn things_run_on_their_host(lab: &mut Lab) -> anyhow::Result<()> {
    let (a, b) = (lab.host("a")?, lab.host("b")?);
    lab.veth((&a, "east0"), (&b, "west0"))?;
    let devices = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let inside = a.run(devices)?;
    ensure!(inside.contains("east0") && !inside.contains("west0"), "{inside}");
    let inside = b.spawn_thread(devices)?.join().map_err(|_| anyhow::anyhow!("panicked"))??;
    ensure!(inside.contains("west0") && !inside.contains("east0"), "{inside}");
    ensure!(a.output("ip", &["-br", "link"])?.contains("east0"));
    ensure!(!devices().contains("east0"), "this thread must not have moved");
    a.mtu("east0", 1280)?;
    ensure!(a.output("ip", &["link", "show", "east0"])?.contains("mtu 1280"));
    std::fs::write(lab.directory().join("note"), "x").context("write to the lab's directory")
}

pub(super) fn a_dropped_host_is_gone(lab: &mut Lab) -> anyhow::Result<()> {
    let (a, b) = (lab.host("a")?, lab.host("b")?);
    lab.veth((&a, "eth0"), (&b, "eth0"))?;
    ensure!(b.output("ip", &["netns"])?.contains('a'));
    drop(a);
    ensure!(!b.output("ip", &["netns"])?.contains('a'));
    wait_for("the cable's other end to vanish", || Ok(b.rx_bytes("eth0").is_err()))?;
    drop(lab.host("a")?);
    Ok(())
}

pub(super) fn a_stubborn_process_is_killed(lab: &mut Lab) -> anyhow::Result<()> {
    let host = lab.host("a")?;
    let mut polite = Process::spawn(host.command("sleep").arg("100"))?;
    ensure!(polite.wait_timeout(Duration::from_millis(20))?.is_none());
    let start = Instant::now();
    ensure!(polite.stop()?.code().is_none() && start.elapsed() < Duration::from_secs(1));
    let script = "trap '' TERM; echo ready; while :; do sleep 100; done";
    let mut command = host.command("sh");
    let mut stubborn =
        Process::spawn(command.args(["-c", script]).stdout(std::process::Stdio::piped()))?;
    let mut stdout = stubborn.child().stdout.take().context("stdout is piped")?;
    std::io::Read::read_exact(&mut stdout, &mut [0; 6])?;
    let id = stubborn.id();
    drop(stubborn);
    ensure!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    Ok(())
}

pub(super) fn errors_say_what_happened(lab: &mut Lab) -> anyhow::Result<()> {
    let host = lab.host("a")?;
    for (result, part) in [
        (lab.host("a").map(drop), "File exists"),
        (lab.host("../etc").map(drop), "cannot name a host"),
        (host.address("eth9", "10.0.0.1/24"), "`ip address add 10.0.0.1/24 dev eth9` in a failed"),
        (host.output("no-such-program", &[]).map(drop), "cannot run `no-such-program`"),
        (host.tx_bytes("eth9").map(drop), "no such device"),
    ] {
        let error = result.err().context("should have failed")?.to_string();
        ensure!(error.contains(part), "{error}");
    }
    Ok(())
}

pub(super) fn the_token_bucket_keeps_the_rate(lab: &mut Lab) -> anyhow::Result<()> {
    let pair = topology::pair(lab, PairSpec::thin(Rate::from_mbps(20), 0))?;
    let server = "10.2.0.2:80".parse()?;
    undisturbed(|| {
        let before = pair.egress.tx_bytes(THIN_DEVICE)?;
        let fetched = download(&pair.server, &pair.client, server, 3_000_000)?;
        let on_the_link = pair.egress.tx_bytes(THIN_DEVICE)? - before;
        let mbps = on_the_link as f64 * 8e3 / fetched.total_ns as f64;
        ensure!((18.0..=20.5).contains(&mbps), "{mbps} Mbit/s");
        Ok(format!("{mbps:.2} of 20 Mbit/s"))
    })?;
    pair.egress.unshape(THIN_DEVICE)?;
    ensure!(download(&pair.server, &pair.client, server, 3_000_000)?.goodput_bps() > 50e6);
    Ok(())
}

/// The queue must be on the sending host: a socket with a small buffer is blocked, and nothing is
/// lost, also when a TAP device lies below.
pub(super) fn the_queue_pushes_back(lab: &mut Lab) -> anyhow::Result<()> {
    for delay_ns in [0, 1_000_000] {
        let shape = Shape::new(Rate::from_mbps(5)).with_queue(QueueLimit::Bytes(1 << 20));
        let mut spec = PairSpec::thin(Rate::from_mbps(5), delay_ns);
        spec.shape = Some(shape);
        let pair = topology::pair(lab, spec)?;
        pair.ingress.output("ping", &["-n", "-c", "1", "10.0.0.2"])?;
        let socket = pair.ingress.run(|| UdpSocket::bind("10.0.0.1:0"))??;
        socket.set_nonblocking(true)?;
        let sent = (0..1000).take_while(|_| socket.send_to(&[0; 1400], "10.0.0.2:9").is_ok());
        // The default socket buffer holds about 90 such packets, the queue 700.
        ensure!((10..300).contains(&sent.count()), "the socket was not asked to wait");
    }
    Ok(())
}

pub(super) fn download(
    from: &Host,
    to: &Host,
    server: SocketAddr,
    len: usize,
) -> anyhow::Result<Fetched> {
    let body = Arc::new(corpus::text(len, 1));
    let listener = from.run(|| TcpListener::bind(server))??;
    let contents = HashMap::from([("/".to_owned(), Arc::clone(&body))]);
    let _server = http::serve(listener, Arc::new(contents))?;
    let fetched = to.run(|| http::get(server, "/", Some(&body), |_, _| ()))??;
    ensure!(fetched.is_as_expected, "the download is damaged");
    Ok(fetched)
}

pub(super) fn wait_for(
    what: &str,
    mut is_done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    for _ in 0..100 {
        if is_done()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("waited in vain for {what}")
}
