// SPDX-License-Identifier: Apache-2.0
// step_bench --model=DIR [--threads=2] [--weights=bf16] [--kv_dtype=auto] [--isa=auto]
//   [--tensor_parallel=1] [--device=cpu] [--deterministic=1] [--fp8_fast_accumulation=1]
//   [--cuda_experiments=no_pdl,no_wgmma_prefill] [--decode=1,4,16,32,64] [--context=128]
//   [--prefill=512,4096] [--chunk=512] [--adapters=DIR,DIR] [--rounds=7] [--clock=cpu]
//   [--json=FILE]
// Measures whole steps of a model, greedy. decode/B: one row of each of B sequences with --context
// tokens in the cache. prefill/R: a prompt of R tokens, --chunk rows a step. With LoRA adapters
// each is measured again as "adapted": sequences take the adapters in turn.
//
// The read bandwidth and the peaks of the path's multiplications are measured in turn with the
// steps. On devices, rounds in which the bandwidth changed by more than 5 % do not count. Medians
// are compared with a bound: max(operations / peak, bytes / bandwidth) of layers, head and
// attention, added up, since none of them runs beside another. Weights count as read once a step.
// "of peak" is the share of the multiplying peak, for all operations.
//
// Of a model with recurrent states on the CPU, "states" is the share of a step's time that the ops
// on states take by themselves (StateOpsRun), and "of bound" of those the share of their bound.
//
// On devices with their own queue "overlap" is a step's time when the next one always begins before
// it has ended, as the engine does, without the engine's own work. "idle" is the share of that in
// which the device had nothing to do between steps, by its own clock.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "kernels/replica.h"
#include "services/worker/model/load/model_loader.h"
#include "tests/bench/engine/state_ops_run.h"
#include "tests/bench/kernels/ceilings.h"
#include "tests/gpu/bench/rounds.h"
#include "tests/worker/model/run/plan_builder.h"
#if STEP_BENCH_CUDA
#include "tests/gpu/bench/device_ceilings.h"
#endif

namespace continuo::bench {
namespace {

constexpr int kBlockSize = 16;

// One measured unit of work.
struct Work {
  std::string name;
  std::vector<model::StepPlan> steps;
  int64_t rows = 0, samples = 0;  // of all steps together
  int64_t attended = 0;           // pairs of a row and a position that it sees
  int64_t cached = 0;             // positions whose keys and values are read, step by step
  int64_t states = 0;             // states that are read and written, step by step
};

// Gives the sequences adapters, from 0 on.
Work Adapted(Work work, size_t num_adapters) {
  work.name = "adapted " + work.name;
  for (model::StepPlan& plan : work.steps) {
    for (size_t i = 0; i < plan.sequence_ids.size(); ++i) {
      plan.adapters.push_back(static_cast<int32_t>(i % num_adapters));
    }
  }
  return work;
}

Work Decode(int batch, int context, int max_blocks) {
  testing::PlanBuilder builder(kBlockSize, max_blocks);
  for (int i = 0; i < batch; ++i) {
    const std::vector<int32_t> token = {i + 1};
    builder.Add(i, context, token, testing::LastOf(token), {.temperature = 0});
  }
  const int64_t seen = int64_t{batch} * (context + 1);
  return {"decode/" + std::to_string(batch), {builder.plan()}, batch, batch, seen, seen, batch};
}

Work Prefill(int rows, int chunk, int max_blocks) {
  Work work{.name = "prefill/" + std::to_string(rows), .rows = rows, .samples = 1};
  for (int begin = 0; begin < rows; begin += chunk) {
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(chunk, rows - begin)));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((begin + i) % 256);
    const int end = begin + static_cast<int>(tokens.size());
    testing::PlanBuilder builder(kBlockSize, max_blocks);
    builder.Add(0, begin, tokens, end == rows ? testing::LastOf(tokens) : std::vector<int32_t>(),
                {.temperature = 0});
    work.steps.push_back(builder.plan());
    work.attended += static_cast<int64_t>(tokens.size()) * (begin + 1 + end) / 2;
    work.cached += end;
    ++work.states;
  }
  return work;
}

