//! What looks wrong: from facts to sentences, without looking at the machine.

use dwell_report::status::{PeerStatus, Status};
use dwell_report::{Column, Table, explained, human};

use super::super::verify::findings::{Finding, Verdict};
use super::gather::{ConfigurationFile, MachineFacts, UdpCounters};

/// Two looks at a node.
pub(super) struct Window<'a> {
    pub(super) before: &'a Status,
    pub(super) after: &'a Status,
    pub(super) udp: Option<&'a [UdpCounters; 2]>,
}

/// Below this much traffic nothing is said about it.
const PACKETS_MIN: u64 = 200;
/// A thousandth of packets may be dropped anywhere.
const DROPPED_PPM: u64 = 1_000;
/// One thread does most of the work, and this is most of one processor.
const BUSY_PPM: u64 = 850_000;
/// Clocks that were never set say 1970 or the day of the kernel's build.
const UNIX_S_MIN: u64 = 1_704_067_200;

fn finding(peer: Option<&str>, check: &'static str, verdict: Verdict, text: String) -> Finding {
    Finding { peer: peer.map(str::to_owned), check, verdict, text }
}

/// No node answers.
pub(super) fn no_node(why: &str) -> Finding {
    let text = format!(
        "No running node was asked: {why}. Start it (`sudo dwell up`, or systemctl start dwell), and look at its \
         log (journalctl -u dwell) if it ends."
    );
    finding(None, "node", Verdict::Failed, text)
}

/// All is well.
pub(super) fn nothing() -> Finding {
    let text = "Nothing looks wrong from here. Run it at the other end, too.".to_owned();
    finding(None, "node", Verdict::Ok, text)
}

pub(super) fn of_configuration(file: &ConfigurationFile) -> Vec<Finding> {
    let of = |verdict, text| finding(None, "configuration", verdict, text);
    let error = file
        .error
        .iter()
        .map(|error| of(Verdict::Failed, format!("The configuration can't be used:\n{error}")));
    let warnings = file.warnings.iter().map(|warning| of(Verdict::Hint, format!("{warning}.")));
    error.chain(warnings).collect()
}

pub(super) fn of_machine(machine: &MachineFacts) -> Vec<Finding> {
    if machine.unix_s >= UNIX_S_MIN {
        return Vec::new();
    }
    let text = "The clock of this machine is years behind. If it was right before, peers with keys may refuse calls \
                from here, as they heard later ones. Set the clock (timedatectl set-ntp true) and restart the relay."
        .to_owned();
    vec![finding(None, "clock", Verdict::Hint, text)]
}

/// What happened between the two looks.
pub(super) fn of_window(window: &Window<'_>) -> Vec<Finding> {
    let Window { before, after, udp } = window;
    let mut findings = Vec::new();
    let mut hint = |check, text| findings.push(finding(None, check, Verdict::Hint, text));
    if after.version != env!("CARGO_PKG_VERSION") {
        let text = format!(
            "The relay that runs is version {}, this program {}: restart the relay if it was upgraded.",
            after.version,
            env!("CARGO_PKG_VERSION")
        );
        hint("version", text);
    }
    let window_ns = after.uptime_ns.saturating_sub(before.uptime_ns);
    let cpu_ns = after.cpu_ns.saturating_sub(before.cpu_ns);
    if window_ns > 0
        && u128::from(cpu_ns) * 1_000_000 > u128::from(window_ns) * u128::from(BUSY_PPM)
    {
        let text = format!(
            "The relay used {} of a processor: the processor may be what limits it. Write a lower level or a faster \
             codec (codec = \"lz4\") for peers with fast links, or give it more processors.",
            human::share(cpu_ns, window_ns)
        );
        hint("processor", text);
    }
    if let Some([before, after]) = udp {
        let lost = after.receive_buffer_errors.saturating_sub(before.receive_buffer_errors);
        if lost > 0 {
            let text = format!(
                "The kernel dropped {} of this machine for want of room in receive buffers: the relay may \
                 get too little processor time, or net.core.rmem_max is small (sysctl -w net.core.rmem_max=8388608, \
                 and restart the relay).",
                human::counted(lost, "datagram")
            );
            hint("kernel", text);
        }
    }
    if !after.seccomp {
        let text =
            "System calls of the relay are not filtered (seccomp = false, or the kernel can't)."
                .to_owned();
        hint("security", text);
    }
    for peer in &after.peers {
        let earlier = before.peers.iter().find(|earlier| earlier.name == peer.name);
        findings.extend(earlier.map(|earlier| of_peer(earlier, peer)).unwrap_or_default());
    }
    findings
}

