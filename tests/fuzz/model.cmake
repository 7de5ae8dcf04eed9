# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::model_run)
  continuo_fuzzer(files/model_adapter_fuzz.cc continuo::model_run)
  continuo_fuzzer(files/model_config_fuzz.cc continuo::model_run)
  continuo_fuzzer(files/model_gguf_fuzz.cc continuo::model_run)
  continuo_fuzzer(files/model_safetensors_fuzz.cc continuo::model_run)
  continuo_fuzzer(files/quantised_safetensors_fuzz.cc continuo::model_run)
  continuo_fuzzer(files/sentence_modules_fuzz.cc continuo::worker_embedding)
endif()
