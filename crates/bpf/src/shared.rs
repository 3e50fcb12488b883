//! The structures that the programs in the kernel share with us, field by field.
//!
//! Problem: C lays them out, Rust reads them. Two fields that change places have the same size, and
//! every figure behind them is silently another one.
//!
//! Approach: each structure is declared once on each side, with the same names, order and types. No
//! offset is written by hand. A test holds each field against the BTF of the programs as built: its
//! name, its offset and its size. It names the field that differs.

use std::mem::offset_of;

use crate::SLOTS_MAX;

/// Buckets of skews (`book.h`).
pub const BUCKETS: usize = 144;

/// Words that have the CPUs of a row (`book.h`).
pub const ROW_WORDS: usize = 8;

/// A value that C and Rust lay out alike, in the byte order of the machine.
pub trait Shared: Sized {
    const SIZE: usize;

    /// The value at the beginning of some bytes.
    ///
    /// # Panics
    ///
    /// Where there are fewer bytes than the value has.
    fn read(bytes: &[u8]) -> Self;

    /// Writes the value at the beginning of some bytes, of which there must be enough.
    fn write(&self, bytes: &mut [u8]);

    fn zeroed() -> Self {
        Self::read(&vec![0; Self::SIZE])
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        self.write(&mut bytes);
        bytes
    }
}

