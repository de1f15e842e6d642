//! The attacks, by name.

mod authenticated;
mod contexts;
mod flood;
mod handshake;
mod idle;
mod liars;
pub(crate) mod local;
mod models;
mod proxy;

use crate::context::Context;
use crate::row::Row;

/// An attack.
pub(crate) struct Attack {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its description, in a sentence.
    pub(crate) about: &'static str,
    /// Runs it.
    pub(crate) run: fn(&mut Context, &'static str) -> anyhow::Result<Row>,
    /// True if it is among those that run with every change.
    pub(crate) is_quick: bool,
}

/// All there are, in the order of the table.
pub(crate) const ALL: &[Attack] = &[
    Attack {
        name: "bombs",
        about: "a peer sends 20 datagrams a second that restore to 67,000 packets each",
        run: authenticated::bombs,
        is_quick: true,
    },
    Attack {
        name: "records",
        about: "a peer sends records of every type with hostile lengths, counts and labels",
        run: authenticated::records,
        is_quick: true,
    },
    Attack {
        name: "reports",
        about: "a peer lies 200 times a second about what it got, while the server sends to it",
        run: liars::reports,
        is_quick: true,
    },
    Attack {
        name: "retransmission",
        about: "a peer asks 200 times a second for 64 datagrams that it has got",
        run: liars::retransmission,
        is_quick: false,
    },
    Attack {
        name: "context-starts",
        about: "a peer begins generations in every record: cold, from claims, from all of the ring",
        run: contexts::starts,
        is_quick: true,
    },
    Attack {
        name: "context-numbers",
        about: "a peer sends wrong generations and numbers, and fills what waits for missing ones",
        run: contexts::numbers,
        is_quick: true,
    },
    Attack {
        name: "context-losses",
        about: "a peer lets a generation end in each of 16 contexts, 5,000 times a second",
        run: contexts::losses,
        is_quick: true,
    },
    Attack {
        name: "context-bombs",
        about: "a peer sends batches that restore to 900 times their length, or cost most to decode",
        run: contexts::bombs,
        is_quick: true,
    },
    Attack {
        name: "context-reports",
        about: "a peer lies about 16 contexts 200 times a second, while the server sends through them",
        run: contexts::reports,
        is_quick: true,
    },
    Attack {
        name: "context-requests",
        about: "a peer asks 200 times a second for 64 datagrams with batches of contexts again",
        run: contexts::requests,
        is_quick: false,
    },
    Attack {
        name: "models",
        about: "a peer has noise learned by models, from the longest bases, and batches of 16 KiB predicted",
        run: models::noise,
        is_quick: true,
    },
    Attack {
        name: "mixed-models",
        about: "a peer has noise learned by models that mix contexts, and long batches predicted by them",
        run: models::mixed_noise,
        is_quick: true,
    },
    Attack {
        name: "model-changes",
        about: "a peer begins another model in every record, of ppm and mix, with other memory and too much",
        run: models::alternating,
        is_quick: true,
    },
    Attack {
        name: "model-offers",
        about: "a peer offers to take models of 64 MiB in 16 contexts, and lets each generation end",
        run: models::offers,
        is_quick: true,
    },
    Attack {
        name: "mixed-offers",
        about: "the same to a hub whose codec is mix: models that mix contexts, of 64 MiB in 16 contexts",
        run: models::mixed_offers,
        is_quick: false,
    },
    Attack {
        name: "peers",
        about: "63 peers beside the honest one, each with packets and new sessions",
        run: liars::peers,
        is_quick: false,
    },
    Attack {
        name: "clocks",
        about: "a peer whose clock jumps by hours, years and decades asks for new sessions",
        run: liars::clocks,
        is_quick: false,
    },
    Attack {
        name: "forged",
        about: "100,000 datagrams a second in the honest peer's name, sealed by nobody",
        run: flood::forged,
        is_quick: true,
    },
    Attack {
        name: "replayed",
        about: "100,000 datagrams a second of the honest peer, captured before and sent again",
        run: flood::replayed,
        is_quick: false,
    },
    Attack {
        name: "spoofed",
        about: "100,000 datagrams a second from as many addresses",
        run: flood::spoofed,
        is_quick: false,
    },
    Attack {
        name: "mutated",
        about: "100,000 datagrams a second of the honest peer with changed bits and lengths",
        run: flood::mutated,
        is_quick: false,
    },
    Attack {
        name: "hellos",
        about: "100,000 hellos a second that no key opens, at a hub with 16 pre-shared keys",
        run: flood::hellos,
        is_quick: false,
    },
    Attack {
        name: "initiations",
        about: "100,000 initiations a second with the right first MAC, from as many addresses",
        run: handshake::initiations,
        is_quick: false,
    },
    Attack {
        name: "starvation",
        about: "60 addresses answer to cookies and ask 3,000 times a second; the honest relay restarts",
        run: handshake::starvation,
        is_quick: true,
    },
    Attack {
        name: "steal",
        about: "another user of the hub's machine binds the relay's port to take its datagrams",
        run: local::steal,
        is_quick: true,
    },
    Attack {
        name: "silent",
        about: "300 silent connections a second to the egress proxy, 1,000 of them held",
        run: proxy::silent,
        is_quick: true,
    },
    Attack {
        name: "burst-1000",
        about: "1,000 honest connections at once",
        run: proxy::burst_1000,
        is_quick: true,
    },
    Attack {
        name: "burst-5000",
        about: "5,000 honest connections at once",
        run: proxy::burst_5000,
        is_quick: false,
    },
    Attack {
        name: "idle",
        about: "10,000 clients of the ingress proxy that send a byte a second, or nothing",
        run: idle::idle,
        is_quick: false,
    },
    Attack {
        name: "resets",
        about: "1,000 connections a second that are reset at once, at both proxies",
        run: proxy::resets,
        is_quick: false,
    },
    Attack {
        name: "stream-bombs",
        about: "40 streams of zeros to a target that does not read, with --memory-max",
        run: proxy::bombs,
        is_quick: false,
    },
    Attack {
        name: "greedy",
        about: "a stream each way that takes all it can, beside honest and many short ones",
        run: proxy::greedy,
        is_quick: false,
    },
];
