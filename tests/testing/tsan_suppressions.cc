// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer what is no race. Abseil maps the memory of its thread identities with mmap,
// which counts as a write, and hands them to other threads inside its Mutex, where ThreadSanitizer
// is told not to look: a thread's first wait then seems to race with its waker. Rust's code is not
// instrumented, so that its atomics order nothing, but its calls of memcpy are seen; its symbols
// begin with _R.

extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:DoAllocWithArena\nrace:^_R\n"; }
