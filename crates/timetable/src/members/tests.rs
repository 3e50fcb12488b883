use gang_schedule::Allowed;

use super::*;

fn cpus(cpus: &[u32]) -> CpuSet {
    cpus.iter().copied().collect()
}

fn job() -> Members {
    Members::new(Controls::default(), Attributes::other(5), cpus(&[0, 1]))
}

fn seen(tid: u32, now: Attributes, of: &[u32]) -> Option<Seen> {
    let cpus = cpus(of);
    Some(Seen { tid, now, cpus, were_given: false, original: None, started_by: None })
}

#[test]
fn known_threads_stay_remembered_gone_ones_leave() {
    let mut job = job();
    assert_eq!(job.update(&[3, 7], |tid| seen(tid, Attributes::other(1), &[0, 1])), 2);
    job.note_cpus(&[(3, 1), (9, 0)]);
    let look = |tid| if tid == 8 { None } else { seen(tid, Attributes::other(0), &[1]) };
    assert_eq!(job.update(&[3, 5, 8], look), 2);
    let (first, second) = (job.threads()[0], job.threads()[1]);
    assert_eq!(job.threads().len(), 2);
    assert_eq!((first.tid, first.original, first.cpu), (3, Attributes::other(1), Some(1)));
    // Started by a thread in its slot, it is an ordinary one; and it chose its CPU.
    assert_eq!((second.tid, second.original), (5, Attributes::other(5)));
    assert!(second.user_pinned && !first.user_pinned);
}

#[test]
fn nothing_is_on_file_of_some_alone() {
    let (none, normal) = (BTreeMap::new(), Attributes::other(5));
    let mut job = job();
    job.update(&[3, 4], |tid| seen(tid, normal, &[0, 1]));
    assert_eq!(job.own_attributes(&[9], &none, &none), none, "a release gives that to all");
    // The one that leaves may have been started by one that differs.
    let wish = Attributes { nice: 7, ..Attributes::other(0) };
    let expected: BTreeMap<u32, Attributes> = [(6, wish)].into();
    job.update(&[3, 4, 6], |tid| seen(tid, if tid == 6 { wish } else { normal }, &[0, 1]));
    let all: BTreeMap<u32, Attributes> = [(3, normal), (4, normal), (6, wish), (9, normal)].into();
    assert_eq!(job.own_attributes(&[9], &none, &none), all);
    assert_eq!(job.own_attributes(&[9], &expected, &expected), all);
    // One that a leaver started meanwhile wants what that one does.
    assert_eq!(job.own_attributes(&[9, 10], &all, &none), all);
    // The one that differs leaves: it may have started those that stay.
    job.update(&[3, 4], |tid| seen(tid, normal, &[0, 1]));
    let left: BTreeMap<u32, Attributes> = [(3, normal), (4, normal), (6, wish)].into();
    assert_eq!(job.own_attributes(&[6], &all, &none), left);
    assert_eq!(job.own_attributes(&[], &left, &none), none);
}

#[test]
fn threads_that_end_soon_differ_from_those_that_stay() {
    let mut job = job();
    let mut read = |tids: &[u32]| {
        job.update(tids, |tid| seen(tid, Attributes::other(5), &[0, 1]));
        let Turnover { ended_young, staying } = job.take_turnover();
        (ended_young, staying)
    };
    assert_eq!(read(&[1, 2]), (0, 0), "both came");
    assert_eq!(read(&[1, 2, 3]), (0, 0));
    assert_eq!(read(&[1, 2, 3, 4]), (0, 0));
    assert_eq!(read(&[1, 2, 4, 5]), (1, 2), "3 was seen at two looks, 1 and 2 at three");
    assert_eq!(read(&[1, 4, 5]), (0, 1), "2 had been there for long");
    assert_eq!(read(&[5]), (0, 0));
    assert_eq!(read(&[5]), (0, 1));
    job.update(&[5, 6], |tid| seen(tid, Attributes::other(5), &[0, 1]));
    job.update(&[5, 7], |tid| seen(tid, Attributes::other(5), &[0, 1]));
    job.update(&[5], |_| None);
    assert_eq!(job.take_turnover(), Turnover { ended_young: 2, staying: 1 }, "between looks");
}

