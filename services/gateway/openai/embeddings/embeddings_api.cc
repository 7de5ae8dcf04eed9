// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/embeddings/embeddings_api.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "services/gateway/openai/embeddings/embed_room.h"
#include "services/gateway/openai/embeddings/embeddings_json.h"
#include "services/gateway/openai/embeddings/embeddings_request.h"
#include "services/gateway/relay/message_memory.h"
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

// The most values of one of the vectors.
size_t MostValues(const v1::EmbedResponse& response) {
  int most = 0;
  for (const v1::Embedding& vector : response.embeddings()) {
    most = std::max(most, vector.values_size());
  }
  return static_cast<size_t>(most);
}

// The memory of the vectors, and of the JSON that is made of them.
int64_t AnswerBytes(size_t num_vectors, size_t dimensions, bool base64) {
  const size_t vectors = num_vectors * (sizeof(v1::Embedding) + dimensions * sizeof(float));
  return static_cast<int64_t>(vectors + EmbeddingsJsonBytes(num_vectors, dimensions, base64));
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
  const auto num_vectors = static_cast<size_t>(parsed->request.inputs_size());
  std::vector<v1::EmbedRequest> parts = Divide(std::move(parsed->request), dimensions);
  std::vector<int64_t> part_bytes;
  for (const v1::EmbedRequest& part : parts) part_bytes.push_back(MemoryOf(part));
  const int64_t input_bytes = std::accumulate(part_bytes.begin(), part_bytes.end(), int64_t{0});
  // Where no worker has described the model, its first answer tells what vectors take.
  size_t told = model == nullptr || model->embedding_dimensions() == 0 ? 0 : dimensions;
  Answer answer = {.room = ByteBudget::Share(&connection.answers_budget())};
  const auto take_room = [&] {
    return TakeEmbedRoom(connection.answers_budget(),
                         input_bytes + AnswerBytes(num_vectors, told, parsed->base64), "input",
                         &answer.room);
  };
  if (absl::Status status = take_room(); !status.ok()) {
    co_return Answer{.status = std::move(status)};
  }
  std::vector<v1::EmbedResponse> responses;
  int first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    v1::EmbedRequest& part = parts[i];
    const int num_inputs = part.inputs_size();
    call.num_bytes = part_bytes[i];
    absl::StatusOr<v1::EmbedResponse> response = co_await calls_.Wait<v1::EmbedResponse>(
        connection, call.deadline,
        [&](auto done) { return service_->AskEmbed(call, std::move(part), std::move(done)); },
        [] {});
    if (!response.ok()) {
      co_return Answer{.status = WithEmbeddingsName(*parsed, first, response.status()),
                       .is_logged = true};
    }
    if (const size_t most = MostValues(*response); most > told) {
      told = most;
      if (absl::Status status = take_room(); !status.ok()) {
        co_return Answer{.status = std::move(status)};
      }
    }
    // All vectors of an answer are those of one fingerprint.
    call.fingerprint = response->fingerprint();
    first += num_inputs;
    responses.push_back(*std::move(response));
  }
  answer.body = EmbeddingsJson(responses, name, parsed->base64);
  co_return answer;
}

}  // namespace continuo::gateway::openai
