// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/stored_types.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/math/bfloat16.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/blocks.h"
#include "services/worker/model/checkpoint/weight_source.h"

namespace continuo::model {
namespace {

float LoadF32(const uint8_t* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint16_t LoadBits(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

float LoadF16(const uint8_t* at) { return kernels::FromF16(LoadBits(at)); }
float LoadBF16(const uint8_t* at) { return kernels::FromBF16(LoadBits(at)); }

// Converts n elements, of which `load(i)` is the one at i.
template <typename Load>
bool ConvertAll(void* out, kernels::DType dtype, int64_t n, const Load& load) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    const float value = load(i);
    if (dtype == kernels::DType::kF32) {
      static_cast<float*>(out)[i] = value;
    } else if (dtype == kernels::DType::kF16) {
      const uint16_t half = static_cast<uint16_t*>(out)[i] = kernels::ToF16(value);
      fits &= (half & 0x7fff) != 0x7c00 || std::isinf(value);
    } else {
      static_cast<uint16_t*>(out)[i] = kernels::ToBF16(value);
    }
  }
  return fits;
}

// StoredType::convert of elements of `kSize` bytes that `kLoad` reads.
template <float (*kLoad)(const uint8_t*), int64_t kSize>
bool Convert(void* out, kernels::DType dtype, const uint8_t* row, int64_t first, int64_t n) {
  return ConvertAll(out, dtype, n, [&](int64_t i) { return kLoad(row + kSize * (first + i)); });
}

// StoredType::convert of blocks that `kDecode` reads.
template <void (*kDecode)(const uint8_t*, float*), int64_t kBlock, int64_t kBytes>
bool ConvertBlocks(void* out, kernels::DType dtype, const uint8_t* row, int64_t first, int64_t n) {
  bool fits = true;
  uint8_t* to = static_cast<uint8_t*>(out);
  while (n > 0) {
    float values[kBlock];
    kDecode(row + first / kBlock * kBytes, values);
    const int64_t begin = first % kBlock, count = std::min(n, kBlock - begin);
    fits &= ConvertAll(to, dtype, count, [&](int64_t i) { return values[begin + i]; });
    to += count * static_cast<int64_t>(kernels::SizeOf(dtype));
    first += count;
    n -= count;
  }
  return fits;
}

template <void (*kDecode)(const uint8_t*, float*), int64_t kBlock, int64_t kBytes>
constexpr StoredType Blocks(std::string_view name) {
  return {.name = name,
          .block = kBlock,
          .bytes = kBytes,
          .dtype = std::nullopt,
          .convert = ConvertBlocks<kDecode, kBlock, kBytes>};
}

constexpr StoredType kStoredTypes[] = {
    {"F32", 1, 4, kernels::DType::kF32, Convert<LoadF32, 4>},
    {"F16", 1, 2, kernels::DType::kF16, Convert<LoadF16, 2>},
    {"BF16", 1, 2, kernels::DType::kBF16, Convert<LoadBF16, 2>},
    Blocks<gguf::DecodeQ40, 32, 18>("Q4_0"),
    Blocks<gguf::DecodeQ41, 32, 20>("Q4_1"),
    Blocks<gguf::DecodeQ50, 32, 22>("Q5_0"),
    Blocks<gguf::DecodeQ51, 32, 24>("Q5_1"),
    Blocks<gguf::DecodeQ80, 32, 34>("Q8_0"),
    Blocks<gguf::DecodeQ2K, 256, 84>("Q2_K"),
    Blocks<gguf::DecodeQ3K, 256, 110>("Q3_K"),
    Blocks<gguf::DecodeQ4K, 256, 144>("Q4_K"),
    Blocks<gguf::DecodeQ5K, 256, 176>("Q5_K"),
    Blocks<gguf::DecodeQ6K, 256, 210>("Q6_K"),
    Blocks<gguf::DecodeIq4Nl, 32, 18>("IQ4_NL"),
    Blocks<gguf::DecodeIq4Xs, 256, 136>("IQ4_XS"),
    Blocks<gguf::DecodeMxfp4, 32, 17>("MXFP4"),
};

}  // namespace

const StoredType* FindStoredType(std::string_view name) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::span<const StoredType> StoredTypes() { return kStoredTypes; }

bool ConvertQuantised(void* out, kernels::DType dtype, const quantised::Matrix& matrix, int64_t row,
                      int64_t num_rows, int64_t first, int64_t n) {
  // Formats whose words hold several rows are read from the same cache lines by the rows of a tile.
  constexpr int64_t kRows = 16, kColumns = 128;
  bool fits = true;
  float tile[kRows * kColumns];
  uint8_t* const bytes = static_cast<uint8_t*>(out);
  const auto size = static_cast<int64_t>(kernels::SizeOf(dtype));
  for (int64_t r = 0; r < num_rows; r += kRows) {
    const int64_t rows = std::min(kRows, num_rows - r);
    for (int64_t c = 0; c < n; c += kColumns) {
      const int64_t columns = std::min(kColumns, n - c);
      matrix.Decode(row + r, rows, first + c, columns, tile);
      for (int64_t i = 0; i < rows; ++i) {
        fits &= ConvertAll(bytes + ((r + i) * n + c) * size, dtype, columns,
                           [&](int64_t j) { return tile[i * columns + j]; });
      }
    }
  }
  return fits;
}

std::string StoredTypeNames() {
  std::string names;
  const size_t count = std::size(kStoredTypes);
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&names,
                    i == 0           ? ""
                    : i + 1 == count ? " and "
                                     : ", ",
                    std::string(kStoredTypes[i].name));
  }
  return names;
}

