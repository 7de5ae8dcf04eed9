// SPDX-License-Identifier: Apache-2.0
#pragma once

// What of a request says where its like went before: numbers that are the same in every build and
// every gateway, so that gateways agree without talking.

#include <cstdint>
#include <string_view>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway {

// Of the beginning of the prompt, which requests that share cached blocks have in common: the first
// kPrefixTokens ids, or as many times kBytesPerToken bytes of text; of a conversation only up to
// the end of the first message of a user, which its later turns repeat. With tenant and salt, which
// blocks are not shared beyond. 0: too short to be worth keeping together.
uint64_t PrefixHash(const v1::GenerateRequest& request, std::string_view tenant);
inline constexpr int kPrefixTokens = 1024;
inline constexpr int kMinPrefixTokens = 64;
inline constexpr int kBytesPerToken = 4;

// Of a client's x-session-id; 0 where it is empty.
uint64_t SessionHash(std::string_view session, std::string_view tenant);

// How much a worker is one for this hash (rendezvous hashing): the highest of all is the place. A
// worker that comes or goes moves only what is its own.
uint64_t RendezvousScore(uint64_t hash, std::string_view address);

}  // namespace continuo::gateway
