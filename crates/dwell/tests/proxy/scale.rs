//! More streams than there is memory for buffers.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use dwell_proxy::datagrams;
use dwell_proxy::target::Target;
use rustix::event::epoll;

use crate::load::may_open;
use crate::openings::associate;
use crate::pair::{Pair, Process, assert_same, echo, exchange, mixture, serve, wait_until};

/// Room for one that moves something, in each direction.
const LITTLE: [&str; 2] = ["--memory-max", "3MiB"];

/// Room for one that moves something, in each direction: they take turns, and idle ones need none.
#[test]
fn many_streams_share_the_room_of_one() {
    let pair = Pair::new(echo(), &LITTLE, &LITTLE);
    let [ingress, _] = pair.statuses();
    assert_eq!(ingress.streams.max, 32);
    // Each has said something, and holds nothing any more.
    let mut idle: Vec<TcpStream> = (0..16).map(|_| pair.connect()).collect();
    for stream in &mut idle {
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    thread::scope(|scope| {
        let busy: Vec<_> = (0..8)
            .map(|seed| {
                let pair = &pair;
                scope.spawn(move || {
                    let bytes = mixture(700_000, seed);
                    assert_same(&exchange(pair.connect(), &bytes).unwrap(), &bytes);
                })
            })
            .collect();
        busy.into_iter().for_each(|one| one.join().unwrap());
    });
    for stream in &mut idle {
        stream.write_all(b"again").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }
    drop(idle);
    wait_until("all are over", || pair.statuses().iter().all(|s| s.streams.finished == 24));
}

/// Streams that never end do not keep the room for themselves, with little memory at both ends.
#[test]
fn greedy_streams_leave_their_room_to_others() {
    greedy_and_small(&LITTLE);
}

/// At the other end nobody waits, so that nothing makes its sender pause, and there is always something for their
/// program.
#[test]
fn greedy_streams_leave_their_room_where_only_the_receiver_is_short() {
    greedy_and_small(&REFERS);
}

/// What was sent may be referred to later only if the receiver has room for it, too.
#[test]
fn idle_streams_leave_their_room_where_only_the_receiver_is_short() {
    let pair = Pair::new(texts(), &REFERS, &LITTLE);
    let streams = [(); 4].map(|()| connect(&pair));
    thread::scope(|scope| {
        for mut stream in &streams {
            scope.spawn(move || {
                stream.write_all(b"t").unwrap();
                let mut left = TEXT_BYTES;
                while left > 0 {
                    left -= read_slowly(stream).unwrap();
                }
            });
        }
    });
    assert!(pair.statuses()[0].streams.open >= 4);
}

/// Datagrams wait for room as all else does: several clients share that of one, beside a stream that never ends.
#[test]
fn datagrams_share_the_room_of_one() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = vec![0; 65_536];
        while let Ok((len, from)) = server.recv_from(&mut datagram) {
            let _ = server.send_to(&datagram[..len], from);
        }
    });
    let texts = texts();
    let allow = ["--allow", &at.to_string(), "--allow", &texts.to_string()];
    let pair = Pair::new(texts, &[&LITTLE[..], &allow].concat(), &LITTLE);
    let greedy = connect(&pair);
    (&greedy).write_all(b"g").unwrap();
    let clients = [(); 3].map(|()| associate(pair.socks));
    let target: Target = at.to_string().parse().unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(|| while read_slowly(&greedy).is_ok_and(|len| len > 0) {});
        let exchanges = clients.each_ref().map(|(_, relay)| {
            let target = &target;
            scope.spawn(move || {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                let mut got = vec![0; 65_536];
                for len in [10, 1000, 30_000] {
                    let payload = vec![len as u8; len];
                    let sent = datagrams::for_client(target, &payload);
                    // They may be lost, as datagrams are.
                    wait_until("it is answered", || {
                        client.send_to(&sent, relay).unwrap();
                        client.recv(&mut got).is_ok_and(|got_len| got_len == sent.len())
                    });
                    assert_eq!(datagrams::from_client(&got[..sent.len()]).unwrap().1, payload);
                }
            })
        });
        exchanges.into_iter().for_each(|exchange| exchange.join().unwrap());
        greedy.shutdown(Shutdown::Both).unwrap();
        reading.join().unwrap();
    });
    let [ingress, egress] = pair.statuses();
    assert_eq!((ingress.streams.damaged, egress.streams.damaged), (0, 0));
}

/// Compresses so that blocks refer to earlier ones.
const REFERS: [&str; 2] = ["--codec", "zstd:3"];

