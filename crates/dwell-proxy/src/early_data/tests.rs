use proptest::prelude::*;

use super::*;

fn key(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

/// A record of TLS with so many bytes.
fn tls_record(len: usize) -> Vec<u8> {
    let [high, low] = (len as u16).to_be_bytes();
    [&[22, 3, 3, high, low][..], &vec![7; len]].concat()
}

/// What goes over the wire: records of TLS, of ours between them, and what follows the end; and the claim.
fn wire(pieces: &[Vec<u8>], tls: &[usize], later: &[u8]) -> (Vec<u8>, Vec<u8>, [u8; CLAIM_BYTES]) {
    let mut sealer = Sealer::new(&key(1), EARLY_BYTES_MAX).unwrap();
    let (mut wire, mut only_tls) = (Vec::new(), Vec::new());
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(&len) = tls.get(index) {
            wire.extend_from_slice(&tls_record(len));
            only_tls.extend_from_slice(&tls_record(len));
        }
        assert_eq!(sealer.seal(piece, &mut wire).unwrap(), piece.len());
    }
    let claim = sealer.end(&mut wire).unwrap().unwrap();
    wire.extend_from_slice(later);
    only_tls.extend_from_slice(later);
    (wire, only_tls, claim)
}

fn split(wire: &[u8], key: Secret, piece: usize) -> (Splitter, Vec<u8>) {
    let (mut splitter, mut tls) = (Splitter::new(key), Vec::new());
    wire.chunks(piece).for_each(|piece| splitter.feed(piece, &mut tls));
    (splitter, tls)
}

proptest! {
    #[test]
    fn what_goes_early_comes_and_tls_is_as_it_was(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2000), 1..6),
        tls in prop::collection::vec(0usize..3000, 0..6),
        later in prop::collection::vec(any::<u8>(), 0..100),
        piece in 1usize..4000,
    ) {
        let (wire, only_tls, claim) = wire(&pieces, &tls, &later);
        let (splitter, got) = split(&wire, key(1), piece);
        prop_assert_eq!(got, only_tls);
        prop_assert_eq!(splitter.claimed(&claim).unwrap(), pieces.concat());
    }

    /// Nothing that was changed, left out, repeated or cut off is taken for what was sent.
    #[test]
    fn nothing_else_is_claimed(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..4),
        at in any::<prop::sample::Index>(),
        change in 1u8..,
        piece in 1usize..500,
    ) {
        let (wire, _, claim) = wire(&pieces, &[], &[]);
        let mut changed = wire.clone();
        changed[at.index(wire.len())] ^= change;
        let (splitter, _) = split(&changed, key(1), piece);
        prop_assert_eq!(splitter.claimed(&claim), Err(EarlyDataError));
        let (splitter, _) = split(&wire[..at.index(wire.len())], key(1), piece);
        prop_assert_eq!(splitter.claimed(&claim), Err(EarlyDataError));
    }

    #[test]
    fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..400), piece in 1usize..50) {
        let (whole, pieces) = (split_early(&key(1), &bytes, 400), split_early(&key(1), &bytes, piece));
        prop_assert_eq!(whole, pieces);
    }
}

/// A recording that is sent once more, with a handshake of somebody else who has the key.
#[test]
fn what_another_connection_has_sent_is_not_taken() {
    let (recorded, _, _) = wire(&[vec![1; 100]], &[], &[]);
    let (_, _, claim) = wire(&[vec![1; 100]], &[], &[]);
    let (splitter, _) = split(&recorded, key(1), 50);
    assert_eq!(splitter.claimed(&claim), Err(EarlyDataError));
}

#[test]
fn nothing_is_kept_of_another_key_and_tls_goes_on() {
    let (wire, only_tls, claim) = wire(&[vec![1; 9000], vec![2; 9000]], &[500, 60], &[]);
    let (splitter, tls) = split(&wire, key(2), 1000);
    assert_eq!(tls, only_tls);
    assert_eq!((splitter.bytes.capacity(), splitter.body.capacity()), (0, 0));
    assert!(splitter.has_begun());
    assert_eq!(splitter.claimed(&claim), Err(EarlyDataError));
}

#[test]
fn no_more_goes_early_than_the_other_end_keeps() {
    let mut sealer = Sealer::new(&key(1), EARLY_BYTES_MAX).unwrap();
    let (mut wire, mut left) = (Vec::new(), vec![3; EARLY_BYTES_MAX + 1]);
    loop {
        let len = sealer.seal(&left, &mut wire).unwrap();
        if len == 0 {
            break;
        }
        left.drain(..len);
    }
    assert_eq!(left.len(), 1);
    // Who sends more all the same is not heard.
    sealer.bytes = 0;
    let mut more = wire.clone();
    sealer.seal(&left, &mut more).unwrap();
    let (splitter, _) = split(&more, key(1), 10_000);
    assert!(matches!(splitter.state, State::Rejected));
    assert!(splitter.bytes.is_empty());
    let (splitter, _) = split(&wire, key(1), 10_000);
    assert_eq!(splitter.bytes.len(), EARLY_BYTES_MAX);
}

/// Without the key as well as with it: TLS finds a broken record then, and closes.
#[test]
fn who_goes_on_with_records_is_left_to_tls() {
    for byte in [1, 2] {
        let mut sealer = Sealer::new(&key(1), EARLY_BYTES_MAX).unwrap();
        let mut wire = Vec::new();
        for _ in 0..20 {
            sealer.bytes = 0;
            sealer.seal(&[9; DATA_BYTES_MAX], &mut wire).unwrap();
        }
        let (splitter, tls) = split(&wire, key(byte), 1000);
        assert!(matches!(splitter.state, State::Rejected));
        assert_eq!(tls[0], kind::DATA);
        let taken = wire.len() - tls.len();
        assert!((RECORDS_BYTES_MAX - DATA_BYTES_MAX..=RECORDS_BYTES_MAX).contains(&(taken + 50)));
    }
}

#[test]
fn where_nothing_comes_early_nothing_is_held_back() {
    let wire = [tls_record(10), tls_record(0), vec![22, 3, 3]].concat();
    let (splitter, mut tls) = split(&wire, key(1), 7);
    assert!(!splitter.has_begun());
    tls.extend_from_slice(&splitter.into_rest());
    assert_eq!(tls, wire);
}

/// Made by another program, from the description in docs/proxy.md.
#[test]
fn it_is_as_described() {
    let sealed = &include_bytes!("../../../../fuzz/corpus/proxy_early/sealed")[1..];
    let (tls, bytes) = split_early(&key(7), sealed, 1000);
    assert_eq!(bytes, b"helloworld".len());
    assert!(tls.ends_with(b"ttttwhat follows"));
}
