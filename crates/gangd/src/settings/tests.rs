use std::os::unix::fs::PermissionsExt;

use gang_schedule::UserId;

use super::{file::parse, *};
use crate::manual;

fn settings(text: &str) -> anyhow::Result<Settings> {
    Settings::new(&parse(text)?, &Overrides::default())
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(settings("").unwrap(), Settings::default());
}

#[test]
fn every_key_is_read() {
    let read = settings(
        "slice = '20ms'\ngap = '1ms/20ms'\nbackend = 'weight'\nfill = false\nmeasure = false\nuncontended_passthrough = false\ngang_share_max = 0.8\n[limits]\njobs = 7\n",
    )
    .unwrap();
    assert_eq!(read.schedule.slice_ns, 20_000_000);
    assert_eq!(read.schedule.gap, Gap { length_ns: 1_000_000, period_ns: 20_000_000 });
    assert_eq!(read.backend, Some(Backend::Weight));
    assert!(!read.schedule.fill && !read.measure && !read.uncontended_passthrough);
    assert_eq!(read.schedule.cap_permille, 800);
    assert_eq!(read.limits, Limits { jobs: 7, ..Limits::default() });
}

#[test]
fn example_equals_the_defaults() {
    let example = include_str!("../../../../etc/gangd.toml");
    let keys = example
        .lines()
        .filter_map(|line| manual::setting(line.strip_prefix("# ")?).map(|(setting, _)| setting));
    // Nobody has these names.
    let names = [
        "admin_group",
        "[users.",
        "[groups.",
        "share =",
        "cap =",
        "name =",
        "endpoints =",
        "host =",
        "ca =",
        "certificate =",
        "key =",
        "user =",
        "password_file =",
        "bound =",
    ];
    let is_name = |line: &str| names.iter().any(|name| line.starts_with(name));
    let text = keys.filter(|line| !is_name(line)).collect::<Vec<_>>();
    let read = settings(&text.join("\n")).unwrap();
    assert!(read.working_hours.is_some() && read.history.is_some());
    let usual =
        Settings { working_hours: None, history: None, status_file: None, backend: None, ..read };
    assert_eq!(usual, Settings::default());
}

#[test]
fn limits_that_errors_name_are_keys_of_the_example() {
    let example = include_str!("../../../../etc/gangd.toml");
    let (_, limits) = example.split_once("# [limits]\n").unwrap();
    for (_, key) in gang_protocol::error::LIMITS {
        assert!(
            limits.contains(&format!("\n# {key} = ")) || limits.starts_with(&format!("# {key} ")),
            "{key}"
        );
    }
}

#[test]
fn example_has_every_key() {
    let example = include_str!("../../../../etc/gangd.toml");
    let tables = [
        "",
        "[limits]",
        "[history]",
        "[cluster]",
        "[clock]",
        "[slurm]",
        "[net]",
        "[classes.batch]",
        "[working_hours]",
    ];
    for table in tables {
        // The error names all keys that would be right.
        let wrong = parse(&format!("{table}\nnosuchkey = 1")).unwrap_err().to_string();
        let (_, keys) =
            wrong.split_once("expected one of").or(wrong.split_once("expected")).unwrap();
        for key in keys.split('`').skip(1).step_by(2) {
            let is_there = example.contains(&format!("# {key} = "))
                || example.contains(&format!("# [{key}"))
                || example.contains(&format!(".{key}]"));
            assert!(is_there, "{table} {key}");
        }
    }
}

#[test]
fn weights_differ_outside_working_hours() {
    let read = settings(
        "idle_after = '3s'\nforget_after = '1h'\n[classes.interactive]\nweight = 400\n\
         weight_outside = 50\n[working_hours]\ndays = ['mon']\nfrom = '08:00'\nto = '18:00'\n\
         time_zone = 'Europe/Berlin'\n",
    )
    .unwrap();
    let inside = read.schedule.class_weights;
    assert_eq!((inside.interactive, inside.batch), (400, 100));
    let outside = read.outside.weights;
    assert_eq!((outside.interactive, outside.batch), (50, 100));
    assert_eq!(read.idle_after, Duration::from_secs(3));
    assert_eq!(read.forget_after, Duration::from_secs(3600));
    assert!(read.working_hours.is_some());
}