// Medians of the machine's rates while something was measured.
struct Machine {
  double bandwidth = 0;       // bytes/s
  double products = 0;        // operations/s of MatMul's multiplications
  double attention_peak = 0;  // of attention's
};

// The figures that are measured in turn, as a Round: the machine's, then seconds.
enum Figure { kBandwidth, kProducts, kAttentionPeak, kSeconds };

Ceilings::Unit MatMulUnit(const model::LoadedModel& model) {
  if (model.backend_name.find("avx512") == std::string::npos) return Ceilings::Unit::kFma256;
  if (model.weight_format.starts_with("int") || model.weight_format == "stored") {
    return Ceilings::Unit::kVnni;
  }
  const bool pairs = model.backend_name.find("avx512_bf16") != std::string::npos;
  return pairs && model.weight_format == "bf16" ? Ceilings::Unit::kBf16 : Ceilings::Unit::kFma512;
}

Ceilings::Unit AttentionUnit(const model::LoadedModel& model) {
  if (model.backend_name.find("avx512") == std::string::npos) return Ceilings::Unit::kFma256;
  const bool pairs = model.backend_name.find("avx512_bf16") != std::string::npos;
  return pairs && model.kv_format == "bf16" ? Ceilings::Unit::kBf16 : Ceilings::Unit::kFma512;
}

// The machine's rates right now: of the CPU's threads, or of a device like each rank's.
class MachineCeilings {
 public:
  static absl::StatusOr<MachineCeilings> Make(const model::LoadOptions& options,
                                              const model::LoadedModel& model) {
    MachineCeilings ceilings(model);
    if (options.device.device == "cpu") {
      ceilings.cpu_ = std::make_unique<Ceilings>(options.device.num_threads);
      return ceilings;
    }
#if STEP_BENCH_CUDA
    auto made = DeviceCeilings::Make(options.device.device);
    if (!made.ok()) return made.status();
    ceilings.device_ = *std::move(made);
#endif
    return ceilings;
  }
  std::string device() const {
#if STEP_BENCH_CUDA
    if (device_ != nullptr) return device_->name();
#endif
    return "cpu";
  }
  Machine Measure() {
#if STEP_BENCH_CUDA
    if (device_ != nullptr) {
      const auto ranks = static_cast<double>(model_.ranks.size());
      const bool fp8 = model_.weight_format == "fp8", fp16 = model_.weight_format == "fp16";
      const double bandwidth = device_->ReadBandwidth();
      const double plain =
          device_->Peak(fp16 ? kernels::WeightType::kF16 : kernels::WeightType::kBF16);
      const double products = fp8 ? device_->Peak(kernels::WeightType::kFp8) : plain;
      return {bandwidth * ranks, products * ranks, plain * ranks};
    }
#endif
    if (cpu_ == nullptr) return {};
    return {cpu_->ReadBandwidth() * 1e9, cpu_->Peak(MatMulUnit(model_)) * 1e9,
            cpu_->Peak(AttentionUnit(model_)) * 1e9};
  }

 private:
  explicit MachineCeilings(const model::LoadedModel& model) : model_(model) {}
  const model::LoadedModel& model_;
  std::unique_ptr<Ceilings> cpu_;
#if STEP_BENCH_CUDA
  std::unique_ptr<DeviceCeilings> device_;
#endif
};

// Operations of a row on each element of a state: decay, Sᵀk, k uᵀ and Sᵀq.
constexpr double kStateOperations = 7;