#[test]
fn cpus_of_gangds_are_nobodys_choice() {
    let mut job = job();
    job.pinned = Some(cpus(&[1]));
    let given = Seen { were_given: true, ..seen(4, Attributes::other(0), &[0]).unwrap() };
    job.update(&[3, 4, 5], |tid| match tid {
        3 => seen(3, Attributes::other(0), &[1]),
        4 => Some(given.clone()),
        _ => seen(5, Attributes::other(0), &[0]),
    });
    let user_pinned: Vec<bool> = job.threads().iter().map(|thread| thread.user_pinned).collect();
    assert_eq!(user_pinned, [false, false, true]);
}

#[test]
fn choice_that_is_not_given_back_yet_is_not_certain() {
    let online = cpus(&[0, 1, 2]);
    let mut job = Members::new(Controls::default(), Attributes::other(0), online.clone());
    job.update(&[3], |tid| seen(tid, Attributes::other(0), &[0, 1, 2]));
    job.begin_pins(vec![cpus(&[0, 1])]);
    job.see_cpus(3, cpus(&[2]), false, &online);
    job.end_pins();
    // The timetable from before it restricts the thread just before it ends.
    job.see_cpus(3, cpus(&[0, 1]), true, &online);
    assert_eq!(job.take_overruled().len(), 1);
    job.end_pins();
    assert_eq!(job.user_pinned().count(), 0, "a release must not leave it as it is");
    assert!(!job.is_usual(3, &cpus(&[2])), "it is looked at until it has them");
    job.see_cpus(3, cpus(&[2]), false, &online);
    assert_eq!(job.user_pinned().collect::<Vec<_>>(), [3]);
}

#[test]
fn choices_of_cpus_are_seen_and_kept() {
    let online = cpus(&[0, 1, 2]);
    let mut job = Members::new(Controls::default(), Attributes::other(0), online.clone());
    job.update(&[3, 4], |tid| seen(tid, Attributes::other(0), &[0, 1, 2]));
    assert_eq!(job.allowed(&online), Allowed::anywhere());
    // In a slot on CPUs 0 and 1.
    job.begin_pins(vec![cpus(&[0, 1])]);
    job.pinned = Some(cpus(&[0, 1]));
    job.see_cpus(3, cpus(&[0, 1]), true, &online);
    assert_eq!(job.allowed(&online), Allowed::anywhere(), "those of the slot");
    job.see_cpus(3, cpus(&[2]), true, &online);
    let bound = Allowed::anywhere().with_bound([(cpus(&[2]), 1)]);
    assert_eq!(job.allowed(&online), bound);
    assert_eq!(job.user_pinned().count(), 0, "a timetable may overrule it yet");
    job.see_cpus(3, cpus(&[0, 1]), true, &online);
    let own = Action::Affinity { tid: 3, cpus: cpus(&[2]) };
    assert_eq!((job.take_overruled(), job.allowed(&online)), (vec![own], bound));
    job.see_cpus(3, cpus(&[0, 1]), true, &online);
    assert_eq!(job.take_overruled(), [], "it is on its way");
    job.see_cpus(3, cpus(&[2]), true, &online);
    job.end_pins();
    assert_eq!(job.user_pinned().count(), 0, "the timetable in force is from before it");
    job.end_pins();
    assert_eq!(job.user_pinned().collect::<Vec<_>>(), [3]);
    // Now nobody but its owner sets it.
    job.see_cpus(3, cpus(&[0, 1]), true, &online);
    assert_eq!(job.own_cpus(3), Some(&cpus(&[0, 1])));
    job.see_cpus(4, cpus(&[2]), false, &online);
    let both = [(cpus(&[0, 1]), 2), (cpus(&[2]), 1)];
    assert_eq!(job.allowed(&online), Allowed::anywhere().with_bound(both));
    job.see_cpus(3, cpus(&[2]), false, &online);
    assert_eq!(job.allowed(&online), Allowed::within(cpus(&[2])), "all of it");
    for tid in [3, 4] {
        job.see_cpus(tid, online.clone(), false, &online);
    }
    assert_eq!(job.allowed(&online), Allowed::anywhere());
    assert!(job.pins_are_unknown, "the next slot restricts them again");
}

