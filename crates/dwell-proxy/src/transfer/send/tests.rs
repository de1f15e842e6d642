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
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string().parse().unwrap();
    let receiver = thread::spawn(move || receive(listener.accept().unwrap().0));
    let job = Send {
        source: Source::files(std::slice::from_ref(&data.0), false).unwrap(),
        is_quick: false,
        memory_bytes_max: MEMORY,
        to,
        security: Security::None,
        compressing: Compression::default(),
        connect: Duration::from_secs(60),
        silence,
    };
    let result = send(job, |_| {});
    receiver.join().unwrap();
    result
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

/// The version of the stream that a receiver with this hello is sent.
fn version_for(hello: Vec<u8>, name: &str) -> u8 {
    let data = Data::new(name, 2 << 20);
    let (versions, version) = std::sync::mpsc::channel();
    let result = sent(&data, SILENCE_MAX, move |mut stream| {
        stream.write_all(&hello).unwrap();
        say(&mut stream, &Message::Accept { asks: false, window_log2: 0 });
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        let at = loop {
            let found = bytes.windows(4).position(|bytes: &[u8]| bytes.starts_with(b"dws"));
            match found {
                Some(at) => break at,
                None => {
                    let len = stream.read(&mut piece).unwrap();
                    assert!(len > 0, "no stream came");
                    bytes.extend_from_slice(&piece[..len]);
                }
            }
        };
        versions.send(bytes[at + 3]).unwrap();
        say(&mut stream, &Message::Refused(Reason::Other, "that will do".to_owned()));
        Some(stream)
    });
    assert!(result.is_err());
    version.recv().unwrap()
}

/// Earlier builds do not say that they know models, and are sent none; before that they did not say that they know contexts.
#[test]
fn a_receiver_is_sent_the_version_that_it_knows() {
    let hello = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "").with_window(23).with_model(24);
    let bytes = hello.encode();
    assert_eq!(version_for(bytes.clone(), "version-4"), 4);
    let without = |fields: usize| {
        let mut bytes = bytes.clone();
        bytes.truncate(bytes.len() - fields);
        bytes[5] -= fields as u8;
        bytes
    };
    assert_eq!(version_for(without(1), "version-3"), 3);
    assert_eq!(version_for(without(2), "version-3-without-features"), 3);
    assert_eq!(version_for(without(3), "version-2"), 2);
}
