#SPDX - License - Identifier : Apache - 2.0
continuo_library(testing_reference_ops SRCS ${CMAKE_CURRENT_LIST_DIR} /
                 reference_ops.cc DEPS continuo::base continuo::kernels)
