//! docs/wire.md, sections 9.7 and 9.9, against the code: their examples are what the encoder makes, and what other
//! implementations make that were written from them, docs/examples/ppm.py and mix.py.

use std::path::{Path, PathBuf};
use std::process::Command;

use dwell_codec::{CodecId, ModelDecoder, ModelEncoder, ModelSpec};

const DOCUMENT: &str = include_str!("../../../../docs/wire.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of each line of a fenced block; comments and blanks removed.
fn block(title: &str) -> Vec<Vec<&'static str>> {
    let lines = DOCUMENT.lines().skip_while(|line| line.strip_prefix("```") != Some(title)).skip(1);
    let lines = lines
        .take_while(|line| *line != "```")
        .map(|line| line.split('#').next().unwrap_or_default().split_whitespace().collect())
        .filter(|words: &Vec<_>| !words.is_empty());
    lines.collect()
}

fn byte(hex: &str) -> u8 {
    u8::from_str_radix(hex, 16).unwrap_or_else(|_| panic!("{hex} is no byte"))
}

struct Ends {
    encoder: ModelEncoder,
    decoder: ModelDecoder,
}

impl Ends {
    fn new(codec: CodecId, model: u8) -> Self {
        let spec = ModelSpec::from_wire(codec as u8, model).expect("a codec").expect("a model");
        Self {
            encoder: ModelEncoder::new(spec).expect("a good model"),
            decoder: ModelDecoder::new(spec).expect("a good model"),
        }
    }

    /// Returns the compressed bytes of a batch, which the decoder restores.
    fn exchange(&mut self, batch: &[u8]) -> Vec<u8> {
        let mut compressed = Vec::new();
        self.encoder.compress(batch, &mut compressed).expect("not too long");
        let mut restored = vec![0; batch.len()];
        self.decoder.decode(&compressed, &mut restored).expect("what was sent");
        assert!(restored == batch);
        compressed
    }
}

/// Runs the short examples of a codec.
fn short_batches(codec: CodecId) {
    // What stands behind a word, with the lines that go on with it.
    let mut entries: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in block(codec.name()) {
        let is_word = line[0].len() > 2;
        if is_word {
            entries.push((line[0], Vec::new()));
        }
        let (_, bytes) = entries.last_mut().expect("a word before the first bytes");
        bytes.extend(line[usize::from(is_word)..].iter().map(|hex| byte(hex)));
    }
    let (mut ends, mut coded) = (None, Vec::new());
    let mut count = 0;
    for (word, bytes) in entries {
        match (word, &mut ends) {
            ("model", _) => ends = Some(Ends::new(codec, bytes[0])),
            ("base", Some(ends)) => {
                ends.encoder.prime(&bytes);
                ends.decoder.prime(&bytes);
            }
            ("batch", Some(ends)) => coded = ends.exchange(&bytes),
            ("coded", Some(_)) => {
                count += 1;
                assert!(bytes == coded, "batch {count} becomes {coded:02x?}");
            }
            _ => panic!("\"{word}\" is no word of the examples, or before a model"),
        }
    }
    assert!(count >= 10, "only {count} examples");
}

#[test]
fn short_batches_are_coded_as_in_the_document() {
    short_batches(CodecId::Ppm);
    short_batches(CodecId::Mix);
}

/// Computes bytes as the document says, or reads them from a file of the project.
fn content(name: &[&str], len: usize) -> Vec<u8> {
    let mut x = 1_u32;
    let mut random = |below: u32| {
        x = x.wrapping_mul(69_069).wrapping_add(1);
        ((x >> 16) * below) >> 16
    };
    let number = |at: usize| name[at].parse::<u32>().expect("a number");
    let mut content = Vec::new();
    match name[0] {
        "below" => content.extend((0..len).map(|_| random(number(1)) as u8)),
        "twice" => {
            while content.len() < len {
                let piece: Vec<u8> = (0..number(1)).map(|_| random(256) as u8).collect();
                content.extend(piece.repeat(2));
            }
        }
        "words" => {
            let mut word = |_| (0..number(1)).map(|_| 97 + random(26) as u8).collect();
            let words: Vec<Vec<u8>> = (0..number(2)).map(&mut word).collect();
            while content.len() < len {
                content.extend(&words[random(number(2)) as usize]);
            }
        }
        path => {
            #[expect(clippy::disallowed_methods, reason = "a test may read its own inputs")]
            let bytes = std::fs::read(root().join(path)).expect("a readable file");
            content = bytes;
        }
    }
    content.truncate(len);
    assert_eq!(content.len(), len, "{name:?} is shorter");
    content
}

/// Runs the long examples of a codec.
fn long_contents(codec: CodecId) {
    let lines = ["long", "longer"].map(|kind| block(&format!("{codec} {kind}"))).concat();
    assert!(lines.len() >= 5, "only {} examples", lines.len());
    for line in lines {
        let [model, name @ .., len, batch_len, _, _] = &line[..] else { panic!("{line:?}") };
        let mut ends = Ends::new(codec, byte(model));
        let content = content(name, len.parse().expect("a length"));
        let batches = content.chunks(batch_len.parse().expect("a length"));
        let compressed: Vec<u8> = batches.flat_map(|batch| ends.exchange(batch)).collect();
        let found = [compressed.len().to_string(), format!("{:08x}", crc32fast::hash(&compressed))];
        assert_eq!(line[line.len() - 2..], found, "{line:?}");
    }
}

#[test]
fn long_contents_of_ppm_are_coded_as_in_the_document() {
    long_contents(CodecId::Ppm);
}

#[test]
fn long_contents_of_mix_are_coded_as_in_the_document() {
    long_contents(CodecId::Mix);
}

/// Runs the programs in Python on the examples of the document; with the project's directory also on the long ones.
fn python_agrees(codec: CodecId, directory: Option<&Path>) {
    let root = root();
    let mut command = Command::new("python3");
    // Without files of its own beside the one that it imports.
    command.arg("-B").arg(root.join(format!("docs/examples/{codec}.py")));
    command.arg("check").arg(root.join("docs/wire.md"));
    let Ok(output) = command.args(directory).output() else {
        // Whoever counts what was skipped has installed it.
        assert!(std::env::var_os("DWELL_TEST_SKIPS").is_none(), "python3 is not installed");
        #[expect(clippy::disallowed_macros, reason = "says why nothing is tested")]
        {
            println!("skipped: python3 is not installed");
        }
        return;
    };
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}", said.concat());
    assert!(said[0].contains("batches are as in the document"), "{}", said.concat());
}

#[test]
fn other_implementations_agree() {
    python_agrees(CodecId::Ppm, None);
    python_agrees(CodecId::Mix, None);
}

#[test]
#[ignore = "long: ./x test --all runs it"]
fn long_another_implementation_agrees_on_all_of_ppm() {
    python_agrees(CodecId::Ppm, Some(&root()));
}

#[test]
#[ignore = "long: ./x test --all runs it"]
fn long_another_implementation_agrees_on_all_of_mix() {
    python_agrees(CodecId::Mix, Some(&root()));
}
