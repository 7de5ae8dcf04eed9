// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace continuo::testing {

// A key and its certificate, for tests of TLS.
struct TestCertificate {
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  TestCertificate() = default;
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;
  ~TestCertificate() {
    EVP_PKEY_free(key);
    X509_free(certificate);
  }

  // Writes `path`.crt and `path`.key.
  void Write(const std::string& path) const {
    FILE* file = std::fopen((path + ".crt").c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
    file = std::fopen((path + ".key").c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }
  std::string Pem() const {
    BIO* const bytes = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bytes, certificate);
    char* data = nullptr;
    const long size = BIO_get_mem_data(bytes, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bytes);
    return text;
  }
};

struct TestCertificateOptions {
  long serial = 2;
  long from = -3600, to = 3600;  // In seconds from now.
  // Subject alternative names, byte for byte.
  std::vector<std::string> dns = {"worker.test"}, uris;
  // Addresses among them, 4 or 16 bytes each.
  std::vector<std::string> addresses = {};
};

// Makes a new key with a certificate for `name`, signed by `ca`, or a CA that signs itself where
// that is null.
inline std::unique_ptr<TestCertificate> MakeTestCertificate(const char* name,
                                                            const TestCertificate* ca,
                                                            TestCertificateOptions options = {}) {
  auto made = std::make_unique<TestCertificate>();
  made->key = EVP_EC_gen("P-256");
  made->certificate = X509_new();
  X509* const c = made->certificate;
  X509_set_version(c, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(c), ca == nullptr ? 1 : options.serial);
  X509_gmtime_adj(X509_getm_notBefore(c), options.from);
  X509_gmtime_adj(X509_getm_notAfter(c), options.to);
  X509_set_pubkey(c, made->key);
  X509_NAME* const subject = X509_get_subject_name(c);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(c, X509_get_subject_name(ca == nullptr ? c : ca->certificate));
  if (ca == nullptr) {
    X509_EXTENSION* const is_ca =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
    X509_add_ext(c, is_ca, -1);
    X509_EXTENSION_free(is_ca);
  } else {
    GENERAL_NAMES* const names = sk_GENERAL_NAME_new_null();
    const auto add = [names](int type, const std::string& text) {
      ASN1_STRING* const value = type == GEN_IPADD ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
      ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
      GENERAL_NAME* const general = GENERAL_NAME_new();
      GENERAL_NAME_set0_value(general, type, value);
      sk_GENERAL_NAME_push(names, general);
    };
    for (const std::string& dns : options.dns) add(GEN_DNS, dns);
    for (const std::string& uri : options.uris) add(GEN_URI, uri);
    for (const std::string& address : options.addresses) add(GEN_IPADD, address);
    X509_add1_ext_i2d(c, NID_subject_alt_name, names, 0, 0);
    GENERAL_NAMES_free(names);
  }
  X509_sign(c, ca == nullptr ? made->key : ca->key, EVP_sha256());
  return made;
}

}  // namespace continuo::testing
