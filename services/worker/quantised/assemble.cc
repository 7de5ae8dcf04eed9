// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/assemble.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"

namespace continuo::quantised {
namespace {

using Shape = std::vector<int64_t>;
using Parts = absl::flat_hash_map<std::string, StoredPart>;

constexpr int64_t kMaxSide = int64_t{1} << 31;  // so that products of two fit

// Endings of tensors that are about activations and the KV cache.
constexpr std::string_view kUnused[] = {
    ".input_scale",  ".activation_scale",  ".input_zero_point", ".input_global_scale",
    ".output_scale", ".output_zero_point", ".input_scale_inv",  ".k_scale",
    ".v_scale",      ".q_scale",           ".prob_scale"};

std::string Show(const std::string& name) { return absl::CHexEscape(name.substr(0, 200)); }

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

template <typename... Text>
absl::Status Error(const StoredPart& part, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", Show(part.name), text...));
}

absl::Status CheckPart(const StoredPart& part, std::string_view dtype, const Shape& shape,
                       std::string_view why) {
  if (part.dtype != dtype) {
    return Error(part, " is ", part.dtype, ", ", std::string(why), " asks for ",
                 std::string(dtype));
  }
  if (part.shape != shape) {
    return Error(part, " has the shape ", ShapeText(part.shape), ", ", std::string(why),
                 " asks for ", ShapeText(shape));
  }
  return absl::OkStatus();
}

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One module while its matrix is made.
class Module {
 public:
  Module(const Parts& parts, std::string name, const StoredPart& main, const Scheme& scheme)
      : parts_(parts), name_(std::move(name)), main_(main), scheme_(scheme) {
    matrix_.name = absl::StrCat(name_, ".weight");
    matrix_.parts.push_back(main);
    matrix_.code_bytes = main.bytes.data();
  }

  absl::Status Make() {
    RETURN_IF_ERROR(CheckMain());
    switch (scheme_.format) {
      case Format::kFloat8:
      case Format::kInt8:
        return MakeBytes();
      case Format::kPackedInt:
        return MakePackedInt();
      case Format::kNvfp4:
      case Format::kMxfp4:
        return MakeFloat4();
      case Format::kAwq:
      case Format::kGptq:
        return MakeWords();
    }
    return absl::OkStatus();
  }

  Matrix Take() { return std::move(matrix_); }

 private:
  // The part with this ending, null where there is none. It is one of the matrix's then.
  const StoredPart* Find(std::string_view suffix) {
    const auto found = parts_.find(absl::StrCat(name_, ".", std::string(suffix)));
    if (found == parts_.end()) return nullptr;
    matrix_.parts.push_back(found->second);
    return &found->second;
  }
  absl::StatusOr<const StoredPart*> Need(std::string_view suffix) {
    if (const StoredPart* const part = Find(suffix)) return part;
    return Error(main_, " has no ", std::string(suffix), " beside it");
  }

  absl::Status CheckMain() const {
    const bool fits = main_.shape.size() == 2 && std::ranges::all_of(main_.shape, [](int64_t n) {
                        return n >= 1 && n < kMaxSide;
                      });
    if (fits) return absl::OkStatus();
    return Error(main_, " has the shape ", ShapeText(main_.shape),
                 "; a quantised one must be a matrix");
  }

  absl::Status SetScaleType(const StoredPart& scale) {
    using kernels::DType;
    if (scale.dtype == "F32") {
      matrix_.scale_type = ScaleType::kF32;
      matrix_.value_type = DType::kF32;
    } else if (scale.dtype == "BF16") {
      matrix_.scale_type = ScaleType::kBF16;
      matrix_.value_type = DType::kBF16;
    } else if (scale.dtype == "F16") {
      matrix_.scale_type = ScaleType::kF16;
      matrix_.value_type = DType::kF16;
    } else if (scale.dtype == "F8_E8M0" && scheme_.format == Format::kFloat8) {
      matrix_.scale_type = ScaleType::kPowerOfTwo;
      matrix_.value_type = DType::kBF16;
    } else {
      return Error(scale, " is ", scale.dtype, "; scales are F32, BF16 or F16");
    }
    matrix_.scales.bytes = scale.bytes.data();
    return absl::OkStatus();
  }

