use std::fs;
use std::time::Duration;

use dwell_base::Instant;
use dwell_stream::{Compressors, Config, Sender};
use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::carrier::tests::pair;
use crate::transfer::blocks::Have;
use crate::transfer::entry::EntryPath;
use crate::transfer::record::{Ask, Record};

#[tokio::test]
async fn what_follows_a_head_is_said_in_time_and_fits_to_it() {
    use Rest::{Again, GoesOn, Nothing};
    let (mut carrier, mut far) = pair().await;
    let silence = Duration::from_millis(50);
    let silent = has_rest(&mut carrier, false, silence).await;
    assert!(matches!(silent, Err(CarrierError::Expired)), "{silent:?}");
    for (rest, drops, expected) in [
        (Nothing, false, Some(false)),
        (GoesOn, false, Some(true)),
        (Again, true, Some(true)),
        (Nothing, true, None),
        (GoesOn, true, None),
        (Again, false, None),
    ] {
        far.write_all(&Message::Rest(rest).encode()).await.unwrap();
        let found = has_rest(&mut carrier, drops, SILENCE_MAX).await;
        assert_eq!(found.ok(), expected, "{rest:?} {drops}");
    }
    far.write_all(&Message::Alive.encode()).await.unwrap();
    assert!(has_rest(&mut carrier, false, SILENCE_MAX).await.is_err());
}

/// The beginning of a stream, with these records.
fn stream(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.put(&mut bytes));
    let mut sender = Sender::new(&Config::default()).unwrap();
    assert_eq!(sender.accept(&bytes), bytes.len());
    let (mut compressors, now, mut stream) = (Compressors::new(), Instant::ZERO, Vec::new());
    while !sender.is_idle() {
        let wire = sender.wire(now).to_vec();
        sender.wrote(now, wire.len());
        if wire.is_empty() {
            sender.compress(&mut compressors, || now);
        }
        stream.extend(wire);
    }
    stream
}

/// An earlier sender would take chunks for an answer that is none.
#[tokio::test]
async fn chunks_are_said_only_to_who_understands_them() {
    let ours = Hello::new(Purpose::File, BLOCK_LEN_MAX as u32, "");
    assert_ne!(ours.features & Hello::CHUNKS, 0);
    let path = std::env::temp_dir().join(format!("dwell-receive-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("a"), [1; 1000]).unwrap();
    let coarse = ours.features & !Hello::FINE_CHUNKS;
    assert_eq!([ours.features, coarse].map(grain), [Some(Grain::Fine), Some(Grain::Coarse)]);
    for (features, is_chunks) in
        [(ours.features, true), (coarse, true), (ours.features & !Hello::CHUNKS, false)]
    {
        let (mut carrier, mut far) = pair().await;
        carrier.theirs.features = features;
        let job = Receive {
            listen: carrier.peer,
            security: Security::None,
            place: Place::Directory(path.clone()),
            existing: Existing::Replace,
            bases: Vec::new(),
            allows_links_outside: false,
            memory_bytes_max: 64 << 20,
            handshake: SILENCE_MAX,
            stays: false,
        };
        let (name, bytes) = ("a".to_owned(), Some(1000));
        let offer = Offer {
            name,
            bytes,
            files: 1,
            others: 0,
            is_tree: false,
            is_eager: false,
            window_log2: 0,
        };
        far.write_all(&Message::Offer(offer).encode()).await.unwrap();
        let entry = EntryPath::new(b"a").unwrap();
        let ask = Ask { path: entry.clone(), bytes, meta: None, is_quick: false };
        far.write_all(&stream(&[Record::Root(entry), Record::Ask(ask)])).await.unwrap();
        let (notes, _noted) = mpsc::channel(9);
        let mut writer = None;
        let have = async {
            let mut bytes = Vec::new();
            loop {
                far.read_buf(&mut bytes).await.unwrap();
                let Some((accept, used)) = Message::decode(&bytes).unwrap() else { continue };
                assert!(matches!(accept, Message::Accept { asks: true, .. }), "{accept:?}");
                if let Some((answer, _)) = Message::decode(&bytes[used..]).unwrap() {
                    return answer;
                }
            }
        };
        tokio::select! {
            answer = have => match answer {
                Message::Have(Have::Chunks { log2, chunks, .. }) => {
                    assert_eq!(log2, if features == coarse { 13 } else { 11 });
                    assert!(is_chunks && chunks.len() == 1 && chunks[0].bytes == 1000);
                }
                Message::Have(Have::Blocks { bytes, .. }) => assert!(!is_chunks && bytes == 1000),
                other => panic!("{other:?}"),
            },
            // It waits for what was asked for.
            ended = receive_files(&mut carrier, &job, &mut writer, &notes) => panic!("{ended:?}"),
        }
    }
    fs::remove_dir_all(&path).unwrap();
}
