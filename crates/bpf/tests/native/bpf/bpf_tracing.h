/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs use of libbpf's header of this name, for a native compiler. */
#ifndef GANGD_NATIVE_BPF_TRACING_H
#define GANGD_NATIVE_BPF_TRACING_H

#define BPF_PROG(name, arguments...) name(arguments)

#endif
