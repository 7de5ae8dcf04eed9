// SPDX-License-Identifier: Apache-2.0
// Protos of any bytes through the gateway's and the worker's checks, and what they let pass through
// a real engine with a tiny model, to its end. The answer is well-formed; sent again with what was
// received of it, the request gives the same. A neighbour in the same steps gets the same tokens,
// text and log-probabilities each time, and no KV block stays in use.
//
// The first four bytes: what the rest is (below 5: a GenerateRequest; then a worker's
// GenerateResponse, a TokenizeRequest, a DetokenizeRequest); how many responses the client reads
// before it leaves (0: all); how many a continuation brings; the deadline in steps (0: none).
#if __has_include(<google/protobuf/stubs/logging.h>)
#include <google/protobuf/stubs/logging.h>
#endif

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/gateway/requests/prompt_tokens.h"
#include "services/gateway/routing/route_hash.h"
#include "services/protocol/continuation.h"
#include "services/protocol/limits.h"
#include "services/protocol/validate_request.h"
#include "services/protocol/wire_check.h"
#include "services/worker/engine/engine.h"
#include "services/worker/model/load/model_loader.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/generate_session.h"
#include "services/worker/server/session/text_answers.h"
#include "services/worker/server/session/validate.h"
#include "tests/testing/forwarding_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/tiny_model.h"

namespace continuo {
namespace {

constexpr size_t kControlBytes = 4;
constexpr int kNumBlocks = 48, kBlockSize = 4;  // less than four sequences may need
constexpr uint32_t kMaxTokens = 12, kMaxSequencesRun = 4;

// A step takes a millisecond.
class ClockedExecutor : public ForwardingExecutor {
 public:
  ClockedExecutor(model::Executor* executor, ManualClock* clock)
      : ForwardingExecutor(executor), clock_(clock) {}
  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override {
    clock_->Advance(absl::Milliseconds(1));
    return ForwardingExecutor::Start(plan, fill_mask);
  }

 private:
  ManualClock* const clock_;
};

// Writes one answer to a client that reads this many responses and then leaves; 0: all.
class Stream : public server::ResponseWriter {
 public:
  explicit Stream(size_t leaves_after) : leaves_after_(leaves_after) {}

  void Attach(std::shared_ptr<server::GenerateSession> session) { session_ = std::move(session); }
  void OnEvent(engine::RequestEvent event) {
    session_->OnEvent(std::move(event));
    Pump();
  }
  void Pump() {
    while (std::exchange(writing_, false)) {
      session_->WriteDone(leaves_after_ == 0 || responses_.size() < leaves_after_);
    }
  }
  void Write(v1::GenerateResponse response) override {
    CONTINUO_CHECK(!writing_ && !status_.has_value());
    writing_ = true;
    responses_.push_back(std::move(response));
  }
  void Finish(absl::Status status) override {
    CONTINUO_CHECK(!writing_ && !status_.has_value());
    status_ = std::move(status);
  }
  void WriteLast(v1::GenerateResponse response, absl::Status status) override {
    Write(std::move(response));
    writing_ = false;
    Finish(std::move(status));
  }

  const std::vector<v1::GenerateResponse>& responses() const { return responses_; }
  const absl::Status& status() const { return *status_; }
  bool finished() const { return status_.has_value(); }

