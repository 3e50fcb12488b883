//! Every file of the fuzzer's corpus, and a few thousand variants of them, through the decoder.

mod decoder;

use std::path::Path;

use decoder::decode_all;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/decode");
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", dir.display()))
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn the_corpus_is_decoded() {
    for (name, data) in corpus() {
        let decoded = decode_all(&data);
        // The seeds say by their names what they are meant to reach.
        if name.starts_with("call-") {
            assert!(decoded.calls > 0, "{name} reaches no method: {decoded:?}");
        } else if name.starts_with("bad-") {
            assert_eq!(decoded.calls, 0, "{name}: {decoded:?}");
        }
    }
}

#[test]
fn every_method_has_a_seed() {
    let interfaces = [
        ("org.gangd.v1", include_str!("../src/org.gangd.v1.varlink")),
        ("org.gangd.auto1", include_str!("../src/org.gangd.auto1.varlink")),
    ];
    let methods = interfaces.iter().flat_map(|(interface, description)| {
        let methods = description.lines().filter_map(|line| line.strip_prefix("method "));
        methods.filter_map(move |line| Some((interface, line.split('(').next()?)))
    });
    let methods: Vec<_> = methods.collect();
    assert!(methods.len() > 20);
    let corpus = corpus();
    for (interface, method) in methods {
        let named = format!("{interface}.{method}\"").into_bytes();
        let reaches = |(name, data): &(String, Vec<u8>)| {
            name.starts_with("call-") && data.windows(named.len()).any(|part| part == named)
        };
        assert!(corpus.iter().any(reaches), "no seed calls {method}");
    }
}

#[test]
fn four_thousand_variants_of_the_corpus_are_decoded() {
    let corpus = corpus();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..4_000 {
        let mut data = random.one_of(&corpus).1.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, &corpus, &mut random);
        }
        decode_all(&data);
    }
}

fn mutate(data: &mut Vec<u8>, corpus: &[(String, Vec<u8>)], random: &mut Random) {
    const TOKENS: [&[u8]; 10] = [
        b"\0",
        b"{",
        b"[",
        b"\"",
        b"null",
        b"-1",
        b"1e999",
        b"\\u0000",
        b"\xff",
        b"99999999999999999999",
    ];
    let at = random.below(data.len() + 1);
    match random.below(5) {
        0 if at < data.len() => data[at] ^= 1 << random.below(8),
        1 => data.truncate(at),
        2 => {
            let token = *random.one_of(&TOKENS);
            data.splice(at..at, token.iter().copied());
        }
        3 => {
            let end = (at + random.below(16)).min(data.len());
            data.drain(at..end);
        }
        _ => {
            let other = &random.one_of(corpus).1;
            let from = random.below(other.len() + 1);
            data.truncate(at);
            data.extend_from_slice(&other[from..]);
        }
    }
}

/// xorshift64: the same variants at each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
