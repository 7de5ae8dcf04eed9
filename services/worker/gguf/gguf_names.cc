// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_names.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/absl_view.h"
#include "services/worker/gguf/config_parts.h"
#include "services/worker/gguf/part_names.h"

namespace continuo::gguf {
namespace {

constexpr Architecture kMixtral = {
    .name = "llama", .hugging_face = "MixtralForCausalLM", .interleaved_heads = true};
constexpr Architecture kGraniteShared = {.name = "granitemoe",
                                         .hugging_face = "GraniteMoeSharedForCausalLM",
                                         .interleaved_heads = true,
                                         .splits_shared_mlp = true};
constexpr Architecture kOlmo3 = {.name = "olmo2", .hugging_face = "Olmo3ForCausalLM"};
constexpr Architecture kDeepSeekV3 = {.name = "deepseek2", .hugging_face = "DeepseekV3ForCausalLM"};

constexpr Architecture kArchitectures[] = {
    {.name = "llama", .hugging_face = "LlamaForCausalLM", .interleaved_heads = true},
    {.name = "qwen2", .hugging_face = "Qwen2ForCausalLM"},
    {.name = "qwen3", .hugging_face = "Qwen3ForCausalLM"},
    {.name = "qwen3moe", .hugging_face = "Qwen3MoeForCausalLM"},
    {.name = "gemma", .hugging_face = "GemmaForCausalLM", .gains_include_one = true},
    {.name = "gemma2", .hugging_face = "Gemma2ForCausalLM", .gains_include_one = true},
    {.name = "gemma3", .hugging_face = "Gemma3ForCausalLM", .gains_include_one = true},
    {.name = "gemma4", .hugging_face = "Gemma4ForCausalLM"},
    {.name = "phi3", .hugging_face = "Phi3ForCausalLM"},
    {.name = "granite", .hugging_face = "GraniteForCausalLM", .interleaved_heads = true},
    {.name = "smollm3", .hugging_face = "SmolLM3ForCausalLM", .interleaved_heads = true},
    {.name = "mistral3", .hugging_face = "Ministral3ForCausalLM", .interleaved_heads = true},
    {.name = "seed_oss", .hugging_face = "SeedOssForCausalLM"},
    {.name = "olmo2", .hugging_face = "Olmo2ForCausalLM"},
    {.name = "glm4", .hugging_face = "Glm4ForCausalLM"},
    {.name = "cohere2", .hugging_face = "Cohere2ForCausalLM"},
    {.name = "exaone4", .hugging_face = "Exaone4ForCausalLM"},
    {.name = "ernie4_5", .hugging_face = "Ernie4_5ForCausalLM"},
    {.name = "hunyuan-dense", .hugging_face = "HunYuanDenseV1ForCausalLM"},
    // Its stacked matrices are stored one by one, as Llama's.
    {.name = "internlm2", .hugging_face = "LlamaForCausalLM", .interleaved_heads = true},
    {.name = "minicpm", .hugging_face = "MiniCPMForCausalLM", .interleaved_heads = true},
    {.name = "starcoder2", .hugging_face = "Starcoder2ForCausalLM"},
    {.name = "qwen2moe", .hugging_face = "Qwen2MoeForCausalLM"},
    {.name = "olmoe", .hugging_face = "OlmoeForCausalLM"},
    {.name = "granitemoe", .hugging_face = "GraniteMoeForCausalLM", .interleaved_heads = true},
    {.name = "glm4moe", .hugging_face = "Glm4MoeForCausalLM"},
    {.name = "gpt-oss", .hugging_face = "GptOssForCausalLM"},
    // Pairs are side by side in Hugging Face's files, too.
    {.name = "llama4", .hugging_face = "Llama4ForCausalLM"},
    {.name = "deepseek2", .hugging_face = "DeepseekV2ForCausalLM"},
    {.name = "qwen35",
     .hugging_face = "Qwen3_5ForCausalLM",
     .gains_include_one = true,
     .may_have_module = true},
    {.name = "qwen35moe",
     .hugging_face = "Qwen3_5MoeForCausalLM",
     .gains_include_one = true,
     .may_have_module = true},
    {.name = "qwen3next",
     .hugging_face = "Qwen3NextForCausalLM",
     .gains_include_one = true,
     .splits_qkvz = true,
     .may_have_module = true},
    {.name = "lfm2", .hugging_face = "Lfm2ForCausalLM"},
    {.name = "lfm2moe", .hugging_face = "Lfm2MoeForCausalLM"},
    {.name = "granitehybrid",
     .hugging_face = "GraniteMoeHybridForCausalLM",
     .interleaved_heads = true,
     .splits_shared_mlp = true},
    // Nothing is rotated, so that the order of a head's elements is of no account.
    {.name = "nemotron_h", .hugging_face = "NemotronHForCausalLM"},
    {.name = "nemotron_h_moe", .hugging_face = "NemotronHForCausalLM"},
    {.name = "mamba2", .hugging_face = "Mamba2ForCausalLM"},
};

// The matrices of experts: GGUF's name, without the ending of a joined tensor, Hugging Face's, and
// those of Mixtral and LFM2.
struct ExpertPart {
  std::string_view name, usual, mixtral;
};
constexpr ExpertPart kExpertParts[] = {
    {"ffn_gate", "gate_proj", "w1"}, {"ffn_up", "up_proj", "w3"}, {"ffn_down", "down_proj", "w2"}};

// The heads of layers with the gated delta rule.
struct DeltaHeads {
  int64_t groups = 0, per_group = 0, key_dim = 0, value_dim = 0;  // 0: there are no such layers

