//! The weights of classes, and for how long they ask at a time, inside and outside working hours
//! (L21–L24).
//!
//! The file gives lengths as times; the policy counts slices.

use std::time::Duration;

use anyhow::{Context, ensure};
use gang_conductor::Terms;
use gang_schedule::{Class, ClassSlices, ClassWeights};
use serde::Deserialize;

use crate::settings::duration;

/// The classes, as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Before all others where it has no weight.
    express: Weighed,
    interactive: Weighed,
    batch: Weighed,
    standby: Last,
}

/// A class that shares the machine with others, by its weight.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Weighed {
    /// In percent.
    weight: Option<u32>,
    /// Outside the working hours; the same unless it is set.
    weight_outside: Option<u32>,
    /// For how long a gang keeps its slot, such as "100ms": whole slices; one unless it is set.
    slice: Option<String>,
    slice_outside: Option<String>,
}

/// The class that has what nobody else wants: it has no weight.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Last {
    slice: Option<String>,
    slice_outside: Option<String>,
}

impl File {
    /// The terms inside and outside the working hours, if there are any.
    pub fn read(&self, slice_ns: u64, has_hours: bool) -> anyhow::Result<(Terms, Terms)> {
        let (mut inside, mut outside) = (Terms::default(), Terms::default());
        let File { express, interactive, batch, standby } = self;
        for (class, file) in
            [(Class::Express, express), (Class::Interactive, interactive), (Class::Batch, batch)]
        {
            ensure!(
                file.weight_outside.is_none() || has_hours,
                "classes.{class}.weight_outside: there are no [working_hours]"
            );
        }
        let usual = ClassWeights::default();
        inside.weights = ClassWeights {
            express: express.weight,
            interactive: interactive.weight.unwrap_or(usual.interactive),
            batch: batch.weight.unwrap_or(usual.batch),
        };
        let usual = inside.weights;
        outside.weights = ClassWeights {
            express: express.weight_outside.or(usual.express),
            interactive: interactive.weight_outside.unwrap_or(usual.interactive),
            batch: batch.weight_outside.unwrap_or(usual.batch),
        };
        for (class, slice, slice_outside) in [
            (Class::Express, &express.slice, &express.slice_outside),
            (Class::Interactive, &interactive.slice, &interactive.slice_outside),
            (Class::Batch, &batch.slice, &batch.slice_outside),
            (Class::Standby, &standby.slice, &standby.slice_outside),
        ] {
            ensure!(
                slice_outside.is_none() || has_hours,
                "classes.{class}.slice_outside: there are no [working_hours]"
            );
            let slices = |key: &str, text: &Option<String>| {
                let read = text.as_deref().map(|text| whole_slices(text, slice_ns)).transpose();
                read.with_context(|| format!("classes.{class}.{key}"))
            };
            let of_inside = slices("slice", slice)?.unwrap_or(1);
            *of(&mut inside.slices, class) = of_inside;
            *of(&mut outside.slices, class) =
                slices("slice_outside", slice_outside)?.unwrap_or(of_inside);
        }
        Ok((inside, outside))
    }
}

fn of(slices: &mut ClassSlices, class: Class) -> &mut u32 {
    match class {
        Class::Express => &mut slices.express,
        Class::Interactive => &mut slices.interactive,
        Class::Batch => &mut slices.batch,
        Class::Standby => &mut slices.standby,
    }
}

/// Reads a time as a number of slices.
fn whole_slices(text: &str, slice_ns: u64) -> anyhow::Result<u32> {
    let time = duration(text).map_err(anyhow::Error::msg)?;
    let (slice, most) = (Duration::from_nanos(slice_ns), ClassSlices::MAX);
    let slices = time.as_nanos() / u128::from(slice_ns.max(1));
    let is_whole = time.as_nanos() == slices * u128::from(slice_ns);
    ensure!(
        is_whole && (1..=most.into()).contains(&slices),
        "{time:?} is not 1 to {most} whole slices of {slice:?}"
    );
    Ok(slices as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(text: &str, has_hours: bool) -> anyhow::Result<(Terms, Terms)> {
        toml::from_str::<File>(text).unwrap().read(10 * MS, has_hours)
    }

    #[test]
    fn slices_of_classes_are_whole_slices() {
        let text = "[batch]\nslice = '100ms'\nslice_outside = '1s'\n[express]\nslice = '20ms'";
        let (inside, outside) = read(text, true).unwrap();
        let expected = ClassSlices { express: 2, interactive: 1, batch: 10, standby: 1 };
        assert_eq!(inside.slices, expected);
        assert_eq!(outside.slices, ClassSlices { batch: 100, ..expected });
    }

    #[test]
    fn express_has_a_weight_where_it_is_given_one() {
        let weights = |text: &str| {
            let (inside, outside) = read(text, true).unwrap();
            (inside.weights.express, outside.weights.express)
        };
        assert_eq!(weights("[express]\nslice = '20ms'"), (None, None));
        assert_eq!(weights("[express]\nweight = 900"), (Some(900), Some(900)));
        assert_eq!(weights("[express]\nweight_outside = 300"), (None, Some(300)));
        let both = "[express]\nweight = 900\nweight_outside = 300";
        assert_eq!(weights(both), (Some(900), Some(300)));
    }

    #[test]
    fn mistakes_name_their_key() {
        for (text, expected) in [
            ("[batch]\nslice = '15ms'", "classes.batch.slice: 15ms is not 1 to 1000 whole slices"),
            ("[standby]\nslice = '0s'", "classes.standby.slice: 0ns is not 1 to 1000"),
            ("[batch]\nslice = '1h'", "classes.batch.slice: 3600s is not 1 to 1000"),
            ("[batch]\nslice = '10'", "classes.batch.slice: \"10\" is not a time"),
            ("[batch]\nslice_outside = '20ms'", "classes.batch.slice_outside: there are no"),
            ("[express]\nweight_outside = 5", "classes.express.weight_outside: there are no"),
        ] {
            let message = format!("{:#}", read(text, false).unwrap_err());
            assert!(message.starts_with(expected), "{text:?} gave {message:?}");
        }
        let weighty = toml::from_str::<File>("[standby]\nweight = 2").unwrap_err().to_string();
        assert!(weighty.contains("unknown field `weight`"), "{weighty}");
    }

    #[test]
    fn lengths_stay_as_they_are_in_other_slices() {
        let (terms, _) = read("[batch]\nslice = '100ms'", false).unwrap();
        let other = terms.in_slices_of(10 * MS, 40 * MS);
        assert_eq!(other.slices, ClassSlices { batch: 2, ..ClassSlices::default() });
    }
}
