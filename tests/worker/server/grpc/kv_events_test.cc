// SPDX-License-Identifier: Apache-2.0
// SubscribeKvEvents and GetTokenizer of vllm.grpc.engine.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/grpc/grpc_status.h"
#include "services/worker/engine/kv_event_log.h"
#include "services/worker/server/vllm_calls/tokenizer_call.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "vllm/vllm_engine.grpc.pb.h"

namespace continuo::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
namespace common_proto = ::smg::grpc::common;

constexpr size_t kBlockTokens = 4;

// One subscriber, which knows nothing but what it is told, and what it takes over from an earlier
// one.
class Subscriber {
 public:
  using Stub = ::vllm::grpc::engine::VllmEngine::Stub;

  Subscriber(Stub& stub, uint64_t start, const std::map<std::string, std::string>& metadata = {})
      : start_(start) {
    common_proto::SubscribeKvEventsRequest request;
    request.set_start_sequence_number(start);
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    reader_ = stub.SubscribeKvEvents(&context, request);
  }

  void TakeOver(const Subscriber& earlier) {
    blocks_ = earlier.blocks_;
    hashes_ = earlier.hashes_;
  }

  // Takes in one batch. False at the end.
  bool Read() {
    common_proto::KvEventBatch batch;
    if (!reader_->Read(&batch)) return false;
    EXPECT_EQ(batch.load().sample(), ++num_records_);
    if (batch.load().load_only()) {
      EXPECT_EQ(batch.sequence_number(), last_ == 0 ? start_ : last_);
      EXPECT_EQ(batch.events_size(), 0);
      ++num_alone_;
      return true;
    }
    EXPECT_TRUE(last_ == 0 || batch.sequence_number() == last_ + 1) << "no number is left out";
    last_ = batch.sequence_number();
    num_parts_ += batch.has_snapshot();
    for (const auto& event : batch.events()) Apply(event, batch.sequence_number() == start_);
    return true;
  }
  absl::Status Finish() {
    while (Read()) {
    }
    return common::FromGrpcStatus(reader_->Finish());
  }
  // Reads until the blocks of these tokens are there, or are not.
  void ReadUntil(const std::vector<uint32_t>& tokens, size_t found) {
    while (Find(tokens) != found) ASSERT_TRUE(Read());
  }
  // The number of blocks that are cached of the tokens' beginning.
  size_t Find(const std::vector<uint32_t>& tokens) const {
    size_t found = 0;
    int64_t parent = 0;
    for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens, ++found) {
      const std::vector<uint32_t> block(tokens.begin() + static_cast<ptrdiff_t>(at),
                                        tokens.begin() + static_cast<ptrdiff_t>(at + kBlockTokens));
      const auto next = hashes_.find({parent, block});
      if (next == hashes_.end()) break;
      parent = next->second;
    }
    return found;
  }
  uint64_t last() const { return last_; }
  size_t num_blocks() const { return blocks_.size(); }
  size_t num_removed() const { return num_removed_; }
  int num_parts() const { return num_parts_; }
  int num_alone() const { return num_alone_; }

  grpc::ClientContext context;

 private:
  using Block = std::pair<int64_t, std::vector<uint32_t>>;  // the parent's hash, and the tokens

  // The batch that a subscriber goes on with may be told `again`.
  void Apply(const common_proto::KvCacheEvent& event, bool again) {
    if (event.has_cleared()) {
      blocks_.clear();
      hashes_.clear();
    }
    for (const int64_t hash : event.removed().block_hashes()) {
      if (again && !blocks_.contains(hash)) continue;
      ASSERT_TRUE(blocks_.contains(hash));
      hashes_.erase(blocks_[hash]);
      blocks_.erase(hash);
      ++num_removed_;
    }
    int64_t parent = event.stored().parent_block_hash();
    for (const auto& block : event.stored().blocks()) {
      EXPECT_EQ(static_cast<size_t>(block.block_size()), kBlockTokens);
      EXPECT_TRUE(parent == 0 || blocks_.contains(parent));
      const Block stored(parent, {block.token_ids().begin(), block.token_ids().end()});
      EXPECT_TRUE(blocks_.try_emplace(block.block_hash(), stored).second || again);
      hashes_[stored] = block.block_hash();
      parent = block.block_hash();
    }
  }

  const uint64_t start_;
  std::unique_ptr<grpc::ClientReader<common_proto::KvEventBatch>> reader_;
  std::map<int64_t, Block> blocks_;
  std::map<Block, int64_t> hashes_;
  uint64_t last_ = 0;
  size_t num_removed_ = 0;
  int num_parts_ = 0, num_alone_ = 0;
  uint64_t num_records_ = 0;
};

