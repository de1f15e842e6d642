//! A sender, and receivers that are none.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

use dwell_base::Rng;

use super::*;
use crate::message::Reason;
use crate::transfer::SILENCE_MAX;
use crate::transfer::blocks::Have;

/// With room for a context, and for a model.
const MEMORY: u64 = 256 << 20;

/// A file that is removed with it.
struct Data(PathBuf);

impl Data {
    fn new(name: &str, len: usize) -> Self {
        let path = std::env::temp_dir().join(format!("dwell-send-{}-{name}", std::process::id()));
        let mut rng = Rng::from_seed(7);
        let bytes: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_be_bytes()).collect();
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Sends a file to somebody who does as `receive` says, and holds the connection that it returns; what comes of it.
fn sent(
    data: &Data,
    silence: Duration,
    receive: impl FnOnce(TcpStream) -> Option<TcpStream> + std::marker::Send + 'static,
) -> Result<Summary, TransferError> {
    sent_to(data, silence, Security::None, |listener| receive(listener.accept().unwrap().0))
}

/// The same to somebody who lets in whom he likes.
fn sent_to<T: std::marker::Send + 'static>(
    data: &Data,
    silence: Duration,
    security: Security,
    receive: impl FnOnce(TcpListener) -> T + std::marker::Send + 'static,
) -> Result<Summary, TransferError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string().parse().unwrap();
    let receiver = thread::spawn(move || receive(listener));
    let result = send(job(data, to, security, silence), |_| {});
    receiver.join().unwrap();
    result
}

fn job(data: &Data, to: Target, security: Security, silence: Duration) -> Send {
    Send {
        source: Source::files(std::slice::from_ref(&data.0), false).unwrap(),
        is_quick: false,
        memory_bytes_max: MEMORY,
        to,
        security,
        goes_early: true,
        compressing: Compression::default(),
        connect: Duration::from_secs(60),
        silence,
    }
}

fn say(stream: &mut TcpStream, message: &Message) {
    stream.write_all(&message.encode()).unwrap();
}

/// Answers as a receiver does that has nothing yet.
fn accept(stream: &mut TcpStream) {
    stream.write_all(&Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "").encode()).unwrap();
    say(stream, &Message::Accept { asks: false, window_log2: 0 });
}

/// More than connections hold.
const LONG: usize = 24 << 20;

/// Its cable was pulled: nothing is read, nothing is said, and nothing is closed.
#[test]
fn a_receiver_that_is_cut_off_is_given_up() {
    for len in [1000, LONG] {
        let data = Data::new(&format!("cut-{len}"), len);
        let result = sent(&data, Duration::from_millis(300), |mut stream| {
            accept(&mut stream);
            Some(stream)
        });
        let said = result.unwrap_err().to_string();
        assert!(said.contains("the receiver has said nothing for 0.3 s"), "{len}: {said}");
    }
}

/// It writes to a disk that takes its time.
#[test]
fn a_receiver_that_says_that_it_is_there_is_waited_for() {
    let silence = Duration::from_secs(1);
    let works = move |stream: &mut TcpStream| {
        accept(stream);
        let begin = std::time::Instant::now();
        while begin.elapsed() < silence * 2 {
            say(stream, &Message::Alive);
            thread::sleep(silence / 50);
        }
    };
    let data = Data::new("waited-for", 1000);
    let result = sent(&data, silence, move |mut stream| {
        works(&mut stream);
        say(&mut stream, &Message::Done { left_out: 0, kept: 0 });
        Some(stream)
    });
    assert_eq!(result.unwrap().files, 1);
    // Here it takes nothing more meanwhile.
    let data = Data::new("waited-for-long", LONG);
    let result = sent(&data, silence, move |mut stream| {
        works(&mut stream);
        say(&mut stream, &Message::Refused(Reason::Other, "the disk is broken".to_owned()));
        Some(stream)
    });
    let said = result.unwrap_err().to_string();
    assert_eq!(said, "the receiver gave up: the disk is broken");
}

/// It refuses the hello, and closes without a look at what has come behind it, which resets the connection.
#[test]
fn an_older_receiver_is_named_as_such() {
    for len in [1000, 900_000, LONG] {
        let data = Data::new(&format!("older-{len}"), len);
        let result = sent(&data, SILENCE_MAX, |mut stream| {
            stream.read_exact(&mut [0; 6]).unwrap();
            let why = "this end speaks version 3, the other one 4: use the same dwell at both ends";
            stream.write_all(&Hello::refusal(Purpose::File, why).encode()).unwrap();
            // All of it is on its way then, or waits.
            thread::sleep(Duration::from_millis(50));
            None
        });
        let said = result.unwrap_err().to_string();
        assert!(said.contains("use the same dwell at both ends"), "{len}: {said}");
    }
}

