# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::make_model)
  continuo_library(tiny_model SRCS ${CMAKE_CURRENT_LIST_DIR}/tiny_model.cc DEPS continuo::make_model)
endif()
