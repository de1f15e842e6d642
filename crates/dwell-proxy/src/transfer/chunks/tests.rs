use dwell_base::Rng;
use proptest::prelude::*;

use super::*;

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

fn cut_up(bytes: &[u8], log2: u8) -> Vec<usize> {
    let mut cutter = Cutter::new(bytes, log2);
    let mut lens = Vec::new();
    loop {
        match cutter.chunk().unwrap().len() {
            0 => return lens,
            len => lens.push(len),
        }
    }
}

/// How many bytes of the new file are not found in the old one.
fn not_found(old: &[u8], new: &[u8]) -> usize {
    let chunks = Chunks::read(Grain::Coarse, &mut &old[..], old.len() as u64).unwrap();
    let mut table = Table::new(chunks);
    let mut cutter = Cutter::new(new, table.log2());
    let mut missing = 0;
    loop {
        let chunk = cutter.chunk().unwrap();
        match table.find(chunk) {
            _ if chunk.is_empty() => return missing,
            Some(at) => assert_eq!(chunk, &old[at as usize..at as usize + chunk.len()]),
            None => missing += chunk.len(),
        }
    }
}

/// Bytes that come one at a time, or a few.
struct Drops<'a>(&'a [u8], Rng);

impl Read for Drops<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.chance(0.1) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = (1 + self.1.below(5000) as usize).min(buffer.len()).min(self.0.len());
        self.0.read(&mut buffer[..len])
    }
}

#[test]
fn chunks_grow_with_the_file() {
    let coarse = |bytes| Grain::Coarse.log2(bytes);
    let known = [0, 1, 64 << 20, (64 << 20) + 1, 1 << 30, 1 << 40].map(coarse);
    assert_eq!(known, [13, 13, 13, 14, 17, 19]);
    let fine = |bytes| Grain::Fine.log2(bytes);
    let known = [0, 1, 16 << 20, 64 << 20, 1 << 30, 16 << 30, 64 << 30, 1 << 40].map(fine);
    assert_eq!(known, [11, 11, 11, 12, 14, 17, 19, 19]);
    // Of a file of any length the list is short: some thousands, and .3 % of it.
    for bytes in [1 << 20, 64 << 20, 1 << 30, 4 << 30] {
        assert!(bytes >> coarse(bytes) <= 8192);
        assert!(bytes >> fine(bytes) <= 1 << 17);
    }
    assert!(bytes_of_list(4 << 20) * 1000 < 3 * (4 << 20));
}

fn bytes_of_list(len: usize) -> usize {
    let chunks = Chunks::read(Grain::Coarse, &mut &random(1, len)[..], len as u64).unwrap();
    chunks.answers().iter().map(|answer| answer.encode().len()).sum()
}

/// The examples of the document: where chunks end is the same in every build.
#[test]
fn chunks_end_as_the_document_says() {
    assert_eq!(GEAR[0], 0xe220_a839_7b1d_cdaf);
    // 32-bit numbers, counted up.
    let bytes: Vec<u8> = (0..40_000u32).flat_map(u32::to_be_bytes).collect();
    let lens = cut_up(&bytes, 13);
    let document = include_str!("../../../../../docs/proxy.md");
    let shown: Vec<String> = lens.iter().map(ToString::to_string).collect();
    assert!(document.contains(&shown.join(", ")), "{}", shown.join(", "));
}

#[test]
fn chunks_are_as_long_as_they_may_be() {
    let bytes = random(7, 3 << 20);
    for log2 in [11, 13, 14, 16] {
        let lens = cut_up(&bytes, log2);
        let (last, others) = lens.split_last().unwrap();
        assert_eq!(lens.iter().sum::<usize>(), bytes.len());
        assert!(others.iter().all(|len| (len_min(log2)..=len_max(log2)).contains(len)));
        assert!(*last <= len_max(log2));
        let mean = bytes.len() / lens.len();
        let usual = 1 << log2;
        assert!((usual * 3 / 4..usual * 2).contains(&mean), "{mean} for {usual}");
    }
    // What is the same everywhere is cut where it must be.
    let same = cut_up(&vec![0; 1 << 20], 13);
    assert!(same.iter().all(|&len| len == same[0]), "{same:?}");
    assert!(cut_up(&[], 13).is_empty());
    assert_eq!(cut_up(&bytes[..100], 13), [100]);
}

