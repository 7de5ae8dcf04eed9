# SPDX-License-Identifier: Apache-2.0
continuo_library(manual_clock DEPS continuo::base)
