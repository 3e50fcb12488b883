//! Every path of the fuzzer's corpus.

#[path = "paths/mod.rs"]
mod paths;

use std::{fs, path::Path};

#[test]
fn corpus_of_paths_is_judged() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/paths");
    let traps = tempfile::tempdir().unwrap();
    paths::make_traps(traps.path());
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_name = paths::is_name(&fs::read(&path).unwrap(), traps.path());
        // The seeds say by their names what they are meant to be.
        if name.starts_with("group-") || name.starts_with("bad-") {
            assert_eq!(is_name, name.starts_with("group-"), "{name}");
        }
    }
}
