use super::*;

fn own() -> Vec<String> {
    vec!["n1".to_owned()]
}

fn gang(job: u64, out_s: u64) -> Gang {
    Gang { job: JobId(job), out_of_slot_ns: out_s * SECOND }
}

fn answer(limit_min: u64, used_s: u64, comment: &str) -> Answer {
    Answer {
        running: Some(Running { limit_min: Some(limit_min), used_s }),
        first_host: Some("n1".into()),
        comment: Some(comment.into()),
    }
}

fn over(comment: &str) -> Answer {
    Answer { running: None, ..answer(0, 0, comment) }
}

/// Slurm, with a job of that limit whose one gang is out of slot for a part of the time (in
/// percent). Returns when the job was cut, its limit then, and how many calls there were.
fn play(limit_min: u64, out_percent: u64, fails: impl Fn(u64) -> bool) -> (u64, u64, u64) {
    let mut account = Account::default();
    let (mut limit, mut calls) = (limit_min, 0);
    for second in 0.. {
        if second >= limit * 60 {
            return (second, limit, calls);
        }
        if second % 5 != 0 {
            continue;
        }
        let now_ns = (1000 + second) * SECOND;
        let out_of_slot_ns = second * SECOND * out_percent / 100;
        account.saw(now_ns, &[Gang { job: JobId(1), out_of_slot_ns }], None);
        if !account.is_due(now_ns) {
            continue;
        }
        calls += 1;
        if fails(second) {
            account.failed(now_ns + 10 * SECOND);
            continue;
        }
        match account.hear(now_ns, Some(&answer(limit, second, "")), &own(), false) {
            Outcome::Change(change) => {
                calls += 1;
                limit = change.limit_min.unwrap_or(limit);
                account.changed(&change);
            }
            other => assert_eq!(other, Outcome::Nothing),
        }
    }
    unreachable!()
}

#[test]
fn job_has_its_minutes_in_slot_and_few_more() {
    for limit_min in [1, 2, 7, 60, 1440] {
        for out_percent in [0, 1, 10, 50, 67, 75, 90] {
            let (cut_s, limit, calls) = play(limit_min, out_percent, |_| false);
            let out_s = cut_s * out_percent / 100;
            let at = format!("{limit_min} min, {out_percent} %: cut after {cut_s} s");
            assert!(cut_s - out_s >= limit_min * 60, "{at}");
            assert!((limit - limit_min) * 60 <= out_s + 90, "{at}");
            assert!(out_percent > 0 || limit == limit_min, "{at}");
            assert!(calls <= 2 * cut_s.div_ceil(60) + 2, "{at}: {calls} calls");
            assert!(limit_min < 1440 || calls < cut_s / 1000, "{at}: {calls} calls");
        }
    }
}

#[test]
fn silence_of_slurm_is_made_up_for() {
    // Silent for half an hour in the middle, and for one look in four.
    let fails = |second: u64| (600..2400).contains(&second) || second % 4 == 0;
    let (cut_s, limit, _) = play(60, 50, fails);
    assert!(cut_s / 2 >= 3600, "{cut_s}");
    assert!((limit - 60) * 60 <= cut_s / 2 + 90, "{limit}");
}

#[test]
fn change_that_was_made_unheard_is_not_made_twice() {
    let mut account = Account::default();
    account.saw(SECOND, &[gang(1, 45)], None);
    let change = account.hear(SECOND, Some(&answer(1, 50, "")), &own(), false);
    let Outcome::Change(Change { limit_min: Some(3), .. }) = change else { panic!("{change:?}") };
    account.failed(11 * SECOND);
    assert!(!account.is_due(10 * SECOND) && account.is_due(11 * SECOND));
    let mut unmade = account.clone();
    let outcome = account.hear(11 * SECOND, Some(&answer(3, 60, "")), &own(), false);
    assert!(matches!(outcome, Outcome::Nothing), "{outcome:?}");
    let outcome = unmade.hear(11 * SECOND, Some(&answer(1, 60, "")), &own(), false);
    assert!(matches!(outcome, Outcome::Change(Change { limit_min: Some(3), .. })));
}

#[test]
fn limit_that_others_set_is_stretched() {
    let mut account = Account::default();
    account.saw(SECOND, &[gang(1, 10)], None);
    let Outcome::Change(change) = account.hear(SECOND, Some(&answer(1, 5, "")), &own(), false)
    else {
        panic!()
    };
    account.changed(&change);
    assert_eq!(change.limit_min, Some(2));
    // An administrator gives it an hour, then ten minutes.
    account.saw(100 * SECOND, &[gang(1, 100)], None);
    let far = account.hear(100 * SECOND, Some(&answer(60, 100, "")), &own(), false);
    assert_eq!(far, Outcome::Nothing);
    let near = account.hear(600 * SECOND, Some(&answer(10, 590, "")), &own(), false);
    assert!(matches!(near, Outcome::Change(Change { limit_min: Some(12), .. })), "{near:?}");
}

#[test]
fn job_without_a_limit_gets_none() {
    let mut account = Account::default();
    account.saw(SECOND, &[gang(1, 3000)], None);
    let running = Some(Running { limit_min: None, used_s: 5 });
    let unlimited = Answer { running, ..answer(0, 0, "") };
    assert_eq!(account.hear(SECOND, Some(&unlimited), &own(), false), Outcome::Nothing);
    assert!(!account.is_due(60 * SECOND));
}

