// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "services/worker/model/description/config.h"

namespace continuo::model {

// Says how the names of a file's tensors differ from those that ListWeights gives. Files of a base
// model's class lack "model." in front; wrappers of training tools put their own names there.
struct NamePrefix {
  std::string_view body;  // in front of "embed_tokens", "layers", "norm"; usually "model."
  std::string_view head;  // in front of "lm_head"; usually empty
};

// The prefix of files with such an embedding, "embed_tokens.weight" behind its body. Null where the
// name is of no known form.
const NamePrefix* FindNamePrefix(std::string_view embedding);

// The name that ListWeights gives to a tensor of a file with this prefix. A name of another form is
// returned as it is.
std::string CanonicalName(const NamePrefix& prefix, std::string_view name);

// Names of the modules of a head of scores, without ".weight" and ".bias". Empty: it has none of
// that kind.
struct ScoreHeadNames {
  std::string_view dense;
  bool dense_bias = true;
  std::string_view norm;  // with a bias where ModelConfig::norm_bias
  std::string_view product;
  bool product_bias = true;
};
ScoreHeadNames NamesOfScoreHead(const ScoreHeadConfig& head);

// The tensors of a model's head of scores; none where it has no such head.
std::vector<std::string> ScoreHeadTensors(const ModelConfig& config);

// True for a tensor of the MTP module.
bool IsMtpTensor(std::string_view name);

// The part of the model that a tensor belongs to and that this one does not have, by its name up to
// the first dot or two: a tower for images or sounds beside a text part, an MTP module that is not
// read, an encoder's heads and pooler. Those of ScoreHeadTensors are among them. Empty for all
// other tensors.
std::string_view SkippedPart(const ModelConfig& config, std::string_view name);

// True for the written list of tensors that no model needs: buffers that follow from config.json.
bool IsHarmlessTensor(std::string_view name);

// Returns why a tensor is in the files although the model does not read it, as "; ..."; empty where
// it is not known.
std::string WhyUnread(const ModelConfig& config, std::string_view name);

}  // namespace continuo::model