#[test]
fn users_have_shares_of_their_own_or_of_a_group() {
    let sharing = |text: &str| settings(text).map(|read| read.schedule.sharing);
    let by_user = |shares: &[(u32, u32)]| {
        Sharing::ByUser(shares.iter().map(|&(uid, share)| (UserId(uid), share)).collect())
    };
    assert_eq!(sharing("").unwrap(), by_user(&[]));
    assert_eq!(sharing("[users]\nshares = 'by-program'").unwrap(), Sharing::ByProgram);
    assert_eq!(sharing("[users.root]\nshare = 300").unwrap(), by_user(&[(0, 300)]));
    let refused = |text: &str, why: &str| {
        let error = format!("{:#}", sharing(text).unwrap_err());
        assert!(error.contains(why), "{error}");
    };
    refused("[users]\nshares = 'some'", "users.shares: \"some\" is none of equal, by-program");
    refused("[users.root]\nshare = 0", "users.root.share: 0 is not 1 to 10000");
    refused("[users.root]\nsharp = 1", "unknown field `sharp`");
    refused("[users.nobodyhere]\nshare = 1", "users.nobodyhere: there is no such user");
    refused("[groups.nosuchgroup]\nshare = 1", "groups.nosuchgroup: there is no such group");
    refused("[users]\nshares = 'by-program'\n[users.root]\nshare = 1", "have no shares");
    refused("[limits]\nweight = 0", "limits.weight: 0 is not 1 to 10000");
}

#[test]
fn users_have_caps_beside_their_shares() {
    let caps = |text: &str| settings(text).map(|read| read.schedule.caps);
    assert_eq!(caps("").unwrap(), [].into());
    assert_eq!(caps("[users.root]\ncap = 25").unwrap(), [(UserId(0), 250)].into());
    assert_eq!(caps("[users.root]\nshare = 50").unwrap(), [].into());
    let by_program = "[users]\nshares = 'by-program'\n[users.root]\ncap = 50";
    assert_eq!(caps(by_program).unwrap(), [(UserId(0), 500)].into());
    let refused = |text: &str, why: &str| {
        let error = format!("{:#}", caps(text).unwrap_err());
        assert!(error.contains(why), "{error}");
    };
    refused("[users.root]\ncap = 101", "users.root.cap: 101 is not 1 to 100");
    refused("[users.root]\ncap = 0", "users.root.cap: 0 is not 1 to 100");
    refused("[users.root]\n", "users.root: it has neither a share nor a cap");
    let both = settings("[users.root]\nshare = 300\ncap = 40").unwrap();
    let renewed = settings("").unwrap().renewed(both);
    assert_eq!(renewed.tunables(20_000_000).caps, [(UserId(0), 400)].into());
}

#[test]
fn keys_that_need_a_restart_stay_and_are_named() {
    let old = settings("slice = '20ms'\nfill = false\n").unwrap();
    let file = "slice = '20ms'\nfill = true\ngang_share_max = 0.5\nbackend = 'freeze'\nmeasure = false\n\
        uncontended_passthrough = false\nidle_after = '3s'\nstatus_file = true\n[limits]\njobs = 7\n[classes.batch]\n\
        weight = 70\n[history]\nkeep_days = 7\n";
    let new = settings(file).unwrap();
    let needed = [
        "fill",
        "gang_share_max",
        "backend",
        "measure",
        "uncontended_passthrough",
        "status_file",
        "history",
    ];
    assert_eq!(old.what_needs_a_restart(&new), needed);
    let renewed = old.renewed(new.clone());
    assert_eq!(old.what_needs_a_restart(&renewed), [""; 0]);
    assert_eq!((renewed.limits.jobs, renewed.idle_after), (7, Duration::from_secs(3)));
    assert_eq!(renewed.schedule.class_weights, new.schedule.class_weights);
    assert_eq!(renewed.what_needs_a_restart(&new), needed, "as long as the file has it");
    assert_eq!(renewed.what_needs_a_restart(&old), [""; 0]);
}

