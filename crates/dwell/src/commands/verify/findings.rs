//! What was tried, what came of it, and what to do: from facts to sentences, without looking at the machine.

use std::net::IpAddr;
use std::time::Duration;

use dwell_report::human;
use dwell_report::status::{PeerState, PeerStatus, Problem, ProblemStatus, Status};
use ipnet::IpNet;
use serde::Serialize;

use super::machine::{Hook, Machine};

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::commands) struct Finding {
    /// The peer, if it is about one.
    pub(in crate::commands) peer: Option<String>,
    pub(in crate::commands) check: &'static str,
    pub(in crate::commands) verdict: Verdict,
    pub(in crate::commands) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::commands) enum Verdict {
    Ok,
    /// It may be meant so.
    Hint,
    Failed,
}

impl Finding {
    fn of(peer: &PeerStatus, check: &'static str, verdict: Verdict, text: String) -> Self {
        Self { peer: Some(peer.name.clone()), check, verdict, text }
    }

    pub(in crate::commands) fn to_text(&self) -> String {
        let word = match self.verdict {
            Verdict::Ok => "ok    ",
            Verdict::Hint => "hint  ",
            Verdict::Failed => "FAILED",
        };
        let peer = self.peer.as_ref().map(|peer| format!("{peer}: ")).unwrap_or_default();
        format!("{word}  {peer}{}\n", self.text)
    }
}

/// Why no ping could be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) enum NotSent {
    /// Nothing is known: this user may not.
    Forbidden(String),
    /// The machine has no way there.
    Failed(String),
}

/// Replies of a peer's tunnel address; none if it was not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Pings {
    pub(in crate::commands) address: Option<IpAddr>,
    pub(in crate::commands) short: Option<Result<Option<Duration>, NotSent>>,
    pub(in crate::commands) full: Option<Result<Option<Duration>, NotSent>>,
    pub(in crate::commands) full_len: u16,
    /// True if the relay had the packets.
    pub(in crate::commands) went_through: Option<bool>,
}

/// The address of the peer itself in the tunnel: a prefix of one address.
pub(in crate::commands) fn tunnel_address(peer: &PeerStatus) -> Option<IpAddr> {
    let prefixes = peer.prefixes.iter().filter_map(|prefix| prefix.parse::<IpNet>().ok());
    let mut hosts = prefixes.filter(|prefix| prefix.prefix_len() == prefix.max_prefix_len());
    hosts.next().map(|prefix| prefix.addr())
}

fn sentences(problem: &ProblemStatus) -> String {
    format!("{} {}", problem.why, problem.remedy)
}

pub(in crate::commands) fn of_node(status: &Status, machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add =
        |check, verdict, text| findings.push(Finding { peer: None, check, verdict, text });
    for problem in &status.problems {
        let verdict = match problem.is(Problem::UnknownPeer) {
            true => Verdict::Hint,
            false => Verdict::Failed,
        };
        add("node", verdict, sentences(problem));
    }
    if let Some(why) = &status.configuration.refused {
        let text = format!("The running relay has refused its configuration file: {why}");
        add("configuration", Verdict::Failed, text);
    }
    if let Some(keys) = &status.configuration.waits_for_restart {
        let text = format!("{keys}: what the file says now needs a restart of the relay.");
        add("configuration", Verdict::Hint, text);
    }
    if machine.dropping.contains(&Hook::Forward) {
        let device = &status.tun.name;
        let text = format!(
            "A firewall of this machine drops what it forwards unless a rule accepts it: accept what comes \
             from and goes to {device} (iifname \"{device}\" accept; oifname \"{device}\" accept)."
        );
        add("firewall", Verdict::Hint, text);
    }
    findings
}

pub(in crate::commands) fn of_peer(
    peer: &PeerStatus,
    status: &Status,
    pings: &Pings,
    machine: &Machine,
) -> Vec<Finding> {
    let mut findings = vec![session(peer, machine)];
    if peer.state != PeerState::Up {
        return findings;
    }
    findings.extend(routes(peer));
    findings.extend(
        peer.problems
            .iter()
            .filter(|problem| !is_of_routes(problem))
            .map(|problem| Finding::of(peer, "problem", Verdict::Hint, sentences(problem))),
    );
    findings.extend(ping(peer, pings, machine));
    findings.extend(forwarding(peer, status, machine));
    findings
}

