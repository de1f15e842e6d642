//! Requests of an operator to a running relay: by signals, and over the status socket.

use dwell_base::Instant;
use dwell_base::time::MILLI_NS;
use dwell_report::status::Status;

use super::sockets::addresses;
use super::{Engine, RunError, STATUS, TUN, random_source};
use crate::config::{Config, NodeConfig};
use crate::io::clock::Clock;
use crate::io::poller::Interest;
use crate::io::signal::Signal;
use crate::io::tun::Tun;

/// Out of descriptors: after this some may be free.
const STATUS_RETRY_NS: u64 = 100 * MILLI_NS;

impl Engine {
    pub(super) fn on_signals(&mut self) -> Result<(), RunError> {
        let came: Vec<Signal> = self.signals.drain().collect();
        for signal in came {
            match signal {
                Signal::Reload => self.reload(),
                Signal::Report => self.log_report(),
                // A second one means that there is no time to drain.
                Signal::Stop if self.stopping => return Err(RunError::Interrupted),
                Signal::Stop => {
                    tracing::info!("stopping: sending what still waits");
                    self.stopping = true;
                    if let Some(tun) = &self.env.tun {
                        let _ = self.poller.set_interest(tun, TUN, Interest::Idle);
                    }
                    self.sync_routes()?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn reload(&mut self) {
        let mut config = match Config::load(&self.path) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!("the configuration is not taken, the old one stays: {error}");
                self.configuration.reloads += 1;
                self.configuration.refused = Some(error.to_string());
                let text = format!("the configuration file was refused: {error}");
                let remedy = "Mend the file and reload; the one before is in force.".to_owned();
                self.chronicle.note(None, "configuration", text, remedy);
                return;
            }
        };
        let waits = waits_for_restart(&self.config.node, &config.node);
        if let Some(keys) = &waits {
            tracing::warn!(
                "{keys}: what the configuration says now needs a restart; the rest is taken"
            );
        }
        // What stays until a restart stays for the node as well.
        let kept = self.config.node.clone();
        config.node = NodeConfig {
            tun: kept.tun,
            addresses: kept.addresses,
            listen: kept.listen,
            offload: kept.offload,
            threads: kept.threads,
            status: kept.status,
            metrics: kept.metrics,
            web: kept.web,
            user: kept.user,
            seccomp: kept.seccomp,
            ..config.node
        };
        config.savings.file = self.config.savings.file.clone();
        let endpoints = addresses(&config);
        self.node.farewell(&mut self.env, &config);
        self.flush();
        // Peers that go now take their counters with them.
        self.look_at_counters();
        if let Err(error) = self.node.reconfigure(&config, &endpoints, &mut random_source) {
            tracing::error!("the configuration is not taken whole: {error}");
        }
        self.config = config;
        self.set_memory(self.machine_bytes);
        self.connect_peers();
        self.look_up_names();
        self.touched = (0..self.node.peer_count()).collect();
        self.configuration.reloads += 1;
        self.configuration.refused = None;
        self.configuration.waits_for_restart = waits;
        self.look_at_counters();
        match self.sync_routes() {
            Ok(()) => {
                tracing::info!("configuration taken");
                let text = "the configuration file was read again and taken".to_owned();
                self.chronicle.note(None, "configuration", text, String::new());
            }
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Answers those who ask for the status. If they can't be accepted they wait: to try again at
    /// once would use up the processor.
    pub(super) fn tell_status(&mut self, now: Instant) {
        self.node.watch_flows(now);
        let Some(socket) = &self.status else { return };
        let served = socket.serve(|| serde_json::to_vec(&self.present()).unwrap_or_default());
        if let Err(error) = served {
            tracing::debug!("no status reader can be accepted for now: {error}");
            let _ = self.poller.set_interest(socket, STATUS, Interest::Idle);
            self.status_retry_at = now + STATUS_RETRY_NS;
        }
    }

    pub(super) fn watch_status(&mut self) {
        self.status_retry_at = Instant::FAR_FUTURE;
        if let Some(socket) = &self.status
            && let Err(error) = self.poller.set_interest(socket, STATUS, Interest::Read)
        {
            tracing::error!("the status socket can't be watched any more: {error}");
        }
    }

    pub(super) fn log_report(&self) {
        for peer in self.present().peers {
            let tx = &peer.tx;
            tracing::info!(
                "{}: {}, {} packets in, {} sent, {} dropped, {} compressed, {} bytes saved",
                peer.name,
                peer.state.name(),
                tx.arrived.packets,
                tx.sent.packets,
                tx.dropped_total().packets,
                tx.compressed.packets,
                tx.saved_bytes(),
            );
        }
    }

    /// Takes the peers' counters into the account.
    pub(super) fn look_at_counters(&mut self) {
        let now = Clock::now();
        let status = self.node.status(now);
        self.account.look(&status, now);
    }

    pub(super) fn present(&self) -> Status {
        let now = Clock::now();
        let mut status = self.node.status(now);
        status.version = env!("CARGO_PKG_VERSION").to_owned();
        status.name = self.config.node.name.clone();
        status.uptime_ns = now.since_ns(self.started);
        status.cpu_ns = Clock::process_cpu_ns();
        status.seccomp = self.confined;
        status.configuration = self.configuration.clone();
        status.events = self.chronicle.events();
        status.flows = self.node.flows(now);
        status.web = self.config.node.web_address();
        self.account.fill(&mut status, &self.config.savings, now);
        status.tun.name = self.config.node.tun.clone();
        status.tun.addresses = self.config.node.addresses.iter().map(ToString::to_string).collect();
        status.tun.mtu = u32::from(self.tun_mtu);
        status.tun.offload = self.env.tun.as_ref().is_some_and(Tun::offload);
        status.tun.rx_packets = self.read.packets;
        status.tun.rx_bytes = self.read.bytes;
        status.tun.tx_packets = self.env.written.packets;
        status.tun.tx_bytes = self.env.written.bytes;
        status.drops.insert("tun_refused".to_owned(), self.env.written.refused);
        status.drops.insert("tun_skipped".to_owned(), self.from_tun.skipped());
        let alive = self.env.peer_sockets.iter().enumerate();
        let alive = alive.filter(|(peer, _)| self.node.peer_config(*peer).is_some());
        for (peer, (_, peer_socket)) in status.peers.iter_mut().zip(alive) {
            let errors =
                peer_socket.errors.iter().map(|(name, count)| ((*name).to_owned(), *count));
            peer.tx.send_errors.extend(errors);
            peer.tx.send_errors.insert("overrun".to_owned(), peer_socket.outbox.overrun);
        }
        status
    }
}

/// The keys that have another value now and can't change while the relay runs.
fn waits_for_restart(old: &NodeConfig, new: &NodeConfig) -> Option<String> {
    let changed: Vec<_> = [
        ("[node] tun", old.tun != new.tun),
        ("[node] addresses", old.addresses != new.addresses),
        ("[node] listen", old.listen != new.listen),
        ("[node] offload", old.offload != new.offload),
        ("[node] threads", old.threads != new.threads),
        ("[node] status", old.status != new.status),
        ("[node] user", old.user != new.user),
        ("[node] seccomp", old.seccomp != new.seccomp),
        ("[metrics] listen", old.metrics != new.metrics),
        ("[web]", old.web != new.web),
    ]
    .into_iter()
    .filter_map(|(key, is_changed)| is_changed.then_some(key))
    .collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WebConfig;

    #[test]
    fn a_reload_names_the_keys_that_need_a_restart() {
        let old = NodeConfig::default();
        assert_eq!(waits_for_restart(&old, &old), None);
        let new = NodeConfig { tun: "dwell7".to_owned(), offload: !old.offload, ..old.clone() };
        let keys = waits_for_restart(&old, &new);
        assert_eq!(keys.as_deref(), Some("[node] tun, [node] offload"));
        let metrics = Some(([127, 0, 0, 1], 9478).into());
        let keys = waits_for_restart(&old, &NodeConfig { metrics, ..old.clone() });
        assert_eq!(keys.as_deref(), Some("[metrics] listen"));
        let web = WebConfig { listen: ([127, 0, 0, 1], 1).into(), password: None, hosts: vec![] };
        let keys = waits_for_restart(&old, &NodeConfig { web: Some(web), ..old.clone() });
        assert_eq!(keys.as_deref(), Some("[web]"));
        let keys = waits_for_restart(&old, &NodeConfig { seccomp: !old.seccomp, ..old.clone() });
        assert_eq!(keys.as_deref(), Some("[node] seccomp"));
        let new = NodeConfig { keepalive_ns: 1, ..old.clone() };
        assert_eq!(waits_for_restart(&old, &new), None, "it is taken");
    }
}