/// The versions of the head that a receiver with this hello is sent, and of what comes behind it, if it knows heads; each with the
/// codecs of models in it.
fn versions_for(hello: Vec<u8>, knows_heads: bool, name: &str) -> Vec<(u8, u8)> {
    let data = Data::new(name, 4 << 20);
    let (found, versions) = std::sync::mpsc::channel();
    let result = sent(&data, SILENCE_MAX, move |mut stream| {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        let mut next = |stream: &mut TcpStream| loop {
            if let Some(at) = bytes.windows(8).position(|bytes: &[u8]| bytes.starts_with(b"dws")) {
                let found = (bytes[at + 3], bytes[at + 7] & 0xc0);
                bytes.drain(..at + 8);
                break found;
            }
            let len = stream.read(&mut piece).unwrap();
            assert!(len > 0, "no stream came");
            bytes.extend_from_slice(&piece[..len]);
        };
        // It has said nothing yet.
        found.send(next(&mut stream)).unwrap();
        stream.write_all(&hello).unwrap();
        say(&mut stream, &Message::Accept { asks: false, window_log2: 0 });
        if knows_heads {
            found.send(next(&mut stream)).unwrap();
        }
        say(&mut stream, &Message::Refused(Reason::Other, "that will do".to_owned()));
        Some(stream)
    });
    assert!(result.is_err());
    versions.iter().collect()
}

/// Earlier builds do not say that they know models of mix, and are sent none; nor before that any; before that they did not say that they know heads, or contexts.
#[test]
fn a_receiver_is_sent_the_version_that_it_knows() {
    let of_wish =
        |wish| Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, wish).with_window(23).with_model(24);
    let bytes = of_wish("").encode();
    assert_eq!(versions_for(bytes.clone(), true, "version-4-time"), [(2, 0), (4, 0x40)]);
    // Such models are worth it to save bytes only.
    let hello = of_wish("bytes");
    assert_eq!(versions_for(hello.encode(), true, "version-4"), [(2, 0), (4, 0xc0)]);
    let earlier = Hello { features: hello.features & !Hello::MIXED_MODELS, ..hello.clone() };
    assert_eq!(versions_for(earlier.encode(), true, "version-4-ppm"), [(2, 0), (4, 0x40)]);
    let without = |fields: usize| {
        let mut bytes = bytes.clone();
        bytes.truncate(bytes.len() - fields);
        bytes[5] -= fields as u8;
        bytes
    };
    assert_eq!(versions_for(without(1), true, "version-3"), [(2, 0), (3, 0)]);
    assert_eq!(versions_for(without(2), false, "version-3-without-features"), [(2, 0)]);
    assert_eq!(versions_for(without(3), false, "version-2"), [(2, 0)]);
}

/// A receiver.
#[derive(Clone, Copy)]
struct Receiving {
    features: u8,
    asks: bool,
    /// It answers when it has seen all of the first stream, or only the first bytes.
    answers_late: bool,
}

/// It takes all that comes, and hands it out stream by stream.
fn received(stream: &mut TcpStream, hello: &Hello, how: Receiving) -> (Vec<Vec<u8>>, Option<Rest>) {
    use dwell_stream::{Decompressors, Limits, Receiver};
    let answer = |stream: &mut TcpStream| {
        stream.write_all(&hello.encode()).unwrap();
        say(stream, &Message::Accept { asks: how.asks, window_log2: 20 });
    };
    let mut bytes = Vec::new();
    let more = |stream: &mut TcpStream, bytes: &mut Vec<u8>| {
        let mut piece = [0; 65_536];
        let len = stream.read(&mut piece).unwrap();
        assert!(len > 0, "it ended too early");
        bytes.extend_from_slice(&piece[..len]);
    };
    while bytes.len() < 200 {
        more(stream, &mut bytes);
    }
    if !how.answers_late {
        answer(stream);
    }
    let (_, used) = Hello::decode(&bytes).unwrap().unwrap();
    bytes.drain(..used);
    let (offer, used) = Message::decode(&bytes).unwrap().unwrap();
    assert!(matches!(offer, Message::Offer(Offer { is_eager: true, .. })), "{offer:?}");
    bytes.drain(..used);
    let (mut streams, mut rest) = (Vec::new(), None);
    loop {
        let mut limits = Limits::in_order();
        (limits.window_log, limits.model_log) = (hello.window_log, hello.model_log);
        limits.mixed_models = hello.features & Hello::MIXED_MODELS != 0;
        let (mut receiver, mut decompress) = (Receiver::new(limits), Decompressors::new());
        let mut data = Vec::new();
        while !receiver.is_finished() {
            if bytes.is_empty() {
                more(stream, &mut bytes);
            }
            let taken = receiver.feed(&bytes, &mut decompress).unwrap();
            bytes.drain(..taken);
            data.extend_from_slice(receiver.data());
            receiver.consume(receiver.data().len());
        }
        streams.push(data);
        if how.answers_late && streams.len() == 1 {
            answer(stream);
        }
        if hello.features & Hello::HEADS == 0 || streams.len() == 2 {
            return (streams, rest);
        }
        while bytes.len() < 4 {
            more(stream, &mut bytes);
        }
        let (Message::Rest(said), used) = Message::decode(&bytes).unwrap().unwrap() else {
            panic!("no rest");
        };
        bytes.drain(..used);
        rest = Some(said);
        match said {
            Rest::Nothing => return (streams, rest),
            // Whatever it asks, nothing is there.
            Rest::Again => say(stream, &Message::Have(Have::Nothing)),
            Rest::GoesOn => {}
        }
    }
}

