//! The names of a file's functions: of a runtime that waits, its barrier.
//!
//! Properties: an address between two functions that are named has no name. Of stripped libraries
//! only what they export is named.

use std::{fs, path::Path};

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Larger files are not read.
const BYTES_MAX: u64 = 64 << 20;

/// The functions of a file, by where they are when it is mapped.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    /// Address, length, name; in order.
    functions: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Those of a file; none where it cannot be read.
    pub fn of(path: &Path) -> Symbols {
        let is_small = fs::metadata(path).is_ok_and(|file| file.len() <= BYTES_MAX);
        let data = if is_small { fs::read(path).unwrap_or_default() } else { Vec::new() };
        Symbols::read(&data).unwrap_or_default()
    }

    fn read(data: &[u8]) -> Option<Symbols> {
        let file = object::File::parse(data).ok()?;
        let segments = file.segments().map(|it| {
            let (offset, length) = it.file_range();
            (offset, length, it.address())
        });
        let all = file.symbols().chain(file.dynamic_symbols());
        let functions =
            all.filter(|it| it.kind() == SymbolKind::Text && it.is_definition() && it.size() > 0);
        let functions =
            functions.filter_map(|it| Some((it.address(), it.size(), it.name().ok()?.to_owned())));
        let (segments, mut functions) = (segments.collect(), functions.collect::<Vec<_>>());
        functions.sort();
        Some(Symbols { segments, functions })
    }

    /// The function that has the byte of the file at `offset`.
    pub fn at(&self, offset: u64) -> Option<&str> {
        let holds = |&&(start, length, _): &&(u64, u64, u64)| {
            (start..start.saturating_add(length)).contains(&offset)
        };
        let &(start, _, address) = self.segments.iter().find(holds)?;
        let address = address + (offset - start);
        let after = self.functions.partition_point(|&(start, ..)| start <= address);
        let (start, length, name) = self.functions.get(after.checked_sub(1)?)?;
        (address - start < *length).then_some(name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_where_they_are_in_the_file() {
        let function = |at, length, name: &str| (at, length, name.to_owned());
        let symbols = Symbols {
            segments: vec![(0, 0x100, 0x400), (0x100, 0x100, 0x1500)],
            functions: vec![function(0x1500, 0x10, "barrier"), function(0x1520, 8, "lock")],
        };
        assert_eq!(symbols.at(0x100), Some("barrier"));
        assert_eq!(symbols.at(0x10f), Some("barrier"));
        assert_eq!(symbols.at(0x110), None, "between two");
        assert_eq!(symbols.at(0x127), Some("lock"));
        assert_eq!(symbols.at(0x128), None);
        assert_eq!((symbols.at(0x50), symbols.at(0x500)), (None, None));
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        assert!(Symbols::read(b"#!/bin/sh").is_none());
        assert_eq!(Symbols::of(Path::new("/no/such/file")).at(0), None);
    }
}
