# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::worker_vllm)
  continuo_fuzzer(worker/vllm_request_fuzz.cc continuo::worker_vllm continuo::protocol)
endif()
if(TARGET continuo::worker_session AND TARGET continuo::gateway_requests AND TARGET continuo::tiny_model)
  continuo_fuzzer(generate_request_fuzz.cc continuo::worker_session continuo::gateway_routing continuo::gateway_requests
    continuo::model_load continuo::tiny_model continuo::manual_clock)
  if(CONTINUO_FUZZERS AND TARGET generate_request_fuzz)
    target_sources(generate_request_fuzz PRIVATE generate_request_mutator.cc proto_mutator.cc)
  endif()
endif()
