use super::super::segment::SackBlock;
use super::*;

const MS: u64 = 1_000_000;

/// An acknowledgement of all before `cumulative`, and of `blocks`.
fn ack(cumulative: u64, blocks: &[(u64, u64)]) -> Ack {
    let mut ack = Ack::new(cumulative, 0, 40);
    blocks.iter().for_each(|&(start, end)| ack.push(SackBlock { start, end }));
    ack
}

/// Returns the packets sent at `now_ns`; retransmissions have a minus.
fn sent(sender: &mut Sack1, now_ns: u64) -> Vec<i64> {
    std::iter::from_fn(|| sender.next_segment(now_ns))
        .map(|(seq, resent)| if resent { -(seq as i64) } else { seq as i64 })
        .collect()
}

/// Returns the packets sent in answer.
fn answer(sender: &mut Sack1, now_ns: u64, cumulative: u64, blocks: &[(u64, u64)]) -> Vec<i64> {
    sender.on_ack(now_ns, &ack(cumulative, blocks));
    sent(sender, now_ns)
}

/// A sender whose packets 3 to 10 are in flight, with a window of 8.
fn with_window_of_8() -> Sack1 {
    let config = TcpConfig { initial_threshold: Some(8), ..TcpConfig::sack1() };
    let mut sender = Sack1::new(&config);
    sender.start();
    assert_eq!(sent(&mut sender, 0), [0]);
    assert_eq!(answer(&mut sender, 100 * MS, 1, &[]), [1, 2]);
    sender.window = 8.0;
    assert_eq!(answer(&mut sender, 200 * MS, 3, &[]), [3, 4, 5, 6, 7, 8, 9, 10]);
    sender.window = 8.0;
    sender
}

#[test]
fn slow_start_sends_two_for_one_and_congestion_avoidance_one() {
    let config = TcpConfig { initial_threshold: Some(4), ..TcpConfig::sack1() };
    let mut sender = Sack1::new(&config);
    sender.start();
    assert_eq!(sent(&mut sender, 0), [0]);
    assert_eq!(answer(&mut sender, MS, 1, &[]), [1, 2]);
    assert_eq!(answer(&mut sender, 2 * MS, 2, &[]), [3, 4]);
    assert_eq!(answer(&mut sender, 2 * MS, 3, &[]), [5, 6]);
    assert_eq!(answer(&mut sender, 3 * MS, 4, &[]), [7]);
    assert_eq!(sender.window(), 4.25);
}

#[test]
fn two_duplicates_let_new_packets_go_and_the_third_repairs() {
    let mut sender = with_window_of_8();
    assert_eq!(answer(&mut sender, 300 * MS, 3, &[(4, 5)]), [11]);
    assert_eq!(answer(&mut sender, 301 * MS, 3, &[(4, 6)]), [12]);
    assert_eq!(answer(&mut sender, 302 * MS, 3, &[(4, 7)]), [-3]);
    assert!(sender.recovering());
    assert_eq!((sender.window(), sender.threshold()), (4.0, 4.0));
    // 13 - 3 - 3 are in the pipe: nothing goes until half of them have arrived.
    assert_eq!(sender.pipe, 7);
    assert_eq!(answer(&mut sender, 303 * MS, 3, &[(4, 8)]), [] as [i64; 0]);
    assert_eq!(answer(&mut sender, 304 * MS, 3, &[(4, 9)]), [] as [i64; 0]);
    assert_eq!(answer(&mut sender, 305 * MS, 3, &[(4, 10)]), [] as [i64; 0]);
    assert_eq!(answer(&mut sender, 306 * MS, 3, &[(4, 11)]), [13]);
    assert_eq!(answer(&mut sender, 400 * MS, 13, &[]), [14, 15, 16]);
    assert!(!sender.recovering());
}

#[test]
fn without_limited_transmit_duplicates_let_nothing_go() {
    let mut sender = with_window_of_8();
    sender.limited_transmit = false;
    assert_eq!(answer(&mut sender, 300 * MS, 3, &[(4, 5)]), [] as [i64; 0]);
    assert_eq!(answer(&mut sender, 301 * MS, 3, &[(4, 6)]), [] as [i64; 0]);
    assert_eq!(answer(&mut sender, 302 * MS, 3, &[(4, 7)]), [-3]);
}

