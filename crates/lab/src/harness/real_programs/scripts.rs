//! Programs that users write as a script: of Python, Java and R. A script of the lab computes with
//! the library that they use.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gang_picture::python_with;

use super::{Program, needs};

const INVERSE: &str = include_str!("../../../../../demo/inverse.py");
const CLUSTERS: &str = include_str!("../../../../../demo/clusters.py");
const LAYERS: &str = include_str!("../../../../../demo/layers.py");
const TREES: &str = include_str!("../../../../../demo/trees.py");
const INFERENCE: &str = include_str!("../../../../../demo/inference.py");
const ALLOCATE: &str = include_str!("../../../../../demo/Allocate.java");
const RESAMPLE: &str = include_str!("../../../../../demo/resample.R");

/// numpy on the OpenMP build of OpenBLAS; an error names the packages where they are missing.
pub fn numpy(dir: &Path) -> Result<Program> {
    let python = python_with("numpy").context("install the package python3-numpy")?;
    let blas = openblas().context("install the package libopenblas0-openmp")?;
    let script = script(dir, "inverse.py", INVERSE)?;
    // Several builds of OpenBLAS can be installed; the path chooses the one with OpenMP.
    let path = format!("LD_LIBRARY_PATH={}", blas.display());
    let command = ["env", &path, python, &script, "300"].map(String::from).to_vec();
    Ok(Program::new("numpy (OpenBLAS)", command))
}

/// scikit-learn's k-means; an error names the package where it is missing.
pub fn scikit_learn(dir: &Path) -> Result<Program> {
    let python = python_with("sklearn").context("install the package python3-sklearn")?;
    let command = vec![python.into(), script(dir, "clusters.py", CLUSTERS)?, "20000".into()];
    Ok(Program::new("scikit-learn", command))
}

/// Training with PyTorch; an error names the package where it is missing.
pub fn pytorch(dir: &Path) -> Result<Program> {
    let python =
        python_with("torch").context("install torch (pip, or the package python3-torch)")?;
    let command = vec![python.into(), script(dir, "layers.py", LAYERS)?, "512".into()];
    Ok(Program::new("PyTorch", command))
}

/// Training with LightGBM; an error names the package where it is missing.
pub fn lightgbm(dir: &Path) -> Result<Program> {
    let python = python_with("lightgbm").context("install lightgbm (pip)")?;
    let command = vec![python.into(), script(dir, "trees.py", TREES)?, "100000".into()];
    Ok(Program::new("LightGBM", command))
}

/// Inference with onnxruntime; an error names the packages where they are missing.
pub fn onnxruntime(dir: &Path) -> Result<Program> {
    let python = python_with("onnx, onnxruntime").context("install onnx and onnxruntime (pip)")?;
    let command = vec![python.into(), script(dir, "inference.py", INFERENCE)?, "512".into()];
    Ok(Program::new("onnxruntime", command))
}

/// Threads of Java that allocate, with the parallel collector; an error names the package where it
/// is missing.
pub fn java(dir: &Path) -> Result<Program> {
    needs("javac", "-version", "the package default-jdk-headless")?;
    let source = script(dir, "Allocate.java", ALLOCATE)?;
    let command = ["java", "-XX:+UseParallelGC", &source, "200000"].map(String::from).to_vec();
    Ok(Program::new("JVM", command))
}

/// Processes of R's package parallel; an error names the package where it is missing.
pub fn r(dir: &Path) -> Result<Program> {
    needs("Rscript", "--version", "the package r-base-core")?;
    let command = vec!["Rscript".into(), script(dir, "resample.R", RESAMPLE)?, "20000".into()];
    Ok(Program::new("R", command))
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

    #[test]
    fn lightgbm_grows_its_trees_needs_lightgbm() {
        runs_or_says_why_not(lightgbm);
    }

    #[test]
    fn onnxruntime_computes_its_layers_needs_onnxruntime() {
        runs_or_says_why_not(onnxruntime);
    }

    #[test]
    fn java_sums_up_its_lists_needs_a_jdk() {
        runs_or_says_why_not(java);
    }

    #[test]
    fn r_resamples_its_values_needs_r() {
        runs_or_says_why_not(r);
    }
}
