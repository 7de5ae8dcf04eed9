// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/load/orca_service.h"

#include <algorithm>

#include "services/base/status_macros.h"
#include "services/common/grpc/message_bytes.h"
#include "services/worker/server/load/load_stream.h"
#include "services/worker/server/load/orca_report.h"

namespace continuo::server {
namespace {

// Balancers that name no interval take what they get.
constexpr absl::Duration kInterval = absl::Seconds(1);

absl::StatusOr<WatchPace> ReadPace(const grpc::ByteBuffer& bytes) {
  ASSIGN_OR_RETURN(const auto request,
                   common::ParseMessage<xds::service::orca::v3::OrcaLoadReportRequest>(bytes));
  const google::protobuf::Duration& asked = request.report_interval();
  ASSIGN_OR_RETURN(const absl::Duration interval,
                   ReadInterval("report_interval", asked.seconds() != 0 || asked.nanos() != 0,
                                asked, kInterval));
  return WatchPace(interval, interval);
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* OrcaService::StreamCoreMetrics(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const absl::Status peer = check_(*context);
  return LoadStream::Start(
      peer.ok() ? ReadPace(*request) : peer,
      [](const v1::WatchLoadResponse& load, grpc::ByteBuffer* bytes) {
        common::SerializeMessage(MakeOrcaReport(load), bytes);
      },
      board_);
}

}  // namespace continuo::server
