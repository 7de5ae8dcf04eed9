// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/kernels/cuda/cases/product_cases.h"
#include "tests/kernels/cuda/cases/quantised_cases.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"

// Several products of one x at once, on a Device whose memory the host does not read.
namespace continuo::testing {

// Checks dense products beside the reference; every second one has a bias.
inline void CheckJoinedProducts(kernels::Device& b, const std::vector<int64_t>& row_counts,
                                const std::vector<int64_t>& columns, int64_t k,
                                int64_t most_checked = kAll) {
  Random random(41);
  for (const kernels::DType type : kNumbers) {
    std::vector<HostTensor> host_weights, host_biases;
    std::vector<std::unique_ptr<DeviceTensor>> weights, biases;
    for (const int64_t n : columns) {
      host_weights.push_back(HostTensor::Of(type, n, k, random));
      host_biases.push_back(HostTensor::Of(kernels::DType::kF32, 1, n, random));
      weights.push_back(std::make_unique<DeviceTensor>(b, host_weights.back()));
      biases.push_back(std::make_unique<DeviceTensor>(b, host_biases.back()));
    }
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << columns.size()
                                        << " products x " << k);
      const HostTensor x = HostTensor::Of(type, rows, k, random);
      const DeviceTensor in(b, x);
      for (const kernels::DType out_type : {kernels::DType::kF32, type}) {
        std::vector<std::unique_ptr<DeviceTensor>> outs;
        std::vector<kernels::Product> products;
        for (size_t i = 0; i < columns.size(); ++i) {
          outs.push_back(
              std::make_unique<DeviceTensor>(b, HostTensor::Poisoned(out_type, rows, columns[i])));
          products.push_back({*outs[i], weights[i]->weight(),
                              i % 2 == 1 ? kernels::Tensor(*biases[i]) : kernels::Tensor()});
        }
        b.ops().matmul.MatMuls(in, products);
        for (size_t i = 0; i < columns.size(); ++i) {
          const Sample some(rows, columns[i], most_checked, random);
          const Matrix added =
              i % 2 == 1 ? Part(host_biases[i], {0}, some.columns).matrix() : Matrix();
          const Matrix expected = ReferenceMatMul(
              RowsOf(x, some.rows).matrix(), RowsOf(host_weights[i], some.columns).matrix(), added,
              static_cast<int64_t>(some.rows.size()), static_cast<int64_t>(some.columns.size()), k);
          ExpectNearIn(some, outs[i]->Get(), expected, RoundingOf(out_type),
                       {SumError(k) + 4 * 0x1p-24});
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Returns a power of two with which sums of k products of SmallIntegers are as small as gates are.
inline float GateFactor(int64_t k) {
  return std::ldexp(1.0f, -static_cast<int>(std::log2(8.6 * std::sqrt(static_cast<double>(k)))));
}

// Checks dense gates beside the reference. Products of integers times a power of two are exact, so
// both factors are known as they are rounded before the function takes them.
inline void CheckGatedMatMul(kernels::Device& b, const std::vector<int64_t>& row_counts,
                             int64_t columns, int64_t k, int64_t most_checked = kAll) {
  Random random(44);
  const float factor = GateFactor(k);
  for (const kernels::DType type : kActivations) {
    const HostTensor gate_w = SmallIntegers(type, columns, k, 7, random, factor);
    const HostTensor up_w = SmallIntegers(type, columns, k, 7, random, factor);
    const HostTensor bias = SmallIntegers(kernels::DType::kF32, 1, columns, 2, random);
    const DeviceTensor gate_weights(b, gate_w), up_weights(b, up_w), biases(b, bias);
    for (const int64_t rows : row_counts) {
      const HostTensor x = SmallIntegers(type, rows, k, 3, random);
      const DeviceTensor in(b, x);
      const Sample some(rows, columns, most_checked, random);
      const Matrix some_x = RowsOf(x, some.rows).matrix();
      for (const bool with_bias : {false, true}) {
        SCOPED_TRACE(::testing::Message() << NameOf(type) << ' ' << rows << " x " << columns
                                          << " x " << k << ", bias " << with_bias);
        const kernels::Tensor added = with_bias ? kernels::Tensor(biases) : kernels::Tensor();
        const auto factor_of = [&](const HostTensor& w) {
          Matrix sums = ReferenceMatMul(
              some_x, RowsOf(w, some.columns).matrix(),
              with_bias ? Part(bias, {0}, some.columns).matrix() : Matrix(),
              static_cast<int64_t>(some.rows.size()), static_cast<int64_t>(some.columns.size()), k);
          for (double& sum : sums) sum = RoundedTo(type, static_cast<float>(sum));
          return sums;
        };
        const Matrix gate_values = factor_of(gate_w), up_values = factor_of(up_w);
        for (const kernels::GateFunction function :
             {kernels::GateFunction::kSilu, kernels::GateFunction::kGelu}) {
          const DeviceTensor gate(b, HostTensor::Poisoned(type, rows, columns));
          const DeviceTensor up(b, HostTensor::Poisoned(type, rows, columns));
          b.ops().matmul.GatedMatMul(in, {gate, gate_weights.weight(), added},
                                     {up, up_weights.weight(), added}, function);
          const HostTensor got = gate.Get();
          ExpectWritten(got);
          ExpectGated(Part(got, some.rows, some.columns), function, gate_values, up_values);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// int8 or int4 products have the bits that each has by itself.
inline void CheckJoinedQuantised(kernels::Device& b, const std::vector<int64_t>& row_counts,
                                 const std::vector<int64_t>& columns, int64_t k,
                                 kernels::WeightType type) {
  Random random(42);
  std::vector<std::unique_ptr<DeviceWeight>> weights;
  for (const int64_t n : columns) {
    weights.push_back(std::make_unique<DeviceWeight>(
        b, type, HostTensor::Of(kernels::DType::kF32, n, k, random), std::vector<int64_t>{0, k}));
  }
  for (const int64_t rows : row_counts) {
    const DeviceTensor in(b, HostTensor::Of(kernels::DType::kBF16, rows, k, random));
    for (const kernels::DType out_type : {kernels::DType::kF32, kernels::DType::kBF16}) {
      std::vector<std::unique_ptr<DeviceTensor>> outs;
      std::vector<kernels::Product> products;
      for (size_t i = 0; i < columns.size(); ++i) {
        outs.push_back(
            std::make_unique<DeviceTensor>(b, HostTensor::Poisoned(out_type, rows, columns[i])));
        products.push_back({*outs[i], weights[i]->weight(), kernels::Tensor()});
      }
      b.ops().matmul.MatMuls(in, products);
      for (size_t i = 0; i < columns.size(); ++i) {
        const DeviceTensor alone(b, HostTensor::Poisoned(out_type, rows, columns[i]));
        b.ops().matmul.MatMul(alone, in, weights[i]->weight(), kernels::Tensor());
        const HostTensor got = outs[i]->Get();
        ExpectWritten(got);
        EXPECT_TRUE(got.SameBits(alone.Get())) << rows << " rows, product " << i;
      }
    }
  }
}

}  // namespace continuo::testing
