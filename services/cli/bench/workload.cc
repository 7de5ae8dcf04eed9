// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"

namespace continuo::cli {
namespace {

constexpr uint32_t kMaxTokens = 1 << 24;
constexpr size_t kMaxRows = 10'000'000;

// A random number in [0, 1), the same on every platform (unlike std::uniform_real_distribution).
double Unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// A random number of the exponential distribution with the given mean.
double Exponential(std::mt19937_64& random, double mean) {
  return -std::log1p(-Unit(random)) * mean;
}

bool ParseLength(const std::string& text, uint32_t* value) {
  return absl::SimpleAtoi(text, value) && *value >= 1 && *value <= kMaxTokens;
}

// A gap between two arrivals, of mean 1: the hyperexponential distribution of two phases with
// balanced means that has this coefficient of variation. 1 gives the exponential distribution.
double Gap(std::mt19937_64& random, double variation) {
  if (variation <= 1) return Exponential(random, 1);
  const double square = variation * variation;
  const double often = 0.5 * (1 + std::sqrt((square - 1) / (square + 1)));
  const double share = Unit(random) < often ? often : 1 - often;
  return Exponential(random, 1 / (2 * share));
}

enum class Column { kIgnored, kPrompt, kOutput, kSeconds, kMilliseconds, kDate };

Column ColumnOf(const std::string& title) {
  for (const char* name :
       {"prompt_tokens", "input_tokens", "input_length", "ContextTokens", "num_prefill_tokens"}) {
    if (title == name) return Column::kPrompt;
  }
  for (const char* name :
       {"output_tokens", "output_length", "GeneratedTokens", "num_decode_tokens"}) {
    if (title == name) return Column::kOutput;
  }
  if (title == "arrival_s") return Column::kSeconds;
  if (title == "timestamp") return Column::kMilliseconds;
  if (title == "TIMESTAMP") return Column::kDate;
  return Column::kIgnored;
}

// Sets the field of the row that the column stands for. The error says what is allowed.
absl::Status SetColumn(Column column, double value, TraceRow* row) {
  if (column == Column::kPrompt || column == Column::kOutput) {
    if (!(value >= 0 && value <= kMaxTokens)) {
      return absl::InvalidArgumentError(absl::StrCat("lengths are from 0 to ", kMaxTokens));
    }
    // A request without a prompt or an answer would be no load.
    const auto tokens = std::max(1u, static_cast<uint32_t>(value));
    (column == Column::kPrompt ? row->prompt_tokens : row->output_tokens) = tokens;
  } else if (column != Column::kIgnored) {
    const double seconds = column == Column::kSeconds ? value : value / 1000;
    if (!(seconds >= 0 && seconds < 1e9)) {
      return absl::InvalidArgumentError("arrivals are from 0 to 1e9 seconds");
    }
    row->arrival = absl::Seconds(seconds);
  }
  return absl::OkStatus();
}

absl::Status ParseCsvLine(const std::vector<Column>& columns, const std::string& line,
                          TraceRow* row) {
  const std::vector<std::string> cells = absl::StrSplit(line, ',');
  if (cells.size() != columns.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(cells.size(), " columns, the titles are ", columns.size()));
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    double value;
    if (columns[i] == Column::kIgnored) continue;
    if (columns[i] == Column::kDate) {
      // Some recordings have no dates in this column.
      absl::Time time;
      if (absl::ParseTime("%Y-%m-%d%n%H:%M:%E*S", cells[i], &time, nullptr)) {
        row->arrival = time - absl::UnixEpoch();
      }
      continue;
    }
    if (!absl::SimpleAtod(cells[i], &value)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", cells[i], "\" is not a number"));
    }
    RETURN_IF_ERROR(SetColumn(columns[i], value, row));
  }
  return absl::OkStatus();
}