  // Says which elements share a scale, of which there is one in `scale`. Rows and columns are
  // known.
  absl::Status ShareRows(const StoredPart& scale) {
    const int64_t rows = matrix_.rows, columns = matrix_.columns;
    const Shape channels = {rows}, channel_column = {rows, 1};
    Sharing sharing = scheme_.sharing;
    if (sharing == Sharing::kByShape) {
      const bool is_channel = scale.shape == channels || scale.shape == channel_column;
      sharing = is_channel ? Sharing::kChannel : Sharing::kTensor;
    }
    const auto refuse = [&](const Shape& shape) {
      return Error(scale, " has the shape ", ShapeText(scale.shape), ", config.json asks for ",
                   ShapeText(shape));
    };
    switch (sharing) {
      case Sharing::kByShape:
      case Sharing::kTensor:
        if (!scale.shape.empty() && scale.shape != Shape{1} && scale.shape != Shape{1, 1}) {
          return refuse({1});
        }
        matrix_.shared_rows = rows;
        matrix_.shared_columns = columns;
        return absl::OkStatus();
      case Sharing::kChannel:
        if (scale.shape != channels && scale.shape != channel_column) return refuse(channel_column);
        matrix_.shared_rows = 1;
        matrix_.shared_columns = columns;
        matrix_.scales.row_step = 1;
        return absl::OkStatus();
      case Sharing::kGroup: {
        const int64_t size = scheme_.group_size;
        if (columns % size != 0) {
          return Error(main_, " has rows of ", columns, " elements, which are no whole groups of ",
                       size);
        }
        const Shape shape = {rows, columns / size};
        if (scale.shape != shape) return refuse(shape);
        matrix_.shared_rows = 1;
        matrix_.shared_columns = size;
        break;
      }
      case Sharing::kBlock: {
        const Shape shape = {Ceil(rows, scheme_.block_rows), Ceil(columns, scheme_.block_columns)};
        if (scale.shape != shape) return refuse(shape);
        matrix_.shared_rows = scheme_.block_rows;
        matrix_.shared_columns = scheme_.block_columns;
        break;
      }
    }
    matrix_.scales.row_step = scale.shape[1];
    matrix_.scales.group_step = 1;
    return absl::OkStatus();
  }

  // FP8 and int8 of a byte each.
  absl::Status MakeBytes() {
    const bool is_float = scheme_.format == Format::kFloat8;
    RETURN_IF_ERROR(CheckPart(main_, is_float ? "F8_E4M3" : "I8", main_.shape,
                              "config.json's quantization_config"));
    matrix_.rows = main_.shape[0];
    matrix_.columns = matrix_.code_stride = main_.shape[1];
    matrix_.codes = is_float ? Codes::kFloat8 : Codes::kInt8;
    const StoredPart* scale = Find("weight_scale_inv");
    if (scale == nullptr) {
      ASSIGN_OR_RETURN(scale, Need("weight_scale"));
    } else if (parts_.contains(absl::StrCat(name_, ".weight_scale"))) {
      return Error(*scale, " is there, and so is weight_scale; only one of them can hold");
    }
    RETURN_IF_ERROR(SetScaleType(*scale));
    RETURN_IF_ERROR(ShareRows(*scale));
    matrix_.format = absl::StrCat(is_float ? "FP8" : "INT8", " by ", matrix_.shared_rows, "x",
                                  matrix_.shared_columns);
    return scheme_.symmetric ? absl::OkStatus() : AddByteZeros(*scale);
  }

  absl::Status AddByteZeros(const StoredPart& scale) {
    ASSIGN_OR_RETURN(const StoredPart* const zeros, Need("weight_zero_point"));
    RETURN_IF_ERROR(CheckPart(*zeros, "I8", scale.shape, "its scale"));
    matrix_.zero_type = ZeroType::kInt8;
    matrix_.zeros = matrix_.scales;
    matrix_.zeros.bytes = zeros->bytes.data();
    absl::StrAppend(&matrix_.format, " with zeros");
    return absl::OkStatus();
  }