  // The order of the heads of a tensor, "ssm_out".
  TiledHeads OrderOf(std::string_view own) const {
    if (per_group < 2) return {};
    TiledHeads order = {.groups = groups, .per_group = per_group, .size = value_dim};
    if (own == "attn_qkv" || own == "ssm_conv1d") {
      order.begin = 2 * groups * key_dim;
    } else if (own == "ssm_alpha" || own == "ssm_beta" || own == "ssm_dt" || own == "ssm_a") {
      order.size = 1;
    } else if (own == "ssm_out") {
      order.are_columns = true;
    } else if (own != "attn_gate") {
      return {};
    }
    return order;
  }
};

absl::StatusOr<DeltaHeads> ReadDeltaHeads(const GgufFile& file, const Architecture& architecture) {
  DeltaHeads heads;
  if (!architecture.name.starts_with("qwen35")) return heads;
  constexpr int64_t kMost = 1 << 20;
  const auto read = [&](const char* key) {
    const int64_t n = file.Whole(absl::StrCat(Absl(architecture.name), ".ssm.", key)).value_or(0);
    return n >= 1 && n <= kMost ? n : 0;
  };
  const int64_t groups = read("group_count"), all = read("time_step_rank");
  const int64_t keys = read("state_size"), values = read("inner_size");
  if (groups == 0 || all == 0 || keys == 0 || values == 0 || all % groups != 0 ||
      values % all != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.name(), ": ", Absl(architecture.name),
        ".ssm.group_count, time_step_rank, state_size and inner_size must be there, from 1 to ",
        kMost, ", and each of the first, second and last a divisor of the next"));
  }
  return DeltaHeads{groups, all / groups, keys, values / all};
}

// Names the tensors of one file.
class Namer {
 public:
  // mtp_layer: the block that is a module for multi-token prediction of Qwen's form; -1: there is
  // none.
  Namer(const Architecture& architecture, int64_t head_dim, const DeltaHeads& heads, int mtp_layer)
      : architecture_(architecture), head_dim_(head_dim), heads_(heads), mtp_layer_(mtp_layer) {}

