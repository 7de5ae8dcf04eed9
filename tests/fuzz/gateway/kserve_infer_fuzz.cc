// SPDX-License-Identifier: Apache-2.0
// Any ModelInferRequest, as bytes, gives a generation that can be sent and answered, or an error
// that names what is wrong.
#include <cstddef>
#include <cstdint>
#include <string>

#include "services/base/check.h"
#include "services/gateway/kserve/call/infer_answer.h"
#include "services/gateway/kserve/call/infer_request.h"

namespace kserve = continuo::gateway::kserve;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inference::ModelInferRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  absl::StatusOr<kserve::InferCall> call = kserve::ReadInferRequest(request);
  if (!call.ok()) {
    CONTINUO_CHECK(absl::IsInvalidArgument(call.status()) || absl::IsNotFound(call.status()));
    return 0;
  }
  // Fails where a text is not UTF-8.
  continuo::v1::GenerateRequest copy;
  CONTINUO_CHECK(copy.ParseFromString(call->request.SerializeAsString()));
  CONTINUO_CHECK(call->stream != copy.output().collect());
  const std::string text = copy.text();
  call->request.Clear();
  kserve::InferAnswer answer(*std::move(call));
  continuo::v1::GenerateResponse response;
  response.mutable_accepted()->set_model("m");
  continuo::v1::Delta* const delta = response.add_deltas();
  delta->set_text(text + "a");
  delta->add_token_ids(1);
  delta->set_finish_reason(continuo::v1::FINISH_REASON_STOP);
  const auto told = answer.Add(response);
  CONTINUO_CHECK(told.has_value());
  CONTINUO_CHECK(told->raw_output_contents_size() == 0 ||
                 told->raw_output_contents_size() == told->outputs_size());
  return 0;
}
