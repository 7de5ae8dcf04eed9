// SPDX-License-Identifier: Apache-2.0
// continuo-make-model: a Hugging Face folder with seeded random weights, for benchmarks at real
// shapes and for tests.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "services/base/status_macros.h"
#include "services/worker/model/description/json_file.h"
#include "services/worker/model/tools/make_model.h"

namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

absl::Status Make(const std::string& config_path, const std::string& shape,
                  continuo::model::RandomModelOptions options) {
  if (shape.empty()) {
    ASSIGN_OR_RETURN(options.config_json,
                     continuo::model::ReadSmallFile(config_path, kMaxConfigBytes));
  } else {
    ASSIGN_OR_RETURN(options.config_json, continuo::model::ConfigOfShape(shape));
  }
  return continuo::model::WriteRandomModel(options);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes a model with seeded random weights, the same on every machine.");
  std::string config_path, shape;
  continuo::model::RandomModelOptions options;
  auto* config_flag =
      app.add_option("--config", config_path, "config.json of a known architecture");
  auto* shape_flag =
      app.add_option("--shape", shape,
                     "instead: qwen3-0.6b, llama-3.2-1b, llama-3.1-8b, qwen3-30b-a3b, "
                     "mixtral-8x7b, gemma-2-2b, phi-3-mini, lfm2-350m, qwen3.5-0.8b, bge-small or "
                     "modernbert-base");
  config_flag->excludes(shape_flag);
  app.add_option("--out", options.out_dir, "folder to write")->required();
  app.add_option("--seed", options.seed, "of the weights")->capture_default_str();
  app.add_option("--dtype", options.dtype, "bf16, fp16 or fp32")->capture_default_str();
  app.add_option("--shard_bytes", options.shard_bytes, "largest safetensors file, in bytes")
      ->capture_default_str();
  app.add_flag("--mtp", options.mtp, "write the module for multi-token prediction, too");
  app.add_option("--tokenizer", options.tokenizer_dir,
                 "folder whose tokenizer is copied (default: a byte-level one is made)");
  CLI11_PARSE(app, argc, argv);
  if (config_path.empty() && shape.empty()) {
    std::fprintf(stderr, "continuo-make-model: --config or --shape is needed\n");
    return 1;
  }
  const absl::Status status = Make(config_path, shape, options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "continuo-make-model: %s\n", std::string(status.message()).c_str());
  return 1;
}
