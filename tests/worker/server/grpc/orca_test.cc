// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "services/protocol/error.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace continuo::testing {
namespace {

using xds::data::orca::v3::OrcaLoadReport;
using xds::service::orca::v3::OpenRcaService;
using xds::service::orca::v3::OrcaLoadReportRequest;

class OrcaTest : public WorkerServerTest {
 protected:
  OrcaTest()
      : orca_(OpenRcaService::NewStub(
            grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()))) {}

  // Reads reports, a millisecond apart, until one is as it should be.
  void AwaitReport(const std::function<bool(const OrcaLoadReport&)>& is_expected) {
    grpc::ClientContext context;
    OrcaLoadReportRequest request;
    *request.mutable_report_interval() = protocol::ToProto(absl::Milliseconds(1));
    auto reader = orca_->StreamCoreMetrics(&context, request);
    OrcaLoadReport report;
    while (reader->Read(&report)) {
      if (!is_expected(report)) continue;
      context.TryCancel();
      return;
    }
    ADD_FAILURE() << "the reports ended";
  }

  const std::unique_ptr<OpenRcaService::Stub> orca_;
};

TEST_F(OrcaTest, ReportsOutOfBandFollowTheLoad) {
  AwaitReport([](const OrcaLoadReport& r) { return r.application_utilization() == 2; });
  Serve();
  AwaitReport([](const OrcaLoadReport& r) { return r.application_utilization() == 0.01; });
  v1::GenerateRequest request = BaseRequest(1000);
  request.mutable_sampling()->set_num_sequences(4);
  // It may have ended before the next step was held.
  std::unique_ptr<Call> call;
  while (server_->runtime().load_board.Read().running_requests() != 4) {
    executor_.SetOpen(true);
    if (call != nullptr) {
      EXPECT_TRUE(call->Finish().ok());
    }
    call = Start(request);
    ASSERT_TRUE(call->ReadToTokens());
    executor_.SetOpen(false);
  }
  AwaitReport([](const OrcaLoadReport& r) {
    return r.named_metrics().at("running_requests") == 4 && r.application_utilization() > 0.01 &&
           r.application_utilization() < 1 && r.utilization().at("kv_cache") > 0;
  });
  executor_.SetOpen(true);
  EXPECT_TRUE(call->Finish().ok());
  AwaitReport([](const OrcaLoadReport& r) { return r.application_utilization() == 0.01; });
}

TEST_F(OrcaTest, AnIntervalThatIsNoTimeIsRefused) {
  grpc::ClientContext context;
  OrcaLoadReportRequest request;
  request.mutable_report_interval()->set_seconds(-1);
  auto reader = orca_->StreamCoreMetrics(&context, request);
  OrcaLoadReport report;
  EXPECT_FALSE(reader->Read(&report));
  EXPECT_EQ(protocol::FieldOf(common::FromGrpcStatus(reader->Finish())), "report_interval");
}

TEST_F(OrcaTest, WithoutAnIntervalReportsComeToo) {
  grpc::ClientContext context;
  auto reader = orca_->StreamCoreMetrics(&context, OrcaLoadReportRequest());
  OrcaLoadReport report;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(reader->Read(&report));
  context.TryCancel();
}

}  // namespace
}  // namespace continuo::testing
