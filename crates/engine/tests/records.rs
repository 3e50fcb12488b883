//! Every file of the fuzzer's corpus of records, and cuts of them.

#[path = "records/mod.rs"]
mod records;

use std::{fs, path::Path};

#[test]
fn corpus_of_records_is_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/records");
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let data = fs::read(&path).unwrap();
        // The seeds say by their names what they are meant to be.
        if name.starts_with("record-") || name.starts_with("bad-") {
            assert_eq!(records::is_record(&data), name.starts_with("record-"), "{name}");
        }
        for end in (0..data.trim_ascii_end().len()).step_by(7) {
            assert!(!records::is_record(&data[..end]), "{end} bytes of {name}");
        }
    }
}
