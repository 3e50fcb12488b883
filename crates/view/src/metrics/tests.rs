//! The text for Prometheus, and how Prometheus reads it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;
use crate::fixture;
use crate::live::{Model, Moment};

fn snapshot(names: &[&str]) -> Snapshot {
    let mut model = Model::new("host");
    let at = Moment::now();
    model.connected(Path::new("/run/gangd/gangd.sock"));
    model.status(fixture::status());
    let jobs = (3..).zip(names).map(|(id, name)| fixture::job(id, name)).collect();
    model.jobs(jobs, at);
    model.snapshot(at)
}

#[test]
fn samples_have_labels_and_base_units() {
    let text = render(&snapshot(&["lu", "evil\"}\n\\ 1"]));
    for line in [
        "gangd_up 1.0",
        "# TYPE gangd_switches counter",
        "gangd_switches_total 5000.0",
        "gangd_late_plans_total 3.0",
        "gangd_plans_ran_out_total 0.0",
        "gangd_slice_seconds 0.01",
        r#"gangd_switch_seconds{phase="late",statistic="p99"} 0.000045"#,
        r#"gangd_job_state{id="3",name="lu",owner="root",state="running"} 1.0"#,
        r#"gangd_job_coscheduled_ratio{id="3",name="lu",owner="root"} 0.99"#,
        r#"gangd_job_cpu_seconds_total{id="3",name="lu",owner="root"} 20.0"#,
        r#"gangd_job_cpus{id="4",name="evil\"}\n\\ 1",owner="root"} 2.0"#,
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("gangd_job_memory"), "absent is not 0:\n{text}");
    assert!(!text.contains("gangd_job_progress"), "absent is not 0:\n{text}");
    assert!(!text.contains("gangd_working_time"));
}

#[test]
fn without_a_daemon_that_is_all() {
    let text = render(&Model::new("host").snapshot(Moment::now()));
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples, ["gangd_up 0.0"]);
}

#[test]
fn node_exporter_gets_counters_by_their_whole_names() {
    let text = render_for_textfile(&snapshot(&["lu"]));
    assert!(text.contains("# TYPE gangd_switches_total counter\ngangd_switches_total 5000.0\n"));
    assert!(text.contains("# HELP gangd_switches_total Switches"));
    assert!(text.contains("# TYPE gangd_slice_seconds gauge\n"));
    assert!(!text.contains("# EOF") && !text.contains("_total_total"));
}

/// All that there is, with nothing absent.
fn complete() -> Snapshot {
    let mut snapshot = snapshot(&["lu"]);
    let mut view = snapshot.jobs[0].clone();
    view.job.memory = Some(v1::Memory { promised_bytes: 1, used_bytes: Some(1), enforced: false });
    view.job.disk_bytes = Some(1);
    (view.job.overhead, view.job.user_cap) = (0.01, Some(0.5));
    view.job.progress = Some(v1::Progress { done: 1.0, total: 4.0, at_ns: 0 });
    snapshot.jobs = vec![view].into();
    let status = Status { working_hours: Some(true), ..fixture::status() };
    snapshot.status = Some(status.into());
    snapshot
}

/// Names of all metrics, as Prometheus has them.
fn names() -> Vec<String> {
    let text = render_for_textfile(&complete());
    let declared = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    declared.filter_map(|rest| Some(rest.split(' ').next()?.to_owned())).collect()
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The lines of the table in docs/metrics.md.
fn documented() -> String {
    let text = render_for_textfile(&complete());
    let of = |metric: &str| {
        let (name, mut lines) = (metric.split(' ').next().unwrap(), metric.lines());
        let help = lines.next().unwrap()[name.len()..].trim().trim_end_matches('.');
        let kind = lines.next().unwrap().rsplit(' ').next().unwrap();
        let of_sample = lines.next().unwrap().split(['{', ',']).skip(1);
        let labels = of_sample.filter_map(|label| label.split_once('=')).map(|(label, _)| label);
        let is_own = |label: &&str| {
            !(name.starts_with("gangd_job_") && ["id", "name", "owner"].contains(label))
        };
        let labels: Vec<_> = labels.filter(is_own).map(|label| format!("`{label}`")).collect();
        let labels = labels.join(", ");
        format!("| `{name}` | {kind} | {labels} | {help} |\n").replace("|  |", "| |")
    };
    text.split("# HELP ").skip(1).map(of).collect()
}

#[test]
fn each_metric_is_documented() {
    let path = file("docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let found: String = page.split_inclusive('\n').filter(|it| it.starts_with("| `")).collect();
    let expected = documented();
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, page.replace(&found, &expected)).unwrap();
    } else {
        assert_eq!(found, expected, "REWRITE=1 renews docs/metrics.md");
    }
}

#[test]
fn alerts_and_dashboard_use_metrics_that_there_are() {
    let names = names();
    for path in ["gangd.rules.yml", "gangd.rules.test.yml", "dashboard.json"] {
        let text = std::fs::read_to_string(file("integrations/prometheus").join(path)).unwrap();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let used: Vec<&str> =
            text.split(|c| !is_part(c)).filter(|word| word.starts_with("gangd_")).collect();
        assert!(used.len() > 5, "{path}");
        for word in used {
            assert!(
                names.iter().any(|name| name == word),
                "{path} uses {word}, which is no metric"
            );
        }
    }
    let dashboard = std::fs::read(file("integrations/prometheus/dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

/// Whether they do as the cases say, promtool knows.
#[test]
fn each_alert_comes_in_its_case_and_not_otherwise() {
    let read = |name| std::fs::read_to_string(file("integrations/prometheus").join(name)).unwrap();
    let (rules, cases) = (read("gangd.rules.yml"), read("gangd.rules.test.yml"));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 6, "{alerts:?}");
    for alert in alerts {
        let is_of = |case: &&str| case.lines().next() == Some(alert);
        let of: Vec<&str> = cases.split("alertname: ").filter(is_of).collect();
        for (expected, what) in [("exp_alerts:\n", "comes"), ("exp_alerts: []\n", "does not come")]
        {
            assert!(of.iter().any(|case| case.contains(expected)), "no case where {alert} {what}");
        }
    }
}

#[test]
fn needs_promtool_metrics_and_alerts_are_accepted() {
    let promtool = |args: &[&str], input: String| {
        let mut child = Command::new("promtool")
            .args(args)
            .current_dir(file("integrations/prometheus"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().unwrap().write_all(input.as_bytes())?;
        child.wait_with_output()
    };
    for (args, input) in [
        (&["check", "metrics"][..], render_for_textfile(&complete())),
        (&["check", "rules", "gangd.rules.yml"], String::new()),
        (&["test", "rules", "gangd.rules.test.yml"], String::new()),
    ] {
        match promtool(args, input) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                gang_harness::skipped("no promtool (on Debian: the package prometheus)");
                return;
            }
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(error) => panic!("{error}"),
            Ok(output) => {
                let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (out, err) = (said(&output.stdout), said(&output.stderr));
                assert!(output.status.success(), "promtool {args:?}:\n{out}{err}");
                assert!(args[1] != "metrics" || (out + &err).trim().is_empty());
            }
        }
    }
}