// The titles of a CSV file may be those of a recording of this form.
absl::Status CheckTitles(const std::vector<std::string>& titles, TraceForm form) {
  if (form == TraceForm::kAny) return absl::OkStatus();
  const auto has = [&](const char* title) {
    return std::ranges::any_of(titles, [&](const std::string& given) {
      return absl::StripAsciiWhitespace(given) == title;
    });
  };
  if (form == TraceForm::kAzure && has("TIMESTAMP") && has("ContextTokens") &&
      has("GeneratedTokens")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      form == TraceForm::kAzure
          ? "no recording of Azure: its columns are TIMESTAMP, ContextTokens, "
            "GeneratedTokens"
          : "no recording of Mooncake: it has JSON lines");
}

absl::Status CheckMembers(const nlohmann::json& object, TraceForm form) {
  if (form == TraceForm::kAny) return absl::OkStatus();
  if (form == TraceForm::kMooncake && object.contains("timestamp") &&
      object.contains("input_length") && object.contains("output_length")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      form == TraceForm::kAzure
          ? "no recording of Azure: it is CSV"
          : "no recording of Mooncake: its members are timestamp, input_length, output_length");
}

absl::Status ParseJsonLine(const std::string& line, TraceForm form, TraceRow* row) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  RETURN_IF_ERROR(CheckMembers(object, form));
  for (const auto& [key, value] : object.items()) {
    if (key == "hash_ids" && value.is_array()) {
      for (const auto& name : value) {
        if (name.is_number_unsigned()) row->block_names.push_back(name.get<uint64_t>());
      }
    }
    const Column column = ColumnOf(key);
    if (column == Column::kIgnored || column == Column::kDate) continue;
    if (!value.is_number()) return absl::InvalidArgumentError(key + " is not a number");
    RETURN_IF_ERROR(SetColumn(column, value.get<double>(), row));
  }
  return absl::OkStatus();
}

void AppendIds(uint64_t seed, size_t count, uint32_t vocabulary, std::vector<uint32_t>* ids) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < count; ++i) ids->push_back(static_cast<uint32_t>(random() % vocabulary));
}

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(std::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ':');
  LengthDistribution d;
  if (parts.size() == 1 && ParseLength(parts[0], &d.first_)) return d;
  if (parts.size() == 2 && parts[0] == "constant" && ParseLength(parts[1], &d.first_)) return d;
  d.kind_ = Kind::kUniform;
  if (parts.size() == 3 && parts[0] == "uniform" && ParseLength(parts[1], &d.first_) &&
      ParseLength(parts[2], &d.second_) && d.first_ <= d.second_) {
    return d;
  }
  d.kind_ = Kind::kExponential;
  if (parts.size() == 2 && parts[0] == "exponential" && ParseLength(parts[1], &d.first_)) return d;
  return absl::InvalidArgumentError(absl::StrCat(
      "lengths such as 128, uniform:1:512 or exponential:128, each from 1 to ", kMaxTokens));
}

uint32_t LengthDistribution::Sample(std::mt19937_64& random) const {
  switch (kind_) {
    case Kind::kConstant:
      return first_;
    case Kind::kUniform:
      return first_ + static_cast<uint32_t>(random() % (second_ - first_ + 1));
    case Kind::kExponential: {
      const double most = std::min<double>(first_ * 10.0, kMaxTokens);
      return static_cast<uint32_t>(std::clamp(std::ceil(Exponential(random, first_)), 1.0, most));
    }
  }
  return first_;
}