  void Add(const Tensor& tensor, std::vector<NamedTensor>& out) const {
    const std::string_view outside = NameOutside(architecture_, tensor.name);
    if (!outside.empty()) return out.push_back(Whole(tensor, std::string(outside)));
    const std::vector<std::string> words = absl::StrSplit(Absl(tensor.name), '.');
    int layer = 0;
    const bool in_layer =
        words.size() >= 3 && words[0] == "blk" && absl::SimpleAtoi(words[1], &layer) && layer >= 0;
    if (!in_layer) return out.push_back(Whole(tensor, std::string(tensor.name)));
    if (AddExperts(tensor, words, layer, out)) return;
    if (AddJoinedExperts(tensor, words, layer, out)) return;
    const std::string prefix = PrefixOf(layer);
    // These tensors predict further tokens. Models of other forms are skipped with their layer.
    if (words[2] == "nextn") {
      const std::string_view part =
          layer == mtp_layer_ && words.size() == 5 ? NameOfMtpPart(words[3]) : "";
      if (!part.empty()) {
        return out.push_back(Whole(tensor, absl::StrCat("mtp.", Absl(part), ".", words[4])));
      }
      return out.push_back(
          Whole(tensor, absl::StrCat(prefix, absl::StrJoin(words.begin() + 2, words.end(), "."))));
    }
    if (words.size() == 3) {
      const std::string_view whole = NameOfWholePart(architecture_, words[2]);
      if (whole.empty()) return out.push_back(Whole(tensor, std::string(tensor.name)));
      NamedTensor named = Whole(tensor, absl::StrCat(prefix, Absl(whole)));
      named.is_rate = words[2] == "ssm_a";
      // Mamba-2's numbers of heads are stored as columns.
      if (named.shape.size() == 2 && named.shape[1] == 1) named.shape.pop_back();
      named.tiled = heads_.OrderOf(words[2]);
      return out.push_back(std::move(named));
    }
    if (words.size() == 4 || words.size() == 5) {
      const std::string own = absl::StrJoin(words.begin() + 2, words.end() - 1, ".");
      const std::string& kind = words.back();
      if (const std::string_view whole = NameOfWholePart(architecture_, own + "." + kind);
          !whole.empty()) {
        NamedTensor named = Whole(tensor, absl::StrCat(prefix, Absl(whole)));
        named.tiled = heads_.OrderOf(own);
        return out.push_back(std::move(named));
      }
      const std::string_view part = NameOfPart(architecture_, own);
      if (!part.empty()) {
        NamedTensor named = Whole(tensor, absl::StrCat(prefix, Absl(part), ".", kind));
        // Taps of a convolution are stored without its groups, of one channel each.
        const bool are_taps =
            (own == "shortconv.conv" || own == "ssm_conv1d") && named.shape.size() == 2;
        if (are_taps) named.shape.insert(named.shape.begin() + 1, 1);
        // The gains of all groups of heads are a row each.
        if (own == "ssm_norm" && named.shape.size() == 2 && HasStateSpace(architecture_)) {
          named.shape = {named.shape[0] * named.shape[1]};
        }
        named.tiled = heads_.OrderOf(own);
        // A matrix a head: keys' by columns, values' by rows (llama.cpp's conversion of DeepSeek).
        if ((own == "attn_k_b" || own == "attn_v_b") && named.shape.size() == 3) {
          const bool is_key = own == "attn_k_b";
          const int64_t rows = named.shape[is_key ? 2 : 1], columns = named.shape[is_key ? 1 : 2];
          named.shape = {named.shape[0] * rows, columns};
          if (is_key) named.turned_head = rows;
        }
        const bool is_head = words[2] == "attn_q" || words[2] == "attn_k";
        if (is_head && architecture_.interleaved_heads) named.interleaved_head = head_dim_;
        // A matrix of one row may be stored as a vector.
        const bool is_row = words[2] == "ffn_gate_inp_shexp" && named.shape.size() == 1;
        if (is_row) named.shape.insert(named.shape.begin(), 1);
        return out.push_back(std::move(named));
      }
    }
    out.push_back(Whole(tensor, std::string(tensor.name)));
  }

 private:
  std::string PrefixOf(int64_t layer) const {
    return layer == mtp_layer_ ? "mtp.layers.0." : absl::StrCat("model.layers.", layer, ".");
  }
  static NamedTensor Whole(const Tensor& tensor, std::string name) {
    return {
        .name = std::move(name), .type = tensor.type, .shape = tensor.shape, .bytes = tensor.bytes};
  }

