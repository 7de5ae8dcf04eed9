# SPDX-License-Identifier: Apache-2.0
# `cmake --install` and the Debian package (`cpack`): the three programs, the demo model, licences.
# The package depends on the libraries of the distribution that it is built on.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)
install(TARGETS continuo continuo-gateway continuo-worker RUNTIME DESTINATION bin)
install(DIRECTORY deploy/demo-model DESTINATION share/continuo PATTERN "heldout*" EXCLUDE)
install(FILES LICENSE DESTINATION share/doc/continuo RENAME copyright)
install(FILES THIRD_PARTY_NOTICES.md DESTINATION share/doc/continuo)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME continuo)
set(CPACK_PACKAGE_VENDOR Continuo)
set(CPACK_PACKAGE_CONTACT "Continuo's developers <maintainers@continuo.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference whose streams survive their workers")
set(CPACK_PACKAGE_DESCRIPTION "Gateways route streaming requests to workers, which run a continuous-batching loop over a paged KV cache.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For models of a hub.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
include(CPack)
