//! A queue for each flow, each with controlled delay: RFC 8290, section 4.

use std::collections::VecDeque;

use dwell_base::Rng;

use crate::plan::{CoDel, Managed};
use crate::tcp::Like;

use super::codel::Control;
use super::{Line, Waiting};

/// The queues of all flows.
#[derive(Clone, Debug)]
pub(crate) struct FqCoDelQueue {
    plan: CoDel,
    ecn: bool,
    packets_max: u32,
    quantum_bytes: i64,
    /// Mixed into the hashes of flows, so that it is chance which of them share a queue.
    perturbation: u64,
    lanes: Vec<Lane>,
    /// Lanes whose flows have sent nothing for a while, before those that have.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    packets: usize,
    bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    line: Line,
    control: Control,
    credit_bytes: i64,
    /// True if it is in one of the lists.
    is_listed: bool,
}

impl FqCoDelQueue {
    pub(super) fn new(
        plan: CoDel,
        (quantum_bytes, queues): (u32, u32),
        managed: &Managed,
        mut rng: Rng,
    ) -> Self {
        Self {
            plan,
            ecn: managed.ecn,
            packets_max: managed.packets,
            quantum_bytes: i64::from(quantum_bytes),
            perturbation: rng.next_u64(),
            lanes: vec![Lane::default(); queues as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, packet: Waiting, dropped: &mut Vec<u32>) {
        let n = self.lane_of(packet.flow);
        let lane = &mut self.lanes[n as usize];
        lane.line.push(packet);
        self.packets += 1;
        self.bytes += u64::from(packet.bytes);
        if !lane.is_listed {
            lane.is_listed = true;
            lane.credit_bytes = self.quantum_bytes;
            self.new.push_back(n);
        }
        if self.packets > self.packets_max as usize {
            self.drop_from_fattest(dropped);
        }
    }

    fn lane_of(&self, flow: u64) -> u32 {
        let mixed = (flow ^ self.perturbation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 32) % self.lanes.len() as u64) as u32
    }

    /// Drops the packet at the head of the queue with the most bytes.
    fn drop_from_fattest(&mut self, dropped: &mut Vec<u32>) {
        let listed = self.new.iter().chain(&self.old).copied();
        let fattest = listed.max_by_key(|&n| (self.lanes[n as usize].line.bytes, n));
        if let Some(packet) = fattest.and_then(|n| self.lanes[n as usize].line.pop()) {
            self.packets -= 1;
            self.bytes -= u64::from(packet.bytes);
            dropped.push(packet.id);
        }
    }

    pub(super) fn pop(&mut self, now_ns: u64, dropped: &mut Vec<u32>) -> Option<Waiting> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let n = list.pop_front()?;
            let lane = &mut self.lanes[n as usize];
            if lane.credit_bytes <= 0 {
                lane.credit_bytes += self.quantum_bytes;
                self.old.push_back(n);
                continue;
            }
            let before = (lane.line.packets.len(), lane.line.bytes);
            let how = (self.plan, self.ecn);
            // As in Linux a packet may wait if it is the last one of all queues; in ns-3 if it is the last one of its own.
            let others_bytes = if self.plan.like == Like::Ns3 { 0 } else { self.bytes - before.1 };
            let of = (&mut lane.line, others_bytes);
            let packet = lane.control.pop(now_ns, how, of, dropped);
            self.packets -= before.0 - lane.line.packets.len();
            self.bytes -= before.1 - lane.line.bytes;
            match packet {
                Some(packet) => {
                    lane.credit_bytes -= i64::from(packet.bytes);
                    let list = if is_new { &mut self.new } else { &mut self.old };
                    list.push_front(n);
                    return Some(packet);
                }
                // An empty new lane waits once among the old ones, so that it can't go first for ever.
                None if is_new && !self.old.is_empty() => self.old.push_back(n),
                None => lane.is_listed = false,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.packets
    }
}
