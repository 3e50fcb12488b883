//! Documents as far as no person need read them: whole, short, and with names that are there.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use files::{files_of, root};

/// The most lines of documents that a newcomer reads first.
const LINES: [(&str, usize); 2] = [("ARCHITECTURE.md", 300), ("README.md", 110)];

#[test]
fn documents_for_newcomers_stay_short() {
    for (name, most) in LINES {
        let lines = fs::read_to_string(root().join(name)).unwrap().lines().count();
        assert!(lines <= most, "{name} has {lines} lines, more than {most}");
    }
}

/// The letters of marks: each is a source in docs/sources.md.
const LETTERS: [char; 4] = ['E', 'L', 'S', 'X'];

/// Where marks may be, besides documents at the top.
const MARKED: [&str; 7] = ["bindings", "crates", "demo", "docs", "etc", "integrations", "tests"];

/// A mark of a source, as L15.
fn is_mark(word: &str) -> bool {
    let number = word.strip_prefix(LETTERS).unwrap_or_default();
    (1..=2).contains(&number.len()) && number.bytes().all(|it| it.is_ascii_digit())
}

fn marks(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|it: char| !it.is_alphanumeric() && it != '_');
    words.filter(|word| is_mark(word))
}

/// The marks of a cell, as in "L21 to L24" or "L26, L28".
fn marks_of_cell(cell: &str) -> Vec<String> {
    let Some((first, last)) = cell.split_once(" to ") else {
        return marks(cell).map(str::to_owned).collect();
    };
    let number = |mark: &str| mark[1..].parse::<u32>().unwrap();
    (number(first)..=number(last)).map(|it| format!("{}{it}", &first[..1])).collect()
}

#[test]
fn marks_of_sources_are_in_their_table() {
    let sources = root().join("docs/sources.md");
    let text = fs::read_to_string(&sources).unwrap();
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let table: BTreeSet<String> = cells.flat_map(marks_of_cell).collect();
    assert!(table.len() > 30, "{table:?}");
    let mut used: BTreeMap<String, PathBuf> = BTreeMap::new();
    let ends = ["c", "h", "md", "py", "rs", "sh", "toml", "ts", "varlink"];
    let below = MARKED.iter().flat_map(|directory| files_of(&root().join(directory), &ends));
    let at_the_top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let at_the_top = at_the_top.filter(|path| path.extension().is_some_and(|end| end == "md"));
    // A mark that is an example here is none.
    let is_ours = |path: &PathBuf| *path != sources && !path.ends_with("rooms/documents.rs");
    for path in below.chain(at_the_top).filter(is_ours) {
        let text = fs::read_to_string(&path).unwrap();
        used.extend(marks(&text).map(|mark| (mark.to_owned(), path.clone())));
    }
    let unknown: Vec<_> = used.iter().filter(|(mark, _)| !table.contains(*mark)).collect();
    assert!(unknown.is_empty(), "docs/sources.md does not have {unknown:?}");
    let unused: Vec<_> = table.iter().filter(|mark| !used.contains_key(*mark)).collect();
    assert!(unused.is_empty(), "only docs/sources.md has {unused:?}");
}

#[test]
fn documents_are_whole() {
    let directories = ["", "docs", "docs/lab"].map(|directory| root().join(directory));
    let entries = directories.iter().flat_map(|directory| fs::read_dir(directory).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        // Both sides of a conflict, and what git writes between them.
        let text = fs::read_to_string(&path).unwrap();
        let mark =
            text.lines().find(|line| ["<<<<<<< ", ">>>>>>> "].iter().any(|m| line.starts_with(m)));
        assert_eq!(mark, None, "{} has half of a merge", path.display());
    }
}

/// Paths in the table "Where to start" are below crates/ or the root; a bare name is in a folder of
/// a path before it in its cell, or below that of the first.
#[test]
fn paths_of_the_map_are_there() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = text.split("## Where to start").nth(1).and_then(|rest| rest.split("\n## ").next());
    let is_path = |word: &&str| {
        !word.contains([' ', '*', ':'])
            && Path::new(word).extension().is_some_and(|end| {
                ["rs", "c", "h", "ts", "md", "toml", "map", "varlink"]
                    .contains(&&*end.to_string_lossy())
            })
    };
    let mut wrong = Vec::new();
    for row in table.unwrap().lines().filter(|line| line.starts_with('|')) {
        let mut folders: Vec<PathBuf> = vec![root().join("crates"), root()];
        for word in row.split('`').skip(1).step_by(2).filter(is_path) {
            let found =
                folders.iter().rev().map(|folder| folder.join(word)).find(|path| path.exists());
            let Some(found) = found else {
                wrong.push(word);
                continue;
            };
            folders.extend(
                found
                    .ancestors()
                    .skip(1)
                    .take(2)
                    .map(Path::to_owned)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev(),
            );
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md names files that are not there: {wrong:?}");
}
