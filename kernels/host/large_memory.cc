// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/large_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "services/base/check.h"

namespace continuo::kernels::host {
namespace {

// What a mapping of so many bytes takes: whole pages, one at least.
size_t MappedBytes(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

}  // namespace

void* MapMemory(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) return nullptr;
  const size_t size = MappedBytes(bytes);
  // Has room for an aligned beginning; the rest is given back.
  const size_t spare = size < kHugePage ? 0 : kHugePage;
  void* const mapped =
      mmap(nullptr, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (spare == 0) return mapped;
  auto* const begin = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  char* const data = begin + before;
  if (before > 0) CONTINUO_CHECK(munmap(begin, before) == 0);
  CONTINUO_CHECK(munmap(data + size, spare - before) == 0);
  AskForHugePages(data, size);
  return data;
}

void UnmapMemory(void* data, size_t bytes) { munmap(data, MappedBytes(bytes)); }

void AskForHugePages(void* data, size_t bytes) {
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage;
  if (begin >= end) return;
  // A refusal leaves small pages.
  madvise(reinterpret_cast<void*>(begin * kHugePage), (end - begin) * kHugePage, MADV_HUGEPAGE);
}

}  // namespace continuo::kernels::host
