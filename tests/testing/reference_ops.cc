// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/math/bfloat16.h"
#include "services/base/check.h"

namespace continuo::testing {

Matrix ToMatrix(const kernels::Tensor& t) {
  Matrix result(t.size());
  for (int64_t i = 0; i < t.size(); ++i) {
    switch (t.dtype) {
      case kernels::DType::kF32:
        result[i] = static_cast<const float*>(t.data)[i];
        break;
      case kernels::DType::kBF16:
        result[i] = kernels::FromBF16(static_cast<const uint16_t*>(t.data)[i]);
        break;
      case kernels::DType::kF16:
        result[i] = kernels::FromF16(static_cast<const uint16_t*>(t.data)[i]);
        break;
      default:
        CONTINUO_CHECK(false);
    }
  }
  return result;
}

Matrix ReferenceEmbed(const Matrix& table, int64_t table_rows, int64_t cols,
                      std::span<const int32_t> ids, int first_id) {
  Matrix out;
  for (const int32_t id : ids) {
    const int64_t row = static_cast<int64_t>(id) - first_id;
    const bool mine = row >= 0 && row < table_rows;
    for (int64_t c = 0; c < cols; ++c) out.push_back(mine ? table[row * cols + c] : -0.0);
  }
  return out;
}

Matrix ReferenceRmsNorm(const Matrix& x, const Matrix& gain, double eps) {
  Matrix out(x.size());
  const size_t n = gain.size();
  for (size_t row = 0; row < x.size(); row += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[row + i] * x[row + i];
    const double factor = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i) out[row + i] = x[row + i] * factor * gain[i];
  }
  return out;
}

Matrix ReferenceLayerNorm(const Matrix& x, const Matrix& gain, const Matrix& bias, double eps) {
  Matrix out(x.size());
  const size_t n = gain.size();
  for (size_t row = 0; row < x.size(); row += n) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; ++i) mean += x[row + i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) {
      variance += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) {
      out[row + i] = (x[row + i] - mean) / std::sqrt(variance + eps) * gain[i] +
                     (bias.empty() ? 0.0 : bias[i]);
    }
  }
  return out;
}

Matrix ReferenceMatMul(const Matrix& x, const Matrix& w, const Matrix& bias, int64_t rows,
                       int64_t columns, int64_t k) {
  Matrix out(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += x[r * k + i] * w[c * k + i];
      out[r * columns + c] = sum + (bias.empty() ? 0.0 : bias[c]);
    }
  }
  return out;
}

Matrix ReferenceAddSum(const Matrix& x, const Matrix& sum, const Matrix& bias) {
  Matrix out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] + sum[i] + (bias.empty() ? 0.0 : bias[i % bias.size()]);
  }
  return out;
}

Matrix ReferenceRopeAngles(std::span<const int32_t> positions, const Matrix& frequencies,
                           double scale) {
  Matrix out;
  for (const int32_t position : positions) {
    for (const double f : frequencies) out.push_back(std::cos(position * f) * scale);
    for (const double f : frequencies) out.push_back(std::sin(position * f) * scale);
  }
  return out;
}

Matrix ReferenceGrowAngles(const Matrix& angles, std::span<const int32_t> positions,
                           const kernels::QueryGrowth& growth) {
  Matrix out = angles;
  const size_t cols = angles.size() / positions.size();
  for (size_t i = 0; i < out.size(); ++i) {
    const double at = static_cast<double>(positions[i / cols] + growth.offset);
    out[i] *= 1 + growth.growth * std::log(1 + std::floor(at / static_cast<double>(growth.period)));
  }
  return out;
}

Matrix ReferenceRope(const Matrix& x, const Matrix& angles, int64_t rows, int64_t cols,
                     int64_t head_dim) {
  Matrix out = x;
  const int64_t n = static_cast<int64_t>(angles.size()) / rows / 2;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t head = 0; head < cols; head += head_dim) {
      for (int64_t i = 0; i < n; ++i) {
        const double low = x[r * cols + head + i], high = x[r * cols + head + n + i];
        const double cos = angles[r * 2 * n + i], sin = angles[r * 2 * n + n + i];
        out[r * cols + head + i] = low * cos - high * sin;
        out[r * cols + head + n + i] = high * cos + low * sin;
      }
    }
  }
  return out;
}

Matrix ReferenceSiluMul(const Matrix& gate, const Matrix& up) {
  Matrix out(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) out[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  return out;
}

Matrix ReferenceGeluMul(const Matrix& gate, const Matrix& up) {
  Matrix out(gate.size());
  const double factor = std::sqrt(2 / std::acos(-1.0));
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    out[i] = 0.5 * g * (1 + std::tanh(factor * (g + 0.044715 * g * g * g))) * up[i];
  }
  return out;
}

