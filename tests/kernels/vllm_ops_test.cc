// SPDX-License-Identifier: Apache-2.0
// Compares ops with values computed by vLLM; the tolerances are those of the golden files'
// manifests.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/paged_case.h"
#include "tests/testing/shared_data.h"

namespace continuo::testing {
namespace {

using VllmOpsTest = IsaTest;
INSTANTIATE_FOR_ISAS(VllmOpsTest);

// Reads an .npy file (version 1) as one of our types; 64-bit integers become 32-bit ones.
HostTensor ReadNpy(const std::string& path, int64_t rows, int64_t cols) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  CONTINUO_CHECK(bytes.size() > 10);
  const size_t at = 10 + static_cast<unsigned char>(bytes[8]) +
                    256 * static_cast<size_t>(static_cast<unsigned char>(bytes[9]));
  const std::string header = bytes.substr(0, at);
  const size_t count = static_cast<size_t>(rows * cols);
  if (header.find("'<i8'") != std::string::npos) {
    CONTINUO_CHECK(bytes.size() == at + 8 * count);
    std::vector<int32_t> values;
    for (size_t i = 0; i < count; ++i) {
      int64_t value;
      std::memcpy(&value, bytes.data() + at + 8 * i, 8);
      values.push_back(static_cast<int32_t>(value));
    }
    return HostTensor::OfInts(values, cols);
  }
  const bool bf16 = header.find("'<u2'") != std::string::npos;
  CONTINUO_CHECK(bf16 || header.find("'<f4'") != std::string::npos);
  HostTensor t(bf16 ? kernels::DType::kBF16 : kernels::DType::kF32, rows, cols);
  CONTINUO_CHECK(bytes.size() == at + t.bytes().size());
  std::memcpy(t.tensor().data, bytes.data() + at, t.bytes().size());
  return t;
}

class Golden {
 public:
  explicit Golden(const std::string& name) : path_("data/goldens/vllm_ops/" + name) {}
  HostTensor Read(const std::string& tensor, int64_t rows, int64_t cols) const {
    return ReadNpy(SharedPath(path_ + "/" + tensor + ".npy"), rows, cols);
  }

 private:
  const std::string path_;
};

constexpr char kData[] = "data/goldens/vllm_ops";

TEST_P(VllmOpsTest, RmsNorm) {
  CONTINUO_NEED_SHARED(kData);
  for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
    const Golden golden(std::string("rmsnorm_") + NameOf(type) + "_8x128");
    HostTensor out = HostTensor::Poisoned(type, 8, 128);
    ops().rows.RmsNorm(out, golden.Read("x", 8, 128), golden.Read("weight", 1, 128), 1e-6f);
    const double tolerance = type == kernels::DType::kF32 ? 1e-5 : 0.008;
    ExpectNear(out, golden.Read("out", 8, 128).matrix(), tolerance, {tolerance});
  }
}

TEST_P(VllmOpsTest, RmsNormAfterResidual) {
  CONTINUO_NEED_SHARED(kData);
  const Golden golden("rmsnorm_fused_residual_f32_8x128");
  HostTensor x = golden.Read("residual_in", 8, 128);
  ops().rows.AddSum(x, golden.Read("x", 8, 128), kernels::Tensor());
  ExpectNear(x, golden.Read("residual_out", 8, 128).matrix(), 1e-5, {1e-5});
  ops().rows.RmsNorm(x, x, golden.Read("weight", 1, 128), 1e-6f);
  ExpectNear(x, golden.Read("out", 8, 128).matrix(), 1e-5, {1e-5});
}

// Returns the frequencies of plain rotary embedding.
HostTensor Frequencies(double base, int rotary_dim) {
  HostTensor t(kernels::DType::kF32, 1, rotary_dim / 2);
  for (int i = 0; i < rotary_dim / 2; ++i) {
    t.Set(i, static_cast<float>(std::pow(base, -2.0 * i / rotary_dim)));
  }
  return t;
}

