//! The number of a job of Slurm, and what its commands say of one.
//!
//! Both are read here and nowhere else, within bounds: a user chooses some of the texts.

use std::fmt;

/// A job of Slurm, or one task of an array: `12`, `12_3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlurmJob {
    job: u32,
    /// A change of an array by its number alone would change all of its tasks.
    task: Option<u32>,
}

impl SlurmJob {
    /// Reads `12` or `12_3`, and nothing else.
    pub fn parse(text: &str) -> Option<SlurmJob> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain)
        };
        let (job, task) = match text.split_once('_') {
            Some((job, task)) => (job, Some(number(task)?)),
            None => (text, None),
        };
        Some(SlurmJob { job: number(job).filter(|&job| job > 0)?, task })
    }
}

impl fmt::Display for SlurmJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            Some(task) => write!(f, "{}_{task}", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}

/// The question to squeue: fields of a fixed width each, so that a comment of any text moves none
/// of the others. The comment is the last one.
pub const FORMAT: &str =
    "TimeLimit:32,TimeUsed:32,StateCompact:16,NodeList:1024,admin_comment:2048";
const WIDTHS: [usize; 4] = [32, 32, 16, 1024];
const COMMENT_WIDTH: usize = 2048;

/// A job as Slurm knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Absent of a job that does not run: its limit does not matter.
    pub running: Option<Running>,
    /// The first host that it has, or had; empty where it has none. Absent of a job that is just
    /// ending: Slurm names the hosts alone then that are not done with it.
    pub first_host: Option<String>,
    /// The administrators' comment; absent where squeue does not show the whole of it.
    pub comment: Option<String>,
}

/// How near a job that runs is to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// In minutes; absent where there is no limit.
    pub limit_min: Option<u64>,
    /// Wall-clock time that counts against it, in seconds.
    pub used_s: u64,
}

impl Answer {
    /// Reads the answer of squeue; `None` of a job that Slurm has forgotten.
    ///
    /// # Errors
    /// A line that squeue does not print.
    pub fn read(output: &str) -> Result<Option<Answer>, String> {
        let Some(line) = output.lines().find(|line| !line.trim().is_empty()) else {
            return Ok(None);
        };
        let unreadable =
            || format!("squeue printed {:?}", line.chars().take(80).collect::<String>());
        let mut rest = line;
        let mut fields = [""; WIDTHS.len()];
        for (field, width) in fields.iter_mut().zip(WIDTHS) {
            let (this, others) = rest.split_at_checked(width).ok_or_else(unreadable)?;
            (*field, rest) = (this.trim(), others);
        }
        let [limit, used, state, nodes] = fields;
        let running = || {
            // Slurm has limits in whole minutes.
            let limit_min = match limit {
                "UNLIMITED" => None,
                limit => Some(seconds(limit)?.div_ceil(60)),
            };
            Some(Running { limit_min, used_s: seconds(used)? })
        };
        let running = match state {
            "R" | "S" => Some(running().ok_or_else(unreadable)?),
            _ => None,
        };
        // squeue leaves out a field that it does not know, and cuts one that is too long.
        let (is_whole, comment) = (rest.len() >= COMMENT_WIDTH, rest.trim());
        let is_whole = is_whole && comment.len() + 1 < COMMENT_WIDTH;
        let comment = match comment {
            "(null)" | "N/A" => "",
            comment => comment,
        };
        Ok(Some(Answer {
            running,
            first_host: match state {
                "CG" => None,
                _ => Some(first_host(nodes).ok_or_else(unreadable)?),
            },
            comment: is_whole.then(|| comment.to_owned()),
        }))
    }
}

/// Reads a length of time as Slurm prints it: `M:SS`, `H:MM:SS` or `D-HH:MM:SS`.
fn seconds(text: &str) -> Option<u64> {
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (days.parse::<u32>().ok()?, time),
        None => (0, text),
    };
    let parts: Vec<u32> = time.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    let time = parts.iter().fold(0, |sum, &part| sum * 60 + u64::from(part));
    Some(u64::from(days) * 86_400 + time)
}

