//! Whatever is written in a configuration, nothing panics.

use proptest::prelude::*;

use super::*;

const ESCAPE: char = '\u{1b}';

/// Pieces that configurations are made of, whole and broken.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(
            &["[node]\n", "[[peer]]\n", "[defaults]\n", "[peer]\n", "[", "\""][..]
        )
        .prop_map(str::to_owned),
        (
            prop::sample::select([&NODE_KEYS[..], &PEER_KEYS[..]].concat()),
            prop_oneof![
                any::<i64>().prop_map(|number| number.to_string()),
                any::<f64>().prop_map(|number| number.to_string()),
                any::<String>().prop_map(|text| format!("{text:?}")),
                "[a-z0-9:./]{0,12}".prop_map(|text| format!("\"{text}\"")),
                "[a-z0-9:./]{0,12}".prop_map(|text| format!("[\"{text}\", 1, []]")),
                Just("{ a = 1 }".to_owned()),
                Just("1979-05-27".to_owned()),
            ]
        )
            .prop_map(|(key, value)| format!("{key} = {value}\n")),
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.errors.is_empty());
        }
    }

    #[test]
    fn no_configuration_makes_it_panic(text in pieces()) {
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.errors.is_empty());
            prop_assert!(!errors.to_string().contains(ESCAPE));
        }
    }

    #[test]
    fn a_damaged_sample_does_not_make_it_panic(at in any::<prop::sample::Index>(), byte: u8) {
        let mut text = sample().as_bytes().to_vec();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(config) = parse(&String::from_utf8_lossy(&text)) {
            config.warnings();
        }
    }
}
