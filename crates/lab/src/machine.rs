//! The machine on which figures were measured, as far as it explains them.

use std::fs;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu_model: String,
    pub cpus: usize,
    pub kernel: String,
    /// Runnable threads over the last minute when the experiment began: what else was going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_before: Option<f64>,
}

impl Machine {
    pub fn this(cpus: usize) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu_model: model.map_or("unknown".into(), |(_, model)| model.trim().into()),
            cpus,
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load_before: read("/proc/loadavg").split(' ').next().and_then(|x| x.parse().ok()),
        }
    }

    pub fn line(&self) -> String {
        let load = self.load_before.map_or("unknown".into(), |load| load.to_string());
        format!("{} CPUs ({}), Linux {}, load {load}", self.cpus, self.cpu_model, self.kernel)
    }
}