  // Adds the experts of blk.0.ffn_gate_up_exps.weight, whose rows are gate's and then up's, as
  // matrices of their own. Returns false for other names.
  bool AddJoinedExperts(const Tensor& tensor, const std::vector<std::string>& words, int layer,
                        std::vector<NamedTensor>& out) const {
    if (architecture_.name != "gemma4" || words.size() != 4 || words[2] != "ffn_gate_up_exps" ||
        words[3] != "weight" || tensor.shape.size() != 3 || tensor.shape[1] % 2 != 0) {
      return false;
    }
    const auto count = static_cast<size_t>(tensor.shape[0]);
    const size_t size = tensor.bytes.size() / count / 2;
    for (size_t i = 0; i < 2 * count; ++i) {
      out.push_back({.name = absl::StrCat(PrefixOf(layer), "experts.", i / 2,
                                          i % 2 == 0 ? ".gate_proj.weight" : ".up_proj.weight"),
                     .type = tensor.type,
                     .shape = {tensor.shape[1] / 2, tensor.shape[2]},
                     .bytes = tensor.bytes.subspan(i * size, size)});
    }
    return true;
  }

  // Adds the experts of blk.0.ffn_gate_exps.weight, all in one, or the one of the older
  // blk.0.ffn_gate.3.weight. Returns false for other names.
  bool AddExperts(const Tensor& tensor, const std::vector<std::string>& words, int layer,
                  std::vector<NamedTensor>& out) const {
    const bool is_mixtral = &architecture_ == &kMixtral;
    const bool is_lfm2 = architecture_.name == "lfm2moe";
    const bool is_sparse =
        is_mixtral || architecture_.name == "granitemoe" || architecture_.name == "granitehybrid";
    const bool is_forward = is_lfm2 || architecture_.name == "llama4";
    const char* const block = is_sparse                        ? "block_sparse_moe."
                              : is_forward                     ? "feed_forward."
                              : HasMixers(architecture_)       ? "mixer."
                              : architecture_.name == "gemma4" ? ""
                                                               : "mlp.";
    for (const ExpertPart& part : kExpertParts) {
      const auto name_of = [&](int64_t expert, const std::string& kind) {
        return absl::StrCat(PrefixOf(layer), block, "experts.", expert, ".",
                            Absl(is_mixtral || is_lfm2 ? part.mixtral : part.usual), ".", kind);
      };
      int expert = 0;
      if (words.size() == 5 && words[2] == part.name && words[4] == "weight" &&
          absl::SimpleAtoi(words[3], &expert) && expert >= 0) {
        out.push_back(Whole(tensor, name_of(expert, words[4])));
        return true;
      }
      const bool is_joined = words.size() == 4 &&
                             words[2] == absl::StrCat(Absl(part.name), "_exps") &&
                             tensor.shape.size() == (words[3] == "weight" ? 3u
                                                     : words[3] == "bias" ? 2u
                                                                          : 0u);
      if (!is_joined) continue;
      const size_t count = static_cast<size_t>(tensor.shape[0]);
      const size_t size = tensor.bytes.size() / count;
      for (size_t e = 0; e < count; ++e) {
        out.push_back({.name = name_of(static_cast<int64_t>(e), words[3]),
                       .type = tensor.type,
                       .shape = {tensor.shape.begin() + 1, tensor.shape.end()},
                       .bytes = tensor.bytes.subspan(e * size, size)});
      }
      return true;
    }
    return false;
  }

  const Architecture& architecture_;
  const int64_t head_dim_;
  const DeltaHeads heads_;
  const int mtp_layer_;
};

// Returns the number of the block that is a module of Qwen's form, -1 where there is none.
int MtpLayer(const GgufFile& file, const Architecture& architecture) {
  constexpr int64_t kMostBlocks = 1 << 20;
  if (!architecture.may_have_module) return -1;
  const std::string prefix = absl::StrCat(Absl(architecture.name), ".");
  const int64_t blocks = file.Whole(prefix + "block_count").value_or(0);
  const bool has_one = file.Whole(prefix + "nextn_predict_layers") == 1;
  return has_one && blocks >= 1 && blocks <= kMostBlocks ? static_cast<int>(blocks) - 1 : -1;
}

bool IsConfiguration(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

}  // namespace

