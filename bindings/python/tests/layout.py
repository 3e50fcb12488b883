"""The structs and numbers of the package, as crates/libgang/tests/layout.c prints those of C."""

import ctypes

import gang
from gang._library import STRUCTS

for name, struct in STRUCTS.items():
    for member, _ in struct._fields_:
        field = getattr(struct, member)
        print(f"{name}.{member} {field.offset} {field.size}")
    print(name, ctypes.sizeof(struct))
for numbers in gang.Result, gang.Class, gang.State:
    for number in numbers:
        print(number.name, number.value)
