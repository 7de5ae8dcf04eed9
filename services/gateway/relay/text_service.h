// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway {

// The unary methods that a worker answers, without a protocol. No gRPC. Thread-safe.
class TextService {
 public:
  template <typename Response>
  using Done = std::function<void(absl::StatusOr<Response>)>;
  // Ends a call early; `done` is called all the same. May be called at any time, more than once.
  using Cancel = std::function<void()>;

  virtual ~TextService() = default;
  // Each authenticates and admits the call, and calls `done` once, from any thread, perhaps before
  // it returns. `call` is used only until it returns.
  virtual Cancel AskTokenize(const ClientCall& call, v1::TokenizeRequest request,
                             Done<v1::TokenizeResponse> done) = 0;
  virtual Cancel AskDetokenize(const ClientCall& call, v1::DetokenizeRequest request,
                               Done<v1::DetokenizeResponse> done) = 0;
  virtual Cancel AskGetTokenizer(const ClientCall& call, v1::GetTokenizerRequest request,
                                 Done<v1::GetTokenizerResponse> done) = 0;
  // It is checked, admitted, logged and charged as a generation is.
  virtual Cancel AskEmbed(const ClientCall& call, v1::EmbedRequest request,
                          Done<v1::EmbedResponse> done) = 0;
};

}  // namespace continuo::gateway
