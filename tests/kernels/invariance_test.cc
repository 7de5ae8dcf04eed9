// SPDX-License-Identifier: Apache-2.0
// A row's bits depend on that row alone: not on its neighbours in the batch, not on threads, and
// where tensor parallelism splits K, not on the number of ranks (exactness: fixed-k-order).
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/math/arithmetic.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/rank_sum.h"

namespace continuo::testing {
namespace {

using InvarianceTest = IsaTest;
INSTANTIATE_FOR_ISAS(InvarianceTest);

constexpr kernels::DType kActivations[] = {kernels::DType::kF32, kernels::DType::kBF16};
constexpr kernels::DType kWeights[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                       kernels::DType::kF16};

// The bytes of rows [begin, end) of t.
std::vector<std::byte> BytesOf(const HostTensor& t, int64_t begin, int64_t end) {
  const kernels::Tensor rows = t.Rows(begin, end);
  const std::byte* p = static_cast<const std::byte*>(rows.data);
  return {p, p + rows.bytes()};
}

TEST_P(InvarianceTest, ARowOfMatMulIsTheSameAloneAndInAnyBatch) {
  Random random(41);
  const int64_t k = 150, columns = 103, most = 600;
  for (const kernels::DType type : kActivations) {
    for (const kernels::DType weight_type : kWeights) {
      const HostTensor x = HostTensor::Of(type, most, k, random);
      const HostTensor w = HostTensor::Of(weight_type, columns, k, random);
      HostTensor all = HostTensor::Poisoned(type, most, columns);
      ops().matmul.MatMul(all, x, w.weight(), kernels::Tensor());
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 65, 513}) {
        for (const int64_t first : {int64_t{0}, most - rows}) {
          HostTensor out = HostTensor::Poisoned(type, rows, columns);
          ops().matmul.MatMul(out, x.Rows(first, first + rows), w.weight(), kernels::Tensor());
          ASSERT_EQ(BytesOf(out, 0, rows), BytesOf(all, first, first + rows))
              << rows << " rows from " << first << ", " << NameOf(type) << " "
              << NameOf(weight_type);
        }
      }
    }
  }
}

TEST_P(InvarianceTest, AColumnOfMatMulIsTheSameInAnyShard) {
  Random random(42);
  const int64_t k = 150, columns = 103;
  const HostTensor x = HostTensor::Of(kernels::DType::kBF16, 6, k, random);
  const HostTensor w = HostTensor::Of(kernels::DType::kBF16, columns, k, random);
  HostTensor all = HostTensor::Poisoned(kernels::DType::kF32, 6, columns);
  ops().matmul.MatMul(all, x, w.weight(), kernels::Tensor());
  for (const auto& [begin, end] : {std::pair{0, 1}, {5, 30}, {30, 103}}) {
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 6, end - begin);
    ops().matmul.MatMul(out, x, {w.Rows(begin, end)}, kernels::Tensor());
    for (int r = 0; r < 6; ++r) {
      for (int c = begin; c < end; ++c) {
        ASSERT_EQ(out.matrix()[r * (end - begin) + c - begin], all.matrix()[r * columns + c]);
      }
    }
  }
}

TEST_P(InvarianceTest, ThreadsChangeNothing) {
  // Runs every op once, at sizes at which work is divided.
  const auto run = [&](int threads) {
    const auto device = MakeCpu(GetParam(), threads);
    Random random(43);
    std::vector<std::byte> bytes;
    const auto take = [&](const HostTensor& t) {
      bytes.insert(bytes.end(), t.bytes().begin(), t.bytes().end());
    };
    for (const kernels::DType type : kActivations) {
      const HostTensor x = HostTensor::Of(type, 40, 700, random);
      const HostTensor w = HostTensor::Of(kernels::DType::kBF16, 300, 700, random);
      const HostTensor gain = HostTensor::Of(type, 1, 700, random);
      const HostTensor sum = HostTensor::Of(kernels::DType::kF32, 40, 700, random);
      const HostTensor angles(kernels::DType::kF32, 40, 64),
          frequencies = HostTensor::Of(kernels::DType::kF32, 1, 32, random);
      std::vector<int32_t> positions;
      for (int i = 0; i < 40; ++i) positions.push_back(random.Below(5000));
      HostTensor out = HostTensor::Poisoned(type, 40, 300);
      device->ops().matmul.MatMul(out, x, w.weight(), kernels::Tensor());
      take(out);
      HostTensor splits = HostTensor::Poisoned(kernels::DType::kF32, 40, 300);
      device->ops().matmul.MatMulSplitK(splits, x, w.weight(),
                                        std::vector<int64_t>{0, 100, 350, 351, 700});
      take(splits);
      HostTensor same = x.Clone();
      device->ops().rows.RmsNorm(same, same, gain, 1e-6f);
      take(same);
      device->ops().rows.AddSum(same, sum, kernels::Tensor());
      take(same);
      device->ops().attention.RopeAngles(angles, HostTensor::OfInts(positions), frequencies, 1.0f);
      take(angles);
      device->ops().attention.Rope(same, angles, 70);
      take(same);
      device->ops().rows.GateMul(kernels::GateFunction::kSilu, same, same, x);
      take(same);
      HostTensor embedded = HostTensor::Poisoned(type, 40, 700);
      device->ops().rows.Embed(embedded, w.weight(), HostTensor::OfInts(positions), 2000, 1.0f);
      take(embedded);
    }
    return bytes;
  };
  const std::vector<std::byte> expected = run(1);
  for (const int threads : {2, 3, 4}) EXPECT_TRUE(run(threads) == expected) << threads;
}

TEST_P(InvarianceTest, RanksThatShareASumGiveTheBitsOfOne) {
  Random random(44);
  const int64_t rows = 5, columns = 37, k = 172;
  // Cuts are at multiples of a unit (exactness: fixed-k-order): of MLP columns, and of heads of 20,
  // where some splits are empty.
  for (const int64_t unit : {1, 20}) {
    std::vector<int64_t> cut;
    const int64_t units = k / unit;
    for (int i = 0; i <= kernels::kNumSplits; ++i)
      cut.push_back(i * units / kernels::kNumSplits * unit);
    const int64_t width = cut.back();
    for (const kernels::DType type : kActivations) {
      for (const kernels::DType weight_type : kWeights) {
        const HostTensor x = HostTensor::Of(type, rows, width, random);
        const HostTensor w = HostTensor::Of(weight_type, columns, width, random);
        ExpectRanksGiveTheBitsOfOne(
            GetParam(), x, w, cut,
            [](kernels::Device& device, const HostTensor& out, const HostTensor& some_x,
               const HostTensor& some_w, const std::vector<int64_t>& split_begin) {
              device.ops().matmul.MatMulSplitK(out, some_x, some_w.weight(), split_begin);
            },
            std::string(NameOf(type)) + " " + NameOf(weight_type));
      }
    }
  }
}

}  // namespace
}  // namespace continuo::testing
