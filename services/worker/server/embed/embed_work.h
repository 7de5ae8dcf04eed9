// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// A request for embeddings or scores that was checked and turned into the inputs of engine and
// session.
struct EmbedWork {
  std::string request_id;
  std::vector<engine::Request> requests;  // one for each input; the caller sets their ids
  int dimensions = 0;                     // of the answer's vectors; of scores 1
  bool normalises = false;
};

// Returns the id of a request, of its call, or a random one.
absl::StatusOr<std::string> ChooseRequestId(const v1::EmbedRequest& request, const CallInfo& call);

// Validates, encodes the inputs (which takes time) and fills in defaults. Errors name the field and
// the limit.
absl::StatusOr<EmbedWork> PrepareEmbedding(const v1::EmbedRequest& request, const CallInfo& call,
                                           const ServedModel& model, const SaltKey& salt_key);

}  // namespace continuo::server
