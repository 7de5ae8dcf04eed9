// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/cuda/backend_cases.h"
#include "tests/kernels/cuda/quantised_cases.h"
#include "tests/kernels/host_tensor.h"

// Several products of one x at once, of a Backend whose memory the host does not read.
namespace continuo::testing {

// Dense ones beside the reference; every second has a bias.
inline void CheckJoinedProducts(Backend& b, int64_t rows, const std::vector<int64_t>& columns,
                                int64_t k) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << columns.size() << " products x " << k);
  Random random(41);
  for (const DType type : kNumbers) {
    const HostTensor x = HostTensor::Of(type, rows, k, random);
    const DeviceTensor in(b, x);
    for (const DType out_type : {DType::kF32, type}) {
      std::vector<std::unique_ptr<DeviceTensor>> weights, biases, outs;
      std::vector<Matrix> expected;
      std::vector<Product> products;
      for (size_t i = 0; i < columns.size(); ++i) {
        const HostTensor w = HostTensor::Of(type, columns[i], k, random);
        const HostTensor bias = HostTensor::Of(DType::kF32, 1, columns[i], random);
        weights.push_back(std::make_unique<DeviceTensor>(b, w));
        biases.push_back(std::make_unique<DeviceTensor>(b, bias));
        outs.push_back(
            std::make_unique<DeviceTensor>(b, HostTensor::Poisoned(out_type, rows, columns[i])));
        expected.push_back(ReferenceMatMul(
            x.matrix(), w.matrix(), i % 2 == 1 ? bias.matrix() : Matrix(), rows, columns[i], k));
        products.push_back(
            {*outs[i], weights[i]->weight(), i % 2 == 1 ? Tensor(*biases[i]) : Tensor()});
      }
      b.MatMuls(in, products);
      const double sum_error = static_cast<double>(k + 3) * 4 * static_cast<double>(k) * 0x1p-24;
      for (size_t i = 0; i < columns.size(); ++i) {
        ExpectNear(outs[i]->Get(), expected[i], RoundingOf(out_type), {sum_error});
      }
    }
  }
}

// int8 or int4 ones have the bits that each has alone.
inline void CheckJoinedQuantised(Backend& b, int64_t rows, const std::vector<int64_t>& columns,
                                 int64_t k, WeightType type) {
  Random random(42);
  const DeviceTensor in(b, HostTensor::Of(DType::kBF16, rows, k, random));
  std::vector<std::unique_ptr<DeviceWeight>> weights;
  for (const int64_t n : columns) {
    weights.push_back(std::make_unique<DeviceWeight>(
        b, type, HostTensor::Of(DType::kF32, n, k, random), std::vector<int64_t>{0, k}));
  }
  for (const DType out_type : {DType::kF32, DType::kBF16}) {
    std::vector<std::unique_ptr<DeviceTensor>> outs;
    std::vector<Product> products;
    for (size_t i = 0; i < columns.size(); ++i) {
      outs.push_back(
          std::make_unique<DeviceTensor>(b, HostTensor::Poisoned(out_type, rows, columns[i])));
      products.push_back({*outs[i], weights[i]->weight(), Tensor()});
    }
    b.MatMuls(in, products);
    for (size_t i = 0; i < columns.size(); ++i) {
      const DeviceTensor alone(b, HostTensor::Poisoned(out_type, rows, columns[i]));
      b.MatMul(alone, in, weights[i]->weight(), Tensor());
      EXPECT_TRUE(outs[i]->Get().SameBits(alone.Get())) << i;
    }
  }
}

}  // namespace continuo::testing
