// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hashes by which similar requests meet at one worker. They are the same in every build and every
// gateway, so that gateways agree without talking.

#include <cstdint>
#include <string_view>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway {

// The hash of the beginning of the prompt, which requests that share cached blocks have in common:
// the first kPrefixTokens ids, or kBytesPerToken times as many bytes of text. Of a conversation
// only the part up to the end of the first user message counts, which its later turns repeat.
// Tenant and cache salt count too, since blocks are not shared across them. 0 if the prompt is too
// short to be worth keeping together.
uint64_t PrefixHash(const v1::GenerateRequest& request, std::string_view tenant);
inline constexpr int kPrefixTokens = 1024;
inline constexpr int kMinPrefixTokens = 64;
inline constexpr int kBytesPerToken = 4;

// The hash of a client's x-session-id; 0 if it is empty.
uint64_t SessionHash(std::string_view session, std::string_view tenant);

}  // namespace continuo::gateway
