// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/session/replay.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// The call around a request: its metadata, and what the server adds.
struct CallInfo {
  std::string tenant = "default";
  std::string request_id;     // from x-request-id; "" if there is none
  bool is_migration = false;  // x-continuo-move: a gateway goes on with a stream of another worker
  std::string call_id;  // x-continuo-call: names the client's call at its gateway, the same on each
                        // attempt; "" without one
  // x-continuo-time: the reference time that the gateway has chosen.
  std::optional<absl::Time> reference_time;
  std::string body;  // x-continuo-body: the digest of the request that its id stands for, or ""
  absl::Time now;
  absl::Time deadline = absl::InfiniteFuture();
  std::function<uint64_t()> random;  // chooses the id and the seed where the client does not
};

// A secret of the process, so that nobody can aim at another tenant's cached prefixes.
class SaltKey {
 public:
  explicit SaltKey(const std::function<uint64_t()>& random);
  // Returns one value for each tenant, salt and digest of an adapter, or none (exactness:
  // relay-edits-nothing, adapters).
  std::array<uint64_t, 2> Combine(std::string_view tenant, std::string_view salt,
                                  std::string_view adapter_digest = {}) const;

 private:
  std::array<uint64_t, 24> secret_;
};

// A request that was checked and turned into the inputs of engine and session.
struct Generation {
  v1::Accepted accepted;
  // True if everything was received before: the call ends with OK and no response, and nothing else
  // here is set.
  bool complete = false;
  uint64_t next_sequence = 0;            // number of the next response
  std::unique_ptr<StopRules> rules;      // on the heap: the sequences point to it
  std::unique_ptr<AnswerFormat> format;  // on the heap, too
  Replay replay;
  engine::Request request;  // the caller sets its id
  bool collect = false;
  bool want_prompt_tokens = false;
  absl::Time start;  // when this call began
};

// Returns the id of a request, of its call, or a random one.
absl::StatusOr<std::string> ChooseRequestId(const v1::GenerateRequest& request,
                                            const CallInfo& call);

// Validates, encodes the prompt (which takes time), fills in defaults and replays a continuation.
// Errors name the field and the limit.
absl::StatusOr<Generation> PrepareGeneration(const v1::GenerateRequest& request,
                                             const CallInfo& call, const ServedModel& model,
                                             const SaltKey& salt_key);

// Sets the token of a TokenLogprob, an alternative or a PromptToken as text, or as a special one's
// name.
template <typename Proto>
void SetToken(int32_t id, const ServedModel& model, Proto* proto) {
  if (model.text->IsSpecial(id)) {
    proto->set_special_token(model.text->TokenName(id));
  } else {
    proto->set_token(std::string(model.text->TokenBytes(id)));
  }
}

v1::TokenLogprob ToProto(int32_t token, const model::TokenScore& score, const ServedModel& model);
v1::Model ToProto(const ServedModel& model);

}  // namespace continuo::server
