// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/peer_verifier.h"

#include <functional>
#include <utility>

#include "services/common/pem.h"

namespace continuo::common {
namespace {

namespace tls = grpc::experimental;

class PeerVerifier : public tls::ExternalCertificateVerifier {
 public:
  explicit PeerVerifier(PeerNames names) : names_(std::move(names)) {}

  // gRPC hands names over as text that ends at the first zero byte, so they are read anew.
  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const char* const pem = request->c_request()->peer_info.peer_cert;
    if (pem != nullptr && names_.Allow(NamesOf(pem))) {
      *status = grpc::Status::OK;
    } else {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                             "the certificate has none of the names that are expected");
    }
    return true;  // It is decided.
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const PeerNames names_;
};

}  // namespace

std::shared_ptr<tls::CertificateVerifier> MakePeerVerifier(PeerNames names) {
  return tls::ExternalCertificateVerifier::Create<PeerVerifier>(std::move(names));
}

}  // namespace continuo::common
