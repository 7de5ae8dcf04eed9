// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recorded arrivals for policy_bench, and the sessions in them.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/bench/gateway/simulated_worker.h"

namespace continuo::gateway {

// Names the sessions, which a recording does not name: a request belongs to the conversation of the
// latest one whose whole blocks its own begin with, two at least (the first is everybody's); else
// to a new one.
inline void FindConversations(std::vector<TraceRequest>& trace, int64_t block_tokens) {
  constexpr size_t kFewest = 2;
  std::unordered_map<uint64_t, int64_t> by_last_block;
  int64_t num_conversations = 0;
  for (TraceRequest& request : trace) {
    for (size_t n = request.blocks.size(); n >= kFewest && request.session < 0; --n) {
      const auto at = by_last_block.find(request.blocks[n - 1]);
      if (at != by_last_block.end()) request.session = at->second;
    }
    if (request.session < 0) request.session = num_conversations++;
    const size_t num_whole = static_cast<size_t>(request.input_tokens / block_tokens);
    if (num_whole >= kFewest && num_whole <= request.blocks.size()) {
      by_last_block[request.blocks[num_whole - 1]] = request.session;
    }
  }
}

inline std::vector<TraceRequest> ReadMooncake(const std::string& path) {
  std::vector<TraceRequest> trace;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    TraceRequest& request = trace.emplace_back();
    request.arrival = json["timestamp"].get<double>() / 1000;
    request.input_tokens = json["input_length"];
    request.output_tokens = std::max<int64_t>(1, json["output_length"]);
    request.blocks = json["hash_ids"].get<std::vector<uint64_t>>();
  }
  FindConversations(trace, WorkerModel{}.block_tokens);
  return trace;
}

// The same with a system prompt before each, so long that a prefix's hash sees nothing else.
inline std::vector<TraceRequest> BehindSystemPrompt(std::vector<TraceRequest> trace) {
  constexpr uint64_t kSystem = uint64_t{1} << 32;
  constexpr int64_t kBlocks = 2;
  for (TraceRequest& request : trace) {
    request.input_tokens += kBlocks * WorkerModel{}.block_tokens;
    for (int64_t i = 0; i < kBlocks; ++i) {
      request.blocks.insert(request.blocks.begin(), kSystem + static_cast<uint64_t>(i));
    }
  }
  return trace;
}

// Reads a trace with the columns arrival_s, input_tokens, output_tokens, in some traces client_id,
// and others.
inline std::vector<TraceRequest> ReadCsv(const std::string& path) {
  std::vector<TraceRequest> trace;
  std::ifstream file(path);
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::stringstream fields(line);
    std::map<std::string, double> row;
    size_t column = 0;
    for (std::string field; std::getline(fields, field, ','); ++column) {
      if (trace.empty() && row.empty() && names.size() == column && !std::isdigit(field[0])) {
        names.push_back(field);
      } else {
        row[names.at(column)] = std::atof(field.c_str());
      }
    }
    if (row.empty()) continue;
    trace.push_back(
        {.arrival = row["arrival_s"],
         .input_tokens = std::max<int64_t>(1, static_cast<int64_t>(row["input_tokens"])),
         .output_tokens = std::max<int64_t>(1, static_cast<int64_t>(row["output_tokens"])),
         .session = row.contains("client_id") ? static_cast<int64_t>(row["client_id"]) : -1});
  }
  return trace;
}

// Lays `copies` copies of the trace over each other, each begun at another place in it, and takes
// the first `seconds`: the load of a larger fleet at the trace's own pace.
inline std::vector<TraceRequest> Overlaid(const std::vector<TraceRequest>& trace, int copies,
                                          double seconds) {
  std::vector<TraceRequest> all;
  // The last arrival is within it.
  const double length = std::nextafter(trace.back().arrival, HUGE_VAL);
  for (int i = 0; i < copies; ++i) {
    for (const TraceRequest& request : trace) {
      const double arrival = std::fmod(request.arrival + length * i / copies, length);
      if (arrival >= seconds) continue;
      all.push_back(request);
      all.back().arrival = arrival;
    }
  }
  std::ranges::stable_sort(all, {}, &TraceRequest::arrival);
  return all;
}

}  // namespace continuo::gateway
