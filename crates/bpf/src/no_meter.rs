//! A meter for builds that have no programs for the kernel.

use std::convert::Infallible;

use crate::{Culprit, GangSums, Lane, NotMeasured, OnCpu, RunnableThread, SlotTime, Wait, Whole};

/// Cannot be made here.
#[derive(Debug)]
pub enum Meter {}

impl Meter {
    /// Always fails.
    pub fn start() -> Result<Meter, NotMeasured> {
        Err(NotMeasured::NotBuilt)
    }

    pub fn watch(&self, _gang: u64) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn look_around(&self) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn runnable_threads(&self) -> Result<Vec<RunnableThread>, NotMeasured> {
        match *self {}
    }

    pub fn start_over(&self, _gang: u64) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn set_slots(
        &self,
        _gang: u64,
        _slots: Option<&[SlotTime]>,
        _row: &[u32],
    ) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn set_lanes(&self, _lanes: &[Lane]) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn forget(&self, _gang: u64) {
        match *self {}
    }

    pub fn await_waking(&self, _gang: u64) -> Result<bool, NotMeasured> {
        match *self {}
    }

    pub fn hear_who_wakes(&self, _tell: impl FnMut(Vec<u64>)) -> Result<Infallible, NotMeasured> {
        match *self {}
    }

    pub fn hear_who_waits(&self, _heed: impl FnMut(Vec<Wait>)) -> Result<Infallible, NotMeasured> {
        match *self {}
    }

    pub fn close_way(&self, _cpu: u32, _until_ns: u64) -> Result<(), NotMeasured> {
        match *self {}
    }

    pub fn read(&self, _gang: u64) -> Result<GangSums, NotMeasured> {
        match *self {}
    }

    pub fn whole(&self) -> Result<Whole, NotMeasured> {
        match *self {}
    }

    pub fn runnable(&self, _gang: u64) -> Result<u32, NotMeasured> {
        match *self {}
    }

    pub fn per_cpu(&self, _gang: u64) -> Result<Vec<OnCpu>, NotMeasured> {
        match *self {}
    }

    pub fn short_tasks(&self) -> Result<u64, NotMeasured> {
        match *self {}
    }

    pub fn lost_to(&self, _gang: u64) -> Result<Vec<Culprit>, NotMeasured> {
        match *self {}
    }
}
