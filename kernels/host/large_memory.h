// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace continuo::kernels::host {

// The size of a huge page of x86-64, and of 64-bit ARM with pages of 4 KiB.
inline constexpr size_t kHugePage = size_t{2} << 20;

// Maps zeroed memory of the process's own. Its pages are taken from the machine only when they are
// touched. Memory of kHugePage bytes or more begins at a multiple of that and asks for huge pages.
// Null where there is none.
void* MapMemory(size_t bytes);
// Gives back what MapMemory gave for as many bytes.
void UnmapMemory(void* data, size_t bytes);

// Asks for huge pages for the whole ones among these bytes, which must not be those of a mapped
// file. Machines that have none, or are told to give none, leave small pages.
void AskForHugePages(void* data, size_t bytes);

}  // namespace continuo::kernels::host