#[test]
fn the_command_line_wins() {
    let file = parse("slice = '20ms'\ngang_share_max = 0.5").unwrap();
    let slice = Some(Duration::from_millis(5));
    let overrides = Overrides { slice, gang_share_max: Some(0.9), ..Overrides::default() };
    let read = Settings::new(&file, &overrides).unwrap();
    assert_eq!((read.schedule.slice_ns, read.schedule.cap_permille), (5_000_000, 900));
}

#[test]
fn mistakes_name_their_key_and_line() {
    for (text, expected) in [
        ("slice = '10'", "slice"),
        ("slice = '1ns'", "slice_ns"),
        ("gap = '9ms/10ms'", "gap.length_ns"),
        ("backend = 'magic'", "none of rt, weight"),
        ("gang_share_max = 0", "gang_share_max"),
        ("proof_cost = 1", "proof_cost: 1 is not 0.001 to 0.5"),
        ("\n\nslices = 3", "line 3: unknown field"),
        ("[limits]\njobs = 0", "limits.jobs: 0 is not 1 to 10000"),
        ("slice = ", "line 1"),
        ("[history]\npath = 'none'", "enabled = false keeps no history"),
        ("[history]\nkeep_days = 0", "history.keep_days: 0 is not 1 to 36500"),
        ("forget_after = '1s'", "forget_after: 1s is less than idle_after"),
        ("admin_group = 'nosuchgroup'", "admin_group: there is no group"),
        ("[classes.batch]\nweight = 0", "classes.batch.weight: 0 is not 1 to 10000"),
        ("[classes.batch]\nweight_outside = 5", "there are no [working_hours]"),
        ("slice = '30ms'\n[classes.batch]\nslice = '100ms'", "whole slices of 30ms"),
        ("[classes.royal]\nweight = 1", "line 1: unknown field `royal`"),
        ("[working_hours]\ndays = ['mon']\nfrom = '8'\nto = '9:00'", "working_hours.from"),
        ("[working_hours]\ndays = []\nfrom = '8:00'\nto = '9:00'", "working_hours.days"),
        (
            "[working_hours]\ndays = ['mon']\nfrom = '8:00'\nto = '9:00'\ntime_zone = 'X/Y'",
            "working_hours.time_zone",
        ),
    ] {
        let message = format!("{:#}", settings(text).unwrap_err());
        assert!(message.contains(expected), "{text:?} gave {message:?}");
    }
}

#[test]
fn mistakes_in_a_file_name_their_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gangd.toml");
    for (text, expected) in [
        ("\nslice = '10'", "line 2: slice: \"10\" is not a time"),
        ("# gap = 1\n\ngap = '9ms/10ms'", "line 3: gap.length_ns"),
        ("gang_share_max = 0.5\n[classes.batch]\n weight = 0", "line 3: classes.batch.weight: 0"),
        ("gang_share_max = 0.5\n[limits]\njobs_per_user = 7\njobs = 0", "line 4: limits.jobs"),
        ("fill = true\nslices = 3", "line 2: unknown field"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Settings::read(Some(&path), &Overrides::default()).unwrap_err();
        let message = format!("{error:#}");
        let begin = format!("in {}: {expected}", path.display());
        assert!(message.starts_with(&begin), "{text:?} gave {message:?}");
    }
    std::fs::write(&path, "").unwrap();
    let slice = Some(Duration::from_nanos(1));
    let error = Settings::read(Some(&path), &Overrides { slice, ..Overrides::default() });
    assert!(!format!("{:#}", error.unwrap_err()).contains("gangd.toml"));
}