fn session(peer: &PeerStatus, machine: &Machine) -> Finding {
    if peer.state == PeerState::Up {
        let at = peer.endpoint.as_deref().unwrap_or("an unknown address");
        let rtt = peer.rtt_ns.map(|ns| format!(", round trip {}", human::duration(ns)));
        let text = format!("is up at {at}{}.", rtt.unwrap_or_default());
        return Finding::of(peer, "session", Verdict::Ok, text);
    }
    let why: Vec<_> = peer.problems.iter().map(sentences).collect();
    let mut text = match why.is_empty() {
        true if peer.endpoint.is_none() => {
            "is not up: this node waits to be contacted, as it knows no endpoint of that peer. Start the \
             relay there, and let its configuration have an endpoint for this node."
                .to_owned()
        }
        true => "is not up, and nothing is known yet of why: try again in some seconds.".to_owned(),
        false => format!("is not up. {}", why.join(" Also: ")),
    };
    if machine.dropping.contains(&Hook::Input) {
        text += " A firewall of this machine drops what comes in unless a rule accepts it: accept the UDP \
                 port that `listen` names.";
    }
    Finding::of(peer, "session", Verdict::Failed, text)
}

fn is_of_routes(problem: &ProblemStatus) -> bool {
    problem.is(Problem::Bypassed) || problem.is(Problem::EndpointInTunnel)
}

fn routes(peer: &PeerStatus) -> Vec<Finding> {
    let wrong: Vec<_> = peer.problems.iter().filter(|problem| is_of_routes(problem)).collect();
    if wrong.is_empty() {
        let text = format!("routes lead {} into the tunnel.", peer.prefixes.join(", "));
        return vec![Finding::of(peer, "routes", Verdict::Ok, text)];
    }
    let failed =
        |problem: &&ProblemStatus| Finding::of(peer, "routes", Verdict::Failed, sentences(problem));
    wrong.iter().map(failed).collect()
}

fn ping(peer: &PeerStatus, pings: &Pings, machine: &Machine) -> Vec<Finding> {
    let Some(address) = pings.address else {
        let text = "has no tunnel address of its own among its prefixes, so that nothing could be pinged: add \
                    it there, for instance \"10.77.0.2/32\".";
        return vec![Finding::of(peer, "ping", Verdict::Hint, text.to_owned())];
    };
    let mut findings = Vec::new();
    let mut add = |check, verdict, text| findings.push(Finding::of(peer, check, verdict, text));
    match (&pings.short, pings.went_through) {
        (Some(Ok(Some(_))), Some(false)) => {
            let text = format!(
                "{address} answers, but not through the tunnel: look at `ip route get {address}`."
            );
            add("ping", Verdict::Failed, text);
        }
        (Some(Ok(Some(time))), _) => {
            let time = human::duration(time.as_nanos() as u64);
            add("ping", Verdict::Ok, format!("{address} answers through the tunnel, in {time}."));
        }
        (Some(Ok(None)), _) => add("ping", Verdict::Failed, no_reply(peer, address, machine)),
        (Some(Err(NotSent::Failed(error))), _) => {
            let text = format!(
                "{address} can't be reached from this machine: {error}. Look at `ip route get {address}`: it must \
                 lead into the tunnel (routes = true under [node], or a route of your own)."
            );
            add("ping", Verdict::Failed, text);
        }
        (Some(Err(NotSent::Forbidden(error))), _) => {
            let text = format!("{address} can't be pinged from here: {error}. Use sudo.");
            add("ping", Verdict::Hint, text);
        }
        (None, _) => {}
    }
    let len = human::count(pings.full_len.into());
    match &pings.full {
        Some(Ok(Some(_))) => {
            add(
                "mtu",
                Verdict::Ok,
                format!("packets of {len} bytes, the longest, pass there and back."),
            );
        }
        Some(Ok(None)) => {
            let text = format!(
                "short packets pass, but none of {len} bytes does. The path may be narrower one way: wait \
                 half a minute for the relays to find its MTU, or write a smaller mtu under [node] at both \
                 ends."
            );
            add("mtu", Verdict::Failed, text);
        }
        Some(Err(NotSent::Failed(error) | NotSent::Forbidden(error))) => {
            add("mtu", Verdict::Hint, format!("a packet of {len} bytes can't be sent: {error}."));
        }
        None => {}
    }
    findings
}

fn no_reply(peer: &PeerStatus, address: IpAddr, machine: &Machine) -> String {
    let mut text = format!(
        "the session is up, but {address} does not answer a ping. Is it an address of the node there \
         (`addresses`)? Is this node's tunnel address among the prefixes that it has for this one? Does a \
         firewall there drop ICMP on the tunnel?"
    );
    if peer.rx.not_allowed > 0 {
        text +=
            " Packets from there were refused, as their sources are not in this peer's prefixes.";
    }
    if machine.dropping.contains(&Hook::Input) {
        text += " A firewall of this machine drops what comes in unless a rule accepts it.";
    }
    text
}

