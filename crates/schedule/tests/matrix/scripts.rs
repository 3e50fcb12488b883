//! Scripts: commands with the entries they lead to beside them.
//!
//! Each block of `tests/matrix/scripts/*.txt` is `run`, its commands, a line of dashes and what
//! comes out. `REWRITE=1 cargo test -p gang-schedule scripts` writes what comes out into the files;
//! read the difference before you keep it. Commands:
//!
//! ```text
//! matrix rows=4 slice_ms=20     a new matrix with so many rows at least
//! host a cpus=8                 a host joins
//! unhost a                      a host leaves
//! load a 12 1=4                 its threads beside spanning jobs, and of which users
//! users 1=200 2=100             users share, with these shares
//! place x a=4 b=4 user=1        a job on two hosts; also weight=, class=, times=
//! remove x | adjust | rebuild
//! share x                       the share of the rows that it is due
//! draw                          the matrix: a line for each row, a column for each CPU
//! time 90000 6                  the rows of six slices
//! slots a 3                     the CPUs of host a that spanning jobs have in slice 3
//! ```
//!
//! A change prints the jobs whose entries are new, and the frame if it is. Every state is checked.

use crate::naive;
use gang_schedule::matrix::{Change, HostId, Load, Matrix, Refused, Span};
use gang_schedule::{Config, JobId, Sharing, UserId};
use std::collections::BTreeMap;
use std::fmt::Write;

struct Session {
    matrix: Matrix,
    hosts: Vec<String>,
    jobs: Vec<String>,
}

/// The words of a command that have a key, and the rest.
fn split<'a>(words: &[&'a str]) -> (Vec<&'a str>, BTreeMap<&'a str, &'a str>) {
    let keys = words.iter().filter_map(|word| word.split_once('=')).collect();
    (words.iter().copied().filter(|word| !word.contains('=')).collect(), keys)
}

fn of_users(keys: &BTreeMap<&str, &str>) -> BTreeMap<UserId, u32> {
    let parse = |word: &str| word.parse().expect("a number");
    keys.iter().map(|(user, number)| (UserId(parse(user)), parse(number))).collect()
}

impl Session {
    fn new() -> Session {
        let matrix = Matrix::new(Config::default(), 1).unwrap();
        Session { matrix, hosts: vec![], jobs: vec![] }
    }