/// What comes through of a file of this length, and what is said behind the head.
fn through(how: Receiving, len: usize, name: &str) -> (Vec<Vec<u8>>, Option<Rest>) {
    let data = Data::new(name, len);
    let (found, streams) = std::sync::mpsc::channel();
    let result = sent(&data, SILENCE_MAX, move |mut stream| {
        let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "").with_window(20);
        let hello = Hello { features: how.features, ..hello };
        found.send(received(&mut stream, &hello, how)).unwrap();
        say(&mut stream, &Message::Done { left_out: 0, kept: 0 });
        Some(stream)
    });
    assert_eq!(result.unwrap().files, 1, "{name}");
    streams.recv().unwrap()
}

#[test]
fn a_head_goes_on_or_does_not_count() {
    // What comes before has the names and times of the files, which differ.
    let tail = |records: &[u8], len: usize| records[records.len() - len..].to_vec();
    let knows = Hello::OPENING | Hello::HEADS;
    let how = Receiving { features: knows, asks: false, answers_late: false };
    // It knows no heads: all of it is one.
    let unknown = Receiving { features: Hello::OPENING, ..how };
    let (whole, rest) = through(unknown, LONG, "head-unknown");
    assert_eq!((whole.len(), rest), (1, None));
    let whole = tail(&whole[0], LONG);
    // The answer comes before all of it is on its way.
    let (parts, rest) = through(how, LONG, "head-goes-on");
    assert_eq!((parts.len(), rest), (2, Some(Rest::GoesOn)));
    assert!(tail(&parts.concat(), LONG) == whole);
    let (parts, rest) = through(Receiving { asks: true, ..how }, LONG, "head-is-dropped");
    assert_eq!((parts.len(), rest), (2, Some(Rest::Again)));
    assert!(tail(&parts[1], LONG) == whole);
    // And after that: then nothing follows, or all of it again.
    let (short, late) = (3 << 20, Receiving { answers_late: true, ..how });
    let whole = tail(&through(unknown, short, "head-unknown-short").0[0], short);
    let (parts, rest) = through(late, short, "head-is-all");
    assert_eq!((parts.len(), rest), (1, Some(Rest::Nothing)));
    assert!(tail(&parts[0], short) == whole);
    let (parts, rest) = through(Receiving { asks: true, ..late }, short, "head-was-all");
    assert_eq!((parts.len(), rest), (2, Some(Rest::Again)));
    assert!(tail(&parts[1], short) == whole);
}

/// What takes long is not begun before it is known what is there.
#[test]
fn what_is_longer_than_64_mib_waits_for_the_answer() {
    for (len, expected) in [((64 << 20) + 1, false), (64 << 20, true)] {
        let data = Data::new(&format!("head-{expected}"), 0);
        // Nothing is on the disk.
        fs::File::options().write(true).open(&data.0).unwrap().set_len(len).unwrap();
        let (found, is_eager) = std::sync::mpsc::channel();
        let result = sent(&data, SILENCE_MAX, move |mut stream| {
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            let offer = loop {
                let len = stream.read(&mut piece).unwrap();
                assert!(len > 0, "no offer came");
                bytes.extend_from_slice(&piece[..len]);
                let Some((_, used)) = Hello::decode(&bytes).unwrap() else { continue };
                if let Some((message, _)) = Message::decode(&bytes[used..]).unwrap() {
                    break message;
                }
            };
            let Message::Offer(offer) = offer else { panic!("{offer:?}") };
            found.send(offer.is_eager).unwrap();
            stream
                .write_all(&Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "").encode())
                .unwrap();
            say(&mut stream, &Message::Refused(Reason::Other, "that will do".to_owned()));
            Some(stream)
        });
        assert!(result.is_err());
        assert_eq!(is_eager.recv().unwrap(), expected, "{len}");
    }
}