fn forwarding(peer: &PeerStatus, status: &Status, machine: &Machine) -> Vec<Finding> {
    let is_network = |prefix: &IpNet| prefix.prefix_len() < prefix.max_prefix_len();
    let networks: Vec<IpNet> =
        peer.prefixes.iter().filter_map(|prefix| prefix.parse().ok()).filter(is_network).collect();
    let mut findings = Vec::new();
    for (is_v4, forwards, key) in [
        (true, machine.forwards_v4, "net.ipv4.ip_forward"),
        (false, machine.forwards_v6, "net.ipv6.conf.all.forwarding"),
    ] {
        let concerned = networks.iter().any(|net| net.addr().is_ipv4() == is_v4);
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        let device = &status.tun.name;
        match forwards {
            Some(false) if concerned => {
                let text = format!(
                    "this machine does not forward {family}, so that only it can use the tunnel. If hosts \
                     behind it are to use it: sysctl -w {key}=1, and the same line in /etc/sysctl.d/dwell.conf."
                );
                findings.push(Finding::of(peer, "forwarding", Verdict::Hint, text));
            }
            Some(true) if concerned => {
                let text =
                    format!("this machine forwards {family} between its networks and {device}.");
                findings.push(Finding::of(peer, "forwarding", Verdict::Ok, text));
            }
            _ => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(state: PeerState) -> PeerStatus {
        PeerStatus {
            name: "hub".to_owned(),
            state,
            endpoint: Some("192.0.2.7:7733".to_owned()),
            prefixes: vec!["10.2.0.0/24".to_owned(), "10.77.0.2/32".to_owned()],
            ..PeerStatus::default()
        }
    }

    fn pings(short: Option<u64>, full: Option<u64>) -> Pings {
        let reply = |ms: Option<u64>| Some(Ok(ms.map(Duration::from_millis)));
        let address = tunnel_address(&peer(PeerState::Up));
        let (short, full) = (reply(short), reply(full));
        Pings { address, short, full, full_len: 1448, went_through: Some(true) }
    }

    fn found(peer: &PeerStatus, pings: &Pings, machine: &Machine) -> Vec<(&'static str, Verdict)> {
        let findings = of_peer(peer, &Status::default(), pings, machine);
        assert!(
            findings.iter().all(|it| it.text.ends_with('.') || it.text.ends_with('?')),
            "{findings:?}"
        );
        findings.iter().map(|finding| (finding.check, finding.verdict)).collect()
    }

    #[test]
    fn a_tunnel_that_works() {
        let machine = Machine { forwards_v4: Some(true), ..Machine::default() };
        let all = found(&peer(PeerState::Up), &pings(Some(20), Some(30)), &machine);
        let ok = Verdict::Ok;
        assert_eq!(
            all,
            [("session", ok), ("routes", ok), ("ping", ok), ("mtu", ok), ("forwarding", ok)]
        );
    }

    #[test]
    fn what_does_not_work_is_named() {
        let (ok, hint, failed) = (Verdict::Ok, Verdict::Hint, Verdict::Failed);
        let closed = Machine { forwards_v4: Some(false), ..Machine::default() };
        let up = peer(PeerState::Up);
        let all = found(&up, &pings(Some(1), None), &closed);
        assert_eq!(all[2..], [("ping", ok), ("mtu", failed), ("forwarding", hint)]);
        let all = found(&up, &pings(None, None), &Machine::default());
        assert_eq!(all[2], ("ping", failed));
        let past = Pings { went_through: Some(false), ..pings(Some(1), Some(1)) };
        assert_eq!(found(&up, &past, &Machine::default())[2], ("ping", failed));
        let without = PeerStatus { prefixes: vec!["10.2.0.0/24".into()], ..up.clone() };
        assert_eq!(found(&without, &Pings::default(), &Machine::default())[2], ("ping", hint));
    }

    #[test]
    fn problems_are_explained_in_their_own_words() {
        let problem = |kind: Problem| ProblemStatus {
            problem: kind.name().to_owned(),
            for_ns: 1,
            why: "It is so.".to_owned(),
            remedy: "Do that.".to_owned(),
        };
        let mut down = peer(PeerState::Connecting);
        down.problems.push(problem(Problem::PortClosed));
        let machine = Machine { dropping: vec![Hook::Input], ..Machine::default() };
        let findings = of_peer(&down, &Status::default(), &Pings::default(), &machine);
        assert_eq!(findings.len(), 1, "the rest can't be tried");
        assert_eq!(findings[0].verdict, Verdict::Failed);
        assert!(findings[0].text.contains("It is so. Do that."), "{findings:?}");
        assert!(findings[0].text.contains("accept the UDP port"), "{findings:?}");
        let mut past = peer(PeerState::Up);
        past.problems.push(problem(Problem::Bypassed));
        let all = found(&past, &pings(Some(1), Some(1)), &Machine::default());
        assert_eq!(all[1], ("routes", Verdict::Failed));
        let node = Status { problems: vec![problem(Problem::UnknownPeer)], ..Status::default() };
        assert_eq!(of_node(&node, &Machine::default())[0].verdict, Verdict::Hint);
    }
}
