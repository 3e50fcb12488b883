/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of libbpf's header of this name that the programs use, for a native compiler. */
#ifndef GANGD_NATIVE_BPF_TRACING_H
#define GANGD_NATIVE_BPF_TRACING_H

#define BPF_PROG(name, arguments...) name(arguments)

#endif