// The costs of a model, counted from its config. Dense layers only.
struct Costs {
  explicit Costs(const model::LoadedModel& model) {
    const model::ModelConfig& c = model.config;
    head = double{1.0} * c.vocab_size * c.hidden_size;
    body = static_cast<double>(model.num_parameters) - (c.tied_embeddings ? 1 : 2) * head;
    int64_t weights = 0, kv = 0;
    for (const model::RankMemory& rank : model.ranks)
      weights += rank.weight_bytes, kv += rank.kv_bytes;
    weight_bytes = static_cast<double>(weights) / static_cast<double>(model.num_parameters);
    position_bytes = static_cast<double>(kv) / model.num_blocks / model.block_size;
    pair = 4.0 * c.num_kv_layers() * c.num_heads * c.head_dim;
    for (const model::RankMemory& rank : model.ranks) {
      state_bytes += static_cast<double>(rank.state_bytes);
    }
    if (model.num_state_slots > 0) state_bytes /= model.num_state_slots;
    state_row = kStateOperations * c.num_state_layers() * c.states.num_heads * c.states.key_dim *
                c.states.value_dim;
    last = double{1.0} * c.hidden_size * (c.num_heads * c.head_dim + 3.0 * c.intermediate_size);
  }
  double head, body;       // weights
  double last;             // of them in the last layer after attention, for sampled rows alone
  double weight_bytes;     // of one weight, on average
  double position_bytes;   // of keys and values, in all layers
  double pair;             // operations of a row and a position that it sees, in all layers
  double state_bytes = 0;  // of one sequence's states, in all layers
  double state_row;        // operations of a row on them

  double BodyOperations(const Work& w) const {
    return 2.0 * (body * w.rows - last * (w.rows - w.samples));
  }
  double Operations(const Work& w) const {
    return BodyOperations(w) + 2.0 * head * w.samples + pair * w.attended + state_row * w.rows;
  }
  double StateBound(const Work& w, const Machine& m) const {
    return std::max(state_row * w.rows / m.attention_peak,
                    2 * state_bytes * w.states / m.bandwidth);
  }
  double Bound(const Work& w, const Machine& m) const {
    const auto steps = static_cast<double>(w.steps.size());
    return std::max(BodyOperations(w) / m.products, steps * body * weight_bytes / m.bandwidth) +
           std::max(2.0 * head * w.samples / m.products, head * weight_bytes / m.bandwidth) +
           std::max(pair * w.attended / m.attention_peak, position_bytes * w.cached / m.bandwidth) +
           StateBound(w, m);
  }
};

struct OverlappedSteps {
  double seconds = 0, idle = 0;  // of a step, of wall
};

// Runs steps for about a second, each of which begins before the last one has ended, with the token
// that it samples.
absl::StatusOr<OverlappedSteps> RunOverlapped(model::Executor& executor,
                                              const model::StepPlan& first) {
  constexpr double kSeconds = 1;
  model::StepPlan next = first;
  for (int i = 0; i < next.num_seqs(); ++i)
    next.token_ids[static_cast<size_t>(i)] = model::SampledBy(i);
  const auto start = [&](const model::StepPlan& plan) {
    return executor.Start(plan, [](std::span<uint32_t>) {});
  };
  const auto finish = [&]() -> absl::Status {
    auto result = executor.Finish();
    if (!result.ok()) return result.status();
    executor.Recycle(*std::move(result));
    return absl::OkStatus();
  };
  (void)executor.TakeBusySeconds();  // while idle
  int64_t steps = 0;
  double begin = 0, end = 0;
  absl::Status status = start(first);
  // The first steps allocate memory and capture graphs.
  for (int64_t i = 0; status.ok() && (i < 8 || end - begin < kSeconds); ++i) {
    status = start(next);
    if (status.ok()) status = finish();
    end = Seconds();
    if (i < 8) {
      begin = end;
      steps = 0;
      (void)executor.TakeBusySeconds();
    } else {
      ++steps;
    }
  }
  const double busy = executor.TakeBusySeconds();
  if (status.ok()) status = finish();
  if (!status.ok()) return status;
  return OverlappedSteps{(end - begin) / static_cast<double>(steps), 1 - busy / (end - begin)};
}