#[test]
fn every_wrong_key_is_named_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gangd.toml");
    const HOURS: &str = "days = ['mon']\nfrom = '8:00'\nto = '9:00'\n";
    let of_hours = |key: &str, wrong: &str| {
        let lines = HOURS.lines().filter(|line| !line.starts_with(key));
        format!("[working_hours]\n{}\n{key} = {wrong}", lines.collect::<Vec<_>>().join("\n"))
    };
    let mut wrong: Vec<String> = [
        "slice = '1w'",
        "slice = '1ns'",
        "gap = '1ms'",
        "gap = '9ms/10ms'",
        "backend = 'magic'",
        "fill = 3",
        "measure = 'yes'",
        "gang_share_max = 2",
        "proof_cost = 0.6",
        "scratch_dir = '/nosuchdirectory'",
        "idle_after = '3h'",
        "idle_after = 'soon'",
        "forget_after = '1s'",
        "forget_after = 'late'",
        "admin_group = 'nosuchgroup'",
        "status_file = 'here'",
        "[history]\npath = 7",
        "[history]\nenabled = 'yes'",
        "[history]\npath = 'none'",
        "[history]\nkeep_jobs = 0",
        "[history]\nkeep_days = 36501",
        "[limits]\njobs = 10001",
        "[limits]\njobs_per_user = 0",
        "[limits]\nclients = 1001",
        "[limits]\nclients_per_user = -1",
        "[limits]\ncpus_per_user = 1000001",
        "[limits]\nswitching_percent = 0",
        "[limits]\nswitching_percent = 51",
        "[limits]\nmessage_timeout = '1'",
        "[limits]\nmessage_timeout = '1ms'",
        "[limits]\nnosuchlimit = 1",
        "[classes.express]\nweight = 0",
        "[classes.express]\nweight_outside = 50",
        "[classes.standby]\nweight = 1",
        "[classes.interactive]\nslice = '20ms'\nweight = 0",
        "[classes.batch]\nweight = 10001",
        "[classes.batch]\nweight_outside = 50",
        "[classes.standby]\nslice = '15ms'",
        "[classes.batch]\nslice_outside = '30ms'",
    ]
    .map(str::to_owned)
    .into();
    for (key, value) in
        [("days", "['someday']"), ("from", "'8'"), ("to", "'25:00'"), ("time_zone", "'X/Y'")]
    {
        wrong.push(of_hours(key, value));
    }
    for outside in ["weight = 50\nweight_outside = 0", "slice_outside = '1s 1'"] {
        wrong.push(format!("[working_hours]\n{HOURS}[classes.interactive]\n{outside}"));
    }
    for text in wrong {
        // The mistake is last.
        let text = format!("# slice = '10ms'\n\n{text}\n");
        std::fs::write(&path, &text).unwrap();
        let error = Settings::read(Some(&path), &Overrides::default()).unwrap_err();
        let (message, line) = (format!("{error:#}"), text.lines().count());
        let expected = format!("in {}: line {line}: ", path.display());
        assert!(message.starts_with(&expected), "{text:?} gave {message:?}");
    }
}

#[test]
fn gaps_follow_the_slice_unless_they_are_set() {
    let gap = |text| settings(text).unwrap().schedule.gap;
    let ms = |period: u64, length: u64| Gap { period_ns: period * 1000, length_ns: length * 1000 };
    assert_eq!(gap("slice = '1ms'"), ms(10_000, 500));
    assert_eq!(gap("slice = '20ms'"), ms(20_000, 1000));
    assert_eq!(gap("slice = '1s'"), ms(20_000, 1000));
    assert_eq!(gap("slice = '1s'\ngap = '500us/10ms'"), ms(10_000, 500));
    let adapt = |text| settings(text).unwrap().adapt_gaps;
    assert!(["", "slice = '20ms'", "slice = '1s'", "gap = 'auto'"].into_iter().all(adapt));
    // There are as many as there can be, or not as many in each slice, or they were asked for.
    let fixed = ["slice = '10ms'", "slice = '30ms'", "slice = '50ms'", "gap = '1ms/20ms'"];
    assert!(!fixed.into_iter().any(adapt));
}

#[test]
fn times_have_units() {
    assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
    assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(gap("none"), Ok(GapSetting::Fixed(Gap::NONE)));
    for wrong in ["", "5", "ms", "-1ms", "1w", "1e400s", "infs"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("password");
    std::fs::write(&path, "secret\n").unwrap();
    let file = format!(
        "[cluster]\nname = 'lab'\nendpoints = ['http://etcd:2379']\nhost = 'a'\nuser = 'a'\n\
         password_file = '{}'",
        path.display()
    );
    let address = || settings(&file).unwrap().cluster.unwrap().address();
    for (mode, is_secret) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        match address() {
            Ok(read) => assert!(is_secret && read.user == Some(("a".into(), "secret".into()))),
            Err(error) => assert!(!is_secret && error.to_string().contains("chmod"), "{error:#}"),
        }
    }
}