TEST_P(VllmOpsTest, Rope) {
  CONTINUO_NEED_SHARED(kData);
  // vLLM's angles are f32 products: far out they are off, within the second tolerance.
  for (const auto& [name, tolerance] :
       {std::pair<std::string, double>{"rope_f32_pos_short", 1e-4}, {"rope_f32_pos_131k", 0.02}}) {
    const Golden golden(name);
    HostTensor q = golden.Read("q_in", 8, 256), k = golden.Read("k_in", 8, 128);
    HostTensor angles(kernels::DType::kF32, 8, 32);
    ops().attention.RopeAngles(angles, golden.Read("positions", 8, 1), Frequencies(10000, 32),
                               1.0f);
    ops().attention.Rope(q, angles, 64);
    ops().attention.Rope(k, angles, 64);
    ExpectNear(q, golden.Read("q_out", 8, 256).matrix(), 0, {tolerance});
    ExpectNear(k, golden.Read("k_out", 8, 128).matrix(), 0, {tolerance});
  }
}

TEST_P(VllmOpsTest, SiluMul) {
  CONTINUO_NEED_SHARED(kData);
  const Golden golden("silu_and_mul_bf16_8x256");
  const Matrix x = golden.Read("x", 8, 256).matrix();
  HostTensor gate(kernels::DType::kBF16, 8, 128), up(kernels::DType::kBF16, 8, 128);
  for (int i = 0; i < 8 * 128; ++i) {
    gate.Set(i, static_cast<float>(x[i / 128 * 256 + i % 128]));
    up.Set(i, static_cast<float>(x[i / 128 * 256 + 128 + i % 128]));
  }
  HostTensor out = HostTensor::Poisoned(kernels::DType::kBF16, 8, 128);
  ops().rows.GateMul(kernels::GateFunction::kSilu, out, gate, up);
  ExpectNear(out, golden.Read("out", 8, 128).matrix(), 0.008, {0.008});
}

TEST_P(VllmOpsTest, MatMul) {
  CONTINUO_NEED_SHARED(kData);
  const Golden golden("matmul_bf16_16x64x32");
  const HostTensor b = golden.Read("b", 64, 32);
  HostTensor w(kernels::DType::kBF16, 32, 64);
  for (int i = 0; i < 64 * 32; ++i) w.Set(i % 32 * 64 + i / 32, static_cast<float>(b.matrix()[i]));
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 16, 32);
  ops().matmul.MatMul(out, golden.Read("a", 16, 64), w.weight(), kernels::Tensor());
  ExpectNear(out, golden.Read("out", 16, 32).matrix(), 1e-5, {1e-5});
}

// A whole block of experts: router, top 2 of 8, gated products, their weighted sum.
TEST_P(VllmOpsTest, ExpertsBlock) {
  CONTINUO_NEED_SHARED(kData);
  const Golden golden("moe_block_f32_small");
  const int rows = 6, hidden = 64, inner = 32, num_experts = 8, k = 2;
  const HostTensor x = golden.Read("x", rows, hidden);
  const HostTensor w13 = golden.Read("w13", num_experts * 2 * inner, hidden);
  const HostTensor w2 = golden.Read("w2", num_experts * hidden, inner);
  std::vector<kernels::Weight> gate, up, down;
  for (int e = 0; e < num_experts; ++e) {
    gate.push_back({w13.Rows(2 * e * inner, (2 * e + 1) * inner)});
    up.push_back({w13.Rows((2 * e + 1) * inner, (2 * e + 2) * inner)});
    down.push_back({w2.Rows(e * hidden, (e + 1) * hidden)});
  }
  HostTensor logits(kernels::DType::kF32, rows, num_experts),
      weights(kernels::DType::kF32, rows, k);
  HostTensor entries(kernels::DType::kI32, rows, k), entry_rows(kernels::DType::kI32, rows * k, 1),
      begin(kernels::DType::kI32, num_experts + 1, 1);
  ops().matmul.MatMul(logits, x, golden.Read("gate_w", num_experts, hidden).weight(),
                      kernels::Tensor());
  ExpectNear(logits, golden.Read("router_logits", rows, num_experts).matrix(), 1e-5, {1e-5});
  const kernels::ExpertRoutes routes = {weights, entries, entry_rows, begin};
  ops().experts.RouteExperts(routes, logits, {.normalise = true});
  HostTensor g(kernels::DType::kF32, rows * k, inner), u(kernels::DType::kF32, rows * k, inner);
  ops().experts.ExpertMatMul(g, x, gate, routes, /*by_entry=*/false);
  ops().experts.ExpertMatMul(u, x, up, routes, /*by_entry=*/false);
  ops().rows.GateMul(kernels::GateFunction::kSilu, g, g, u);
  HostTensor parts(kernels::DType::kF32, rows * k, hidden), out(kernels::DType::kF32, rows, hidden);
  ops().experts.ExpertMatMulSplitK(parts, g, down, routes,
                                   std::vector<int64_t>{0, 4, 8, 12, 16, 20, 24, 28, 32});
  ops().experts.CombineExperts(out, parts, routes);
  ExpectNear(out, golden.Read("routed_out", rows, hidden).matrix(), 1e-5, {1e-5});
}

