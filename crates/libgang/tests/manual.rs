//! The manual of the library, section 3: each function that a header declares stands on a page as
//! it is declared, and the pages are well formed.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use gang_harness::skipped;

const HEADERS: [&str; 2] = ["gang.h", "GangUserAPI.h"];

const SECTIONS: [&str; 8] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "RETURN VALUES",
    "THREADS",
    "WITHOUT A DAEMON",
    "EXAMPLES",
    "SEE ALSO",
];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A header without comments and lines of the preprocessor.
fn code(header: &str) -> String {
    let text = fs::read_to_string(here().join("include").join(header)).unwrap();
    let mut parts = text.split("/*");
    let first = parts.next().unwrap().to_owned();
    let text = parts.fold(first, |code, part| code + " " + part.split_once("*/").unwrap().1);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The functions of a header, each as it is declared.
fn declared(header: &str) -> Vec<String> {
    let code = code(header);
    let parts = code.split([';', '{', '}']).map(str::trim);
    let functions = parts.filter(|part| part.ends_with(')') && !part.starts_with("return "));
    functions.map(|part| part.trim_start_matches("static inline ").to_owned()).collect()
}

/// The numbers of a header's enums, and the members of its structs.
fn numbers_and_members(header: &str) -> Vec<String> {
    let code = code(header);
    let mut found = Vec::new();
    for (before, body) in code.split('{').zip(code.split('{').skip(1)) {
        let body = body.split('}').next().unwrap();
        let kind = before.rsplit([';', '}']).next().unwrap();
        let parts: Vec<&str> = if kind.contains("enum") {
            body.split(',').map(|part| part.split('=').next().unwrap()).collect()
        } else if kind.contains("struct") {
            body.split(';').map(|part| part.split('[').next().unwrap()).collect()
        } else {
            continue;
        };
        let names = parts.into_iter().filter_map(|part| part.trim().rsplit([' ', '*']).next());
        found.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    // Programs read the page by functions, and nothing of what is opaque.
    let own = ["magic", "version", "running", "on_cpus", "until_ns", "validity", "opaque"];
    found.retain(|name| !own.contains(&name.as_str()));
    found
}

struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    fn name(&self) -> &str {
        self.path.file_stem().unwrap().to_str().unwrap()
    }

    /// The lines of a section; none where it lacks the section.
    fn section<'a>(&'a self, title: &'a str) -> impl Iterator<Item = &'a str> {
        let lines =
            self.text.lines().skip_while(move |line| line.strip_prefix(".Sh ") != Some(title));
        lines.skip(1).take_while(|line| !line.starts_with(".Sh "))
    }

    /// The names that it describes.
    fn names(&self) -> Vec<&str> {
        let names = self.section("NAME").filter_map(|line| line.strip_prefix(".Nm "));
        names.map(|name| name.trim_end_matches(" ,")).collect()
    }

    /// The functions of its synopsis, as C declares them.
    fn functions(&self) -> Vec<String> {
        let mut kind = "";
        let mut functions = Vec::new();
        for line in self.section("SYNOPSIS") {
            if let Some(of) = line.strip_prefix(".Ft ") {
                kind = of;
            }
            let Some(function) = line.strip_prefix(".Fn ") else { continue };
            let (name, rest) = function.split_once(' ').unwrap();
            let parameters: Vec<&str> =
                rest.split('"').map(str::trim).filter(|part| !part.is_empty()).collect();
            let space = if kind.ends_with('*') { "" } else { " " };
            functions.push(format!("{kind}{space}{name}({})", parameters.join(", ")));
        }
        functions
    }

    /// The program or function of its example.
    fn example(&self) -> String {
        let lines = self.section("EXAMPLES").skip_while(|line| !line.starts_with(".Bd -literal"));
        let lines = lines.skip(1).take_while(|line| *line != ".Ed");
        lines.map(|line| line.replace("\\e", "\\") + "\n").collect()
    }
}

fn pages() -> Vec<Page> {
    let paths = fs::read_dir(here().join("man")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    let page = |path: PathBuf| Page { text: fs::read_to_string(&path).unwrap(), path };
    paths.into_iter().map(page).collect()
}

#[test]
fn functions_stand_on_pages_as_declared() {
    let pages = pages();
    let mut on_pages: Vec<String> = pages.iter().flat_map(Page::functions).collect();
    let mut declared: Vec<String> = HEADERS.iter().flat_map(|header| declared(header)).collect();
    on_pages.sort();
    declared.sort();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(on_pages, declared);
    for page in &pages {
        assert!(page.names().contains(&page.name()), "{} does not name itself", page.name());
        let of_functions = page.functions();
        for function in &of_functions {
            let name = function.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
            assert!(page.names().contains(&name), "{} does not name {name}", page.name());
        }
    }
}

#[test]
fn numbers_and_members_stand_on_pages() {
    for header in HEADERS {
        let of_header = |page: &&Page| page.text.contains(&format!(".In {header}\n"));
        let pages = pages();
        let words: Vec<&str> =
            pages.iter().filter(of_header).flat_map(|page| page.text.split_whitespace()).collect();
        let all = numbers_and_members(header);
        assert!(all.len() > 30, "{header}: {all:?}");
        let missing: Vec<_> = all.iter().filter(|name| !words.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "no page has these of {header}: {missing:?}");
    }
}

#[test]
fn pages_have_all_sections_and_true_references() {
    let pages = pages();
    let names: Vec<&str> = pages.iter().flat_map(Page::names).collect();
    for page in &pages {
        for section in SECTIONS {
            assert!(page.section(section).next().is_some(), "{} lacks {section}", page.name());
        }
        for reference in page.text.lines().filter_map(|line| line.strip_prefix(".Xr ")) {
            let (name, section) = reference.split_once(' ').unwrap();
            let is_ours = section.starts_with('3') && name.to_lowercase().starts_with("gang");
            assert!(!is_ours || names.contains(&name), "{}: no page of {name}", page.name());
        }
    }
}

#[test]
fn pages_are_well_formed() {
    let mandoc: &[&str] = &["mandoc", "-T", "lint", "-W", "warning"];
    let groff: &[&str] = &["groff", "-mandoc", "-ww", "-z", "-Tutf8"];
    let is_there = |tool: &str| Command::new(tool).stdin(Stdio::null()).output().is_ok();
    let Some(lint) = [mandoc, groff].into_iter().find(|lint| is_there(lint[0])) else {
        skipped("neither mandoc nor groff is here");
        return;
    };
    for page in pages() {
        let output = Command::new(lint[0]).args(&lint[1..]).arg(&page.path).output().unwrap();
        // On stderr mandoc complains of this machine's index of pages.
        let said = if lint == mandoc { output.stdout } else { output.stderr };
        assert_eq!(String::from_utf8_lossy(&said), "", "{} of {}", lint[0], page.name());
    }
}

#[test]
fn examples_of_pages_compile() {
    for page in pages() {
        for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
            let mut compiler = Command::new(compiler)
                .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", language, "-I"])
                .arg(here().join("include"))
                .arg("-")
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let example = page.example();
            assert!(example.starts_with("#include <"), "{}: {example:?}", page.name());
            compiler.stdin.take().unwrap().write_all(example.as_bytes()).unwrap();
            let output = compiler.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}, as {language}: {said}", page.name());
        }
    }
}
