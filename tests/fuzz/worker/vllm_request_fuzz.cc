// SPDX-License-Identifier: Apache-2.0
// Any request of vllm.grpc.engine, as bytes, gives one of continuo.v1 that can be sent and whose
// answer can be told, or an error that names a field.
#include <cstddef>
#include <cstdint>

#include "services/base/check.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/vllm/vllm_answer.h"
#include "services/worker/server/vllm/vllm_request.h"

namespace server = continuo::server;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vllm::grpc::engine::GenerateRequest asked;
  if (!asked.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::StatusOr<continuo::v1::GenerateRequest> request = server::ReadVllmGenerate(asked);
  if (!request.ok()) {
    CONTINUO_CHECK(absl::IsInvalidArgument(request.status()));
    CONTINUO_CHECK(!continuo::protocol::FieldOf(request.status()).empty());
    return 0;
  }
  continuo::v1::GenerateRequest copy;
  CONTINUO_CHECK(copy.ParseFromString(request->SerializeAsString()));
  CONTINUO_CHECK(copy.output().collect() != asked.stream());
  const absl::Status checked = continuo::protocol::ValidateGenerate(copy);
  if (!checked.ok()) CONTINUO_CHECK(!server::WithVllmField(checked).ok());
  server::VllmAnswer answer({.stream = asked.stream(),
                             .has_alternatives = asked.sampling_params().logprobs() > 0,
                             .has_prompt_alternatives = true});
  continuo::v1::GenerateResponse response;
  for (const uint32_t id : copy.token_ids().ids()) response.add_prompt_tokens()->set_token_id(id);
  continuo::v1::Delta* const delta = response.add_deltas();
  for (const uint32_t id : copy.token_ids().ids()) delta->add_token_ids(id);
  delta->set_finish_reason(continuo::v1::FINISH_REASON_STOP);
  const auto told = answer.Add(response);
  CONTINUO_CHECK(told.size() == (asked.stream() ? 2u : 1u));
  CONTINUO_CHECK(told.back().complete().output_ids_size() == copy.token_ids().ids_size());
  return 0;
}
