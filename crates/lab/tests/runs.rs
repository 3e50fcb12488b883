//! The common part of all experiments: tables and files, what is refused, going on where a run
//! was interrupted, and several experiments in one go.

mod lab;

use std::process::Command;

use gang_harness::skipped;
use lab::{conditions, fifo_is_permitted, gangd_is_there, lab, report};
use serde_json::Value;

#[test]
fn a_table_is_printed_and_figures_go_to_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let [path, samples] = ["figures.json", "samples.csv"].map(|name| dir.path().join(name));
    let fill = format!(
        "fill --noisy --plain --runs 1 --rounds 3 --copies 1 --json {} --csv {}",
        path.display(),
        samples.display()
    );
    let output = lab(&fill);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("time_to_finish_s") && text.contains("plain Linux"), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(json["experiment"], "fill");
    let samples = std::fs::read_to_string(samples).unwrap();
    let time =
        json["figures"].as_array().unwrap().iter().find(|it| it["figure"] == "time_to_finish_s");
    let condition = time.unwrap()["condition"].as_str().unwrap();
    assert!(samples.contains(&format!("fill,{condition},time_to_finish_s,1,")), "{samples}");
}

#[test]
fn a_picture_is_drawn_needs_matplotlib() {
    if gang_picture::python_with("matplotlib").is_none() {
        skipped("matplotlib is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [svg, png] = ["figures.svg", "figures.png"].map(|name| dir.path().join(name));
    let fill = "fill --noisy --plain --runs 1 --rounds 3 --copies 1";
    let fill = lab(&format!("{fill} --picture {} --picture {}", svg.display(), png.display()));
    assert!(fill.status.success(), "{}", String::from_utf8_lossy(&fill.stderr));
    assert!(std::fs::read_to_string(svg).unwrap().contains("<svg"));
    assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn what_cannot_be_done_is_said() {
    for (arguments, message) in [
        ("switch --plain", "no use for --plain"),
        ("calls --plain", "no use for --plain"),
        ("views --plain", "no use for --plain"),
        ("coscheduled --plain", "no use for --plain"),
        ("barrier --runs 0", "at least one round"),
        ("barrier --copies 0", "between 1 and 100"),
        ("idle --jobs 0", "between 1 and 1000"),
        ("openmp --times 0", "at least once"),
        ("programs --times 0", "at least once"),
        ("programs --kinds abacus", "invalid value 'abacus'"),
        ("users --times 0", "at least once"),
        ("users --mpi4py /dev", "/dev is no source of mpi4py"),
        ("holes --instances 0", "between 1 and 100"),
        ("holes --instances 8 --seconds 8", "not sure to be done within 60s"),
        ("interval --points 11s", "10 s at most"),
        ("auto --plain", "no use for --plain"),
        ("hostile --plain", "no use for --plain"),
        ("hostile --attack tanks", "invalid value 'tanks'"),
        ("doctor --plain", "no use for --plain"),
        ("watching --plain", "no use for --plain"),
        ("doctor --noisy --only nothing", "no such program: nothing"),
        ("fill --seconds 1", "no use for --seconds"),
        ("openmp --threads 2", "no use for --threads"),
        ("doctor --paper", "no use for --paper"),
        ("gauss --plain --backend rt", "cannot be used with"),
        ("gauss --picture figures.pdf", "ends with .svg or .png"),
        ("gauss --resume /nowhere/run", "/nowhere/run"),
        ("all --json figures.json", "--out"),
        ("idle --noisy --runs 1 --gangd /nowhere", "/nowhere"),
        ("fill --quick --paper", "cannot be used with"),
        ("slices --backend rt --backends rt,signal", "cannot be used with"),
    ] {
        let output = lab(arguments);
        assert!(!output.status.success(), "{arguments} succeeded");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(message), "{arguments}: {errors}");
    }
}

#[test]
fn specification_is_a_table_of_promises_needs_gangd() {
    if !gangd_is_there() || !fifo_is_permitted() {
        return;
    }
    let spec = report("spec --only share,release --runs 1 --seconds 0.3");
    assert_eq!(spec["measures"].as_array().unwrap().len(), 3, "{spec}");
    assert_eq!(spec["failures"].as_array().unwrap().len(), 0, "{spec}");
    let [share, release] = &spec["reports"].as_array().unwrap()[..] else { panic!("{spec}") };
    let expected = ["beside hogs, plain Linux", "beside hogs, gangd", "weights 1, 1, 2, gangd"];
    assert_eq!(conditions(share), expected);
    assert_eq!(share["measures"].as_array().unwrap().len(), 2, "{share}");
    assert_eq!(release["experiment"], "release");
    let samples = release["series"][0]["samples"]["released_after_ms"].as_array().unwrap();
    assert_eq!(samples.len(), 3, "three rounds of it are one of others");
    let daemons = share["daemons"].as_array().unwrap();
    assert!(daemons.len() == 1 && daemons[0].as_str().unwrap().starts_with("backend "), "{share}");
    let error = lab("spec --only nothing");
    assert!(String::from_utf8_lossy(&error.stderr).contains("nothing of nothing; it has gauss"));
}

/// That a page needs no other file and no network.
fn is_complete_in_itself(page: &str) {
    let all = |attribute: &str| -> Vec<String> {
        let parts = page.split(attribute).skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
    };
    assert!(all("src=\"").iter().all(|source| source.starts_with("data:")), "{page}");
    assert!(all("href=\"").iter().all(|target| target.starts_with('#')), "{page}");
    for outside in ["<link", "<script", "<iframe", "@import", "url(", "srcset"] {
        assert!(!page.contains(outside), "{outside} in {page}");
    }
}

#[test]
fn an_option_of_all_without_use_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().display();
    let all = "all --plain --noisy --quick --runs 1 --threads 1 --seconds 0.1 --only fill";
    let output = lab(&format!("{all} --out {out}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
    assert!(page.contains("--seconds: it has no part in this experiment."), "{page}");
    assert!(!page.contains("--threads: it has no part"), "{page}");
}

#[test]
fn the_command_is_told_in_text_and_json() {
    let report = report("fill --plain --runs 1 --rounds 3 --copies 1");
    let command = report["command"].as_str().unwrap();
    assert!(command.starts_with("gang lab fill --plain"), "{command}");
    let output = lab("fill --plain --noisy --runs 1 --rounds 3 --copies 1");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Z: gang lab fill --plain "), "{text}");
}

#[test]
fn all_makes_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().display();
    let output = lab(&format!(
        "all --plain --noisy --quick --runs 1 --seconds 0.1 --only priority,switch --out {out}"
    ));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
    assert!(page.contains("same priority") && page.contains("no switches"), "{page}");
    is_complete_in_itself(&page);
    match page.contains("No picture: ") {
        true => skipped(format!("needs python3-matplotlib: {page}")),
        false => assert!(page.contains("src=\"data:image/svg+xml;base64,"), "{page}"),
    }
    let json = std::fs::read(dir.path().join("figures.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let report = &json["reports"][0];
    assert_eq!(report["experiment"], "priority");
    // The report says when and how it was made.
    let began = report["began"].as_str().unwrap();
    assert!(began.len() == "2026-01-02T03:04:05Z".len() && began.starts_with("20"), "{began}");
    let command = report["command"].as_str().unwrap();
    assert!(command.starts_with("gang lab all --plain --noisy"), "{command}");
    assert!(page.contains(began) && page.contains(command), "{page}");
    assert_eq!(report["goes_on"], false, "{report}");
    assert_eq!(report["daemons"], serde_json::json!([]), "of plain Linux: {report}");
    assert_eq!(report["noise_samples"].as_array().unwrap().len(), 2, "before and after: {report}");
    assert_eq!(json["failures"][0][0], "switch");
    let csv = std::fs::read_to_string(dir.path().join("samples.csv")).unwrap();
    assert!(csv.lines().count() > 3, "{csv}");
    let error = lab(&format!("all --only nothing --out {out}"));
    assert!(String::from_utf8_lossy(&error.stderr).contains("no experiment nothing"));
}

#[test]
fn a_run_goes_on_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let arguments = format!("fill --plain --rounds 3 --copies 1 --resume {}", path.display());
    let first = report(&format!("{arguments} --runs 1"));
    let more = report(&format!("{arguments} --runs 2"));
    let samples = |report: &Value| report["series"][0]["samples"]["time_to_finish_s"].clone();
    assert_eq!(samples(&more)[0], samples(&first)[0]);
    assert_eq!((&first["goes_on"], &more["goes_on"]), (&false.into(), &true.into()));
    assert_eq!(samples(&more).as_array().unwrap().len(), 2);
    for other in [format!("{arguments} --threads 1"), arguments.replace(" --plain", "")] {
        let other = lab(&format!("{other} --noisy --runs 1"));
        let errors = String::from_utf8_lossy(&other.stderr);
        assert!(errors.contains("measured differently"), "{errors}");
    }
}

#[test]
fn all_experiments_go_on_from_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let run = || -> Value {
        let output = lab(&format!(
            "all --plain --noisy --runs 1 --seconds 0.1 --threads 1 --only priority,speedup --out {} --resume {}",
            dir.path().display(),
            path.display()
        ));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&std::fs::read(dir.path().join("figures.json")).unwrap()).unwrap()
    };
    let first = run();
    assert_eq!(first["reports"][1]["experiment"], "priority", "{first}");
    // Killed while the second experiment wrote its first line.
    let written = std::fs::read_to_string(&path).unwrap();
    let cut = written.find("priority").unwrap();
    std::fs::write(&path, &written[..cut]).unwrap();
    let again = run();
    assert_eq!(again["reports"][0]["series"], first["reports"][0]["series"]);
    assert_eq!(again["reports"][1]["series"].as_array().unwrap().len(), 3, "{again}");
    let resumed = std::fs::read_to_string(&path).unwrap();
    let samples = |of: &str| {
        let is_sample = |line: &&str| line.starts_with("{\"sample\"") && line.contains(of);
        resumed.lines().filter(is_sample).count()
    };
    assert_eq!((samples("\"speedup\""), samples("\"priority\"")), (1, 3), "{resumed}");
}

#[test]
fn terminal_shows_how_far_a_run_is_a_pipe_does_not() {
    let run = "fill --plain --noisy --runs 2 --rounds 3 --copies 1";
    let piped = lab(run);
    let errors = String::from_utf8_lossy(&piped.stderr);
    assert!(piped.status.success() && !errors.contains("left: "), "{errors}");
    let at_terminal = format!("stty cols 120; exec '{}' {run}", env!("CARGO_BIN_EXE_gang-lab"));
    let mut script = Command::new("script");
    script.args(["-qec", &at_terminal, "/dev/null"]).env("TERM", "xterm");
    let Ok(shown) = script.stdin(std::process::Stdio::null()).output() else {
        skipped("there is no script, of the package bsdutils");
        return;
    };
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("left: round 1 of 2: batch"), "{shown}");
    assert!(shown.contains("fill ") && shown.contains("0/4"), "{shown}");
    assert!(shown.contains("time_to_finish_s"), "the table comes after: {shown}");
}

