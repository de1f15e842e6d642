//! What happens to peers: it is logged, and remembered for who asks later.

use std::collections::VecDeque;

use dwell_report::status::{EVENTS_MAX, EventStatus, Problem};

use super::Engine;
use crate::io::clock::Clock;
use crate::node::{Finding, NodeEvent};

/// The latest events of a node.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    events: VecDeque<EventStatus>,
    count: u64,
}

impl Chronicle {
    /// Remembers an event; the oldest may be forgotten for it.
    pub(super) fn note(&mut self, peer: Option<String>, kind: &str, text: String, remedy: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.count += 1;
        self.events.push_back(EventStatus {
            number: self.count,
            at_unix_ns: Clock::unix_ns(),
            peer,
            kind: kind.to_owned(),
            text,
            remedy,
        });
    }

    /// Returns what it remembers, the oldest first.
    pub(super) fn events(&self) -> Vec<EventStatus> {
        self.events.iter().cloned().collect()
    }
}

impl Engine {
    pub(super) fn on_events(&mut self) {
        for event in std::mem::take(&mut self.env.events) {
            self.on_event(event);
        }
        if let Err(error) = self.sync_routes() {
            tracing::error!("{error}");
        }
    }

    fn on_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Up(peer) => {
                let name = self.name(peer);
                tracing::info!(peer = name, event = "up", "{name} is up");
                self.account.changed(&name, true, Clock::now());
                self.remember(Some(peer), "up", format!("{name} is up"), "");
            }
            NodeEvent::Down(peer, why) => {
                let name = self.name(peer);
                self.account.changed(&name, false, Clock::now());
                tracing::warn!(peer = name, event = "down", "{name} is down: {why}");
                self.remember(Some(peer), "down", format!("{name} is down: {why}"), "");
                self.reconnect(peer);
            }
            NodeEvent::Restarted(peer) => {
                let name = self.name(peer);
                let text = format!(
                    "{name} began again: it was restarted, has other memory for histories, or could \
                     not go on with them"
                );
                tracing::info!(peer = name, event = "restarted", "{text}");
                self.remember(Some(peer), "restarted", text, "");
            }
            // That it is down was just said, and why.
            NodeEvent::Problem(_, Finding { problem: Problem::Stopped, .. })
            | NodeEvent::Solved(_, Problem::Stopped) => {}
            NodeEvent::Problem(of, Finding { problem, why, remedy }) => {
                let name = self.name_of(of);
                let kind = problem.name();
                tracing::warn!(
                    peer = name,
                    event = "problem",
                    problem = kind,
                    "{name}: {kind}: {why} {remedy}"
                );
                let text = format!("{name}: {kind}: {why}");
                self.remember(of, "problem", text, &remedy);
            }
            NodeEvent::Solved(of, problem) => {
                let (name, problem) = (self.name_of(of), problem.name());
                let text = format!("{name}: {problem} is over");
                tracing::info!(peer = name, event = "solved", problem, "{text}");
                self.remember(of, "solved", text, "");
            }
            NodeEvent::Moved(peer, endpoint) => {
                self.on_move(peer, endpoint);
                self.connect_peer(peer);
            }
            NodeEvent::CodecRefused(peer) => tracing::warn!(
                "{} can't decode {}: everything is sent raw",
                self.name(peer),
                self.node.peer_config(peer).map_or_else(String::new, |c| c.codec.to_string()),
            ),
        }
    }

    fn on_move(&mut self, peer: usize, endpoint: std::net::SocketAddr) {
        let name = self.name(peer);
        let log = self.env.peer_sockets.get_mut(peer).map(|peer_socket| &mut peer_socket.move_log);
        let text = match log.map_or(Some(0), |log| log.admit(Clock::now())) {
            Some(0) => format!("{name} is at {endpoint}"),
            Some(left_out) => format!(
                "{name} is at {endpoint}, and was at {left_out} more addresses since this was last logged"
            ),
            None => return,
        };
        tracing::info!(peer = name, event = "moved", "{text}");
        self.remember(Some(peer), "moved", text, "");
    }

    fn remember(&mut self, of: Option<usize>, kind: &str, text: String, remedy: &str) {
        let peer = of.map(|peer| self.name(peer));
        self.chronicle.note(peer, kind, text, remedy.to_owned());
    }

    pub(super) fn name(&self, peer: usize) -> String {
        self.node.peer_config(peer).map_or_else(|| "a peer".to_owned(), |c| c.name.clone())
    }

    /// A peer's name, or that of this node.
    fn name_of(&self, peer: Option<usize>) -> String {
        peer.map_or_else(|| self.config.node.name.clone(), |peer| self.name(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_events_are_remembered() {
        let mut chronicle = Chronicle::default();
        for number in 0..EVENTS_MAX + 5 {
            chronicle.note(Some("hub".to_owned()), "up", number.to_string(), String::new());
        }
        let events = chronicle.events();
        assert_eq!(events.len(), EVENTS_MAX);
        assert_eq!((events[0].number, &*events[0].text), (6, "5"));
        assert!(events.is_sorted_by_key(|event| event.number));
    }
}
