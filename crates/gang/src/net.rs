//! The variables by which `gang run --net` has an unchanged MPI send its messages by the libfabric
//! provider of gangd (docs/net.md).
//!
//! libfabric looks for providers in the directories of `FI_PROVIDER_PATH`. The provider's directory
//! comes before those that are there, which stay. All other variables choose the provider, and a
//! variable that the user has set stays.

use std::env;
use std::env::consts::ARCH;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const LIBRARY: &str = "libgang-fi.so";
const PATH: &str = "FI_PROVIDER_PATH";

/// Variables of libfabric, Open MPI and MPICH.
const CHOICES: [(&str, &str); 5] = [
    ("FI_PROVIDER", "gang"),
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", "gang"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
];

/// The provider of this installation, or of this build.
#[derive(Debug)]
pub struct Provider {
    directory: PathBuf,
}

impl Provider {
    pub fn find() -> Result<Provider> {
        let program = env::current_exe().context("cannot find the directory of gang")?;
        Provider::beside(&program)
    }

    fn beside(program: &Path) -> Result<Provider> {
        let places = places(program);
        if let Some(directory) = places.iter().find(|it| it.join(LIBRARY).is_file()) {
            return Ok(Provider { directory: directory.clone() });
        }
        let looked: Vec<_> = places.iter().map(|it| it.display().to_string()).collect();
        bail!(
            "--net: there is no {LIBRARY} in {}; install the package gangd, or build it where the \
             headers of libfabric are (package libfabric-dev)",
            looked.join(", ")
        )
    }

    /// Adds the variables to the whole environment of a program.
    pub fn choose(&self, variables: &mut Vec<(OsString, OsString)>) {
        let mut path = self.directory.clone().into_os_string();
        match variables.iter_mut().find(|(name, _)| name == PATH) {
            Some((_, others)) if !others.is_empty() => {
                path.push(":");
                path.push(&others);
                *others = path;
            }
            Some((_, others)) => *others = path,
            None => variables.push((PATH.into(), path)),
        }
        for (choice, value) in CHOICES {
            if !variables.iter().any(|(name, _)| name == choice) {
                variables.push((choice.into(), value.into()));
            }
        }
    }
}

/// The directories of libraries that belong to a program: its own, as in a build; and those of its
/// prefix, where it is installed.
fn places(program: &Path) -> Vec<PathBuf> {
    let Some(own) = program.parent() else { return Vec::new() };
    let mut places = vec![own.to_owned()];
    // Beside a directory of another name, another user may have put a library.
    if own.ends_with("bin") {
        let prefix = own.with_file_name("");
        let of_prefix = ["lib".to_owned(), format!("lib/{ARCH}-linux-gnu"), "lib64".to_owned()];
        places.extend(of_prefix.map(|it| prefix.join(it)));
    }
    places
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn chosen(set: &[(&str, &str)]) -> Vec<String> {
        let mut all: Vec<(OsString, OsString)> =
            set.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Provider { directory: "/p/lib".into() }.choose(&mut all);
        let text =
            |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
        all.into_iter().map(text).collect()
    }

    #[test]
    fn variables_choose_the_provider() {
        assert_eq!(
            chosen(&[("HOME", "/")]),
            [
                "HOME=/",
                "FI_PROVIDER_PATH=/p/lib",
                "FI_PROVIDER=gang",
                "OMPI_MCA_pml=cm",
                "OMPI_MCA_mtl=ofi",
                "OMPI_MCA_mtl_ofi_provider_include=gang",
                "MPIR_CVAR_CH4_NETMOD=ofi",
            ]
        );
    }

    #[test]
    fn path_of_user_comes_after_the_providers() {
        assert_eq!(chosen(&[(PATH, "/a:/b")])[0], "FI_PROVIDER_PATH=/p/lib:/a:/b");
        assert_eq!(chosen(&[(PATH, "")])[0], "FI_PROVIDER_PATH=/p/lib");
    }

    #[test]
    fn choices_of_user_stay() {
        for (name, _) in CHOICES {
            let all = chosen(&[(name, "own")]);
            assert_eq!(all[0], format!("{name}=own"));
            assert_eq!(all.len(), 1 + CHOICES.len());
        }
    }

    #[test]
    fn provider_is_found_in_builds_and_prefixes() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let of_triplet = format!("usr/lib/{ARCH}-linux-gnu");
        for (program, directory) in [
            ("target/debug/gang", "target/debug"),
            ("local/bin/gang", "local/lib"),
            ("usr/bin/gang", &of_triplet),
        ] {
            let program = at(program);
            let missing = Provider::beside(&program).unwrap_err().to_string();
            assert!(missing.contains(at(directory).to_str().unwrap()), "{missing}");
            assert!(missing.contains("libfabric-dev"), "{missing}");
            fs::create_dir_all(at(directory)).unwrap();
            fs::write(at(directory).join(LIBRARY), "").unwrap();
            assert_eq!(Provider::beside(&program).unwrap().directory, at(directory));
        }
        // Beside a directory of another name, anybody may have put a library.
        fs::create_dir_all(at("lib")).unwrap();
        fs::write(at("lib").join(LIBRARY), "").unwrap();
        assert!(Provider::beside(&at("build/gang")).is_err());
    }
}
