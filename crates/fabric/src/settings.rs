//! Settings from environment variables. docs/net.md describes them.

use std::{env, fmt, net::IpAddr, time::Duration};

use gang_net::Key;

/// Which media a port may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Shared memory within a host, and UDP elsewhere.
    Auto,
    SharedMemory,
    Udp,
}

/// How long a thread that waits spins before it blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// As long as is worth it, which is measured.
    Measured,
    For(Duration),
    /// It never blocks.
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The key of all ports of the job; none: each draws its own.
    pub key: Option<Key>,
    pub medium: Medium,
    /// The kernel may copy long messages from process to process.
    pub may_copy: bool,
    pub spin: Spin,
    /// The job of the program.
    pub job: Option<i64>,
    /// The rank that a launcher gave the process.
    pub rank: Option<u32>,
    /// The address of this host for other hosts.
    pub ip: Option<IpAddr>,
    pub faults: Faults,
}

/// Parts of all frames, from 0 to 1, with which UDP is made worse; for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    pub loss: f64,
    pub reorder: f64,
}

/// A variable with a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    variable: &'static str,
    value: String,
    wanted: &'static str,
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Odd { variable, value, wanted } = self;
        // A key stays secret, even one with a mistake.
        let value = if *variable == KEY { "another value" } else { value };
        write!(f, "{variable} is {value}; it may be {wanted}")
    }
}

impl std::error::Error for Odd {}

const KEY: &str = "GANG_NET_KEY";

/// Where launchers say which rank a process is: Open MPI, PMIx, MPICH and Intel MPI, Slurm.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// A key of 32 hexadecimal digits.
pub fn key_of(text: &str) -> Option<Key> {
    let is_key = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let key = is_key.then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
    Some(Key(key.to_be_bytes()))
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            key: None,
            medium: Medium::Auto,
            may_copy: true,
            spin: Spin::Measured,
            job: None,
            rank: None,
            ip: None,
            faults: Faults::default(),
        }
    }
}

impl Settings {
    /// # Errors
    /// The first variable whose value means nothing.
    pub fn from_environment() -> Result<Settings, Odd> {
        Settings::from(|variable| env::var(variable).ok().filter(|value| !value.is_empty()))
    }

    fn from(value: impl Fn(&'static str) -> Option<String>) -> Result<Settings, Odd> {
        let mut settings = Settings::default();
        let mut read =
            |variable, wanted, take: &dyn Fn(&mut Settings, &str) -> Option<()>| match value(
                variable,
            ) {
                Some(value) => match take(&mut settings, &value) {
                    Some(()) => Ok(()),
                    None => Err(Odd { variable, value, wanted }),
                },
                None => Ok(()),
            };
        read(KEY, "32 hexadecimal digits", &|settings, text| {
            settings.key = Some(key_of(text)?);
            Some(())
        })?;
        read("GANG_NET_MEDIUM", "auto, shm or udp", &|settings, text| {
            settings.medium = match text {
                "auto" => Medium::Auto,
                "shm" => Medium::SharedMemory,
                "udp" => Medium::Udp,
                _ => return None,
            };
            Some(())
        })?;
        read("GANG_NET_COPY", "auto or segments", &|settings, text| {
            settings.may_copy = match text {
                "auto" => true,
                "segments" => false,
                _ => return None,
            };
            Some(())
        })?;
        read("GANG_NET_WAIT", "spin, or microseconds", &|settings, text| {
            settings.spin = match text {
                "spin" => Spin::Always,
                _ => Spin::For(Duration::from_micros(text.parse().ok()?)),
            };
            Some(())
        })?;
        read("GANG_NET_ADDRESS", "an IP address of this host", &|settings, text| {
            settings.ip = Some(text.parse().ok()?);
            Some(())
        })?;
        read("GANG_NET_FAULTS", "loss=PERCENT,reorder=PERCENT", &|settings, text| {
            for part in text.split(',') {
                let (name, percent) = part.split_once('=')?;
                let share = percent.parse::<f64>().ok()? / 100.0;
                let share = (0.0..=0.9).contains(&share).then_some(share)?;
                match name {
                    "loss" => settings.faults.loss = share,
                    "reorder" => settings.faults.reorder = share,
                    _ => return None,
                }
            }
            Some(())
        })?;
        // Not odd, whatever it is: the variable is no setting of this provider.
        settings.job = value("GANG_JOB").and_then(|job| job.parse().ok());
        settings.rank = RANKS.iter().find_map(|&name| value(name)?.parse().ok());
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &'static str, text: &str) -> Result<Settings, Odd> {
        Settings::from(|variable| (variable == name).then(|| text.to_owned()))
    }

    #[test]
    fn variables_are_read() {
        assert_eq!(Settings::from(|_| None), Ok(Settings::default()));
        let key = one("GANG_NET_KEY", "000102030405060708090a0b0c0d0e0f").unwrap().key.unwrap();
        assert_eq!(key.0, std::array::from_fn(|at| at as u8));
        assert_eq!(one("GANG_NET_WAIT", "spin").unwrap().spin, Spin::Always);
        let brief = Spin::For(Duration::from_micros(7));
        assert_eq!(one("GANG_NET_WAIT", "7").unwrap().spin, brief);
        assert_eq!(one("GANG_JOB", "42").unwrap().job, Some(42));
        assert_eq!(one("GANG_JOB", "none").unwrap().job, None);
        assert_eq!(one("PMI_RANK", "3").unwrap().rank, Some(3));
        assert_eq!(one("GANG_NET_MEDIUM", "udp").unwrap().medium, Medium::Udp);
        let faults = one("GANG_NET_FAULTS", "loss=1,reorder=5").unwrap().faults;
        assert_eq!(faults, Faults { loss: 0.01, reorder: 0.05 });
    }

    #[test]
    fn odd_value_names_its_variable() {
        let said = one("GANG_NET_MEDIUM", "pigeons").unwrap_err().to_string();
        assert_eq!(said, "GANG_NET_MEDIUM is pigeons; it may be auto, shm or udp");
        let said = one("GANG_NET_KEY", "+00102030405060708090a0b0c0d0e0f").unwrap_err().to_string();
        assert!(!said.contains("0102"), "{said}");
        assert!(one("GANG_NET_FAULTS", "loss=100").is_err());
    }
}