int Main(const Flags& flags) {
  const int context = flags.Get("context", 128), chunk = flags.Get("chunk", 512);
  const std::vector<int> batches = flags.GetList("decode", "1,4,16,32,64");
  const std::vector<int> prompts = flags.GetList("prefill", "512,4096");
  int longest = context + 1, sequences = 1;
  for (const int rows : prompts) longest = std::max(longest, rows);
  for (const int batch : batches) sequences = std::max(sequences, batch);
  const int decode_blocks = context / kBlockSize + 1;
  const int prompt_blocks = (longest + kBlockSize - 1) / kBlockSize;

  model::LoadOptions options;
  options.source.dir = flags.Get("model", std::string());
  options.device.device = flags.Get("device", options.device.device);
  kernels::PrepareDevices(options.device.device);
  options.device.isa = flags.Get("isa", options.device.isa);
  options.precision.weights = flags.Get("weights", options.precision.weights);
  options.precision.kv_dtype = flags.Get("kv_dtype", options.precision.kv_dtype);
  options.device.num_threads = flags.Get("threads", 2);
  options.tensor_parallel = flags.Get("tensor_parallel", 1);
  options.device.deterministic = flags.Get("deterministic", 0) != 0;
  options.device.fp8_fast_accumulation = flags.Get("fp8_fast_accumulation", 0) != 0;
  if (const absl::Status status =
          kernels::ApplyExperiments(flags.Get("cuda_experiments", std::string()), options.device);
      !status.ok()) {
    std::fprintf(stderr, "--cuda_experiments: %s\n", status.ToString().c_str());
    return 1;
  }
  options.source.max_context_tokens = longest;
  options.kv.num_blocks = std::max(sequences * decode_blocks, prompt_blocks);
  options.max_batch_tokens = std::max(chunk, sequences);
  options.state_slots.most = std::max(2, sequences);
  if (const std::string adapters = flags.Get("adapters", std::string()); !adapters.empty()) {
    for (const auto dir : absl::StrSplit(adapters, ',')) {
      options.adapters.push_back({std::string(dir), std::string(dir)});
    }
  }
  auto model = model::LoadModel(options);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }

  auto ceilings = MachineCeilings::Make(options, *model);
  if (!ceilings.ok()) {
    std::fprintf(stderr, "%s\n", ceilings.status().ToString().c_str());
    return 1;
  }
  const bool has_bound = model->config.experts.num_experts == 0;
  const Costs costs(*model);

  std::vector<Work> works;
  const auto add = [&](Work work) {
    if (!model->adapters.empty()) works.push_back(Adapted(work, model->adapters.size()));
    works.push_back(std::move(work));
  };
  for (const int batch : batches) add(Decode(batch, context, decode_blocks));
  for (const int rows : prompts) add(Prefill(rows, chunk, prompt_blocks));
  std::unique_ptr<StateOpsRun> states;
  if (model->config.has_states()) {
    for (Work& work : works) {
      for (model::StepPlan& plan : work.steps) testing::PlaceStates(plan);
    }
    if (options.device.device == "cpu" && options.tensor_parallel == 1) {
      auto made = StateOpsRun::Make(options, options.max_batch_tokens, options.state_slots.most);
      if (!made.ok()) {
        std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
        return 1;
      }
      states = *std::move(made);
    }
  }
  std::printf("%s, %s, %s, %s weights, %s keys and values, %d threads\n",
              ceilings->device().c_str(), model->backend_name.c_str(), options.source.dir.c_str(),
              model->weight_format.c_str(), model->kv_format.c_str(), options.device.num_threads);
  std::printf("%22s %10s %10s %9s %8s | %7s %9s %9s | %9s %7s\n", "", "ms", "tokens/s", "of bound",
              "of peak", "GB/s", "matmul G", "attend G", "overlap ms", "idle");
  if (model->executor->IsAsynchronous()) {
    std::printf(
        "idle: what the device waits between overlapped steps, without the scheduler's "
        "work\n");
  }
  nlohmann::json results = {
      {"device", ceilings->device()}, {"path", model->backend_name},
      {"model", options.source.dir},  {"weights", model->weight_format},
      {"kv", model->kv_format},       {"threads", options.device.num_threads}};
  for (const Work& work : works) {
    std::vector<Round> rounds;
    for (int round = -1; round < flags.Get("rounds", 7); ++round) {
      const Machine now = ceilings->Measure();
      int calls = 0;
      const double start = Seconds();
      do {
        for (const model::StepPlan& plan : work.steps) {
          auto result = model->executor->Run(plan, [](std::span<uint32_t>) {});
          if (!result.ok()) {
            std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
            return 1;
          }
          model->executor->Recycle(*std::move(result));
        }
        ++calls;
      } while (Seconds() - start < 0.3);
      // The first round touches KV cache and activations for the first time.
      if (round < 0) continue;
      rounds.push_back(
          {now.bandwidth, now.products, now.attention_peak, (Seconds() - start) / calls});
    }
    const std::vector<Round> steady = SteadyRounds(rounds, options.device.device == "cpu" ? 0 : 1);
    const auto median = [&](Figure figure) { return SpreadOf(steady, figure).median; };
    const double time = median(kSeconds);
    const double rate = static_cast<double>(work.rows) / time;
    nlohmann::json row = {{"name", work.name}, {"seconds", time}, {"tokens_per_s", rate}};
    std::printf("%22s %10.2f %10.1f", work.name.c_str(), time * 1e3, rate);
    row["rounds"] = rounds.size();
    row["steady_rounds"] = steady.size();
    const Machine machine = {median(kBandwidth), median(kProducts), median(kAttentionPeak)};
    if (has_bound && machine.bandwidth > 0) {
      const double of_bound = costs.Bound(work, machine) / time;
      const double of_peak = costs.Operations(work) / time / machine.products;
      row["bound_seconds"] = costs.Bound(work, machine);
      row["of_bound"] = of_bound;
      row["of_peak"] = of_peak;
      row["read_bytes_per_s"] = machine.bandwidth;
      row["matmul_peak_per_s"] = machine.products;
      row["attention_peak_per_s"] = machine.attention_peak;
      std::printf(" %8.1f%% %7.1f%% | %7.1f %9.0f %9.0f", 100 * of_bound, 100 * of_peak,
                  machine.bandwidth * 1e-9, machine.products * 1e-9, machine.attention_peak * 1e-9);
    }
    if (model->executor->IsAsynchronous() && work.rows == work.samples) {
      const auto overlapped = RunOverlapped(*model->executor, work.steps[0]);
      if (!overlapped.ok()) {
        std::fprintf(stderr, "%s\n", overlapped.status().ToString().c_str());
        return 1;
      }
      row["overlapped_seconds"] = overlapped->seconds;
      row["idle"] = overlapped->idle;
      std::printf(" | %9.3f %6.2f%%", overlapped->seconds * 1e3, 100 * overlapped->idle);
    }
    if (states != nullptr) {
      const double own = states->Seconds(work.steps);
      row["states_seconds"] = own;
      std::printf(" | states %.1f%%", 100 * own / time);
      if (has_bound) {
        row["states_bound_seconds"] = costs.StateBound(work, machine);
        std::printf(", %.1f%% of bound", 100 * costs.StateBound(work, machine) / own);
      }
    }
    std::printf("\n");
    std::fflush(stdout);
    results["steps"].push_back(row);
  }
  flags.WriteJson(results);
  return 0;
}

}  // namespace
}  // namespace continuo::bench

int main(int argc, char** argv) {
  return continuo::bench::Main(continuo::bench::Flags(argc, argv));
}