  absl::Status ReadShape(const StoredPart& part) {
    const bool is_long = part.dtype == "I64";
    if ((!is_long && part.dtype != "I32") || part.shape != Shape{2}) {
      return Error(part, " is ", part.dtype, " ", ShapeText(part.shape),
                   "; a shape must be I64 or I32 [2]");
    }
    int64_t sides[2];
    for (size_t i = 0; i < 2; ++i) {
      if (is_long) {
        std::memcpy(&sides[i], part.bytes.data() + 8 * i, 8);
      } else {
        int32_t side;
        std::memcpy(&side, part.bytes.data() + 4 * i, 4);
        sides[i] = side;
      }
      if (sides[i] < 1 || sides[i] >= kMaxSide) {
        return Error(part, " says that a matrix has a side of ", sides[i]);
      }
    }
    matrix_.rows = sides[0];
    matrix_.columns = sides[1];
    return absl::OkStatus();
  }

  // compressed-tensors' pack-quantized.
  absl::Status MakePackedInt() {
    const int64_t per_word = 32 / scheme_.bits;
    ASSIGN_OR_RETURN(const StoredPart* const shape, Need("weight_shape"));
    RETURN_IF_ERROR(ReadShape(*shape));
    RETURN_IF_ERROR(CheckPart(main_, "I32", {matrix_.rows, Ceil(matrix_.columns, per_word)},
                              absl::StrCat("weight_shape with ", scheme_.bits, " bits")));
    matrix_.codes = scheme_.bits == 4 ? Codes::kBiasedInt4 : Codes::kBiasedInt8;
    matrix_.code_stride = main_.shape[1] * 4;
    ASSIGN_OR_RETURN(const StoredPart* const scale, Need("weight_scale"));
    RETURN_IF_ERROR(SetScaleType(*scale));
    RETURN_IF_ERROR(ShareRows(*scale));
    matrix_.format =
        absl::StrCat("INT", scheme_.bits, " by ", matrix_.shared_rows, "x", matrix_.shared_columns);
    // The tool packs the zeros of rows and groups.
    const bool packs_zeros =
        scheme_.sharing == Sharing::kChannel || scheme_.sharing == Sharing::kGroup;
    if (!scheme_.symmetric && !packs_zeros) RETURN_IF_ERROR(AddByteZeros(*scale));
    if (!scheme_.symmetric && packs_zeros) {
      ASSIGN_OR_RETURN(const StoredPart* const zeros, Need("weight_zero_point"));
      const int64_t groups = matrix_.columns / matrix_.shared_columns;
      RETURN_IF_ERROR(
          CheckPart(*zeros, "I32", {Ceil(matrix_.rows, per_word), groups}, "its weight_shape"));
      matrix_.zero_type = scheme_.bits == 4 ? ZeroType::kPacked4 : ZeroType::kPacked8;
      matrix_.zeros = {zeros->bytes.data(), groups, 1};
      absl::StrAppend(&matrix_.format, " with zeros");
    }
    if (const StoredPart* const group_of = Find("weight_g_idx")) {
      if (scheme_.sharing != Sharing::kGroup) {
        return Error(*group_of,
                     " gives groups of columns, and config.json says that there are none");
      }
      return AddGroups(*group_of, matrix_.columns / matrix_.shared_columns, true);
    }
    return absl::OkStatus();
  }

