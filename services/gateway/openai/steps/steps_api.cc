// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/steps_api.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "services/base/byte_budget.h"
#include "services/gateway/openai/http/event_stream.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kEventsType = "text/event-stream; charset=utf-8";

std::string EventOf(std::string_view name, std::string_view data) {
  return absl::StrCat("event: ", std::string(name), "\ndata: ", std::string(data), "\n\n");
}

absl::Status LostWorker() {
  return protocol::WithReason(absl::UnavailableError("the worker is gone"),
                              protocol::kReasonWorkerLost);
}

// A worker that is cut off ends no stream by itself.
bool IsLost(const LoadSnapshot& fleet, const WorkerLoad& watched) {
  return std::ranges::none_of(fleet.workers, [&](const auto& load) {
    return load->address == watched.address && load->state != WorkerState::kLost;
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WorkerLoad>> FindWatched(const StepsApi::Asked& asked) {
  std::shared_ptr<const WorkerLoad> best;
  const auto order = [](const WorkerLoad& load) {
    const bool serves = load.state == WorkerState::kServing;
    return std::make_tuple(!serves, std::cref(load.worker), std::cref(load.model),
                           std::cref(load.address));
  };
  for (const auto& load : asked.fleet()->workers) {
    // Steps have the rows of the model and of all its adapters.
    if (load->state == WorkerState::kLost || !asked.may_use(load->model)) continue;
    if (!load->parent.empty()) continue;
    if (!asked.worker.empty() && load->worker != asked.worker) continue;
    if (best == nullptr || order(*load) < order(*best)) best = load;
  }
  if (best != nullptr) return best;
  return absl::NotFoundError(asked.worker.empty()
                                 ? "there is no worker"
                                 : absl::StrCat("there is no worker \"", asked.worker, "\""));
}

boost::asio::awaitable<absl::Status> StepsApi::Serve(HttpConnection& connection, Asked asked) {
  if (feed_ == nullptr) co_return absl::UnimplementedError("steps are not told here");
  const auto load = FindWatched(asked);
  if (!load.ok()) co_return load.status();
  if (asked.is_head) {
    HttpResponse response = {.content_type = std::string(kEventsType)};
    co_await connection.Respond(std::move(response));
    co_return absl::OkStatus();
  }
  // The connection is touched, and perhaps ends, on its own thread only.
  const auto queue = std::make_shared<StepQueue>(
      [weak = connection.weak_from_this(), executor = connection.executor()] {
        boost::asio::post(executor, [weak] {
          if (const auto alive = weak.lock()) alive->signal().Notify();
        });
      },
      ids_);
  const auto place = watchers_.Enter(asked.tenant, queue);
  if (!place.ok()) co_return place.status();
  // What waits in the queue, and the event that is being sent.
  ByteBudget::Share room(&connection.answers_budget());
  if (!room.ResizeLeavingRoom(int64_t{2} * StepQueue::kMaxBytes)) {
    co_return protocol::OverloadedError("answers have taken their memory");
  }
  connection.WatchClient();
  // Also where the server ends while this waits.
  const absl::Cleanup end = [queue, cancel = feed_->Watch((*load)->address, queue)] {
    queue->Close();
    cancel();
  };
  const absl::Time start = clock_->Now();
  const absl::Time deadline = std::min(asked.deadline, start + kLongestWatch);
  const HttpLimits& limits = connection.limits();
  bool begun = false, told = false;  // the header is sent, the worker is told
  while (!connection.client_gone()) {
    StepQueue::News news = queue->Take();
    if (!begun && news.end.has_value()) co_return *std::move(news.end);
    const absl::Time now = clock_->Now();
    if (!begun && (news.is_open || now >= start + limits.stream_header_delay)) {
      begun = true;
      co_await BeginEvents(connection, {}, /*has_ids=*/false);
    }
    if (news.is_open && !std::exchange(told, true)) {
      const std::string worker = EventOf("worker", WatchedWorkerJson(**load));
      co_await connection.SendStream(worker);
    }
    if (!news.steps.empty()) {
      const std::string steps = EventOf("steps", news.steps);
      co_await connection.SendStream(steps);
    }
    if (news.end.has_value()) {
      const std::string error = EventOf("error", ErrorJson(ParamNames(), *news.end));
      co_await connection.SendStream(error);
      break;
    }
    if (now >= deadline) {
      queue->OnEnd(absl::DeadlineExceededError("the watch has had its time; it may begin anew"));
      continue;
    }
    const absl::Duration silence = begun ? limits.keepalive_interval : limits.stream_header_delay;
    const bool woken =
        co_await connection.Wait(std::clamp(deadline - now, absl::Milliseconds(1), silence));
    if (woken || connection.client_gone()) continue;
    if (IsLost(*asked.fleet(), **load)) queue->OnEnd(LostWorker());
    if (begun) co_await connection.SendComment();
  }
  if (!connection.client_gone()) co_await connection.EndStream();
  co_return absl::OkStatus();
}

void StepsApi::BeginDrain() {
  watchers_.EndAll(
      protocol::WithReason(absl::UnavailableError("the gateway is shutting down; go on elsewhere"),
                           protocol::kReasonContinue));
}

}  // namespace continuo::gateway::openai