 private:
  const size_t leaves_after_;
  std::shared_ptr<server::GenerateSession> session_;
  std::vector<v1::GenerateResponse> responses_;
  std::optional<absl::Status> status_;
  bool writing_ = false;
};

// The content of an answer, independent of its division into responses.
struct Joined {
  struct Sequence {
    std::string text;
    std::vector<uint32_t> ids;
    std::vector<float> logprobs;
    int finish = 0;
    bool operator==(const Sequence&) const = default;
  };
  std::map<uint32_t, Sequence> sequences;
  uint32_t completion_tokens = 0;
  bool operator==(const Joined&) const = default;
};

void JoinTo(const v1::GenerateResponse& response, Joined* joined) {
  for (const v1::Delta& delta : response.deltas()) {
    Joined::Sequence& sequence = joined->sequences[delta.index()];
    CONTINUO_CHECK(sequence.finish == 0);
    CONTINUO_CHECK(IsUtf8(delta.text()));
    sequence.text += delta.text();
    sequence.ids.insert(sequence.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    for (const v1::TokenLogprob& l : delta.logprobs()) sequence.logprobs.push_back(l.logprob());
    sequence.finish = delta.finish_reason();
  }
  if (response.has_summary()) {
    joined->completion_tokens = response.summary().usage().completion_tokens();
  }
}

Joined Join(const std::vector<v1::GenerateResponse>& responses) {
  Joined joined;
  for (const v1::GenerateResponse& response : responses) JoinTo(response, &joined);
  return joined;
}

// Checks an answer that was read to its end.
void CheckWhole(const v1::GenerateRequest& request, const Stream& stream) {
  if (!stream.status().ok()) return;
  const auto& responses = stream.responses();
  if (request.continuation().received().has_summary()) {
    CONTINUO_CHECK(responses.empty());
    return;
  }
  CONTINUO_CHECK(!responses.empty() && responses.front().has_accepted());
  const size_t limit =
      request.output().collect() ? protocol::kMaxUnsplitResponseBytes : protocol::kMaxResponseBytes;
  for (size_t i = 0; i < responses.size(); ++i) {
    CONTINUO_CHECK(responses[i].sequence() == responses[0].sequence() + i);
    CONTINUO_CHECK(responses[i].ByteSizeLong() <= limit);
    CONTINUO_CHECK(responses[i].has_summary() == (i + 1 == responses.size()));
  }
  CONTINUO_CHECK(!request.output().collect() || responses.size() == 1);
}

class Worker {
 public:
  Worker() {
    {
      // Loads the model from a folder that is then removed.
      const testing::TinyModel files({.hidden_size = 16,
                                      .intermediate_size = 24,
                                      .num_layers = 1,
                                      .num_heads = 2,
                                      .num_kv_heads = 1,
                                      .context_length = 64});
      auto text = text::TextModel::Open(files.dir());
      CONTINUO_CHECK(text.ok());
      text_ = *std::move(text);
      auto model = model::LoadModel({.source = {.dir = files.dir()},
                                     .kv = {.block_size = kBlockSize, .num_blocks = kNumBlocks},
                                     .max_batch_tokens = 64});
      CONTINUO_CHECK(model.ok());
      model_ = *std::move(model);
    }
    served_.name = "tiny";
    served_.worker = "w";
    served_.max_context_tokens = model_.config.context_length;
    served_.vocab_size = model_.config.vocab_size;
    served_.fingerprint = "F";
    served_.tokenizer_fingerprint = "T";
    served_.eos_ids = model_.config.defaults.eos_token_ids;
    served_.text = text_.get();
    server::FinishServedModel(served_);
    executor_ = std::make_unique<ClockedExecutor>(model_.executor.get(), &clock_);

    neighbour_.set_text("a neighbour says");
    neighbour_.mutable_sampling()->set_temperature(0.9F);
    neighbour_.mutable_sampling()->set_seed(7);
    neighbour_.mutable_sampling()->set_frequency_penalty(0.5F);
    neighbour_.mutable_stopping()->set_max_tokens(4);
    neighbour_.mutable_output()->set_logprobs(1);
    Begin();
    const auto alone = Submit(neighbour_, CallOf("neighbour"), 0, nullptr);
    CONTINUO_CHECK(alone.ok());
    Run();
    expected_ = Join((*alone)->responses());
    CONTINUO_CHECK((*alone)->status().ok() && expected_.sequences[0].ids.size() == 4);
  }

  const server::ServedModel& served() const { return served_; }
  absl::Time now() const { return clock_.Now(); }

  void Generate(v1::GenerateRequest request, const uint8_t* control) {
    const absl::Status at_gateway = protocol::ValidateGenerate(request);
    gateway::EstimatePromptTokens(request);
    protocol::ReceivedResponses received;
    received.Begin(request.continuation().received());
    received.ToProto();
    // A gateway rejects no request that its worker takes.
    if (server::ValidateGenerate(request, served_).ok()) CONTINUO_CHECK(at_gateway.ok());

    // Limits are lowered, so that an execution is short.
    v1::Sampling& sampling = *request.mutable_sampling();
    if (sampling.num_sequences() > kMaxSequencesRun &&
        sampling.num_sequences() <= protocol::kMaxSequences) {
      sampling.set_num_sequences(kMaxSequencesRun);
    }
    v1::Stopping& stopping = *request.mutable_stopping();
    if (!stopping.has_max_tokens() || stopping.max_tokens() > kMaxTokens) {
      stopping.set_max_tokens(std::max(kMaxTokens, std::min(stopping.min_tokens(), 64u)));
    }
    server::CallInfo call = CallOf("hostile");
    if (control[3] > 0) call.deadline = clock_.Now() + absl::Milliseconds(control[3]);
    call.is_migration = (control[3] & 1) != 0;

    Begin();
    std::shared_ptr<Stream> again;
    // It runs while the engine does, so that it finds the first one's blocks in the cache.
    const auto follow = [&](const Stream& first) {
      if (control[1] > 0 || control[3] > 0 || !first.status().ok()) return;
      auto stream = Submit(Continued(request, first, control[2]), CallOf("hostile"), 0, nullptr);
      CONTINUO_CHECK(stream.ok());
      again = *stream;
    };
    const auto stream = Submit(request, call, control[1], follow);
    CheckRefusal(stream.status());
    if (!stream.ok() || num_open_ == 0) {
      // There is nothing to compute, so the neighbour is not disturbed.
      if (stream.ok()) CheckWhole(request, **stream);
      return;
    }
    const auto neighbour = Submit(neighbour_, CallOf("neighbour"), 0, nullptr);
    CONTINUO_CHECK(neighbour.ok());
    Run();
    CONTINUO_CHECK((*neighbour)->status().ok() && Join((*neighbour)->responses()) == expected_);
    if (control[1] == 0) CheckWhole(request, **stream);
    if (again != nullptr) CheckAgain(request, **stream, *again, control[2]);
  }

 private:
  using Follow = std::function<void(const Stream&)>;

  static server::CallInfo CallOf(const char* tenant) {
    server::CallInfo call;
    call.tenant = tenant;
    call.random = [] { return uint64_t{77} << 11; };
    return call;
  }

  // Makes a fresh engine over the same model.
  void Begin() {
    engine_ =
        std::make_unique<engine::Engine>(engine::EngineOptions{.num_blocks = kNumBlocks,
                                                               .block_size = kBlockSize,
                                                               .vocab_size = served_.vocab_size,
                                                               .max_batch_tokens = 48,
                                                               .max_prefill_chunk = 16,
                                                               .max_running = 6,
                                                               .calibrate = false},
                                         executor_.get(), &clock_, &metrics_);
    num_open_ = 0;
  }

  // Runs on this thread until everything submitted has ended.
  void Run() {
    CONTINUO_CHECK(engine_->Run().ok());
    const engine::EngineLoad load = engine_->Load();
    CONTINUO_CHECK(load.used_blocks == 0 && load.running == 0 && load.waiting == 0);
  }

  // `follow` is called at its end.
  absl::StatusOr<std::shared_ptr<Stream>> Submit(const v1::GenerateRequest& request,
                                                 server::CallInfo call, size_t leaves_after,
                                                 Follow follow) {
    call.now = clock_.Now();
    absl::StatusOr<server::Generation> generation =
        server::PrepareGeneration(request, call, served_, server::SaltKey(call.random));
    if (!generation.ok()) return generation.status();
    const engine::RequestId id = next_id_++;
    generation->request.id = id;
    auto stream = std::make_shared<Stream>(leaves_after);
    engine::Engine* const engine = engine_.get();
    auto session = server::GenerateSession::Create(
        *generation, stream.get(),
        {.finish_sequence = [=](int index) { engine->FinishSequence(id, index); },
         .cancel = [=](absl::Status why) { engine->Cancel(id, std::move(why)); },
         .cut = [](const absl::Status&) {}},
        &pool_, {std::shared_ptr<const void>(), &served_}, &clock_);
    stream->Attach(session);
    if (!session->needs_engine()) {
      session->AnswerFromReceived();
      stream->Pump();
      CONTINUO_CHECK(stream->finished());
      return stream;
    }
    const absl::Status submitted =
        engine->Submit(std::move(generation->request),
                       [this, stream, follow = std::move(follow)](engine::RequestEvent event) {
                         const bool ended = event.ended.has_value();
                         stream->OnEvent(std::move(event));
                         if (!ended) return;
                         CONTINUO_CHECK(stream->finished());
                         if (follow != nullptr) follow(*stream);
                         if (--num_open_ == 0) engine_->Stop();
                       });
    if (!submitted.ok()) return submitted;
    ++num_open_;
    return stream;
  }

  // Returns the continuation with the first responses, as a gateway keeps them.
  static v1::GenerateRequest Continued(const v1::GenerateRequest& request, const Stream& first,
                                       size_t num_responses) {
    protocol::ReceivedResponses received;
    received.Begin(request.continuation().received());
    for (size_t i = 0; i < std::min(num_responses, first.responses().size()); ++i) {
      CONTINUO_CHECK(received.Add(first.responses()[i]).ok());
    }
    v1::GenerateRequest again = request;
    again.clear_continuation();
    if (!received.nothing()) {
      *again.mutable_continuation()->mutable_received() = received.ToProto();
    }
    return again;
  }

  static void CheckAgain(const v1::GenerateRequest& request, const Stream& first,
                         const Stream& second, size_t num_responses) {
    CheckWhole(Continued(request, first, num_responses), second);
    // Fields that depend on time or on another worker may differ.
    if (request.has_continuation() || request.stopping().has_time_limit()) return;
    CONTINUO_CHECK(second.status().ok());
    Joined joined;
    for (size_t i = 0; i < std::min(num_responses, first.responses().size()); ++i) {
      JoinTo(first.responses()[i], &joined);
    }
    for (const v1::GenerateResponse& response : second.responses()) JoinTo(response, &joined);
    CONTINUO_CHECK(joined == Join(first.responses()));
  }

  static void CheckRefusal(const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kOk:
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kNotFound:
      case absl::StatusCode::kFailedPrecondition:
      case absl::StatusCode::kUnavailable:  // exact_only
      case absl::StatusCode::kDeadlineExceeded:
        return;
      default:
        CONTINUO_CHECK(status.ok());
    }
  }

  ManualClock clock_;
  std::unique_ptr<text::TextModel> text_;
  model::LoadedModel model_;
  server::ServedModel served_;
  std::unique_ptr<model::Executor> executor_;
  engine::EngineMetrics metrics_;
  server::WorkPool pool_{0};
  std::unique_ptr<engine::Engine> engine_;
  engine::RequestId next_id_ = 1;
  int num_open_ = 0;
  v1::GenerateRequest neighbour_;
  Joined expected_;
};

// Merges a response from a worker, which may be anything.
void Receive(const v1::GenerateResponse& response) {
  protocol::ReceivedResponses received;
  if (!received.Add(response).ok()) {
    CONTINUO_CHECK(received.nothing());
    return;
  }
  const v1::GenerateResponse kept = received.ToProto();
  protocol::ReceivedResponses again;
  again.Begin(kept);
  CONTINUO_CHECK(!response.has_accepted() || again.num_tokens() == received.num_tokens());
  v1::GenerateResponse next = response;
  next.set_sequence(response.sequence() + 1);
  if (received.Add(next).ok()) received.ToProto();
}

protocol::WireCounts Count(std::string_view bytes, const google::protobuf::Descriptor& type) {
  google::protobuf::io::ArrayInputStream input(bytes.data(), static_cast<int>(bytes.size()));
  return protocol::CountOnWire(&input, type);
}

// Parses the bytes, and checks that the values in the message are no more than Count has found.
template <typename T>
std::optional<T> Parse(std::string_view bytes) {
  T message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  const protocol::WireCounts before = Count(bytes, *T::descriptor());
  const protocol::WireCounts parsed = Count(message.SerializeAsString(), *T::descriptor());
  CONTINUO_CHECK(before.values >= parsed.values && before.numbers >= parsed.numbers);
  return message;
}

}  // namespace
}  // namespace continuo

// Silences Protocol Buffers' log line for each input that does not parse.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
#if __has_include(<google/protobuf/stubs/logging.h>)
  google::protobuf::SetLogHandler(nullptr);
#endif
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace continuo;
  if (size < kControlBytes) return 0;
  static Worker worker;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + kControlBytes,
                               size - kControlBytes);
  switch (data[0] % 8) {
    case 5:
      if (const auto response = Parse<v1::GenerateResponse>(bytes)) Receive(*response);
      break;
    case 6:
      if (const auto request = Parse<v1::TokenizeRequest>(bytes)) {
        const auto answer = server::AnswerTokenize(*request, worker.now(), worker.served());
        CONTINUO_CHECK(!answer.ok() || IsUtf8(answer->rendered_prompt()));
      }
      break;
    case 7:
      if (const auto request = Parse<v1::DetokenizeRequest>(bytes)) {
        const auto answer = server::AnswerDetokenize(*request, worker.served());
        CONTINUO_CHECK(!answer.ok() || IsUtf8(answer->text()));
      }
      break;
    default:
      if (auto request = Parse<v1::GenerateRequest>(bytes)) {
        worker.Generate(*std::move(request), data);
      }
  }
  return 0;
}