/// Connects as a program with little room does.
fn connect(pair: &Pair) -> TcpStream {
    let stream = pair.connect();
    socket2::SockRef::from(&stream).set_recv_buffer_size(1 << 14).unwrap();
    stream
}

/// Reads as if the rest of the way were slow, so that compressing pays.
fn read_slowly(mut stream: &TcpStream) -> io::Result<usize> {
    thread::sleep(Duration::from_millis(4));
    stream.read(&mut [0; 1 << 14])
}

/// The length of a text that does not fit into the buffers of connections.
const TEXT_BYTES: usize = 8 << 20;

/// Answers each byte: "g" with text without end, "t" with some, and others with a word.
fn texts() -> SocketAddr {
    serve(|mut stream| {
        let mut asked = [0];
        while stream.read_exact(&mut asked).is_ok() {
            let text = dwell_lab::corpus::text(TEXT_BYTES, 1);
            match &asked {
                b"g" => while stream.write_all(&text).is_ok() {},
                b"t" => drop(stream.write_all(&text)),
                _ => return drop(stream.write_all(b"small")),
            }
        }
    })
}

/// Two that never end, whose program pauses after each read, and small ones beside them.
fn greedy_and_small(egress: &[&str]) {
    let pair = Pair::new(texts(), egress, &LITTLE);
    // One of them may hold what it refers to while it is idle.
    let greedy = [(); 2].map(|()| connect(&pair));
    let readers = greedy.each_ref().map(|stream| {
        let mut stream = stream.try_clone().unwrap();
        stream.write_all(b"g").unwrap();
        thread::spawn(move || while read_slowly(&stream).is_ok_and(|len| len > 0) {})
    });
    wait_until("they have the room", || pair.statuses()[0].rx.bytes > 12 << 20);
    for _ in 0..2 {
        let mut small = pair.connect();
        small.write_all(b"s").unwrap();
        let mut got = Vec::new();
        small.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"small");
    }
    assert!(pair.statuses()[0].streams.open >= 2, "the greedy ones go on");
    for stream in greedy {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// Ten thousand at once, of which as many are open at a time as 20,000 descriptors allow: all are served, and an
/// idle one holds little.
#[test]
#[ignore = "long: ./x test --all runs it"]
fn long_ten_thousand_streams_are_served_and_hold_little() {
    const STREAMS: usize = 10_000;
    const OPEN_MAX: usize = 9000;
    let Some(_turn) = may_open(20_000) else { return };
    let pair = Pair::new(idle_server(), &[], &["--streams-max", &OPEN_MAX.to_string()]);
    let processes = [&pair.ingress, &pair.egress];
    let before = processes.map(Process::resident_bytes);
    let mut streams: Vec<TcpStream> = (0..STREAMS).map(|_| pair.connect()).collect();
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_secs(200))).unwrap();
        stream.write_all(b"x").unwrap();
    }
    // In the order in which they have come.
    let mut waiting = streams.split_off(OPEN_MAX);
    for stream in &mut streams {
        stream.read_exact(&mut [0]).unwrap();
    }
    // What it took to open them is given back once few come or go.
    wait_until("an idle stream holds little", || {
        let each = |(process, before): (&Process, u64)| {
            (process.resident_bytes() - before) / OPEN_MAX as u64
        };
        let held: Vec<_> = processes.into_iter().zip(before).map(each).collect();
        println!("an idle stream holds {held:?} bytes");
        held.iter().all(|each| *each <= dwell_proxy::IDLE_BYTES)
    });
    let mut others = streams.split_off(OPEN_MAX / 2);
    drop(streams);
    for stream in &mut waiting {
        stream.read_exact(&mut [0]).unwrap();
    }
    for stream in &mut others {
        stream.write_all(b"y").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
}

/// Answers each byte, on one thread for all connections.
fn idle_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watch = |fd: &dyn AsFd, number: usize| {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, fd.as_fd(), data, epoll::EventFlags::IN).unwrap();
        };
        watch(&listener, usize::MAX);
        let mut streams: Vec<TcpStream> = Vec::new();
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            for event in &events {
                let Some(mut stream) = streams.get(event.data.u64() as usize) else {
                    let (stream, _) = listener.accept().unwrap();
                    watch(&stream, streams.len());
                    streams.push(stream);
                    continue;
                };
                let mut byte = [0];
                if matches!(stream.read(&mut byte), Ok(1)) {
                    let _ = stream.write_all(&byte);
                } else {
                    let _ = epoll::delete(&epoll, stream);
                }
            }
        }
    });
    address
}