/// The example of the document, as a receiver reads it.
#[test]
fn a_head_is_as_the_document_has_it() {
    use dwell_stream::{Decompressors, Limits, Receiver};
    let document = include_str!("../../../../../docs/stream-wire.md");
    let (_, behind) = document.split_once("```hex head\n").unwrap();
    let (block, _) = behind.split_once("```").unwrap();
    let bytes = block.lines().flat_map(|line| line.split('#').next().unwrap().split_whitespace());
    let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut rest = &bytes[..];
    let message = |rest: &mut &[u8]| {
        let (message, used) = Message::decode(rest).unwrap().unwrap();
        assert_eq!(message.encode(), rest[..used]);
        *rest = &rest[used..];
        message
    };
    let stream = |rest: &mut &[u8]| {
        let (mut receiver, mut decompress) =
            (Receiver::new(Limits::in_order()), Decompressors::new());
        let taken = receiver.feed(rest, &mut decompress).unwrap();
        *rest = &rest[taken..];
        assert_eq!(receiver.end(), Ok(()));
        receiver.data().to_vec()
    };
    let Message::Offer(offer) = message(&mut rest) else { panic!("no offer") };
    assert!(offer.is_eager && !offer.is_short() && offer.is_worth_a_head(), "{offer:?}");
    assert_eq!((offer.name.as_str(), offer.bytes, offer.files), ("a", Some(2_000_000), 1));
    let head = stream(&mut rest);
    assert_eq!(message(&mut rest), Message::Rest(Rest::GoesOn));
    assert_eq!([head, stream(&mut rest)], [b"he".to_vec(), b"llo".to_vec()]);
    assert!(rest.is_empty());
}

mod early {
    use dwell_base::Secret;

    use super::*;
    use crate::security::Acceptor;

    fn psk(byte: u8) -> Security {
        Security::Psk(Secret::new([byte; 32]))
    }

