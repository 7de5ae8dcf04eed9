// SPDX-License-Identifier: Apache-2.0
// Measures how long a client waits for the first message of a stream, one stream at a time: the
// median of some requests, in microseconds.
//
//   first_token SERVER REQUESTS
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "continuo/v1/inference.grpc.pb.h"

namespace continuo {
namespace {

using Clock = std::chrono::steady_clock;

int Run(const std::string& server, int requests) {
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateChannel(server, grpc::InsecureChannelCredentials()));
  v1::GenerateRequest request;
  for (int i = 0; i < 16; ++i) request.mutable_token_ids()->add_ids(1000 + i);
  request.mutable_stopping()->set_max_tokens(2);
  std::vector<double> micros;
  const int warm_up = requests / 10;
  for (int i = 0; i < warm_up + requests; ++i) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const Clock::time_point begin = Clock::now();
    const auto reader = stub->Generate(&context, request);
    const bool has_first = reader->Read(&response);
    const std::chrono::duration<double, std::micro> waited = Clock::now() - begin;
    while (reader->Read(&response)) {
    }
    if (const grpc::Status status = reader->Finish(); !has_first || !status.ok()) {
      std::cerr << "first_token: " << status.error_message() << "\n";
      return 1;
    }
    if (i >= warm_up) micros.push_back(waited.count());
  }
  std::ranges::nth_element(micros, micros.begin() + micros.size() / 2);
  std::cout << micros[micros.size() / 2] << std::endl;
  return 0;
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) {
  const int requests = argc == 3 ? std::atoi(argv[2]) : 0;
  if (requests > 0) return continuo::Run(argv[1], requests);
  std::cerr << "usage: first_token SERVER REQUESTS\n";
  return 2;
}
