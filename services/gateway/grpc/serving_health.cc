// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/serving_health.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace continuo::gateway {
namespace {

// All of them need a worker.
constexpr const char* kServiceNames[] = {"continuo.v1.InferenceService",
                                         "inference.GRPCInferenceService"};

}  // namespace

void ServingHealth::Open(common::GrpcServer* server) {
  server->SetServing("", true);
  {
    absl::MutexLock lock(&mutex_);
    server_ = server;
  }
  Update();
}

void ServingHealth::Update() {
  absl::MutexLock lock(&mutex_);
  if (server_ == nullptr) return;
  const std::shared_ptr<const LoadSnapshot> snapshot = view_->Get();
  std::map<std::string, bool> models;
  for (const std::string& model : snapshot->known_models) models[model] = false;
  bool any = false;
  for (const auto& load : snapshot->workers) {
    if (load->state == WorkerState::kServing) any = models[load->model] = true;
  }
  for (const char* const name : kServiceNames) server_->SetServing(name, any);
  for (const auto& [model, is_serving] : models) {
    if (!model.empty()) server_->SetServing(model, is_serving);
  }
}

void ServingHealth::BeginDrain() {
  absl::MutexLock lock(&mutex_);
  if (server_ == nullptr) return;
  std::exchange(server_, nullptr)->SetAllServing(false);
}

bool ServingHealth::healthy() const {
  absl::MutexLock lock(&mutex_);
  return server_ != nullptr;
}

}  // namespace continuo::gateway
