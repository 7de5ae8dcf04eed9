// SPDX-License-Identifier: Apache-2.0
// A GGUF file of any bytes gives tensors inside the file, a configuration and a tokenizer, or an
// error.
#include <cstddef>
#include <cstdint>

#include "services/base/check.h"
#include "services/worker/gguf/gguf_config.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/gguf/gguf_tokenizer.h"
#include "services/worker/model/description/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = continuo::gguf::GgufFile::Parse("fuzz", {data, size});
  if (!file.ok()) return 0;
  size_t total = 0;
  for (const continuo::gguf::Tensor& tensor : file->tensors()) total += tensor.bytes.size();
  CONTINUO_CHECK(total <= size);  // no two tensors share a byte
  const auto named = continuo::gguf::NamedTensors(*file);
  if (named.ok()) {
    for (const continuo::gguf::NamedTensor& tensor : *named) {
      CONTINUO_CHECK(tensor.bytes.data() >= data &&
                     tensor.bytes.data() + tensor.bytes.size() <= data + size);
    }
  }
  const auto config = continuo::gguf::ConfigOf(*file);
  if (config.ok()) {
    continuo::model::ParseModelConfig(config->config, config->generation_config).IgnoreError();
  }
  continuo::gguf::TokenizerOf(*file).IgnoreError();
  return 0;
}
