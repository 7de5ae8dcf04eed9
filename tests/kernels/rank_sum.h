// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/host/thread_communicator.h"
#include "kernels/math/arithmetic.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// Columns [begin, end) of t.
inline HostTensor Columns(const HostTensor& t, int64_t begin, int64_t end) {
  const int64_t rows = t.tensor().rows(), width = t.tensor().cols();
  HostTensor part(t.tensor().dtype, rows, end - begin);
  const Matrix m = t.matrix();
  for (int64_t i = 0; i < part.tensor().size(); ++i) {
    const int64_t r = i / (end - begin), c = i % (end - begin);
    part.Set(i, static_cast<float>(m[r * width + begin + c]));
  }
  return part;
}

// out = x · wᵀ in K splits, as MatMulSplitK computes it, with w in the format under test.
using SplitProduct =
    std::function<void(kernels::Device& device, const HostTensor& out, const HostTensor& x,
                       const HostTensor& w, const std::vector<int64_t>& split_begin)>;

// The sum of 1, 2, 4 or 8 ranks, each of which holds its columns of x and w, has the bits of one.
// `cut` is where the kNumSplits splits begin, and the end.
inline void ExpectRanksGiveTheBitsOfOne(const std::string& isa, const HostTensor& x,
                                        const HostTensor& w, const std::vector<int64_t>& cut,
                                        const SplitProduct& multiply, const std::string& what) {
  const int64_t rows = x.tensor().rows(), columns = w.tensor().rows();
  const HostTensor expected = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
  multiply(*MakeCpu(isa), expected, x, w, cut);
  for (const int size : {1, 2, 4, 8}) {
    const auto communicators = kernels::host::MakeThreadCommunicators(size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const int first = rank * kernels::kNumSplits / size,
                  last = (rank + 1) * kernels::kNumSplits / size;
        std::vector<int64_t> own;
        for (int i = first; i <= last; ++i) own.push_back(cut[i] - cut[first]);
        const HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, columns);
        multiply(*MakeCpu(isa), out, Columns(x, cut[first], cut[last]),
                 Columns(w, cut[first], cut[last]), own);
        communicators[rank]->AllReduceSum(out);
        EXPECT_TRUE(out.SameBits(expected)) << "rank " << rank << " of " << size << ", " << what;
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

}  // namespace continuo::testing
