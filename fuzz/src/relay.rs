//! What must hold of the lines by which nodes are paired, and of two of `dwell-relay`'s nodes, whatever happens to the datagrams between them.
//!
//! The input is a script: a byte that says how the ends know each other, then steps. Both ends run in
//! virtual time. What the script may do is what somebody on the path may, and what befalls machines:
//! deliver, reorder, double, drop, change and cut datagrams, send old ones again and send them on from
//! elsewhere, forge; let time pass; restart an end, with its clock set back too.

#[path = "relay/end.rs"]
mod end;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;

use dwell_base::Instant;
use dwell_base::time::{MILLI_NS, SECOND_NS};
use dwell_relay::config::{Config, ReadSecretError, Secret};
use dwell_relay::pairing::edit::{NewPeer, add_peer, remove_peer};
use dwell_relay::pairing::{LISTED_MAX, Line};
use dwell_relay::trust::public_key;
use end::{End, Flight};

use super::memory;

/// Steps of a script that count.
const STEPS_MAX: usize = 400;
/// Datagrams that one end received, in a script.
const RECEIVED_MAX: u32 = 20_000;
/// Datagrams on their way in one direction; the oldest gives way.
const FLYING_MAX: usize = 64;
/// Old datagrams that can be sent again.
const RECORDED_MAX: usize = 128;
/// How long a session may take when the network does what it should. An end that was restarted with
/// its clock set back has to be given up first.
const CONNECTED_NS: u64 = 30 * SECOND_NS;
/// What both ends and the network between them may hold more than at the beginning, when it is
/// 0.7 MB. What is on its way and recorded makes up half of it.
const HELD_MAX: isize = 768 << 10;
/// A day.
const CLOCK_BEHIND_NS: u64 = 86_400 * SECOND_NS;

/// Two ends that share a key, or think so.
pub fn psk(bytes: &[u8]) {
    play(false, bytes);
}

/// Two ends that have key pairs, and know each other's public key, or think so.
pub fn noise(bytes: &[u8]) {
    play(true, bytes);
}

/// A line that somebody pasted: what is accepted is written as it was read, and what it says can be put into
/// a configuration and taken out again.
pub fn pairing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // The fuzzer can't guess a check sum.
    let parsed = text.parse().or_else(|_| Line::summed(&text).parse::<Line>());
    let Ok(line) = parsed else { return };
    assert_eq!(line.to_string().parse(), Ok(line.clone()));
    assert!(line.prefixes.len() <= LISTED_MAX && line.endpoints.len() <= LISTED_MAX);
    let peer = NewPeer {
        name: line.name,
        public_key: line.public_key,
        endpoint: line.endpoints.into_iter().next(),
        prefixes: line.prefixes,
        psk_file: None,
        rate: None,
    };
    let before = "[node]\nlisten = \"[::]:1\"\nprivate_key_file = \"1\"\n";
    let with_peer = add_peer(before, &peer).expect("any line can be added");
    match Config::parse(&with_peer, "fuzz.toml", &read) {
        Ok(config) => assert_eq!(config.peers[0].prefixes, peer.prefixes),
        // Contradictions are the configuration's to find; each is one of the peer's.
        Err(errors) => assert!(errors.errors.iter().all(|error| error.place.is_some()), "{errors}"),
    }
    assert_eq!(remove_peer(&with_peer, &peer.name).as_deref(), Ok(before));
}

fn play(keyed: bool, bytes: &[u8]) {
    let Some((&setup, bytes)) = bytes.split_first() else { return };
    let setup = Setup::of(keyed, setup);
    let mut scene = Scene::new(&setup);
    let before = memory::held();
    let mut script = bytes.iter().copied();
    for _ in 0..STEPS_MAX {
        if scene.received > RECEIVED_MAX || scene.step(&mut script).is_none() {
            break;
        }
    }
    let held = memory::held() - before;
    assert!(held <= HELD_MAX, "{held} bytes more are held");
    if setup.fits() {
        scene.assert_connects();
    } else {
        scene.pass(CONNECTED_NS, true);
        for end in &scene.ends {
            assert!(!end.is_up() && end.came.is_empty(), "a session with the wrong key");
        }
    }
}

/// How the ends know each other.
struct Setup {
    keyed: bool,
    /// There is a shared key, which is mixed in if there are key pairs.
    shared: bool,
    wrong_shared: bool,
    wrong_public: bool,
    /// End 1 has no endpoint: it waits to be called.
    waits: bool,
    clock_behind: bool,
    /// What is sent is compressed in contexts.
    contexts: bool,
}

impl Setup {
    fn of(keyed: bool, byte: u8) -> Self {
        let wrong_shared = byte & 3 == 2;
        Self {
            keyed,
            shared: !keyed || wrong_shared || byte & 8 != 0,
            wrong_shared: wrong_shared || (!keyed && byte & 3 == 3),
            wrong_public: keyed && byte & 3 == 3,
            waits: byte & 4 != 0,
            clock_behind: byte & 16 != 0,
            contexts: byte & 32 != 0,
        }
    }

