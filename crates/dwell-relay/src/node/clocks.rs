//! Peers whose clocks differ much from this machine's.
//!
//! The tunnel goes by clocks that only count, and needs no right time. What people do with it may, and nothing else
//! tells them.

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::human;
use dwell_report::status::Problem;

use super::Node;
use super::env::Env;
use super::problems::Finding;
use crate::trust::PeerClock;

/// Clocks that differ by this much are a problem, ...
const DIFFERS_NS: u64 = 3_600 * SECOND_NS;
/// ... until they differ by less than this: one that is being corrected slowly is not news again and again.
const AGREES_NS: u64 = DIFFERS_NS / 2;

/// What was found out of a peer's clock may change so often ...
const CHANGES_MAX: u32 = 4;
/// ... in this time: a peer whose initiations show now this and now that time fills no log.
const CHANGES_NS: u64 = 60 * SECOND_NS;

/// How often what is known of a peer's clock has changed of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    since: Instant,
    count: u32,
}

impl Changes {
    /// Returns true if it may change now, and counts that.
    fn admit(&mut self, now: Instant) -> bool {
        if now.since_ns(self.since) >= CHANGES_NS {
            *self = Self { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= CHANGES_MAX
    }
}

impl Node {
    /// A peer proved to have begun the session that it uses: the initiation has what its clock shows.
    ///
    /// Only the responder learns of it. If that changes what it knows, it initiates once itself, so that the other
    /// end learns it, too.
    pub(super) fn compare_clocks(&mut self, env: &mut impl Env, index: usize, clock: PeerClock) {
        let peer = &self.peers[index];
        let known = peer.problems.has(Problem::ClockDiffers);
        let bound_ns = if known { AGREES_NS } else { DIFFERS_NS };
        let ahead_ns = clock.ahead_ns.filter(|ahead_ns| ahead_ns.unsigned_abs() >= bound_ns);
        if ahead_ns.is_some() != known {
            if !self.peers[index].clock_changes.admit(env.now()) {
                return;
            }
            self.peers[index].handshake.renew();
        }
        match ahead_ns {
            Some(ahead_ns) => self.note_problem(env, Some(index), finding(ahead_ns)),
            None => self.clear_problem(env, Some(index), Problem::ClockDiffers),
        }
    }
}

fn finding(ahead_ns: i64) -> Finding {
    let how = if ahead_ns < 0 { "behind" } else { "ahead of" };
    let why = format!(
        "The clock of that machine is {} {how} this one's. The tunnel needs no right time, but the times in the two \
         logs differ, savings count for another day, certificates may seem to be invalid, and offers for pairing \
         end too soon or too late when the clock is set.",
        human::duration(ahead_ns.unsigned_abs())
    );
    let remedy = "Set both clocks by NTP (timedatectl set-ntp true), and look whether they are right (date -u). \
                  They are compared with each new session: each two minutes while there is traffic, or each hour.";
    Finding { problem: Problem::ClockDiffers, why, remedy: remedy.to_owned() }
}
