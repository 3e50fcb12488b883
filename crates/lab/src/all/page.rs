//! The page of all experiments: one file, with its pictures and its style inside, so that it can be
//! kept and sent.

use maud::{DOCTYPE, Markup, html};

use super::Done;
use crate::harness::machine::Machine;
use crate::harness::report::{Report, measure_rows};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e5e5e5 }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
.verdict { background: #f3f6fa; padding: .5rem 1.2rem }
.missed { color: #a40000 }
details { margin: .5rem 0 }
nav a { margin-right: .8rem }
.wide { overflow-x: auto }
";

pub fn page(machine: &Machine, done: &[Done]) -> String {
    let measures: Vec<_> = done
        .iter()
        .filter_map(|done| done.found.as_ref().ok())
        .flat_map(|report| report.measures.iter().cloned())
        .collect();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "gang lab: all experiments" }
                style { (STYLE) }
            }
            body {
                h1 { "gang lab: all experiments" }
                p { (machine.line()) }
                p {
                    "Conditions alternate within one run, and ratios are taken round by round; intervals are \
                     those of 95 %. What each paper did, and how this compares, is on the pages of docs/lab."
                }
                nav { @for done in done { a href={ "#" (done.name) } { (done.name) } } }
                @if !measures.is_empty() {
                    h2 { "Promises" }
                    (table(measure_rows(&measures)))
                }
                @for done in done {
                    h2 id=(done.name) { (done.name) }
                    @match &done.found {
                        Ok(report) => (section(report, &done.picture)),
                        Err(error) => p.missed { "Not measured: " (error) },
                    }
                }
            }
        }
    };
    markup.into_string()
}

fn section(report: &Report, picture: &Result<String, String>) -> Markup {
    html! {
        p { (report.about) }
        div.verdict { @for sentence in report.verdicts() { p { (sentence) } } }
        @match picture {
            Ok(data) => p { img src=(data) alt=(report.about); },
            Err(error) => p { "No picture: " (error) },
        }
        div.wide { (table(report.series_rows(&[]))) }
        @if let Some(confusion) = &report.confusion { (table(confusion.rows())) }
        @if !report.ratios.is_empty() {
            details open[report.ratios.len() <= 12] {
                summary { "Ratios" }
                (table(report.ratio_rows()))
            }
        }
        @let left_out = report.left_out();
        @if !left_out.is_empty() {
            p { "Left out:" }
            ul { @for note in left_out { li { (note) } } }
        }
        p {
            (report.origin.line()) ". "
            (report.all_rounds()) ". "
            @if let Some(noise) = &report.noise { "While nothing was measured " (noise.line()) "." }
        }
    }
}

fn table((heading, rows): (Vec<&str>, Vec<Vec<String>>)) -> Markup {
    html! {
        table {
            tr { @for cell in heading { th { (cell.replace('_', " ")) } } }
            @for row in rows { tr { @for cell in row { td { (cell) } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::alternate::Run;
    use crate::harness::lab::Lab;
    use crate::harness::options::Options;
    use crate::harness::samples::Series;
    use std::collections::BTreeMap;

    #[test]
    fn a_page_has_what_was_found_and_what_failed() {
        let lab = Lab::new(&Options::default()).unwrap();
        let samples = BTreeMap::from([("per_s", vec![1.0, 2.0])]);
        let series = vec![Series::new("a <b>", samples)];
        let machine = Machine::this(2);
        let run = Run::made_up("speed", 2, series, vec![]);
        let report = Report::new(&lab, "about", run, "per_s");
        let done = [
            Done { name: "speed", found: Ok(report), picture: Ok("data:image/png,x".into()) },
            Done { name: "fire", found: Err("on fire".into()), picture: Err(String::new()) },
        ];
        let page = page(&machine, &done);
        for part in ["a &lt;b&gt;", "src=\"data:image/png,x\"", "Not measured: on fire", "#fire"] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert!(!page.contains("http"), "the page needs nothing else");
    }
}
