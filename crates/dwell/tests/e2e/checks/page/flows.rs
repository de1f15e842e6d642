//! What the page shows of flows, and whether that is so.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_lab::lab::{Host, Process};
use serde_json::{Value, json};

use super::{Browser, ENTER, TAB, looks_right};
use crate::site;
use crate::web::Web;

/// The page's own arithmetic, and what is expected of it.
const SOURCE: &str = include_str!("../../../../../dwell-relay/src/engine/web/flows.js");
const EXPECTED: &str = include_str!("flows.js");

/// What the pings offer: five a second of 84 bytes.
const PINGS_BPS: f64 = 5.0 * 84.0 * 8.0;

/// The arithmetic with made-up messages.
pub(super) fn are_reckoned_right(browser: &Browser<'_>) -> anyhow::Result<()> {
    let wrong = browser.run(&format!("{SOURCE}\n{EXPECTED}"))?;
    ensure!(wrong == json!([]), "{wrong}");
    Ok(())
}

fn pings(client: &Host) -> anyhow::Result<Process> {
    let mut ping = client.command("ping");
    ping.args(["-n", "-q", "-i", "0.2", site::SERVERS[0]]).stdout(Stdio::null());
    Ok(Process::spawn(&mut ping)?)
}

/// A flow that passes is named while it does, is found and chosen with the keyboard, and plotted.
pub(super) fn are_plotted(browser: &Browser<'_>, client: &Host) -> anyhow::Result<()> {
    let _pings = pings(client)?;
    browser.open((1200, 1000), "light", "no-preference")?;
    browser.run("document.getElementById('find').focus()")?;
    browser.keys(&["i", "c", "m", "p"])?;
    browser.wait(
        "the page finds the flow of the pings, and no other",
        "const rows = [...document.querySelectorAll('#flows tbody tr')]; \
         return rows.length === 1 && /^icmp .* → .*bit.s/.test(rows[0].textContent)",
    )?;
    // The table itself can be scrolled with the keyboard; the first button in it is next.
    browser.keys(&[TAB, TAB, ENTER])?;
    browser.wait(
        "the flow is plotted",
        "const long = (e) => (e.getAttribute('d') || '').length > 20; \
         return /^icmp .* to other$/.test(document.getElementById('flow-name').textContent) \
         && document.querySelectorAll('#flow-plots figure:not([hidden])').length === 4 \
         && [...document.querySelectorAll('#flow-plots path')].filter(long).length === 6",
    )?;
    let open = "return document.activeElement.matches('#flows button[aria-expanded=true]')";
    ensure!(
        browser.run(open)? == true,
        "the focus stays on the button, which says that it is open"
    );
    says_what_pings_send(browser)?;
    browser.wait(
        "the flow is one of those that send most",
        "return [...document.querySelectorAll('#flow-figures figure:first-child li')] \
         .some((e) => e.textContent.startsWith('icmp '))",
    )?;
    for (size, theme) in [((1200, 1000), "dark"), ((400, 820), "dark"), ((400, 820), "light")] {
        browser.resize(size, theme, "no-preference")?;
        looks_right(browser, size.0, theme)?;
    }
    browser.run("document.getElementById('flow-close').focus()")?;
    browser.keys(&[ENTER])?;
    let closed = "return document.getElementById('flow').hidden \
                  && document.activeElement.matches('#flows button[aria-expanded=false]')";
    browser.wait("its plots are closed, and the focus is where they were opened", closed)
}

/// The numbers beside the plots, which are read aloud, agree with what is known of the pings.
fn says_what_pings_send(browser: &Browser<'_>) -> anyhow::Result<()> {
    let labels = browser.run(
        "return [...document.querySelectorAll('#flow-plots svg[role=img]')] \
         .map((e) => e.getAttribute('aria-label'))",
    )?;
    let label = |at: usize| labels[at].as_str().unwrap_or_default();
    ensure!(label(0).starts_with("Throughput of icmp "), "{labels}");
    let number = |label: &str, name: &str| -> Option<f64> {
        let (_, rest) = label.split_once(&format!("{name}: "))?;
        let mut words = rest.split([' ', ';']);
        let value: f64 = words.next()?.parse().ok()?;
        Some(if words.next() == Some("kbit/s") { value * 1e3 } else { value })
    };
    let offered = number(label(0), "offered").unwrap_or(0.0);
    // A second has four of them, five or six.
    ensure!((0.75..1.25).contains(&(offered / PINGS_BPS)), "{labels}");
    let on_the_link = number(label(0), "on the link").unwrap_or(0.0);
    // A ping alone has a datagram of its own; several together could share one.
    ensure!(on_the_link > PINGS_BPS / 4.0 && on_the_link < PINGS_BPS * 3.0, "{labels}");
    let ratio = number(label(1), "on the link / without dwell").unwrap_or(0.0);
    ensure!(ratio > 0.2 && ratio < 3.0, "{labels}");
    ensure!(label(2).contains("packets wait, mean: ") && !label(2).contains('–'), "{labels}");
    ensure!(label(3).contains("packets dropped: 0/s"), "{labels}");
    Ok(())
}

/// The part of the page that shows flows, after some time of downloads and pings, with the plots of the flow that sent most.
pub(super) fn picture(
    browser: &Browser<'_>,
    (web, client): (&Web, &Host),
    pictures: &Path,
) -> anyhow::Result<()> {
    let _pings = pings(client)?;
    browser.open((1200, 1000), "light", "no-preference")?;
    let end = Instant::now() + Duration::from_secs(150);
    for round in 0.. {
        let file = if round % 2 == 1 { "random" } else { "text" };
        web.fetch(client, site::SERVERS[0], file)?;
        if Instant::now() > end {
            break;
        }
    }
    let _download = web.begin(client, site::SERVERS[0], "text")?;
    // It lasts some seven seconds.
    std::thread::sleep(Duration::from_secs(4));
    browser.run("document.querySelector('#flows button').click()")?;
    std::thread::sleep(Duration::from_secs(2));
    let place = "const box = document.getElementById('flows-title').parentElement.getBoundingClientRect(); \
                 return { x: 0, y: box.y + scrollY - 8, width: innerWidth, height: box.height + 16, scale: 1 }";
    let clip: Value = browser.run(place)?;
    let how = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
    browser.picture(&pictures.join("web-flows-1200-light.png"), &how)
}
