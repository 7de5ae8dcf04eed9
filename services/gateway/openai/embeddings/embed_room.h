// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {

// Takes `bytes` for a request's inputs and its answer in one piece, which it has from before
// workers are asked until it is sent. INVALID_ARGUMENT names the member `field` where so many never
// have room; RESOURCE_EXHAUSTED where they have none now.
inline absl::Status TakeEmbedRoom(ByteBudget& budget, int64_t bytes, std::string_view field,
                                  ByteBudget::Share* room) {
  const int64_t most = budget.limit() / 2;  // of a share that leaves room
  if (bytes > most) {
    return protocol::FieldError(
        field, absl::StrCat("takes up to ", bytes, " bytes with its answer, the limit is ", most));
  }
  if (!*room) *room = ByteBudget::Share(&budget);
  if (room->ResizeLeavingRoom(bytes)) return absl::OkStatus();
  room->Release();
  return protocol::OverloadedError("answers in one piece have taken their memory");
}

}  // namespace continuo::gateway::openai
