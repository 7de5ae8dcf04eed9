// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: on SIGUSR2 it gives free memory back to the system and tells on stderr
// how many bytes of the heap are in use, as {"message":"heap","in_use_bytes":N}. A leak shows there
// exactly; resident memory also has what is free but lies scattered. Takes the signal in a thread
// of its own, so that no handler runs inside malloc. GLIBC_TUNABLES=glibc.malloc.tcache_count=0
// makes the figure exact: blocks in a thread's cache count as in use.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static sigset_t g_signals;

static void* Run(void* unused) {
  for (;;) {
    int number;
    if (sigwait(&g_signals, &number) != 0) continue;
    malloc_trim(0);
    char line[80];
    const struct mallinfo2 heap = mallinfo2();
    const int size = snprintf(line, sizeof line, "{\"message\":\"heap\",\"in_use_bytes\":%zu}\n",
                              heap.uordblks + heap.hblkhd);
    if (write(STDERR_FILENO, line, size) != size) return unused;
  }
}

__attribute__((constructor)) static void Start(void) {
  sigemptyset(&g_signals);
  sigaddset(&g_signals, SIGUSR2);
  // Our thread takes no other signal; every thread made later inherits that it leaves this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, NULL, Run, NULL) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_sigmask(SIG_BLOCK, &g_signals, NULL);
}
