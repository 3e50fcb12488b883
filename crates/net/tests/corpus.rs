//! Every file of the fuzzer's corpus of frames, and cuts of them.

mod frames;

use std::path::Path;

#[test]
fn corpus_of_frames_is_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames");
    let mut files = 0;
    for entry in corpus.read_dir().unwrap() {
        #[expect(clippy::disallowed_methods, reason = "the corpus is in files")]
        let data = std::fs::read(entry.unwrap().path()).unwrap();
        (0..=data.len()).for_each(|length| frames::read_as_all(&data[..length]));
        files += 1;
    }
    assert!(files >= 5, "{files} files");
}
