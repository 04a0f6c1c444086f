//! Times, spreads, and what the operating system says of a process.

use std::time::{Duration, Instant};

/// Samples of one quantity.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Times `run` and keeps the microseconds.
    pub(crate) fn time<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = run();
        self.push(start.elapsed());
        out
    }

    pub(crate) fn push(&mut self, elapsed: Duration) {
        self.0.push(elapsed.as_secs_f64() * 1e6);
    }

    /// The value below which the share `q` of the samples lies, in microseconds.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len().saturating_sub(1)) as f64 * q) as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Processor time that this process has used, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| {
            let rest = stat.rsplit_once(')')?.1.to_owned();
            let fields: Vec<&str> = rest.split_whitespace().collect();
            Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
        });
    // Linux counts these in hundredths of a second whatever the kernel's own tick is.
    ticks.map_or(f64::NAN, |ticks| ticks / 100.0)
}

/// What this process takes, in megabytes: `VmRSS` now, `VmHWM` at its peak.
pub(crate) fn memory_mb(line: &str) -> f64 {
    memory_of(std::process::id(), line)
}

/// The same of another process.
pub(crate) fn memory_of(pid: u32, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status
        .lines()
        .find_map(|row| row.strip_prefix(line)?.strip_prefix(':'));
    found
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb / 1024.0)
}

/// Three significant digits: what a noisy machine can say.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}