fn of_peer(before: &PeerStatus, after: &PeerStatus) -> Vec<Finding> {
    let name = Some(&*after.name);
    let hint = |check, text| finding(name, check, Verdict::Hint, text);
    let since = |now: u64, then: u64| now.saturating_sub(then);
    let mut findings = Vec::new();
    let arrived = since(after.tx.arrived.packets, before.tx.arrived.packets);
    let dropped = since(after.tx.dropped_total().packets, before.tx.dropped_total().packets);
    if arrived >= PACKETS_MIN
        && dropped.saturating_mul(1_000_000) > arrived.saturating_mul(DROPPED_PPM)
    {
        let text = format!(
            "{} of {} packets were dropped, as more came than the link carries. Some of that is how TCP finds its \
             rate; if it is much, is the rate ({}) less than the link carries?",
            human::count(dropped),
            human::count(arrived),
            after.rate_bps.map_or_else(|| "not known".to_owned(), human::rate)
        );
        findings.push(hint("drops", text));
    }
    let refused =
        |peer: &PeerStatus| peer.rx.auth_failed + peer.rx.malformed + peer.rx.decode_failed;
    let refused = since(refused(after), refused(before));
    if refused > 0 {
        let text = format!(
            "{} datagrams or packets from there could not be opened or restored: something alters them on the path, \
             or somebody else sends there. The log has the reasons (log = \"debug\").",
            human::count(refused)
        );
        findings.push(hint("refused", text));
    }
    let saved = after.tx.net_saved_bytes - before.tx.net_saved_bytes;
    let sent = since(after.tx.sent.packets, before.tx.sent.packets);
    if sent >= PACKETS_MIN && saved < 0 {
        findings.push(hint("savings", costs_more(before, after, saved.unsigned_abs())));
    }
    findings
}

/// Why dwell cost more than it saved.
fn costs_more(before: &PeerStatus, after: &PeerStatus, bytes: u64) -> String {
    let new = |(reason, now): (&String, &u64)| {
        let then = before.tx.bypassed.get(reason).copied().unwrap_or(0);
        (now.saturating_sub(then), reason.clone())
    };
    let most = after.tx.bypassed.iter().map(new).max().filter(|(count, _)| *count > 0);
    let why = match most {
        Some((count, reason)) => {
            format!(
                ": {} went uncompressed as {}",
                human::counted(count, "packet"),
                explained(&reason)
            )
        }
        None => String::new(),
    };
    format!(
        "The link carried {} more than without dwell{why}. A link that is never full does not need it; if this one \
         is, write its rate; if the traffic is encrypted, nothing can be saved (docs/fit.md).",
        human::bytes(bytes)
    )
}

/// The traffic between the two looks: how long that was, and a table.
pub(super) fn rates(before: &Status, after: &Status) -> (String, String) {
    let window_ns = after.uptime_ns.saturating_sub(before.uptime_ns);
    let mut table = Table::new([
        Column::left("peer"),
        Column::right("packets"),
        Column::right("dropped"),
        Column::right("offered"),
        Column::right("on the link"),
        Column::right("received"),
        Column::right("lost"),
    ]);
    let rate = |now: u64, then: u64| {
        let bits = u128::from(now.saturating_sub(then)) * 8_000_000_000;
        let bps = bits.checked_div(u128::from(window_ns)).unwrap_or(0);
        human::rate(u64::try_from(bps).unwrap_or(u64::MAX))
    };
    for peer in &after.peers {
        let Some(then) = before.peers.iter().find(|then| then.name == peer.name) else { continue };
        let (tx, was) = (&peer.tx, &then.tx);
        table.row([
            peer.name.clone(),
            human::count(tx.arrived.packets.saturating_sub(was.arrived.packets)),
            human::count(tx.dropped_total().packets.saturating_sub(was.dropped_total().packets)),
            rate(tx.arrived.bytes, was.arrived.bytes),
            rate(tx.link_bytes, was.link_bytes),
            rate(peer.rx.packets.bytes, then.rx.packets.bytes),
            human::count(peer.rx.lost_datagrams.saturating_sub(then.rx.lost_datagrams)),
        ]);
    }
    (human::duration(window_ns), table.to_text())
}