macro_rules! number {
    ($($number:ty)*) => {$(
        impl Shared for $number {
            const SIZE: usize = size_of::<$number>();

            fn read(bytes: &[u8]) -> Self {
                <$number>::from_ne_bytes(bytes[..Self::SIZE].try_into().expect("as many bytes"))
            }

            fn write(&self, bytes: &mut [u8]) {
                bytes[..Self::SIZE].copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

number!(u8 u16 u32 u64 i32 i64);

impl<T: Shared, const N: usize> Shared for [T; N] {
    const SIZE: usize = N * T::SIZE;

    fn read(bytes: &[u8]) -> Self {
        std::array::from_fn(|at| T::read(&bytes[at * T::SIZE..]))
    }

    fn write(&self, bytes: &mut [u8]) {
        for (at, value) in self.iter().enumerate() {
            value.write(&mut bytes[at * T::SIZE..]);
        }
    }
}

/// A field as one of the two sides has it, in bytes.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub offset: usize,
    pub size: usize,
}

/// A structure that a test holds against C.
#[cfg(test)]
pub trait InC: Shared {
    const NAME: &'static str;

    fn fields() -> Vec<Field>;
}

/// Declares structures of C with their name there.
macro_rules! shared {
    ($(
        $(#[$about:meta])*
        struct $name:ident = $in_c:literal { $($field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "some fields are for the programs alone")]
        pub struct $name { $(pub $field: $type,)* }

        impl Shared for $name {
            const SIZE: usize = size_of::<$name>();

            fn read(bytes: &[u8]) -> Self {
                $name { $($field: Shared::read(&bytes[offset_of!($name, $field)..]),)* }
            }

            fn write(&self, bytes: &mut [u8]) {
                $(self.$field.write(&mut bytes[offset_of!($name, $field)..]);)*
            }
        }

        #[cfg(test)]
        impl InC for $name {
            const NAME: &'static str = $in_c;

            fn fields() -> Vec<Field> {
                vec![$(Field {
                    name: stringify!($field).into(),
                    offset: offset_of!($name, $field),
                    size: <$type as Shared>::SIZE,
                },)*]
            }
        }
    )*};
}

// The meaning of each field stands in C: book.h, ways.h, whole.h, cosched.bpf.c and profile.bpf.c.
shared! {
    struct Notes = "notes" {
        start_ns: u64,
        end_ns: u64,
    }

    struct SlotTime = "slot_time" {
        start_ns: u64,
        end_ns: u64,
        until_ns: u64,
        cpus: u32,
        unused: u32,
    }

    struct Slots = "slots" {
        generation: u64,
        count: u32,
        always: u32,
        row_cpus: u32,
        row_end: u32,
        row: [u64; ROW_WORDS],
        slot: [SlotTime; SLOTS_MAX],
    }

    struct Gang = "gang" {
        lock: u32,
        running: i32,
        runnable: i32,
        in_slot: u32,
        epoch: u64,
        at_ns: u64,
        generation: u64,
        cursor: u32,
        starting: u32,
        ending: u32,
        staying: u32,
        first_ns: u64,
        notes: Notes,
        slot_ns: u64,
        wanted_ns: u64,
        coscheduled_ns: u64,
        lost_ns: u64,
        filled_ns: u64,
        waiting_ns: u64,
        ended_ns: u64,
        awaited: u32,
        unused: u32,
        gave_way: u64,
        gave_way_ns: u64,
        asked_ns: u64,
        whole_ns: u64,
        other_ns: u64,
        split_ns: u64,
        gap_ns: u64,
        edge_ns: u64,
        tail_ns: u64,
        away_asked_ns: u64,
        away_whole_ns: u64,
        turn_asked_ns: u64,
        turn_whole_ns: u64,
        met: u32,
        away: u32,
        skew: [u32; BUCKETS],
    }

    struct Culprit = "culprit" {
        gang: u64,
        tgid: u32,
        epoch: u32,
    }

    struct Damage = "damage" {
        ns: u64,
        policy: u32,
        is_kernel: u32,
        name: [u8; 16],
    }

    struct Share = "share" {
        in_slot_ns: u64,
        out_of_slot_ns: u64,
        lost_ns: u64,
        epoch: u64,
    }

    struct Cpu = "cpu" {
        at_ns: u64,
        gang: u64,
        epoch: u64,
        slot_ns: u64,
        owner: u64,
        had: Share,
        moved: u64,
        short_tasks: u64,
        has_slots: u32,
        taken: u32,
        is_in_slot: u32,
        unused: u32,
    }

    struct Turn = "turn" {
        start_ns: u64,
        end_ns: u64,
        gang: u64,
    }

    struct Lane = "lane" {
        count: u32,
        unused: u32,
        turn: [Turn; SLOTS_MAX],
    }

    struct Place = "place" {
        gang: u64,
        owner: u64,
        steal_ns: u64,
        away_ns: u64,
        away_at_ns: u64,
    }

    struct Way = "way" {
        since_ns: u64,
        until_ns: u64,
        used_ns: u64,
        raised_since_ns: u64,
        raised_ns: u64,
        closed_until_ns: u64,
        gang: u64,
        asked: u32,
        requests: u32,
        waiting: u32,
        unused: u32,
    }

    struct Wait = "wait" {
        slots_ns: u64,
        used_ns: u64,
        cpu: u32,
        tid: u32,
        before: u32,
        unused: u32,
    }

    struct Runnable = "runnable" {
        group: u64,
        tid: u32,
        uid: u32,
    }
    struct Closing = "closing" {
        until_ns: u64,
        cpu: u32,
        unused: u32,
    }

    struct Tick = "tick" {
        at_ns: u64,
        ip: u64,
        tgid: u32,
        tid: u32,
        call: i32,
        running: u16,
        waiting: u16,
        who: u32,
        sum: u16,
        here: u16,
        code: [u8; 128],
    }

    struct Program = "program" {
        group: u64,
        epoch: u64,
        running: i64,
        waiting: i64,
        lost: u64,
        at_once: i64,
        since_ns: u64,
        booked_ns: u64,
    }

    struct Sum = "sum" {
        ns: u64,
        ran_ns: u64,
    }

    struct Cause = "cause" {
        tid: u32,
        call: i32,
        uninterruptible: u32,
    }

    struct Sleeps = "sleeps" {
        count: u64,
        ns: u64,
        clear_count: u64,
        clear_ns: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        let cause = Cause { tid: 7, call: -1, uninterruptible: 1 };
        let bytes = cause.to_bytes();
        assert_eq!(bytes[4..8], [0xff; 4]);
        let again = Cause::read(&bytes);
        assert_eq!((again.tid, again.call, again.uninterruptible), (7, -1, 1));
        assert_eq!(Gang::zeroed().to_bytes(), [0; Gang::SIZE]);
    }

    #[cfg(not(has_program))]
    #[test]
    fn structures_are_laid_out_as_in_c() {
        gang_harness::skipped("built without the BPF programs: nothing to hold structures against");
    }

    #[cfg(has_program)]
    mod in_c {
        use libbpf_rs::{
            HasSize,
            btf::{
                Btf, BtfType,
                types::{Array, Int, MemberAttr, Struct},
            },
        };

        use super::*;

        fn size_of_type(of: BtfType<'_>) -> usize {
            let of = of.skip_mods_and_typedefs();
            if let Ok(array) = Array::try_from(of) {
                return array.capacity() * size_of_type(array.contained_type());
            }
            if let Ok(number) = Int::try_from(of) {
                return usize::from(number.bits) / 8;
            }
            Struct::try_from(of).map_or(0, |structure| structure.size())
        }

        fn fields_in_c(btf: &Btf<'_>, name: &str) -> Option<(Vec<Field>, usize)> {
            let is_it = |it: &Struct<'_>| it.name().is_some_and(|of_it| of_it == name);
            let structure = btf.type_by_kind::<Struct<'_>>().find(is_it)?;
            let fields = structure.iter().map(|member| {
                let MemberAttr::Normal { offset } = member.attr else {
                    panic!("struct {name} has a bit field")
                };
                let of = btf.type_by_id(member.ty).expect("a member has a type");
                let name = member.name.unwrap_or_default().to_string_lossy().into_owned();
                Field { name, offset: offset as usize / 8, size: size_of_type(of) }
            });
            Some((fields.collect(), structure.size()))
        }

        /// In what a structure differs from C; nothing where it does not.
        fn differences(btf: &Btf<'_>, name: &str, size: usize, ours: &[Field]) -> Vec<String> {
            let Some((in_c, size_in_c)) = fields_in_c(btf, name) else {
                return vec![format!("struct {name} is not in the programs")];
            };
            let mut differences = Vec::new();
            for at in 0..in_c.len().max(ours.len()) {
                if in_c.get(at) != ours.get(at) {
                    let (in_c, ours) = (in_c.get(at), ours.get(at));
                    differences.push(format!("struct {name}: {in_c:?} in C, {ours:?} in Rust"));
                }
            }
            if size != size_in_c {
                differences.push(format!("struct {name}: {size_in_c} bytes in C, {size} in Rust"));
            }
            differences
        }

        fn differences_of<T: InC>(btf: &Btf<'_>) -> Vec<String> {
            differences(btf, T::NAME, T::SIZE, &T::fields())
        }

        fn btf(program: &str) -> Btf<'static> {
            let object = format!("{}/{program}.bpf.o", env!("OUT_DIR"));
            Btf::from_path(object).unwrap()
        }

        #[test]
        fn structures_are_laid_out_as_in_c() {
            let (cosched, profile) = (btf("cosched"), btf("profile"));
            let differences = [
                differences_of::<Notes>(&cosched),
                differences_of::<SlotTime>(&cosched),
                differences_of::<Slots>(&cosched),
                differences_of::<Gang>(&cosched),
                differences_of::<Culprit>(&cosched),
                differences_of::<Damage>(&cosched),
                differences_of::<Share>(&cosched),
                differences_of::<Cpu>(&cosched),
                differences_of::<Turn>(&cosched),
                differences_of::<Lane>(&cosched),
                differences_of::<Place>(&cosched),
                differences_of::<Way>(&cosched),
                differences_of::<Wait>(&cosched),
                differences_of::<Closing>(&cosched),
                differences_of::<Tick>(&profile),
                differences_of::<Program>(&profile),
                differences_of::<Sum>(&profile),
                differences_of::<Cause>(&profile),
                differences_of::<Sleeps>(&profile),
            ];
            let differences = differences.concat();
            assert!(differences.is_empty(), "{}", differences.join("\n"));
        }

        #[test]
        fn a_field_that_differs_is_named() {
            let btf = btf("cosched");
            let mut swapped = Gang::fields();
            let at = swapped.iter().position(|field| field.name == "lost_ns").unwrap();
            let other = swapped[at + 1].name.clone();
            swapped[at].name = std::mem::replace(&mut swapped[at + 1].name, "lost_ns".into());
            let found = differences(&btf, Gang::NAME, Gang::SIZE, &swapped);
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found.iter().all(|it| it.contains("lost_ns") && it.contains(&other)));
            let shorter = &Gang::fields()[1..];
            assert!(differences(&btf, Gang::NAME, Gang::SIZE, shorter)[0].contains("lock"));
            assert_eq!(differences(&btf, "no_such", 0, &[]).len(), 1);
            assert_eq!(differences(&btf, Gang::NAME, 8, &Gang::fields()).len(), 1);
        }
    }
}
