// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq and what they imply.

#include <immintrin.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/x86/avx512_words-inl.h"
// It needs the words above.
#include "kernels/cpu/isa/kernels-inl.h"

}  // namespace

constinit const KernelTable kAvx512Kernels =
    MakeTable("avx512", {nullptr, nullptr, Avx2Int8, Avx2Int4});
constinit const KernelTable kAvx512VnniKernels =
    MakeTable("avx512", {nullptr, nullptr, Avx512VnniInt8, Avx512VnniInt4});
constinit const KernelTable kAvx512AmxKernels =
    MakeTable("avx512", {nullptr, nullptr, AmxInt8, AmxInt4});
constinit const KernelTable kAvx512Bf16Kernels = MakeTable(
    "avx512_bf16", {nullptr, Avx512Bf16, Avx512VnniInt8, Avx512VnniInt4}, Avx512AttendPairs);
constinit const KernelTable kAvx512Bf16AmxKernels =
    MakeTable("avx512_bf16", {nullptr, Avx512Bf16, AmxInt8, AmxInt4}, Avx512AttendPairs);

}  // namespace continuo::kernels::cpu