TEST_P(VllmOpsTest, Embed) {
  CONTINUO_NEED_SHARED(kData);
  const Golden golden("embedding_bf16_32ids");
  HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, 32, 32);
  ops().rows.Embed(out, golden.Read("table", 64, 32).weight(), golden.Read("ids", 32, 1), 0, 1.0f);
  ExpectNear(out, golden.Read("out", 32, 32).matrix(), 0, {0});
}

// Gains that are stored less one, as this model's are.
HostTensor PlusOne(const HostTensor& t) {
  HostTensor result = t.Clone();
  for (int64_t i = 0; i < t.tensor().size(); ++i) {
    result.Set(i, static_cast<float>(1 + t.matrix()[i]));
  }
  return result;
}

// Norm per head, rotation of a part of each head, causal attention with grouped heads.
TEST_P(VllmOpsTest, DenseAttention) {
  CONTINUO_NEED_SHARED(kData);
  struct Case {
    const char* name;
    int rows, head_dim, rotary_dim;
    double base;
    float scale;
  };
  for (const Case& c : {Case{"dense_attention_f32_small", 6, 8, 4, 1e4, 0.35355338f},
                        Case{"dense_attention_f32_realdims", 9, 256, 64, 1e7, 0.0625f}}) {
    const Golden golden(c.name);
    HostTensor q = golden.Read("q", c.rows, 4 * c.head_dim);
    HostTensor k = golden.Read("k", c.rows, 2 * c.head_dim);
    const HostTensor v = golden.Read("v", c.rows, 2 * c.head_dim);
    ops().rows.RmsNorm(q, q, PlusOne(golden.Read("q_norm_weight", 1, c.head_dim)), 1e-6f);
    ops().rows.RmsNorm(k, k, PlusOne(golden.Read("k_norm_weight", 1, c.head_dim)), 1e-6f);
    HostTensor angles(kernels::DType::kF32, c.rows, c.rotary_dim);
    ops().attention.RopeAngles(angles, golden.Read("positions", c.rows, 1),
                               Frequencies(c.base, c.rotary_dim), 1.0f);
    ops().attention.Rope(q, angles, c.head_dim);
    ops().attention.Rope(k, angles, c.head_dim);
    const HostTensor cache(kernels::DType::kF32, {4, 2, 2 * 3 * c.head_dim});
    const HostTensor table = HostTensor::OfInts({2, 0, 3}, 3),
                     length = HostTensor::OfInts({c.rows});
    const HostTensor begin = HostTensor::OfInts({0, c.rows});
    kernels::PagedKv kv{cache, /*block_size=*/3, table, length, begin};
    std::vector<int32_t> slots;
    for (int p = 0; p < c.rows; ++p) slots.push_back(table.ints()[p / 3] * 3 + p % 3);
    ops().attention.WriteKv(kv, k, v, HostTensor::OfInts(slots));
    kernels::AttentionParams params = Heads(4, 2, c.head_dim);
    params.scale = c.scale;
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, c.rows, 4 * c.head_dim);
    ops().attention.PagedAttention(out, q, kv, params);
    SCOPED_TRACE(c.name);
    ExpectNear(out, golden.Read("attn", c.rows, 4 * c.head_dim).matrix(), 2e-4, {2e-4});
  }
}

}  // namespace
}  // namespace continuo::testing
