//! Programs that users write in Python: a script of the lab computes with the library that they use.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gang_picture::python_with;

use super::Program;

const INVERSE: &str = include_str!("../../../../../demo/inverse.py");
const CLUSTERS: &str = include_str!("../../../../../demo/clusters.py");
const LAYERS: &str = include_str!("../../../../../demo/layers.py");

/// numpy on the OpenMP build of OpenBLAS; an error names the packages where they are missing.
pub fn numpy(dir: &Path) -> Result<Program> {
    let python = python_with("numpy").context("install the package python3-numpy")?;
    let blas = openblas().context("install the package libopenblas0-openmp")?;
    let script = script(dir, "inverse.py", INVERSE)?;
    // Several builds of OpenBLAS can be installed; the path chooses the one with OpenMP.
    let path = format!("LD_LIBRARY_PATH={}", blas.display());
    let command = ["env", &path, python, &script, "300"].map(String::from).to_vec();
    Ok(Program { name: "numpy (OpenBLAS)", command, times: 1 })
}

/// scikit-learn's k-means; an error names the package where it is missing.
pub fn scikit_learn(dir: &Path) -> Result<Program> {
    let python = python_with("sklearn").context("install the package python3-sklearn")?;
    let command = vec![python.into(), script(dir, "clusters.py", CLUSTERS)?, "20000".into()];
    Ok(Program { name: "scikit-learn", command, times: 1 })
}

/// Training with PyTorch; an error names the package where it is missing.
pub fn pytorch(dir: &Path) -> Result<Program> {
    let python =
        python_with("torch").context("install torch (pip, or the package python3-torch)")?;
    let command = vec![python.into(), script(dir, "layers.py", LAYERS)?, "512".into()];
    Ok(Program { name: "PyTorch", command, times: 1 })
}

/// Writes a script into `dir`, and returns its path.
fn script(dir: &Path, name: &str, text: &str) -> Result<String> {
    let script = dir.join(name);
    fs::write(&script, text).with_context(|| format!("writing {}", script.display()))?;
    Ok(script.display().to_string())
}

/// The directory of the OpenMP build of OpenBLAS, as Debian and Ubuntu lay it out.
fn openblas() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?;
    dirs.flatten()
        .map(|dir| dir.path().join("openblas-openmp"))
        .find(|dir| dir.join("libblas.so.3").exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::real_programs::tests::runs_or_says_why_not;

    #[test]
    fn numpy_inverts_its_matrix_needs_openblas() {
        runs_or_says_why_not(numpy);
    }

    #[test]
    fn scikit_learn_clusters_its_points_needs_sklearn() {
        runs_or_says_why_not(scikit_learn);
    }

    #[test]
    fn pytorch_trains_its_layers_needs_torch() {
        runs_or_says_why_not(pytorch);
    }
}
