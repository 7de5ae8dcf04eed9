// SPDX-License-Identifier: Apache-2.0
// A proxy that only passes messages of one call at a time in each direction through gRPC's generic
// API, with one thread that polls: it does not read messages, route, limit or count. Its cost is
// the least that a gateway on this version of gRPC can have.
//
//   floor_proxy UPSTREAM      prints "listening ADDRESS", and runs until it is killed
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <iostream>
#include <memory>

namespace {

constexpr int kWaitingCalls = 64;

class Call;
using Event = void (Call::*)(bool);
struct Tag {
  Call* call;
  Event event;
};

struct Proxy {
  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::unique_ptr<grpc::GenericStub> stub;
};

// Passes one request message, then responses until the upstream's status. Owns itself.
class Call {
 public:
  explicit Call(Proxy* proxy) : proxy_(proxy) {
    proxy_->service.RequestCall(&server_, &client_side_, proxy_->queue.get(), proxy_->queue.get(),
                                &begun_);
  }

 private:
  void Begun(bool ok) {
    if (!ok) {
      delete this;
      return;
    }
    new Call(proxy_);
    client_side_.Read(&request_, &asked_);
  }
  void Asked(bool) {
    context_.set_initial_metadata_corked(true);
    upstream_ = proxy_->stub->PrepareCall(&context_, server_.method(), proxy_->queue.get());
    upstream_->StartCall(&ignored_);
    upstream_->WriteLast(request_, grpc::WriteOptions(), &ignored_);
    upstream_->Read(&response_, &answered_);
  }
  void Answered(bool ok) {
    if (ok) {
      client_side_.Write(response_, &passed_);
    } else {
      upstream_->Finish(&status_, &ended_);
    }
  }
  void Passed(bool) { upstream_->Read(&response_, &answered_); }
  void Ended(bool) { client_side_.Finish(status_, &finished_); }
  void Finished(bool) { delete this; }
  void Ignored(bool) {}

  Proxy* const proxy_;
  grpc::GenericServerContext server_;
  grpc::GenericServerAsyncReaderWriter client_side_{&server_};
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> upstream_;
  grpc::ByteBuffer request_, response_;
  grpc::Status status_;
  Tag begun_{this, &Call::Begun}, asked_{this, &Call::Asked}, answered_{this, &Call::Answered},
      passed_{this, &Call::Passed}, ended_{this, &Call::Ended}, finished_{this, &Call::Finished},
      ignored_{this, &Call::Ignored};
};

int Run(const char* upstream) {
  Proxy proxy;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.RegisterAsyncGenericService(&proxy.service);
  proxy.queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  proxy.stub = std::make_unique<grpc::GenericStub>(
      grpc::CreateChannel(upstream, grpc::InsecureChannelCredentials()));
  std::cout << "listening 127.0.0.1:" << port << std::endl;
  for (int i = 0; i < kWaitingCalls; ++i) new Call(&proxy);
  void* found;
  bool ok;
  while (proxy.queue->Next(&found, &ok)) {
    const Tag& tag = *static_cast<Tag*>(found);
    (tag.call->*tag.event)(ok);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) return Run(argv[1]);
  std::cerr << "usage: floor_proxy UPSTREAM\n";
  return 2;
}
