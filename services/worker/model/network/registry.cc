// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "services/worker/model/description/family.h"
#include "services/worker/model/network/decoder.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelDependencies& parts) {
  const ModelConfig& config = parts.config;
  if (config.encoder.is_encoder || FindArchitecture(config.architecture) != nullptr) {
    return MakeDecoder(parts);
  }
  return absl::UnimplementedError(
      absl::StrCat("architecture \"", config.architecture, "\" is not known"));
}

}  // namespace continuo::model
