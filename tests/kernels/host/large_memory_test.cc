// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/large_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/host/scratch.h"

namespace continuo::kernels::host {
namespace {

uintptr_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

// True where Linux has noted that the page at this address is to be part of a huge one.
bool AsksForHugePages(const void* data) {
  std::ifstream smaps("/proc/self/smaps");
  bool is_within = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      is_within = begin <= AddressOf(data) && AddressOf(data) < end;
    } else if (is_within && line.starts_with("VmFlags:")) {
      return line.find(" hg") != line.npos;
    }
  }
  return false;
}

// Bytes of the process's addresses that are mapped.
size_t MappedBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Returns the number of mapped areas that Linux notes for huge pages.
int NumHugeAreas() {
  std::ifstream smaps("/proc/self/smaps");
  int num_areas = 0;
  for (std::string line; std::getline(smaps, line);) {
    num_areas += line.starts_with("VmFlags:") && line.find(" hg") != line.npos;
  }
  return num_areas;
}

// Returns whether Linux notes what asks for huge pages: a kernel without them does not, and qemu's
// user mode keeps the request to itself.
bool HasHugePages() {
  auto* const probe = static_cast<char*>(
      mmap(nullptr, 4 * kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (probe == MAP_FAILED) return false;
  const int before = NumHugeAreas();
  madvise(probe + kHugePage, 2 * kHugePage, MADV_HUGEPAGE);
  const int after = NumHugeAreas();
  munmap(probe, 4 * kHugePage);
  return after > before;
}

TEST(LargeMemoryTest, LargeMemoryBeginsAtAHugePageAndIsZero) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, kHugePage - 1, kHugePage, kHugePage + 1, 3 * kHugePage + 4097}) {
    auto* const data = static_cast<char*>(MapMemory(bytes));
    ASSERT_NE(data, nullptr) << bytes;
    EXPECT_TRUE(bytes < kHugePage || AddressOf(data) % kHugePage == 0) << bytes;
    if (bytes > 0) {
      EXPECT_EQ(data[0], 0);
      EXPECT_EQ(data[bytes - 1], 0);
      data[0] = data[bytes - 1] = 1;
    }
    UnmapMemory(data, bytes);
  }
  EXPECT_EQ(MapMemory(std::numeric_limits<size_t>::max()), nullptr);
  EXPECT_EQ(MapMemory(std::numeric_limits<size_t>::max() / 2), nullptr);
}

// What is mapped beside it to align it is given back, and so is all of it in the end.
TEST(LargeMemoryTest, NothingStaysMapped) {
  constexpr size_t kBytes = 2 * kHugePage + 5;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = MappedBytes();
  auto* const data = static_cast<char*>(MapMemory(kBytes));
  ASSERT_NE(data, nullptr);
  // Reading the file may map a little, too.
  EXPECT_LT(MappedBytes(), before + kBytes + kHugePage / 2);
  unsigned char resident = 0;
  const size_t last = kBytes / page * page;
  EXPECT_EQ(mincore(data + last, page, &resident), 0);
  UnmapMemory(data, kBytes);
  EXPECT_NE(mincore(data, page, &resident), 0);
  EXPECT_NE(mincore(data + last, page, &resident), 0);
}

TEST(LargeMemoryTest, HugePagesAreAskedFor) {
  const bool are_there = HasHugePages();
  void* const large = MapMemory(kHugePage);
  EXPECT_EQ(AsksForHugePages(large), are_there);
  UnmapMemory(large, kHugePage);
  // Whole pages within the bytes alone are asked for.
  auto* const plain = static_cast<char*>(
      mmap(nullptr, 3 * kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(plain, MAP_FAILED);
  char* const aligned = plain + (kHugePage - AddressOf(plain) % kHugePage) % kHugePage;
  AskForHugePages(aligned, kHugePage - 1);
  AskForHugePages(aligned + 1, kHugePage);
  EXPECT_FALSE(AsksForHugePages(aligned));
  AskForHugePages(aligned, kHugePage);
  EXPECT_EQ(AsksForHugePages(aligned), are_there);
  munmap(plain, 3 * kHugePage);
}

// Weights, keys, values and activations, and what kernels gather on the way.
TEST(LargeMemoryTest, ADevicesMemoryAndScratchAskForThem) {
  cpu::CpuDevice device(**cpu::PickKernels("scalar"), 1);
  const auto memory = device.Allocate(kHugePage + 12345);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(AddressOf(*memory) % kHugePage, 0u);
  Scratch scratch;
  float* const values = scratch.Get(kHugePage / sizeof(float) + 1);
  EXPECT_EQ(AddressOf(values) % kHugePage, 0u);
  values[kHugePage / sizeof(float)] = 1;
  if (HasHugePages()) {
    EXPECT_TRUE(AsksForHugePages(*memory));
    EXPECT_TRUE(AsksForHugePages(values));
  }
  device.Free(*memory);
  EXPECT_EQ(device.Allocate(std::numeric_limits<size_t>::max()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace continuo::kernels::host
