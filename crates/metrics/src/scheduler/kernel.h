/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's tasks, as far as they are read here; only names count (CO-RE), see bpf/kernel.h. */
#ifndef ONLOOKER_SCHEDULER_KERNEL_H
#define ONLOOKER_SCHEDULER_KERNEL_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/linux/sched.h */
struct task_struct {
	unsigned int __state;
	/* Kernels with more than one CPU. */
	int on_cpu;
	int pid;
};

#pragma clang attribute pop

/* include/linux/sched.h */
#define TASK_RUNNING 0

#endif
