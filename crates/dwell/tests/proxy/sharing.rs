//! What streams to the same proxy have in common: connections that are ready.

use crate::pair::{Pair, echo, exchange, wait_until};

/// With others made in place of those that streams have had, each stream would cost a handshake.
#[test]
fn streams_that_end_give_their_connections_back() {
    let pair = Pair::new(echo(), &[], &["--pool", "4"]);
    let connections = || pair.statuses()[0].connections.clone();
    wait_until("all are ready", || connections().warm == 4);
    let made = connections().made;
    for _ in 0..10 {
        assert_eq!(exchange(pair.connect(), b"hello").unwrap(), b"hello");
        wait_until("it is back", || connections().warm == 4);
    }
    let connections = connections();
    assert_eq!((connections.made, connections.reused), (made, 10), "{connections:#?}");
}