absl::StatusOr<std::vector<TraceRow>> ParseTrace(std::string_view text, TraceForm form) {
  std::vector<TraceRow> rows;
  std::vector<Column> columns;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) continue;
    const bool json = line[0] == '{';
    if (!json && columns.empty()) {
      const std::vector<std::string> titles = absl::StrSplit(line, ',');
      RETURN_IF_ERROR(CheckTitles(titles, form));
      for (const std::string& title : titles) {
        columns.push_back(ColumnOf(std::string(absl::StripAsciiWhitespace(title))));
      }
      continue;
    }
    if (rows.size() == kMaxRows) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxRows, " rows"));
    }
    TraceRow& row = rows.emplace_back();
    const absl::Status status =
        json ? ParseJsonLine(line, form, &row) : ParseCsvLine(columns, line, &row);
    if (!status.ok() || row.prompt_tokens == 0 || row.output_tokens == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ",
                       status.ok() ? "no column of prompt or of output tokens" : status.message()));
    }
  }
  if (rows.empty()) return absl::InvalidArgumentError("no requests");
  // Arrivals are relative to the first one, and are only used where every row has one.
  const bool all = std::all_of(rows.begin(), rows.end(),
                               [](const TraceRow& row) { return row.arrival.has_value(); });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow& a, const TraceRow& b) { return a.arrival < b.arrival; });
  const absl::Duration first = rows[0].arrival.value_or(absl::ZeroDuration());
  for (TraceRow& row : rows) {
    row.arrival = all ? std::optional(*row.arrival - first) : std::nullopt;
  }
  return rows;
}

absl::StatusOr<std::vector<TraceRow>> LoadTrace(const std::string& path, TraceForm form) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("cannot read the trace \"", path, "\""));
  }
  auto rows = ParseTrace(text, form);
  if (rows.ok()) return rows;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", rows.status().message()));
}

Workload::Workload(WorkloadOptions options)
    : options_(std::move(options)), random_(SplitMix64::At(options_.seed, 0)) {}

PlannedRequest Workload::Next() {
  PlannedRequest request;
  request.index = next_index_++;
  if (options_.trace.empty()) {
    request.prompt_tokens = options_.prompt.Sample(random_) + options_.shared_prefix_tokens;
    request.output_tokens = options_.output.Sample(random_);
  } else {
    const TraceRow& row = options_.trace[request.index % options_.trace.size()];
    request.prompt_tokens = row.prompt_tokens + options_.shared_prefix_tokens;
    request.output_tokens = row.output_tokens;
    // Each round of the trace begins at the last arrival of the round before.
    if (options_.rate == 0 && row.arrival.has_value()) {
      const auto round = static_cast<double>(request.index / options_.trace.size());
      request.arrival =
          (*row.arrival + *options_.trace.back().arrival * round) / options_.trace_speed;
    }
  }
  if (options_.rate > 0) {
    request.arrival = now_;
    now_ += absl::Seconds(Gap(random_, options_.burstiness) / options_.rate);
  }
  if (options_.max_context_tokens > 1) {
    const uint32_t context = options_.max_context_tokens;
    const uint32_t output = std::min(request.output_tokens, context - 1);
    const uint32_t prompt = std::min(request.prompt_tokens, context - output);
    request.cut = output != request.output_tokens || prompt != request.prompt_tokens;
    request.output_tokens = output;
    request.prompt_tokens = prompt;
  }
  return request;
}

std::vector<uint32_t> Workload::PromptIds(const PlannedRequest& request) const {
  std::vector<uint32_t> ids;
  ids.reserve(request.prompt_tokens);
  const uint64_t prefix = request.index % std::max(1u, options_.num_prefixes);
  AppendIds(SplitMix64::At(options_.seed, 2 * prefix + 1),
            std::min(options_.shared_prefix_tokens, request.prompt_tokens),
            options_.vocabulary_size, &ids);
  if (!options_.trace.empty()) {
    const TraceRow& row = options_.trace[request.index % options_.trace.size()];
    for (const uint64_t name : row.block_names) {
      const size_t left = request.prompt_tokens - ids.size();
      AppendIds(SplitMix64::At(SplitMix64::At(options_.seed, 1), name),
                std::min<size_t>(left, kTraceBlockTokens), options_.vocabulary_size, &ids);
    }
  }
  AppendIds(SplitMix64::At(options_.seed, 2 * request.index + 2),
            request.prompt_tokens - ids.size(), options_.vocabulary_size, &ids);
  return ids;
}

}  // namespace continuo::cli