#[test]
fn widened_cpuset_is_for_threads_that_chose_none() {
    let online = cpus(&[0, 1, 2]);
    let mut job = Members::new(Controls::default(), Attributes::other(0), cpus(&[0, 1]));
    job.update(&[3, 4, 5], |tid| seen(tid, Attributes::other(0), &[0, 1]));
    job.see_cpus(5, cpus(&[1]), false, &online);
    let bound = [(cpus(&[1]), 1)];
    let within = |all: &[u32]| Allowed::within(cpus(all)).with_bound(bound.clone());
    assert_eq!(job.allowed(&online), within(&[0, 1]));
    // The kernel widens those that gangd never restricted.
    job.see_cpus(3, online.clone(), false, &online);
    job.follow_cpuset(online.clone());
    assert_eq!(job.own_cpus(3), None);
    assert_eq!(job.allowed(&online), Allowed::anywhere().with_bound(bound.clone()));
    // Another one has what gangd gave it before, until it is given more.
    job.see_cpus(4, cpus(&[0, 1]), false, &online);
    assert_eq!(job.own_cpus(4), None);
    let mut actions = Vec::new();
    job.unpin(&mut actions);
    let given = |tid| Action::Affinity { tid, cpus: online.clone() };
    assert_eq!(actions, [given(3), given(4)], "5 has its own");
    // Narrower again, which the kernel does to all of them.
    job.follow_cpuset(cpus(&[0, 1]));
    job.see_cpus(4, cpus(&[0, 1]), false, &online);
    assert_eq!(job.allowed(&online), within(&[0, 1]));
}

#[test]
fn cpus_of_a_thread_that_lost_its_own_are_no_choice() {
    let all = cpus(&[0, 1, 2]);
    let mut job = Members::new(Controls::default(), Attributes::other(0), cpus(&[1, 2]));
    job.update(&[3], |tid| seen(tid, Attributes::other(0), &[1, 2]));
    assert_eq!(job.allowed(&all), Allowed::within(cpus(&[1, 2])));
    job.begin_pins(vec![cpus(&[2])]);
    job.pinned = Some(cpus(&[2]));
    // CPU 2 is offline: the kernel lets the thread run anywhere.
    job.see_cpus(3, all, false, &cpus(&[0, 1]));
    assert_eq!(job.own_cpus(3), None);
    assert_eq!(job.allowed(&cpus(&[0, 1])), Allowed::within(cpus(&[1, 2])));
}

#[test]
fn threads_that_are_lost_get_back_what_gangd_changed() {
    let mut job = job();
    let look = |tid| seen(tid, Attributes::other(2), if tid == 4 { &[0] } else { &[0, 1] });
    job.update(&[3, 4, 5], look);
    job.pinned = Some(cpus(&[1]));
    assert_eq!(job.take_gone(7), []);
    job.let_go(&[5], &mut Vec::new());
    job.update(&[6], look);
    let (attributes, known) = (Attributes::other(2), Known::of(Attributes::other(2)));
    let original = |tid| Action::Attributes { tid, attributes, known };
    let everywhere = Action::Affinity { tid: 3, cpus: cpus(&[0, 1]) };
    let [first, second] = [vec![original(3), everywhere], vec![original(4)]];
    let normal = Some(attributes);
    let gone = |tid, actions| Gone { tid, was_there_ticks: 7, normal, actions };
    let [first, second] = [gone(3, first), gone(4, second)];
    assert_eq!(job.take_gone(7), [first, second], "5 was let go");
    assert_eq!(job.take_gone(7), []);
}

#[test]
fn known_threads_stay_beyond_the_limit() {
    let mut job = job();
    let last = 2 * THREADS_MAX as u32;
    job.update(&[last], |tid| seen(tid, Attributes::other(0), &[0, 1]));
    let mut tids: Vec<u32> = (1..=last).rev().collect();
    assert_eq!(job.admit(&mut tids, 0), last as usize);
    assert!(job.has_too_many_threads());
    assert_eq!(tids.len(), THREADS_MAX);
    assert!(tids.is_sorted() && tids.last() == Some(&last));
    let mut few = vec![7, 3, 7];
    job.admit(&mut few, THREADS_MAX + 1);
    assert_eq!((few, job.has_too_many_threads()), (vec![3, 7], true), "those beside count");
    job.admit(&mut vec![1], 0);
    assert!(!job.has_too_many_threads());
}