    fn number(names: &mut Vec<String>, name: &str) -> usize {
        names.iter().position(|other| other == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
    }

    fn host(&mut self, name: &str) -> HostId {
        HostId(Session::number(&mut self.hosts, name) as u32)
    }

    fn job(&mut self, name: &str) -> JobId {
        JobId(Session::number(&mut self.jobs, name) as u64)
    }

    fn name(&self, job: JobId) -> &str {
        &self.jobs[job.0 as usize]
    }

    /// The output of a command.
    fn command(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (plain, keys) = split(&words[1..]);
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let mut said = String::new();
        match words[0] {
            "matrix" => {
                let slice_ns = keys.get("slice_ms").map_or(20, |ms| number(ms)) * 1_000_000;
                let config = Config { slice_ns, ..Config::default() };
                match Matrix::new(config, number(keys["rows"]) as u32) {
                    Ok(matrix) => *self = Session { matrix, ..Session::new() },
                    Err(refused) => said = format!("refused: {refused}\n"),
                }
            }
            "users" => {
                let sharing = Sharing::ByUser(of_users(&keys));
                let config = Config { sharing, ..self.matrix.config().clone() };
                self.matrix = Matrix::new(config, self.matrix.frame()).unwrap();
            }
            "host" => {
                let host = self.host(plain[0]);
                let refused = self.matrix.add_host(host, number(keys["cpus"]) as u32).err();
                said = self.outcome(refused);
            }
            "unhost" => {
                let host = self.host(plain[0]);
                let refused = self.matrix.remove_host(host).err();
                said = self.outcome(refused);
            }
            "load" => {
                let (host, threads) = (self.host(plain[0]), number(plain[1]) as u32);
                let refused =
                    self.matrix.set_load(host, Load { threads, of_users: of_users(&keys) }).err();
                said = self.outcome(refused);
            }
            "place" => {
                let mut span = Span::new([]);
                let mut times = 1;
                for (key, value) in keys {
                    match key {
                        "times" => times = number(value),
                        "user" => span.user = UserId(number(value) as u32),
                        "weight" => span.weight = number(value) as u32,
                        "class" => span.class = value.parse().unwrap(),
                        host => _ = span.cpus.insert(self.host(host), number(value) as u32),
                    }
                }
                for number in 1..=times {
                    let number = if times == 1 { String::new() } else { number.to_string() };
                    let job = self.job(&format!("{}{number}", plain[0]));
                    said = self.change(|matrix| matrix.place(job, span.clone()));
                }
            }
            "remove" => {
                let job = self.job(plain[0]);
                said = self.change(|matrix| matrix.remove(job));
            }
            "adjust" => said = self.change(|matrix| Ok(matrix.adjust())),
            "rebuild" => said = self.change(|matrix| Ok(matrix.rebuild())),
            "share" => {
                let job = self.job(plain[0]);
                let share = self.matrix.share_due(job).expect("a job") * 100.0;
                writeln!(said, "{} {share:.1} %", plain[0]).unwrap();
            }
            "draw" => said = self.draw(),
            "time" => {
                let (first, slices) = (number(plain[0]), number(plain[1]));
                let rows = (first..first + slices).map(|slice| self.matrix.row_at(slice));
                let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
                writeln!(said, "rows {}", rows.join(" ")).unwrap();
            }
            "slots" => {
                let host = self.host(plain[0]);
                for slot in self.matrix.slots(host, number(plain[1])) {
                    writeln!(said, "{} {}", self.name(slot.job), slot.cpus).unwrap();
                }
            }
            other => panic!("no such command: {other}"),
        }
        said
    }

    fn outcome(&self, refused: Option<Refused>) -> String {
        refused.map_or_else(String::new, |refused| format!("refused: {refused}\n"))
    }

    fn change(&mut self, by: impl FnOnce(&mut Matrix) -> Result<Change, Refused>) -> String {
        let frame = self.matrix.frame();
        let before = self.matrix.clone();
        let mut said = String::new();
        match by(&mut self.matrix) {
            Ok(change) => {
                naive::check_change(&before, &self.matrix, &change);
                if change.frame != frame {
                    writeln!(said, "frame {}", change.frame).unwrap();
                }
                for (job, placement) in change.placed {
                    write!(said, "{}: rows {}", self.name(job), placement.rows).unwrap();
                    for (host, cpus) in placement.cpus {
                        write!(said, ", {} {cpus}", self.hosts[host.0 as usize]).unwrap();
                    }
                    writeln!(said).unwrap();
                }
            }
            Err(refused) => writeln!(said, "refused: {refused}").unwrap(),
        }
        said
    }

    fn draw(&self) -> String {
        let mut said = "row".to_owned();
        for (host, cpus) in self.matrix.hosts() {
            write!(said, "  {:<1$}", self.hosts[host.0 as usize], cpus as usize).unwrap();
        }
        said.truncate(said.trim_end().len());
        said.push('\n');
        for row in 0..self.matrix.frame() {
            write!(said, "{row:<3}").unwrap();
            for (host, cpus) in self.matrix.hosts() {
                let slots = self.matrix.slots_in(host, row);
                let letter = |cpu| {
                    let slot = slots.iter().find(|slot| slot.cpus.contains(cpu));
                    slot.map_or('.', |slot| self.name(slot.job).chars().next().unwrap())
                };
                write!(said, "  {}", (0..cpus).map(letter).collect::<String>()).unwrap();
            }
            said.push('\n');
        }
        said
    }
}

#[test]
fn scripts() {
    datadriven::walk("tests/matrix/scripts", |file| {
        let mut session = Session::new();
        file.run(|case| -> String {
            assert_eq!(case.directive, "run");
            let commands = case.input.lines().filter(|line| !line.trim().is_empty());
            commands.map(|line| session.command(line)).collect()
        });
    });
}
