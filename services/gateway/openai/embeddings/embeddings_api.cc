// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_api.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "services/gateway/openai/embeddings/embeddings_json.h"
#include "services/gateway/openai/embeddings/embeddings_request.h"
#include "services/gateway/relay/message_memory.h"
#include "services/protocol/error.h"
#include "services/protocol/find_model.h"

namespace continuo::gateway::openai {
namespace {

// Vectors of a model that no worker has described yet count as these.
constexpr uint32_t kUnknownDimensions = 4096;

uint32_t DimensionsOf(const v1::EmbedRequest& request, const v1::Model* model) {
  const uint32_t all = model == nullptr || model->embedding_dimensions() == 0
                           ? kUnknownDimensions
                           : model->embedding_dimensions();
  return request.has_dimensions() ? std::min(request.dimensions(), all) : all;
}

}  // namespace

boost::asio::awaitable<EmbeddingsApi::Answer> EmbeddingsApi::Serve(HttpConnection& connection,
                                                                   HttpRequest& request,
                                                                   ClientCall call) {
  absl::StatusOr<EmbeddingsCall> parsed = ParseEmbeddings(request.body());
  // Each call reads the header.
  request.body() = {};
  connection.OnBodyDropped();
  if (!parsed.ok()) co_return Answer{.status = parsed.status()};
  const std::vector<v1::Model> models = models_(call);
  const v1::Model* const model = protocol::FindModel(models, parsed->request.model());
  const std::string name = model == nullptr ? parsed->request.model() : model->name();
  const uint32_t dimensions = DimensionsOf(parsed->request, model);
  std::vector<v1::EmbedRequest> parts = Divide(std::move(parsed->request), dimensions);
  std::vector<v1::EmbedResponse> responses;
  int first = 0;
  for (v1::EmbedRequest& part : parts) {
    const int num_inputs = part.inputs_size();
    call.num_bytes = MemoryOf(part);
    absl::StatusOr<v1::EmbedResponse> response = co_await calls_.Wait<v1::EmbedResponse>(
        connection, call.deadline,
        [&](auto done) { return service_->AskEmbed(call, std::move(part), std::move(done)); },
        [] {});
    if (!response.ok()) {
      co_return Answer{.status = WithEmbeddingsName(*parsed, first, response.status()),
                       .is_logged = true};
    }
    first += num_inputs;
    responses.push_back(*std::move(response));
  }
  Answer answer = {.room = ByteBudget::Share(&connection.answers_budget())};
  if (!answer.room.ResizeLeavingRoom(
          static_cast<int64_t>(EmbeddingsJsonBytes(responses, parsed->base64)))) {
    answer.room.Release();
    answer.status = protocol::OverloadedError("answers in one piece have taken their memory");
    co_return answer;
  }
  answer.body = EmbeddingsJson(responses, name, parsed->base64);
  co_return answer;
}

}  // namespace continuo::gateway::openai
