# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::gateway_requests)
  continuo_fuzzer(files/gateway_keys_fuzz.cc continuo::gateway_requests)
endif()
