# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::model_run)
  continuo_library(reference_sampler SRCS ${CMAKE_CURRENT_LIST_DIR}/reference_sampler.cc
    DEPS continuo::model_run)
endif()
