//! The names of a file's functions: of a runtime that waits, its barrier.
//!
//! Problem: the file is whatever a user's program maps. Its tables may be of any size, and a
//! million symbols may share one name that is as long as the file.
//!
//! Approach: one bounded read of the file, of which addresses, lengths and the places of names are
//! kept. A name is read when it is asked for, up to its first [`NAME_MAX`] bytes.
//!
//! Properties: an address between two functions that are named has no name. Of stripped libraries
//! only what they export is named. The part of a file that is kept has a bound, whatever the file
//! says.

use std::{fs::File, io::Read, os::unix::fs::FileExt};

use object::{
    Endianness,
    elf::{FileHeader32, FileHeader64, STT_FUNC, STT_GNU_IFUNC},
    read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable},
};

/// Larger files are not read.
const BYTES_MAX: u64 = 64 << 20;

/// Of a name no more is read.
pub const NAME_MAX: usize = 128;

/// Runtimes have some ten thousand.
const FUNCTIONS_MAX: usize = 1 << 17;

/// Programs that are linked as usual have two to four.
const SEGMENTS_MAX: usize = 64;

/// Where the functions of a file are when it is mapped.
#[derive(Debug, Default, PartialEq)]
pub struct Table {
    /// Offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    /// Address, length, place of the name in the file; in order.
    functions: Vec<(u64, u64, u64)>,
}

impl Table {
    /// That of a file of ELF, of 64 or 32 bits.
    pub fn read(data: &[u8]) -> Option<Table> {
        Table::of_class::<FileHeader64<Endianness>>(data)
            .or_else(|| Table::of_class::<FileHeader32<Endianness>>(data))
    }

    fn of_class<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<Table> {
        let file = ElfFile::<Elf>::parse(data).ok()?;
        let endian = file.endian();
        let segments = file.elf_program_headers().iter();
        let is_loaded = |it: &&Elf::ProgramHeader| it.p_type(endian) == object::elf::PT_LOAD;
        let segments = segments.filter(is_loaded).take(SEGMENTS_MAX).map(|it| {
            let (offset, length) = it.file_range(endian);
            (offset, length, it.p_vaddr(endian).into())
        });
        let mut functions = Vec::new();
        for table in [file.elf_symbol_table(), file.elf_dynamic_symbol_table()] {
            let room = FUNCTIONS_MAX - functions.len();
            functions.extend(functions_of(&file, table).take(room));
        }
        functions.sort_unstable();
        Some(Table { segments: segments.collect(), functions })
    }

    /// Where the name begins of the function that has the byte of the file at `offset`.
    pub fn at(&self, offset: u64) -> Option<u64> {
        let holds = |&&(start, length, _): &&(u64, u64, u64)| {
            (start..start.saturating_add(length)).contains(&offset)
        };
        let &(start, _, address) = self.segments.iter().find(holds)?;
        let address = address.checked_add(offset - start)?;
        let after = self.functions.partition_point(|&(start, ..)| start <= address);
        let &(start, length, name) = self.functions.get(after.checked_sub(1)?)?;
        (address - start < length).then_some(name)
    }
}

/// The functions that a table defines.
fn functions_of<'a, Elf: FileHeader<Endian = Endianness>>(
    file: &ElfFile<'a, Elf>,
    table: &SymbolTable<'a, Elf>,
) -> impl Iterator<Item = (u64, u64, u64)> + use<'a, Elf> {
    let endian = file.endian();
    let strings = file.elf_section_table().section(table.string_section());
    let names = strings.ok().and_then(|strings| strings.file_range(endian));
    let is_function = move |it: &&Elf::Sym| {
        [STT_FUNC, STT_GNU_IFUNC].contains(&it.st_type())
            && !it.is_undefined(endian)
            && it.st_size(endian).into() > 0
    };
    table.iter().filter(is_function).filter_map(move |it| {
        let (start, length) = names?;
        let name = u64::from(it.st_name(endian));
        let at = (name < length).then(|| start.checked_add(name))??;
        Some((it.st_value(endian).into(), it.st_size(endian).into(), at))
    })
}

/// The name at the beginning of some bytes, which may be cut.
pub fn name(bytes: &[u8]) -> Option<String> {
    let bytes = &bytes[..bytes.len().min(NAME_MAX)];
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(bytes);
    (!name.is_empty()).then(|| name.chars().filter(|it| !it.is_control()).collect())
}

/// The functions of a file that stays open.
#[derive(Debug)]
pub struct Symbols {
    table: Table,
    file: File,
}

impl Symbols {
    /// Those of a regular file; none where it is no program, or too large.
    pub fn of(file: File) -> Symbols {
        let mut data = Vec::new();
        let read = (&file).take(BYTES_MAX + 1).read_to_end(&mut data);
        let is_whole = read.is_ok() && data.len() as u64 <= BYTES_MAX;
        let table = is_whole.then(|| Table::read(&data)).flatten();
        Symbols { table: table.unwrap_or_default(), file }
    }

    /// The function that has the byte of the file at `offset`.
    pub fn at(&self, offset: u64) -> Option<String> {
        let mut bytes = [0; NAME_MAX];
        let read = self.file.read_at(&mut bytes, self.table.at(offset)?).ok()?;
        name(&bytes[..read])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_where_they_are_in_the_file() {
        let table = Table {
            segments: vec![(0, 0x100, 0x400), (0x100, 0x100, 0x1500)],
            functions: vec![(0x1500, 0x10, 7), (0x1520, 8, 9)],
        };
        assert_eq!(table.at(0x100), Some(7));
        assert_eq!(table.at(0x10f), Some(7));
        assert_eq!(table.at(0x110), None, "between two");
        assert_eq!(table.at(0x127), Some(9));
        assert_eq!(table.at(0x128), None);
        assert_eq!((table.at(0x50), table.at(0x500)), (None, None));
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        assert_eq!(Table::read(b"#!/bin/sh"), None);
        let symbols = Symbols::of(File::open("/proc/version").unwrap());
        assert_eq!((symbols.table.functions.len(), symbols.at(0)), (0, None));
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(name(b"barrier\0lock").as_deref(), Some("barrier"));
        assert_eq!(name(b"bar\x1b[2Jrier\0").as_deref(), Some("bar[2Jrier"));
        assert_eq!((name(b""), name(b"\0barrier")), (None, None));
        assert_eq!(name(&[b'x'; 1000]).map(|it| it.len()), Some(NAME_MAX));
    }
}