    fn hello() -> Hello {
        Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "")
    }

    /// Waits until more has come than TLS's first record: on loopback a handshake may be over before anything has gone early.
    async fn await_early(tcp: &tokio::net::TcpStream) {
        let mut bytes = [0; 4096];
        for _ in 0..20_000 {
            let len = tcp.peek(&mut bytes).await.unwrap();
            let record = 5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
            if len >= 5 && len > record {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("nothing goes early");
    }

    /// Lets so many in, one after the other, and does as a receiver does with the last one; what became of each.
    fn welcome(
        listener: TcpListener,
        acceptor: &Acceptor,
        number: usize,
        is_early: bool,
    ) -> Vec<Result<(), String>> {
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut outcomes = Vec::new();
            for _ in 0..number {
                let (tcp, peer) = listener.accept().await.unwrap();
                if is_early && outcomes.is_empty() {
                    await_early(&tcp).await;
                }
                let (tls, time) = (Some(acceptor.clone()), Duration::from_secs(20));
                let accepted = Carrier::accept(tcp, peer, tls, &hello(), time).await;
                outcomes.push(accepted.as_ref().map(drop).map_err(ToString::to_string));
                let Ok(mut carrier) = accepted else { continue };
                let offer = carrier.read_message().await.unwrap();
                assert!(matches!(offer, Message::Offer(offer) if offer.is_eager));
                carrier.say(&Message::Accept { asks: false, window_log2: 0 }).await.unwrap();
                carrier.say(&Message::Done { left_out: 0, kept: 0 }).await.unwrap();
                carrier.drain().await;
            }
            outcomes
        })
    }

    #[test]
    fn it_is_taken_by_who_has_the_key() {
        let data = Data::new("early", 1000);
        let acceptor = security::server(&psk(1), Purpose::File).unwrap().unwrap();
        let sent = sent_to(&data, SILENCE_MAX, psk(1), move |listener| {
            assert_eq!(welcome(listener, &acceptor, 1, true), [Ok(())]);
        });
        assert_eq!(sent.unwrap().files, 1);
    }

    /// An earlier program takes it for broken TLS: it is sent all of it once more, behind a handshake.
    #[test]
    fn who_knows_none_is_called_again() {
        let data = Data::new("early-unknown", 1000);
        let mut acceptor = security::server(&psk(1), Purpose::File).unwrap().unwrap();
        acceptor.early = None;
        let sent = sent_to(&data, SILENCE_MAX, psk(1), move |listener| {
            let outcomes = welcome(listener, &acceptor, 2, true);
            assert!(outcomes[0].is_err() && outcomes[1].is_ok(), "{outcomes:?}");
        });
        assert_eq!(sent.unwrap().files, 1);
    }

    /// It answers what TLS's client says first before it has read on, so that the handshake ends well for the sender.
    fn answers_at_first(mut stream: TcpStream, acceptor: &Acceptor) -> rustls::Error {
        let mut tls = rustls::ServerConnection::new(Arc::clone(&acceptor.config)).unwrap();
        let mut hello = vec![0; 5];
        stream.read_exact(&mut hello).unwrap();
        let len = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
        hello.resize(5 + len, 0);
        stream.read_exact(&mut hello[5..]).unwrap();
        tls.read_tls(&mut &hello[..]).unwrap();
        tls.process_new_packets().unwrap();
        // Early data are there.
        stream.peek(&mut [0]).unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
        thread::sleep(Duration::from_millis(50));
        loop {
            tls.read_tls(&mut stream).unwrap();
            if let Err(error) = tls.process_new_packets() {
                tls.write_tls(&mut stream).unwrap();
                return error;
            }
        }
    }

    #[test]
    fn who_finds_out_late_that_it_knows_none_is_called_again_too() {
        for len in [1000, 900_000] {
            let data = Data::new(&format!("early-late-{len}"), len);
            let mut acceptor = security::server(&psk(1), Purpose::File).unwrap().unwrap();
            acceptor.early = None;
            let sent = sent_to(&data, SILENCE_MAX, psk(1), move |listener| {
                let error = answers_at_first(listener.accept().unwrap().0, &acceptor);
                assert!(matches!(error, rustls::Error::InvalidMessage(_)), "{error}");
                assert_eq!(welcome(listener, &acceptor, 1, false), [Ok(())]);
            });
            assert_eq!(sent.unwrap().files, 1, "{len}");
        }
    }

    /// As something on the way that lets no other records than TLS's pass.
    #[test]
    fn who_is_not_answered_in_half_the_time_calls_again() {
        let data = Data::new("early-silent", 1000);
        let acceptor = security::server(&psk(1), Purpose::File).unwrap().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string().parse().unwrap();
        let receiver = thread::spawn(move || {
            let _silent = listener.accept().unwrap();
            welcome(listener, &acceptor, 1, false)
        });
        let mut job = job(&data, to, psk(1), SILENCE_MAX);
        job.connect = Duration::from_secs(6);
        assert_eq!(send(job, |_| {}).unwrap().files, 1);
        assert_eq!(receiver.join().unwrap(), [Ok(())]);
    }

    #[test]
    fn another_key_is_named_as_ever_and_not_tried_again() {
        let data = Data::new("early-key", 1000);
        let acceptor = security::server(&psk(2), Purpose::File).unwrap().unwrap();
        let sent = sent_to(&data, SILENCE_MAX, psk(1), move |listener| {
            let outcomes = welcome(listener, &acceptor, 1, true);
            assert!(outcomes[0].as_ref().is_err_and(|why| why.contains("keys")), "{outcomes:?}");
        });
        assert!(matches!(sent, Err(TransferError::OtherKey { .. })), "{sent:?}");
    }

    /// It says why before all has been sent, and what it has said is not taken for an earlier program's failing.
    #[test]
    fn who_refuses_while_more_is_sent_is_heard() {
        let data = Data::new("early-refused", 1 << 20);
        let acceptor = security::server(&psk(1), Purpose::File).unwrap().unwrap();
        let sent = sent_to(&data, SILENCE_MAX, psk(1), move |listener| {
            listener.set_nonblocking(true).unwrap();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (tcp, peer) = listener.accept().await.unwrap();
                // The sender is held up.
                socket2::SockRef::from(&tcp).set_recv_buffer_size(4096).unwrap();
                await_early(&tcp).await;
                let (tls, time) = (Some(acceptor), Duration::from_secs(20));
                let mut carrier = Carrier::accept(tcp, peer, tls, &hello(), time).await.unwrap();
                carrier.read_message().await.unwrap();
                let refused = Message::Refused(Reason::Other, "the name is taken".to_owned());
                carrier.say(&refused).await.unwrap();
                // Closed with something unread, it would be reset, and what was said could be lost.
                carrier.drain().await;
            });
        });
        let said = sent.unwrap_err().to_string();
        assert!(said.contains("the name is taken"), "{said}");
    }
}