#[test]
fn duplicates_without_news_are_not_counted() {
    let mut sender = with_window_of_8();
    for _ in 0..5 {
        assert_eq!(answer(&mut sender, 300 * MS, 3, &[]), [] as [i64; 0]);
    }
    assert_eq!(answer(&mut sender, 300 * MS, 3, &[(4, 5)]), [11]);
    assert_eq!(answer(&mut sender, 300 * MS, 3, &[(4, 5)]), [] as [i64; 0]);
}

#[test]
fn a_partial_acknowledgement_counts_twice() {
    let mut sender = with_window_of_8();
    // 3 and 5 are lost.
    answer(&mut sender, 300 * MS, 3, &[(4, 5)]);
    answer(&mut sender, 301 * MS, 3, &[(6, 7), (4, 5)]);
    assert_eq!(answer(&mut sender, 302 * MS, 3, &[(6, 8), (4, 5)]), [-3]);
    let before = sender.pipe;
    answer(&mut sender, 400 * MS, 5, &[(6, 11)]);
    assert_eq!(sender.pipe, before - 2);
    assert!(sender.recovering());
}

#[test]
fn the_same_losses_are_not_answered_twice() {
    let mut sender = with_window_of_8();
    sender.on_timeout(1_000 * MS);
    assert_eq!(sent(&mut sender, 1_000 * MS), [-3]);
    assert_eq!((sender.window(), sender.threshold()), (1.0, 4.0));
    // 4 arrives too, but 5 does not: three duplicates only bring new packets out.
    assert_eq!(answer(&mut sender, 1_100 * MS, 5, &[]), [-5, -6]);
    assert_eq!(answer(&mut sender, 1_101 * MS, 5, &[(6, 7)]), [-7]);
    assert_eq!(answer(&mut sender, 1_102 * MS, 5, &[(6, 8)]), [-8]);
    assert_eq!(answer(&mut sender, 1_103 * MS, 5, &[(6, 9)]), [] as [i64; 0]);
    assert!(!sender.recovering());
}

#[test]
fn timeouts_go_back_and_back_off() {
    let mut sender = with_window_of_8();
    let rto_ns = sender.rto_ns();
    assert_eq!(sender.deadline(), Some(200 * MS + rto_ns));
    sender.on_timeout(1_000 * MS);
    assert_eq!(sender.deadline(), Some(1_000 * MS + 2 * rto_ns));
    assert_eq!(sent(&mut sender, 1_000 * MS), [-3]);
    // Duplicates of before the timeout mean nothing.
    assert_eq!(answer(&mut sender, 1_001 * MS, 3, &[(4, 5)]), [] as [i64; 0]);
    assert!(sender.scoreboard.is_empty());
    assert_eq!(answer(&mut sender, 1_100 * MS, 4, &[]), [-4, -5]);
    assert_eq!(answer(&mut sender, 1_200 * MS, 11, &[]), [11, 12, 13]);
}

#[test]
fn a_lost_syn_is_retransmitted_after_three_seconds_and_the_data_begin_with_one_packet() {
    let mut sender = Sack1::new(&TcpConfig::sack1());
    sender.start();
    assert_eq!(sent(&mut sender, 0), [0]);
    assert_eq!(sender.deadline(), Some(3_000 * MS));
    sender.on_timeout(3_000 * MS);
    assert_eq!(sent(&mut sender, 3_000 * MS), [0]);
    assert_eq!(sender.deadline(), Some(9_000 * MS));
    assert_eq!(answer(&mut sender, 3_100 * MS, 1, &[]), [1]);
}

#[test]
fn it_stops_at_the_end_and_its_timer_too() {
    let config = TcpConfig { packets: Some(3), ..TcpConfig::sack1() };
    let mut sender = Sack1::new(&config);
    sender.start();
    assert_eq!(sent(&mut sender, 0), [0]);
    assert_eq!(answer(&mut sender, MS, 1, &[]), [1, 2]);
    assert_eq!(answer(&mut sender, 2 * MS, 3, &[]), [] as [i64; 0]);
    assert_eq!(sender.deadline(), None);
}

#[test]
fn what_was_never_sent_can_not_be_acknowledged() {
    let mut sender = with_window_of_8();
    assert_eq!(answer(&mut sender, 300 * MS, 12, &[]), [] as [i64; 0]);
    assert_eq!(sender.acked(), 3);
    assert_eq!(answer(&mut sender, 300 * MS, 3, &[(11, 50), (4, 4)]), [] as [i64; 0]);
    assert_eq!(sender.duplicates, 0);
}
