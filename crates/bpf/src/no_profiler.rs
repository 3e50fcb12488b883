//! A profiler for builds that have no programs for the kernel.

use std::{os::fd::IntoRawFd, time::Duration};

use crate::{Coscheduling, NotMeasured, Sleep, Sum, Tick};

/// Cannot be made here.
#[derive(Debug)]
pub enum Profiler {}

impl Profiler {
    /// Always fails.
    pub fn start(
        _group: u64,
        _clocks: Vec<impl IntoRawFd>,
        _period: Duration,
    ) -> Result<Profiler, NotMeasured> {
        Err(NotMeasured::NotBuilt)
    }

    pub fn follow(&mut self, _group: u64) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn ticks(&mut self) -> Result<Vec<Tick>, NotMeasured> {
        match *self {}
    }

    pub fn lost(&self) -> Result<u64, NotMeasured> {
        match *self {}
    }

    pub fn sums(&self, _cpus: u32) -> Result<Vec<(Coscheduling, Sum)>, NotMeasured> {
        match *self {}
    }

    pub fn sleeps(&self) -> Result<Vec<Sleep>, NotMeasured> {
        match *self {}
    }
}