namespace {

using kernels::GroupFormat;
using kernels::GroupScales;

constexpr int64_t kSmallestGroup = 8;  // elements
// Activations are rounded in the groups of the weights, so longer groups are divided.
constexpr int64_t kLargestGroup = 128;
constexpr int64_t kMostShared = 256;  // elements of a unit

absl::Status Refused(const WeightSpec& spec, const StoredTensor& stored, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("weights is stored, and tensor ", spec.name,
                                                 " is ", stored.dtype, ", ", std::string(why),
                                                 "; auto computes with its values"));
}

// The largest number that divides `n` and every column at which runs of neighbouring columns begin
// or end: K splits of the whole matrix, and heads that are stored in another order.
int64_t Uncut(int64_t n, const WeightSpec& spec, const StoredTensor& stored,
              const ModelConfig& config) {
  const Shard whole = MakeShard(config, 0, 1);
  const WeightPart part = PartOf(spec, whole, config);
  for (const int64_t begin : SplitsOf(spec, whole, part)) n = std::gcd(n, begin);
  const gguf::TiledHeads& tiled = stored.tiled;
  if (tiled.groups != 0 && tiled.are_columns) n = std::gcd(n, std::gcd(tiled.size, tiled.begin));
  return std::gcd(n, stored.shape.back());
}

std::string Shown(const StoredGroups& kept) {
  const bool is_int4 = kept.format == kernels::WeightFormat::kInt4Panels;
  return absl::StrCat(is_int4 ? "int4" : "int8", " in groups of ", kept.groups.size,
                      kept.groups.has_minimum ? " with minima" : "");
}

// What a stored matrix says about its integers.
struct StoredForm {
  int bits;
  int64_t group;  // columns
  GroupScales scales;
  bool has_minimum;
  kernels::GroupCodes codes;
};

std::optional<StoredForm> FormOf(const StoredTensor& stored) {
  if (stored.quantised != nullptr) {
    const std::optional<quantised::IntegerForm> form = stored.quantised->integer_form();
    if (!form.has_value()) return std::nullopt;
    const bool is_half = form->has_f16_scales && !form->has_minimum;
    return StoredForm{form->bits, form->columns, is_half ? GroupScales::kF16 : GroupScales::kF32,
                      form->has_minimum, form->codes};
  }
  const gguf::IntegerType* const type = gguf::FindIntegerType(stored.dtype);
  if (type == nullptr) return std::nullopt;
  return StoredForm{type->bits, type->group, type->scales, type->has_minimum, type->codes};
}