class KvEventsTest : public WorkerServerTest {
 protected:
  explicit KvEventsTest(server::WorkerServerOptions options = {})
      : WorkerServerTest(std::move(options)), vllm_(NewStub()) {}

  std::unique_ptr<Subscriber::Stub> NewStub() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the window stays as it is: 64 KiB
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return ::vllm::grpc::engine::VllmEngine::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
  }
  // A prompt of so many tokens; those of different seeds have no beginning in common.
  static std::vector<uint32_t> Prompt(uint32_t seed, size_t size = 41) {
    std::vector<uint32_t> tokens(size, 1 + seed % 250);
    tokens[0] = seed / 250;
    return tokens;
  }
  void Ask(const std::vector<uint32_t>& tokens,
           const std::map<std::string, std::string>& metadata = {}, const std::string& salt = "") {
    v1::GenerateRequest request = BaseRequest(2);
    request.mutable_token_ids()->mutable_ids()->Add(tokens.begin(), tokens.end());
    request.mutable_cache()->set_salt(salt);
    const absl::Status status = Start(request, metadata)->Finish();
    EXPECT_TRUE(status.ok()) << status;
  }
  engine::KvEventLog& log() { return server_->runtime().serving.get()->engine->kv_event_log(); }

  const std::unique_ptr<Subscriber::Stub> vllm_;
};

TEST_F(KvEventsTest, SubscribersAreToldWhatIsCached) {
  Serve();
  Ask(Prompt(1));
  Subscriber early(*vllm_, 0);
  early.ReadUntil(Prompt(1), 10);
  EXPECT_EQ(early.num_parts(), 1);
  Ask(Prompt(2));
  early.ReadUntil(Prompt(2), 10);
  Subscriber late(*vllm_, 0);
  late.ReadUntil(Prompt(2), 10);
  EXPECT_EQ(late.Find(Prompt(1)), 10u);
  EXPECT_EQ(late.num_blocks(), early.num_blocks());
  // A prompt that finds all of its blocks stores what is behind them.
  Ask(Prompt(2, 61));
  early.ReadUntil(Prompt(2, 61), 15);
  late.ReadUntil(Prompt(2, 61), 15);
  EXPECT_EQ(early.last(), late.last());
}

TEST_F(KvEventsTest, BlocksThatMakeRoomAreRemoved) {
  Serve();
  Subscriber subscriber(*vllm_, 0);
  ASSERT_TRUE(subscriber.Read());
  // The cache has room for four of these.
  for (uint32_t i = 1; i <= 6; ++i) Ask(Prompt(i, 3901));
  subscriber.ReadUntil(Prompt(6, 3901), 975);
  EXPECT_GT(subscriber.num_removed(), 500u);
  EXPECT_LE(subscriber.num_blocks(), 4096u);
}

TEST_F(KvEventsTest, ASubscriberGoesOnWhereItWas) {
  Serve();
  Subscriber subscriber(*vllm_, 0);
  Ask(Prompt(1));
  subscriber.ReadUntil(Prompt(1), 10);
  const uint64_t last = subscriber.last();
  subscriber.context.TryCancel();
  while (subscriber.Read()) {
  }
  Ask(Prompt(2));
  Subscriber again(*vllm_, last);
  again.TakeOver(subscriber);
  again.ReadUntil(Prompt(2), 10);
  EXPECT_EQ(again.num_parts(), 0);
  Subscriber stranger(*vllm_, 17);
  const absl::Status status = stranger.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("begin with 0"));
}

