// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {

// A family of encoders. Their configurations have little in common with those of decoders
// (family.h), so each form has a function of its own.
struct EncoderFamily {
  std::string_view stem;        // of its classes' names: "Bert" of "BertModel"
  std::string_view model_type;  // "bert"
  std::string_view title;       // for people
  // Fills in everything but defaults of sampling. Errors come through json.status(), or are
  // returned.
  absl::Status (*parse)(JsonObject& json, ModelConfig& config);
};

// All of them, in the order in which people read them.
std::span<const EncoderFamily> EncoderFamilies();

// The one that "architectures" names by a class of its own, or else "model_type"; null where it is
// none.
const EncoderFamily* FindEncoder(const JsonObject& json);

}  // namespace continuo::model
