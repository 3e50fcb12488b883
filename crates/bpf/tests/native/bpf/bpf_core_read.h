/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of libbpf's header of this name that the programs use, for a native compiler. */
#ifndef GANGD_NATIVE_BPF_CORE_READ_H
#define GANGD_NATIVE_BPF_CORE_READ_H

#define bpf_core_field_exists(field) 1
#define BPF_CORE_READ_BITFIELD(of, field) ((of)->field)

#endif