TEST_F(KvEventsTest, ATenantIsToldOfItsOwnBlocksWithoutASalt) {
  Serve();
  Subscriber plain(*vllm_, 0), mine(*vllm_, 0, {{"x-tenant-id", "mine"}});
  Ask(Prompt(1), {{"x-tenant-id", "other"}});
  Ask(Prompt(2), {}, "a salt");
  Ask(Prompt(3), {{"x-tenant-id", "mine"}});
  Ask(Prompt(4));
  plain.ReadUntil(Prompt(4), 10);
  mine.ReadUntil(Prompt(3), 10);
  EXPECT_EQ(plain.num_blocks(), 10u);
  while (mine.last() < plain.last()) ASSERT_TRUE(mine.Read());
  EXPECT_EQ(mine.num_blocks(), 10u);
  // So are those who come later.
  Subscriber late(*vllm_, 0);
  late.ReadUntil(Prompt(4), 10);
  EXPECT_EQ(late.num_blocks(), 10u);
}

TEST_F(KvEventsTest, OneWhoDoesNotReadHoldsNothingUp) {
  Serve();
  Subscriber subscriber(*vllm_, 0);
  ASSERT_TRUE(subscriber.Read());
  const auto other = NewStub();
  Subscriber stalled(*other, 0);
  ASSERT_TRUE(stalled.Read());
  // More than the log keeps and a connection holds.
  size_t logged = 0;
  for (uint32_t i = 1; logged < engine::KvEventLog::kMaxBytes + (2 << 20); ++i) {
    const std::vector<uint32_t> prompt = Prompt(i, 3901);
    Ask(prompt);
    logged += prompt.size() * sizeof(uint32_t) + 975 * sizeof(engine::BlockName);
    subscriber.ReadUntil(prompt, 975);
  }
  const absl::Status status = stalled.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("too slow"));
  Subscriber again(*other, 0);
  ASSERT_TRUE(again.Read());
  EXPECT_GT(again.num_parts(), 0);
}

TEST_F(KvEventsTest, ManySubscribersAreTooMany) {
  Serve();
  std::vector<std::unique_ptr<Subscriber>> all;
  for (int i = 0; i < engine::KvEventLog::kMaxWatches; ++i) {
    all.push_back(std::make_unique<Subscriber>(*vllm_, 0));
    ASSERT_TRUE(all.back()->Read());
  }
  EXPECT_EQ(Subscriber(*vllm_, 0).Finish().code(), absl::StatusCode::kResourceExhausted);
  all[0]->context.TryCancel();
  EXPECT_EQ(all[0]->Finish().code(), absl::StatusCode::kCancelled);
  Ask(Prompt(1));
  for (size_t i = 1; i < all.size(); ++i) all[i]->ReadUntil(Prompt(1), 10);
}

TEST_F(KvEventsTest, ASubscriberWaitsForAModelAndDoesNotOutliveTheWorker) {
  EXPECT_EQ(Subscriber(*vllm_, 0).Finish().code(), absl::StatusCode::kUnavailable);
  Serve();
  Subscriber subscriber(*vllm_, 0);
  ASSERT_TRUE(subscriber.Read());
  server_->Shutdown();
  EXPECT_EQ(subscriber.Finish().code(), absl::StatusCode::kUnavailable);
}

TEST_F(KvEventsTest, TheLoadComesAlsoWithoutEvents) {
  Serve();
  Subscriber subscriber(*vllm_, 0);
  while (subscriber.num_alone() < 2) ASSERT_TRUE(subscriber.Read());
}