#[test]
fn cluster_is_read_whole_or_refused() {
    let of = |text: &str| settings(&format!("[cluster]\n{text}"));
    let read = of("name = 'lab'\nendpoints = ['http://etcd:2379']\nhost = 'a'").unwrap();
    let cluster = read.cluster.unwrap();
    assert_eq!((cluster.name.as_str(), cluster.host.as_str()), ("lab", "a"));
    assert!(cluster.address().unwrap().tls.is_none());
    for (wrong, why) in [
        ("host = 'a'", "cluster.name"),
        ("name = 'a/b'\nendpoints = ['http://e:1']", "cluster.name"),
        ("name = 'lab'", "cluster.endpoints"),
        ("name = 'lab'\nendpoints = ['e:1']", "cluster.endpoints"),
        ("name = 'lab'\nendpoints = ['https://e:1']", "cluster.ca"),
        ("name = 'lab'\nendpoints = ['http://e:1']\nca = '/x'", "belong together"),
        ("name = 'lab'\nendpoints = ['http://e:1']\nuser = 'x'", "belong together"),
        ("name = 'lab'\nendpoints = ['http://e:1']\nhost = ''", "cluster.host"),
    ] {
        let said = format!("{:#}", of(wrong).unwrap_err());
        assert!(said.contains(why), "{wrong}: {said}");
    }
    let clock = |text: &str| settings(&format!("[clock]\n{text}"));
    let ptp = clock("source = 'ptp'\nbound = '20us'").unwrap().clock;
    assert_eq!(ptp.bound.as_micros(), 20);
    assert!(clock("source = 'ptp'").is_err() && clock("bound = '1ms'").is_err());
    let percent = |text: &str| clock(text).map(|it| it.clock.slice_percent).ok();
    let given = ["", "slice_percent = 50", "slice_percent = 0", "slice_percent = 51"];
    assert_eq!(given.map(percent), [Some(5), Some(50), None, None]);
}

#[test]
fn time_of_slurm_is_accounted_for_where_asked() {
    let of = |text: &str| settings(text).map(|read| read.slurm_account_time);
    assert!(!of("").unwrap() && !of("[slurm]").unwrap());
    assert!(of("[slurm]\naccount_time = true").unwrap());
    let wrong = [
        ("[slurm]\naccount_times = true", "account_times"),
        ("[slurm]\naccount_time = 1", "boolean"),
        ("[slurm]\naccount_time = 'true'", "boolean"),
        ("slurm = true", "boolean"),
    ];
    for (text, why) in wrong {
        let error = format!("{:#}", of(text).unwrap_err());
        assert!(error.contains(why), "{text}: {error}");
    }
    let (off, on) = (settings("").unwrap(), settings("[slurm]\naccount_time = true").unwrap());
    assert_eq!(off.what_needs_a_restart(&on), ["slurm"]);
    assert!(!off.renewed(on).slurm_account_time);
}

#[test]
fn flush_timeout_is_bounded_and_changes_at_once() {
    let of = |text: &str| settings(text).map(|read| read.flush_timeout);
    assert_eq!(of("").unwrap(), Duration::from_micros(200));
    assert_eq!(of("[net]\nflush_timeout = '1ms'").unwrap(), Duration::from_millis(1));
    for wrong in ["19us", "6ms", "soon"] {
        let error = of(&format!("[net]\nflush_timeout = '{wrong}'")).unwrap_err();
        assert!(format!("{error:#}").starts_with("net.flush_timeout: "), "{error:#}");
    }
    let (old, new) = (settings("").unwrap(), settings("[net]\nflush_timeout = '1ms'").unwrap());
    assert!(old.what_needs_a_restart(&new).is_empty());
    assert_eq!(old.renewed(new).flush_timeout, Duration::from_millis(1));
}
