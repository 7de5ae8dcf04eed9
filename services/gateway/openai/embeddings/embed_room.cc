// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embed_room.h"

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {

absl::Status TakeEmbedRoom(const ByteBudget& budget, int64_t bytes, std::string_view field,
                           ByteBudget::Share* room) {
  const int64_t most = budget.limit() / 2;  // of a share that leaves room
  if (bytes > most) {
    return protocol::FieldError(
        field, absl::StrCat("takes up to ", bytes, " bytes with its answer, the limit is ", most));
  }
  if (room->ResizeLeavingRoom(bytes)) return absl::OkStatus();
  room->Release();
  return protocol::OverloadedError("answers in one piece have taken their memory");
}

}  // namespace continuo::gateway::openai
