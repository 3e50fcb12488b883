//! Where the programs are that experiments start.

use std::env::consts::ARCH;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

#[derive(Clone, Debug)]
pub struct Programs {
    /// This program, which is also every workload.
    pub lab: PathBuf,
    pub gang: Option<PathBuf>,
    pub gangd: Option<PathBuf>,
    /// The static library, for programs that are compiled.
    libgang: Option<PathBuf>,
    /// The libfabric provider.
    provider: Option<PathBuf>,
}

impl Programs {
    /// Takes what was given; else looks beside this program, in ../bin and ../sbin, and in PATH.
    pub fn find(gang: Option<PathBuf>, gangd: Option<PathBuf>) -> Result<Self> {
        let lab = std::env::current_exe().context("finding this program's own path")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = places(&lab, &path);
        Ok(Self {
            gang: gang.or_else(|| first("gang", &places)),
            gangd: gangd.or_else(|| first("gangd", &places)),
            libgang: first("libgang.a", &library_places(&lab)),
            provider: first("libgang-fi.so", &library_places(&lab)),
            lab,
        })
    }

    /// Distinguishes these programs from others, and from the same before they were built anew;
    /// leaves out those that are missing.
    pub fn identity(&self) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        // It lies beside this one, wherever both are installed.
        let doctor = Some(self.lab.with_file_name("gang-doctor")).filter(|path| path.is_file());
        let [gang, gangd, provider] = [&self.gang, &self.gangd, &self.provider].map(Option::as_ref);
        let all = [Some(&self.lab), gang, gangd, doctor.as_ref(), provider];
        for path in all.into_iter().flatten() {
            let bytes =
                std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            bytes.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    pub fn gang(&self) -> Result<&Path> {
        match &self.gang {
            Some(path) => Ok(path),
            None => bail!("gang was not found beside gang-lab or in PATH; name it with --gang"),
        }
    }

    pub fn gangd(&self) -> Result<&Path> {
        match &self.gangd {
            Some(path) => Ok(path),
            None => bail!("gangd was not found beside gang-lab or in PATH; name it with --gangd"),
        }
    }

    /// The directory of the libfabric provider.
    pub fn provider(&self) -> Result<&Path> {
        match self.provider.as_deref().and_then(Path::parent) {
            Some(directory) => Ok(directory),
            None => bail!(
                "libgang-fi.so was not found beside gang-lab or in ../../lib: run `make build` where \
                 the headers of libfabric are (libfabric-dev)"
            ),
        }
    }

    pub fn libgang(&self) -> Result<&Path> {
        match &self.libgang {
            Some(path) => Ok(path),
            None => {
                bail!("libgang.a was not found beside gang-lab or in ../../lib: run `make build`")
            }
        }
    }
}

/// Beside this program, where cargo puts it, or in the directories of libraries below PREFIX, seen
/// from PREFIX/libexec/gangd.
fn library_places(lab: &Path) -> Vec<PathBuf> {
    let beside = lab.parent().unwrap_or(Path::new("."));
    let of_triplet = format!("../../lib/{ARCH}-linux-gnu");
    let of_prefix = ["../../lib", &of_triplet, "../../lib64"].map(|place| beside.join(place));
    [vec![beside.to_path_buf()], of_prefix.to_vec()].concat()
}

fn places(lab: &Path, path: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(beside) = lab.parent() {
        places.push(beside.to_path_buf());
        places.push(beside.join("../bin"));
        places.push(beside.join("../sbin"));
        // Programs that cargo builds for tests lie one level deeper.
        if beside.ends_with("deps") {
            places.push(beside.join(".."));
        }
    }
    places.extend_from_slice(path);
    places
}

fn first(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    places.iter().map(|place| place.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn programs_that_were_built_anew_are_others() {
        let dir = tempfile::tempdir().unwrap();
        let [lab, gangd] = ["gang-lab", "gangd"].map(|name| dir.path().join(name));
        fs::write(&lab, "lab").unwrap();
        fs::write(&gangd, "one").unwrap();
        let (gang, libgang, provider) = Default::default();
        let programs = Programs { lab, gang, gangd: Some(gangd.clone()), libgang, provider };
        let before = programs.identity().unwrap();
        assert_eq!(programs.identity().unwrap(), before);
        fs::write(&gangd, "two").unwrap();
        let after = programs.identity().unwrap();
        assert_ne!(after, before);
        fs::write(dir.path().join("gang-doctor"), "three").unwrap();
        assert_ne!(programs.identity().unwrap(), after);
    }

    #[test]
    fn beside_comes_before_sbin_and_path() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["libexec", "sbin", "elsewhere"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        let lab = root.path().join("libexec/gang-lab");
        let path = [root.path().join("elsewhere")];
        let find = || first("gangd", &places(&lab, &path));
        assert_eq!(find(), None);
        for dir in ["elsewhere", "libexec/../sbin", "libexec"] {
            let here = root.path().join(dir).join("gangd");
            fs::write(&here, "").unwrap();
            assert_eq!(find(), Some(here));
        }
    }
}