bool SplitsLatent(const GgufFile& file) {
  return file.FindTensor("blk.0.attn_k_b.weight") != nullptr;
}

std::vector<Architecture> Architectures() {
  std::vector<Architecture> all(std::begin(kArchitectures), std::end(kArchitectures));
  all.push_back(kMixtral);
  all.push_back(kGraniteShared);
  all.push_back(kOlmo3);
  all.push_back(kDeepSeekV3);
  return all;
}

absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file) {
  const std::optional<std::string_view> name = file.Text("general.architecture");
  if (!name.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), ": has no general.architecture; is it a model?"));
  }
  if (name == kMixtral.name && file.Whole("llama.expert_count").value_or(0) > 0) return &kMixtral;
  if (name == kGraniteShared.name &&
      file.Find("granitemoe.expert_shared_feed_forward_length") != nullptr) {
    return &kGraniteShared;
  }
  // OLMo 3 is written as OLMo 2 with windows.
  if (name == kOlmo3.name && file.Find("olmo2.attention.sliding_window") != nullptr) {
    return &kOlmo3;
  }
  // The later versions are written as the second one whose experts have sigmoid scores.
  if (name == kDeepSeekV3.name && file.Whole("deepseek2.expert_gating_func") == kSigmoidGating) {
    return &kDeepSeekV3;
  }
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == *name) return &architecture;
    absl::StrAppend(&known, known.empty() ? "" : ", ", Absl(architecture.name));
  }
  return absl::UnimplementedError(absl::StrCat(file.name(), ": general.architecture \"",
                                               Absl(name->substr(0, 60)),
                                               "\" is not known; known are ", known));
}

int64_t HeadDim(const GgufFile& file, const Architecture& architecture) {
  const std::string prefix = absl::StrCat(Absl(architecture.name), ".");
  int64_t heads = file.Whole(prefix + "attention.head_count").value_or(1);
  if (const auto* const list = file.Numbers(prefix + "attention.head_count")) {
    // One number a layer, 0 where there is no attention.
    constexpr double kMost = 1 << 20;
    const double most = list->empty() ? 0 : *std::ranges::max_element(*list);
    heads = most >= 1 && most <= kMost ? static_cast<int64_t>(most) : 1;
  }
  const int64_t embedding = file.Whole(prefix + "embedding_length").value_or(0);
  return file.Whole(prefix + "attention.key_length")
      .value_or(embedding / std::max<int64_t>(1, heads));
}

absl::StatusOr<std::vector<NamedTensor>> NamedTensors(const GgufFile& file) {
  ASSIGN_OR_RETURN(const Architecture* const architecture, FindArchitecture(file));
  const int64_t head_dim = HeadDim(file, *architecture);
  if (architecture->interleaved_heads && (head_dim < 2 || head_dim % 2 != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(file.name(), ": has heads of ", head_dim,
                                                   " elements; they must be even in number"));
  }
  ASSIGN_OR_RETURN(const DeltaHeads heads, ReadDeltaHeads(file, *architecture));
  const Namer namer(*architecture, head_dim, heads, MtpLayer(file, *architecture));
  std::vector<NamedTensor> named;
  for (const Tensor& tensor : file.tensors()) {
    if (!IsConfiguration(tensor.name)) namer.Add(tensor, named);
  }
  const int64_t num_heads =
      file.Whole(absl::StrCat(Absl(architecture->name), ".attention.head_count")).value_or(0);
  for (const NamedTensor& tensor : named) {
    if (tensor.turned_head != 0 && tensor.shape[0] / tensor.turned_head != num_heads) {
      return absl::InvalidArgumentError(absl::StrCat(file.name(), ": tensor ", tensor.name,
                                                     " has not a matrix for each of ", num_heads,
                                                     " heads"));
    }
    if (tensor.interleaved_head == 0) continue;
    if (tensor.shape.empty() || tensor.shape[0] % tensor.interleaved_head != 0) {
      return absl::InvalidArgumentError(absl::StrCat(file.name(), ": tensor ", tensor.name,
                                                     " is not of whole heads of ",
                                                     tensor.interleaved_head, " rows"));
    }
  }
  return named;
}

}  // namespace continuo::gguf