#[test]
fn demo_is_table_and_timeline_of_both_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    if Command::new("gcc").arg("--version").output().is_err() {
        skipped("there is no gcc");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = lab(&format!("demo --seconds 0.3 --out {}", dir.path().display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("two, plain Linux") && text.contains("two, gang run"), "{text}");
    let times = std::fs::read(dir.path().join("times.json")).unwrap();
    let times: Vec<Value> = serde_json::from_slice(&times).unwrap();
    assert_eq!(times[0]["program"], "gauss (libgomp)");
    if times.len() == 1 {
        skipped(text.lines().find(|line| line.starts_with("Without numpy: ")).expect("why not"));
    }
    for times in &times {
        assert!(text.contains(times["program"].as_str().unwrap()), "{text}");
        assert!(times["alone_s"].as_f64() > Some(0.0), "{times}");
        // On a busy machine neither may end in its time.
        let both = ["plain_s", "gangs_s"].map(|time| times.get(time));
        assert!(both.iter().all(Option::is_some), "{times}");
    }
    if let Some(why) = text.lines().find(|line| line.starts_with("No picture of ")) {
        skipped(why);
        return;
    }
    // A line for each CPU, of either way.
    let ways = ["plain Linux\n  CPU 0 ", "gangd\n  CPU 0 "];
    assert!(ways.iter().all(|way| text.contains(way)), "{text}");
    match text.lines().find(|line| line.starts_with("Not drawn: ")) {
        Some(why) => skipped(why),
        None => {
            let picture = std::fs::read_to_string(dir.path().join("timeline.svg")).unwrap();
            let names = ["plain Linux", "gangd", "copy A", "copy B"];
            assert!(
                names.iter().all(|what| picture.contains(what)),
                "the picture says what is what"
            );
            assert!(dir.path().join("timeline.png").is_file());
        }
    }
}
