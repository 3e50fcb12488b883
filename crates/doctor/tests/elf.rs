//! Every file of the fuzzer's corpus of programs, and cuts of them.

use std::{fs, path::Path};

use gang_doctor::symbols;

#[path = "elf/mod.rs"]
mod elf;

#[test]
fn corpus_of_programs_is_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/symbols");
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let data = fs::read(&path).unwrap();
        let named = elf::named_bytes(&data);
        // The seeds say by their names what they are meant to be.
        if name.starts_with("elf-") {
            assert!(named.is_some_and(|bytes| bytes > 0), "{name}: {named:?}");
        } else if name.starts_with("bad-") {
            assert_eq!(named, None, "{name}");
        }
        for end in (0..data.len()).step_by(61) {
            elf::named_bytes(&data[..end]);
        }
    }
}