  // Reads the group of each column. In files of compressed-tensors -1 everywhere means that columns
  // are in order, and all groups have the same number of columns.
  absl::Status AddGroups(const StoredPart& part, int64_t num_groups, bool are_equal) {
    RETURN_IF_ERROR(CheckPart(part, "I32", {matrix_.columns}, "its weight"));
    std::vector<int64_t> sizes(static_cast<size_t>(num_groups));
    bool is_ordered = true;
    int64_t num_unset = 0;
    for (int64_t c = 0; c < matrix_.columns; ++c) {
      int32_t group;
      std::memcpy(&group, part.bytes.data() + 4 * c, 4);
      if (group == -1 && are_equal) {
        ++num_unset;
        continue;
      }
      if (group < 0 || group >= num_groups) {
        return Error(part, " has column ", c, " in group ", group, " of ", num_groups);
      }
      ++sizes[static_cast<size_t>(group)];
      is_ordered &= group == c / matrix_.shared_columns;
    }
    if (num_unset == matrix_.columns) return absl::OkStatus();
    if (num_unset != 0) return Error(part, " has columns without a group");
    for (size_t i = 0; are_equal && i < sizes.size(); ++i) {
      if (sizes[i] != matrix_.shared_columns) {
        return Error(part, " has ", sizes[i], " columns in group ", i, " instead of ",
                     matrix_.shared_columns);
      }
    }
    if (!is_ordered) matrix_.group_of = part.bytes.data();
    return absl::OkStatus();
  }

  // compressed-tensors' nvfp4-pack-quantized and mxfp4-pack-quantized.
  absl::Status MakeFloat4() {
    matrix_.rows = main_.shape[0];
    matrix_.columns = main_.shape[1] * 2;
    RETURN_IF_ERROR(CheckPart(main_, "U8", main_.shape, "config.json's quantization_config"));
    matrix_.codes = Codes::kFloat4;
    matrix_.code_stride = main_.shape[1];
    matrix_.value_type = kernels::DType::kBF16;
    ASSIGN_OR_RETURN(const StoredPart* const scale, Need("weight_scale"));
    const bool has_floats = scheme_.format == Format::kNvfp4;
    RETURN_IF_ERROR(CheckPart(*scale, has_floats ? "F8_E4M3" : "U8", scale->shape,
                              "config.json's quantization_config"));
    matrix_.scale_type = has_floats ? ScaleType::kFloat8 : ScaleType::kPowerOfTwo;
    matrix_.scales.bytes = scale->bytes.data();
    RETURN_IF_ERROR(ShareRows(*scale));
    matrix_.format = absl::StrCat(has_floats ? "NVFP4" : "MXFP4", " by 1x", matrix_.shared_columns);
    if (!has_floats) return absl::OkStatus();
    ASSIGN_OR_RETURN(const StoredPart* const global, Need("weight_global_scale"));
    RETURN_IF_ERROR(CheckPart(*global, "F32", {1}, "its format"));
    std::memcpy(&matrix_.divisor, global->bytes.data(), sizeof(float));
    if (!std::isfinite(matrix_.divisor) || matrix_.divisor == 0) {
      return Error(*global, " is ", matrix_.divisor, ", which divides no scale");
    }
    return absl::OkStatus();
  }

  // AWQ and GPTQ, whose words lie as the transposed matrix.
  absl::Status MakeWords() {
    const bool is_awq = scheme_.format == Format::kAwq;
    const int64_t per_word = 32 / scheme_.bits;
    matrix_.rows = main_.shape[1] * (is_awq ? per_word : 1);
    matrix_.columns = main_.shape[0] * (is_awq ? 1 : per_word);
    const int64_t rows = matrix_.rows, columns = matrix_.columns;
    if (rows >= kMaxSide || columns >= kMaxSide) {
      return Error(main_, " has the shape ", ShapeText(main_.shape), ", which is too large");
    }
    const std::string why = absl::StrCat(is_awq ? "AWQ" : "GPTQ", " with ", scheme_.bits, " bits");
    RETURN_IF_ERROR(CheckPart(main_, "I32", main_.shape, why));
    if (rows % per_word != 0) {
      return Error(main_, " has ", rows, " columns; ", why, " asks for a multiple of ", per_word);
    }
    const int64_t size = scheme_.group_size == 0 ? columns : scheme_.group_size;
    if (is_awq && columns % size != 0) {
      return Error(main_, " has ", columns, " rows, which are no whole groups of ", size);
    }
    const int64_t groups = Ceil(columns, size);
    ASSIGN_OR_RETURN(const StoredPart* const scale, Need("scales"));
    RETURN_IF_ERROR(SetScaleType(*scale));
    RETURN_IF_ERROR(CheckPart(*scale, scale->dtype, {groups, rows}, ForWeight(why, size)));
    ASSIGN_OR_RETURN(const StoredPart* const zeros, Need("qzeros"));
    RETURN_IF_ERROR(CheckPart(*zeros, "I32", {groups, rows / per_word}, ForWeight(why, size)));
    matrix_.code_stride = main_.shape[1] * 4;
    matrix_.shared_rows = 1;
    matrix_.shared_columns = size;
    matrix_.scales.row_step = 1;
    matrix_.scales.group_step = rows;
    matrix_.zeros = {zeros->bytes.data(), 1, rows / per_word};
    matrix_.format = absl::StrCat(is_awq ? "AWQ" : "GPTQ", scheme_.bits, " by 1x", size,
                                  scheme_.zeros_less_one ? " plus one" : "");
    if (is_awq) {
      matrix_.codes = Codes::kAwq4;
      matrix_.zero_type = ZeroType::kAwq4;
      return absl::OkStatus();
    }
    const bool has_4_bits = scheme_.bits == 4;
    matrix_.codes = has_4_bits ? Codes::kGptq4 : Codes::kGptq8;
    matrix_.zero_type = has_4_bits ? ZeroType::kPacked4 : ZeroType::kPacked8;
    // The tool adds one to every zero of a word at once; a carry belongs to the next one.
    if (scheme_.zeros_less_one) matrix_.zero_plus = has_4_bits ? 0x11111111u : 0x01010101u;
    const StoredPart* const group_of = Find("g_idx");
    return group_of == nullptr ? absl::OkStatus() : AddGroups(*group_of, groups, false);
  }