/// The first of a list of Slurm's, such as `n1` of `n[1-3,08],m`. squeue cuts a list that is longer
/// than its field, perhaps within brackets.
fn first_host(list: &str) -> Option<String> {
    let is_cut = list.len() >= WIDTHS[3];
    let mut name = String::new();
    let mut rest = list;
    while let Some((before, after)) = rest.split_once('[') {
        if before.contains(',') {
            break;
        }
        let (numbers, others) = match after.split_once(']') {
            Some(both) => both,
            None if is_cut && after.contains([',', '-']) => (after, ""),
            None => return None,
        };
        name.push_str(before);
        name.push_str(numbers.split([',', '-']).next()?);
        rest = others;
    }
    name.push_str(rest.split(',').next()?);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: [&str; 4], comment: &str) -> String {
        let [limit, used, state, nodes] = fields;
        format!("{limit:<32}{used:<32}{state:<16}{nodes:<1024}{comment:<2048}\n")
    }

    #[test]
    fn number_of_a_job_is_digits_alone() {
        for text in ["12", "12_3", "4294967295_0"] {
            assert_eq!(SlurmJob::parse(text).unwrap().to_string(), text);
        }
        let wrong =
            ["", "0", "-1", "+1", "1,2", "12_", "_3", "12.0", "12 ", "4294967296", "1_2_3", "all"];
        for text in wrong {
            assert_eq!(SlurmJob::parse(text), None, "{text}");
        }
    }

    #[test]
    fn answer_of_squeue_is_read() {
        let text = line(["1-02:03:04", "1:02:03", "R", "node[08-10],x1"], "checked; R 7");
        let answer = Answer {
            running: Some(Running { limit_min: Some(1440 + 123 + 1), used_s: 3723 }),
            first_host: Some("node08".into()),
            comment: Some("checked; R 7".into()),
        };
        assert_eq!(Answer::read(&text), Ok(Some(answer)));
        let read = |fields, comment| Answer::read(&line(fields, comment)).unwrap().unwrap();
        let none = read(["UNLIMITED", "0:07", "S", "n1"], "(null)");
        assert_eq!(none.running, Some(Running { limit_min: None, used_s: 7 }));
        assert_eq!(none.comment, Some(String::new()));
        let waits = read(["1:00", "0:00", "PD", ""], "");
        assert_eq!((waits.running, waits.first_host.as_deref()), (None, Some("")));
        let ending = read(["INVALID", "INVALID", "CG", "n2"], "");
        assert_eq!((ending.running, ending.first_host), (None, None));
        assert_eq!(Answer::read("\n"), Ok(None));
    }

    #[test]
    fn comment_that_is_cut_or_left_out_is_not_known() {
        let read = |text: &str| Answer::read(text).unwrap().unwrap().comment;
        let long = "x".repeat(COMMENT_WIDTH);
        assert_eq!(read(&line(["1:00", "0:07", "R", "n1"], &long)), None);
        assert_eq!(
            read(line(["1:00", "0:07", "R", "n1"], "").trim_end_matches('\n')),
            Some("".into())
        );
        let left_out = &line(["1:00", "0:07", "R", "n1"], "")[..WIDTHS.iter().sum()];
        assert_eq!(read(left_out), None);
    }

    #[test]
    fn other_lines_are_refused() {
        let wrong = [
            "slurm_load_jobs error: Unable to contact slurm controller".to_owned(),
            line(["INVALID", "0:07", "R", "n1"], ""),
            line(["1:00", "INVALID", "R", "n1"], ""),
            line(["1:00", "0:07", "R", "n[1"], ""),
            line(["1:00", "0:07", "R", "n1"], "").replacen("1:00", "1:ä0", 1),
        ];
        for text in wrong {
            assert!(Answer::read(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn first_host_of_a_list_is_found() {
        for (list, first) in
            [("n1", "n1"), ("n1,m[2-3]", "n1"), ("n[1-3,08]x,m", "n1x"), ("r[1-2]n[07,9]", "r1n07")]
        {
            assert_eq!(first_host(list).as_deref(), Some(first));
        }
        assert_eq!(first_host("n[1"), None);
        let long: Vec<String> = (1..999).step_by(2).map(|it| it.to_string()).collect();
        let long = format!("n[{}]", long.join(","));
        assert_eq!(first_host(&long[..WIDTHS[3]]).as_deref(), Some("n1"));
    }
}
