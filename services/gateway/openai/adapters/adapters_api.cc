// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/adapters/adapters_api.h"

#include <algorithm>

#include "services/gateway/openai/adapters/adapters_json.h"

namespace continuo::gateway::openai {

boost::asio::awaitable<AdaptersApi::Answer> AdaptersApi::Serve(HttpConnection& connection,
                                                               HttpRequest& request,
                                                               AdapterUpdate::Kind kind,
                                                               ClientCall call) {
  if (updates_ == nullptr) {
    co_return Answer{.status = absl::PermissionDeniedError(
                         "adapters are not updated here: --allow_lora_updates is off")};
  }
  absl::StatusOr<AdapterUpdate> update = ParseAdapterUpdate(kind, request.body());
  if (!update.ok()) co_return Answer{.status = update.status()};
  if (absl::Status denied = check_(call, update->name); !denied.ok()) {
    co_return Answer{.status = std::move(denied)};
  }
  const absl::Time now = clock_->Now();
  const absl::Duration timeout = std::min(call.deadline - now, kLongestUpdate);
  // Workers' ends come first, since they say which worker was late.
  const absl::Time deadline = now + timeout + absl::Seconds(1);
  const absl::StatusOr<AdapterOutcome> outcome = co_await calls_.Wait<AdapterOutcome>(
      connection, deadline,
      [&](auto done) { return updates_->Apply(*update, timeout, std::move(done)); },
      [&] { connection.DropBody(request); });
  if (!outcome.ok()) co_return Answer{.status = outcome.status()};
  if (!outcome->status.ok()) {
    co_return Answer{.status = outcome->status, .workers = WorkersMember(*outcome)};
  }
  co_return Answer{.body = AdapterUpdateJson(*update, *outcome)};
}

}  // namespace continuo::gateway::openai