#[test]
fn steps_count_once_if_parallel_each_if_serial() {
    let mut account = Account::default();
    account.saw(0, &[gang(1, 4), gang(2, 3)], None);
    account.saw(0, &[gang(1, 9), gang(2, 8)], None);
    assert_eq!(account.out_of_slot_ns, 9 * SECOND);
    account.saw(0, &[gang(2, 8)], Some(gang(1, 10)));
    account.saw(0, &[], Some(gang(2, 12)));
    assert_eq!(account.out_of_slot_ns, 14 * SECOND);
    account.saw(0, &[], Some(gang(3, 2)));
    assert_eq!(account.out_of_slot_ns, 16 * SECOND);
}

#[test]
fn gang_that_is_handed_over_late_counts_once() {
    let mut account = Account::default();
    account.saw(0, &[gang(1, 80)], None);
    account.saw(0, &[], None);
    account.saw(0, &[], Some(gang(1, 83)));
    assert_eq!(account.out_of_slot_ns, 83 * SECOND);
    assert!(account.counted.is_empty());
}

#[test]
fn comment_of_others_is_kept() {
    let comment = |before: &str| {
        let mut account = Account::default();
        account.saw(0, &[], Some(gang(1, 83)));
        match account.hear(0, Some(&answer(60, 0, before)), &own(), false) {
            Outcome::Change(change) => change.comment,
            other => panic!("{other:?}"),
        }
    };
    let own_words = "gangd: 83 s out of slot, 0 min added to the limit";
    assert_eq!(comment("").as_deref(), Some(own_words));
    let both = format!("paid by physics; {own_words}");
    assert_eq!(comment("paid by physics").as_deref(), Some(both.as_str()));
    let old = "paid by physics; gangd: 3 s out of slot, 0 min added to the limit";
    assert_eq!(comment(old).as_deref(), Some(both.as_str()));
}

#[test]
fn comment_that_cannot_be_kept_is_left_alone() {
    let mut account = Account::default();
    account.saw(0, &[], Some(gang(1, 83)));
    let json = answer(60, 0, "{\"cpu\": 1}");
    assert_eq!(account.hear(0, Some(&json), &own(), false), Outcome::Nothing);
    account.saw(0, &[], Some(gang(2, 83)));
    let too_long = Answer { comment: None, ..answer(60, 0, "") };
    assert_eq!(account.hear(0, Some(&too_long), &own(), false), Outcome::Nothing);
    assert_eq!(account.hear(0, Some(&over("[1]")), &own(), false), Outcome::Forget);
}

#[test]
fn record_of_a_job_that_is_over_is_written_twice() {
    let mut account = Account::default();
    account.saw(0, &[], Some(gang(1, 83)));
    assert!(account.is_due(0));
    let text = "gangd: 83 s out of slot, 0 min added to the limit";
    assert_eq!(account.hear(0, Some(&over("")), &own(), false), Outcome::File(text.into()));
    assert!(!account.filed());
    assert!(!account.is_due(9 * SECOND) && account.is_due(10 * SECOND));
    // Slurm has forgotten the job.
    assert_eq!(account.hear(10 * SECOND, None, &own(), false), Outcome::File(text.into()));
    assert!(account.filed());
}

#[test]
fn job_of_another_host_is_that_hosts() {
    let mut account = Account::default();
    account.saw(0, &[gang(1, 83)], None);
    let elsewhere = Answer { first_host: Some("n2".into()), ..answer(1, 0, "") };
    assert_eq!(account.hear(0, Some(&elsewhere), &own(), false), Outcome::Nothing);
    assert!(!account.is_due(5000 * SECOND));
    account.saw(0, &[], Some(gang(1, 90)));
    assert!(account.is_due(0));
    assert_eq!(account.hear(0, None, &own(), false), Outcome::Forget);
}

#[test]
fn job_that_is_ending_stays_the_hosts_that_it_was() {
    let ending = Answer { first_host: None, ..over("") };
    let mut account = Account::default();
    account.saw(0, &[gang(1, 83)], None);
    account.hear(0, Some(&answer(60, 0, "")), &own(), false);
    account.saw(0, &[], Some(gang(1, 83)));
    assert!(matches!(account.hear(0, Some(&ending), &own(), false), Outcome::File(_)));
    // It was not asked for before it began to end.
    let mut account = Account::default();
    account.saw(0, &[], Some(gang(1, 83)));
    assert_eq!(account.hear(0, Some(&ending), &own(), false), Outcome::Nothing);
    assert!(account.is_due(10 * SECOND));
    let outcome = account.hear(10 * SECOND, Some(&over("")), &own(), false);
    assert!(matches!(outcome, Outcome::File(_)), "{outcome:?}");
}

#[test]
fn daemon_that_ends_gives_what_is_owed() {
    let mut account = Account::default();
    account.saw(0, &[gang(1, 83)], None);
    assert_eq!(account.hear(0, Some(&answer(600, 9, "")), &own(), false), Outcome::Nothing);
    let last = account.hear(0, Some(&answer(600, 9, "")), &own(), true);
    assert!(matches!(last, Outcome::Change(Change { limit_min: Some(602), comment: Some(_) })));
}

#[test]
fn ends_of_many_steps_are_reported_once_a_minute() {
    let mut account = Account::default();
    let mut reports = 0;
    for second in 0..600 {
        let now_ns = second * SECOND;
        account.saw(now_ns, &[gang(second + 1, 0)], Some(gang(second, 1)));
        if account.is_due(now_ns) {
            reports += 1;
            let heard = account.hear(now_ns, Some(&answer(6000, second, "")), &own(), false);
            if let Outcome::Change(change) = heard {
                account.changed(&change);
            }
        }
    }
    assert!((9..=12).contains(&reports), "{reports}");
}