    fn fits(&self) -> bool {
        !self.wrong_shared && !self.wrong_public
    }

    fn config(&self, side: usize) -> Config {
        let (own, other) = (side + 1, 2 - side);
        let mut node = format!("[node]\naddresses = [\"10.{own}.0.1/16\"]\n");
        let mut peer = format!(
            "[[peer]]\nname = \"other\"\nprefixes = [\"10.{other}.0.0/16\"]\nrate = \"10mbit\"\n"
        );
        peer += match self.contexts {
            true => {
                "scheme = \"host-pair\"\nhistory = \"host-pair\"\ncontext_window = \"32KiB\"\n\
                 contexts_max = 2\ncodec = \"zstd:1\"\n"
            }
            false => "codec = \"lz4\"\n",
        };
        if side == 0 || !self.waits {
            peer += &format!("endpoint = \"{}\"\n", address(1 - side));
        }
        if self.keyed {
            let theirs = if self.wrong_public && side == 0 { 9 } else { other };
            let public = public_key(&secret(theirs as u8)).expect("any 32 bytes are a key");
            node += &format!("private_key_file = \"{own}\"\n");
            peer += &format!("public_key = \"{public}\"\n");
        }
        if self.shared {
            let key = if self.wrong_shared && side == 0 { 8 } else { 5 };
            peer += &format!("psk_file = \"{key}\"\n");
        }
        Config::parse(&(node + &peer), "fuzz.toml", &read).expect("a good configuration")
    }
}

/// The key in a file of this name is the name's digit, 32 times.
fn read(path: &Path) -> Result<Secret, ReadSecretError> {
    let name = path.as_os_str().as_encoded_bytes();
    Ok(secret(name.last().map_or(0, |digit| digit & 15)))
}

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

fn address(side: usize) -> SocketAddr {
    ([192, 0, 2, side as u8 + 1], 7733).into()
}

/// Where none of the ends is.
fn elsewhere(number: u8) -> SocketAddr {
    ([203, 0, 113, number], 4_000 + u16::from(number)).into()
}

/// Both ends and what is between them.
struct Scene {
    now: Instant,
    ends: [End; 2],
    /// By the end that sent it.
    flying: [VecDeque<Flight>; 2],
    recorded: VecDeque<(usize, Vec<u8>)>,
    received: u32,
}

impl Scene {
    fn new(setup: &Setup) -> Self {
        let end = |side: usize| {
            let endpoint = (side == 0 || !setup.waits).then(|| address(1 - side));
            let behind_ns = if side == 1 && setup.clock_behind { CLOCK_BEHIND_NS } else { 0 };
            End::new(side, setup.config(side), endpoint, behind_ns)
        };
        Self {
            now: Instant::from_ns(SECOND_NS),
            ends: [end(0), end(1)],
            flying: Default::default(),
            recorded: VecDeque::new(),
            received: 0,
        }
    }

    /// The next step of a script; none if it has ended.
    fn step(&mut self, script: &mut impl Iterator<Item = u8>) -> Option<()> {
        let (what, number) = (script.next()?, script.next()?);
        let from = usize::from(what >> 4 & 1);
        match what & 15 {
            0..=2 => self.deliver(from, 0),
            3 => self.deliver(from, number),
            4 => {
                if let Some(flight) = self.pick(from, number) {
                    self.arrive(from, &flight, address(from));
                }
            }
            5 => drop(self.take(from, number)),
            6 => self.deliver_changed(from, number, script.next()?, script.next()?),
            7 => self.deliver_cut(from, number, script.next()?),
            8 => self.pass(MILLI_NS << (number % 18), false),
            9 => self.restart(from, number),
            10 => self.repeat(number, script.next()?),
            11 => self.forge(from, number, script),
            12 => {
                let sent = self.ends[from].send_packet(self.now);
                self.fly(from, sent);
            }
            13 => {
                if let Some(flight) = self.take(from, number) {
                    self.arrive(from, &flight, elsewhere(number));
                }
            }
            14 => self.ends[from].reload(),
            _ => self.flood(from, number, script.next()?),
        }
        Some(())
    }

    fn pick(&self, from: usize, number: u8) -> Option<Flight> {
        let flying = &self.flying[from];
        flying.get(usize::from(number).checked_rem(flying.len())?).cloned()
    }

    fn take(&mut self, from: usize, number: u8) -> Option<Flight> {
        let flying = &mut self.flying[from];
        let at = usize::from(number).checked_rem(flying.len())?;
        flying.remove(at)
    }

    fn fly(&mut self, from: usize, sent: Vec<Flight>) {
        for flight in sent {
            if self.recorded.len() == RECORDED_MAX {
                self.recorded.pop_front();
            }
            self.recorded.push_back((from, flight.bytes.clone()));
            if self.flying[from].len() == FLYING_MAX {
                self.flying[from].pop_front();
            }
            self.flying[from].push_back(flight);
        }
    }

