// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/answer/retrievable.h"

namespace continuo::gateway::openai {

using OrderedJson = nlohmann::ordered_json;

// The headers that describe the body of an answer in one piece.
struct BodyForm {
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The answer to one HTTP call in the form of its API: events of a stream, or one body. It is made
// of the responses to all its prompts, which may come in any order. No I/O; not thread-safe.
class Answer {
 public:
  virtual ~Answer() = default;

  // Adds the next response to one prompt. For a stream the events are appended to `events`; else
  // everything is kept until TakeBody, and `events` may be null.
  virtual void Add(int prompt, const v1::GenerateResponse& response, std::string* events) = 0;

  // Called after the last response of a stream: appends its last events.
  virtual void AddEnd(std::string* events) = 0;
  // Called instead of AddEnd where a stream fails. `error` is the body that an error of HTTP would
  // have.
  virtual void AddError(const absl::Status& status, std::string_view error,
                        std::string* events) = 0;
  // The same of a stream whose client has had more than was added: the event of the error comes
  // alone, with this number.
  virtual void AddErrorAlone(const absl::Status& status, std::string_view error, int64_t /*number*/,
                             std::string* events) {
    AddError(status, error, events);
  }

  // Called after the last response without a stream: returns the parts of the body and keeps
  // nothing.
  virtual std::vector<std::string> TakeBody() = 0;

  // Called after TakeBody.
  virtual BodyForm body_form() const { return {}; }

  // Called before a response is added: events that tell their number go on from this one.
  virtual void set_num_events(int64_t /*number*/) {}

  // Null where nobody may ask for the answer while it is made.
  virtual const Retrievable* retrievable() const { return nullptr; }

  // The memory of the kept responses.
  virtual size_t num_bytes() const = 0;
};

// The JSON as text. Bytes that are no UTF-8 become U+FFFD.
inline std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace continuo::gateway::openai
