// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a stream of responses is, as a function of what it has delivered and not of how that was
// divided into responses (exactness: text-per-token). No I/O; not thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// How much of each kind was delivered. Text, thoughts and arguments count in bytes.
struct Amount {
  enum Kind : uint8_t {
    kIds,
    kText,
    kReasoning,
    kCalls,      // that have begun
    kArguments,  // of all calls
    kLogprobs,
    kFinish,  // 1 once the finish reason is known
    kPromptTokens,
    kPromptLogprobs,
    kNumKinds,
  };
  std::array<uint64_t, kNumKinds> of = {};

  bool operator==(const Amount&) const = default;
  bool is_zero() const {
    uint64_t any = 0;
    for (const uint64_t number : of) any |= number;
    return any == 0;
  }
  Amount& operator+=(const Amount& other) {
    for (size_t i = 0; i < of.size(); ++i) of[i] += other.of[i];
    return *this;
  }
};

// A hash of all that was delivered of one unit; the same however it was divided. FNV-1a of each
// kind's bytes, and of whole ids, mixed.
class DeliveredHash {
 public:
  DeliveredHash();
  void Add(const v1::GenerateResponse& batch);
  uint32_t value() const;

 private:
  static constexpr size_t kNumHashes = 4;  // of ids, text, thoughts, calls
  std::array<uint64_t, kNumHashes> hashes_;
};

// A batch is a response with at most one delta.
Amount AmountOf(const v1::GenerateResponse& batch);

// Moves from `batch` to the returned batch what comes first, of each kind `amount` at most. A call
// that begins counts with its name. What counts for nothing (Accepted, progress, the summary) stays
// in `batch`.
v1::GenerateResponse TakeFirst(const Amount& amount, v1::GenerateResponse* batch);

// Joins pieces of one call that follow each other, as Append would.
void JoinPieces(v1::Delta* delta);

// Appends a batch of the same unit to another one, so that the whole is what one response would
// have brought.
void Append(v1::GenerateResponse&& batch, v1::GenerateResponse* to);

}  // namespace continuo::gateway::openai
