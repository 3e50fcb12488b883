//! How the text of the code reads: columns and sentences of comments, names of tests.

mod files;

use std::fs;
use std::path::{Path, PathBuf};

use files::{files_of, root};

/// Columns of a line of comment; rustfmt keeps code to as many.
const COLUMNS: usize = 100;

/// Characters of the name of a test: one of them fewer, at most.
const NAME: usize = 50;

/// Subjects that leave the reader to find out the thing.
const NO_SUBJECTS: [&str; 5] = ["What", "Who", "Whoever", "Whose", "Whom"];

/// Where code is that people have written.
const CODE: [&str; 8] =
    ["bindings", "crates", "demo", "etc", "fuzz", "integrations", "packaging", "tests"];

const ENDS: [&str; 15] = [
    "awk", "c", "f", "f90", "h", "java", "mjs", "py", "rs", "sh", "storm", "toml", "ts", "txt",
    "varlink",
];

fn code() -> Vec<PathBuf> {
    let mut code: Vec<PathBuf> =
        CODE.iter().flat_map(|directory| files_of(&root().join(directory), &ENDS)).collect();
    let without_end = ["packaging", "scripts"].map(|directory| root().join(directory));
    code.extend(without_end.iter().flat_map(|it| files_of(it, &["", "py", "sh"])));
    code.push(root().join(".ci/run"));
    let at_the_top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    code.extend(at_the_top.filter(|path| path.extension().is_some_and(|end| end == "toml")));
    assert!(code.len() > 500, "{} files", code.len());
    code
}

/// The lines of comment of a text that ends so: their numbers, all of each, and its words.
fn comments<'a>(end: &str, text: &'a str) -> Vec<(usize, &'a str, &'a str)> {
    let marks: &[&str] = match end {
        "" | "awk" | "py" | "sh" | "storm" | "toml" | "txt" | "varlink" => &["#"],
        "f" | "f90" => &["!"],
        "rs" => &["///", "//!", "//"],
        _ => &["///", "//", "/**", "/*", "* "],
    };
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let comment = line.trim_start();
        let mark = marks.iter().find(|mark| comment.starts_with(**mark))?;
        Some((number + 1, line, comment[mark.len()..].trim()))
    });
    lines.collect()
}

/// The comments of all code, each with its file and line; `wrong` says which are wrong.
fn wrong_comments(mut wrong: impl FnMut(&[(usize, &str, &str)]) -> Vec<usize>) -> Vec<String> {
    let mut all = Vec::new();
    for path in code() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let end = path.extension().map_or("", |end| end.to_str().unwrap());
        let found = wrong(&comments(end, &text)).into_iter();
        all.extend(found.map(|number| format!("{}:{number}", path.display())));
    }
    all
}

#[test]
fn comments_are_no_wider_than_code() {
    let wide = wrong_comments(|comments| {
        let is_wide = |(_, line, _): &&(usize, &str, &str)| {
            let tabs = line.chars().take_while(|&it| it == '\t').count();
            line.chars().count() + 7 * tabs > COLUMNS
        };
        comments.iter().filter(is_wide).map(|(number, ..)| *number).collect()
    });
    assert!(wide.is_empty(), "comments of more than {COLUMNS} columns:\n{}", wide.join("\n"));
}

/// The lines on which a sentence begins without its subject.
fn without_subject(comments: &[(usize, &str, &str)]) -> Vec<usize> {
    // The last word of the line before, if that is part of the same comment.
    let (mut before, mut last) = ("", 0);
    let mut found = Vec::new();
    for (number, _, words) in comments {
        if *number != last + 1 {
            before = "";
        }
        for word in words.split(' ').filter(|word| !word.is_empty()) {
            let begins =
                before.is_empty() || before.trim_end_matches(')').ends_with(['.', '!', '?', ':']);
            if begins && NO_SUBJECTS.contains(&word) {
                found.push(*number);
            }
            before = if ["-", "*"].contains(&word) { "" } else { word };
        }
        last = *number;
        if words.is_empty() {
            before = "";
        }
    }
    found
}

#[test]
fn comments_begin_with_their_subject() {
    let wrong = wrong_comments(without_subject);
    assert!(
        wrong.is_empty(),
        "sentences that begin with one of {NO_SUBJECTS:?}:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn sentences_without_subject_are_found() {
    let of = |text: &str| without_subject(&comments("rs", text));
    assert_eq!(of("/// What it has.\nx\n// Whose they are."), [1, 3]);
    assert_eq!(of("/// It is there. What is not\n/// there is lost. Who knows?"), [1, 2]);
    assert_eq!(of("/// It ends.\n/// What follows.\n///\n/// - Who it is."), [2, 4]);
    assert!(of("/// That is\n/// What the name was.\nlet x = 1; // Whatever comes.").is_empty());
}

/// The names of the tests in a file.
fn tests_of(text: &str) -> Vec<&str> {
    let (mut is_test, mut names) = (false, Vec::new());
    for line in text.lines().map(str::trim_start) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let name = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= ["test", "rstest"].contains(&name.rsplit("::").next().unwrap_or(name));
        }
        let function = line.trim_start_matches("pub ").trim_start_matches("async ");
        if let Some(rest) = function.strip_prefix("fn ") {
            names.extend(rest.split(['(', '<']).next().filter(|_| is_test));
            is_test = false;
        }
    }
    names
}

#[test]
fn names_of_tests_are_sentences_not_riddles() {
    let (mut long, mut count) = (Vec::new(), 0);
    for path in code().into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        let names = tests_of(&text);
        count += names.len();
        let is_long = |name: &&str| name.len() >= NAME;
        long.extend(names.into_iter().filter(is_long).map(|name| named(&path, name)));
    }
    assert!(count > 1500, "{count} tests");
    assert!(long.is_empty(), "{NAME} characters or more:\n{}", long.join("\n"));
}

fn named(path: &Path, name: &str) -> String {
    format!("{} in {}: {}", name, path.display(), name.len())
}

#[test]
fn regression_scripts_say_what_they_guard() {
    for path in files_of(&root().join("tests/issues"), &["storm"]) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{} does not begin with a comment", path.display());
    }
}
