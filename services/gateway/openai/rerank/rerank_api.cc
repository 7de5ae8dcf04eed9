// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/rerank/rerank_api.h"

#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "services/gateway/openai/embeddings/embed_room.h"
#include "services/gateway/openai/rerank/rerank_json.h"
#include "services/gateway/relay/message_memory.h"
#include "services/protocol/find_model.h"

namespace continuo::gateway::openai {
namespace {

// The memory of the texts, of the scores, and of the JSON that is made of them.
int64_t CallBytes(const RerankCall& call) {
  size_t bytes = RerankJsonBytes(call) + call.texts.size() * sizeof(v1::Embedding);
  for (const auto* const texts : {&call.queries, &call.texts, &call.documents}) {
    for (const std::string& text : *texts) bytes += sizeof(text) + text.size();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

boost::asio::awaitable<RerankApi::Answer> RerankApi::Serve(HttpConnection& connection,
                                                           ScoreForm form, HttpRequest& request,
                                                           ClientCall call, std::string id) {
  absl::StatusOr<RerankCall> parsed = ParseRerank(form, request.body());
  // Each call reads the header.
  request.body() = {};
  connection.OnBodyDropped();
  if (!parsed.ok()) co_return Answer{.status = parsed.status()};
  const std::vector<v1::Model> models = models_(call);
  std::string name = parsed->options.model();
  if (const v1::Model* model = protocol::FindModel(models, name); model != nullptr) {
    name = model->name();
  }
  parsed->options.set_request_id(id);
  const size_t num_pairs = parsed->texts.size();
  Answer answer = {.room = ByteBudget::Share(&connection.answers_budget())};
  if (absl::Status status = TakeEmbedRoom(connection.answers_budget(), CallBytes(*parsed),
                                          parsed->document_name, &answer.room);
      !status.ok()) {
    co_return Answer{.status = std::move(status)};
  }
  std::vector<v1::EmbedResponse> responses;
  for (size_t first = 0; first < num_pairs;) {
    v1::EmbedRequest part = TakePart(*parsed, first);
    const int num_inputs = part.inputs_size();
    call.num_bytes = MemoryOf(part);
    absl::StatusOr<v1::EmbedResponse> response = co_await calls_.Wait<v1::EmbedResponse>(
        connection, call.deadline,
        [&](auto done) { return service_->AskEmbed(call, std::move(part), std::move(done)); },
        [] {});
    if (response.ok() && response->embeddings_size() != num_inputs) {
      response = absl::InternalError("a worker gave another number of scores than of pairs");
    }
    if (!response.ok()) {
      co_return Answer{.status = WithRerankName(*parsed, first, response.status()),
                       .is_logged = true};
    }
    // All scores of an answer are those of one fingerprint.
    call.fingerprint = response->fingerprint();
    first += static_cast<size_t>(num_inputs);
    responses.push_back(*std::move(response));
  }
  answer.body = RerankJson(*parsed, responses, id, name, absl::ToUnixSeconds(clock_->Now()));
  co_return answer;
}

}  // namespace continuo::gateway::openai
