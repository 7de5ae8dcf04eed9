// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every limit of the protocol, with its unit. Gateways, workers and clients take them from here;
// the comments of proto/continuo/v1 state the same numbers. Limits of one program's resources, such
// as bytes in flight, are flags of that program.

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace continuo::protocol {

// Names. Ids are those of requests, tenants and calls; they and forwarded headers are printable
// ASCII.
inline constexpr size_t kMaxIdBytes = 128;
inline constexpr size_t kMaxModelNameBytes = 256;
inline constexpr size_t kMaxForwardedHeaderBytes = 1024;

// Prompts.
inline constexpr int kMaxMessages = 16384;
inline constexpr int kMaxTools = 1024;
inline constexpr int kMaxContentParts = 16384;  // of a message
inline constexpr size_t kMaxTemplateArgumentsBytes = 65536;
inline constexpr size_t kMaxChatTemplateBytes = 65536;
// Text of a Tokenize request, a rendered conversation included. Encoding takes about 130 bytes of
// memory for each byte of text.
inline constexpr size_t kMaxTokenizeBytes = 1 << 20;

// Embeddings.
inline constexpr int kMaxEmbedInputs = 2048;
// It is encoded anew with each pair.
inline constexpr size_t kMaxInstructionBytes = 8192;

// Sampling. Temperature, top_p, min_p and the repetition penalty are at least 0 or above it.
inline constexpr float kMaxTemperature = 100;
inline constexpr float kMaxRepetitionPenalty = 2;
inline constexpr float kMaxPenalty = 2;  // of presence and frequency, also below 0
inline constexpr uint32_t kMaxSequences = 128;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr float kMaxLogitBias = 100;  // also below 0
inline constexpr int kMaxAllowedIds = 262144;
inline constexpr int kMaxBadWords = 256;
inline constexpr size_t kMaxBadWordBytes = 256;

// Stopping.
inline constexpr int kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr int kMaxStopIds = 64;

// Constraints.
inline constexpr size_t kMaxConstraintBytes = 262144;  // of each kind
inline constexpr int kMaxChoiceOptions = 1024;

// Output and scheduling.
inline constexpr uint32_t kMaxLogprobs = 20;  // alternatives per token
inline constexpr int32_t kMaxPriority = 100;  // also below 0

// Responses. A larger one is split; a unary one and one that collects everything cannot be.
inline constexpr size_t kMaxResponseBytes = 1 << 20;
inline constexpr size_t kMaxUnsplitResponseBytes = 3 << 20;

// Messages and texts of one request as it is parsed, and the sequences of one answer as a gateway
// takes it from a worker.
inline constexpr int64_t kMaxValues = 1 << 20;
inline constexpr int kMaxReceivedSequences = 1024;

// Times.
inline constexpr absl::Duration kMaxDrainGrace = absl::Seconds(30);
inline constexpr absl::Duration kMaxWatchInterval = absl::Hours(1);
inline constexpr absl::Duration kMaxRetryDelay = absl::Hours(24);
// The ranges of google.protobuf.Duration and Timestamp (years 1 to 9999).
inline constexpr int64_t kMaxDurationSeconds = 315'576'000'000;
inline constexpr int64_t kMinTimestampSeconds = -62'135'596'800;
inline constexpr int64_t kMaxTimestampSeconds = 253'402'300'799;
inline constexpr int32_t kMaxNanos = 999'999'999;

}  // namespace continuo::protocol
