// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace continuo::gateway::openai {

// Limits of one HTTP server.
struct HttpLimits {
  uint64_t max_body_bytes = 8 << 20;
  uint32_t max_header_bytes = 16 << 10;
  // The bodies of all connections that are being received or parsed.
  int64_t max_bodies_bytes = int64_t{256} << 20;
  // Bounds of one answer in one piece, and of all of them together until they are sent.
  int64_t max_answer_bytes = int64_t{64} << 20;
  int64_t max_answers_bytes = int64_t{256} << 20;
  int max_connections = 4096;
  // The most streams of one tenant at a time that are generated again up to where they were cut.
  // 0 is no limit.
  int tenant_max_replays = 64;
  absl::Duration handshake_timeout = absl::Seconds(10);
  // Between requests.
  absl::Duration idle_timeout = absl::Seconds(75);
  // From a request's first byte to the end of its header, and from there to the end of its body.
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(60);
  // A client may take nothing at all for so long while at least 64 KiB are buffered for it.
  absl::Duration write_timeout = absl::Seconds(30);
  // A stream that waits at a worker for this long gets its header, without a response yet.
  absl::Duration stream_header_delay = absl::Seconds(2);
  // A stream that has been silent for this long gets a comment, so that proxies keep it open.
  absl::Duration keepalive_interval = absl::Seconds(15);
};

}  // namespace continuo::gateway::openai