TEST_F(KvEventsTest, WhatIsNotKnownIsRefused) {
  Serve();
  common_proto::SubscribeKvEventsRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  grpc::ClientContext context;
  auto reader = vllm_->SubscribeKvEvents(&context, request);
  common_proto::KvEventBatch batch;
  EXPECT_FALSE(reader->Read(&batch));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// The file exists before the worker is made.
struct WithFleetToken {
  WithFleetToken() { std::ofstream(path) << "token-of-the-fleet-1\n"; }
  const TempFolder temp;
  const std::string path = absl::StrCat(temp.path().string(), "/token");
};

class KvEventsPeersTest : private WithFleetToken, public KvEventsTest {
 protected:
  KvEventsPeersTest() : KvEventsTest({.token_file = path, .open_inference = true}) {}
};

TEST_F(KvEventsPeersTest, PromptsAreToldToPeersAlone) {
  Serve();
  EXPECT_EQ(Subscriber(*vllm_, 0).Finish().code(), absl::StatusCode::kUnauthenticated);
  Subscriber peer(*vllm_, 0, {{"x-continuo-token", "token-of-the-fleet-1"}});
  EXPECT_TRUE(peer.Read());
}

class GetTokenizerTest : public KvEventsTest {
 protected:
  void ServeFiles(const std::string& path) {
    server::ServedModel model = MakeServedModel(text_.get());
    if (!path.empty()) model.bundler = std::make_shared<text::TokenizerBundler>(path);
    server_->Serve(std::move(model),
                   {.num_blocks = 64, .block_size = 4, .vocab_size = kVocab, .calibrate = false},
                   &executor_, [](const absl::Status& status) { ADD_FAILURE() << status; });
  }
  // Returns the parts.
  std::vector<common_proto::GetTokenizerChunk> Get(absl::Status* status) {
    grpc::ClientContext context;
    auto reader = vllm_->GetTokenizer(&context, {});
    std::vector<common_proto::GetTokenizerChunk> parts;
    common_proto::GetTokenizerChunk part;
    while (reader->Read(&part)) parts.push_back(part);
    *status = common::FromGrpcStatus(reader->Finish());
    return parts;
  }
};

TEST_F(GetTokenizerTest, TheArchiveComesInPartsWithItsDigestAtTheEnd) {
  const TempFolder folder;
  const std::string path = folder.path().string();
  std::string vocabulary;
  for (uint64_t i = 0, x = 1; i < 60000; ++i)
    absl::StrAppend(&vocabulary, x = x * 48271 % 2147483647);
  std::ofstream(path + "/tokenizer.json") << vocabulary;
  ServeFiles(path);
  absl::Status status;
  const auto parts = Get(&status);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_GT(parts.size(), 2u);
  std::string zip;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].sha256().empty(), i + 1 < parts.size());
    EXPECT_LE(parts[i].data().size(), server::TokenizerCall::kPartBytes);
    zip += parts[i].data();
  }
  server_->runtime().serving.get()->model.bundler->Get(
      [](const std::function<void()>&) { ADD_FAILURE() << "it was made for the call"; },
      [&](const text::TokenizerBundler::Result& bundle) {
        ASSERT_TRUE(bundle.ok()) << bundle.status();
        EXPECT_TRUE(zip == (*bundle)->zip);
        EXPECT_EQ(parts.back().sha256(), (*bundle)->sha256);
      });
}

TEST_F(GetTokenizerTest, WithoutFilesThereIsNone) {
  absl::Status status;
  EXPECT_THAT(Get(&status), SizeIs(0));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "it loads";
  ServeFiles("");
  EXPECT_THAT(Get(&status), SizeIs(0));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(GetTokenizerTest, FilesThatWereChangedAreNotTold) {
  const TempFolder folder;
  const std::string path = folder.path().string();
  std::ofstream(path + "/tokenizer.json") << "{}";
  ServeFiles(path);
  std::ofstream(path + "/tokenizer.json") << "{\"other\": 1}";
  absl::Status status;
  EXPECT_THAT(Get(&status), SizeIs(0));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("tokenizer.json was changed"));
}

}  // namespace
}  // namespace continuo::testing
