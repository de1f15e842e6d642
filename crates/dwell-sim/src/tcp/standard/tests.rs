use super::super::segment::SackBlock;
use super::*;

const MS: u64 = 1_000_000;

fn sent(sender: &mut Standard, now_ns: u64) -> Vec<i64> {
    std::iter::from_fn(|| sender.next_segment(now_ns))
        .map(|(seq, resent)| if resent { -(seq as i64) } else { seq as i64 })
        .collect()
}

/// Returns the packets sent in answer to an acknowledgement of all before `cumulative`, and of
/// `blocks`.
fn answer(sender: &mut Standard, now_ns: u64, cumulative: u64, blocks: &[(u64, u64)]) -> Vec<i64> {
    let mut ack = Ack::new(cumulative, now_ns - 100 * MS, 40);
    blocks.iter().for_each(|&(start, end)| ack.push(SackBlock { start, end }));
    sender.on_ack(now_ns, &ack);
    sent(sender, now_ns)
}

/// A sender whose packets 1 to 10 are in flight.
fn with_window_of_10() -> Standard {
    let mut sender = Standard::new(&TcpConfig::new_reno());
    sender.start();
    assert_eq!(sent(&mut sender, 0), [0]);
    assert_eq!(answer(&mut sender, 100 * MS, 1, &[]), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    sender
}

#[test]
fn duplicates_let_new_packets_go_and_three_repair() {
    let mut sender = with_window_of_10();
    assert_eq!(answer(&mut sender, 200 * MS, 1, &[(2, 3)]), [11]);
    assert_eq!(answer(&mut sender, 201 * MS, 1, &[(2, 4)]), [12]);
    assert_eq!(answer(&mut sender, 202 * MS, 1, &[(2, 5)]), [-1]);
    assert_eq!((sender.window(), sender.threshold()), (5.0, 5.0));
    // 12 are out, three have arrived, one was lost and retransmitted.
    assert_eq!(sender.pipe(), 9);
}

#[test]
fn one_acknowledgement_can_report_all_the_losses() {
    let mut sender = with_window_of_10();
    // 1, 3 and 5 are lost; 8, 9 and 10 show it.
    assert_eq!(answer(&mut sender, 200 * MS, 1, &[(6, 11), (4, 5), (2, 3)]), [-1, -3, -5, 11, 12]);
    assert_eq!(sender.pipe(), 5);
    // The pipe's packets are the three retransmissions and the two new ones.
    assert_eq!(answer(&mut sender, 300 * MS, 3, &[(4, 5), (6, 11)]), [13]);
    assert_eq!(answer(&mut sender, 301 * MS, 11, &[]), [14, 15]);
    assert!(!sender.recovering());
}

#[test]
fn packets_out_of_order_by_two_are_not_lost() {
    let mut sender = with_window_of_10();
    assert_eq!(answer(&mut sender, 200 * MS, 1, &[(2, 3)]), [11]);
    assert_eq!(answer(&mut sender, 201 * MS, 1, &[(2, 4)]), [12]);
    assert_eq!(answer(&mut sender, 202 * MS, 4, &[]), [13, 14, 15]);
    assert!(!sender.recovering());
}

#[test]
fn after_a_timeout_what_was_reported_is_not_retransmitted() {
    let mut sender = with_window_of_10();
    answer(&mut sender, 200 * MS, 1, &[(2, 3)]);
    sender.on_timeout(2_000 * MS);
    assert_eq!(sent(&mut sender, 2_000 * MS), [-1]);
    assert_eq!(sender.pipe(), 1);
    assert_eq!(answer(&mut sender, 2_100 * MS, 3, &[]), [-3, -4, -5]);
    // The one that limited transmit sent does not count.
    assert_eq!(sender.threshold(), 5.0);
}

#[test]
fn a_second_timeout_of_a_packet_does_not_lower_the_threshold_again() {
    let mut sender = with_window_of_10();
    for round in 1..4 {
        sender.on_timeout(2_000 * round * MS);
        assert_eq!(sent(&mut sender, 2_000 * round * MS), [-1]);
        assert_eq!((sender.window(), sender.threshold()), (1.0, 5.0));
    }
    assert_eq!(sender.rto_ns(), 8_000 * MS);
    // The first answer's echo is of the last transmission: the timeout is known again.
    answer(&mut sender, 7_000 * MS, 2, &[]);
    assert_eq!(sender.rto_ns(), 1_000 * MS);
}

#[test]
fn the_window_does_not_grow_while_the_receiver_is_what_limits() {
    let config = TcpConfig { window_packets: 4, ..TcpConfig::cubic() };
    let mut sender = Standard::new(&config);
    sender.start();
    sent(&mut sender, 0);
    assert_eq!(answer(&mut sender, 100 * MS, 1, &[]), [1, 2, 3, 4]);
    let window = sender.window();
    for seq in 2..50 {
        assert_eq!(answer(&mut sender, (100 + seq) * MS, seq, &[]), [seq as i64 + 3]);
    }
    assert_eq!(sender.window(), window);
}

#[test]
fn it_stops_at_the_end_and_its_timer_too() {
    let config = TcpConfig { packets: Some(5), ..TcpConfig::new_reno() };
    let mut sender = Standard::new(&config);
    sender.start();
    sent(&mut sender, 0);
    assert_eq!(answer(&mut sender, 100 * MS, 1, &[]), [1, 2, 3, 4]);
    assert_eq!(answer(&mut sender, 200 * MS, 5, &[]), [] as [i64; 0]);
    assert_eq!(sender.deadline(), None);
}

/// PRR sends one packet for two that arrive, and a retransmission is lost once a packet has arrived that was sent after it.
#[test]
fn like_linux_the_window_comes_down_evenly_and_lost_retransmissions_are_found() {
    let mut sender = Standard::new(&TcpConfig { like: Like::Linux, ..TcpConfig::new_reno() });
    sender.start();
    sent(&mut sender, 0);
    answer(&mut sender, 100 * MS, 1, &[]);
    let mut arrives = |end: u64| answer(&mut sender, (200 + end) * MS, 1, &[(2, end)]);
    assert_eq!([arrives(3), arrives(4), arrives(5)], [vec![11], vec![12], vec![-1]]);
    let then: Vec<Vec<i64>> = (6..=10).map(&mut arrives).collect();
    assert_eq!(then, [vec![], vec![13], vec![], vec![14], vec![]]);
    // From the threshold on one for each.
    assert_eq!([arrives(11), arrives(12), arrives(13)], [vec![], vec![15], vec![16]]);
    // 13 was sent after the retransmission of 1.
    assert_eq!(arrives(14), [-1, 17]);
    assert_eq!((sender.window(), sender.recovering()), (5.0, true));
}

/// A sender of this flavour, like Linux's, whose packets 1 to 10 are in flight.
fn like_linux(config: TcpConfig) -> Standard {
    let mut sender = Standard::new(&TcpConfig { like: Like::Linux, ..config });
    sender.start();
    sent(&mut sender, 0);
    assert_eq!(answer(&mut sender, 100 * MS, 1, &[]), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    sender
}

#[test]
fn like_linux_the_window_comes_down_evenly_after_a_mark() {
    let mut sender = like_linux(TcpConfig::new_reno());
    let mut arrives = |end: u64| {
        let mut ack = Ack::new(end, 100 * MS, 40);
        ack.ecn_echo = end < 5;
        sender.on_ack((200 + end) * MS, &ack);
        sent(&mut sender, (200 + end) * MS)
    };
    // One for two that arrive, until what was out at the first mark is acknowledged; more marks change nothing.
    let then: Vec<Vec<i64>> = (2..=11).map(&mut arrives).collect();
    assert_eq!(then.concat(), [11, 12, 13, 14, 15]);
    assert_eq!(then[..4], [vec![11], vec![], vec![12], vec![]]);
    assert_eq!((sender.window(), sender.threshold()), (5.0, 5.0));
}

#[test]
fn like_linux_a_loss_after_a_mark_is_repaired_without_another_reduction() {
    let mut sender = like_linux(TcpConfig::new_reno());
    let mut ack = Ack::new(2, 100 * MS, 40);
    ack.ecn_echo = true;
    sender.on_ack(202 * MS, &ack);
    sent(&mut sender, 202 * MS);
    assert_eq!(sender.threshold(), 5.0);
    assert_eq!(answer(&mut sender, 203 * MS, 2, &[(3, 6)]), [-2]);
    assert_eq!((sender.recovering(), sender.threshold()), (true, 5.0));
    // What was out at the mark is repaired.
    answer(&mut sender, 300 * MS, 11, &[]);
    assert_eq!((sender.recovering(), sender.threshold()), (false, 5.0));
}

#[test]
fn like_linux_a_timeout_within_a_repair_does_not_lower_the_threshold_again() {
    let mut sender = like_linux(TcpConfig::new_reno());
    assert_eq!(answer(&mut sender, 200 * MS, 1, &[(2, 5)]), [-1, 11]);
    assert_eq!(sender.threshold(), 5.0);
    sender.on_timeout(900 * MS);
    assert_eq!((sender.window(), sender.threshold()), (1.0, 5.0));
}

#[test]
fn like_linux_a_second_repair_does_not_send_again_what_is_on_its_way() {
    let mut sender = like_linux(TcpConfig::new_reno());
    // 1 is lost, and 11, which is new in its repair; 12 to 14 show that.
    assert_eq!(answer(&mut sender, 200 * MS, 1, &[(2, 5)]), [-1, 11]);
    assert_eq!(answer(&mut sender, 201 * MS, 1, &[(2, 11)]), [12, 13, 14]);
    assert!(answer(&mut sender, 300 * MS, 1, &[(12, 15), (2, 11)]).starts_with(&[-1, -11]));
    // All that was out at the first loss has arrived: 11 has to be repaired still, and is on its way.
    let again = answer(&mut sender, 310 * MS, 11, &[(12, 15)]);
    assert!(sender.recovering() && !again.contains(&-11), "{again:?}");
}

/// A sender with BBR whose packet 1 was lost, and whose retransmission of it too, as the arrival of what was sent after it shows.
/// Returns its window then.
fn bbr_that_loses_a_packet_twice(like: Like) -> f64 {
    let mut sender = Standard::new(&TcpConfig { like, ..TcpConfig::bbr() });
    sender.start();
    sent(&mut sender, 0);
    answer(&mut sender, 100 * MS, 1, &[]);
    (1..20).for_each(|n| drop(sent(&mut sender, (100 + n) * MS)));
    assert_eq!(answer(&mut sender, 200 * MS, 1, &[(2, 6)])[0], -1);
    (1..20).for_each(|n| drop(sent(&mut sender, (200 + n) * MS)));
    let last = sender.sent_end - 1;
    answer(&mut sender, 300 * MS, 1, &[(2, last)]);
    sender.window()
}

#[test]
fn like_linux_a_retransmission_that_is_lost_again_counts_as_a_loss_for_bbr() {
    let windows = [Like::Linux, Like::Rfc, Like::Ns3].map(bbr_that_loses_a_packet_twice);
    assert_eq!(windows, [17.0, 18.0, 18.0]);
}