  std::string ForWeight(const std::string& why, int64_t size) const {
    return absl::StrCat("its qweight ", ShapeText(main_.shape), " of ", why, " in groups of ",
                        size);
  }

  const Parts& parts_;
  const std::string name_;
  const StoredPart& main_;
  const Scheme scheme_;
  Matrix matrix_;
};

// The matrices of all experts of gpt-oss, whose blocks are one tensor: [experts, rows, groups, 16].
absl::Status MakeExperts(const Parts& parts, const std::string& module, const StoredPart& blocks,
                         Assembly& assembly) {
  constexpr int64_t kGroup = 32;
  // Many times as many as any model has; each becomes matrices that take more memory than a file
  // needs to say so.
  constexpr int64_t kMaxExperts = 4096;
  const Shape& shape = blocks.shape;
  RETURN_IF_ERROR(CheckPart(blocks, "U8", shape, "MXFP4"));
  if (shape.size() != 4 || shape[3] != kGroup / 2 ||
      !std::ranges::all_of(shape, [](int64_t n) { return n >= 1 && n < kMaxSide / kGroup; })) {
    return Error(blocks, " has the shape ", ShapeText(shape),
                 ", MXFP4 asks for [experts, rows, groups, ", kGroup / 2, "]");
  }
  if (shape[0] > kMaxExperts) {
    return Error(blocks, " has ", shape[0], " experts, the limit is ", kMaxExperts);
  }
  const std::string scales_name = absl::StrCat(module, "_scales");
  const auto scales = parts.find(scales_name);
  if (scales == parts.end()) return Error(blocks, " has no ", Show(scales_name), " beside it");
  RETURN_IF_ERROR(CheckPart(scales->second, "U8", {shape[0], shape[1], shape[2]}, "its blocks"));
  const size_t dot = module.rfind('.');
  const std::string parent = module.substr(0, dot == module.npos ? 0 : dot + 1);
  const std::string kind = module.substr(parent.size());
  const auto block_bytes = static_cast<size_t>(shape[1] * shape[2] * shape[3]);
  const auto scale_bytes = static_cast<size_t>(shape[1] * shape[2]);
  // Rows of gate and up take turns.
  const bool takes_turns = kind == "gate_up_proj";
  const int64_t turns = takes_turns ? 2 : 1;
  if (shape[1] % turns != 0) return Error(blocks, " has an odd number of rows for gate and up");
  for (size_t e = 0; e < static_cast<size_t>(shape[0]); ++e) {
    for (int64_t turn = 0; turn < turns; ++turn) {
      Matrix matrix;
      const std::string own = !takes_turns ? kind : turn == 0 ? "gate_proj" : "up_proj";
      matrix.name = absl::StrCat(parent, e, ".", own, ".weight");
      matrix.rows = shape[1] / turns;
      matrix.columns = shape[2] * kGroup;
      matrix.format = absl::StrCat("MXFP4 by 1x", kGroup);
      if (takes_turns) absl::StrAppend(&matrix.format, " in turn ", turn);
      matrix.parts = {{blocks.name,
                       "U8",
                       {shape[1], shape[2], shape[3]},
                       blocks.bytes.subspan(e * block_bytes, block_bytes)},
                      {scales_name,
                       "U8",
                       {shape[1], shape[2]},
                       scales->second.bytes.subspan(e * scale_bytes, scale_bytes)}};
      matrix.value_type = kernels::DType::kBF16;
      matrix.codes = Codes::kFloat4;
      matrix.code_bytes = matrix.parts[0].bytes.data() + turn * shape[2] * shape[3];
      matrix.code_stride = turns * shape[2] * shape[3];
      matrix.scale_type = ScaleType::kPowerOfTwo;
      matrix.shared_columns = kGroup;
      matrix.scales = {matrix.parts[1].bytes.data() + turn * shape[2], turns * shape[2], 1};
      assembly.matrices.push_back(std::make_shared<const Matrix>(std::move(matrix)));
    }
  }
  assembly.read.push_back(blocks.name);
  assembly.read.push_back(scales_name);
  return absl::OkStatus();
}

// The ending of the tensor that holds a module's codes, where `part` is one; empty elsewhere.
std::string_view MainEnding(Method method, const StoredPart& part) {
  const auto ends = [&](std::string_view end) { return part.name.ends_with(end); };
  const bool is_byte = part.dtype.starts_with("F8_") || part.dtype == "I8";
  switch (method) {
    case Method::kNone:
      break;
    case Method::kFp8:
      if (ends(".weight") && is_byte) return ".weight";
      break;
    case Method::kCompressedTensors:
      if (ends(".weight_packed")) return ".weight_packed";
      if (ends(".weight") && is_byte) return ".weight";
      break;
    case Method::kAwq:
    case Method::kGptq:
      if (ends(".qweight")) return ".qweight";
      break;
    case Method::kMxfp4:
      if (ends("_blocks")) return "_blocks";
      break;
  }
  return "";
}

}  // namespace

absl::StatusOr<Assembly> Assemble(const QuantisationConfig& config, const Parts& tensors) {
  Assembly assembly;
  if (config.method == Method::kNone) return assembly;
  std::vector<const StoredPart*> order;  // so that the first error is always the same one
  for (const auto& [name, part] : tensors) order.push_back(&part);
  std::ranges::sort(order, {}, [](const StoredPart* part) { return std::string_view(part->name); });
  for (const StoredPart* const part : order) {
    const bool is_unused = std::ranges::any_of(
        kUnused, [&](std::string_view end) { return part->name.ends_with(end); });
    if (is_unused) {
      assembly.unused.push_back(part->name);
      continue;
    }
    const std::string_view ending = MainEnding(config.method, *part);
    if (ending.empty()) continue;
    const std::string module = part->name.substr(0, part->name.size() - ending.size());
    if (ending != ".weight" && tensors.contains(absl::StrCat(module, ".weight"))) {
      return Error(*part, " is there, and so is ", Show(module),
                   ".weight; only one of them can hold");
    }
    ASSIGN_OR_RETURN(const Scheme scheme, SchemeOf(config, module, Show(part->name)));
    if (config.method == Method::kMxfp4) {
      RETURN_IF_ERROR(MakeExperts(tensors, module, *part, assembly));
      continue;
    }
    Module making(tensors, module, *part, scheme);
    RETURN_IF_ERROR(making.Make());
    Matrix matrix = making.Take();
    for (const StoredPart& read : matrix.parts) assembly.read.push_back(read.name);
    assembly.matrices.push_back(std::make_shared<const Matrix>(std::move(matrix)));
  }
  return assembly;
}

}  // namespace continuo::quantised