#[test]
fn they_are_the_same_however_the_bytes_come() {
    let bytes = random(8, 600_000);
    let chunks = Chunks::read(Grain::Coarse, &mut &bytes[..], 600_000).unwrap();
    let drops =
        Chunks::read(Grain::Coarse, &mut Drops(&bytes, Rng::from_seed(1)), 600_000).unwrap();
    assert_eq!(drops, chunks);
    // No more is read than was asked for, or is there.
    assert_eq!(Chunks::read(Grain::Coarse, &mut &bytes[..], 1 << 20).unwrap(), chunks);
    let fewer = Chunks::read(Grain::Coarse, &mut &bytes[..], 1000).unwrap();
    assert_eq!((fewer.list.len(), fewer.list[0].bytes), (1, 1000));
    // And then as it comes.
    let mut cutter = Cutter::new(Drops(&bytes, Rng::from_seed(2)), 13);
    let mut all = cutter.chunk().unwrap().to_vec();
    loop {
        match cutter.some() {
            Ok([]) => break,
            Ok(some) => all.extend(some),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(all == bytes);
}

#[test]
fn an_insertion_at_the_front_costs_a_few_chunks() {
    for seed in 0..20 {
        let old = random(seed, 1 << 20);
        let new = [b"INSERT INTO t VALUES (1);\n", &old[..]].concat();
        let missing = not_found(&old, &new);
        assert!(missing < 100_000, "{missing}");
        assert!(not_found(&new, &old) < 100_000);
    }
    let old = random(99, 1 << 20);
    assert_eq!(not_found(&old, &old), 0);
    // Halves that have changed places.
    let (front, back) = old.split_at(500_001);
    assert!(not_found(&old, &[back, front].concat()) < 200_000);
}

/// Of chunks that are the same the one behind the last that was found is taken, so that there are long copies.
#[test]
fn what_follows_is_preferred() {
    let once = random(5, 100_000);
    let bytes = [&once[..], &once, &once].concat();
    let mut table = Table::new(Chunks::read(Grain::Coarse, &mut &bytes[..], 1 << 20).unwrap());
    let mut cutter = Cutter::new(&bytes[..], table.log2());
    let mut at = 0;
    loop {
        let chunk = cutter.chunk().unwrap();
        if chunk.is_empty() {
            break;
        }
        assert_eq!(table.find(chunk), Some(at));
        at += chunk.len() as u64;
    }
    assert_eq!((at, table.bytes()), (300_000, 300_000));
    assert_eq!(table.find(b"other"), None);
}

#[test]
fn as_much_is_compared_as_may_be_found() {
    assert_eq!(compared(1000, u64::MAX), Some(1000));
    assert_eq!(compared(1000, 300), Some(600));
    assert_eq!(compared(1000, 0), Some(0));
    assert_eq!(compared(1 << 40, 1 << 40), None);
    assert_eq!(compared(1 << 40, 1000), Some(2000));
    // Whatever is there, no more hashes come than are reckoned with.
    for wanted in [0u64, 1, 5000, 1 << 20, 1 << 30, 1 << 38, 1 << 50] {
        for there in [1u64, 1 << 12, 1 << 20, (1 << 25) + 1, 1 << 32, (1 << 32) + 1, 1 << 37] {
            let Some(bytes) = compared(there, wanted) else { continue };
            let together = there.min(compared_together(wanted));
            for (grain, bytes) in
                [(Grain::Coarse, bytes), (Grain::Coarse, together), (Grain::Fine, together)]
            {
                let most = (bytes >> (grain.log2(bytes) - SPREAD_LOG2)).min(CHUNKS_MAX as u64);
                assert!(most <= hashes_max(wanted), "{there} for {wanted}, {grain:?}");
            }
        }
    }
}

/// The last chunk of each of several files is as short as the file says.
#[test]
fn the_ends_of_all_files_are_reckoned_with() {
    let shortest = 1 << (CHUNK_LOG2_MIN - SPREAD_LOG2);
    // As many files as there may be, each hardly longer than one chunk that is as short as can be.
    for wanted in [300, 1000, 1300] {
        let bytes = compared_together(wanted) / FILES_MAX;
        let most = FILES_MAX * bytes.div_ceil(shortest);
        assert!(most <= hashes_max(wanted), "{wanted}: {most}");
    }
    let mut chunks = Chunks::new(Grain::Fine, 10 * 100);
    for _ in 0..FILES_MAX {
        chunks.append(&mut &[7; 100][..], 100, (false, false)).unwrap();
    }
    assert!(chunks.list.len() as u64 == FILES_MAX && FILES_MAX <= hashes_max(250));
}

#[test]
fn what_follows_a_gap_is_cut_as_it_was() {
    let mut bytes = vec![0; 1 << 20];
    Rng::from_seed(3).fill(&mut bytes);
    let whole = Chunks::read(Grain::Fine, &mut &bytes[..], 1 << 20).unwrap();
    let ends: Vec<usize> = whole
        .lengths()
        .scan(0, |end, bytes| {
            *end += bytes as usize;
            Some(*end)
        })
        .collect();
    // All but three in a row of each eight were copied.
    for eight in ends.windows(7).step_by(8) {
        bytes[eight[1]..eight[6]].fill(0);
    }
    let mut gaps = Chunks::new(Grain::Fine, 1 << 20);
    assert_eq!(gaps.append(&mut &bytes[..], 1 << 20, (false, true)).unwrap(), 1 << 20);
    let found = |it: &&Chunk| gaps.list.contains(it);
    let (all, found) = (whole.list.len(), whole.list.iter().filter(found).count());
    assert!(found * 20 > all * 7, "{found} of {all}");
}

#[test]
fn answers_come_back() {
    let list = (0..4000u32).map(|n| Chunk { bytes: n + 1, hash: hash(&n.to_be_bytes()) });
    let chunks = Chunks { log2: 13, list: list.collect() };
    let answers = chunks.answers();
    assert_eq!(answers.len(), 3);
    let mut again = Chunks::default();
    for answer in answers {
        let bytes = answer.encode();
        assert!(bytes.len() <= Have::BYTES_MAX);
        assert_eq!(Have::decode(&bytes), Some(answer.clone()));
        let Have::Chunks { log2, chunks, .. } = answer else { panic!("{answer:?}") };
        assert!(again.extend(log2, &chunks));
    }
    assert_eq!(again, chunks);
    assert!(!again.extend(14, &[]));
    assert_eq!(Chunks::default().answers(), [Have::Nothing]);
    let entry = |bytes: u32| [&[4, 13, 0][..], &bytes.to_be_bytes(), &[0; 16]].concat();
    assert!(Have::decode(&entry(1)).is_some() && Have::decode(&entry(32_768)).is_some());
    // No chunk is empty, or so long.
    assert_eq!([0, 32_769, u32::MAX].map(|bytes| Have::decode(&entry(bytes))), [None, None, None]);
    for odd in [&[4, 10, 0][..], &[4, 20, 0], &[4, 13, 2], &[4, 13], &[4, 13, 0, 1]] {
        assert_eq!(Have::decode(odd), None);
    }
    let long = [&[4, 13, 0][..], &[1; (ENTRIES_MAX + 1) * ENTRY_BYTES]].concat();
    assert_eq!(Have::decode(&long), None);
}

/// More than any file has are not held.
#[test]
fn the_table_is_bounded() {
    let chunk = Chunk { bytes: 1, hash: [0; HASH_BYTES] };
    let mut chunks = Chunks::default();
    let mut answers = 0;
    while chunks.extend(13, &[chunk; ENTRIES_MAX]) {
        answers += 1;
    }
    assert_eq!(answers, CHUNKS_MAX / ENTRIES_MAX);
    // As many as the reader counts on are on their way at once, in so many messages.
    assert!(answers < 512);
}

proptest! {
    #[test]
    fn any_answer_comes_back(
        log2 in CHUNK_LOG2_MIN..=CHUNK_LOG2_MAX, more: bool,
        chunks in prop::collection::vec((1u32..=1 << 13, any::<[u8; HASH_BYTES]>()), 0..50),
    ) {
        let chunks = chunks.into_iter().map(|(bytes, hash)| Chunk { bytes, hash }).collect();
        let have = Have::Chunks { log2, more, chunks };
        prop_assert_eq!(Have::decode(&have.encode()), Some(have));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        log2 in 10u8..=20, more in 0u8..3, bytes in prop::collection::vec(any::<u8>(), 0..200),
        small in prop::collection::vec(0u8..2, 0..11),
    ) {
        let mut bytes = bytes;
        // Lengths are hardly ever small by chance.
        for (at, low) in small.into_iter().enumerate() {
            if let Some(length) = bytes.get_mut(at * ENTRY_BYTES..at * ENTRY_BYTES + 4) {
                length[..2].copy_from_slice(&[0, low]);
            }
        }
        let body = [&[4, log2, more][..], &bytes].concat();
        if let Some(have) = Have::decode(&body) {
            prop_assert_eq!(have.encode(), body);
        }
    }
}