void ReadQuantised(const quantised::Matrix& matrix, int64_t row, Range columns,
                   const GroupFormat& groups, int64_t to, GroupRows& out) {
  for (int64_t c = columns.begin; c < columns.end; c += groups.size) {
    const int64_t element = to * out.columns + c - columns.begin;
    const quantised::GroupScale numbers =
        matrix.ReadIntegers(row, c, groups.size, out.integers.data() + element);
    const auto group = static_cast<size_t>(element / groups.size);
    out.scales[group] = numbers.scale;
    if (groups.has_minimum) out.minima[group] = numbers.minimum;
  }
}

// The matrices of the model, and how they are kept.
template <typename Body>
absl::Status ForMatrices(const ModelConfig& config, const Checkpoint& checkpoint,
                         const Body& body) {
  ModelWeights places;
  for (const WeightSpec& spec : ListWeights(config, places)) {
    if (spec.matrix == nullptr) continue;
    const StoredTensor& stored = *checkpoint.Find(spec.name);
    ASSIGN_OR_RETURN(const std::optional<StoredGroups> kept,
                     FindStoredGroups(spec, stored, config));
    RETURN_IF_ERROR(body(spec, stored, kept));
  }
  return absl::OkStatus();
}

// How the matrix is kept: "int4 in groups of 32 with minima", "bf16".
std::string Shown(const StoredTensor& stored, const std::optional<StoredGroups>& kept) {
  return kept.has_value() ? Shown(*kept) : stored.dtype == "BF16" ? "bf16" : "fp32";
}

// The experts of a layer are multiplied in one product, for which they have to be kept alike.
class ExpertsAreAlike {
 public:
  absl::Status Check(const WeightSpec& spec, const StoredTensor& stored,
                     const std::optional<StoredGroups>& kept) {
    if (spec.cut != Cut::kExpertRows && spec.cut != Cut::kExpertColumns) return absl::OkStatus();
    // "….experts.3.up_proj.weight": what follows and precedes the number is the matrix's.
    constexpr std::string_view kExperts = "experts.";
    const size_t number = spec.name.rfind(kExperts) + kExperts.size();
    std::string matrix =
        spec.name.substr(0, number) + spec.name.substr(spec.name.find('.', number));
    const auto [it, is_first] =
        kept_.try_emplace(std::move(matrix), First{spec.name, Shown(stored, kept), kept});
    const First& first = it->second;
    if (is_first || (first.shown == Shown(stored, kept) && first.kept == kept)) {
      return absl::OkStatus();
    }
    return Refused(spec, stored,
                   absl::StrCat("which is kept as ", Shown(stored, kept), " and not as ",
                                first.name, " is, as ", first.shown));
  }

 private:
  struct First {
    std::string name, shown;
    std::optional<StoredGroups> kept;
  };
  std::map<std::string, First> kept_;
};

}  // namespace

absl::StatusOr<std::optional<StoredGroups>> FindStoredGroups(const WeightSpec& spec,
                                                             const StoredTensor& stored,
                                                             const ModelConfig& config) {
  if (spec.matrix == nullptr || spec.is_router || stored.turned_head != 0) return std::nullopt;
  const std::optional<StoredForm> form = FormOf(stored);
  if (!form.has_value() && stored.quantised != nullptr) {
    return Refused(spec, stored, "whose elements are not kept as integers in groups");
  }
  if (!form.has_value()) return std::nullopt;
  StoredGroups kept;
  kept.format =
      form->bits == 4 ? kernels::WeightFormat::kInt4Panels : kernels::WeightFormat::kInt8Panels;
  GroupFormat& groups = kept.groups;
  groups.scales = form->scales;
  groups.has_minimum = form->has_minimum;
  groups.codes = form->codes;
  groups.size = static_cast<int32_t>(
      Uncut(form->group > kLargestGroup ? std::gcd(form->group, kLargestGroup) : form->group, spec,
            stored, config));
  if (groups.size % kSmallestGroup != 0) {
    return Refused(
        spec, stored,
        absl::StrCat("whose groups of ", form->group,
                     " columns the heads or K splits of the model cut to ", groups.size));
  }
  if (groups.scales == GroupScales::kShared) {
    groups.unit = static_cast<int32_t>(Uncut(kMostShared, spec, stored, config));
  } else {
    // Whole cache lines of scales.
    const bool is_half_line = groups.scales == GroupScales::kF16 && !groups.has_minimum;
    groups.unit = groups.size * (is_half_line ? 2 : 1);
  }
  return kept;
}

