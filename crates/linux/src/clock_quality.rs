//! How near the clock is to UTC: as the kernel keeps it for whoever disciplines the clock, or as
//! chrony says.
//!
//! Sources: adjtimex(2); chronyc(1), `tracking` and the option `-c`.

use std::{io, time::Duration};

use crate::{
    Error, Result,
    command::{Bounded, DIRECTORIES},
};

/// The longest that chronyc may take to ask chronyd, ten times its own wait for an answer.
const CHRONYC_WITHIN: Duration = Duration::from_secs(10);

/// The quality of this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    /// UTC is later than the clock by this, as far as is known, ns.
    pub offset_ns: i64,
    /// The clock is nearer to UTC than this, ns.
    pub bound_ns: u64,
}

/// The kernel's own record. Without anybody who disciplines the clock, the bound grows up to 16 s.
///
/// # Errors
/// The kernel refuses to say.
pub fn by_kernel() -> Result<Quality> {
    // SAFETY: a structure of numbers, in which 0 asks for no change.
    #[allow(unsafe_code)]
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes the given structure.
    #[allow(unsafe_code)]
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(Error::new("read", "the state of the clock", io::Error::last_os_error()));
    }
    let is_in_ns = timex.status & libc::STA_NANO != 0;
    let offset_ns = timex.offset * if is_in_ns { 1 } else { 1_000 };
    let bound_ns = u64::try_from(timex.maxerror).unwrap_or(0) * 1_000;
    Ok(Quality { offset_ns, bound_ns })
}

/// The word of chronyd on this machine.
///
/// # Errors
/// There is no chronyc, no chronyd that answers it, or its clock follows nobody.
pub fn by_chrony() -> Result<Quality> {
    let failed = |source| Error::new("ask", "chronyd by chronyc -c tracking", source);
    let chronyc = Bounded {
        directories: DIRECTORIES.iter().map(Into::into).collect(),
        environment: Vec::new(),
        within: CHRONYC_WITHIN,
    };
    let text = chronyc.output("chronyc", &["-c", "tracking"], || false);
    let text = text.map_err(|reason| failed(io::Error::other(reason)))?;
    tracking(text.trim())
        .ok_or_else(|| failed(io::Error::other(format!("it said {:?}", text.trim()))))
}

/// Reads what `chronyc -c tracking` prints. The bound is the offset that is being corrected, the
/// dispersion, and half of the delay to the source of time, as chronyc(1) has it.
fn tracking(line: &str) -> Option<Quality> {
    let fields: Vec<&str> = line.split(',').collect();
    let seconds = |at: usize| fields.get(at)?.parse::<f64>().ok().filter(|it| it.is_finite());
    let (offset, delay, dispersion) = (seconds(4)?, seconds(10)?, seconds(11)?);
    let leap = *fields.get(13)?;
    let bound = offset.abs() + dispersion + delay / 2.0;
    let ns = |seconds: f64| (seconds * 1e9).round();
    (leap != "Not synchronised")
        .then(|| Quality { offset_ns: ns(offset) as i64, bound_ns: ns(bound) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chrony_gives_offset_dispersion_and_delay() {
        let line = "A29FC801,162.159.200.1,4,1700000000.123456789,-0.000012000,0.000003,0.00001,\
                    -1.5,0.001,0.05,0.008000000,0.000300000,64.5,Normal";
        // 12 µs + 300 µs + 4 ms.
        let quality = Quality { offset_ns: -12_000, bound_ns: 4_312_000 };
        assert_eq!(tracking(line), Some(quality));
        assert_eq!(tracking(&line.replace("Normal", "Not synchronised")), None);
        for odd in ["", "506 Cannot talk to daemon", &line.replace("0.008000000", "inf")] {
            assert_eq!(tracking(odd), None, "{odd}");
        }
    }

    #[test]
    fn kernel_has_a_record() {
        assert!(by_kernel().unwrap().bound_ns < 17_000_000_000);
    }
}