#[test]
fn cpus_restricted_by_slots_alone_are_given_back() {
    for (backend, are) in [(Backend::Rt, true), (Backend::Freeze, false)] {
        let mut job = job().with_threads(vec![Thread::new(3, Attributes::other(5))]);
        job.keep_what_stays(backend);
        job.pins_are_unknown = true;
        let (mut unpinned, mut let_go) = (Vec::new(), Vec::new());
        job.clone().unpin(&mut unpinned);
        job.let_go(&[3], &mut let_go);
        let everywhere = Action::Affinity { tid: 3, cpus: cpus(&[0, 1]) };
        assert_eq!((unpinned.contains(&everywhere), let_go.contains(&everywhere)), (are, are));
    }
}

#[test]
fn threads_use_cpus_of_slot_that_are_theirs() {
    let mut bound = job();
    bound.everywhere = cpus(&[0]);
    assert_eq!(bound.within(&cpus(&[0, 1])), cpus(&[0, 1]), "it is not known yet");
    bound.allowed(&cpus(&[0, 1]));
    assert_eq!(bound.within(&cpus(&[0, 1])), cpus(&[0]), "the other CPU is another thread's");
    assert_eq!(bound.within(&cpus(&[1])), cpus(&[1]), "they can run nowhere else in it");
    let mut free = job();
    free.everywhere = cpus(&[0, 1]);
    free.allowed(&cpus(&[0, 1]));
    assert_eq!(free.within(&cpus(&[1, 2])), cpus(&[1, 2]), "one that came online since");
}

#[test]
fn foreign_thread_gets_its_own_and_is_left_alone() {
    let mut job = job();
    job.pinned = Some(cpus(&[1]));
    let mut raised = seen(4, Attributes::fifo(1), &[1]).unwrap();
    raised.were_given = true;
    job.update(&[3, 4], |tid| match tid {
        3 => seen(3, Attributes::other(5), &[0, 1]),
        _ => Some(raised.clone()),
    });
    assert!(!job.note_owner(3, false, true) && job.note_owner(4, true, true));
    assert!(job.has_foreign_that_run() && job.is_foreign(4) && !job.is_foreign(3));
    let restricted: Vec<Action> = job.pinning(&cpus(&[0])).collect();
    assert_eq!(restricted, [Action::Affinity { tid: 3, cpus: cpus(&[0]) }]);
    let tids = job.take_left_alone();
    // Its nice value was lost before anybody looked.
    let (attributes, first_seen) = (Attributes::other(0), Attributes::fifo(1));
    let known = Known { first_seen, ..Known::of(attributes) };
    let back = Action::Attributes { tid: 4, attributes, known };
    let everywhere = Action::Affinity { tid: 4, cpus: cpus(&[0, 1]) };
    assert_eq!(job.unpin_left_alone(&tids), [everywhere, back]);
    assert_eq!(job.became_foreign(&tids), [], "nobody has stopped it");
    // Its slot is not over, and nobody has chosen that.
    assert!(!job.note_attributes(4, &Attributes::fifo(1)));
    assert_eq!(job.threads()[1].original, attributes);
    // Another one becomes foreign as it runs, and is the owner's again.
    assert!(job.note_owner(3, true, false) && !job.note_owner(3, true, false));
    assert_eq!((job.take_left_alone(), job.became_foreign(&[3, 4])), (vec![3], vec![3]));
    job.stops_foreign = true;
    assert!(job.became_foreign(&[3, 4]).is_empty(), "it stands still by an administrator's order");
    job.stops_foreign = false;
    assert!(job.note_owner(3, false, false) && !job.threads()[0].is_exempt());
    job.stops_foreign = true;
    assert!(!job.has_foreign_that_run());
}

#[test]
fn leaving_threads_get_back_what_gangd_changed() {
    let mut job = job();
    job.pinned = Some(cpus(&[1]));
    job.update(&[3, 4, 5], |tid| match tid {
        3 => seen(3, Attributes::other(2), &[0, 1]),
        4 => seen(4, Attributes::other(2), &[0]),
        _ => seen(5, Attributes::fifo(9), &[0, 1]),
    });
    let mut out = Vec::new();
    assert_eq!(job.let_go(&[3, 4, 5, 6], &mut out), [3, 4, 5]);
    assert!(job.threads().is_empty());
    let (attributes, known) = (Attributes::other(2), Known::of(Attributes::other(2)));
    let original = |tid| Action::Attributes { tid, attributes, known };
    let everywhere = |tid| Action::Affinity { tid, cpus: cpus(&[0, 1]) };
    assert_eq!(out, [original(3), everywhere(3), original(4), everywhere(5)]);
}
