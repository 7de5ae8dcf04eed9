// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/bfloat16.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/row_ops.h"
#include "kernels/cuda/stream.h"
#include "tests/testing/reference_ops.h"

// The row ops against their definition in float64, for whatever is linked: the shim or a device.
namespace continuo::cuda {

using testing::Matrix;

inline float ToFloat(float value) { return value; }
inline float ToFloat(uint16_t bits) { return FromBF16(bits); }
inline void FromFloat(float value, float* to) { *to = value; }
inline void FromFloat(float value, uint16_t* to) { *to = ToBF16(value); }
// Of rounding once to the type, relative: significands have 24 and 8 bits.
inline double HalfUlp(float) { return 0x1p-24; }
inline double HalfUlp(uint16_t) { return 0x1p-8; }

template <typename T>
std::vector<T> RandomRow(int64_t n, uint32_t seed, float range) {
  std::mt19937 random(seed);
  std::vector<T> row(n);
  for (T& value : row) {
    FromFloat(range * static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f, &value);
  }
  return row;
}

template <typename T>
Matrix ToDoubles(const std::vector<T>& row) {
  Matrix m;
  for (const T value : row) m.push_back(ToFloat(value));
  return m;
}

// A vector in the memory of device 0.
template <typename T>
class OnDevice {
 public:
  OnDevice(const std::vector<T>& values, Stream& stream)
      : stream_(stream), size_(values.size()), buffer_(*DeviceBuffer::Make(0, size_ * sizeof(T))) {
    EXPECT_EQ(cudaMemcpyAsync(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice,
                              stream_.get()),
              cudaSuccess);
    EXPECT_TRUE(stream_.Synchronize().ok());
  }
  T* data() { return static_cast<T*>(buffer_.data()); }
  std::vector<T> Get() {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost,
                              stream_.get()),
              cudaSuccess);
    EXPECT_TRUE(stream_.Synchronize().ok());
    return values;
  }

 private:
  Stream& stream_;
  const size_t size_;
  DeviceBuffer buffer_;
};

template <typename T>
void ExpectNear(const std::vector<T>& got, const Matrix& expected, double relative) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(ToFloat(got[i]), expected[i], relative * std::abs(expected[i]) + 1e-37) << i;
  }
}

template <typename T>
void CheckRmsNorm(int64_t rows, int64_t cols) {
  Stream stream = *Stream::Make(0);
  const auto x = RandomRow<T>(rows * cols, 1, 4);
  const auto gain = RandomRow<float>(cols, 2, 2);
  OnDevice<T> in(x, stream), out(std::vector<T>(x.size(), T(-1)), stream);
  OnDevice<float> gains(gain, stream);
  ASSERT_EQ(RmsNorm(out.data(), in.data(), gains.data(), rows, cols, 1e-6f, stream.get()),
            cudaSuccess);
  // A thread's multiply-adds and 8 levels of the tree, halved by the root, then a quotient, a sum,
  // a root, a reciprocal and two products.
  const double steps = static_cast<double>((cols + kRowThreads - 1) / kRowThreads + 8) / 2 + 6;
  const Matrix expected = testing::ReferenceRmsNorm(ToDoubles(x), ToDoubles(gain), 1e-6f);
  const std::vector<T> got = out.Get();
  ExpectNear(got, expected, HalfUlp(T{}) * 1.01 + steps * 0x1p-24);
  // In place, and rows alone: the same bits.
  ASSERT_EQ(RmsNorm(in.data(), in.data(), gains.data(), rows, cols, 1e-6f, stream.get()),
            cudaSuccess);
  EXPECT_EQ(in.Get(), got);
  if (rows == 0) return;
  const std::vector<T> last(x.end() - cols, x.end());
  OnDevice<T> alone(last, stream);
  ASSERT_EQ(RmsNorm(alone.data(), alone.data(), gains.data(), 1, cols, 1e-6f, stream.get()),
            cudaSuccess);
  EXPECT_EQ(alone.Get(), std::vector<T>(got.end() - cols, got.end()));
}

template <typename T>
void CheckSiluMul(int64_t n) {
  Stream stream = *Stream::Make(0);
  const auto gate = RandomRow<T>(n, 3, 30), up = RandomRow<T>(n, 4, 3);
  OnDevice<T> gates(gate, stream), ups(up, stream), out(std::vector<T>(n, T(-1)), stream);
  ASSERT_EQ(SiluMul(out.data(), gates.data(), ups.data(), n, stream.get()), cudaSuccess);
  // expf within 2 ulp, a sum, a quotient, a product.
  ExpectNear(out.Get(), testing::ReferenceSiluMul(ToDoubles(gate), ToDoubles(up)),
             HalfUlp(T{}) * 1.01 + 7 * 0x1p-24);
  ASSERT_EQ(SiluMul(ups.data(), gates.data(), ups.data(), n, stream.get()), cudaSuccess);
  EXPECT_EQ(ups.Get(), out.Get());
}

template <typename T>
void CheckRowOps() {
  // Odd sizes; the rows of Qwen3-0.6B, its heads, Llama-3.1-8B and a 70B.
  for (const int64_t cols : {1, 7, 128, 255, 257, 1024, 4096, 8192}) {
    for (const int64_t rows : {0, 1, 5}) CheckRmsNorm<T>(rows, cols);
  }
  for (const int64_t n : {0, 1, 255, 257, 3072 * 5}) CheckSiluMul<T>(n);
}

}  // namespace continuo::cuda
