#SPDX - License - Identifier : Apache - 2.0
if (TARGET continuo::make_model)
continuo_library(quantised_model SRCS ${CMAKE_CURRENT_LIST_DIR} /
                 quantised_model.cc DEPS
                     continuo::model_checkpoint continuo::tiny_model nlohmann_json::nlohmann_json)
    endif()
