// SPDX-License-Identifier: Apache-2.0
#include "services/worker/embedding/embedding_head.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/base/mapped_file.h"
#include "services/base/status_macros.h"
#include "services/worker/embedding/host_math.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/stored_types.h"

namespace continuo::embedding {
namespace {

constexpr double kShortest = 1e-12;  // shorter vectors are not scaled further (torch: normalize)

// Reads a tensor of this shape as f32.
absl::StatusOr<std::vector<float>> ReadTensor(const std::string& file,
                                              const std::vector<model::StoredTensor>& tensors,
                                              const std::string& name,
                                              const std::vector<int64_t>& shape) {
  const auto found = std::ranges::find(tensors, name, &model::StoredTensor::name);
  if (found == tensors.end()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": has no tensor ", name));
  }
  const model::StoredType* const type = model::FindStoredType(found->dtype);
  if (found->shape != shape || type == nullptr || type->block != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": tensor ", name, " is not as the module's config.json says"));
  }
  int64_t size = 1;
  for (const int64_t n : shape) size *= n;
  std::vector<float> values(static_cast<size_t>(size));
  (void)type->convert(values.data(), kernels::DType::kF32, found->bytes.data(), 0, size);
  return values;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const EmbeddingHead>> EmbeddingHead::Load(
    const std::string& dir, const SentenceModules& modules, int state_size) {
  std::shared_ptr<EmbeddingHead> head(new EmbeddingHead(modules, state_size));
  if (modules.dimension != 0 && modules.dimension != state_size) {
    return absl::InvalidArgumentError(absl::StrCat("modules.json: the pooling has ",
                                                   modules.dimension, " dimensions, the model ",
                                                   state_size));
  }
  int width = state_size;
  for (const DenseModule& dense : modules.dense) {
    if (dense.in_features != width) {
      return absl::InvalidArgumentError(absl::StrCat(dense.folder, "/config.json: in_features is ",
                                                     dense.in_features, ", the vector has ",
                                                     width));
    }
    width = dense.out_features;
    const std::string name = absl::StrCat(dense.folder, "/model.safetensors");
    ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file,
                     MappedFile::Open((std::filesystem::path(dir) / name).string()));
    ASSIGN_OR_RETURN(const std::vector<model::StoredTensor> tensors,
                     model::ParseSafetensors(name, file->bytes()));
    DenseLayer& layer = head->layers_.emplace_back();
    layer.in = dense.in_features;
    layer.out = dense.out_features;
    layer.activation = dense.activation;
    ASSIGN_OR_RETURN(layer.weight,
                     ReadTensor(name, tensors, "linear.weight", {layer.out, layer.in}));
    layer.bias.resize(static_cast<size_t>(layer.out));
    if (dense.has_bias) {
      ASSIGN_OR_RETURN(layer.bias, ReadTensor(name, tensors, "linear.bias", {layer.out}));
    }
    if (tensors.size() > (dense.has_bias ? 2 : 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": has other tensors than linear.weight",
                       dense.has_bias ? " and linear.bias" : "; the bias is left out"));
    }
  }
  head->digest_ = head->MakeDigest();
  return head;
}

int EmbeddingHead::dimensions() const { return layers_.empty() ? state_size_ : layers_.back().out; }

const Prompt* EmbeddingHead::FindPrompt(std::string_view name) const {
  const auto found = std::ranges::find(modules_.prompts, name, &Prompt::name);
  return found == modules_.prompts.end() ? nullptr : &*found;
}

std::vector<float> EmbeddingHead::Apply(std::span<const float> state, int dimensions,
                                        bool normalises) const {
  CONTINUO_CHECK(state.size() == static_cast<size_t>(state_size_));
  CONTINUO_CHECK(dimensions >= 1 && dimensions <= this->dimensions());
  std::vector<float> vector(state.begin(), state.end());
  for (const DenseLayer& layer : layers_) vector = layer.Apply(vector);
  vector.resize(static_cast<size_t>(dimensions));
  if (!normalises) return vector;
  const double length = std::max(std::sqrt(Dot(vector, vector)), kShortest);
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
  return vector;
}

std::string EmbeddingHead::MakeDigest() const {
  constexpr const char* kPoolings[] = {"last", "first", "mean"};
  std::string text =
      absl::StrCat("pooling=", kPoolings[static_cast<size_t>(modules_.pooling)],
                   " size=", state_size_, " normalises=", modules_.normalises,
                   " default=", modules_.default_prompt.size(), ":", modules_.default_prompt);
  for (const Prompt& prompt : modules_.prompts) {
    absl::StrAppend(&text, " prompt=", prompt.name.size(), ":", prompt.name, "=",
                    prompt.text.size(), ":", prompt.text);
  }
  for (const DenseLayer& layer : layers_) absl::StrAppend(&text, layer.Summary());
  return model::ToHex(model::DigestOf(text));
}

}  // namespace continuo::embedding
