// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa/pick_kernels.h"

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace continuo::kernels::cpu {
#if defined(__x86_64__)
namespace {

// Clang 14's __builtin_cpu_supports does not know it. Intel SDM, CPUID leaf 1: ECX bit 29.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

#if defined(CONTINUO_AVX512_KERNELS)
// CPUID leaf 7, subleaf 1: EAX bit 5.
bool HasAvx512Bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
}

// Returns whether the CPU has AMX for int8 (CPUID leaf 7, subleaf 0: EDX bits 24 and 25) and Linux
// lets the process use it: it asks for the state of tiles, of all threads (arch_prctl 0x1023,
// Documentation/arch/x86/xstate.rst).
bool HasAmx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & (3u << 24)) != (3u << 24)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace
#endif

std::vector<const KernelTable*> AllKernels() {
  std::vector<const KernelTable*> tables = {&kScalarKernels};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  if (avx2) tables.push_back(&kAvx2Kernels);
#if defined(CONTINUO_AVX512_KERNELS)
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    tables.push_back(&kAvx512Kernels);
    const bool vnni = __builtin_cpu_supports("avx512vnni"), amx = vnni && HasAmx();
    if (vnni) tables.push_back(&kAvx512VnniKernels);
    if (amx) tables.push_back(&kAvx512AmxKernels);
    if (vnni && HasAvx512Bf16()) {
      tables.push_back(&kAvx512Bf16Kernels);
      if (amx) tables.push_back(&kAvx512Bf16AmxKernels);
    }
  }
#endif
#elif defined(__aarch64__)
  tables.push_back(&kNeonKernels);
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) tables.push_back(&kNeonDotKernels);
#endif
  return tables;
}

std::vector<const KernelTable*> AvailableKernels() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : AllKernels()) {
    const bool is_faster = !tables.empty() && std::strcmp(tables.back()->name, table->name) == 0;
    if (is_faster) tables.pop_back();
    tables.push_back(table);
  }
  return tables;
}

absl::StatusOr<const KernelTable*> PickKernels(std::string_view isa) {
  const std::vector<const KernelTable*> tables = AvailableKernels();
  if (isa == "auto") return tables.back();
  std::string names;
  for (const KernelTable* table : tables) {
    if (isa == table->name) return table;
    absl::StrAppend(&names, names.empty() ? "" : ", ", table->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("instruction set \"", std::string(isa),
                   "\" is not available: this build and machine have ", names, " (or auto)"));
}

}  // namespace continuo::kernels::cpu
