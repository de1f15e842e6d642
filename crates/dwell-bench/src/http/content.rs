//! What is answered: pieces of bodies that are made here, each the same at both ends.

use std::fmt::Write as _;
use std::sync::Arc;

use dwell_base::Rng;
use dwell_lab::corpus;
use serde::{Deserialize, Serialize};

/// What answers are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Records of an interface, as JSON
    Json,
    /// Pages of a shop
    Html,
    /// Already compressed
    Image,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Html => "html",
            Self::Image => "image",
        }
    }
}

/// The length of a body before it begins again, in bytes: far more than anybody remembers.
const BODY_BYTES: usize = 16 << 20;
/// Where one answer begins after another, in pieces of their length: no two that follow each other overlap.
const STRIDE: usize = 5;

/// A body, of which each answer is a piece.
#[derive(Clone, Debug)]
pub(crate) struct Body(Arc<Vec<u8>>);

impl Body {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let bytes = match kind {
            Kind::Json => json(&mut rng),
            Kind::Html => html(&mut rng, seed),
            Kind::Image => corpus::incompressible(BODY_BYTES, seed),
        };
        Self(Arc::new(bytes))
    }

    /// Returns the answer of this number, of so many bytes.
    pub(crate) fn answer(&self, number: u64, bytes: usize) -> Vec<u8> {
        let place = (number as usize).wrapping_mul(STRIDE).wrapping_mul(bytes) % self.0.len();
        match self.0.get(place..place + bytes) {
            Some(piece) => piece.to_vec(),
            None => self.0.iter().copied().cycle().skip(place).take(bytes).collect(),
        }
    }
}

pub(crate) const CITIES: [&str; 12] = [
    "Aachen", "Bergen", "Córdoba", "Delft", "Esbjerg", "Fukuoka", "Galway", "Hobart", "Irkutsk",
    "Jena", "Kisumu", "Lviv",
];
pub(crate) const STATES: [&str; 5] = ["new", "paid", "packed", "shipped", "returned"];

fn json(rng: &mut Rng) -> Vec<u8> {
    let mut text = String::with_capacity(BODY_BYTES + 1024);
    text.push('[');
    while text.len() < BODY_BYTES {
        let city = CITIES[rng.below(CITIES.len() as u64) as usize];
        let state = STATES[rng.below(STATES.len() as u64) as usize];
        let (id, number, cents) = (rng.next_u64(), rng.below(100_000), rng.below(1_000_000));
        let (day, minute, second) = (1 + rng.below(28), rng.below(1440), rng.below(60));
        // A `String` takes everything.
        let _ = writeln!(
            text,
            "{{\"id\":\"{id:016x}\",\"customer\":{{\"number\":{number},\"city\":\"{city}\"}},\
             \"state\":\"{state}\",\"total\":{}.{:02},\"currency\":\"EUR\",\
             \"created_at\":\"2026-03-{day:02}T{:02}:{:02}:{second:02}Z\"}},",
            cents / 100,
            cents % 100,
            minute / 60,
            minute % 60,
        );
    }
    text.into_bytes()
}

fn html(rng: &mut Rng, seed: u64) -> Vec<u8> {
    let prose = corpus::text(BODY_BYTES / 4, seed);
    let mut sentences = prose.split(|&byte| byte == b'.').cycle();
    let mut page = Vec::with_capacity(BODY_BYTES + 4096);
    while page.len() < BODY_BYTES {
        let (id, price) = (rng.below(1_000_000), rng.below(100_000));
        let head = format!(
            "<article class=\"product card\" id=\"p{id}\">\n  <a href=\"/products/{id}\" \
             class=\"product-link\"><img src=\"/images/{id}/small.webp\" width=\"240\" height=\"240\" \
             loading=\"lazy\" alt=\"\"></a>\n  <p class=\"description\">"
        );
        page.extend_from_slice(head.as_bytes());
        for _ in 0..1 + rng.below(3) {
            page.extend_from_slice(sentences.next().unwrap_or_default());
            page.push(b'.');
        }
        let tail = format!(
            "</p>\n  <span class=\"price\">{}.{:02}&nbsp;€</span>\n  <button type=\"button\" \
             class=\"buy\" data-product=\"{id}\">Buy</button>\n</article>\n",
            price / 100,
            price % 100
        );
        page.extend_from_slice(tail.as_bytes());
    }
    page
}

#[cfg(test)]
mod tests {
    use dwell_codec::{CodecSpec, Compressor};

    use super::*;

    #[test]
    fn answers_are_as_compressible_as_such_things_are() {
        for (kind, range) in
            [(Kind::Json, 0.15..0.4), (Kind::Html, 0.2..0.5), (Kind::Image, 1.0..1.1)]
        {
            let body = Body::new(kind, 1);
            let answer = body.answer(7, 60_000);
            assert_ne!(answer, body.answer(8, 60_000));
            let spec: CodecSpec = "zstd:3".parse().unwrap();
            let mut dst = vec![0; 70_000];
            let len = Compressor::new(spec, None).unwrap().compress(&answer, &mut dst).unwrap();
            let ratio = len.unwrap_or(answer.len()) as f64 / answer.len() as f64;
            assert!(range.contains(&ratio), "{}: {ratio}", kind.name());
        }
    }
}
