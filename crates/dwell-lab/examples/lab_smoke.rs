//! Two sites with a link of 10 Mbit/s and 20 ms between them: round trips and downloads.
//!
//! `cargo run -p dwell-testkit --example lab_smoke`

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use dwell_base::time::{MILLI_NS, format_duration_ns};
use dwell_lab::lab::{self, LabError, topology};
use dwell_lab::ping::PingSummary;
use dwell_lab::{corpus, http};

fn main() {
    if let Err(error) = run() {
        eprintln!("lab_smoke: {error}");
        std::process::exit(1);
    }
}

fn run() -> anyhow::Result<()> {
    // Before everything else: this runs the program again, inside the lab.
    let mut lab = lab::enter()?;
    let spec = topology::PairSpec::thin("10mbit".parse()?, 20 * MILLI_NS);
    let pair = topology::pair(&mut lab, spec)?;
    for server in ["10.2.0.2", "fd00:2::2"] {
        ping(&pair, server)?;
        download(&pair, SocketAddr::new(server.parse()?, 8080))?;
    }
    if let Some(link) = &pair.link {
        println!("there: {}\nback:  {}", link.stats().there, link.stats().back);
    }
    Ok(())
}

fn ping(pair: &topology::Pair, server: &str) -> Result<(), LabError> {
    let output = pair.client.output("ping", &["-n", "-c", "10", "-i", "0.1", server])?;
    let summary = PingSummary::parse(&output);
    let quantile = |share| format_duration_ns(summary.quantile_ns(share).unwrap_or(0));
    println!("ping {server}: median {}, longest {}", quantile(0.5), quantile(1.0));
    Ok(())
}

fn download(pair: &topology::Pair, server: SocketAddr) -> anyhow::Result<()> {
    let body = Arc::new(corpus::text(2_000_000, 1));
    let contents = HashMap::from([("/book".to_owned(), Arc::clone(&body))]);
    let listener = pair.server.run(|| TcpListener::bind(server))??;
    let _server = http::serve(listener, Arc::new(contents))?;
    let before = pair.egress.tx_bytes(topology::THIN_DEVICE)?;
    let fetched = pair.client.run(|| http::get(server, "/book", Some(&body), |_, _| ()))??;
    anyhow::ensure!(fetched.is_as_expected, "the download is damaged");
    println!(
        "download from {server}: {} bytes in {}, {:.2} Mbit/s; {} bytes on the thin link",
        fetched.bytes,
        format_duration_ns(fetched.total_ns),
        fetched.goodput_bps() / 1e6,
        pair.egress.tx_bytes(topology::THIN_DEVICE)? - before
    );
    Ok(())
}