#[cfg(test)]
mod tests {
    use dwell_report::status::Count;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn status(uptime_s: u64, packets: u64) -> Status {
        let mut peer = PeerStatus { name: "hub".to_owned(), ..PeerStatus::default() };
        peer.tx.arrived = Count { packets, bytes: packets * 1_000 };
        peer.tx.sent = peer.tx.arrived;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: uptime_s * SECOND_NS,
            seccomp: true,
            peers: vec![peer],
            ..Status::default()
        }
    }

    fn checks(
        before: &Status,
        after: &Status,
        udp: Option<&[UdpCounters; 2]>,
    ) -> Vec<&'static str> {
        let findings = of_window(&Window { before, after, udp });
        for finding in &findings {
            assert!(finding.text.ends_with(['.', '?', ')']), "{finding:?}");
            assert_eq!(finding.verdict, Verdict::Hint, "traffic alone breaks nothing");
        }
        findings.iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn a_node_that_is_well_gets_no_advice() {
        let udp = [UdpCounters { receive_buffer_errors: 5, ..UdpCounters::default() }; 2];
        assert_eq!(checks(&status(10, 0), &status(20, 10_000), Some(&udp)), [""; 0]);
        assert_eq!(checks(&status(20, 10), &status(20, 10), None), [""; 0], "no time has passed");
        assert_eq!(checks(&status(90, 10_000), &status(1, 0), None), [""; 0], "it was restarted");
    }

    #[test]
    fn what_looks_wrong_is_said_with_what_helps() {
        let before = status(10, 0);
        let mut busy = status(20, 10_000);
        busy.cpu_ns = 9 * SECOND_NS;
        busy.version = "0.0.1".to_owned();
        busy.seccomp = false;
        let lost = UdpCounters { receive_buffer_errors: 6, ..UdpCounters::default() };
        let udp = [UdpCounters::default(), lost];
        assert_eq!(
            checks(&before, &busy, Some(&udp)),
            ["version", "processor", "kernel", "security"]
        );
        let mut bad = status(20, 10_000);
        let peer = &mut bad.peers[0];
        peer.tx.dropped.insert("codel".to_owned(), Count { packets: 100, bytes: 0 });
        peer.rx.auth_failed = 1;
        peer.tx.net_saved_bytes = -500_000;
        peer.tx.bypassed.insert("back_off".to_owned(), 9_000);
        assert_eq!(checks(&before, &bad, None), ["drops", "refused", "savings"]);
        let findings = of_window(&Window { before: &before, after: &bad, udp: None });
        assert!(findings[2].text.contains("as their flows do not shrink"), "{findings:?}");
        let (window, table) = rates(&before, &bad);
        assert!(window.starts_with("10") && table.contains("8 Mbit/s"), "{window} {table}");
    }

    #[test]
    fn clocks_and_files_are_looked_at() {
        let unset = MachineFacts { unix_s: 1_000_000, ..MachineFacts::default() };
        assert_eq!(of_machine(&unset)[0].verdict, Verdict::Hint);
        let set = MachineFacts { unix_s: 2_000_000_000, ..MachineFacts::default() };
        assert!(of_machine(&set).is_empty());
        let file = ConfigurationFile {
            error: Some("a.toml:1: bad".to_owned()),
            warnings: vec!["that is odd".to_owned()],
            ..ConfigurationFile::default()
        };
        let verdicts: Vec<_> = of_configuration(&file).iter().map(|it| it.verdict).collect();
        assert_eq!(verdicts, [Verdict::Failed, Verdict::Hint]);
    }
}