    /// A datagram of `from` gets to its end, if somebody is at the address that it is for.
    fn arrive(&mut self, from: usize, flight: &Flight, source: SocketAddr) {
        if flight.to == address(1 - from) {
            self.inject(1 - from, source, &flight.bytes);
        }
    }

    fn inject(&mut self, to: usize, source: SocketAddr, bytes: &[u8]) {
        self.received += 1;
        let sent = self.ends[to].receive(self.now, source, bytes);
        self.fly(to, sent);
    }

    fn deliver(&mut self, from: usize, number: u8) {
        if let Some(flight) = self.take(from, number) {
            self.arrive(from, &flight, address(from));
        }
    }

    fn deliver_changed(&mut self, from: usize, number: u8, at: u8, change: u8) {
        let Some(mut flight) = self.take(from, number) else { return };
        let len = flight.bytes.len();
        if let Some(at) = usize::from(at).checked_rem(len) {
            flight.bytes[at] ^= change;
        }
        self.arrive(from, &flight, address(from));
    }

    fn deliver_cut(&mut self, from: usize, number: u8, len: u8) {
        let Some(mut flight) = self.take(from, number) else { return };
        flight.bytes.resize(usize::from(len), 0);
        self.arrive(from, &flight, address(from));
    }

    fn restart(&mut self, side: usize, how: u8) {
        if how & 1 != 0 {
            self.ends[side].close();
            let sent = self.ends[side].settle();
            self.fly(side, sent);
        }
        // Two ends whose clocks were both set back, and that both saw an initiation of before, can't
        // tell each other from replays (docs/security.md): one clock is right.
        let behind_ns = if side == 1 && how & 2 != 0 { CLOCK_BEHIND_NS } else { 0 };
        self.ends[side].restart(behind_ns);
    }

    /// An old datagram comes again, at either end, from where it came or from elsewhere.
    fn repeat(&mut self, number: u8, how: u8) {
        let Some(at) = usize::from(number).checked_rem(self.recorded.len()) else { return };
        let (from, bytes) = self.recorded[at].clone();
        let to = if how & 1 == 0 { 1 - from } else { from };
        let source = if how & 2 == 0 { address(1 - to) } else { elsewhere(how) };
        self.inject(to, source, &bytes);
    }

    fn forge(&mut self, from: usize, len: u8, script: &mut impl Iterator<Item = u8>) {
        let bytes: Vec<u8> = script.take(usize::from(len)).collect();
        self.inject(1 - from, address(from), &bytes);
    }

    /// A recorded datagram comes many times, with other bytes and from other addresses.
    fn flood(&mut self, from: usize, number: u8, at: u8) {
        let Some(which) = usize::from(number).checked_rem(self.recorded.len()) else { return };
        let (_, bytes) = self.recorded[which].clone();
        for copy in 0..=u8::MAX {
            let mut changed = bytes.clone();
            if let Some(at) = usize::from(at).checked_rem(bytes.len()) {
                changed[at] ^= copy;
            }
            self.inject(1 - from, elsewhere(copy), &changed);
        }
    }

    /// Lets time pass; datagrams get through after some milliseconds, or stay where they are.
    fn pass(&mut self, ns: u64, delivers: bool) {
        let until = self.now + ns;
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 1_000_000, "the ends are awake all the time");
            while delivers && self.flying.iter().any(|flying| !flying.is_empty()) {
                self.now = self.now + 5 * MILLI_NS;
                // Answers take their time, too.
                let counts = [0, 1].map(|side: usize| self.flying[side].len());
                for (from, count) in counts.into_iter().enumerate() {
                    (0..count).for_each(|_| self.deliver(from, 0));
                }
                self.timers();
            }
            let next = self.ends[0].deadline().min(self.ends[1].deadline());
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            self.timers();
        }
        self.now = self.now.max(until);
    }

    fn timers(&mut self) {
        for side in [0, 1] {
            if self.ends[side].deadline() <= self.now {
                let sent = self.ends[side].timers(self.now);
                self.fly(side, sent);
            }
        }
    }

    /// When the network does what it should, packets get through both ways, soon.
    fn assert_connects(&mut self) {
        let before = [0, 1].map(|side: usize| self.ends[side].made);
        let got = |scene: &Self, side: usize| {
            scene.ends[side].came.iter().any(|&number| number >= before[1 - side])
        };
        let until = self.now + CONNECTED_NS;
        while self.now < until {
            for side in [0, 1] {
                let sent = self.ends[side].send_packet(self.now);
                self.fly(side, sent);
            }
            self.pass(SECOND_NS, true);
            if got(self, 0) && got(self, 1) {
                return;
            }
        }
        panic!("no session after {CONNECTED_NS} ns of a good network");
    }
}
