// SPDX-License-Identifier: Apache-2.0
#include "services/worker/config.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "services/worker/model/load/load_plan.h"
#include "tests/testing/tiny_model.h"

namespace continuo::worker {
namespace {

using testing::TinyModel;

int ExitCode(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "continuo-worker");
  return ParseWorkerConfig(static_cast<int>(arguments.size()), arguments.data())
      .exit_code.value_or(-1);
}

TEST(WorkerConfigTest, NamesTheModelAfterItsFolder) {
  for (const char* folder : {"--model=/some/where/tiny", "--model=/some/where/tiny/"}) {
    const std::vector<const char*> arguments = {"continuo-worker", folder};
    EXPECT_EQ(ParseWorkerConfig(2, arguments.data()).config.model_name, "tiny");
  }
}

TEST(WorkerConfigTest, PeersAreKnownByNamesAndTokens) {
  const std::vector<const char*> arguments = {"continuo-worker", "--model=m",
                                              "--tls_client_names=a.test,spiffe://b/*",
                                              "--token_file=/t", "--open_inference"};
  const WorkerConfig config =
      ParseWorkerConfig(static_cast<int>(arguments.size()), arguments.data()).config;
  EXPECT_EQ(config.tls_client_names, (std::vector<std::string>{"a.test", "spiffe://b/*"}));
  EXPECT_EQ(config.token_file, "/t");
  EXPECT_TRUE(config.open_inference);
  EXPECT_EQ(ExitCode({"--model=m", "--tls_client_names=a,,b"}), 2);
}

TEST(WorkerConfigTest, ALinkToAFolderIsFollowedOnce) {
  const TinyModel model;
  const std::string link = model.dir() + ".link";
  std::filesystem::create_directory_symlink(model.dir(), link);
  const std::string flag = "--model=" + link;
  const std::vector<const char*> arguments = {"continuo-worker", flag.c_str()};
  const WorkerConfig config = ParseWorkerConfig(2, arguments.data()).config;
  std::filesystem::remove(link);
  EXPECT_EQ(config.load.source.dir, std::filesystem::canonical(model.dir()));
  EXPECT_EQ(config.model_name, std::filesystem::path(link).filename());
}

TEST(WorkerConfigTest, AdaptersHaveNamesAndFolders) {
  const std::vector<const char*> arguments = {"continuo-worker", "--model=m",
                                              "--lora_adapter=org/poet=/a=b",
                                              "--lora_adapter=clerk=/c,pirate=/p"};
  const std::vector<model::AdapterSource> adapters =
      ParseWorkerConfig(static_cast<int>(arguments.size()), arguments.data()).config.load.adapters;
  ASSERT_EQ(adapters.size(), 3u);
  EXPECT_EQ(adapters[0].name, "org/poet");
  EXPECT_EQ(adapters[0].dir, "/a=b");
  EXPECT_EQ(adapters[2].name, "pirate");
  EXPECT_EQ(adapters[2].dir, "/p");
  const std::string long_name = "--lora_adapter=" + std::string(257, 'a') + "=/x";
  for (const char* flag :
       {"--lora_adapter=poet", "--lora_adapter==/x", "--lora_adapter=poet=", "--lora_adapter=a=/x,",
        "--lora_adapter=m=/x", "--lora_adapter=a=/x,a=/y", "--lora_adapter=\xff=/x",
        long_name.c_str()}) {
    EXPECT_EQ(ExitCode({"--model=m", flag}), 2) << flag;
  }
}

TEST(WorkerConfigTest, AdaptersThatAreReadLaterHaveAFolderAndLimits) {
  const auto parse = [](std::vector<const char*> flags) {
    flags.insert(flags.begin(), {"continuo-worker", "--model=m", "--lora_root=/r"});
    return ParseWorkerConfig(static_cast<int>(flags.size()), flags.data())
        .config.load.run_time_adapters;
  };
  EXPECT_EQ(parse({}).root, "/r");
  EXPECT_EQ(parse({}).most, 16);
  EXPECT_EQ(parse({}).max_rank, 64);
  EXPECT_EQ(parse({"--lora_adapter=a=/a,b=/b"}).most, 18);
  EXPECT_EQ(parse({"--lora_adapter=a=/a,b=/b", "--max_lora_adapters=3"}).most, 3);
  EXPECT_EQ(parse({"--max_lora_rank=256"}).max_rank, 256);
  EXPECT_EQ(ExitCode({"--model=m", "--lora_root=/r", "--lora_adapter=a=/a,b=/b",
                      "--max_lora_adapters=2"}),
            2)
      << "no room";
  EXPECT_EQ(ExitCode({"--model=m", "--lora_root=/r", "--max_lora_adapters=257"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--lora_root=/r", "--max_lora_rank=257"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--max_lora_adapters=4"}), 2) << "of no use";
  EXPECT_EQ(ExitCode({"--model=m", "--max_lora_rank=64"}), 2);
}

TEST(WorkerConfigTest, BadCommandLinesEndWithTwo) {
  EXPECT_EQ(ExitCode({}), 2) << "no model";
  for (const char* flag :
       {"--threads=0", "--threads=x", "--tensor_parallel=3", "--isa=sse9", "--weights=int3",
        "--kv_dtype=int4", "--drain_grace=31s", "--listen=nowhere", "--block_size=-1",
        "--kv_cache_memory=much", "--nonsense=1"}) {
    EXPECT_EQ(ExitCode({"--model=m", flag}), 2) << flag;
  }
  EXPECT_EQ(ExitCode({"--model=m", "--drain_grace=30001ms"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--max_buffer_bytes=16MiB"}), 2) << "less than one message";
  EXPECT_EQ(ExitCode({"--model=m", "--speculation=draft"}), 2) << "no draft model";
  EXPECT_EQ(ExitCode({"--model=m", "--task=embed"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--task=rank"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--draft_model=d"}), 2) << "it would not be used";
  EXPECT_EQ(ExitCode({"--model=m", "--draft_model=d", "--speculation=draft"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--draft_model=d", "--speculation=draft", "--device=cuda:0"}),
            -1);
  EXPECT_EQ(ExitCode({"--model=m", "--kv_dtype=fp8", "--device=cuda:0"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--weights=fp16", "--kv_dtype=fp16", "--device=cuda:0"}), -1);
  EXPECT_EQ(ExitCode({"--model=m", "--fp8_fast_accumulation"}), 2) << "no products of fp8";
  EXPECT_EQ(ExitCode({"--model=m", "--fp8_fast_accumulation", "--weights=fp8"}), -1);
  EXPECT_EQ(ExitCode({"--model=hf://org/name"}), -1);
  EXPECT_EQ(ExitCode({"--model=hf://name"}), 2);
  EXPECT_EQ(ExitCode({"--model=hf://name", "--describe"}), -1) << "what is wrong is described";
  EXPECT_EQ(ExitCode({"--describe=registry"}), -1) << "needs no model";
  EXPECT_EQ(ExitCode({"--describe"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--describe=xml"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--describe", "--calibrate"}), 2);
  EXPECT_EQ(ExitCode({"--model=m", "--calibrate", "--speculation=draft", "--draft_model=d"}), 2);
  EXPECT_EQ(ExitCode({"--help"}), 0);
  EXPECT_EQ(ExitCode({"--version"}), 0);
  EXPECT_EQ(ExitCode({"--model=m", "--isa=scalar", "--drain_grace=30s"}), -1);
}

TEST(WorkerConfigTest, ExperimentsChangeTheDeviceOptionsAndUnknownOnesAreRefused) {
  const std::vector<const char*> arguments = {"continuo-worker", "--model=m",
                                              "--cuda_experiments=no_pdl,no_wgmma_prefill"};
  const ParsedConfig parsed = ParseWorkerConfig(3, arguments.data());
  ASSERT_FALSE(parsed.exit_code.has_value());
  EXPECT_FALSE(parsed.config.load.device.pdl);
  EXPECT_FALSE(parsed.config.load.device.wgmma_prefill);
  for (const char* list : {"pdl", "no_pdl,", "no_pdl,graphs", ","}) {
    const std::string flag = std::string("--cuda_experiments=") + list;
    EXPECT_EQ(ExitCode({"--model=m", flag.c_str()}), 2) << list;
  }
  kernels::DeviceOptions options;
  EXPECT_EQ(kernels::ApplyExperiments("pdq", options).message(),
            "\"pdq\" is not an experiment; known are no_pdl, no_wgmma_prefill");
}

TEST(WorkerConfigTest, ABatchIsAsLargeAsTheLoaderTakesAndNoLarger) {
  const TinyModel model;
  const auto flag = [](int rows) { return "--max_batch_tokens=" + std::to_string(rows); };
  EXPECT_EQ(ExitCode({"--model=m", flag(model::kMaxBatchTokens).c_str()}), -1);
  EXPECT_EQ(ExitCode({"--model=m", flag(model::kMaxBatchTokens + 1).c_str()}), 2);
  EXPECT_TRUE(model::EstimateLoad(
                  {.source = {.dir = model.dir()}, .max_batch_tokens = model::kMaxBatchTokens})
                  .ok());
}

}  // namespace
}  // namespace continuo::worker
