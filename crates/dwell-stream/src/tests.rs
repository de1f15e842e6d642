//! Streams from end to end, over transports that take and give pieces of any size.

use dwell_base::Instant;
use proptest::prelude::*;

use crate::{Config, Limits, Press, Receiver, Sender, Strategy, StreamError, Unpress};

/// Sends `data` in pieces as the numbers say, through a transport with little room.
fn transfer(
    config: &Config,
    data: &[u8],
    sizes: &[usize],
) -> Result<(Vec<u8>, Sender), StreamError> {
    let mut sender = Sender::new(config).unwrap();
    let mut receiver = match config.strategy {
        Strategy::Plain => Receiver::plain(Limits::default()),
        _ => Receiver::new(Limits::default()),
    };
    let (mut press, mut unpress) = (Press::new(), Unpress::new());
    let mut sizes = sizes.iter().copied().cycle();
    let mut next = move || sizes.next().unwrap();
    let (mut rest, mut got) = (data, Vec::new());
    let mut now = Instant::ZERO;
    let mut jobs = Vec::new();
    for _ in 0..2_000_000 {
        if sender.is_finished() {
            receiver.end()?;
            return Ok((got, sender));
        }
        now = now + 1000;
        let piece = next().min(rest.len());
        rest = &rest[sender.accept(&rest[..piece])..];
        if rest.is_empty() {
            sender.finish();
        }
        let wire = sender.wire(now);
        let len = wire.len().min(next());
        let taken = receiver.feed(&wire[..len], &mut unpress)?;
        let refused = taken < wire.len();
        sender.wrote(now, taken);
        if refused {
            sender.blocked(now);
        }
        let consumed = receiver.data().len().min(next());
        got.extend_from_slice(&receiver.data()[..consumed]);
        receiver.consume(consumed);
        if sender.is_finished() {
            got.extend_from_slice(receiver.data());
            receiver.consume(receiver.data().len());
        }
        // Two under way at once, done in the wrong order.
        jobs.extend(sender.next_job(now));
        if jobs.len() == 2 || next() % 2 == 0 || sender.wire(now).is_empty() {
            for job in jobs.drain(..).rev() {
                sender.done(job.run(&mut press, || now));
            }
        }
    }
    panic!("the stream does not come to its end");
}

fn small(strategy: Strategy) -> Config {
    let mut config = Config::new(strategy);
    config.block_len = 4096;
    config.buffer_len = 16 << 10;
    config
}

fn text(len: usize) -> Vec<u8> {
    let words = ["packet ", "waits ", "in the ", "queue ", "of a slow ", "link, ", "idle.\n"];
    let mut rng = dwell_base::Rng::from_seed(7);
    let mut out = Vec::new();
    while out.len() < len {
        out.extend_from_slice(words[rng.below(words.len() as u64) as usize].as_bytes());
    }
    out.truncate(len);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_gives_the_same_bytes(
        which in 0..Strategy::ALL.len(),
        len in 0usize..60_000,
        sizes in prop::collection::vec(1usize..9000, 1..20),
    ) {
        let strategy = Strategy::ALL[which];
        let data = text(len);
        let (got, sender) = transfer(&small(strategy), &data, &sizes).unwrap();
        prop_assert!(got == data, "{strategy}: {} of {} bytes", got.len(), data.len());
        prop_assert!(sender.is_idle());
        let stats = sender.stats();
        prop_assert_eq!(stats.accepted_bytes, len as u64);
        prop_assert_eq!(stats.framed_bytes, len as u64);
    }
}