Matrix ReferenceClampedSwiglu(const Matrix& gate, const Matrix& up) {
  Matrix out(gate.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const double g = std::min(gate[i], 7.0), u = std::clamp(up[i], -7.0, 7.0);
    out[i] = g / (1 + std::exp(-1.702 * g)) * (u + 1);
  }
  return out;
}

Matrix ReferenceSoftCap(const Matrix& x, double cap) {
  Matrix out = x;
  for (double& v : out) v = cap * std::tanh(v / cap);
  return out;
}

Matrix ReferenceAttention(const Matrix& q, const Matrix& keys, const Matrix& values, int64_t rows,
                          int64_t kv_len, const kernels::AttentionParams& params) {
  const int64_t dim = params.head_dim;
  Matrix out(q.size(), 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = kv_len - rows + r;
    int64_t first = params.window == 0 ? 0 : std::max<int64_t>(0, position - params.window + 1);
    if (params.chunk > 0) first = std::max(first, position / params.chunk * params.chunk);
    int64_t last = position;
    if (params.bidirectional) {
      last = params.window == 0 ? kv_len - 1 : std::min(kv_len, position + params.window) - 1;
    }
    for (int64_t h = 0; h < params.num_heads; ++h) {
      const int64_t kv_head =
          (params.first_head + h) / params.heads_per_kv_head - params.first_kv_head;
      const double* query = &q[(r * params.num_heads + h) * dim];
      std::vector<double> weights;
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t p = first; p <= last; ++p) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) {
          dot += query[d] * keys[(p * params.num_kv_heads + kv_head) * dim + d];
        }
        double score = dot * params.scale;
        if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
        weights.push_back(score);
        max = std::max(max, weights.back());
      }
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - max);
      if (params.sinks.size() > 0) {
        sum += std::exp(static_cast<const float*>(params.sinks.data)[h] - max);
      }
      for (int64_t p = first; p <= last; ++p) {
        for (int64_t d = 0; d < dim; ++d) {
          out[(r * params.num_heads + h) * dim + d] +=
              weights[p - first] / sum * values[(p * params.num_kv_heads + kv_head) * dim + d];
        }
      }
    }
  }
  return out;
}

ReferenceRoute ReferenceRouting(std::span<const double> logits, int k,
                                const kernels::Routing& routing) {
  const size_t n = logits.size();
  const bool by_sigmoid = routing.scores == kernels::Routing::Scores::kSigmoid;
  Matrix scores(n);
  double all = 0;
  for (const double logit : logits) all += std::exp(logit);
  for (size_t e = 0; e < n; ++e) {
    scores[e] = by_sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]) / all;
  }
  Matrix choice = scores;
  if (routing.chooses_by_logits) choice.assign(logits.begin(), logits.end());
  for (size_t e = 0; e < n && routing.correction.size() > 0; ++e) {
    choice[e] += static_cast<const float*>(routing.correction.data)[e];
  }
  // Indices of the largest values, of equal ones the lower first.
  const auto largest = [](const Matrix& values) {
    std::vector<int> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    });
    return order;
  };
  const size_t size = n / static_cast<size_t>(routing.num_groups);
  Matrix groups;
  for (size_t begin = 0; begin < n; begin += size) {
    Matrix of_group(choice.begin() + static_cast<ptrdiff_t>(begin),
                    choice.begin() + static_cast<ptrdiff_t>(begin + size));
    std::sort(of_group.rbegin(), of_group.rend());
    groups.push_back(of_group[0] + (routing.by_top_two && size > 1 ? of_group[1] : 0));
  }
  const std::vector<int> order = largest(groups);
  for (size_t i = static_cast<size_t>(routing.top_groups); i < order.size(); ++i) {
    std::fill_n(choice.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(order[i]) * size), size,
                -std::numeric_limits<double>::infinity());
  }
  ReferenceRoute route;
  route.experts = largest(choice);
  route.experts.resize(static_cast<size_t>(k));
  std::sort(route.experts.begin(), route.experts.end());
  double sum = 0;
  for (const int e : route.experts) sum += scores[static_cast<size_t>(e)];
  for (const int e : route.experts) {
    const double weight = scores[static_cast<size_t>(e)];
    const double own = routing.expert_factors.size() == 0
                           ? 1
                           : static_cast<const float*>(routing.expert_factors.data)[e];
    route.weights.push_back((routing.normalise ? weight / sum : weight) * routing.factor * own);
  }
  return route;
}

}  // namespace continuo::testing
