//! Controlled delay, by the pseudocode of RFC 8289, section 5; its law also as Linux reckons it (`include/net/codel_impl.h`),
//! from where ns-3 has it.

use crate::plan::{CoDel, Managed};
use crate::tcp::Like;

use super::{Line, PACKET_BYTES, Waiting};

/// The state of the control law, without the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Control {
    first_above_ns: Option<u64>,
    drop_next_ns: u64,
    count: u32,
    last_count: u32,
    /// Linux' reciprocal of the square root of `count`, in 2^16ths.
    root: u16,
    dropping: bool,
}

/// A cycle of dropping goes on where the one before ended if it begins within this many intervals.
const RECENT_INTERVALS: u64 = 16;

impl Control {
    /// Takes the packet to send out of `line`, beside which `others_bytes` wait in queues of the same port.
    pub(super) fn pop(
        &mut self,
        now_ns: u64,
        (plan, ecn): (CoDel, bool),
        (line, others_bytes): (&mut Line, u64),
        dropped: &mut Vec<u32>,
    ) -> Option<Waiting> {
        let (mut packet, mut is_late) = self.take(now_ns, plan, (line, others_bytes));
        if packet.is_none() {
            self.dropping = false;
            return None;
        }
        if self.dropping {
            if !is_late {
                self.dropping = false;
            }
            while self.dropping && now_ns >= self.drop_next_ns {
                self.count = self.count.saturating_add(1);
                self.improve_root();
                let marked = packet.as_mut().is_some_and(|packet| ecn && packet.mark());
                if marked {
                    self.drop_next_ns = self.after(self.drop_next_ns, plan);
                    break;
                }
                dropped.extend(packet.map(|packet| packet.id));
                (packet, is_late) = self.take(now_ns, plan, (line, others_bytes));
                if is_late {
                    self.drop_next_ns = self.after(self.drop_next_ns, plan);
                } else {
                    self.dropping = false;
                }
            }
        } else if is_late {
            if !packet.as_mut().is_some_and(|packet| ecn && packet.mark()) {
                dropped.extend(packet.map(|packet| packet.id));
                packet = self.take(now_ns, plan, (line, others_bytes)).0;
            }
            self.begin(now_ns, plan);
        }
        packet
    }

    fn begin(&mut self, now_ns: u64, plan: CoDel) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let since_ns = now_ns.saturating_sub(self.drop_next_ns);
        let is_recent = since_ns < RECENT_INTERVALS * plan.interval_ns;
        if delta > 1 && is_recent {
            self.count = delta;
            self.improve_root();
        } else {
            (self.count, self.root) = (1, u16::MAX);
        }
        self.drop_next_ns = self.after(now_ns, plan);
        self.last_count = self.count;
    }

    /// Takes the next packet, and says if the delay has been too large for an interval.
    fn take(
        &mut self,
        now_ns: u64,
        plan: CoDel,
        (line, others_bytes): (&mut Line, u64),
    ) -> (Option<Waiting>, bool) {
        let Some(packet) = line.pop() else {
            self.first_above_ns = None;
            return (None, false);
        };
        let waited_ns = now_ns.saturating_sub(packet.since_ns);
        if waited_ns < plan.target_ns || line.bytes + others_bytes <= PACKET_BYTES {
            self.first_above_ns = None;
            return (Some(packet), false);
        }
        let first_ns = *self.first_above_ns.get_or_insert(now_ns.saturating_add(plan.interval_ns));
        (Some(packet), now_ns >= first_ns)
    }

    /// One step of Newton's towards the reciprocal of the square root, which is all that Linux does for a drop: from the first drop to
    /// the second the root goes from 1 to 0.5, where it should be 0.71.
    fn improve_root(&mut self) {
        let root = u64::from(self.root) << 16;
        let squared = (root * root) >> 32;
        let rest = (3_u64 << 32).wrapping_sub(u64::from(self.count) * squared) >> 2;
        self.root = (rest.wrapping_mul(root) >> 47) as u16;
    }

    /// The control law: the interval by the square root of the number of drops.
    fn after(&self, at_ns: u64, plan: CoDel) -> u64 {
        let wait_ns = match plan.like {
            Like::Rfc => (plan.interval_ns as f64 / f64::from(self.count.max(1)).sqrt()) as u64,
            Like::Linux | Like::Ns3 => {
                ((u128::from(plan.interval_ns) * u128::from(self.root)) >> 16) as u64
            }
        };
        at_ns.saturating_add(wait_ns)
    }
}

/// One queue with that control.
#[derive(Clone, Debug)]
pub(crate) struct CoDelQueue {
    plan: CoDel,
    ecn: bool,
    packets_max: u32,
    line: Line,
    control: Control,
}

impl CoDelQueue {
    pub(super) fn new(plan: CoDel, managed: &Managed) -> Self {
        Self {
            plan,
            ecn: managed.ecn,
            packets_max: managed.packets,
            line: Line::default(),
            control: Control::default(),
        }
    }

    pub(super) fn push(&mut self, packet: Waiting, dropped: &mut Vec<u32>) {
        match self.line.packets.len() >= self.packets_max as usize {
            true => dropped.push(packet.id),
            false => self.line.push(packet),
        }
    }

    pub(super) fn pop(&mut self, now_ns: u64, dropped: &mut Vec<u32>) -> Option<Waiting> {
        self.control.pop(now_ns, (self.plan, self.ecn), (&mut self.line, 0), dropped)
    }

    pub(super) fn len(&self) -> usize {
        self.line.packets.len()
    }
}
