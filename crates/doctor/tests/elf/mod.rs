//! The way of a program's file to the names of its functions, with the properties that must hold on
//! it. Shared by the test of the corpus and by the fuzz target.

use crate::symbols::{NAME_MAX, Table, name};

/// Whether some bytes are a program; how many of its bytes are in functions that have names.
pub fn named_bytes(data: &[u8]) -> Option<usize> {
    let table = Table::read(data)?;
    let place = |at: u64| usize::try_from(at).ok().and_then(|at| data.get(at..));
    let edges = [u64::MAX, u64::MAX - 1, 1 << 63, u64::from(u32::MAX)];
    let offsets = (0..data.len().min(1 << 16) as u64).chain(edges);
    let names = offsets.filter_map(|offset| name(place(table.at(offset)?)?));
    Some(names.inspect(|name| assert!(name.chars().count() <= NAME_MAX)).count())
}
