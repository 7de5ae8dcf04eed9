// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "services/base/check.h"
#include "services/gateway/relay/text_service.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {

// A tokenizer whose tokens are bytes, of a context of 1024 tokens. Thread-safe.
class FakeTextService : public TextService {
 public:
  // Calls of Tokenize are held from now on, until they are cancelled.
  void Hold() {
    absl::MutexLock lock(&mutex_);
    holds_ = true;
  }
  // Waits until `number` calls have been cancelled, for at most a minute.
  bool WaitForCancelled(int number) {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return num_cancelled_ >= number;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), absl::Minutes(1));
  }
  // Waits until a call is held, for at most a minute.
  bool WaitForHeld() {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_held_ > 0; };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), absl::Minutes(1));
  }

  // The text "refuse" is refused.
  Cancel AskTokenize(const ClientCall&, v1::TokenizeRequest request,
                     Done<v1::TokenizeResponse> done) override {
    {
      absl::MutexLock lock(&mutex_);
      if (holds_) {
        ++num_held_;
        return CancelOf(std::move(done));
      }
    }
    if (request.text() == "refuse") {
      done(protocol::FieldError("text", "is refused"));
      return [] {};
    }
    std::string text = request.text();
    for (const v1::ChatMessage& message : request.conversation().messages()) {
      text.append(message.content());
    }
    v1::TokenizeResponse response;
    response.set_max_context_tokens(1024);
    for (const char c : text) {
      response.add_token_ids(static_cast<unsigned char>(c));
      if (request.return_tokens()) response.add_tokens(std::string(1, c));
    }
    done(std::move(response));
    return [] {};
  }
  // The token 200 is refused.
  Cancel AskDetokenize(const ClientCall&, v1::DetokenizeRequest request,
                       Done<v1::DetokenizeResponse> done) override {
    v1::DetokenizeResponse response;
    for (int i = 0; i < request.token_ids_size(); ++i) {
      if (request.token_ids(i) == 200) {
        done(protocol::FieldError(absl::StrCat("token_ids[", i, "]"), "is refused"));
        return [] {};
      }
      response.mutable_text()->push_back(static_cast<char>(request.token_ids(i) & 0x7f));
    }
    done(std::move(response));
    return [] {};
  }
  // The models are "" and "Qwen/m n".
  Cancel AskGetTokenizer(const ClientCall&, v1::GetTokenizerRequest request,
                         Done<v1::GetTokenizerResponse> done) override {
    if (!request.model().empty() && request.model() != "Qwen/m n") {
      done(absl::NotFoundError(absl::StrCat("model \"", request.model(), "\" is not served here")));
      return [] {};
    }
    v1::GetTokenizerResponse response;
    response.set_config(R"({"eos_token":"</s>","chat_template":"{{ messages }}"})");
    done(std::move(response));
    return [] {};
  }

  // Vectors have zeros up to this number of values from now on.
  void SetDimensions(int dimensions) {
    absl::MutexLock lock(&mutex_);
    dimensions_ = dimensions;
  }
  // Each input's vector is its number of bytes or ids, 0.1 and -3e-8, that of a pair a thousandth
  // of its document's bytes, which are the logit; a text or a document "refuse" is refused.
  Cancel AskEmbed(const ClientCall& call, v1::EmbedRequest request,
                  Done<v1::EmbedResponse> done) override {
    int dimensions;
    {
      absl::MutexLock lock(&mutex_);
      dimensions = dimensions_;
      embeds_.push_back(request);
      CONTINUO_CHECK(call.num_bytes > 0);
    }
    v1::EmbedResponse response;
    for (int i = 0; i < request.inputs_size(); ++i) {
      const v1::EmbedInput& input = request.inputs(i);
      if (input.text() == "refuse" || input.pair().document() == "refuse") {
        done(protocol::FieldError(
            absl::StrCat("inputs[", i, "].", input.has_pair() ? "pair.document" : "text"),
            "is refused"));
        return [] {};
      }
      if (input.has_pair()) {
        v1::Embedding& score = *response.add_embeddings();
        score.add_values(static_cast<float>(input.pair().document().size()) / 1000);
        score.set_logit(static_cast<double>(input.pair().document().size()));
        continue;
      }
      const auto size =
          static_cast<float>(input.has_text() ? input.text().size()
                                              : static_cast<size_t>(input.token_ids().ids_size()));
      v1::Embedding& vector = *response.add_embeddings();
      for (const float value : {size, 0.1f, -3e-8f}) vector.add_values(value);
      while (vector.values_size() < dimensions) vector.add_values(0);
    }
    response.mutable_usage()->set_prompt_tokens(static_cast<uint32_t>(2 * request.inputs_size()));
    done(std::move(response));
    return [] {};
  }
  std::vector<v1::EmbedRequest> embeds() {
    absl::MutexLock lock(&mutex_);
    return embeds_;
  }

 private:
  Cancel CancelOf(Done<v1::TokenizeResponse> done) {
    const auto held = std::make_shared<Done<v1::TokenizeResponse>>(std::move(done));
    return [this, held] {
      const Done<v1::TokenizeResponse> end = std::exchange(*held, nullptr);
      if (end == nullptr) return;
      end(absl::CancelledError("cancelled"));
      absl::MutexLock lock(&mutex_);
      ++num_cancelled_;
    };
  }

  absl::Mutex mutex_;
  std::vector<v1::EmbedRequest> embeds_ ABSL_GUARDED_BY(mutex_);
  int dimensions_ ABSL_GUARDED_BY(mutex_) = 0;
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  int num_held_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway::openai