absl::Status CheckStored(const ModelConfig& config, const Checkpoint& checkpoint) {
  bool keeps = false;
  ExpertsAreAlike experts;
  RETURN_IF_ERROR(
      ForMatrices(config, checkpoint,
                  [&](const WeightSpec& spec, const StoredTensor& stored, const auto& kept) {
                    keeps = keeps || kept.has_value();
                    return experts.Check(spec, stored, kept);
                  }));
  if (keeps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "weights is stored, and no matrix of the model is stored as integers; auto computes with its "
      "values");
}

std::vector<std::string> DescribeStored(const ModelConfig& config, const Checkpoint& checkpoint) {
  std::map<std::pair<std::string, std::string>, int> counts;
  const absl::Status status = ForMatrices(
      config, checkpoint, [&](const WeightSpec&, const StoredTensor& stored, const auto& kept) {
        ++counts[{stored.dtype, Shown(stored, kept)}];
        return absl::OkStatus();
      });
  std::vector<std::string> lines;
  for (const auto& [key, count] : counts) {
    lines.push_back(absl::StrCat(key.first, " (", count, count == 1 ? " matrix" : " matrices",
                                 ") as ", key.second));
  }
  return lines;
}

void GroupRows::Resize(const GroupFormat& groups, int64_t n, int64_t num_columns) {
  columns = num_columns;
  integers.resize(static_cast<size_t>(n * columns));
  scales.resize(static_cast<size_t>(n * (columns / groups.size)));
  minima.resize(groups.has_minimum ? scales.size() : 0);
  const bool is_shared = groups.scales == GroupScales::kShared;
  shared_scales.resize(is_shared ? static_cast<size_t>(n * (columns / groups.unit)) : 0);
  shared_minima.resize(groups.has_minimum ? shared_scales.size() : 0);
}

kernels::GroupedRows GroupRows::view() const {
  return {.integers = integers.data(),
          .scales = scales.data(),
          .minima = minima.data(),
          .shared_scales = shared_scales.data(),
          .shared_minima = shared_minima.data()};
}

void ReadGroupsOfRow(const StoredTensor& stored, int64_t row, Range columns,
                     const StoredGroups& kept, int64_t to, GroupRows& out) {
  if (stored.quantised != nullptr) {
    ReadQuantised(*stored.quantised, row, columns, kept.groups, to, out);
    return;
  }
  const gguf::IntegerType& type = *gguf::FindIntegerType(stored.dtype);
  const GroupFormat& groups = kept.groups;
  const uint8_t* const bytes =
      stored.bytes.data() + row * (stored.shape.back() / type.block * type.bytes);
  gguf::IntegerBlock block;
  int64_t in_block = -1;  // which one it is
  for (int64_t c = columns.begin; c < columns.end; c += groups.size) {
    const int64_t column = stored.tiled.are_columns ? stored.tiled.Stored(c) : c;
    if (column / type.block != in_block) {
      in_block = column / type.block;
      type.read(bytes + in_block * type.bytes, block);
    }
    const int64_t at = column % type.block, element = to * out.columns + c - columns.begin;
    std::copy_n(block.integers + at, groups.size, out.integers.data() + element);
    const auto group = static_cast<size_t>(element / groups.size);
    out.scales[group] = block.scales[at / type.group];
    if (groups.has_minimum) out.minima[group] = block.minima[at / type.group];
    if (groups.scales != GroupScales::kShared) continue;
    const auto unit = static_cast<size_t>(element / groups.unit);
    out.shared_scales[unit] = block.shared_scale;
    if (groups.has_minimum) out.shared_minima[unit] = block.shared_minimum;
  }
}

}  // namespace continuo::model
