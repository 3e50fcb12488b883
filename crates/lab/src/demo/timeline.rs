//! From context switches to who had which CPU when, as text and for the picture.

use serde_json::{Value, json};

use gang_linux::switches::{Recording, Stay};

/// The owner of a stretch of time on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Copy(usize),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    pub start_ns: u64,
    pub end_ns: u64,
    pub whose: Whose,
}

/// The owners of each CPU in turn, relative to the start of the recording; what is left out was
/// idle.
pub struct Timeline {
    pub name: String,
    length_ns: u64,
    cpus: Vec<Vec<Stretch>>,
}

impl Timeline {
    /// `pids` are the processes of the copies, in their order.
    pub fn new(name: &str, recording: &Recording, pids: &[i32]) -> Self {
        let (start_ns, end_ns) = (recording.start_ns, recording.end_ns);
        let of_cpu = |cpu| stretches(&recording.stays(cpu), start_ns, pids);
        let cpus = recording.cpus.keys().copied().map(of_cpu).collect();
        Self { name: name.into(), length_ns: end_ns - start_ns, cpus }
    }

    /// One line a CPU: in each column the letter of the copy that had most of it.
    pub fn ascii(&self, columns: usize) -> String {
        let mut text = String::new();
        for (cpu, stretches) in self.cpus.iter().enumerate() {
            text += &format!("  CPU {cpu:<3} ");
            for column in 0..columns as u64 {
                let start_ns = column * self.length_ns / columns as u64;
                let end_ns = (column + 1) * self.length_ns / columns as u64;
                text.push(letter(stretches, start_ns, end_ns));
            }
            text.push('\n');
        }
        text
    }

    /// A panel of the picture: for each CPU start, length (ms) and number of the copy, -1 for
    /// others.
    pub fn panel(&self) -> Value {
        let ms = |ns: u64| ns as f64 / 1e6;
        let stretch = |s: &Stretch| {
            let copy = match s.whose {
                Whose::Copy(copy) => copy as i64,
                Whose::Other => -1,
            };
            json!([ms(s.start_ns), ms(s.end_ns - s.start_ns), copy])
        };
        let cpus: Vec<Vec<Value>> =
            self.cpus.iter().map(|stretches| stretches.iter().map(stretch).collect()).collect();
        json!({ "name": self.name, "cpus": cpus })
    }
}

/// Threads of the same copy, and of all others, one after the other are one stretch.
fn stretches(stays: &[Stay], start_ns: u64, pids: &[i32]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for stay in stays {
        let copy = pids.iter().position(|pid| *pid == stay.pid);
        let whose = copy.map_or(Whose::Other, Whose::Copy);
        let (from_ns, to_ns) = (stay.start_ns - start_ns, stay.end_ns - start_ns);
        match stretches.last_mut() {
            Some(last) if last.whose == whose && last.end_ns == from_ns => last.end_ns = to_ns,
            _ => stretches.push(Stretch { start_ns: from_ns, end_ns: to_ns, whose }),
        }
    }
    stretches
}

fn letter(stretches: &[Stretch], start_ns: u64, end_ns: u64) -> char {
    let mut had: Vec<(char, u64)> = Vec::new();
    let mut idle_ns = end_ns - start_ns;
    for stretch in stretches {
        let overlap_ns = stretch.end_ns.min(end_ns).saturating_sub(stretch.start_ns.max(start_ns));
        let letter = match stretch.whose {
            Whose::Copy(copy) => (b'A' + copy.min(25) as u8) as char,
            Whose::Other => '.',
        };
        idle_ns -= overlap_ns.min(idle_ns);
        match had.iter_mut().find(|(other, _)| *other == letter) {
            Some((_, ns)) => *ns += overlap_ns,
            None => had.push((letter, overlap_ns)),
        }
    }
    had.push((' ', idle_ns));
    had.into_iter().max_by_key(|(_, ns)| *ns).map_or(' ', |(letter, _)| letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;

    use gang_linux::switches::Switch;

    fn comes(at_ns: u64, pid: i32) -> Switch {
        Switch { at_ns, pid, tid: pid, leaves: false }
    }

    fn leaves(at_ns: u64, pid: i32) -> Switch {
        Switch { leaves: true, ..comes(at_ns, pid) }
    }

    /// The stretches of one CPU.
    fn found(switches: &[Switch], start_ns: u64, end_ns: u64, pids: &[i32]) -> Vec<Stretch> {
        let cpus = BTreeMap::from([(0, switches.to_vec())]);
        let recording = Recording { start_ns, end_ns, cpus, forks: Vec::new() };
        stretches(&recording.stays(0), start_ns, pids)
    }

    #[test]
    fn stretches_reach_from_edge_to_edge() {
        // Copy A was there before the recording; then another, idle, and copy B to the end.
        let switches = [
            leaves(1_020, 7),
            comes(1_020, 99),
            leaves(1_030, 99),
            comes(1_030, 0),
            leaves(1_060, 0),
            comes(1_060, 8),
        ];
        let found = found(&switches, 1_000, 1_100, &[7, 8]);
        let stretch = |start_ns, end_ns, whose| Stretch { start_ns, end_ns, whose };
        let expected = [
            stretch(0, 20, Whose::Copy(0)),
            stretch(20, 30, Whose::Other),
            stretch(60, 100, Whose::Copy(1)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn threads_of_one_copy_make_one_stretch() {
        let switches = [comes(10, 7), leaves(20, 7), comes(20, 7), leaves(30, 7), comes(30, 0)];
        let found = found(&switches, 0, 100, &[7]);
        assert_eq!(found, [Stretch { start_ns: 10, end_ns: 30, whose: Whose::Copy(0) }]);
    }

    #[test]
    fn text_shows_who_had_most_of_a_column() {
        let switches = [comes(0, 7), leaves(46, 7), comes(46, 8), leaves(70, 8), comes(70, 0)];
        let recording = Recording {
            start_ns: 0,
            end_ns: 100,
            cpus: BTreeMap::from([(0, switches.to_vec()), (1, vec![])]),
            forks: Vec::new(),
        };
        let timeline = Timeline::new("plain Linux", &recording, &[7, 8]);
        assert_eq!(timeline.ascii(10), "  CPU 0   AAAAABB   \n  CPU 1             \n");
        assert_eq!(timeline.panel()["cpus"][0][1][2], 1);
    }
}
